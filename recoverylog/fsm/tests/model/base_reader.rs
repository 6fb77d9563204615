//! A reader that knows the base operations only, and shares no code with the crate but the CRC.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct BaseReader {
    next_seq_no: u64,
    next_checksum: u32,
    pub(super) links: BTreeMap<Vec<u8>, u64>,
    content: BTreeMap<u64, Vec<u8>>,
}

/// Fields of a message by their numbers: numbers as they are, bytes by reference.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, (u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = BTreeMap::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => (varint(&mut bytes), &[][..]),
            1 => (0, bytes.split_off(..8).unwrap()),
            2 => {
                let length = varint(&mut bytes) as usize;
                (0, bytes.split_off(..length).unwrap())
            }
            5 => {
                let value = bytes.split_off(..4).unwrap();
                (
                    u64::from(u32::from_le_bytes(value.try_into().unwrap())),
                    value,
                )
            }
            other => panic!("wire type {other}"),
        };
        found.insert(tag >> 3, value);
    }
    found
}

impl BaseReader {
    pub(super) fn new() -> Self {
        Self {
            next_seq_no: 1,
            ..Self::default()
        }
    }

    /// Applies the frame that `bytes` begin with, and returns what follows its content.
    pub(super) fn apply<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (header, rest) = bytes.split_at(8);
        assert_eq!(header[..4], [0x66, 0x33, 0x93, 0x36]);
        let length = u32::from_le_bytes(header[4..].try_into().unwrap()) as usize;
        let (payload, mut rest) = rest.split_at(length);
        let op = fields(payload);
        let number = |key: u64| op.get(&key).map_or(0, |value| value.0);
        assert_eq!(number(1), self.next_seq_no);
        assert_eq!(number(2), u64::from(self.next_checksum));
        assert_ne!(number(3), 0);
        let member = |key: u64| op.get(&key).map(|value| fields(value.1));
        let bytes_of = |inner: &BTreeMap<u64, (u64, &[u8])>, key: u64| {
            inner
                .get(&key)
                .map(|value| value.1.to_vec())
                .unwrap_or_default()
        };
        if let Some(create) = member(4) {
            let before = self.links.insert(bytes_of(&create, 1), self.next_seq_no);
            assert_eq!(before, None, "a path that was free");
            self.content.insert(self.next_seq_no, Vec::new());
        } else if let Some(link) = member(5) {
            assert!(self.content.contains_key(&link[&1].0));
            let before = self.links.insert(bytes_of(&link, 2), link[&1].0);
            assert_eq!(before, None, "a path that was free");
        } else if let Some(unlink) = member(6) {
            let fnode = unlink[&1].0;
            assert_eq!(self.links.remove(&bytes_of(&unlink, 2)), Some(fnode));
            if !self.links.values().any(|other| *other == fnode) {
                self.content.remove(&fnode);
            }
        } else if let Some(write) = member(7) {
            let number = |key: u64| write.get(&key).map_or(0, |value| value.0) as usize;
            let (offset, length) = (number(2), number(3));
            let data = rest.split_off(..length).unwrap();
            let content = self.content.get_mut(&write[&1].0).expect("a live file");
            if length > 0 && content.len() < offset + length {
                content.resize(offset + length, 0);
            }
            if length > 0 {
                content[offset..offset + length].copy_from_slice(data);
            }
        }
        self.next_seq_no += 1;
        self.next_checksum = crc32c::crc32c_append(self.next_checksum, payload);
        rest
    }

    /// Files by path, without those that stand for directories or have no name.
    pub(super) fn files(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let seen = self
            .links
            .iter()
            .filter(|(path, _)| !path.ends_with(b"/.gzdir") && !path.starts_with(b"/.gztmp."));
        seen.map(|(path, fnode)| (path.clone(), self.content[fnode].clone()))
            .collect()
    }
}
