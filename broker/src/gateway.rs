//! The HTTP gateway of journals: GET and HEAD read, PUT appends, the path is the journal's name.
//!
//! Parameters, headers and bodies are those of spec wire.md section 10.2 and of
//! `tests/golden/broker/http`. Where the reference answers 500 to an outcome that has a status of
//! its own, ours answers that status ([`outcome::http_status`]).

mod outcome;
mod query;

use std::{convert::Infallible, time::SystemTime};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gazette_protocol::{AppendRequest, Header, ReadRequest, ReadResponse, Status, Validate};
use http_body::Frame;
use http_body_util::StreamBody;

use self::outcome::{grpc_status, http_status};
use crate::service::Service;

const CLOSE_ERROR: HeaderName = HeaderName::from_static("x-close-error");
const COMMIT_BEGIN: HeaderName = HeaderName::from_static("x-commit-begin");
const COMMIT_END: HeaderName = HeaderName::from_static("x-commit-end");
const COMMIT_SUM: HeaderName = HeaderName::from_static("x-commit-sha1-sum");
const FRAGMENT_LOCATION: HeaderName = HeaderName::from_static("x-fragment-location");
const FRAGMENT_MODIFIED: HeaderName = HeaderName::from_static("x-fragment-last-modified");
const FRAGMENT_NAME: HeaderName = HeaderName::from_static("x-fragment-name");
const ROUTE_TOKEN: HeaderName = HeaderName::from_static("x-route-token");
const WRITE_HEAD: HeaderName = HeaderName::from_static("x-write-head");

/// Answers a request to a journal.
pub(crate) async fn serve(service: Service, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if let Some(clean) = query::redirect(&path) {
        return redirect(&clean);
    }
    match *request.method() {
        Method::GET | Method::HEAD => {
            let is_head = *request.method() == Method::HEAD;
            let parameters = request.uri().query().unwrap_or_default().to_owned();
            read(&service, &path, &parameters, is_head).await
        }
        Method::PUT => append(&service, &path, request).await,
        ref other => text(StatusCode::BAD_REQUEST, format!("unknown method: {other}")),
    }
}

async fn read(
    service: &Service,
    path: &str,
    parameters: &str,
    metadata_only: bool,
) -> Response<Body> {
    let parsed = query::journal(path).and_then(|journal| {
        let parameters = query::read(parameters)?;
        Ok(ReadRequest {
            journal,
            offset: parameters.offset,
            block: parameters.block,
            metadata_only,
            ..ReadRequest::default()
        })
    });
    let read = match parsed {
        Ok(read) => read,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    if let Err(error) = read.validate() {
        return text(StatusCode::BAD_REQUEST, error.to_string());
    }
    let mut responses = Box::pin(service.read(read));
    let first = match responses.next().await {
        Some(Ok(first)) => first,
        Some(Err(error)) => return text(grpc_status(&error), error.message().to_owned()),
        None => {
            return text(
                StatusCode::REQUEST_TIMEOUT,
                "the broker ended the read".to_owned(),
            );
        }
    };
    let mut headers = HeaderMap::new();
    if let Some(header) = &first.header {
        route_headers(&mut headers, header, path);
    }
    read_headers(&mut headers, &first);
    if first.status() != Status::Ok {
        let mut response = text(
            http_status(first.status()),
            first.status().as_str_name().to_owned(),
        );
        response.headers_mut().extend(headers);
        return response;
    }
    let mut response = Response::new(if metadata_only {
        Body::empty()
    } else {
        headers.insert(header::TRAILER, HeaderValue::from_static("X-Close-Error"));
        let (content, rest) = first_content(responses).await;
        headers.insert(header::CONTENT_TYPE, outcome::content_type(&content));
        body(content, first.offset, rest)
    });
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    *response.headers_mut() = headers;
    response
}

/// The first bytes, which tell the content type; and what follows.
async fn first_content<S>(mut responses: S) -> (Bytes, Rest<S>)
where
    S: Stream<Item = Result<ReadResponse, tonic::Status>> + Unpin,
{
    loop {
        match responses.next().await {
            Some(Ok(response))
                if response.content.is_empty() && response.status() == Status::Ok => {}
            Some(Ok(response)) if response.status() == Status::Ok => {
                return (response.content, Rest::Open(responses));
            }
            ended => return (Bytes::new(), Rest::Ended(close_error(ended))),
        }
    }
}

enum Rest<S> {
    Open(S),
    Ended(String),
    Done,
}

/// Why a stream of responses ended, as the trailer tells it.
fn close_error(ended: Option<Result<ReadResponse, tonic::Status>>) -> String {
    match ended {
        Some(Ok(response)) => response.status().as_str_name().to_owned(),
        Some(Err(error)) => error.message().to_owned(),
        None => "broker terminated RPC".to_owned(),
    }
}

fn body<S>(first: Bytes, offset: i64, rest: Rest<S>) -> Body
where
    S: Stream<Item = Result<ReadResponse, tonic::Status>> + Unpin + Send + 'static,
{
    let begin = offset + i64::try_from(first.len()).unwrap_or(i64::MAX);
    let head = (!first.is_empty()).then(|| Ok::<_, Infallible>(Frame::data(first)));
    let tail = stream::unfold((rest, begin), |(rest, at)| async move {
        let closed = |why: String| {
            let mut trailers = HeaderMap::new();
            trailers.insert(CLOSE_ERROR, outcome::header_value(&why));
            Some((Ok(Frame::trailers(trailers)), (Rest::Done, 0)))
        };
        let mut responses = match rest {
            Rest::Done => return None,
            Rest::Ended(why) => return closed(why),
            Rest::Open(responses) => responses,
        };
        loop {
            match responses.next().await {
                Some(Ok(response)) if response.status() == Status::Ok => {
                    // The range header told where the body begins; it cannot tell of a later jump.
                    if response.offset > at {
                        return closed(format!("offset jump from {at} to {}", response.offset));
                    }
                    if response.content.is_empty() {
                        continue;
                    }
                    let end = at + i64::try_from(response.content.len()).unwrap_or(i64::MAX);
                    let frame = Ok(Frame::data(response.content));
                    return Some((frame, (Rest::Open(responses), end)));
                }
                ended => return closed(close_error(ended)),
            }
        }
    });
    Body::new(StreamBody::new(stream::iter(head).chain(tail)))
}

async fn append(service: &Service, path: &str, request: Request<Body>) -> Response<Body> {
    let parsed = query::journal(path).and_then(|journal| {
        query::none(request.uri().query().unwrap_or_default())?;
        Ok(AppendRequest {
            journal,
            ..AppendRequest::default()
        })
    });
    let opening = match parsed {
        Ok(opening) => opening,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    if let Err(error) = opening.validate() {
        return text(StatusCode::BAD_REQUEST, error.to_string());
    }
    // An error of the body ends the stream without the commit, and so rolls it back.
    let content = request
        .into_body()
        .into_data_stream()
        .filter_map(|chunk| async {
            match chunk {
                Ok(content) if content.is_empty() => None,
                Ok(content) => Some(Ok(AppendRequest {
                    content,
                    ..AppendRequest::default()
                })),
                Err(error) => Some(Err(tonic::Status::aborted(format!(
                    "read the body: {error}"
                )))),
            }
        });
    let commit = stream::iter([Ok(AppendRequest::default())]);
    let requests = stream::iter([Ok(opening)]).chain(content).chain(commit);
    let response = match service.append(Box::pin(requests)).await {
        Ok(response) => response,
        Err(error) => return text(grpc_status(&error), error.message().to_owned()),
    };
    let mut headers = HeaderMap::new();
    route_headers(&mut headers, &response.header, path);
    if response.status() != Status::Ok {
        let mut cause = response.status().as_str_name().to_owned();
        if !response.store_health_error.is_empty() {
            cause = format!("{cause}: {}", response.store_health_error);
        }
        return text(http_status(response.status()), cause);
    }
    if let Some(commit) = &response.commit {
        headers.insert(COMMIT_BEGIN, commit.begin.into());
        headers.insert(COMMIT_END, commit.end.into());
        headers.insert(COMMIT_SUM, outcome::header_value(&commit.sum.to_hex()));
        headers.insert(WRITE_HEAD, commit.end.into());
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = headers;
    response
}

fn route_headers(headers: &mut HeaderMap, header: &Header, path: &str) {
    let route = &header.route;
    if route.members.is_empty() {
        return;
    }
    headers.insert(
        ROUTE_TOKEN,
        outcome::header_value(&outcome::route_token(route)),
    );
    let primary = usize::try_from(route.primary).ok();
    if let Some(endpoint) = primary.and_then(|index| route.endpoints.get(index)) {
        let location = format!("{}{path}", endpoint.trim_end_matches('/'));
        headers.insert(header::LOCATION, outcome::header_value(&location));
    }
}

fn read_headers(headers: &mut HeaderMap, response: &ReadResponse) {
    if let Some(fragment) = &response.fragment {
        headers.insert(
            FRAGMENT_NAME,
            outcome::header_value(&fragment.content_name()),
        );
        if let Ok(seconds @ 1..) = u64::try_from(fragment.mod_time) {
            let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            headers.insert(
                FRAGMENT_MODIFIED,
                outcome::header_value(&outcome::http_date(modified)),
            );
        }
        let range = format!("bytes {}-{max}/{max}", response.offset, max = i64::MAX);
        headers.insert(header::CONTENT_RANGE, outcome::header_value(&range));
    }
    if !response.fragment_url.is_empty() {
        headers.insert(
            FRAGMENT_LOCATION,
            outcome::header_value(&response.fragment_url),
        );
    }
    if response.write_head != 0 {
        headers.insert(WRITE_HEAD, response.write_head.into());
    }
}

fn redirect(clean: &str) -> Response<Body> {
    let mut response = text(
        StatusCode::TEMPORARY_REDIRECT,
        "Temporary Redirect".to_owned(),
    );
    response
        .headers_mut()
        .insert(header::LOCATION, outcome::header_value(clean));
    response
}

/// A plain answer: one line of text.
fn text(status: StatusCode, mut line: String) -> Response<Body> {
    line.push('\n');
    let mut response = Response::new(Body::from(line));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
