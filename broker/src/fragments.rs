//! `ListFragments`: what is known of a journal's content, page by page.

use std::time::Duration;

use gazette_journal::fragment::list::list_fragments;
use gazette_protocol::{
    FragmentsRequest, FragmentsResponse, Status, Validate as _, duration, fragments_response,
};
use gazette_stores::Store as _;

use crate::{error, read::serving, service::Service, topology::Question};

/// How long the first listing of the stores is waited for.
const LISTING_WAIT: Duration = Duration::from_secs(30);

/// Serves a `ListFragments` RPC.
pub(crate) async fn serve(
    service: &Service,
    request: FragmentsRequest,
) -> Result<FragmentsResponse, tonic::Status> {
    request.validate().map_err(|error| error::invalid(&error))?;
    let question = Question {
        journal: &request.journal,
        requires_primary: false,
        may_proxy: !request.do_not_proxy,
        header: request.header.as_ref(),
        min_revision: 0,
        visible: None,
    };
    let resolution = service
        .topology()
        .resolve(question)
        .await
        .map_err(|error| error::resolve(&request.journal, &error))?;
    let header = resolution.header.clone();
    let answer = |status: Status| FragmentsResponse {
        status: status.into(),
        header: header.clone(),
        ..FragmentsResponse::default()
    };
    if resolution.status != Status::Ok {
        return Ok(answer(resolution.status));
    }
    if resolution
        .spec
        .as_ref()
        .is_some_and(|spec| !spec.may_read())
    {
        return Ok(answer(Status::NotAllowed));
    }
    let name = resolution.spec.as_ref().map_or("", |spec| &spec.name);
    let Some(replica) = service.replicas().get(name) else {
        return Err(tonic::Status::unavailable(format!(
            "list fragments of {name}: its replica begins or ends; next: try again"
        )));
    };
    serving(&replica).await?;
    let mut changes = replica.index_changes();
    let refreshed =
        async { while !replica.index().is_refreshed() && changes.changed().await.is_ok() {} };
    if tokio::time::timeout(LISTING_WAIT, refreshed).await.is_err() {
        let cause = replica
            .listing_error()
            .unwrap_or_else(|| "its stores do not answer".to_owned());
        return Err(tonic::Status::unavailable(format!(
            "list fragments of {name}: {cause}"
        )));
    }
    let page = list_fragments(replica.index().cover(), &request);
    let ttl = match &request.signature_ttl {
        Some(ttl) => Some(duration::to_std(ttl).map_err(|error| {
            tonic::Status::unknown(format!("list fragments of {name}: signatureTTL: {error}"))
        })?),
        None => None,
    };
    let mut fragments = Vec::with_capacity(page.fragments.len());
    for spec in page.fragments {
        let signed_url = match ttl {
            Some(ttl) if !spec.backing_store.is_empty() => {
                let store = service.stores().get(&spec.backing_store);
                let signed = store.sign_get(&spec.content_path(), ttl).await;
                signed.map_err(|error| error::store(&error))?
            }
            _ => String::new(),
        };
        fragments.push(fragments_response::Fragment { spec, signed_url });
    }
    Ok(FragmentsResponse {
        fragments,
        next_page_token: page.next_page_token,
        ..answer(Status::Ok)
    })
}
