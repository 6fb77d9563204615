//! A standby: a complete copy of a recorded directory that is kept up to date, and that becomes the directory
//! itself when the log is taken over.
//!
//! It plays the log as a recovery does, so each record is verified, and goes on as the log grows. Content is in staged
//! files, names and attributes are in memory. The end of a standby costs a rename for each file, and reads
//! nothing but what the log had grown by meanwhile.
//!
//! When it takes the log over is decided by [`Watch`], or by whoever asks; whether it may is decided by the author
//! register alone ([`claim_from`]).

mod watch;

use std::{sync::Arc, time::Duration};

use gazette_client::{AppendError, Client};
use gazette_recoverylog_fsm::Author;
use tokio::time::timeout;

pub use watch::{Now, Watch};

pub use crate::player::{Copied, Followed};
use crate::{
    Claimed, claim_from,
    hints::PublishedHints,
    owner_of,
    player::{Follower, RecoverError, RecoverOptions, Recovered, follow},
};

/// A copy that follows its log.
#[derive(Debug)]
pub struct Standby {
    client: Client,
    log: String,
    follower: Follower,
}

/// Who is asked for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// An owner who has handed it over, or is to lose it whatever he does.
    Owner(Option<Author>),
    /// Whoever has it, if he has recorded nothing behind the end of the log as it was seen.
    Silent {
        /// Where that was.
        seen_end: i64,
    },
}

/// Why a standby did not become the owner.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// The claim could not be made, or it is not known whether it was. It may be tried again.
    #[error("take {log} over: {cause}")]
    Claim {
        /// The log.
        log: String,
        /// Why.
        cause: Box<AppendError>,
    },
    /// The log is ours, but the copy did not come to its end.
    #[error("take {log} over: {cause}; next: recover it, as it is ours")]
    Behind {
        /// The log.
        log: String,
        /// Why.
        cause: String,
    },
    /// The directory could not be made of the copy.
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

impl Standby {
    /// Recovers a log beside the target of `options`, and follows it from then on.
    pub async fn start(client: &Client, options: RecoverOptions) -> Result<Self, RecoverError> {
        Ok(Self {
            client: client.clone(),
            log: options.log.clone(),
            follower: follow(client, options).await?,
        })
    }

    /// Returns the copy, to be looked at.
    pub fn copied(&self) -> Arc<Copied> {
        self.follower.copied()
    }

    /// Follows how far it is.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Followed> {
        self.follower.watch()
    }

    /// Hints of all that was played and verified so far, with where that ends. `None` while it is within a change.
    pub fn hints(&self) -> Option<PublishedHints> {
        self.follower.hints()
    }

    /// Claims the log. Of any number of standbys that try at once, one gets it.
    pub async fn claim(&self, author: Author, from: From) -> Result<Claimed, StandbyError> {
        let fail = |cause| StandbyError::Claim {
            log: self.log.clone(),
            cause: Box::new(cause),
        };
        let Some((claim, offset)) = self.follower.claim(author) else {
            return Ok(Claimed::Moved);
        };
        let (seen, at) = match from {
            From::Owner(seen) => (seen, None),
            // The copy has more: a claim of somebody who was quicker, or what shows that the owner is alive.
            From::Silent { seen_end } if seen_end != offset => return Ok(Claimed::Moved),
            From::Silent { .. } => {
                let (owner, head) = owner_of(&self.client, &self.log).await.map_err(fail)?;
                if head != offset {
                    return Ok(Claimed::Moved);
                }
                (owner, Some(offset))
            }
        };
        claim_from(&self.client, &self.log, author, &claim, seen, at)
            .await
            .map_err(fail)
    }

    /// Waits until the copy is at the end of a log that is ours, and lets it become the directory.
    pub async fn finish(self, end: i64, within: Duration) -> Result<Recovered, StandbyError> {
        let mut followed = self.follower.watch();
        let reached =
            followed.wait_for(|followed| followed.offset >= end || followed.ended.is_some());
        let cause = match timeout(within, reached).await {
            Ok(Ok(followed)) => followed.ended.as_deref().map(ToOwned::to_owned),
            Ok(Err(_)) => Some("the copy has ended".to_owned()),
            Err(_) => Some(format!("not read within {:.1} s", within.as_secs_f32())),
        };
        match cause {
            None => Ok(self.follower.finish(end).await?),
            Some(cause) => {
                let log = self.log.clone();
                self.follower.stop().await;
                Err(StandbyError::Behind { log, cause })
            }
        }
    }

    /// Ends it, and leaves nothing behind.
    pub async fn stop(self) {
        self.follower.stop().await;
    }
}
