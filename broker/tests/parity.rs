//! What a broker of one replica answers, compared with what Gazette's brokers answered to the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "parity/fragments.rs"]
mod fragments;
#[path = "parity/gateway.rs"]
mod gateway;
#[path = "common/house.rs"]
mod house;
#[path = "common/raw_http.rs"]
mod raw_http;
#[path = "parity/rest.rs"]
mod rest;
#[path = "parity/rpc.rs"]
mod rpc;
