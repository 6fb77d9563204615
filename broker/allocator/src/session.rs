//! A member's lease, and the key by which it announces itself.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_coordination::{
    Compare, Coordination, CoordinationError, ErrorKind, LeaseId, Op, OpResponse, RangeRequest, Txn,
};
use tokio::{sync::watch, time};

/// A session ended, or its member key could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The lease was not kept alive in time, or was revoked by someone else: the keys of this
    /// process are gone, and others act on that.
    #[error("keep lease {lease} alive: it was lost; next: restart this process")]
    LeaseLost {
        /// The lease.
        lease: LeaseId,
    },
    /// Someone else wrote or deleted the member key.
    #[error("update member key {}: it was changed by someone else; next: restart this process", key.escape_ascii())]
    MemberChanged {
        /// The key.
        key: Bytes,
    },
    /// The store refused.
    #[error("announce this process: {0}")]
    Coordination(#[from] CoordinationError),
}

/// A lease, to which the keys of this process are attached.
#[derive(Clone, Debug)]
pub struct Session {
    coordination: Arc<dyn Coordination>,
    lease: LeaseId,
    closing: watch::Sender<bool>,
}

impl Session {
    /// Obtains a lease. [`KeepAlive::run`] must run from now on.
    ///
    /// An embedded store lives and dies with this process, so its lease need not tell others
    /// that the process is dead: use [`EMBEDDED_TTL`], which no stall can exceed.
    pub async fn open(
        coordination: Arc<dyn Coordination>,
        ttl: Duration,
    ) -> Result<(Self, KeepAlive), SessionError> {
        let granted = time::Instant::now();
        let lease = coordination.grant_lease(ttl).await?;
        let (closing, closed) = watch::channel(false);
        let keep_alive = KeepAlive {
            coordination: Arc::clone(&coordination),
            lease,
            ttl,
            granted,
            closed,
        };
        Ok((
            Self {
                coordination,
                lease,
                closing,
            },
            keep_alive,
        ))
    }

    /// The lease.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Creates the member key. If another process holds it, waits, looking every `retry`, until
    /// the lease of that one has ended. The future may be dropped at any time; a key that was
    /// created ends with the session.
    pub async fn announce(
        &self,
        key: Bytes,
        value: Bytes,
        retry: Duration,
    ) -> Result<Announcement, SessionError> {
        let txn = Txn {
            compares: vec![Compare::absent(key.clone())],
            success: vec![Op::put_with_lease(key.clone(), value, self.lease)],
            failure: vec![Op::Range(RangeRequest::key(key.clone()))],
        };
        loop {
            match self.coordination.txn(txn.clone()).await {
                Ok(response) if response.succeeded => {
                    return Ok(self.announced(key, response.header.revision));
                }
                Ok(response) => {
                    // Ours if an earlier try of unknown outcome did create it.
                    match found(&response.responses) {
                        Some(kv) if kv.lease == self.lease => {
                            return Ok(self.announced(key, kv.mod_revision));
                        }
                        Some(_) => tracing::warn!(
                            key = %key.escape_ascii(),
                            "member key is held by another process; waiting for its lease to end"
                        ),
                        None => {}
                    }
                }
                Err(err) if err.kind() == ErrorKind::Retry => {
                    tracing::warn!(%err, "announce member");
                }
                Err(err) => return Err(self.error(err)),
            }
            time::sleep(retry).await;
        }
    }

    /// Ends the lease, which deletes the keys of this process at once, and with that hands over
    /// what is still assigned to it. [`KeepAlive::run`] then ends without an error.
    pub async fn close(&self) -> Result<(), SessionError> {
        self.closing.send_replace(true);
        match self.coordination.revoke_lease(self.lease).await {
            // It is gone already, which is what is wanted.
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(SessionError::from),
        }
    }

    fn announced(&self, key: Bytes, revision: i64) -> Announcement {
        Announcement {
            session: self.clone(),
            key,
            revision,
        }
    }

    fn error(&self, err: CoordinationError) -> SessionError {
        if matches!(err, CoordinationError::LeaseNotFound { .. }) {
            return SessionError::LeaseLost { lease: self.lease };
        }
        err.into()
    }
}

/// The member key of this process.
#[derive(Debug)]
pub struct Announcement {
    session: Session,
    key: Bytes,
    revision: i64,
}

impl Announcement {
    /// Revision at which the key was written last, by us. A key space that is loaded at it, or
    /// later, holds this member.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The key.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// Replaces the value, for example by a spec that is exiting. Fails if anyone else changed
    /// the key. Tries again, every `retry`, while the store cannot be reached.
    pub async fn update(&mut self, value: Bytes, retry: Duration) -> Result<i64, SessionError> {
        let key = self.key.clone();
        let txn = Txn {
            compares: vec![Compare::mod_revision(key.clone(), self.revision)],
            success: vec![Op::put_keeping_lease(key.clone(), value.clone())],
            failure: vec![Op::Range(RangeRequest::key(key.clone()))],
        };
        loop {
            match self.session.coordination.txn(txn.clone()).await {
                Ok(response) if response.succeeded => self.revision = response.header.revision,
                Ok(response) => match found(&response.responses) {
                    // An earlier try of unknown outcome did write it.
                    Some(kv) if kv.lease == self.session.lease && kv.value == value => {
                        self.revision = kv.mod_revision;
                    }
                    _ => return Err(SessionError::MemberChanged { key }),
                },
                Err(err) if err.kind() == ErrorKind::Retry => {
                    tracing::warn!(%err, "update member");
                    time::sleep(retry).await;
                    continue;
                }
                Err(err) => return Err(self.session.error(err)),
            }
            return Ok(self.revision);
        }
    }
}

/// Keeps the lease of a session alive.
#[derive(Debug)]
#[must_use = "the lease ends unless this runs"]
pub struct KeepAlive {
    coordination: Arc<dyn Coordination>,
    lease: LeaseId,
    ttl: Duration,
    granted: time::Instant,
    closed: watch::Receiver<bool>,
}

impl KeepAlive {
    /// Runs until the session is closed, or the lease is lost. The latter is noticed by this
    /// process's own clock, too, in case that the store cannot be reached.
    pub async fn run(self) -> Result<(), SessionError> {
        let mut closed = self.closed.clone();
        tokio::select! {
            biased;
            // An error says that the session was dropped: nobody wants its lease any more.
            _ = closed.wait_for(|closed| *closed) => Ok(()),
            err = self.keep_alive() => Err(err),
        }
    }

    async fn keep_alive(&self) -> SessionError {
        let lost = SessionError::LeaseLost { lease: self.lease };
        let interval = self.ttl / 3;
        let mut deadline = self.granted + self.ttl;
        let mut pause = interval;
        loop {
            time::sleep(pause).await;
            let asked = time::Instant::now();
            match time::timeout_at(deadline, self.coordination.keep_alive(self.lease)).await {
                Ok(Ok(_)) => {
                    deadline = asked + self.ttl;
                    pause = interval;
                }
                Ok(Err(err)) if err.kind() == ErrorKind::NotFound => return lost,
                Ok(Err(err)) if err.kind() == ErrorKind::Closed => return err.into(),
                Ok(Err(err)) => {
                    tracing::warn!(%err, lease = %self.lease, "keep lease alive");
                    pause = (interval / 10).max(Duration::from_millis(1));
                }
                Err(_) => return lost,
            }
            if time::Instant::now() >= deadline {
                return lost;
            }
        }
    }
}

fn found(responses: &[OpResponse]) -> Option<&gazette_coordination::KeyValue> {
    match responses {
        [OpResponse::Range(range)] => range.kvs.first(),
        _ => None,
    }
}

/// Time to live of a lease of an embedded store.
pub const EMBEDDED_TTL: Duration = Duration::from_hours(30 * 24);
