//! Uploads a closed spool as a fragment.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gazette_journal::fragment::spool::Completed;
use gazette_protocol::{CompressionCodec, Fragment, JournalSpec, Validate as _, postfix};
use gazette_stores::{ActiveStore, Store as _, StoreError};
use gazette_wal::SpoolFile;

use super::compressed::{PrepareError, prepare};

/// How long one upload may take before it is tried again.
const PUT_TIMEOUT: Duration = Duration::from_mins(5);

/// Why an upload did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// The store failed or refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not answer.
    #[error("put {path}: no answer within {} s; next: look at the store", PUT_TIMEOUT.as_secs())]
    Timeout { path: String },
    /// The spool is not what was committed. It stays where it is.
    #[error(
        "persist {journal}: {cause}; next: see the page on damage in the manual; the spool is kept"
    )]
    Spool { journal: String, cause: String },
    /// The template of the spec does not evaluate.
    #[error("persist {journal}: path_postfix_template: {cause}; next: correct the spec")]
    Template { journal: String, cause: String },
}

/// Stores the fragment of a closed spool, unless it is there already. Returns it as it is stored,
/// but for its time.
pub(crate) async fn upload(
    store: &Arc<ActiveStore>,
    spec: &JournalSpec,
    completed: &Completed,
    spool: &SpoolFile,
    scratch: &Path,
) -> Result<Fragment, UploadError> {
    let mut fragment = completed.fragment.clone();
    store.url().clone_into(&mut fragment.backing_store);
    let context = postfix::PostfixContext {
        fragment: &completed.fragment,
        first_append_time: completed
            .first_append_time
            .unwrap_or(SystemTime::UNIX_EPOCH),
        registers: &completed.registers,
        spec,
    };
    fragment.path_postfix = postfix::Template::parse(&spec.fragment.path_postfix_template)
        .and_then(|template| template.evaluate(&context))
        .map_err(|cause| UploadError::Template {
            journal: spec.name.clone(),
            cause: cause.to_string(),
        })?;
    fragment.validate().map_err(|cause| UploadError::Template {
        journal: spec.name.clone(),
        cause: cause.to_string(),
    })?;
    let path = fragment.content_path();
    if store.exists(&path).await? {
        return Ok(fragment);
    }
    let prepared = {
        let (fragment, spool, scratch) = (fragment.clone(), spool.clone(), scratch.to_owned());
        tokio::task::spawn_blocking(move || prepare(&fragment, &spool, &scratch)).await
    };
    let spool_failed = |cause: String| UploadError::Spool {
        journal: spec.name.clone(),
        cause,
    };
    let content = prepared
        .map_err(|panic| spool_failed(panic.to_string()))?
        .map_err(|error: PrepareError| spool_failed(error.to_string()))?;
    let is_offloaded = fragment.compression_codec() == CompressionCodec::GzipOffloadDecompression;
    let encoding = is_offloaded.then_some("gzip");
    match tokio::time::timeout(PUT_TIMEOUT, store.put(&path, Arc::new(content), encoding)).await {
        Ok(put) => put?,
        Err(_) => return Err(UploadError::Timeout { path }),
    }
    Ok(fragment)
}
