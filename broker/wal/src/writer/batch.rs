//! What one round writes: records in their places, without a copy of large contents.

use std::{
    io::{self, IoSlice},
    ops::Range,
};

use bytes::Bytes;

use crate::{
    disk::DiskFile,
    format::{SegmentHeader, payload::Frame, record_bytes},
};

/// Contents of this length and more are written from where they are.
const COPY_MAX_BYTES: usize = 8 << 10;

/// Writes end where a page does, padded with zeros, so that the system need not read a page of the
/// segment first. Zeros are not a record.
const PAGE_BYTES: usize = 4096;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// What one round writes.
#[derive(Debug)]
pub(crate) struct Batch {
    segment_bytes: usize,
    header: Option<SegmentHeader>,
    begin: usize,
    end: usize,
    durable_lsn: u64,
    records: usize,
    /// Headers, messages and small contents.
    copied: Vec<u8>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Copied(Range<usize>),
    Content(Bytes),
}

impl Batch {
    pub(super) fn new(segment_bytes: u64) -> Self {
        Self {
            segment_bytes: usize::try_from(segment_bytes).unwrap_or(usize::MAX),
            header: None,
            begin: 0,
            end: 0,
            durable_lsn: 0,
            records: 0,
            copied: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Starts over at an offset of a segment, whose header is still to be written if that is 0.
    pub(super) fn begin(&mut self, header: &SegmentHeader, position: usize, synced: bool) {
        self.copied.clear();
        self.pieces.clear();
        self.records = 0;
        self.begin = position;
        self.end = position;
        self.durable_lsn = if synced { header.lsn(position) } else { 0 };
        self.header = Some(*header);
        if position == 0 {
            let bytes = header.encode();
            self.copy(&bytes);
            self.end = bytes.len();
        }
    }

    /// Adds a record, which the caller knows to have room.
    pub(super) fn push(&mut self, frame: Frame) {
        let Some(header) = self.header else { return };
        let bytes = frame.record_bytes();
        let record = frame.header(header.generation, header.lsn(self.end), self.durable_lsn);
        self.copy(&record.encode(header.salt));
        let (message, contents) = frame.into_payload();
        self.copy(&message);
        for content in contents {
            if content.len() < COPY_MAX_BYTES {
                self.copy(&content);
            } else {
                self.pieces.push(Piece::Content(content));
            }
        }
        let payload = record.payload_length as usize;
        let padding = bytes - (crate::format::RECORD_HEADER_BYTES + payload);
        self.copy(&ZEROS[..padding]);
        debug_assert_eq!(
            bytes,
            record_bytes(payload),
            "a record has the length that it says"
        );
        self.end += bytes;
        self.records += 1;
    }

    fn copy(&mut self, bytes: &[u8]) {
        let from = self.copied.len();
        self.copied.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(Piece::Copied(range)) => range.end = self.copied.len(),
            _ => self.pieces.push(Piece::Copied(from..self.copied.len())),
        }
    }

    /// Whether there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Where the next record of the segment goes.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.begin
    }

    /// Bytes that the segment has left.
    pub(super) fn room(&self) -> usize {
        self.segment_bytes - self.end
    }

    /// Writes all of it.
    pub(super) fn write(&self, file: &dyn DiskFile) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(self.pieces.len() + 1);
        slices.extend(self.pieces.iter().map(|piece| match piece {
            Piece::Copied(range) => IoSlice::new(&self.copied[range.clone()]),
            Piece::Content(content) => IoSlice::new(content),
        }));
        let page_end = self
            .end
            .next_multiple_of(PAGE_BYTES)
            .min(self.segment_bytes);
        slices.push(IoSlice::new(&ZEROS[..page_end - self.end]));
        file.write_at(self.begin as u64, &slices)
    }
}
