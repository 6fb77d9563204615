//! What one record changes.

use std::sync::Arc;

use gazette_protocol::Fragment;
use prost::Message;

use super::{Image, Record, Recovery, SpoolWrites, corruption, decode, share};
use crate::{
    error::{Corruption, CorruptionCause},
    format::{
        Kind,
        payload::{
            CommitMessage, DropSpoolMessage, ForgetMessage, JournalPart, SpoolPart, StateMessage,
            from_nanos, split_inline,
        },
    },
    ledger::{Committed, Placement, SpoolState},
};

/// Applies a record of a generation.
pub(super) fn apply(
    generation: u64,
    image: &Image,
    record: &Record,
    recovery: &mut Recovery,
) -> Result<(), Corruption> {
    match record.header.kind {
        Kind::Trim | Kind::Mark => Ok(()),
        Kind::CommitInline | Kind::CommitInSpool => commit(generation, image, record, recovery),
        Kind::Roll | Kind::Spool => state(generation, image, record, recovery),
        Kind::DropSpool => {
            let message: DropSpoolMessage = decode(image, record)?;
            saw(recovery, message.journal_id.max(message.spool_id));
            recovery
                .ledger
                .drop_spool(message.journal_id, message.spool_id);
            Ok(())
        }
        Kind::Forget => {
            let message: ForgetMessage = decode(image, record)?;
            saw(recovery, message.journal_id);
            recovery.ledger.forget(message.journal_id);
            Ok(())
        }
        Kind::Journal => {
            let message: JournalPart = decode(image, record)?;
            set_journal(generation, message, recovery);
            Ok(())
        }
    }
}

/// The journal of the last record that names one, to say whose record may be the damaged one
/// after it. Only a guess where several journals are written, so it is given only where all
/// records that name one name the same.
pub(super) fn last_journal(image: &Image, records: &[Record]) -> Option<String> {
    let mut found: Option<String> = None;
    for record in records {
        let journal = match record.header.kind {
            Kind::CommitInline => {
                let (message, _) = split_inline(&record.payload)?;
                CommitMessage::decode(message).ok()?.journal
            }
            Kind::CommitInSpool => decode::<CommitMessage>(image, record).ok()?.journal,
            Kind::Roll | Kind::Spool => decode::<StateMessage>(image, record).ok()?.journal,
            Kind::Journal => decode(image, record).ok()?,
            Kind::Trim | Kind::DropSpool | Kind::Forget | Kind::Mark => continue,
        };
        match &found {
            Some(name) if *name != journal.name => return None,
            _ => found = Some(journal.name),
        }
    }
    found
}

fn commit(
    generation: u64,
    image: &Image,
    record: &Record,
    recovery: &mut Recovery,
) -> Result<(), Corruption> {
    let malformed = |what| corruption(image, record.offset, CorruptionCause::Malformed(what));
    let (message, content) = if record.header.kind == Kind::CommitInline {
        let (message, content) = split_inline(&record.payload)
            .ok_or_else(|| malformed("its message is longer than it"))?;
        let message =
            CommitMessage::decode(message).map_err(|_| malformed("its payload does not decode"))?;
        (message, Some(content))
    } else {
        (decode(image, record)?, None)
    };
    let CommitMessage {
        journal,
        spool,
        append_begin,
    } = message;
    let SpoolPart {
        id: spool_id,
        fragment,
        first_append_nanos,
        ..
    } = spool;
    let name = journal.name.clone();
    let malformed = |what| Corruption {
        journal: Some(name.clone()),
        ..malformed(what)
    };
    saw(recovery, journal.id.max(spool_id));

    let Fragment { begin, end, .. } = fragment;
    if begin < 0 || append_begin < begin || end < append_begin {
        return Err(malformed("its offsets are not in order"));
    }
    if content
        .as_ref()
        .is_some_and(|content| content.len() as u64 != end.abs_diff(append_begin))
    {
        return Err(malformed("its content has not the length that it says"));
    }
    if let Some(known) = recovery.ledger.spool_mut(journal.id, spool_id)
        && (known.fragment.begin != begin || known.fragment.end < append_begin)
    {
        return Err(malformed("it leaves a gap in its spool"));
    }
    let (identity, _, registers) = journal.into_state();
    let committed = Committed {
        journal: share(&recovery.ledger, identity),
        spool_id,
        fragment,
        registers,
        first_append: first_append_nanos.map(from_nanos),
        placement: match &content {
            Some(content) if content.is_empty() => Placement::Nowhere,
            Some(_) => Placement::Inline,
            None => Placement::InSpool,
        },
    };
    let Some(spool) = recovery
        .ledger
        .commit(generation, committed, SpoolWrites::default)
    else {
        return Ok(());
    };
    match content {
        Some(content) if content.is_empty() => {}
        Some(content) => spool.writes.push((append_begin.abs_diff(begin), content)),
        // The whole spool was synced before this was recorded, and what is older may have been
        // taken back since.
        None => spool.writes.clear(),
    }
    Ok(())
}

fn set_journal(generation: u64, journal: JournalPart, recovery: &mut Recovery) {
    saw(recovery, journal.id);
    let (identity, end, registers) = journal.into_state();
    let identity = share(&recovery.ledger, identity);
    recovery
        .ledger
        .set_journal(generation, identity, end, registers);
}

/// A state of a journal and, maybe, of one of its spools.
fn state(
    generation: u64,
    image: &Image,
    record: &Record,
    recovery: &mut Recovery,
) -> Result<(), Corruption> {
    let StateMessage { journal, spool } = decode(image, record)?;
    let (journal_id, name) = (journal.id, journal.name.clone());
    let registers = Arc::new(journal.registers.clone());
    set_journal(generation, journal, recovery);
    let Some(spool) = spool else { return Ok(()) };

    let SpoolPart {
        id,
        fragment,
        first_append_nanos,
        complete,
        registers: own,
    } = spool;
    saw(recovery, id);
    if fragment.begin < 0 || fragment.end <= fragment.begin {
        let cause = CorruptionCause::Malformed("its offsets are not in order");
        return Err(Corruption {
            journal: Some(name),
            ..corruption(image, record.offset, cause)
        });
    }
    let state = SpoolState {
        fragment,
        registers: own.map_or(registers, Arc::new),
        first_append: first_append_nanos.map(from_nanos),
        complete,
    };
    recovery
        .ledger
        .set_spool(generation, journal_id, id, state, SpoolWrites::default);
    Ok(())
}

fn saw(recovery: &mut Recovery, id: u64) {
    recovery.next_id = recovery.next_id.max(id.saturating_add(1));
}
