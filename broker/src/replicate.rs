//! Replicate: this release runs journals with one replica, so nobody has reason to call it.

use gazette_protocol::{ReplicateRequest, ReplicateResponse, Status, Validate as _};

use crate::{error, service::Service, topology::Question};

/// Answers the first message of a Replicate RPC: a broker that is alone shares no route.
pub(crate) async fn serve(
    service: &Service,
    request: ReplicateRequest,
) -> Result<ReplicateResponse, tonic::Status> {
    request.validate().map_err(|error| error::invalid(&error))?;
    let (Some(header), Some(proposal)) = (&request.header, &request.proposal) else {
        return Err(tonic::Status::unknown(
            "replicate: the first message lacks header or proposal",
        ));
    };
    let question = Question {
        journal: &proposal.journal,
        requires_primary: false,
        may_proxy: false,
        header: Some(header),
        min_revision: 0,
        visible: None,
    };
    let resolution = service
        .topology()
        .resolve(question)
        .await
        .map_err(|error| error::resolve(&proposal.journal, &error))?;
    let is_ok = resolution.status == Status::Ok;
    if is_ok && resolution.header.route.is_equivalent(&header.route) {
        return Err(tonic::Status::unimplemented(
            "replicate: this broker is the only one of its cluster; next: append to it",
        ));
    }
    let status = if is_ok {
        Status::WrongRoute
    } else {
        resolution.status
    };
    Ok(ReplicateResponse {
        status: status.into(),
        header: Some(resolution.header),
        ..ReplicateResponse::default()
    })
}
