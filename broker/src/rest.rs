//! The REST gateway: `POST /v1/journals/list` and `POST /v1/journals/read` with JSON bodies.
//!
//! Each response of the stream is a line `{"result":...}`; an error is `{"error":...}`. Forms and
//! statuses are those of spec wire.md section 10.3 and of `tests/golden/broker/http/rest.json`.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gazette_protocol::{
    ListRequest, ReadRequest,
    json::{self, JsonForm, WireMessage},
};
use http_body_util::{BodyExt as _, Limited};
use serde_json::json;
use tonic::Code;

use crate::service::Service;

/// A request is a selector or a few numbers; this bounds what a broken client can make us hold.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Answers a request below `/v1/`.
pub(crate) async fn serve(service: Service, request: Request<Body>) -> Response<Body> {
    if *request.method() == Method::OPTIONS {
        return Response::new(Body::empty());
    }
    let is_post = *request.method() == Method::POST;
    match request.uri().path() {
        "/v1/journals/list" if is_post => match parse::<ListRequest>(request).await {
            Ok(list) => stream_of(service.list(list)).await,
            Err(refused) => refused,
        },
        "/v1/journals/read" if is_post => match parse::<ReadRequest>(request).await {
            Ok(read) => stream_of(service.read(read)).await,
            Err(refused) => refused,
        },
        _ => refusal(
            StatusCode::NOT_IMPLEMENTED,
            Code::Unimplemented,
            "Not Implemented",
        ),
    }
}

async fn parse<M: WireMessage + Default>(request: Request<Body>) -> Result<M, Response<Body>> {
    let refused = |message: &str| refusal(StatusCode::BAD_REQUEST, Code::InvalidArgument, message);
    let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX);
    let body = body
        .collect()
        .await
        .map_err(|error| refused(&error.to_string()))?
        .to_bytes();
    if body.is_empty() {
        return Ok(M::default());
    }
    let text = std::str::from_utf8(&body).map_err(|error| refused(&error.to_string()))?;
    json::from_json_str(text).map_err(|error| refused(&error.to_string()))
}

async fn stream_of<M, S>(responses: S) -> Response<Body>
where
    M: WireMessage + Send + 'static,
    S: Stream<Item = Result<M, tonic::Status>> + Send + 'static,
{
    let mut responses = Box::pin(responses.peekable());
    // The status is that of the first message; what fails later shows in the body only.
    let first_error = match responses.as_mut().peek().await {
        Some(Err(error)) => Some(http_status(error.code())),
        Some(Ok(_)) | None => None,
    };
    let lines = stream::unfold(Some(responses), |responses| async move {
        let mut responses = responses?;
        match responses.next().await? {
            Ok(message) => {
                let result = json!({ "result": json::to_json(&message, JsonForm::CamelCase) });
                Some((
                    Ok::<_, Infallible>(Bytes::from(format!("{result}\n"))),
                    Some(responses),
                ))
            }
            Err(error) => Some((Ok(Bytes::from(error_text(&error))), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(lines));
    json_headers(&mut response);
    if let Some(status) = first_error {
        *response.status_mut() = status;
    } else {
        let name = HeaderName::from_static("grpc-metadata-content-type");
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static("application/grpc"));
    }
    response
}

fn error_text(error: &tonic::Status) -> String {
    let status = http_status(error.code());
    json!({ "error": {
        "grpcCode": error.code() as i32,
        "httpCode": status.as_u16(),
        "message": error.message(),
        "httpStatus": status.canonical_reason().unwrap_or_default(),
        "details": [],
    }})
    .to_string()
}

fn refusal(status: StatusCode, code: Code, message: &str) -> Response<Body> {
    let text = json!({ "code": code as i32, "message": message, "details": [] }).to_string();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    json_headers(&mut response);
    response
}

fn json_headers(response: &mut Response<Body>) {
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
}

/// As grpc-gateway maps codes.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
