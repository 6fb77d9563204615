//! The service behind sockets, whose connections can be cut or frozen.

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, StreamExt, stream};
use gazette_protocol::journal_server::JournalServer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
};
use tonic::transport::{
    Server,
    server::{Connected, TcpConnectInfo, UdsConnectInfo},
};

use super::FakeBroker;
use crate::channel::AbortOnDrop;

/// A socket of a [`FakeBroker`]. It is closed, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct FakeServer {
    endpoint: String,
    mode: Arc<watch::Sender<Mode>>,
    task: AbortOnDrop<()>,
}

/// What connections do. Those made before `cut` are reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mode {
    cut: u64,
    frozen: bool,
}

impl FakeBroker {
    /// Serves on a unix socket at `path`, which must be absolute.
    pub fn serve_unix(&self, path: &Path) -> io::Result<FakeServer> {
        let listener = UnixListener::bind(path)?;
        let endpoint = format!("unix://localhost{}", path.display());
        let incoming = stream::unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        Ok(self.serve(endpoint, incoming))
    }

    /// Serves on a port of the loopback interface.
    pub async fn serve_tcp(&self) -> io::Result<FakeServer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let incoming = stream::unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        Ok(self.serve(endpoint, incoming))
    }

    fn serve<S>(
        &self,
        endpoint: String,
        incoming: impl stream::Stream<Item = io::Result<S>> + Send + 'static,
    ) -> FakeServer
    where
        Cuttable<S>: Connected + AsyncRead + AsyncWrite,
        S: Send + Unpin + 'static,
    {
        endpoint.clone_into(&mut self.lock().endpoint);
        let mode = Arc::new(watch::Sender::new(Mode::default()));
        let connections = Arc::clone(&mode);
        let incoming = incoming
            .map(move |stream| stream.map(|stream| Cuttable::new(stream, connections.subscribe())));
        let service = JournalServer::new(self.clone());
        let task = tokio::spawn(async move {
            let served = Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming);
            if let Err(error) = served.await {
                tracing::error!(err = %error, "fake server ended");
            }
        });
        FakeServer {
            endpoint,
            mode,
            task: AbortOnDrop(task),
        }
    }
}

impl FakeServer {
    /// What a client connects to.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Resets all connections that there are. New ones can be made.
    pub fn cut(&self) {
        self.mode.send_modify(|mode| mode.cut += 1);
    }

    /// Lets nothing through any more, in either direction, as a host that was paused.
    pub fn freeze(&self) {
        self.mode.send_modify(|mode| mode.frozen = true);
    }

    /// Lets everything through again.
    pub fn thaw(&self) {
        self.mode.send_modify(|mode| mode.frozen = false);
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.cut();
        self.task.0.abort();
    }
}

/// A connection that can be cut or frozen.
struct Cuttable<S> {
    inner: S,
    born: u64,
    mode: watch::Receiver<Mode>,
    changed: Pin<Box<dyn Future<Output = watch::Receiver<Mode>> + Send>>,
}

impl<S> Cuttable<S> {
    fn new(inner: S, mode: watch::Receiver<Mode>) -> Self {
        let born = mode.borrow().cut;
        let changed = changed(mode.clone());
        Self {
            inner,
            born,
            mode,
            changed,
        }
    }

    /// Passes if the connection works. Else the task is woken when that changes.
    fn poll_alive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(mode) = self.changed.poll_unpin(cx) {
            self.changed = changed(mode);
        }
        let Mode { cut, frozen } = *self.mode.borrow();
        if cut != self.born {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if frozen {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }
}

fn changed(
    mut mode: watch::Receiver<Mode>,
) -> Pin<Box<dyn Future<Output = watch::Receiver<Mode>> + Send>> {
    Box::pin(async move {
        if mode.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        mode
    })
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_alive(cx))?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_alive(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_alive(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Connected for Cuttable<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

impl Connected for Cuttable<UnixStream> {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}
