//! The broker within `gazfs up`, and the sockets it listens on.

use std::path::{Path, PathBuf};

use anyhow::Context;
use gazette_broker::{Durability, Embedded, EmbeddedOptions};
use gazette_client::{Client, ClientOptions, in_process_channel};
use gazette_process::{
    ListenAddress, Metrics, Readiness, Server, TaskGroup, diagnostics, server::GRACE,
};
use tokio_util::sync::CancellationToken;

/// A broker in this process.
#[derive(Debug)]
pub(super) struct Broker {
    embedded: Embedded,
    servers: TaskGroup,
    ready: Readiness,
}

/// Starts a broker with its data in a folder, which others reach at a Unix socket, and at `listen`
/// if it is given.
pub(super) async fn start(
    data: &Path,
    socket: PathBuf,
    listen: Option<&ListenAddress>,
    durability: Durability,
    client: ClientOptions,
) -> anyhow::Result<(Client, Broker)> {
    let metrics = Metrics::install().context("collect metrics")?;
    let socket = Server::bind(&ListenAddress::Unix(socket)).await?;
    let more = match listen {
        Some(address) => Some(Server::bind(address).await?),
        None => None,
    };
    // Others on the network cannot use the socket.
    let endpoint = more.as_ref().unwrap_or(&socket).endpoint().to_owned();
    let options = EmbeddedOptions {
        durability,
        ..EmbeddedOptions::new(data, endpoint)
    };
    let client = ClientOptions {
        file_root: Some(options.fragments_dir()),
        zone: options.id.zone.clone(),
        ..client
    };
    let embedded = Embedded::start(options).await?;
    let client = Client::from_channel(in_process_channel(embedded.service().clone()), client);
    let servers = TaskGroup::new(&CancellationToken::new());
    let ready = Readiness::new();
    for server in [Some(socket), more].into_iter().flatten() {
        let diagnostics = diagnostics::router(diagnostics::Diagnostics {
            ready: ready.clone(),
            metrics: Some(metrics.clone()),
            log: None,
        });
        let (grpc, http) = (embedded.grpc(), diagnostics.merge(embedded.http()));
        let stop = servers.token();
        servers.spawn(
            "serve",
            async move { Ok(server.serve(grpc, http, stop).await?) },
        );
    }
    ready.set(true);
    let broker = Broker {
        embedded,
        servers,
        ready,
    };
    Ok((client, broker))
}

impl Broker {
    /// Waits until the broker ended by itself, as something failed for good.
    pub(super) async fn failed(&self) {
        tokio::select! {
            biased;
            () = self.embedded.failed() => {}
            () = self.servers.token().cancelled_owned() => {}
        }
    }

    /// Ends the broker. What is acknowledged is on the disk already.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.ready.set(false);
        self.embedded.end_streams();
        self.servers.cancel();
        let served = self.servers.join(GRACE).await;
        self.embedded.stop().await?;
        if let Err(error) = served {
            tracing::warn!(err = %error, "connections were cut");
        }
        Ok(())
    }
}
