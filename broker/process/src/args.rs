//! Groups of arguments that programs flatten into their own.
//!
//! The identifiers of the arguments are their names, so that no two groups meet.
//! Names have dots (`--log.level`), and each has an environment variable with the dots as
//! underscores (`LOG_LEVEL`). The command line wins over the environment.

use std::{fmt, path::Path, str::FromStr};

use clap::{Args, ValueEnum};

use crate::listener::{ListenAddress, ListenAddressError};

/// How much is logged, and how it looks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// What is logged to standard error: trace, debug, info, warn, error or fatal, or directives
    /// such as `warn,gazette_broker=debug`
    #[arg(
        id = "log.level",
        long = "log.level",
        env = "LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "warn",
        global = true
    )]
    pub level: LogLevel,

    /// Form of the log lines
    #[arg(
        id = "log.format",
        long = "log.format",
        env = "LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        global = true
    )]
    pub format: LogFormat,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people, without colours
    Text,
    /// One JSON object per line
    Json,
    /// Lines for people, in colours
    Color,
}

/// A level or a list of directives, checked when it is parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct LogLevel(String);

impl LogLevel {
    /// Returns directives as `tracing_subscriber::EnvFilter` reads them.
    pub fn directives(&self) -> &str {
        &self.0
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let directives = match text {
            "fatal" => "error",
            "warning" => "warn",
            other => other,
        };
        match tracing_subscriber::EnvFilter::builder().parse(directives) {
            // A bare word that is no level parses as the name of a target.
            Ok(_) if is_directives(directives) => Ok(Self(directives.to_owned())),
            Ok(_) => Err("expected trace, debug, info, warn, error, fatal or directives".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_directives(text: &str) -> bool {
    !text.is_empty()
        && text.split(',').all(|directive| {
            directive.contains('=')
                || directive.contains('[')
                || directive
                    .parse::<tracing::level_filters::LevelFilter>()
                    .is_ok()
        })
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a broker listens, and what it tells others about it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Host that others reach this process at; the name of this host if not given
    #[arg(
        id = "broker.host",
        long = "broker.host",
        env = "BROKER_HOST",
        value_name = "HOST"
    )]
    pub host: Option<String>,

    /// Port, or `unix:///path` of a socket that only this user may use; a free port if not given
    #[arg(
        id = "broker.port",
        long = "broker.port",
        env = "BROKER_PORT",
        value_name = "PORT|unix:///PATH"
    )]
    pub port: Option<String>,

    /// Address to listen on. If not given: only this machine if the host is `localhost` or a
    /// loop-back address, else every interface
    #[arg(
        id = "broker.bind",
        long = "broker.bind",
        env = "BROKER_BIND",
        value_name = "ADDRESS"
    )]
    pub bind: Option<String>,
}

impl ListenArgs {
    /// Returns the address to listen on.
    ///
    /// # Errors
    ///
    /// If the port is neither a number nor `unix:///path`.
    pub fn listen_address(&self) -> Result<ListenAddress, ListenAddressError> {
        let port = self.port.as_deref().unwrap_or("0");
        let address = ListenAddress::from_str(port)?;
        Ok(match address {
            ListenAddress::Unix(path) => ListenAddress::Unix(path),
            ListenAddress::Tcp { port, .. } => ListenAddress::Tcp {
                host: self.bind_host().to_owned(),
                port,
            },
        })
    }

    /// Returns the host to advertise.
    pub fn advertised_host(&self) -> String {
        self.host.clone().unwrap_or_else(host_name)
    }

    fn bind_host(&self) -> &str {
        match (&self.bind, self.host.as_deref()) {
            (Some(bind), _) => bind,
            (None, Some("localhost")) => "localhost",
            (None, Some(host)) if is_loopback(host) => host,
            (None, _) => ANY_HOST,
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host.trim_matches(['[', ']'])
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback())
}

/// Returns the name of this host, `localhost` if it has none that is text.
pub fn host_name() -> String {
    match rustix::system::uname().nodename().to_str() {
        Ok(name) if !name.is_empty() => name.to_owned(),
        _ => "localhost".to_owned(),
    }
}

/// Which broker a client talks to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Broker")]
pub struct BrokerAddressArgs {
    /// Address of any broker of the cluster: `http://host:port`, or `unix:///path` of a socket
    #[arg(
        id = "broker.address",
        long = "broker.address",
        env = "BROKER_ADDRESS",
        value_name = "URL",
        default_value = "http://localhost:8080",
        global = true
    )]
    pub address: String,

    /// Zone of this client; brokers of the same zone are preferred for reads
    #[arg(
        id = "zone",
        long = "zone",
        env = "ZONE",
        value_name = "ZONE",
        default_value = "local",
        global = true
    )]
    pub zone: String,
}

impl BrokerAddressArgs {
    /// Returns arguments that name the socket at `path`.
    pub fn unix(path: &Path) -> Self {
        Self {
            address: format!("unix://{}", path.display()),
            zone: "local".to_owned(),
        }
    }
}

/// Where diagnostics are served.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Diagnostics")]
pub struct DebugArgs {
    /// Serve `/debug/` on this port, too: `port`, `host:port` or `unix:///path`
    #[arg(
        id = "debug.port",
        long = "debug.port",
        env = "DEBUG_PORT",
        value_name = "PORT"
    )]
    pub port: Option<ListenAddress>,

    /// Keep `/debug/` off the main port
    #[arg(id = "debug.private", long = "debug.private", env = "DEBUG_PRIVATE")]
    pub private: bool,
}

/// Both families where the kernel has IPv6: a socket on `::` takes IPv4 too.
const ANY_HOST: &str = "";

#[cfg(test)]
mod tests;
