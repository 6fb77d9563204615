//! Clients from arguments.

use gazette_client::{Client, ClientOptions, ConnectError};

use crate::args::BrokerAddressArgs;

/// Returns a client of the broker that `args` names. It connects at its first call.
///
/// Must be called in a tokio runtime.
///
/// # Errors
///
/// If the address is malformed or of a kind that is not supported.
pub fn dial(args: &BrokerAddressArgs) -> Result<Client, ConnectError> {
    dial_with(args, ClientOptions::default())
}

/// Returns a client as [`dial`] does, with other options; the zone is that of `args`.
///
/// # Errors
///
/// As [`dial`].
pub fn dial_with(args: &BrokerAddressArgs, options: ClientOptions) -> Result<Client, ConnectError> {
    let options = ClientOptions {
        zone: args.zone.clone(),
        ..options
    };
    Client::connect(&args.address, options)
}
