//! Read: a stream of fragments and their content, which ends, or waits, at the write head.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use gazette_journal::{
    fragment::index::Source,
    read::{Content, Next, Read, Then},
    resolve::Resolution,
};
use gazette_protocol::{Fragment, ReadRequest, ReadResponse, Status, Validate as _};
use gazette_stores::{ActiveStore, Store as _, StoreErrorKind};
use gazette_wal::{SpoolFile, SpoolReader};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    error,
    replica::{Phase, Replica},
    service::Service,
    storage::{self, Opened},
    topology::Question,
};

/// How long a signed URL of a fragment can be used.
const URL_TTL: Duration = Duration::from_mins(1);
/// How long a read that does not block waits for the first listing of the stores.
const LISTING_WAIT: Duration = Duration::from_secs(10);

/// Serves a Read RPC.
pub(crate) fn serve(
    service: &Service,
    request: ReadRequest,
) -> impl Stream<Item = Result<ReadResponse, tonic::Status>> + Send + use<> {
    let reading = Reading {
        service: service.clone(),
        stop: service.stop_token(),
        state: State::Begin(Box::new(request)),
    };
    stream::unfold(reading, |mut reading| async move {
        let message = reading.next().await.transpose()?;
        Some((message, reading))
    })
}

struct Reading {
    service: Service,
    stop: CancellationToken,
    state: State,
}

enum State {
    Begin(Box<ReadRequest>),
    /// Between messages.
    Between(Box<Here>),
    /// Within the content of a fragment.
    Sending(Box<Here>, Box<Sending>),
    End,
}

/// A read that is served by a replica of this broker.
struct Here {
    journal: String,
    replica: Arc<Replica>,
    read: Read,
    changes: watch::Receiver<u64>,
    /// When a read that does not block goes on without a listing of the stores.
    settle_at: Instant,
}

/// Content that is being sent.
struct Sending {
    content: Content<SpoolFile>,
    at: i64,
    from: From,
}

enum From {
    Spool(SpoolReader),
    Store(Box<Opened>, Bytes),
}

impl Reading {
    async fn next(&mut self) -> Result<Option<ReadResponse>, tonic::Status> {
        loop {
            match std::mem::replace(&mut self.state, State::End) {
                State::End => return Ok(None),
                State::Begin(request) => {
                    if let Some(response) = self.begin(*request).await? {
                        return Ok(Some(response));
                    }
                }
                State::Between(mut here) => {
                    let now = storage::unix_seconds(std::time::SystemTime::now());
                    let next = here.read.next(&here.replica.index(), now);
                    match next {
                        Next::End => return Ok(None),
                        Next::Await { until, for_refresh } => {
                            if !self.wait(&mut here, until, for_refresh).await? {
                                return Ok(None);
                            }
                            self.state = State::Between(here);
                        }
                        Next::Respond { mut response, then } => {
                            self.sign(&mut response).await?;
                            match then {
                                Then::End => {}
                                Then::Content(content) => {
                                    let sending = self.open(&here.replica, content).await?;
                                    let Some(sending) = sending else {
                                        // It was stored meanwhile: the index knows where.
                                        here.read.take_back(*response);
                                        self.state = State::Between(here);
                                        continue;
                                    };
                                    self.state = State::Sending(here, Box::new(sending));
                                }
                            }
                            return Ok(Some(*response));
                        }
                    }
                }
                State::Sending(here, mut sending) => {
                    let chunk = sending.next().await.map_err(|cause| {
                        let fragment = sending.content.fragment.content_path();
                        tonic::Status::data_loss(format!(
                            "read {} at {}: fragment {fragment}: {cause}; next: compare the \
                             fragment with a copy",
                            here.journal, sending.at
                        ))
                    })?;
                    if chunk.is_empty() {
                        self.state = State::Between(here);
                        continue;
                    }
                    let response = ReadResponse {
                        offset: sending.at,
                        content: chunk,
                        ..ReadResponse::default()
                    };
                    sending.at += i64::try_from(response.content.len()).unwrap_or(i64::MAX);
                    self.state = State::Sending(here, sending);
                    return Ok(Some(response));
                }
            }
        }
    }

    /// Resolves the journal. Returns the only response, if there is only one.
    async fn begin(&mut self, request: ReadRequest) -> Result<Option<ReadResponse>, tonic::Status> {
        request.validate().map_err(|error| error::invalid(&error))?;
        let question = Question {
            journal: &request.journal,
            requires_primary: false,
            may_proxy: !request.do_not_proxy,
            header: request.header.as_ref(),
            min_revision: request.min_etcd_revision,
            visible: None,
        };
        let resolved = self.service.topology().resolve(question).await;
        let Resolution {
            status,
            header,
            spec,
            is_local,
            ..
        } = resolved.map_err(|error| error::resolve(&request.journal, &error))?;
        if status != Status::Ok {
            let header = Some(header);
            return Ok(Some(ReadResponse {
                status: status.into(),
                header,
                ..ReadResponse::default()
            }));
        }
        let (Some(spec), true) = (spec, is_local) else {
            return Err(tonic::Status::unavailable(format!(
                "read {}: another broker holds it; next: try again",
                request.journal
            )));
        };
        let Some(replica) = self.service.replicas().get(&spec.name) else {
            return Err(tonic::Status::unavailable(format!(
                "read {}: its replica begins or ends; next: try again",
                spec.name
            )));
        };
        serving(&replica).await?;
        let changes = replica.index_changes();
        self.state = State::Between(Box::new(Here {
            journal: spec.name.clone(),
            read: Read::new(request, header, &spec),
            replica,
            changes,
            settle_at: Instant::now() + LISTING_WAIT,
        }));
        Ok(None)
    }

    /// Waits for a change of the index. False if the read ends here, in order.
    async fn wait(
        &mut self,
        here: &mut Here,
        until: Option<i64>,
        for_refresh: bool,
    ) -> Result<bool, tonic::Status> {
        let now = storage::unix_seconds(std::time::SystemTime::now());
        let jump = until.map(|until| {
            let seconds = u64::try_from(until.saturating_sub(now)).unwrap_or(0);
            Instant::now() + Duration::from_secs(seconds.clamp(1, 3600))
        });
        let settle = for_refresh.then_some(here.settle_at);
        let replica_stop = here.replica.stopped();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(false),
            () = replica_stop.cancelled() => Ok(false),
            changed = here.changes.changed() => Ok(changed.is_ok()),
            () = at(jump) => Ok(true),
            () = at(settle) => {
                // What is asked for may be in a store that does not answer.
                if let Some(cause) = here.replica.listing_error() {
                    let text = format!("read {}: {cause}", here.journal);
                    return Err(tonic::Status::unavailable(text));
                }
                here.read.settle_for_unrefreshed();
                Ok(true)
            }
        }
    }

    /// Adds the URL of a stored fragment.
    async fn sign(&mut self, response: &mut ReadResponse) -> Result<(), tonic::Status> {
        let Some(fragment) = &response.fragment else {
            return Ok(());
        };
        if fragment.backing_store.is_empty() || fragment.mod_time == 0 {
            return Ok(());
        }
        let store = self.service.stores().get(&fragment.backing_store);
        let url = store.sign_get(&fragment.content_path(), URL_TTL).await;
        response.fragment_url = url.map_err(|error| error::store(&error))?;
        Ok(())
    }

    /// Opens content. `None` if its spool is gone.
    async fn open(
        &mut self,
        replica: &Replica,
        content: Content<SpoolFile>,
    ) -> Result<Option<Sending>, tonic::Status> {
        let (journal, at) = (replica.name(), content.begin);
        let from = match &content.source {
            Source::Local(file) => match file.reader() {
                Ok(reader) => From::Spool(reader),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    let path = file.path().display();
                    return Err(tonic::Status::unknown(format!(
                        "read {journal}: open {path}: {error}"
                    )));
                }
            },
            Source::Stored { relative_path } => {
                let fragment = &content.fragment;
                let store: Arc<ActiveStore> = self.service.stores().get(&fragment.backing_store);
                let path = stored_path(fragment, relative_path.as_deref());
                let opened = storage::open(&store, fragment, &path, content.begin).await;
                if opened
                    .as_ref()
                    .is_err_and(|error| error.kind() == StoreErrorKind::NotFound)
                {
                    // Somebody pruned it since the store was listed. The next try will know.
                    replica.list_soon();
                }
                From::Store(
                    Box::new(opened.map_err(|error| error::store(&error))?),
                    Bytes::new(),
                )
            }
        };
        Ok(Some(Sending { content, at, from }))
    }
}

/// Where a store has a fragment.
pub(crate) fn stored_path(fragment: &Fragment, relative_path: Option<&str>) -> String {
    match relative_path {
        Some(relative) => format!("{}/{relative}", fragment.journal),
        None => fragment.content_path(),
    }
}

/// Waits until a replica serves.
pub(crate) async fn serving(replica: &Replica) -> Result<(), tonic::Status> {
    let mut phase = replica.phase();
    let phase = phase.wait_for(|phase| *phase != Phase::Starting).await;
    match phase.as_deref() {
        Ok(Phase::Failed(reason)) => Err(tonic::Status::data_loss(format!(
            "serve {}: {reason}",
            replica.name()
        ))),
        Ok(Phase::Serving | Phase::Starting) | Err(_) => Ok(()),
    }
}

impl Sending {
    /// The next bytes; empty at the end of the content.
    async fn next(&mut self) -> io::Result<Bytes> {
        let wanted = self.content.next_chunk(self.at);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        match &mut self.from {
            From::Spool(reader) => {
                let position = (self.at - self.content.fragment.begin).unsigned_abs();
                let mut chunk = vec![0; wanted];
                let read = reader.read_at(position, &mut chunk)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                chunk.truncate(read);
                Ok(chunk.into())
            }
            From::Store(opened, rest) => {
                if rest.is_empty() {
                    *rest = opened.next().await?;
                }
                if rest.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(rest.split_to(rest.len().min(wanted)))
            }
        }
    }
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
