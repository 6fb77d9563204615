//! Appends: the machine that takes one from its request to its response, and its parts.

pub mod flow_control;
pub mod fsm;

mod error;
mod precondition;

pub use error::{AppendError, HostFailure, Update, Wait};
pub use flow_control::FlowControl;
pub use fsm::{AppendFsm, Input, Limits, Output};
