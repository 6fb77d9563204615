//! What a broker of one replica answers, compared with what Gazette's brokers answered to the same.

#[path = "parity/fragments.rs"]
mod fragments;
#[path = "parity/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "each binary of tests uses its part")]
#[path = "common/house.rs"]
mod house;
#[allow(dead_code, reason = "each binary of tests uses its part")]
#[path = "common/raw_http.rs"]
mod raw_http;
#[path = "parity/rest.rs"]
mod rest;
#[path = "parity/rpc.rs"]
mod rpc;
