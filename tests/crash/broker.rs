//! A broker in a process of its own, which can be ended at any moment.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use gazette_client::{Client, ClientOptions};
use gazette_protocol::LabelSelector;

/// How long a broker may take to start, recovery included.
const START_MAX: Duration = Duration::from_mins(1);

/// A broker that ended by itself at its start.
#[derive(Debug, thiserror::Error)]
#[error("the broker does not start: {0}")]
pub(crate) struct Refused(pub(crate) String);

/// A running broker.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    socket: PathBuf,
}

impl Broker {
    /// Starts a broker on `data` and waits until it answers.
    pub(crate) async fn start(
        data: &Path,
        socket: &Path,
        fault: Option<&str>,
    ) -> anyhow::Result<Self> {
        let log_path = socket.with_extension("log");
        let log = std::fs::File::create(&log_path).context("create the broker's log")?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_gazette-under-test"));
        command
            .args(["serve", "--embedded"])
            .arg(data)
            .args(["--broker.port", &format!("unix://{}", socket.display())])
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the broker's log")?)
            .stderr(log);
        if let Some(fault) = fault {
            command.env("GAZETTE_PLANTED_FAULT", fault);
        }
        let child = command.spawn().context("start the broker")?;
        let mut broker = Self {
            child,
            socket: socket.to_owned(),
        };
        let until = Instant::now() + START_MAX;
        loop {
            if broker
                .client()?
                .list(LabelSelector::default())
                .await
                .is_ok()
            {
                return Ok(broker);
            }
            if let Some(status) = broker.child.try_wait().context("look after the broker")? {
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(Refused(format!("{status}: {last}")).into());
            }
            if Instant::now() > until {
                bail!(
                    "the broker does not answer within {} s",
                    START_MAX.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.client_with(Duration::from_secs(20))
    }

    /// A client whose appends end at the latest after `patience`.
    pub(crate) fn client_with(&self, patience: Duration) -> anyhow::Result<Client> {
        let options = ClientOptions {
            append_give_up_after: Some(patience),
            ..ClientOptions::default()
        };
        let endpoint = format!("unix://{}", self.socket.display());
        Client::connect(&endpoint, options).context("connect to the broker")
    }

    /// Ends it by kill -9.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill the broker")?;
        self.child.wait().context("wait for the broker")?;
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Nothing is left behind when a round fails; a broker that is gone already is fine.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
