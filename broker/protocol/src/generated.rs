//! The messages of `proto/protocol.proto`, and with feature `grpc` its client and server.
#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::str_to_string,
    clippy::use_self,
    clippy::clone_on_ref_ptr,
    unused_qualifications,
    unreachable_pub,
    unnameable_types
)]

include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
