//! The forms, names and rules of this crate, beside those that Gazette was seen to have.

mod fixture;
mod fragments;
mod labels;
mod validation;
mod vectors;
mod wire;
