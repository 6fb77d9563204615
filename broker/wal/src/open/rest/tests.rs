use bytes::Bytes;
use proptest::{collection::vec, prelude::*};

use super::{decode, header};

fn encode(extents: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (offset, content) in extents {
        bytes.extend_from_slice(&header(*offset, content));
        bytes.extend_from_slice(content);
    }
    bytes
}

proptest! {
    #[test]
    fn whole_extents_are_read_whatever_follows_them(
        extents in vec((any::<u64>(), vec(any::<u8>(), 0..40)), 0..6),
        cut in 0_usize..60,
    ) {
        let bytes = encode(&extents);
        let kept = bytes.len() - cut.min(bytes.len());
        let read = decode(Bytes::copy_from_slice(&bytes[..kept]));
        let mut whole = extents;
        while encode(&whole).len() > kept {
            whole.pop();
        }
        let read: Vec<_> = read.into_iter().map(|(at, content)| (at, content.to_vec())).collect();
        prop_assert_eq!(read, whole);
    }

    #[test]
    fn any_bytes_are_extents_or_none(bytes in vec(any::<u8>(), 0..100)) {
        let read = decode(Bytes::from(bytes.clone()));
        let read: Vec<_> = read.into_iter().map(|(at, content)| (at, content.to_vec())).collect();
        prop_assert!(bytes.starts_with(&encode(&read)));
    }

    #[test]
    fn a_wrong_bit_ends_the_extents(
        extents in vec((any::<u64>(), vec(any::<u8>(), 1..40)), 1..4),
        at in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&extents);
        let at = at.index(bytes.len());
        bytes[at] ^= 1;
        let read = decode(Bytes::from(bytes));
        prop_assert!(read.len() < extents.len());
    }
}
