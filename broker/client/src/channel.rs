//! Connections to brokers.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use gazette_protocol::journal_server::{Journal, JournalServer};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, task::JoinHandle};
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

/// A way to a broker over which the generated client can talk. Cheap to clone; clones share it.
pub type BoxChannel = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tonic::Status>;

/// Largest message that is accepted from a broker.
pub(crate) const RECEIVE_MAX_BYTES: usize = 16 << 20;

/// Content that a broker may send ahead on one stream. Several streams of this size fit into the
/// connection's window, so one that nobody reads does not hold up the others.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// How connections are made and watched.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Longest time for the connection to come about.
    pub connect_timeout: Duration,
    /// How long a broker may be silent while a call is under way, before it is asked whether it is still
    /// there. Zero never asks, and leaves it to the kernel to find out that a host is gone.
    pub keep_alive_interval: Duration,
    /// How long it has to say so, before all calls on the connection fail.
    pub keep_alive_timeout: Duration,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
        }
    }
}

/// Why an endpoint cannot be connected to, ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The text is no URL.
    #[error("connect to {endpoint:?}: {cause}; next: write http://HOST:PORT or unix:///PATH")]
    Malformed {
        /// The text.
        endpoint: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The scheme is not one that this client speaks.
    #[error(
        "connect to {endpoint:?}: connections with {scheme:?} are not supported; next: write \
         http://HOST:PORT or unix:///PATH"
    )]
    Unsupported {
        /// The whole endpoint.
        endpoint: String,
        /// Its scheme.
        scheme: String,
    },
}

/// Returns a channel to `endpoint`: `http://HOST:PORT`, `unix:///PATH`, or `unix://HOST/PATH` as
/// brokers advertise it, of which the host is left out.
///
/// The connection is made at the first call, and made anew at the first call after it was lost.
/// A call that finds no broker fails at once: waiting is for the one who retries.
///
/// Must be called in a tokio runtime.
pub fn connect_channel(
    endpoint: &str,
    options: &ChannelOptions,
) -> Result<BoxChannel, ConnectError> {
    let malformed = |cause: &dyn fmt::Display| ConnectError::Malformed {
        endpoint: endpoint.to_owned(),
        cause: cause.to_string(),
    };
    let url = url::Url::parse(endpoint).map_err(|error| malformed(&error))?;
    let channel = match url.scheme() {
        "http" if url.host().is_some() => {
            let address =
                Endpoint::from_shared(endpoint.to_owned()).map_err(|error| malformed(&error))?;
            tune(address, options).connect_lazy()
        }
        "http" => return Err(malformed(&"the host is missing")),
        "unix" => {
            // Taken from the text, as the parsed URL escapes characters that a path may have.
            let rest = endpoint.trim_start_matches("unix:");
            let rest = rest.strip_prefix("//").unwrap_or(rest);
            let path = match rest.find('/') {
                Some(at) if at + 1 < rest.len() => PathBuf::from(&rest[at..]),
                Some(_) | None => return Err(malformed(&"the path of the socket is missing")),
            };
            // The address is never resolved, and only fills the request's authority.
            tune(Endpoint::from_static("http://localhost"), options).connect_with_connector_lazy(
                tower::service_fn(move |_| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                }),
            )
        }
        scheme => {
            return Err(ConnectError::Unsupported {
                endpoint: endpoint.to_owned(),
                scheme: scheme.to_owned(),
            });
        }
    };
    Ok(box_channel(channel))
}

fn box_channel(channel: Channel) -> BoxChannel {
    BoxCloneSyncService::new(channel.map_err(|error| tonic::Status::from_error(Box::new(error))))
}

fn tune(endpoint: Endpoint, options: &ChannelOptions) -> Endpoint {
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(Duration::from_secs(10)))
        .tcp_keepalive_interval(Some(Duration::from_secs(5)))
        .tcp_keepalive_retries(Some(3))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    if options.keep_alive_interval.is_zero() {
        return endpoint;
    }
    // Not while idle: there is nothing to wait for then, and servers count it as abuse.
    endpoint
        .http2_keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout)
}

/// Returns a channel to a journal service in this process, without any socket.
///
/// The service sees the same streams as over a socket. A task of its own runs each call until it
/// answers, so it gets on even when the caller does something else in between, and it is aborted
/// when the caller drops the call. Calls must be made in a tokio runtime.
pub fn in_process_channel(journal: impl Journal) -> BoxChannel {
    let server = JournalServer::new(journal).max_decoding_message_size(RECEIVE_MAX_BYTES);
    BoxCloneSyncService::new(InProcess { server })
}

struct InProcess<T> {
    server: JournalServer<T>,
}

impl<T> Clone for InProcess<T> {
    fn clone(&self) -> Self {
        Self {
            server: self.server.clone(),
        }
    }
}

impl<T: Journal> Service<http::Request<Body>> for InProcess<T> {
    type Response = http::Response<Body>;
    type Error = tonic::Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut server = self.server.clone();
        Box::pin(async move {
            let answer: Result<_, Infallible> =
                AbortOnDrop(tokio::spawn(async move { server.call(request).await }))
                    .await
                    .map_err(|error| tonic::Status::from_error(Box::new(error)))?;
            match answer {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            }
        })
    }
}

/// A task that ends with its handle.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
