//! Which bytes of a journal are still there.
//!
//! Pure: spans of fragments go in. What lies between them was pruned, and is a hole of the file;
//! what follows the last of them came later than the list, and is there.

/// Spans of a journal that are stored, in order and apart from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    spans: Vec<(i64, i64)>,
    /// The head was there or further when they were listed.
    listed_at: i64,
}

impl Coverage {
    /// Joins the spans `[begin, end)` of fragments, in any order. `listed_at` is a head that was
    /// known before they were listed: what came later than that is not taken for pruned.
    pub fn new(fragments: impl IntoIterator<Item = (i64, i64)>, listed_at: i64) -> Self {
        let mut sorted: Vec<(i64, i64)> = fragments.into_iter().filter(|(b, e)| b < e).collect();
        sorted.sort_unstable();
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for (begin, end) in sorted {
            match spans.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => spans.push((begin, end)),
            }
        }
        Self { spans, listed_at }
    }

    /// Returns the offset of the first byte that is there: the head if none is.
    pub fn first(&self, head: i64) -> i64 {
        self.spans
            .first()
            .map_or(self.listed_at, |(begin, _)| *begin)
            .min(head)
    }

    /// Returns how many bytes before the head are there.
    pub fn bytes(&self, head: i64) -> i64 {
        let bytes = |(begin, end): &(i64, i64)| (*end).min(head) - (*begin).min(head);
        self.with_tail(head).iter().map(bytes).sum()
    }

    /// Returns the first offset from `offset` on that holds data, or `None` at the end.
    pub fn next_data(&self, offset: i64, head: i64) -> Option<i64> {
        let spans = self.with_tail(head);
        let next = spans
            .iter()
            .find(|(_, end)| *end > offset)
            .map(|(begin, _)| offset.max(*begin));
        next.filter(|next| *next < head)
    }

    /// Returns the first offset from `offset` on that is in a hole; the end counts as one.
    pub fn next_hole(&self, offset: i64, head: i64) -> Option<i64> {
        if offset >= head {
            return None;
        }
        let spans = self.with_tail(head);
        let inside = spans
            .iter()
            .find(|(begin, end)| (*begin..*end).contains(&offset));
        Some(inside.map_or(offset, |(_, end)| *end).min(head))
    }

    /// The spans, with what was appended after they were listed. What follows the last of them is
    /// there: a list that lags must not make content look like a hole.
    fn with_tail(&self, head: i64) -> Vec<(i64, i64)> {
        let mut spans = self.spans.clone();
        match spans.last_mut() {
            Some(last) => last.1 = last.1.max(head),
            None if self.listed_at < head => spans.push((self.listed_at, head)),
            None => {}
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pruned_beginning_is_a_hole() {
        let coverage = Coverage::new([(100, 150), (150, 200)], 200);
        assert_eq!(coverage.first(230), 100);
        assert_eq!(coverage.bytes(230), 130);
        assert_eq!(coverage.next_data(0, 230), Some(100));
        assert_eq!(coverage.next_hole(0, 230), Some(0));
        assert_eq!(coverage.next_data(120, 230), Some(120));
        assert_eq!(coverage.next_hole(120, 230), Some(230));
        assert_eq!(coverage.next_data(230, 230), None);
        assert_eq!(coverage.next_hole(230, 230), None);
    }

    #[test]
    fn a_journal_without_fragments_is_all_hole() {
        let coverage = Coverage::new([], 50);
        assert_eq!(coverage.first(50), 50);
        assert_eq!(coverage.bytes(50), 0);
        assert_eq!(coverage.next_data(0, 50), None);
        assert_eq!(coverage.next_hole(0, 50), Some(0));
        // Then somebody appends.
        assert_eq!(coverage.next_data(0, 60), Some(50));
        assert_eq!(coverage.first(60), 50);
        assert_eq!(coverage.bytes(60), 10);
    }

    #[test]
    fn what_was_appended_after_the_list_of_an_empty_journal_is_there() {
        let coverage = Coverage::new([], 0);
        assert_eq!(coverage.first(100), 0);
        assert_eq!(coverage.bytes(100), 100);
        assert_eq!(coverage.next_data(0, 100), Some(0));
        assert_eq!(coverage.next_hole(0, 100), Some(100));
    }

    proptest! {
        #[test]
        fn it_says_what_a_set_of_bytes_says(
            spans in proptest::collection::vec((0i64..40, 0i64..10), 0..6),
            (listed_at, grown) in (0i64..20, 0i64..10),
            offset in 0i64..60,
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(begin, len)| (begin, begin + len)).collect();
            let last = spans.iter().filter(|(b, e)| b < e).map(|(_, end)| *end).max();
            // What is stored up to here is in the list; the rest came later.
            let stored = last.unwrap_or(listed_at);
            let coverage = Coverage::new(spans.clone(), listed_at);
            let head = stored + grown;
            let is_data = |at: i64| {
                at < head
                    && (spans.iter().any(|(begin, end)| (*begin..*end).contains(&at))
                        || at >= stored)
            };
            let count = (0..head).filter(|at| is_data(*at)).count();
            prop_assert_eq!(coverage.bytes(head), i64::try_from(count).unwrap());
            prop_assert_eq!(coverage.next_data(offset, head), (offset..head).find(|at| is_data(*at)));
            let hole = (offset < head)
                .then(|| (offset..head).find(|at| !is_data(*at)).unwrap_or(head));
            prop_assert_eq!(coverage.next_hole(offset, head), hole);
            prop_assert_eq!(coverage.first(head), (0..head).find(|at| is_data(*at)).unwrap_or(head));
        }
    }
}
