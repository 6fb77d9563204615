//! The pipeline of a replica, and those who wait for its rounds.

use std::collections::BTreeMap;

use gazette_journal::pipeline::{
    Closed, Gathered, Output, Pipeline, PipelineError, SyncOutcome, Ticket,
};
use gazette_protocol::{Fragment, Route};
use gazette_wal::SpoolFile;
use tokio::sync::oneshot;

/// How a round ended.
pub(crate) type Outcome = Result<SyncOutcome, PipelineError>;

/// What ended since the lines were last drained. It is to be published first and told then.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// What all replicas have, in order.
    pub(crate) published: Vec<(Fragment, SpoolFile)>,
    /// Waiters of rounds that ended, and how.
    ended: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Drained {
    /// Tells the waiters.
    pub(crate) fn tell(self) {
        for (waiter, outcome) in self.ended {
            // A client that is gone does not need to know.
            drop(waiter.send(outcome));
        }
    }
}

/// The present pipeline, the files of live spools, and the waiters.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pipeline: Option<Pipeline>,
    /// How the pipeline before ended, until the next one begins.
    last: Option<Closed>,
    /// Files of spools that are not dropped, by the begin of their fragment.
    files: BTreeMap<i64, SpoolFile>,
    /// Begin of the fragment that still grows: that of the file that was added last.
    present: i64,
    waiters: BTreeMap<Ticket, oneshot::Sender<Outcome>>,
    /// Up to where the journal was acknowledged when there was no pipeline yet.
    floor: i64,
}

impl Lines {
    /// Where a recovered journal ends: all of it was acknowledged.
    pub(crate) fn set_floor(&mut self, end: i64) {
        self.floor = end;
    }

    /// Up to where all replicas have the journal.
    pub(crate) fn acknowledged(&self) -> i64 {
        let pipeline = self.pipeline.as_ref().map(Pipeline::acknowledged);
        pipeline
            .or_else(|| self.last.map(|closed| closed.acknowledged))
            .unwrap_or(0)
            .max(self.floor)
    }

    /// The route whose replicas agree, if a pipeline is sound.
    pub(crate) fn synchronised(&self) -> Option<Route> {
        self.pipeline.as_ref()?.synchronised_route().cloned()
    }

    /// The pipeline, if there is one.
    pub(crate) fn pipeline(&mut self) -> Result<&mut Pipeline, PipelineError> {
        self.pipeline.as_mut().ok_or(PipelineError::Closed)
    }

    /// Begins another pipeline; the one before has ended.
    pub(crate) fn begin(&mut self, pipeline: Pipeline) {
        self.pipeline = Some(pipeline);
        self.last = None;
    }

    /// Closes the pipeline.
    pub(crate) fn close(&mut self) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.handle_close();
        }
    }

    /// How the last pipeline ended, once it has. One that never was lost nothing.
    pub(crate) fn closed(&mut self) -> Option<Closed> {
        if let Some(pipeline) = &self.pipeline {
            self.last = Some(pipeline.closed()?);
            self.pipeline = None;
        }
        let acknowledged = self.acknowledged();
        Some(self.last.unwrap_or(Closed {
            acknowledged,
            is_local_lost: false,
        }))
    }

    /// Waits for the end of a round.
    pub(crate) fn wait_for(&mut self, ticket: Ticket) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        self.waiters.insert(ticket, sender);
        receiver
    }

    /// The file of the fragment that begins at `begin`.
    pub(crate) fn add_file(&mut self, begin: i64, file: SpoolFile) {
        self.files.insert(begin, file);
        self.present = begin;
    }

    /// Whether a fragment still grows.
    pub(crate) fn is_present(&self, begin: i64) -> bool {
        self.present == begin
    }

    /// The spool of a fragment is dropped.
    pub(crate) fn forget_file(&mut self, begin: i64) {
        self.files.remove(&begin);
    }

    /// Takes what ended since: what all replicas have now, and who waits to hear of it.
    pub(crate) fn drain(&mut self) -> Drained {
        let mut drained = Drained::default();
        while let Some(output) = self.pipeline.as_mut().and_then(Pipeline::poll_output) {
            match output {
                Output::Gathered(Gathered {
                    ticket,
                    proposal,
                    result,
                }) => {
                    let fragment = proposal.fragment;
                    let is_agreed = matches!(result, Ok(SyncOutcome::Agreed));
                    let file = self.files.get(&fragment.begin);
                    if let (true, true, Some(file)) =
                        (is_agreed, fragment.begin < fragment.end, file)
                    {
                        drained.published.push((fragment, file.clone()));
                    }
                    if let Some(waiter) = self.waiters.remove(&ticket) {
                        drained.ended.push((waiter, result));
                    }
                }
                // A journal of this release has one replica: there is no peer to send to. The
                // pipeline is closed when its route has any, see `append`.
                Output::Send { .. } | Output::CloseSend { .. } => {}
            }
        }
        drained
    }
}
