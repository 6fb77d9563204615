#![doc = include_str!("../README.md")]

pub mod args;
pub mod diagnostics;
pub mod dial;
pub mod exit;
pub mod listener;
pub mod logging;
pub mod panic;
pub mod server;
pub mod signals;
pub mod tasks;

pub use args::{BrokerAddressArgs, DebugArgs, ListenArgs, LogArgs};
pub use diagnostics::{Metrics, Readiness};
pub use exit::ExitStatus;
pub use listener::{BindError, ListenAddress};
pub use server::{ServeError, Server};
pub use tasks::{TaskError, TaskGroup};
