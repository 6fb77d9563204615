//! Where a log is read from: brokers, or the store alone.

mod cover;
mod error;
mod read;
mod stored;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_client::{AppendCause, AppendError, Client, ErrorKind};
use gazette_protocol::{
    AppendRequest, Fragment, FragmentsRequest, LabelSet, Status, StoredFragment,
};
use gazette_stores::{ActiveStore, Store, StoreConfig, Stores};

pub(crate) use cover::{Part, Supply, gaps};
pub use error::{FragmentName, SourceError};
pub(crate) use read::{LogReader, Piece};

/// Where a log and its hints are read from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Brokers: what is persisted straight from its store where this process can reach it, the rest from them.
    Broker(Client),
    /// A fragment store, without any broker. What was never persisted is not there.
    Store(Arc<ActiveStore>),
}

impl Source {
    /// Reads from the store with this URL. `file://` URLs are paths of this host.
    pub fn of_store(url: &str) -> Self {
        let config = StoreConfig {
            file_root: Some(PathBuf::from("/")),
            ..StoreConfig::default()
        };
        Self::Store(Stores::new(config).get(url))
    }

    /// Whether there are no brokers to ask.
    pub fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Finds out what there is of a journal, and where it ends.
    pub(crate) async fn survey(&self, journal: &str) -> Result<Survey, SourceError> {
        match self {
            Self::Broker(client) => survey_brokers(client, journal).await,
            Self::Store(store) => survey_store(store, journal).await,
        }
    }

    /// Returns the labels of a journal, which a store does not know.
    pub(crate) async fn labels(&self, journal: &str) -> Result<Option<LabelSet>, SourceError> {
        match self {
            Self::Broker(client) => {
                let listed = client.get_journal(journal).await?;
                let found = listed.ok_or_else(|| SourceError::NoJournal {
                    journal: journal.to_owned(),
                })?;
                Ok(Some(found.spec.labels))
            }
            Self::Store(_) => Ok(None),
        }
    }
}

/// What there is of a journal.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    /// Its fragments, by their begin. They may overlap.
    pub(crate) fragments: Vec<Stretch>,
    /// Where it ends.
    pub(crate) head: i64,
    /// Whether the head is what the primary says, and nothing that was acknowledged lies behind it.
    pub(crate) is_head_exact: bool,
}

/// A stretch of a journal that can be read.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    pub(crate) fragment: Fragment,
    pub(crate) at: At,
}

/// Where a stretch is read.
#[derive(Debug, Clone)]
pub(crate) enum At {
    /// At the brokers.
    Broker,
    /// At a URL, or at the brokers if it cannot be reached.
    Url(String),
    /// In the store, under this path.
    Store(String),
}

async fn survey_store(store: &Arc<ActiveStore>, journal: &str) -> Result<Survey, SourceError> {
    let listed = store.list(&format!("{journal}/")).await?;
    let mut fragments = Vec::with_capacity(listed.len());
    for object in listed {
        // Journals below this one, and what others put there, are not fragments of it.
        let Ok(found) = StoredFragment::parse(journal, &object.path) else {
            continue;
        };
        let path = found.path();
        let fragment = Fragment {
            backing_store: store.url().to_owned(),
            mod_time: object.mod_time,
            ..found.fragment
        };
        fragments.push(Stretch {
            fragment,
            at: At::Store(path),
        });
    }
    if fragments.is_empty() {
        return Err(SourceError::NothingStored {
            journal: journal.to_owned(),
            store: store.url().to_owned(),
        });
    }
    fragments.sort_by_key(|stretch| (stretch.fragment.begin, stretch.fragment.end));
    let head = fragments.iter().map(|stretch| stretch.fragment.end).max();
    Ok(Survey {
        fragments,
        head: head.unwrap_or(0),
        is_head_exact: false,
    })
}

async fn survey_brokers(client: &Client, journal: &str) -> Result<Survey, SourceError> {
    // Of a journal that does not exist, appends would be tried for a while.
    if client.get_journal(journal).await?.is_none() {
        return Err(SourceError::NoJournal {
            journal: journal.to_owned(),
        });
    }
    let (head, is_head_exact) = head(client, journal).await?;
    let request = FragmentsRequest {
        journal: journal.to_owned(),
        signature_ttl: Some(SIGNATURE_TTL.try_into().unwrap_or_default()),
        ..FragmentsRequest::default()
    };
    let listed = match client.list_all_fragments(request.clone()).await {
        Ok(listed) => listed,
        // A store that cannot sign is read through the brokers.
        Err(error) => {
            tracing::debug!(err = %error, "fragments are listed without signed URLs");
            let unsigned = FragmentsRequest {
                signature_ttl: None,
                ..request
            };
            client.list_all_fragments(unsigned).await?
        }
    };
    let mut fragments: Vec<_> = listed
        .into_iter()
        .map(|listed| Stretch {
            at: if listed.signed_url.is_empty() {
                At::Broker
            } else {
                At::Url(listed.signed_url)
            },
            fragment: listed.spec,
        })
        .collect();
    fragments.sort_by_key(|stretch| (stretch.fragment.begin, stretch.fragment.end));
    // What was appended after the newest listed fragment was made is at the brokers.
    let listed_end = fragments.iter().map(|stretch| stretch.fragment.end).max();
    let listed_end = listed_end.unwrap_or(0);
    if head > listed_end {
        fragments.push(Stretch {
            fragment: Fragment {
                journal: journal.to_owned(),
                begin: listed_end,
                end: head,
                ..Fragment::default()
            },
            at: At::Broker,
        });
    }
    Ok(Survey {
        fragments,
        head,
        is_head_exact,
    })
}

/// Asks where a journal ends: the primary, with an empty append, as other replicas may be behind. Where
/// nothing can be appended any more, any broker.
async fn head(client: &Client, journal: &str) -> Result<(i64, bool), SourceError> {
    let barrier = AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    };
    let asked = tokio::time::timeout(HEAD_PATIENCE, client.append(barrier, Bytes::new())).await;
    match asked {
        Ok(Ok(response)) => Ok((response.commit.unwrap_or_default().end, true)),
        Ok(Err(error)) if error_status(&error) == Some(Status::JournalNotFound) => {
            Err(SourceError::NoJournal {
                journal: journal.to_owned(),
            })
        }
        Err(_elapsed) => {
            let head = client.read_head(journal).await?;
            tracing::warn!(
                head = head.write_head,
                "the primary does not answer; the head is what a replica says"
            );
            Ok((head.write_head, false))
        }
        Ok(Err(error)) => {
            let head = client.read_head(journal).await.map_err(|other| {
                // Of two errors, the one that says more.
                if other.kind() == ErrorKind::Retry {
                    SourceError::Append(error.clone())
                } else {
                    other.into()
                }
            })?;
            tracing::warn!(err = %error, head = head.write_head, "the head is what a replica says");
            Ok((head.write_head, false))
        }
    }
}

fn error_status(error: &AppendError) -> Option<Status> {
    match error.cause() {
        AppendCause::Status { status, .. } => Some(*status),
        AppendCause::GaveUp { last, .. } => error_status(last),
        AppendCause::Rpc(_)
        | AppendCause::Request(_)
        | AppendCause::Answer(_)
        | AppendCause::Protocol(_)
        | AppendCause::Content(_)
        | AppendCause::Timeout(_)
        | AppendCause::Closed => None,
    }
}

/// A little longer than clients usually try themselves.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);

/// Longer than the recovery of any log should take.
const SIGNATURE_TTL: Duration = Duration::from_hours(12);
