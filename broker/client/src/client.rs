//! The handle on a cluster of brokers.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use gazette_protocol::{
    ApplyRequest, ApplyResponse, FragmentStoreHealthRequest, FragmentStoreHealthResponse,
    FragmentsRequest, FragmentsResponse, Header, Label, LabelSelector, LabelSet, ListRequest,
    ReadRequest, Status, Validate, apply_request, fragments_response, journal_server::Journal,
    list_response,
};
use tokio::time::timeout;

use crate::{
    BoxChannel, ChannelOptions, ClientError, ConnectError, Listing, ReadEvent, Reader,
    RetryOptions, RetryReader, RouteCacheOptions, WatchedList,
    channel::in_process_channel,
    error::Cause,
    fragment_reader::Http,
    list::Assembler,
    read_error::{ReadCause, ReadError},
    router::{Need, Router},
};

/// How a [`Client`] works.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How connections are made and watched.
    pub channel: ChannelOptions,
    /// Longest wait for the answer of a call that should be answered at once: a list, an apply.
    pub call_timeout: Duration,
    /// How long an append is tried while it is certain that nothing was done, and how long an answer
    /// is waited for. `None` waits for ever.
    pub append_give_up_after: Option<Duration>,
    /// How many routes are remembered. With some, calls go to the brokers that serve a journal.
    pub route_cache: RouteCacheOptions,
    /// Zone of this process. Brokers in it are preferred for reads.
    pub zone: String,
    /// Folder that holds the fragments of stores with `file://` URLs, if it can be reached.
    pub file_root: Option<PathBuf>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            channel: ChannelOptions::default(),
            call_timeout: Duration::from_secs(30),
            append_give_up_after: Some(Duration::from_mins(1)),
            route_cache: RouteCacheOptions::default(),
            zone: String::new(),
            file_root: None,
        }
    }
}

/// Where a journal ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Offset at which the next append begins.
    pub write_head: i64,
    /// What the broker said: OK, or `OFFSET_NOT_YET_AVAILABLE` as the head is always unwritten.
    pub status: Status,
    /// The broker that answered.
    pub header: Header,
}

/// Reads and appends journals of one cluster of brokers. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    router: Router,
    options: ClientOptions,
    http: Http,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("router", &self.inner.router)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client of the broker at `endpoint`. See [`crate::connect_channel`] for its forms.
    ///
    /// No connection is made yet. Must be called in a tokio runtime.
    pub fn connect(endpoint: &str, options: ClientOptions) -> Result<Self, ConnectError> {
        let router = Router::connect(
            endpoint,
            options.channel.clone(),
            options.route_cache,
            options.zone.clone(),
        )?;
        Ok(Self::new(router, options))
    }

    /// Returns a client of a journal service in this process, without any socket.
    pub fn in_process(journal: impl Journal) -> Self {
        Self::from_channel(in_process_channel(journal), ClientOptions::default())
    }

    /// Returns a client that talks over `channel`.
    pub fn from_channel(channel: BoxChannel, options: ClientOptions) -> Self {
        let router = Router::over(
            channel,
            options.channel.clone(),
            options.route_cache,
            options.zone.clone(),
        );
        Self::new(router, options)
    }

    fn new(router: Router, options: ClientOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                router,
                options,
                http: Http::new(),
            }),
        }
    }

    /// The options it was made with.
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Whether calls go to the brokers that serve a journal, rather than all to one which passes them
    /// on. If so, a reader may well ask for `do_not_proxy`, and open fragments itself.
    pub fn is_routing(&self) -> bool {
        self.inner.router.is_routing()
    }

    pub(crate) fn router(&self) -> &Router {
        &self.inner.router
    }

    pub(crate) fn http(&self) -> &Http {
        &self.inner.http
    }

    /// Lists the journals that match `selector`.
    pub async fn list(&self, selector: LabelSelector) -> Result<Listing, ClientError> {
        let object = "journals";
        let request = ListRequest {
            selector,
            watch: false,
            watch_resume: None,
        };
        request
            .validate()
            .map_err(|e| ClientError::new("list", object, Cause::Request(e)))?;
        let collect = async {
            let mut stream = self
                .router()
                .any_stream()
                .list(request)
                .await
                .map_err(Cause::Rpc)?
                .into_inner();
            let mut assembler = Assembler::default();
            while let Some(message) = stream.message().await.map_err(Cause::Rpc)? {
                if assembler.push(message)?.is_some() {
                    return Err(Cause::Protocol("an end of snapshot within a plain list"));
                }
            }
            assembler.finish()
        };
        let listing = self.in_time(collect).await;
        let listing = listing.map_err(|cause| ClientError::new("list", object, cause))?;
        for journal in &listing.journals {
            self.router().learn(&journal.spec.name, &journal.route);
        }
        Ok(listing)
    }

    /// Follows the journals that match `selector`.
    pub fn watch(&self, selector: LabelSelector) -> WatchedList {
        WatchedList::new(self.clone(), selector)
    }

    /// Looks up one journal by its name.
    pub async fn get_journal(
        &self,
        name: &str,
    ) -> Result<Option<list_response::Journal>, ClientError> {
        let named = |value: &str| {
            let label = Label {
                name: "name".to_owned(),
                value: value.to_owned(),
                prefix: false,
            };
            LabelSet {
                labels: vec![label],
            }
        };
        let selector = LabelSelector {
            include: named(name),
            exclude: LabelSet::default(),
        };
        let listing = self.list(selector).await?;
        Ok(listing
            .journals
            .into_iter()
            .find(|journal| journal.spec.name == name))
    }

    /// Creates, changes and deletes journals: all changes of the request, or none.
    pub async fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, ClientError> {
        let object = match request.changes.as_slice() {
            [change] => change_name(change).to_owned(),
            changes => format!("{} changes", changes.len()),
        };
        let fail = |cause| ClientError::new("apply", object.clone(), cause);
        request
            .validate()
            .map_err(|error| fail(Cause::Request(error)))?;
        let call = async {
            Ok(self
                .router()
                .any()
                .apply(request)
                .await
                .map_err(Cause::Rpc)?
                .into_inner())
        };
        let response = self.in_time(call).await.map_err(fail)?;
        check(response.status, "", &response).map_err(fail)?;
        Ok(response)
    }

    /// Applies changes in several transactions of at most `size` changes, one after the other. An
    /// error may leave the earlier ones applied.
    pub async fn apply_in_batches(
        &self,
        request: ApplyRequest,
        size: usize,
    ) -> Result<ApplyResponse, ClientError> {
        let mut changes = request.changes;
        let mut response;
        loop {
            let rest = changes.split_off(changes.len().min(size.max(1)));
            response = self.apply(ApplyRequest { changes }).await?;
            if rest.is_empty() {
                return Ok(response);
            }
            changes = rest;
        }
    }

    /// Lists one page of the fragments of a journal.
    pub async fn list_fragments(
        &self,
        request: FragmentsRequest,
    ) -> Result<FragmentsResponse, ClientError> {
        let journal = request.journal.clone();
        let fail = |cause| ClientError::new("list fragments of", journal.clone(), cause);
        request
            .validate()
            .map_err(|error| fail(Cause::Request(error)))?;
        let call = async {
            let answer = self
                .router()
                .call(&journal, Need::Member)
                .list_fragments(request)
                .await;
            Ok(answer
                .map_err(|status| self.rpc_failed(&journal, status))?
                .into_inner())
        };
        let response = self.in_time(call).await.map_err(fail)?;
        check(response.status, "", &response).map_err(fail)?;
        self.router().learn(&journal, &response.header.route);
        Ok(response)
    }

    /// Lists all fragments of a journal, page by page.
    pub async fn list_all_fragments(
        &self,
        mut request: FragmentsRequest,
    ) -> Result<Vec<fragments_response::Fragment>, ClientError> {
        let mut fragments = Vec::new();
        loop {
            let response = self.list_fragments(request.clone()).await?;
            fragments.extend(response.fragments);
            // A token that does not advance would page for ever.
            if response.next_page_token <= request.next_page_token {
                return Ok(fragments);
            }
            request.next_page_token = response.next_page_token;
        }
    }

    /// Asks whether a fragment store can be used. That it cannot is an answer, not an error.
    pub async fn store_health(
        &self,
        request: FragmentStoreHealthRequest,
    ) -> Result<FragmentStoreHealthResponse, ClientError> {
        let store = request.fragment_store.clone();
        let fail = |cause| ClientError::new("check store", store.clone(), cause);
        request
            .validate()
            .map_err(|error| fail(Cause::Request(error)))?;
        let call = async {
            let answer = self.router().any().fragment_store_health(request).await;
            Ok(answer.map_err(Cause::Rpc)?.into_inner())
        };
        let response = self.in_time(call).await.map_err(fail)?;
        if response.status() != Status::FragmentStoreUnhealthy {
            check(response.status, &response.store_health_error, &response).map_err(fail)?;
        }
        Ok(response)
    }

    /// Asks where a journal ends.
    pub async fn read_head(&self, journal: &str) -> Result<Head, ClientError> {
        let request = ReadRequest {
            journal: journal.to_owned(),
            offset: -1,
            metadata_only: true,
            ..ReadRequest::default()
        };
        let mut reader = self.reader(request);
        let call = async { Ok(reader.next().await) };
        let response = match self.in_time(call).await {
            Err(cause) => Err(cause),
            Ok(Ok(Some(ReadEvent::Metadata(response)))) => Ok(*response),
            Ok(Ok(_)) => Err(Cause::Protocol("a read that ends before it begins")),
            Ok(Err(error)) => match error.into_response(Status::OffsetNotYetAvailable) {
                Ok(response) => Ok(response),
                Err(error) => Err(head_cause(error)),
            },
        };
        let response =
            response.map_err(|cause| ClientError::new("read head of", journal, cause))?;
        Ok(Head {
            write_head: response.write_head,
            status: response.status(),
            header: response.header.unwrap_or_default(),
        })
    }

    /// Reads with a single RPC.
    pub fn reader(&self, request: ReadRequest) -> Reader {
        Reader::new(self.clone(), request)
    }

    /// Reads, and goes on after whatever a new attempt may cure.
    pub fn retry_reader(&self, request: ReadRequest) -> RetryReader {
        RetryReader::new(self.clone(), request, RetryOptions::default())
    }

    /// As [`retry_reader`](Self::retry_reader), with options.
    pub fn retry_reader_with(&self, request: ReadRequest, options: RetryOptions) -> RetryReader {
        RetryReader::new(self.clone(), request, options)
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
        let limit = self.inner.options.call_timeout;
        let result = timeout(limit, call)
            .await
            .unwrap_or(Err(Cause::Timeout(limit)));
        if let Err(Cause::Rpc(status)) = &result {
            self.router().calm(status);
        }
        result
    }

    fn rpc_failed(&self, journal: &str, status: tonic::Status) -> Cause {
        self.router().failed(journal, &status);
        Cause::Rpc(status)
    }
}

/// Returns an error unless `status` is OK and the message is valid.
fn check(status: i32, detail: &str, message: &impl Validate) -> Result<(), Cause> {
    match Status::try_from(status) {
        Ok(Status::Ok) => message.validate().map_err(Cause::Answer),
        Ok(status) => Err(Cause::Status {
            status,
            detail: detail.to_owned(),
        }),
        Err(_) => Err(Cause::Protocol("a status that this client does not know")),
    }
}

fn head_cause(error: ReadError) -> Cause {
    match error.into_cause() {
        ReadCause::Rpc(status) => Cause::Rpc(status),
        ReadCause::Status { status, .. } => Cause::Status {
            status,
            detail: String::new(),
        },
        ReadCause::Request(error) => Cause::Request(error),
        ReadCause::Answer(error) => Cause::Answer(error),
        ReadCause::Protocol(text) => Cause::Protocol(text),
        ReadCause::Fragment(_) | ReadCause::GaveUp { .. } => {
            Cause::Protocol("content in answer to a request for metadata")
        }
    }
}

fn change_name(change: &apply_request::Change) -> &str {
    change
        .upsert
        .as_ref()
        .map_or(change.delete.as_str(), |spec| spec.name.as_str())
}

#[cfg(test)]
mod tests;
