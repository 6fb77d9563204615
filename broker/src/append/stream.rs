//! The content: from the client into the spool, its commit, and what was acknowledged.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use gazette_journal::{
    append::{
        Input,
        fsm::{ClientMessage, Purpose},
    },
    fragment::spool::Rolled,
    pipeline::{LocalFailure, PipelineError, Proposal, SyncOutcome},
};
use gazette_wal::{Ack, Commit, Content, INLINE_MAX_BYTES, Roll};

use super::{Committed, Shell, at, gone, invalidated, now};
use crate::{metrics, replica::Replica};

impl Shell<'_> {
    /// Makes a roll of the spool known to the log, and begins the next file.
    pub(super) fn roll(&mut self, rolled: Rolled, proposal: &Proposal) -> Option<Ack> {
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

    pub(super) fn propose(
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

    pub(super) async fn read_message(&mut self, until: Instant) -> Input {
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

    pub(super) async fn delay(&mut self, until: Instant) -> Input {
        tokio::select! {
            biased;
            () = at(until) => Input::TimedOut,
            () = gone(&mut self.client_gone) => Input::Cancelled,
            () = invalidated(self.assignments.as_mut()) => Input::Invalidated,
        }
    }

    pub(super) fn forward(
        &mut self,
        content: Bytes,
        delta: i64,
        position: u64,
    ) -> Result<(), PipelineError> {
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

    pub(super) async fn await_acks(&mut self, until: Instant) -> Input {
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
}
