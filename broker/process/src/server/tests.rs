use std::{future::pending, path::Path, time::Instant};

use axum::routing::get;
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use tokio::task::JoinHandle;

use super::*;

fn http() -> Router {
    Router::new()
        .route("/hello", get(|| async { "hello" }))
        .route("/never", get(|| async { pending::<&str>().await }))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                "done"
            }),
        )
}

struct Running {
    shutdown: CancellationToken,
    address: SocketAddr,
    served: JoinHandle<Result<(), ServeError>>,
}

async fn start(grace: Duration) -> Running {
    let address = ListenAddress::Tcp {
        host: "127.0.0.1".into(),
        port: 0,
    };
    let server = Server::bind(&address).await.unwrap();
    let address = server.tcp_address().unwrap();
    assert_eq!(
        server.endpoint(),
        format!("http://127.0.0.1:{}", address.port())
    );
    let shutdown = CancellationToken::new();
    let routes = tonic::service::Routes::default();
    let serve = server.serve_with_grace(routes, http(), shutdown.clone(), grace);
    Running {
        shutdown,
        address,
        served: tokio::spawn(serve),
    }
}

fn request(path: &str, content_type: Option<&str>) -> Request<Empty<Bytes>> {
    let mut request = Request::get(path).header("host", "here");
    if let Some(content_type) = content_type {
        request = request.method("POST").header(CONTENT_TYPE, content_type);
    }
    request.body(Empty::new()).unwrap()
}

async fn http1<I>(io: I, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    sender.send_request(request).await
}

async fn http2<I>(io: I, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
            .await
            .unwrap();
    drop(tokio::spawn(connection));
    sender.send_request(request).await
}

async fn connect(running: &Running) -> tokio::net::TcpStream {
    tokio::net::TcpStream::connect(running.address)
        .await
        .unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn both_versions_of_http_and_grpc_share_a_port() {
    let running = start(GRACE).await;
    let response = http1(connect(&running).await, request("/hello", None))
        .await
        .unwrap();
    assert_eq!(text(response).await, "hello");
    let response = http2(connect(&running).await, request("/hello", None))
        .await
        .unwrap();
    assert_eq!(text(response).await, "hello");

    // No service is registered: gRPC says "unimplemented" (12), whatever the path.
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;x=y",
    ] {
        let request = request("/hello", Some(content_type));
        let response = http2(connect(&running).await, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{content_type}");
        assert_eq!(response.headers()["grpc-status"], "12", "{content_type}");
    }
    let request = request("/hello", Some("application/grpcish"));
    let response = http2(connect(&running).await, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    running.shutdown.cancel();
    running.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_in_progress_is_answered_while_the_server_stops() {
    let running = start(GRACE).await;
    let stream = connect(&running).await;
    let answer = tokio::spawn(http1(stream, request("/slow", None)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.shutdown.cancel();
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "done");
    running.served.await.unwrap().unwrap();
    tokio::net::TcpStream::connect(running.address)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_when_time_is_up() {
    let running = start(Duration::from_millis(200)).await;
    let stream = connect(&running).await;
    let answer = tokio::spawn(http2(stream, request("/never", None)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    running.shutdown.cancel();
    let cut = running.served.await.unwrap();
    assert!(
        matches!(cut, Err(ServeError::Cut { connections: 1, .. })),
        "{cut:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    answer.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_the_server_up() {
    let running = start(GRACE).await;
    let silent = connect(&running).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(
        TokioIo::new(connect(&running).await),
    )
    .await
    .unwrap();
    drop(tokio::spawn(connection));
    drop(sender.send_request(request("/hello", None)).await.unwrap());
    let begun = Instant::now();
    running.shutdown.cancel();
    running.served.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(silent);
}

#[tokio::test]
async fn a_unix_socket_serves_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::bind(&ListenAddress::Unix(path.clone()))
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let routes = tonic::service::Routes::default();
    let served = tokio::spawn(server.serve(routes, http(), shutdown.clone()));
    let dial = |path: &Path| tokio::net::UnixStream::connect(path.to_owned());
    let response = http1(dial(&path).await.unwrap(), request("/hello", None))
        .await
        .unwrap();
    assert_eq!(text(response).await, "hello");
    let grpc = request("/hello", Some("application/grpc"));
    let response = http2(dial(&path).await.unwrap(), grpc).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
    shutdown.cancel();
    served.await.unwrap().unwrap();
    assert!(!path.exists());
}
