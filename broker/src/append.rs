//! Append: carries out what the append machine says, and decides nothing.

use std::{
    future::pending,
    pin::Pin,
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use gazette_coordination::{Compare, Op, Txn};
use gazette_journal::{
    Now,
    append::{
        AppendError, AppendFsm, HostFailure, Input, Output,
        fsm::{Acquired, ClientMessage, Health, Purpose, StoreFacts, Updated},
    },
    fragment::spool::{Cut, Rolled},
    pipeline::{LocalFailure, Pipeline, PipelineError, Proposal, SyncOutcome, Ticket},
    resolve::Resolution,
};
use gazette_protocol::{
    AppendRequest, AppendResponse, Header, JournalSpec, Route, Status, Validate as _, journal_name,
    journal_spec,
};
use gazette_wal::{Ack, Commit, Content, INLINE_MAX_BYTES, Roll};
use prost::Message as _;
use tokio::{
    sync::{oneshot, watch},
    time::sleep_until,
};

use crate::{
    error, metrics,
    replica::{Outcome, Phase, Replica, TurnGuard},
    service::Service,
    topology::Question,
};

/// Messages of a client.
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<AppendRequest, tonic::Status>> + Send>>;

/// Serves an Append RPC. The append goes on in a task of its own: once it is committed it must
/// end, whether its client is there or not.
pub(crate) async fn serve(
    service: &Service,
    mut messages: Messages,
) -> Result<AppendResponse, tonic::Status> {
    let opening = match messages.next().await {
        Some(opening) => opening?,
        None => return Err(tonic::Status::unknown("append: no message")),
    };
    opening.validate().map_err(|error| error::invalid(&error))?;
    let (answer, answered) = oneshot::channel();
    let (client_alive, client_gone) = watch::channel(());
    let service = service.clone();
    service.tasks().spawn("append", {
        let service = service.clone();
        async move {
            let result = run(&service, opening, messages, client_gone).await;
            // A client that went away does not need the answer.
            drop(answer.send(result));
            Ok(())
        }
    });
    let answered = answered.await;
    drop(client_alive);
    answered.unwrap_or_else(|_| Err(tonic::Status::unavailable("append: the broker stops")))
}

/// Runs an append to its end.
pub(crate) async fn run(
    service: &Service,
    opening: AppendRequest,
    messages: Messages,
    client_gone: watch::Receiver<()>,
) -> Result<AppendResponse, tonic::Status> {
    let journal = journal_name::split_meta(&opening.journal).0.to_owned();
    let header = opening.header.clone();
    let fsm = AppendFsm::new(opening, service.limits().clone());
    let shell = Shell {
        service,
        journal,
        header,
        messages: Some(messages),
        client_gone,
        assignments: None,
        replica: None,
        resolution: None,
        turn: None,
        content: Vec::new(),
        content_bytes: 0,
        append_begin: None,
        commit: None,
        store_seen: None,
    };
    shell.drive(fsm).await
}

struct Shell<'a> {
    service: &'a Service,
    journal: String,
    /// Of the peer that passed the request on.
    header: Option<Header>,
    messages: Option<Messages>,
    /// Closed when the client is gone.
    client_gone: watch::Receiver<()>,
    /// Changes of the journal's assignments since it was resolved.
    assignments: Option<watch::Receiver<u64>>,
    replica: Option<Arc<Replica>>,
    resolution: Option<Resolution>,
    turn: Option<TurnGuard>,
    /// Bytes of this append, as long as the log may carry them.
    content: Vec<Bytes>,
    content_bytes: usize,
    /// Offset of the first byte that was forwarded.
    append_begin: Option<i64>,
    commit: Option<Committed>,
    store_seen: Option<StoreFacts>,
}

/// A commit that was scattered.
struct Committed {
    ticket: Ticket,
    durable: Ack,
    gathered: oneshot::Receiver<Outcome>,
}

fn now() -> Now {
    Now {
        instant: tokio::time::Instant::now().into_std(),
        wall: SystemTime::now(),
    }
}

impl Shell<'_> {
    async fn drive(mut self, mut fsm: AppendFsm) -> Result<AppendResponse, tonic::Status> {
        let mut output = fsm.step(now(), Input::Start);
        loop {
            if let Output::Done(result) = output {
                return self.done(*result);
            }
            if matches!(output, Output::Proxy { .. }) {
                // One broker is the whole cluster: there is nobody to pass it on to.
                return Err(tonic::Status::unavailable(format!(
                    "append {}: another broker is its primary; next: try again",
                    self.journal
                )));
            }
            let input = match self.perform(output).await {
                Ok(input) => input,
                Err(refused) => {
                    self.abandon(&mut fsm);
                    return Err(refused);
                }
            };
            output = fsm.step(now(), input);
        }
    }

    /// Carries an output out. An error ends the append outside of the machine's rules.
    async fn perform(&mut self, output: Output) -> Result<Input, tonic::Status> {
        Ok(match output {
            Output::Resolve {
                min_revision,
                until,
            } => self.resolve(min_revision, until).await,
            Output::AcquirePipeline { until } => return self.acquire(until).await,
            Output::StartPipeline { header, until } => self.start_pipeline(*header, until).await,
            Output::Cut(cut) => self.cut(&cut).await,
            Output::Sync {
                proposal,
                rolled,
                until,
            } => self.sync(proposal, rolled, until).await,
            Output::UpdateAssignments { route, until } => {
                self.update_assignments(&route, until).await
            }
            Output::UpdateSuspend { suspend, until } => self.update_suspend(suspend, until).await,
            Output::InspectStore => {
                let facts = self.store_facts();
                self.store_seen = Some(facts.clone());
                Input::Store(facts)
            }
            Output::AwaitStore { until } => self.await_store(until).await,
            Output::Propose {
                proposal,
                purpose,
                rolled,
            } => Input::Proposed(self.propose(proposal, purpose, rolled)),
            Output::ReadMessage { until } => self.read_message(until).await,
            Output::Delay { until } => self.delay(until).await,
            Output::Forward {
                content,
                delta,
                position,
                ..
            } => Input::Forwarded(self.forward(content, delta, position)),
            Output::Release {
                held,
                keep_pipeline,
            } => {
                if let Some(mut turn) = self.turn.take()
                    && let Some(slot) = turn.as_mut()
                {
                    slot.held = Some(held);
                }
                if !keep_pipeline {
                    self.close_pipeline();
                }
                Input::Released
            }
            Output::AwaitAcks { until } => self.await_acks(until).await,
            Output::Proxy { .. } | Output::Done(_) => unreachable!("the driver ends with these"),
        })
    }

    fn replica(&self) -> &Arc<Replica> {
        self.replica
            .as_ref()
            .expect("a journal that is served here was resolved to its replica")
    }

    /// Hands back what the machine holds, when its append ends in the middle.
    fn abandon(&mut self, fsm: &mut AppendFsm) {
        if let Some(held) = fsm.abandon() {
            if let Some(mut turn) = self.turn.take()
                && let Some(slot) = turn.as_mut()
            {
                slot.held = Some(held);
            }
            self.close_pipeline();
        }
    }

    fn close_pipeline(&self) {
        if let Some(replica) = &self.replica {
            let mut lines = replica.lines();
            lines.close();
            replica.follow_lines(lines);
        }
    }

    async fn resolve(&mut self, min_revision: i64, until: Instant) -> Input {
        let question = Question {
            journal: &self.journal,
            requires_primary: true,
            may_proxy: true,
            header: self.header.as_ref(),
            min_revision,
            visible: None,
        };
        let topology = self.service.topology();
        let resolved = tokio::select! {
            biased;
            resolved = topology.resolve(question) => resolved,
            () = at(until) => return Input::TimedOut,
            () = gone(&mut self.client_gone) => return Input::Cancelled,
        };
        if let Ok(resolution) = &resolved {
            // The replica of a turn that is held stays: the machine releases it first.
            if self.turn.is_none() {
                self.replica = self.service.replicas().get(&self.journal);
            }
            self.assignments = self
                .replica
                .as_ref()
                .map(|replica| replica.assignment_changes());
            self.resolution = Some(resolution.clone());
        }
        Input::Resolved(resolved.map(Box::new))
    }

    async fn acquire(&mut self, until: Instant) -> Result<Input, tonic::Status> {
        let Some(replica) = self.replica.clone() else {
            return Err(tonic::Status::unavailable(format!(
                "append {}: its replica is about to begin or to end; next: try again",
                self.journal
            )));
        };
        let mut turn = tokio::select! {
            biased;
            turn = replica.acquire() => turn,
            () = at(until) => return Ok(Input::TimedOut),
            () = gone(&mut self.client_gone) => return Ok(Input::Cancelled),
            () = invalidated(self.assignments.as_mut()) => return Ok(Input::Invalidated),
        };
        let Some(held) = turn.as_mut().and_then(|turn| turn.held.take()) else {
            return Err(match replica.phase().borrow().clone() {
                Phase::Failed(reason) => {
                    tonic::Status::data_loss(format!("append {}: {reason}", self.journal))
                }
                Phase::Starting | Phase::Serving => tonic::Status::unavailable(format!(
                    "append {}: its replica has ended; next: try again",
                    self.journal
                )),
            });
        };
        self.turn = Some(turn);
        let lines = replica.lines();
        Ok(Input::Acquired(Box::new(Acquired {
            held,
            synchronised: lines.synchronised(),
            acknowledged: lines.acknowledged(),
        })))
    }

    async fn start_pipeline(&mut self, header: Header, until: Instant) -> Input {
        let replica = Arc::clone(self.replica());
        self.close_pipeline();
        loop {
            let changed = replica.lines_changed();
            let closed = replica.lines().closed();
            if let Some(closed) = closed {
                let timeout = self.service.limits().acknowledge;
                let pipeline = Pipeline::new(header, closed.acknowledged, timeout);
                replica.lines().begin(pipeline);
                return Input::Started(Ok(closed));
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = at(until) => return Input::TimedOut,
                () = gone(&mut self.client_gone) => return Input::Cancelled,
            }
        }
    }

    /// Takes back what was committed here and will never be acknowledged.
    async fn cut(&mut self, cut: &Cut) -> Input {
        let replica = Arc::clone(self.replica());
        if let Some(turn) = self.turn.as_ref().and_then(|turn| turn.as_ref()) {
            let taken_back = replica.log().commit(Commit {
                spool: turn.file.clone(),
                fragment: cut.fragment.clone(),
                append_begin: cut.fragment.end,
                registers: Arc::new(cut.registers.clone()),
                first_append: None,
                content: Content::Inline(Vec::new()),
            });
            // If the log is broken, the broker ends, and what was not acknowledged with it.
            drop(taken_back.await);
        }
        Input::Cut
    }

    /// Makes a roll of the spool known to the log, and begins the next file.
    fn roll(&mut self, rolled: Rolled, proposal: &Proposal) -> Option<Ack> {
        let replica = Arc::clone(self.replica.as_ref()?);
        let turn = self.turn.as_mut()?.as_mut()?;
        let next = replica.log().create_spool(rolled.begin);
        let closed = std::mem::replace(&mut turn.file, next.clone());
        replica.lines().add_file(rolled.begin, next);
        let roll = |completed| Roll {
            completed,
            next_begin: rolled.begin,
            registers: Arc::new(proposal.registers.clone()),
        };
        let Some(completed) = rolled.completed else {
            // An empty spool has no file that would have to be kept.
            if closed.begin() != rolled.begin {
                replica.lines().forget_file(closed.begin());
            }
            return Some(replica.log().roll(roll(None)));
        };
        ::metrics::counter!(metrics::SPOOL_COMPLETED_TOTAL).increment(1);
        let durable = replica.log().roll(roll(Some(closed.clone())));
        replica.completed(completed, closed, durable);
        None
    }

    async fn sync(&mut self, proposal: Proposal, rolled: Option<Rolled>, until: Instant) -> Input {
        let replica = Arc::clone(self.replica());
        let durable = rolled.and_then(|rolled| self.roll(rolled, &proposal));
        let (ticket, gathered) = {
            let mut lines = replica.lines();
            let scattered = lines
                .pipeline()
                .and_then(|pipeline| pipeline.handle_sync(now().instant, proposal));
            match scattered {
                Ok(ticket) => (ticket, lines.wait_for(ticket)),
                Err(error) => return Input::Synced(Err(error)),
            }
        };
        let durable = match durable {
            Some(durable) => durable.await,
            None => Ok(()),
        };
        replica.durable(ticket, &durable);
        tokio::select! {
            biased;
            gathered = gathered => Input::Synced(gathered.unwrap_or(Err(PipelineError::Closed))),
            () = at(until) => Input::TimedOut,
            () = gone(&mut self.client_gone) => Input::Cancelled,
        }
    }

    async fn update_assignments(&mut self, route: &Route, until: Instant) -> Input {
        let topology = self.service.topology();
        let bare = Route {
            endpoints: Vec::new(),
            ..route.clone()
        };
        let assignments = topology.assignments(&self.journal);
        let compares = assignments
            .iter()
            .map(|(key, _, revision)| Compare::mod_revision(key.clone(), *revision));
        let stale = assignments
            .iter()
            .filter(|(_, stored, _)| !stored.is_equivalent(route));
        let ops = stale.map(|(key, _, _)| Op::put_keeping_lease(key.clone(), bare.encode_to_vec()));
        let txn = Txn::new(compares.collect(), ops.collect());
        self.update(txn, until).await
    }

    async fn update_suspend(&mut self, suspend: journal_spec::Suspend, until: Instant) -> Input {
        let topology = self.service.topology();
        let Some((spec, revision)) = topology.spec(&self.journal) else {
            return Input::Updated(Ok(Updated::Lost));
        };
        // The spec may have changed since the machine looked at it; then it looks again.
        let is_same = self.resolution.as_ref().and_then(|r| r.spec.as_ref()) == Some(&spec);
        if !is_same {
            return Input::Updated(Ok(Updated::Lost));
        }
        let key = topology.keys.item(&self.journal);
        let mut compares = vec![Compare::mod_revision(key.clone(), revision)];
        let assignments = topology.assignments(&self.journal);
        compares.extend(
            assignments
                .into_iter()
                .map(|(key, _, at)| Compare::mod_revision(key, at)),
        );
        let spec = JournalSpec {
            suspend: Some(suspend),
            ..spec
        };
        let txn = Txn::new(compares, vec![Op::put(key, spec.encode_to_vec())]);
        self.update(txn, until).await
    }

    async fn update(&mut self, txn: Txn, until: Instant) -> Input {
        let coordination = Arc::clone(&self.service.topology().coordination);
        let answered = tokio::select! {
            biased;
            answered = coordination.txn(txn) => answered,
            () = at(until) => return Input::TimedOut,
        };
        Input::Updated(match answered {
            Ok(response) if response.succeeded => Ok(Updated::Done {
                revision: response.header.revision,
            }),
            Ok(_) => Ok(Updated::Lost),
            Err(error) => Err(HostFailure(error.to_string())),
        })
    }

    fn store_facts(&self) -> StoreFacts {
        let replica = self.replica();
        StoreFacts {
            index: replica.summary(),
            health: store_health(replica),
        }
    }

    async fn await_store(&mut self, until: Instant) -> Input {
        let replica = Arc::clone(self.replica());
        let mut index = replica.index_changes();
        loop {
            index.borrow_and_update();
            let facts = self.store_facts();
            if self.store_seen.as_ref() != Some(&facts) {
                self.store_seen = Some(facts.clone());
                return Input::Store(facts);
            }
            tokio::select! {
                biased;
                _ = index.changed() => {}
                () = at(until) => return Input::TimedOut,
                () = gone(&mut self.client_gone) => return Input::Cancelled,
                () = invalidated(self.assignments.as_mut()) => return Input::Invalidated,
            }
        }
    }

    fn propose(
        &mut self,
        proposal: Proposal,
        purpose: Purpose,
        rolled: Option<Rolled>,
    ) -> Result<(), PipelineError> {
        let replica = Arc::clone(self.replica());
        if let Some(rolled) = rolled
            && let Some(durable) = self.roll(rolled, &proposal)
        {
            // Whatever is recorded later is acknowledged after it.
            drop(durable);
        }
        let mut lines = replica.lines();
        let pipeline = lines.pipeline()?;
        match purpose {
            Purpose::Roll => pipeline.handle_roll(&proposal)?,
            Purpose::RollBack => {
                let ticket = pipeline.handle_settle(now().instant, proposal)?;
                pipeline.handle_durable(ticket, Ok(()));
                replica.follow_lines(lines);
                ::metrics::counter!(metrics::SPOOL_ROLLBACKS_TOTAL).increment(1);
            }
            Purpose::Commit => {
                let ticket = pipeline.handle_settle(now().instant, proposal.clone())?;
                let gathered = lines.wait_for(ticket);
                drop(lines);
                let durable = self.record(&replica, proposal);
                self.commit = Some(Committed {
                    ticket,
                    durable,
                    gathered,
                });
            }
        }
        Ok(())
    }

    /// Hands a commit to the write-ahead log.
    fn record(&mut self, replica: &Replica, proposal: Proposal) -> Ack {
        let turn = self.turn.as_ref().and_then(|turn| turn.as_ref());
        let file = turn.expect("a commit is made in a turn").file.clone();
        let content = if self.content_bytes <= INLINE_MAX_BYTES {
            Content::Inline(std::mem::take(&mut self.content))
        } else {
            Content::InSpool
        };
        ::metrics::counter!(metrics::SPOOL_COMMITS_TOTAL).increment(1);
        ::metrics::counter!(metrics::SPOOL_COMMIT_BYTES_TOTAL).increment(self.content_bytes as u64);
        replica.log().commit(Commit {
            spool: file,
            append_begin: self.append_begin.unwrap_or(proposal.fragment.end),
            fragment: proposal.fragment,
            registers: Arc::new(proposal.registers),
            first_append: Some(SystemTime::now()),
            content,
        })
    }

    async fn read_message(&mut self, until: Instant) -> Input {
        let Some(messages) = &mut self.messages else {
            return Input::Message(ClientMessage::End);
        };
        let message = tokio::select! {
            biased;
            message = messages.next() => message,
            () = at(until) => return Input::TimedOut,
            () = gone(&mut self.client_gone) => return Input::Cancelled,
            () = invalidated(self.assignments.as_mut()) => return Input::Invalidated,
        };
        match message {
            Some(Ok(request)) => Input::Message(ClientMessage::from(request)),
            // Its stream broke: it can neither commit nor be answered.
            Some(Err(_)) => Input::Cancelled,
            None => {
                self.messages = None;
                Input::Message(ClientMessage::End)
            }
        }
    }

    async fn delay(&mut self, until: Instant) -> Input {
        tokio::select! {
            biased;
            () = at(until) => Input::TimedOut,
            () = gone(&mut self.client_gone) => Input::Cancelled,
            () = invalidated(self.assignments.as_mut()) => Input::Invalidated,
        }
    }

    fn forward(&mut self, content: Bytes, delta: i64, position: u64) -> Result<(), PipelineError> {
        let replica = Arc::clone(self.replica());
        let turn = self.turn.as_ref().and_then(|turn| turn.as_ref());
        let file = &turn.expect("content is forwarded in a turn").file;
        let offset = file.begin() + i64::try_from(position).unwrap_or(i64::MAX);
        if self.append_begin.is_none() {
            self.append_begin = Some(offset);
        }
        file.write_at(position, &content).map_err(|error| {
            let is_full = matches!(
                error.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            );
            tracing::warn!(journal = self.journal, err = %error, "cannot write a spool");
            PipelineError::Local(if is_full {
                LocalFailure::NoSpace
            } else {
                LocalFailure::Disk
            })
        })?;
        self.content_bytes += content.len();
        if self.content_bytes <= INLINE_MAX_BYTES {
            self.content.push(content.clone());
        } else {
            self.content.clear();
        }
        replica.lines().pipeline()?.handle_content(content, delta)
    }

    async fn await_acks(&mut self, until: Instant) -> Input {
        let Some(Committed {
            ticket,
            durable,
            gathered,
        }) = self.commit.take()
        else {
            return Input::Acknowledged(Err(PipelineError::Closed));
        };
        let replica = Arc::clone(self.replica());
        let mut recording = Box::pin(async move { replica.durable(ticket, &durable.await) });
        tokio::select! {
            biased;
            () = &mut recording => {}
            () = at(until) => {
                // The disk is stuck. Should it recover, the round must still end.
                self.service.tasks().spawn("record an append", async move {
                    recording.await;
                    Ok(())
                });
                return Input::TimedOut;
            }
        }
        tokio::select! {
            biased;
            gathered = gathered => Input::Acknowledged(match gathered {
                Ok(Ok(SyncOutcome::Agreed)) => Ok(()),
                Ok(Ok(_)) | Err(_) => Err(PipelineError::Closed),
                Ok(Err(error)) => Err(error),
            }),
            () = at(until) => Input::TimedOut,
        }
    }

    fn done(
        &self,
        result: Result<AppendResponse, AppendError>,
    ) -> Result<AppendResponse, tonic::Status> {
        let response = result.map_err(|error| error::append(&self.journal, &error))?;
        if response.status() == Status::Ok
            && let Some(commit) = &response.commit
        {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a gauge need not be exact beyond 2^52"
            )]
            ::metrics::gauge!(metrics::WRITE_HEAD, "journal" => self.journal.clone())
                .set(commit.end as f64);
        }
        Ok(response)
    }
}

/// The health of a journal's first store, as far as an append must care: what is acknowledged is
/// safe on this disk, so only a store that cannot be listed holds appends up, since it may have
/// content that nobody here knows of.
fn store_health(replica: &Replica) -> Health {
    match replica.listing_error() {
        Some(error) if !replica.index().is_refreshed() => Health::Unhealthy(error),
        Some(_) | None => Health::Healthy,
    }
}

async fn at(until: Instant) {
    sleep_until(tokio::time::Instant::from_std(until)).await;
}

/// Waits until the client is gone.
async fn gone(client: &mut watch::Receiver<()>) {
    while client.changed().await.is_ok() {}
}

/// Waits until the journal's assignments change.
async fn invalidated(assignments: Option<&mut watch::Receiver<u64>>) {
    match assignments {
        Some(assignments) => {
            if assignments.changed().await.is_err() {
                pending::<()>().await;
            }
        }
        None => pending().await,
    }
}
