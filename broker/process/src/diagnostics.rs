//! What an operator asks a running process: is it ready, its metrics, its log level.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use thiserror::Error;

use crate::{args::LogLevel, logging::LogHandle};

/// The metrics of this process.
#[derive(Debug, Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

/// Why metrics cannot be recorded.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// Another recorder is installed.
    #[error("record metrics: another recorder is installed")]
    Taken,
    /// A table of buckets is empty.
    #[error("record metrics: {0}")]
    Build(#[from] BuildError),
}

impl Metrics {
    /// Records metrics of the `metrics` facade from now on. A second call returns the same.
    ///
    /// # Errors
    ///
    /// If something else records them.
    pub fn install() -> Result<Self, MetricsError> {
        static INSTALLED: OnceLock<Metrics> = OnceLock::new();
        if let Some(installed) = INSTALLED.get() {
            return Ok(installed.clone());
        }
        let mut builder = PrometheusBuilder::new().set_buckets(DEFAULT_BUCKETS)?;
        for (name, buckets) in HISTOGRAM_BUCKETS {
            builder = builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)?;
        }
        let recorder = builder.build_recorder();
        let metrics = Self {
            handle: recorder.handle(),
        };
        match metrics::set_global_recorder(recorder) {
            Ok(()) => Ok(INSTALLED.get_or_init(|| metrics).clone()),
            // Another thread was faster with the same.
            Err(_) => INSTALLED.get().cloned().ok_or(MetricsError::Taken),
        }
    }

    /// Returns all metrics in the text form of Prometheus.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds histogram samples into buckets for ever, so that they take bounded memory also when
    /// nobody asks for metrics. Run it as a task.
    pub async fn upkeep(self) {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            ticks.tick().await;
            self.handle.run_upkeep();
        }
    }
}

/// Whether the process does its work yet. A clone is the same flag.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Returns a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// States that the process is ready, or no longer is.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Reports whether the process is ready.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What `/debug/` answers from.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    /// Answers `/debug/ready`.
    pub ready: Readiness,
    /// Answers `/debug/metrics`; without it the path is not found.
    pub metrics: Option<Metrics>,
    /// Answers `/debug/log-level`; without it the path is not found.
    pub log: Option<LogHandle>,
}

/// Returns the routes
///
/// - `GET /debug/ready`: 200 when the process is ready, 503 before and while it leaves.
/// - `GET /debug/metrics`: metrics in the text form of Prometheus.
/// - `GET /debug/log-level` and `PUT /debug/log-level` with the new level as body.
pub fn router(diagnostics: Diagnostics) -> Router {
    Router::new()
        .route("/debug/ready", get(ready))
        .route("/debug/metrics", get(metrics))
        .route("/debug/log-level", get(log_level).put(set_log_level))
        .with_state(diagnostics)
}

async fn ready(State(diagnostics): State<Diagnostics>) -> StatusCode {
    if diagnostics.ready.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn metrics(State(diagnostics): State<Diagnostics>) -> Response {
    match diagnostics.metrics {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(metrics) => ([(CONTENT_TYPE, TEXT_FORMAT)], metrics.render()).into_response(),
    }
}

async fn log_level(State(diagnostics): State<Diagnostics>) -> Response {
    match diagnostics.log {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(log) => (StatusCode::OK, log.level() + "\n").into_response(),
    }
}

async fn set_log_level(State(diagnostics): State<Diagnostics>, body: String) -> Response {
    let Some(log) = diagnostics.log else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let changed = body
        .trim()
        .parse::<LogLevel>()
        .and_then(|level| log.set(&level).map_err(|error| error.to_string()));
    match changed {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(cause) => (StatusCode::BAD_REQUEST, cause + "\n").into_response(),
    }
}

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Seconds, from five milliseconds to ten seconds.
const DEFAULT_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Histograms with buckets of their own, as dashboards of Gazette expect them.
const HISTOGRAM_BUCKETS: &[(&str, &[f64])] = &[
    (
        "gazette_store_operation_duration_seconds",
        &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24],
    ),
    (
        "gazette_store_list_items_count",
        &[10.0, 40.0, 160.0, 640.0, 2560.0, 10240.0],
    ),
];

#[cfg(test)]
mod tests;
