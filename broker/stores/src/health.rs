use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use crate::{Store, StoreError, StoreErrorKind};

/// What is known about the health of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// No check has ended yet.
    Unchecked,
    /// The last check found all well.
    Healthy,
    /// The last check failed.
    Unhealthy(StoreError),
}

impl Health {
    /// Tells whether the last check found all well.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}

/// Returns the time between the end of a check and the next one.
///
/// `failures` is how many checks have failed since the last that did not. `jitter`, from -1 to 1, spreads the
/// checks of several brokers.
pub fn next_check(failures: u32, jitter: f64) -> Duration {
    let base = match failures {
        0 => Duration::from_mins(30),
        1 => Duration::ZERO,
        2 => Duration::from_millis(100),
        3 | 4 => Duration::from_secs(1),
        5 | 6 => Duration::from_secs(10),
        _ => Duration::from_secs(100),
    };
    base.mul_f64(1.0 + JITTER * jitter.clamp(-1.0, 1.0))
}

/// Puts a small object, and checks that it can be read, listed and signed.
pub(crate) async fn check(store: &dyn Store) -> Result<(), StoreError> {
    let content = Bytes::from_static(b"health-check\n");
    store
        .put(CHECK_PATH, Arc::new(content.clone()), None)
        .await?;

    let mut actual = Vec::new();
    let limit = content.len() as u64 + 1;
    let reader = store.get(CHECK_PATH).await?;
    reader
        .take(limit)
        .read_to_end(&mut actual)
        .await
        .map_err(|error| StoreError::from_io("get", CHECK_PATH, &error))?;
    if actual != content {
        return Err(StoreError::new(
            StoreErrorKind::Corrupt,
            "get",
            CHECK_PATH,
            "it does not hold what was just put",
        ));
    }

    let listed = store.list(CHECK_FOLDER).await?;
    if !listed.iter().any(|object| object.path == CHECK_NAME) {
        return Err(StoreError::new(
            StoreErrorKind::NotFound,
            "list",
            CHECK_FOLDER,
            format!("{CHECK_NAME} is missing although it was just put"),
        ));
    }
    store.sign_get(CHECK_PATH, SIGNATURE_TTL).await?;
    Ok(())
}

/// Puts a small object and removes it.
pub(crate) async fn probe_delete(store: &dyn Store) -> Result<(), StoreError> {
    let content = Bytes::from_static(b"gazette-delete-probe\n");
    store.put(PROBE_PATH, Arc::new(content), None).await?;
    store.remove(PROBE_PATH).await
}

/// Time within which a check must end.
pub(crate) const CHECK_BUDGET: Duration = Duration::from_mins(1);

/// Part of a delay by which it may be longer or shorter.
const JITTER: f64 = 0.2;
const SIGNATURE_TTL: Duration = Duration::from_mins(5);
const CHECK_FOLDER: &str = ".test/";
const CHECK_NAME: &str = "health-check";
const CHECK_PATH: &str = ".test/health-check";
const PROBE_PATH: &str = ".gazette-delete-probe";

#[cfg(test)]
mod tests;
