//! The journal service: one value that all RPCs, the gateway and the program share.

use std::{pin::Pin, sync::Arc, time::Instant};

use futures_util::{Stream, StreamExt as _, stream};
use gazette_journal::append::Limits;
use gazette_process::TaskGroup;
use gazette_protocol::{
    AppendRequest, AppendResponse, ApplyRequest, ApplyResponse, FragmentStoreHealthRequest,
    FragmentStoreHealthResponse, FragmentsRequest, FragmentsResponse, ListRequest, ListResponse,
    ReadRequest, ReadResponse, ReplicateRequest, ReplicateResponse, append_request,
    journal_server::Journal,
};
use gazette_stores::Stores;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    append, apply, fragments, list, metrics, read, replicas::Replicas, replicate, store_health,
    topology::Topology,
};

/// The journal service of one broker. A clone is the same service.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    topology: Arc<Topology>,
    stores: Arc<Stores>,
    limits: Limits,
    tasks: TaskGroup,
    /// Ends reads and listings, so that their connections can close.
    stop: CancellationToken,
}

/// A stream of responses.
type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(
        topology: Arc<Topology>,
        stores: Arc<Stores>,
        limits: Limits,
        tasks: TaskGroup,
        stop: CancellationToken,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                topology,
                stores,
                limits,
                tasks,
                stop,
            }),
        }
    }

    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.inner.topology
    }

    pub(crate) fn replicas(&self) -> &Replicas {
        &self.inner.topology.replicas
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.inner.stores
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.inner.tasks
    }

    /// Cancelled when reads and listings shall end.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    pub(crate) fn list(
        &self,
        request: ListRequest,
    ) -> impl Stream<Item = Result<ListResponse, Status>> + Send + use<> {
        list::serve(self, request)
    }

    pub(crate) fn read(
        &self,
        request: ReadRequest,
    ) -> impl Stream<Item = Result<ReadResponse, Status>> + Send + use<> {
        read::serve(self, request)
    }

    pub(crate) async fn append(
        &self,
        messages: append::Messages,
    ) -> Result<AppendResponse, Status> {
        append::serve(self, messages).await
    }

    /// Appends nothing to a journal: it synchronises, and closes a fragment that is due.
    pub(crate) async fn pulse(&self, journal: String) {
        let opening = AppendRequest {
            journal: journal.clone(),
            do_not_proxy: true,
            suspend: append_request::Suspend::NoResume.into(),
            ..AppendRequest::default()
        };
        let messages = Box::pin(stream::iter([Ok(AppendRequest::default())]));
        let (_alive, client) = tokio::sync::watch::channel(());
        if let Err(error) = append::run(self, opening, messages, client).await {
            tracing::debug!(journal, err = %error, "pulse failed");
        }
    }
}

/// Counts an RPC from here until its end is told.
struct Counted {
    operation: &'static str,
    begun: Instant,
}

impl Counted {
    fn begin(operation: &'static str) -> Self {
        ::metrics::counter!(metrics::STARTED_TOTALS, "operation" => operation).increment(1);
        Self {
            operation,
            begun: Instant::now(),
        }
    }

    fn end<T>(self, result: Result<T, Status>) -> Result<Response<T>, Status> {
        let status = if result.is_ok() { "ok" } else { "<error>" };
        ::metrics::counter!(
            metrics::COMPLETED_TOTALS, "operation" => self.operation, "status" => status
        )
        .increment(1);
        let elapsed = self.begun.elapsed();
        if let Err(error) = &result {
            tracing::debug!(rpc = self.operation, ?elapsed, err = %error, "RPC failed");
        }
        result.map(Response::new)
    }
}

#[tonic::async_trait]
impl Journal for Service {
    type ListStream = Responses<ListResponse>;

    async fn list(
        &self,
        request: Request<ListRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let counted = Counted::begin("List");
        counted.end(Ok(
            Box::pin(Self::list(self, request.into_inner())) as Responses<_>
        ))
    }

    async fn apply(
        &self,
        request: Request<ApplyRequest>,
    ) -> Result<Response<ApplyResponse>, Status> {
        let counted = Counted::begin("Apply");
        counted.end(apply::serve(self, request.into_inner()).await)
    }

    type ReadStream = Responses<ReadResponse>;

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let counted = Counted::begin("Read");
        counted.end(Ok(
            Box::pin(Self::read(self, request.into_inner())) as Responses<_>
        ))
    }

    async fn append(
        &self,
        request: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<AppendResponse>, Status> {
        let counted = Counted::begin("Append");
        counted.end(Self::append(self, Box::pin(request.into_inner())).await)
    }

    type ReplicateStream = Responses<ReplicateResponse>;

    async fn replicate(
        &self,
        request: Request<Streaming<ReplicateRequest>>,
    ) -> Result<Response<Self::ReplicateStream>, Status> {
        let counted = Counted::begin("Replicate");
        let first = request.into_inner().next().await;
        let answer = match first {
            Some(Ok(first)) => replicate::serve(self, first).await,
            Some(Err(error)) => Err(error),
            None => Err(Status::unknown("replicate: no message")),
        };
        counted.end(answer.map(|answer| Box::pin(stream::iter([Ok(answer)])) as Responses<_>))
    }

    async fn list_fragments(
        &self,
        request: Request<FragmentsRequest>,
    ) -> Result<Response<FragmentsResponse>, Status> {
        let counted = Counted::begin("ListFragments");
        counted.end(fragments::serve(self, request.into_inner()).await)
    }

    async fn fragment_store_health(
        &self,
        request: Request<FragmentStoreHealthRequest>,
    ) -> Result<Response<FragmentStoreHealthResponse>, Status> {
        let counted = Counted::begin("FragmentStoreHealth");
        counted.end(store_health::serve(self, request.into_inner()).await)
    }
}
