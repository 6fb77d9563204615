//! Log lines on standard error.

use std::io;

use thiserror::Error;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use crate::args::{LogArgs, LogFormat, LogLevel};

/// Changes what is logged while the process runs. A clone changes the same.
#[derive(Debug, Clone)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Why logging cannot be set up or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// Something in the process logs already.
    #[error("set up logging: it is set up already")]
    Twice,
    /// The level is none.
    #[error("set the log level: {cause}; next: use trace, debug, info, warn, error or directives")]
    Level {
        /// What is wrong with it.
        cause: String,
    },
}

/// Sends log lines to standard error from now on.
///
/// # Errors
///
/// If it was called before.
pub fn init(args: &LogArgs) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(args.level.directives()));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines: Box<dyn Layer<_> + Send + Sync> = match args.format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Color => lines.with_ansi(true).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    subscriber.try_init().map_err(|_| LogError::Twice)?;
    Ok(LogHandle { filter: handle })
}

impl LogHandle {
    /// Changes what is logged.
    ///
    /// # Errors
    ///
    /// If logging has ended with the process.
    pub fn set(&self, level: &LogLevel) -> Result<(), LogError> {
        let filter = EnvFilter::new(level.directives());
        self.filter.reload(filter).map_err(|error| LogError::Level {
            cause: error.to_string(),
        })
    }

    /// Returns what is logged now.
    pub fn level(&self) -> String {
        self.filter
            .with_current(ToString::to_string)
            .unwrap_or_default()
    }
}
