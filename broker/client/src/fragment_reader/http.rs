//! Fragments behind HTTP URLs, as stores sign them.

use std::{io, time::Duration};

use bytes::{Buf, Bytes};
use gazette_protocol::{CompressionCodec, Fragment};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{runtime::Handle, time::timeout};

use super::{FragmentReaderError, Opened, io_error};

/// Longest wait for the store to answer, and for the next bytes.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// HTTP client of the stores.
pub(crate) struct Http {
    client: HyperClient<HttpConnector, Empty<Bytes>>,
}

impl Http {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_MAX));
        Self {
            client: HyperClient::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// Asks for the fragment, and of uncompressed ones only for what is wanted.
    pub(super) async fn open(
        &self,
        shown: &str,
        url: &url::Url,
        fragment: &Fragment,
        skip: u64,
    ) -> Result<Opened, FragmentReaderError> {
        let codec = fragment.compression_codec();
        let ranged = codec == CompressionCodec::None && skip > 0;
        // A store that knows the object to be compressed undoes that, unless we take it as it is.
        let accept = if codec == CompressionCodec::Gzip {
            "gzip"
        } else {
            "identity"
        };
        let mut request = Request::get(url.as_str()).header(header::ACCEPT_ENCODING, accept);
        if ranged {
            request = request.header(header::RANGE, format!("bytes={skip}-"));
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| FragmentReaderError::Url {
                url: shown.to_owned(),
                cause: error.to_string(),
            })?;
        let response = timeout(SILENCE_MAX, self.client.request(request))
            .await
            .map_err(|_| io_error(shown, silent()))?
            .map_err(|error| io_error(shown, io::Error::other(full_text(&error))))?;
        let skipped = match response.status() {
            StatusCode::PARTIAL_CONTENT if ranged => skip,
            StatusCode::OK => 0,
            status => {
                return Err(FragmentReaderError::Http {
                    url: shown.to_owned(),
                    status: status.as_u16(),
                });
            }
        };
        let encoded = response.headers().get(header::CONTENT_ENCODING);
        let is_gzip = encoded.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let codec = match (codec, is_gzip) {
            (CompressionCodec::GzipOffloadDecompression, true) => CompressionCodec::Gzip,
            (CompressionCodec::GzipOffloadDecompression, false) => CompressionCodec::None,
            (codec, _) => codec,
        };
        let stored = response
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = BodyReader {
            body: response.into_body(),
            piece: Bytes::new(),
            runtime: Handle::current(),
        };
        Ok(Opened {
            bytes: Box::new(body),
            codec,
            skipped,
            stored,
        })
    }
}

/// Reads a body from a thread that may block.
struct BodyReader {
    body: Incoming,
    piece: Bytes,
    runtime: Handle,
}

impl io::Read for BodyReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let frame = self.runtime.block_on(async {
                timeout(SILENCE_MAX, self.body.frame())
                    .await
                    .map_err(|_| silent())
            })?;
            match frame {
                None => return Ok(0),
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(io::Error::other(full_text(&error))),
            }
        }
        let count = buf.len().min(self.piece.len());
        buf[..count].copy_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        Ok(count)
    }
}

fn silent() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("the store was silent for {} s", SILENCE_MAX.as_secs()),
    )
}

fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
