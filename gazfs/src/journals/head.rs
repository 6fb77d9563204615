//! What brokers say about a journal: its head, what is stored of it, and that it is still the same.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use gazette_client::ErrorKind;
use gazette_protocol::{FragmentsRequest, Header, JournalSpec, LabelSelector, LabelSet, Status};

use super::{coverage::Coverage, error::Cause, fs::JournalFs, inode::Inode, patience::Patience};

impl JournalFs {
    /// Asks where a journal ends. The answer is at least what was known before.
    pub(super) async fn ask_head(&self, inode: &Inode, patience: Patience) -> Result<i64, Cause> {
        inode.check()?;
        let asked = patience.wait(self.client().read_head(&inode.name)).await;
        let cause = match asked {
            Ok(Ok(head)) => {
                self.answered();
                self.verify(inode, &head.header, patience).await?;
                return Ok(inode.observe(head.write_head, SystemTime::now()));
            }
            // Nothing is stored of a journal that is fully suspended; its spec says where it ends.
            Ok(Err(error)) if error.status() == Some(Status::Suspended) => {
                self.answered();
                self.relist(inode, patience).await?;
                let head = inode.with_spec(suspend_offset);
                return Ok(inode.observe(head, SystemTime::now()));
            }
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                self.gone(inode);
                return Err(Cause::Stale);
            }
            Ok(Err(error)) => error.into(),
            Err(cause) => cause,
        };
        self.not_answered(&cause);
        Err(cause)
    }

    /// Asks where a journal ends, and falls back to what is known if nobody answers soon: looking
    /// at a file must not hang while brokers are away, and what was seen once stays true.
    pub(super) async fn ask_head_or_known(
        &self,
        inode: &Inode,
        patience: Patience,
    ) -> Result<i64, Cause> {
        let known = inode.head();
        let patience = match known {
            Some(_) => patience.at_most(self.known_timeout()),
            None => patience,
        };
        match (self.ask_head(inode, patience).await, known) {
            (Err(cause), Some(known)) if cause.is_away() => Ok(known),
            (Err(Cause::Denied { .. }), known) => Ok(known.unwrap_or(0)),
            (answer, _) => answer,
        }
    }

    /// Makes sure that an answer is about this journal, and not about another that was made later
    /// under its name: only the coordination store tells them apart.
    pub(super) async fn verify(
        &self,
        inode: &Inode,
        header: &Header,
        patience: Patience,
    ) -> Result<(), Cause> {
        if header.etcd.revision <= inode.verified() {
            return inode.check();
        }
        self.relist(inode, patience).await
    }

    /// Looks a journal up, to learn its present spec and that it is still the same.
    pub(super) async fn relist(&self, inode: &Inode, patience: Patience) -> Result<(), Cause> {
        let listing = patience
            .wait(self.client().list(named(&inode.name)))
            .await??;
        match listing.get(&inode.name) {
            Some(journal) if journal.create_revision == inode.create_revision => {
                inode.relist(journal);
                inode.set_verified(listing.header.etcd.revision);
                inode.check()
            }
            _ => {
                self.gone(inode);
                Err(Cause::Stale)
            }
        }
    }

    /// Asks what is stored of a journal, unless that was asked a moment ago.
    pub(super) async fn ask_coverage(
        &self,
        inode: &Inode,
        patience: Patience,
    ) -> Result<Arc<Coverage>, Cause> {
        let now = Instant::now();
        let oldest = now.checked_sub(COVERAGE_AGE_MAX).unwrap_or(now);
        if let Some(coverage) = inode.coverage(oldest) {
            return Ok(coverage);
        }
        // Known before the list is made.
        let listed_at = inode.head().unwrap_or(0);
        let request = FragmentsRequest {
            journal: inode.name.clone(),
            page_limit: FRAGMENTS_PER_PAGE,
            ..FragmentsRequest::default()
        };
        let asked = patience
            .wait(self.client().list_all_fragments(request))
            .await?;
        let fragments = match asked {
            Ok(fragments) => fragments,
            Err(error) if error.status() == Some(Status::Suspended) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let spans = fragments
            .iter()
            .map(|fragment| (fragment.spec.begin, fragment.spec.end));
        let coverage = Arc::new(Coverage::new(spans, listed_at));
        inode.set_coverage(Arc::clone(&coverage), now);
        Ok(coverage)
    }

    /// How long to wait for news about what is known already.
    fn known_timeout(&self) -> Duration {
        if self.is_away() {
            KNOWN_TIMEOUT_AWAY
        } else {
            KNOWN_TIMEOUT
        }
    }
}

/// Selects the journal of this name.
pub(super) fn named(name: &str) -> LabelSelector {
    LabelSelector {
        include: LabelSet::from_pairs([("name", name)]),
        exclude: LabelSet::default(),
    }
}

fn suspend_offset(spec: &JournalSpec) -> i64 {
    spec.suspend.as_ref().map_or(0, |suspend| suspend.offset)
}

/// How long a list of fragments is good for. Fragments go away by retention, which takes days.
const COVERAGE_AGE_MAX: Duration = Duration::from_secs(10);

/// The most that the protocol allows.
const FRAGMENTS_PER_PAGE: i32 = 10_000;

/// How long stat(2) waits for news of a file of which something is known.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The same, if brokers did not answer the last time.
const KNOWN_TIMEOUT_AWAY: Duration = Duration::from_millis(100);
