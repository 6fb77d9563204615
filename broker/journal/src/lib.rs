#![doc = include_str!("../README.md")]

pub mod append;
pub mod fragment;
pub mod pipeline;
pub mod read;
pub mod registers;
pub mod resolve;
pub mod roll;
pub mod suspend;

#[cfg(test)]
mod golden;
mod now;

pub use now::Now;
