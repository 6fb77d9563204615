//! Bytes of a journal that were read ahead.
//!
//! Pure: pieces go in at the end, in order, and copies of spans come out.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A contiguous span of a journal that is in memory.
#[derive(Debug)]
pub struct Window {
    begin: i64,
    end: i64,
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
enum Piece {
    Content(Bytes),
    /// So many bytes that are not stored any more. They read as zeros.
    Hole(i64),
}

impl Piece {
    fn length(&self) -> i64 {
        match self {
            Self::Content(bytes) => bytes.len().try_into().unwrap_or(i64::MAX),
            Self::Hole(length) => *length,
        }
    }
}

impl Window {
    /// Creates an empty window that starts at an offset.
    pub fn new(begin: i64) -> Self {
        Self {
            begin,
            end: begin,
            pieces: VecDeque::new(),
        }
    }

    /// Returns the offset of the first byte.
    pub fn begin(&self) -> i64 {
        self.begin
    }

    /// Returns the offset after the last byte.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Adds the content that follows.
    pub fn push(&mut self, content: Bytes) {
        if !content.is_empty() {
            let piece = Piece::Content(content);
            self.end += piece.length();
            self.pieces.push_back(piece);
        }
    }

    /// Adds a hole that ends at `end`.
    pub fn push_hole(&mut self, end: i64) {
        if end > self.end {
            self.pieces.push_back(Piece::Hole(end - self.end));
            self.end = end;
        }
    }

    /// Drops pieces that lie before an offset.
    pub fn discard_before(&mut self, offset: i64) {
        while let Some(piece) = self.pieces.front() {
            let end = self.begin + piece.length();
            if end > offset {
                return;
            }
            self.begin = end;
            self.pieces.pop_front();
        }
    }

    /// Returns the bytes of `[begin, end)` if all of them are here. No byte is copied if one piece
    /// holds them all.
    pub fn copy(&self, begin: i64, end: i64) -> Option<Bytes> {
        if begin < self.begin || end > self.end || begin > end {
            return None;
        }
        let mut copied = BytesMut::new();
        let mut at = self.begin;
        for piece in &self.pieces {
            let (from, to) = (at, at + piece.length());
            at = to;
            if to <= begin {
                continue;
            }
            if from >= end {
                break;
            }
            let (from, to) = (begin.max(from) - from, end.min(to) - from);
            let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
            match piece {
                Piece::Content(bytes) => {
                    let is_all = i64::try_from(to - from).ok()? == end - begin;
                    if is_all {
                        return Some(bytes.slice(from..to));
                    }
                    if copied.is_empty() {
                        copied.reserve(usize::try_from(end - begin).ok()?);
                    }
                    copied.extend_from_slice(&bytes[from..to]);
                }
                Piece::Hole(_) => copied.resize(copied.len() + (to - from), 0),
            }
        }
        Some(copied.freeze())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_of_one_piece_is_not_copied() {
        let mut window = Window::new(100);
        let content = Bytes::from_static(b"0123456789");
        window.push(content.clone());
        let span = window.copy(102, 105).expect("it is here");
        assert_eq!(span, "234");
        assert_eq!(span.as_ptr(), content[2..].as_ptr());
    }

    #[test]
    fn a_hole_reads_as_zeros() {
        let mut window = Window::new(5);
        window.push_hole(8);
        window.push(Bytes::from_static(b"ab"));
        assert_eq!(window.copy(6, 10).as_deref(), Some(b"\0\0ab".as_slice()));
        assert_eq!(window.copy(6, 11), None);
        assert_eq!(window.copy(4, 6), None);
    }

    proptest! {
        #[test]
        fn it_gives_what_was_put_in(
            pieces in proptest::collection::vec((any::<bool>(), 1usize..9), 1..12),
            dropped in 0i64..60,
            (from, length) in (0usize..60, 0usize..30),
        ) {
            let (mut window, mut model) = (Window::new(0), Vec::new());
            for (is_hole, length) in pieces {
                if is_hole {
                    model.resize(model.len() + length, 0);
                    window.push_hole(i64::try_from(model.len()).unwrap());
                } else {
                    let piece: Vec<u8> = (0..length).map(|n| u8::try_from(model.len() + n).unwrap()).collect();
                    model.extend_from_slice(&piece);
                    window.push(piece.into());
                }
            }
            window.discard_before(dropped);
            prop_assert!(window.begin() <= dropped);
            let to = from + length;
            let copied = window.copy(from.try_into().unwrap(), to.try_into().unwrap());
            if i64::try_from(from).unwrap() >= window.begin() && to <= model.len() {
                prop_assert_eq!(copied.as_deref(), Some(&model[from..to]));
            } else {
                prop_assert_eq!(copied, None);
            }
        }
    }
}
