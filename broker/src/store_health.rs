//! `FragmentStoreHealth`: whether a store can be used, by a journal or before one names it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_protocol::{
    FragmentStoreHealthRequest, FragmentStoreHealthResponse, Status, Validate as _,
};
use gazette_stores::{ActiveStore, Store as _, StoreError, StoreErrorKind};

use crate::{error, service::Service};

/// Name of the object that is written and removed, below the prefix that is asked about.
const PROBE_NAME: &str = ".gazette-delete-probe";
/// How long the probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves a `FragmentStoreHealth` RPC.
pub(crate) async fn serve(
    service: &Service,
    request: FragmentStoreHealthRequest,
) -> Result<FragmentStoreHealthResponse, tonic::Status> {
    request.validate().map_err(|error| error::invalid(&error))?;
    let store = service.stores().get(&request.fragment_store);
    let mut result = store.checked_health().await;
    if result.is_ok() && request.check_delete {
        result = probe_delete(&store, &request.check_delete_prefix).await;
    }
    let (status, cause) = match result {
        Ok(()) => (Status::Ok, String::new()),
        Err(error) => (Status::FragmentStoreUnhealthy, error.to_string()),
    };
    Ok(FragmentStoreHealthResponse {
        status: status.into(),
        header: service.topology().unrouted_header(),
        store_health_error: cause,
    })
}

/// Writes a small object below `prefix`, and removes it.
async fn probe_delete(store: &Arc<ActiveStore>, prefix: &str) -> Result<(), StoreError> {
    let path = format!("{prefix}{PROBE_NAME}");
    let probe = async {
        let content = Arc::new(Bytes::from_static(b"gazette-delete-probe\n"));
        store.put(&path, content, None).await?;
        store.remove(&path).await
    };
    tokio::time::timeout(PROBE_TIMEOUT, probe)
        .await
        .unwrap_or_else(|_| {
            let cause = format!("no end after {} s", PROBE_TIMEOUT.as_secs());
            Err(StoreError::new(StoreErrorKind::Retry, "probe", path, cause))
        })
}
