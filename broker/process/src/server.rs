//! HTTP/1.1, HTTP/2 and gRPC on one port.
//!
//! A request whose content type begins with `application/grpc` goes to the gRPC services, any
//! other to the HTTP router. The path does not decide, because the HTTP gateway takes the name of
//! a journal as its path, and a journal may be called like a gRPC method.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, response::Response};
use http::{Request, header::CONTENT_TYPE};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    args::host_name,
    listener::{BindError, Connection, ListenAddress, Listener},
};

/// A bound listener that does not accept yet, so that its address can be announced first.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    endpoint: String,
}

/// Why serving ended other than by being asked to.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Connections had to be cut, because they were not done in time.
    #[error("stop serving: {connections} connections were not done after {} s and were cut; \
             next: nothing, their clients see a reset", .waited.as_secs())]
    Cut {
        /// How many there were.
        connections: usize,
        /// How long the server waited.
        waited: Duration,
    },
}

impl Server {
    /// Binds `address`. A TCP server advertises the name of this host; see
    /// [`bind_as`](Self::bind_as) for another name.
    ///
    /// A Unix socket has mode 0600 from its first moment. One that a dead process left behind is
    /// replaced, one with a live process behind it is refused.
    ///
    /// # Errors
    ///
    /// If the address is taken or may not be used.
    pub async fn bind(address: &ListenAddress) -> Result<Self, BindError> {
        let host = match address {
            ListenAddress::Tcp { host, .. } if !host.is_empty() => host.clone(),
            ListenAddress::Tcp { .. } | ListenAddress::Unix(_) => host_name(),
        };
        Self::bind_as(address, &host).await
    }

    /// Binds `address` and advertises `host`.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub async fn bind_as(address: &ListenAddress, host: &str) -> Result<Self, BindError> {
        let listener = Listener::bind(address).await?;
        let endpoint = listener
            .endpoint(host)
            .map_err(|cause: io::Error| BindError::Refused {
                address: address.to_string(),
                cause,
            })?;
        Ok(Self { listener, endpoint })
    }

    /// Returns what peers dial: `http://host:port` or `unix://hostname/abs/path`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the bound address, unless it is a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listener.tcp_address()
    }

    /// Serves until `shutdown` is cancelled, then lets requests in progress end for at most
    /// [`GRACE`], and cuts what is left.
    ///
    /// # Errors
    ///
    /// If connections had to be cut.
    pub async fn serve(
        self,
        grpc: tonic::service::Routes,
        http: Router,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        self.serve_with_grace(grpc, http, shutdown, GRACE).await
    }

    /// Serves as [`serve`](Self::serve) does, with another bound for the end.
    ///
    /// # Errors
    ///
    /// If connections had to be cut.
    pub async fn serve_with_grace(
        self,
        grpc: tonic::service::Routes,
        http: Router,
        shutdown: CancellationToken,
        grace: Duration,
    ) -> Result<(), ServeError> {
        let router = OnePort {
            grpc: grpc.prepare().into_axum_router(),
            http,
        };
        let builder = connection_builder();
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            let connection = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                connection = self.listener.accept() => connection,
            };
            let (builder, router) = (builder.clone(), router.clone());
            let watcher = graceful.watcher();
            match connection {
                Connection::Tcp(stream, peer) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, err = %error, "cannot set TCP_NODELAY");
                    }
                    connections.spawn(async move {
                        let first = stream.readable();
                        if tokio::time::timeout(SILENCE_MAX, first).await.is_ok() {
                            serve_connection(stream, &builder, router, watcher).await;
                        }
                    });
                }
                Connection::Unix(stream) => {
                    connections.spawn(async move {
                        serve_connection(stream, &builder, router, watcher).await;
                    });
                }
            }
        }
        // The socket goes away first: new clients are to look elsewhere.
        drop(self.listener);
        let drained = tokio::time::timeout(grace, async {
            graceful.shutdown().await;
            while connections.join_next().await.is_some() {}
        });
        if drained.await.is_ok() {
            return Ok(());
        }
        let left = connections.len();
        connections.shutdown().await;
        Err(ServeError::Cut {
            connections: left,
            waited: grace,
        })
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    builder: &auto::Builder<TokioExecutor>,
    router: OnePort,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = hyper::service::service_fn(move |request| router.clone().call(request));
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    // A client that vanishes is no fault of this process.
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(err = error, "connection ended early");
    }
}

/// The two routers behind a port.
#[derive(Debug, Clone)]
struct OnePort {
    grpc: Router,
    http: Router,
}

impl OnePort {
    async fn call(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let router = if is_grpc(&request) {
            self.grpc
        } else {
            self.http
        };
        router.oneshot(request.map(Body::new)).await
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'+' | b';' | b' '))
    })
}

fn connection_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_MAX)
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_MAX_BYTES)
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder
}

/// How long requests in progress may take once the server shall stop.
pub const GRACE: Duration = Duration::from_secs(15);

/// How long an accepted connection may say nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How long the head of an HTTP/1.1 request may take, idle time between requests included.
const HEADER_READ_MAX: Duration = Duration::from_secs(30);

/// A stream may have this much in flight: four appends of 1 MiB.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// All streams of a connection together, so that one slow stream does not starve the others.
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// One DATA frame holds one chunk of an append with its head.
const FRAME_MAX_BYTES: u32 = 1 << 20;

/// A client that closes many readers at once resets as many streams; that is no attack.
const RESET_STREAMS_MAX: usize = 4096;

/// Finds peers that vanished without a word, such as behind a partition.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
