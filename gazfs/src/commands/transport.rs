//! By which way requests of the kernel come.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{
    fuse::{Chosen, Transport},
    mount::{Access, MountOptions},
};

/// By which way requests of the kernel come.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mount")]
pub(super) struct TransportArgs {
    /// By which way requests of the kernel come: `classic` is /dev/fuse; `io_uring` has a ring on each
    /// processor, wakes no other, and fails where it cannot be used; `auto` chooses, and says which
    #[arg(
        long,
        env = "GAZFS_TRANSPORT",
        value_name = "WAY",
        default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "classic", "io_uring"])
            .try_map(|way| way.parse::<Transport>())
    )]
    transport: Transport,
}

impl TransportArgs {
    /// Returns how a mount is made.
    pub(super) fn options(&self, access: Access) -> MountOptions {
        MountOptions {
            access,
            transport: self.transport,
        }
    }
}

/// Says which way was chosen, and why.
pub(super) fn announcement(chosen: &Chosen) -> String {
    format!("transport: {chosen}\n")
}
