//! Apply: creates, changes and deletes journals, all of a request or none.

use std::time::Duration;

use gazette_coordination::{Compare, CoordinationError, Op, Txn};
use gazette_protocol::{
    ApplyRequest, ApplyResponse, JournalSpec, Status, Validate as _, apply_request::Change,
};
use gazette_stores::{Store as _, StoreError};
use prost::Message as _;

use crate::{
    error::{coordination, invalid},
    service::Service,
    storage,
};

/// How long the answer waits until this broker sees what it wrote.
const APPLIED_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves an Apply RPC.
pub(crate) async fn serve(
    service: &Service,
    request: ApplyRequest,
) -> Result<ApplyResponse, tonic::Status> {
    request.validate().map_err(|error| invalid(&error))?;
    let topology = service.topology();
    // What a deletion shall remove with the journal, looked up while it is still there.
    let doomed: Vec<JournalSpec> = request
        .changes
        .iter()
        .filter(|change| change.upsert.is_none() && change.delete_fragments)
        .filter_map(|change| topology.spec(&change.delete))
        .map(|(spec, _)| spec)
        .collect();
    let mut compares = Vec::new();
    let mut ops = Vec::new();
    for Change {
        expect_mod_revision,
        upsert,
        delete,
        ..
    } in &request.changes
    {
        let key = topology
            .keys
            .item(upsert.as_ref().map_or(delete, |spec| &spec.name));
        if *expect_mod_revision != -1 {
            compares.push(Compare::mod_revision(key.clone(), *expect_mod_revision));
        }
        ops.push(match upsert {
            Some(spec) => Op::put(key, spec.encode_to_vec()),
            None => Op::delete(key),
        });
    }
    let has_changes = !ops.is_empty();
    let txn = topology.coordination.txn(Txn::new(compares, ops)).await;
    let response =
        txn.map_err(|error: CoordinationError| coordination("apply journals", &error))?;

    let mut header = topology.unrouted_header();
    header.etcd.revision = response.header.revision;
    if !response.succeeded {
        let status = Status::EtcdTransactionFailed.into();
        return Ok(ApplyResponse { status, header });
    }
    if has_changes {
        let applied = topology.mirror.wait_for_revision(response.header.revision);
        match tokio::time::timeout(APPLIED_TIMEOUT, applied).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(tonic::Status::unavailable(error.to_string())),
            Err(_) => {
                let cause = "apply journals: it is written, but this broker does not see it; \
                             next: look at the coordination store";
                return Err(tonic::Status::deadline_exceeded(cause));
            }
        }
    }
    for spec in doomed {
        remove_fragments(service, &spec).await.map_err(|error| {
            tonic::Status::unknown(format!(
                "remove the fragments of {}: the journal is deleted, but {error}",
                spec.name
            ))
        })?;
    }
    Ok(ApplyResponse {
        header,
        ..ApplyResponse::default()
    })
}

/// Removes what the stores hold of a journal that was deleted.
async fn remove_fragments(service: &Service, spec: &JournalSpec) -> Result<(), StoreError> {
    // No upload of the deleted incarnation may put back what is removed here.
    service.replicas().retired(&spec.name).await;
    let topology = service.topology();
    let stores = service.stores();
    for stored in storage::list(stores, spec, |name| topology.is_journal(name)).await? {
        let store = stores.get(&stored.fragment.backing_store);
        store.remove(&stored.path()).await?;
    }
    Ok(())
}
