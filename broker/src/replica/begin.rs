//! How a replica begins: with what the log has of it.

use std::sync::Arc;

use gazette_journal::{
    append::fsm::Held,
    fragment::spool::{Completed, Rebuild, Spool, SpoolError},
};
use gazette_protocol::{CompressionCodec, Fragment, LabelSet};
use gazette_wal::{Corruption, RecoveredJournal, RecoveredSpool, SpoolFile};

use super::{Phase, Replica, Turn, TurnGuard};

/// Bytes that are read at a time to verify a spool.
const READ_BYTES: usize = 1 << 20;

/// Why a recovered spool cannot be used.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error("read spool {path}: {cause}")]
    Read { path: String, cause: std::io::Error },
    #[error("recover spool {path}: {cause}")]
    Spool { path: String, cause: SpoolError },
    #[error("recover spool {} at byte {}: {}", .0.path.display(), .0.offset, .0.cause)]
    Damaged(Corruption),
}

impl Replica {
    /// Verifies what the log has, and begins to serve.
    pub(super) async fn begin(
        self: &Arc<Self>,
        mut guard: TurnGuard,
        recovered: Option<RecoveredJournal>,
    ) {
        let began = match recovered {
            None => Ok((Spool::new(self.name.as_str()), self.log.create_spool(0))),
            Some(recovered) => self.begin_recovered(recovered).await,
        };
        match began {
            Ok((spool, file)) => {
                self.lines().add_file(spool.begin(), file.clone());
                *guard = Some(Turn {
                    held: Some(Held::new(spool)),
                    file,
                });
                self.phase.send_replace(Phase::Serving);
                self.index_version.send_modify(|version| *version += 1);
            }
            Err(error) => {
                let reason = format!(
                    "{error}; next: restore the file from a copy, or delete the journal if its \
                     content is not needed; other journals are not affected"
                );
                tracing::error!(journal = self.name, err = %error, "journal cannot be served");
                self.phase.send_replace(Phase::Failed(reason));
            }
        }
    }

    async fn begin_recovered(
        self: &Arc<Self>,
        recovered: RecoveredJournal,
    ) -> Result<(Spool, SpoolFile), BeginError> {
        self.lines().set_floor(recovered.end);
        let mut present = None;
        for spool in recovered.spools {
            let (is_complete, file) = (spool.complete, spool.file.clone());
            let rebuilt = self.verify(spool).await?;
            let fragment = rebuilt.fragment().clone();
            self.index().commit_local(fragment.clone(), file.clone());
            self.lines().add_file(fragment.begin, file.clone());
            if is_complete {
                let completed = Completed {
                    fragment,
                    registers: rebuilt.registers().clone(),
                    first_append_time: rebuilt.first_append_time(),
                };
                self.persist(completed, file);
            } else {
                present = Some((rebuilt, file));
            }
        }
        if let Some(present) = present {
            return Ok(present);
        }
        let codec = CompressionCodec::None;
        let empty = Fragment {
            journal: self.name.clone(),
            begin: recovered.end,
            end: recovered.end,
            compression_codec: codec.into(),
            ..Fragment::default()
        };
        let registers = LabelSet::clone(&recovered.registers);
        let spool = Rebuild::new(empty, registers, None)
            .finish()
            .expect("no content is the content of an empty fragment");
        Ok((spool, self.log.create_spool(recovered.end)))
    }

    /// Reads a spool whole and compares it with its commit record.
    async fn verify(&self, spool: RecoveredSpool) -> Result<Spool, BeginError> {
        let permit = self.context.verifying.acquire().await;
        let verified = tokio::task::spawn_blocking(move || rebuild(spool)).await;
        drop(permit);
        verified.expect("reading a spool does not panic")
    }
}

fn rebuild(spool: RecoveredSpool) -> Result<Spool, BeginError> {
    if let Some(damage) = spool.damage {
        return Err(BeginError::Damaged(damage));
    }
    let path = spool.file.path().display().to_string();
    let mut left = spool.fragment.content_length().unsigned_abs();
    let registers = LabelSet::clone(&spool.registers);
    let mut rebuild = Rebuild::new(spool.fragment, registers, spool.first_append);
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES))];
    let mut at = 0;
    while left > 0 {
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = spool.file.read_at(at, &mut buffer[..wanted]);
        let read = read.map_err(|cause| BeginError::Read {
            path: path.clone(),
            cause,
        })?;
        if read == 0 {
            break;
        }
        rebuild.feed(&buffer[..read]);
        at += read as u64;
        left -= read as u64;
    }
    rebuild
        .finish()
        .map_err(|cause| BeginError::Spool { path, cause })
}
