//! Appends that can be recognised after a crash, and the judgement of what is left.
//!
//! An append is a header of fixed width, which names its writer, its number and the length of
//! its body, and a body that follows from those. So a reader of the journal can tell where each
//! append begins, whether it is whole, and whose it is.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// Bytes of `[writer sequence length]\n`.
const HEADER_BYTES: usize = 32;

/// The name of the register in which a writer leaves the number of its last append.
pub fn register(writer: u32) -> String {
    format!("writer-{writer:02}")
}

/// The content of append `sequence` of `writer` with a body of `length` bytes.
pub fn append(writer: u32, sequence: u64, length: usize) -> Vec<u8> {
    let mut text = String::with_capacity(HEADER_BYTES + length);
    write!(text, "[{writer:04} {sequence:010} {length:012}]\n\n").expect("a string takes all");
    debug_assert_eq!(text.len(), HEADER_BYTES, "the header has a fixed width");
    let mut content = text.into_bytes();
    // A xorshift of what identifies the append: neighbours differ, and a shifted body shows.
    let mut state = (u64::from(writer) << 40) ^ sequence ^ 0x9e37_79b9_7f4a_7c15;
    content.extend((0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'a' + u8::try_from(state % 26).expect("less than 26")
    }));
    content
}

/// An append that a broker acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Who wrote it.
    pub writer: u32,
    /// The number that its writer gave it.
    pub sequence: u64,
    /// Offset of its first byte.
    pub begin: i64,
    /// Offset behind its last byte.
    pub end: i64,
}

/// What is wrong with a journal after a crash. Nothing, when all is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Damage {
    /// Acknowledged appends that are not where they were acknowledged.
    pub lost: u64,
    /// Appends of which a part is there, or bytes that are of no append.
    pub torn: u64,
    /// Registers that are older than an acknowledged append, or newer than any append.
    pub registers_lost: u64,
    /// Appends that are there more often than they were sent.
    pub doubled: u64,
    /// Journals that are not served at all.
    pub unserved: u64,
}

impl Damage {
    /// Whether anything is wrong.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Adds another journal's damage.
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.torn += other.torn;
        self.registers_lost += other.registers_lost;
        self.doubled += other.doubled;
        self.unserved += other.unserved;
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lost,
            torn,
            registers_lost,
            doubled,
            unserved,
        } = self;
        write!(
            f,
            "{lost} lost, {torn} torn, {registers_lost} registers lost, {doubled} doubled, \
             {unserved} not served"
        )
    }
}

/// Judges the content and registers of one journal against what was acknowledged.
pub fn judge(
    content: &[u8],
    registers: &BTreeMap<String, String>,
    acknowledged: &[Acknowledged],
) -> Damage {
    let mut damage = Damage::default();
    // Offset of each append that is there, by writer and number.
    let mut there: BTreeMap<(u32, u64), (i64, i64)> = BTreeMap::new();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut at = 0;
    while at < content.len() {
        let Some((writer, sequence, length)) = header(&content[at..]) else {
            damage.torn += 1;
            break;
        };
        let end = at + HEADER_BYTES + length;
        if content.get(at..end) != Some(append(writer, sequence, length).as_slice()) {
            damage.torn += 1;
            break;
        }
        let span = (offset(at), offset(end));
        if there.insert((writer, sequence), span).is_some() {
            damage.doubled += 1;
        }
        last.insert(writer, sequence);
        at = end;
    }
    for append in acknowledged {
        if there.get(&(append.writer, append.sequence)) != Some(&(append.begin, append.end)) {
            damage.lost += 1;
        }
    }
    // Each append sets its writer's register, so a register is the last append that is there.
    for (writer, sequence) in &last {
        if registers.get(&register(*writer)) != Some(&sequence.to_string()) {
            damage.registers_lost += 1;
        }
    }
    damage
}

fn offset(at: usize) -> i64 {
    i64::try_from(at).expect("a test's journal is small")
}

fn header(content: &[u8]) -> Option<(u32, u64, usize)> {
    let text = std::str::from_utf8(content.get(..HEADER_BYTES)?).ok()?;
    let mut words = text.strip_prefix('[')?.strip_suffix("]\n\n")?.split(' ');
    let parsed = (
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    );
    words.next().is_none().then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(sent: &[(u32, u64, usize)]) -> (Vec<u8>, Vec<Acknowledged>) {
        let mut content = Vec::new();
        let mut acknowledged = Vec::new();
        for &(writer, sequence, length) in sent {
            let begin = offset(content.len());
            content.extend(append(writer, sequence, length));
            acknowledged.push(Acknowledged {
                writer,
                sequence,
                begin,
                end: offset(content.len()),
            });
        }
        (content, acknowledged)
    }

    fn registers(pairs: &[(u32, u64)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(writer, value)| (register(writer), value.to_string()))
            .collect()
    }

    #[test]
    fn a_whole_journal_has_no_damage() {
        let (content, acknowledged) = journal(&[(1, 1, 10), (2, 1, 0), (1, 2, 5000)]);
        let damage = judge(&content, &registers(&[(1, 2), (2, 1)]), &acknowledged);
        assert_eq!(damage, Damage::default());
    }

    #[test]
    fn each_kind_of_damage_is_seen() {
        let (content, acknowledged) = journal(&[(1, 1, 10), (2, 1, 20), (1, 2, 30)]);
        let right = registers(&[(1, 2), (2, 1)]);
        let cut = judge(&content[..content.len() - 1], &right, &acknowledged);
        assert_eq!((cut.lost, cut.torn), (1, 1));
        let (shorter, _) = journal(&[(1, 1, 10), (2, 1, 20)]);
        assert_eq!(
            judge(&shorter, &registers(&[(1, 1), (2, 1)]), &acknowledged).lost,
            1
        );
        let old = judge(&content, &registers(&[(1, 1), (2, 1)]), &acknowledged);
        assert_eq!(
            old,
            Damage {
                registers_lost: 1,
                ..Damage::default()
            }
        );
        let mut flipped = content;
        flipped[HEADER_BYTES + 3] ^= 1;
        assert_eq!(judge(&flipped, &right, &acknowledged).torn, 1);
        let (twice, _) = journal(&[(1, 1, 10), (1, 1, 10)]);
        assert_eq!(judge(&twice, &registers(&[(1, 1)]), &[]).doubled, 1);
    }
}
