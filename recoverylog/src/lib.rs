#![doc = include_str!("../README.md")]

pub use gazette_recoverylog_fsm as fsm;
