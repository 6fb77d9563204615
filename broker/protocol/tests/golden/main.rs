//! The forms, names and rules of this crate, beside those that Gazette was seen to have.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod fixture;
mod fragments;
mod labels;
mod validation;
mod vectors;
mod wire;
