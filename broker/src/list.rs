//! List: the journals that match a selector, once or whenever they change.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, stream};
use gazette_allocator::{State, state::ItemEntry};
use gazette_protocol::{LabelSelector, ListRequest, ListResponse, Validate as _, list_response};

use crate::{error::invalid, service::Service, topology::Topology};

/// Journals in one message, as many as fit well below the message limit of any client.
const JOURNALS_PER_MESSAGE: usize = 25;

/// Serves a List RPC.
pub(crate) fn serve(
    service: &Service,
    request: ListRequest,
) -> impl Stream<Item = Result<ListResponse, tonic::Status>> + Send + use<> {
    let listing = Listing {
        topology: Arc::clone(service.topology()),
        stop: service.stop_token(),
        request,
        messages: VecDeque::new(),
        phase: Phase::Begin,
    };
    stream::unfold(listing, |mut listing| async move {
        let message = listing.next().await.transpose()?;
        Some((message, listing))
    })
}

struct Listing {
    topology: Arc<Topology>,
    stop: tokio_util::sync::CancellationToken,
    request: ListRequest,
    /// Of the present snapshot.
    messages: VecDeque<ListResponse>,
    phase: Phase,
}

enum Phase {
    Begin,
    /// A snapshot of so many journals, of which the last changed at this revision, was made.
    Snapshot {
        extent: Extent,
    },
    End,
}

/// What must differ for another snapshot to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    journals: usize,
    last_change: i64,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<ListResponse>, tonic::Status> {
        if let Some(message) = self.messages.pop_front() {
            return Ok(Some(message));
        }
        match self.phase {
            Phase::End => return Ok(None),
            Phase::Begin => {
                self.request.validate().map_err(|error| {
                    self.phase = Phase::End;
                    invalid(&error)
                })?;
                if let Some(resume) = &self.request.watch_resume {
                    let after = resume.etcd.revision + 1;
                    if !self.wait_for(after).await {
                        return Ok(None);
                    }
                }
                self.snapshot(None);
            }
            Phase::Snapshot { .. } if !self.request.watch => return Ok(None),
            Phase::Snapshot { extent } => loop {
                let after = self.topology.revision() + 1;
                // The mirror may have moved on since the snapshot was made.
                if self.snapshot(Some(extent)) {
                    break;
                }
                if !self.wait_for(after).await {
                    return Ok(None);
                }
            },
        }
        Ok(self.messages.pop_front())
    }

    /// Waits for a revision. False when the broker stops first.
    async fn wait_for(&mut self, revision: i64) -> bool {
        let stop = self.stop.clone();
        let reached = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            reached = self.topology.mirror.wait_for_revision(revision) => reached.is_ok(),
        };
        if !reached {
            self.phase = Phase::End;
        }
        reached
    }

    /// Makes the messages of a snapshot, unless its extent is that of the one before.
    fn snapshot(&mut self, before: Option<Extent>) -> bool {
        let header = self.topology.unrouted_header();
        let (journals, extent) = matching(&self.topology, &self.request.selector, before);
        if before == Some(extent) {
            return false;
        }
        self.phase = Phase::Snapshot { extent };
        let mut header = Some(header);
        let mut message = |journals| ListResponse {
            header: header.take().unwrap_or_default(),
            journals,
            ..ListResponse::default()
        };
        let mut rest = journals.into_iter();
        loop {
            let page: Vec<_> = rest.by_ref().take(JOURNALS_PER_MESSAGE).collect();
            if page.is_empty() && !self.messages.is_empty() {
                break;
            }
            self.messages.push_back(message(page));
        }
        if self.request.watch {
            self.messages.push_back(ListResponse::default());
        }
        true
    }
}

/// The journals that match, and their extent. They are left out where the extent is `before`.
fn matching(
    topology: &Topology,
    selector: &LabelSelector,
    before: Option<Extent>,
) -> (Vec<list_response::Journal>, Extent) {
    let selector = selector.with_prefixes_as_names();
    let space = topology.mirror.read();
    let state = State::new(&topology.keys, &space);
    let matching: Vec<_> = state
        .items_with_prefix(name_prefix(&selector))
        .filter(|item| {
            selector.is_empty() || selector.matches(&item.decoded.spec.label_set_with_meta())
        })
        .collect();
    let extent = Extent {
        journals: matching.len(),
        last_change: matching
            .iter()
            .map(ItemEntry::mod_revision)
            .max()
            .unwrap_or(0),
    };
    if before == Some(extent) {
        return (Vec::new(), extent);
    }
    let journals = matching.into_iter().map(|item| list_response::Journal {
        spec: item.decoded.spec.clone(),
        mod_revision: item.mod_revision(),
        create_revision: item.raw().create_revision,
        route: state.route(&item.decoded.id),
    });
    (journals.collect(), extent)
}

/// A prefix that the names of all matching journals have: the one `name` that is included.
fn name_prefix(selector: &LabelSelector) -> &str {
    let mut names = selector
        .include
        .labels
        .iter()
        .filter(|label| label.name == "name");
    match (names.next(), names.next()) {
        (Some(only), None) => &only.value,
        _ => "",
    }
}
