#![doc = include_str!("../README.md")]

mod append;
mod apply;
pub mod cli;
pub mod embedded;
mod error;
mod fragments;
mod gateway;
mod list;
mod metrics;
mod persister;
mod read;
mod replica;
mod replicas;
mod replicate;
mod rest;
mod service;
mod storage;
mod store_health;
mod topology;

pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
pub use gazette_wal::Durability;
pub use service::Service;
