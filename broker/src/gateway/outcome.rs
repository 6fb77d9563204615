//! How outcomes look in HTTP.

use std::time::SystemTime;

use axum::http::{HeaderValue, StatusCode};
use gazette_protocol::{Route, Status};
use tonic::Code;

/// Bytes of a body that tell its content type, as browsers sniff it.
const SNIFFED_BYTES: usize = 512;

/// The HTTP status of an outcome.
///
/// Ours differs from the reference where that answers 500: see `docs/COMPATIBILITY.md`.
pub(super) fn http_status(status: Status) -> StatusCode {
    match status {
        Status::Ok => StatusCode::OK,
        Status::JournalNotFound => StatusCode::NOT_FOUND,
        Status::NoJournalPrimaryBroker
        | Status::NotJournalPrimaryBroker
        | Status::NotJournalBroker
        | Status::InsufficientJournalBrokers
        | Status::Suspended
        | Status::FragmentStoreUnhealthy => StatusCode::SERVICE_UNAVAILABLE,
        Status::OffsetNotYetAvailable => StatusCode::RANGE_NOT_SATISFIABLE,
        Status::NotAllowed => StatusCode::FORBIDDEN,
        Status::WrongAppendOffset
        | Status::IndexHasGreaterOffset
        | Status::RegisterMismatch
        | Status::EtcdTransactionFailed => StatusCode::CONFLICT,
        Status::WrongRoute | Status::ProposalMismatch => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The HTTP status of an RPC that failed.
pub(super) fn grpc_status(status: &tonic::Status) -> StatusCode {
    match status.code() {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
            StatusCode::BAD_REQUEST
        }
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The route in compact text: `members:<zone:"a" suffix:"b" > endpoints:"http://..."`.
pub(super) fn route_token(route: &Route) -> String {
    gazette_protocol::prototext::format_compact(route)
        .trim_end()
        .to_owned()
}

/// A header's value; what a header cannot hold is left out.
pub(super) fn header_value(text: &str) -> HeaderValue {
    let visible: String = text.chars().filter(|c| matches!(c, ' '..='~')).collect();
    HeaderValue::from_str(&visible).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A time as HTTP headers write it, in whole seconds.
pub(super) fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// Text or not, by the first bytes: what has no control characters is text.
pub(super) fn content_type(content: &[u8]) -> HeaderValue {
    let sniffed = &content[..content.len().min(SNIFFED_BYTES)];
    let binary = |byte: &u8| matches!(byte, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    HeaderValue::from_static(if sniffed.iter().any(binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_bytes() {
        assert_eq!(content_type(b"hello\n\tworld"), "text/plain; charset=utf-8");
        assert_eq!(content_type(b""), "text/plain; charset=utf-8");
        assert_eq!(content_type(b"\x00\x01"), "application/octet-stream");
    }

    #[test]
    fn header_values_hold_one_line_only() {
        assert_eq!(header_value("a\r\nSet-Cookie: b"), "aSet-Cookie: b");
    }
}
