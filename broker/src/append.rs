//! Append: carries out what the append machine says, and decides nothing.

use std::{
    future::pending,
    pin::Pin,
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use gazette_journal::{
    Now,
    append::{AppendError, AppendFsm, Input, Output, fsm::StoreFacts},
    pipeline::Ticket,
    resolve::Resolution,
};
use gazette_protocol::{
    AppendRequest, AppendResponse, Header, Status, Validate as _, journal_name,
};
use gazette_wal::Ack;
use tokio::{
    sync::{oneshot, watch},
    time::sleep_until,
};

use crate::{
    error, metrics,
    replica::{Outcome, Replica, TurnGuard},
    service::Service,
};

mod setup;
mod stream;

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
