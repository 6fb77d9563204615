use proptest::prelude::*;

use super::*;

#[test]
fn base64_decodes_with_its_padding() {
    for (text, decoded) in [
        ("", Some(&b""[..])),
        ("a2V5", Some(b"key")),
        ("Zm9vYg==", Some(b"foob")),
        ("Zm9vYmE=", Some(b"fooba")),
        ("+/+/", Some(b"\xfb\xff\xbf")),
        ("a2V", None),
        ("a2V5=", None),
        ("a===", None),
        ("a=2V", None),
        ("a2V5\n", None),
        ("a2-_", None),
    ] {
        let found = decode_base64(text.as_bytes()).ok();
        assert_eq!(found.as_deref(), decoded, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_key_is_decoded_or_refused(text in prop::collection::vec(any::<u8>(), 0..16)) {
        drop(decode_base64(&text));
    }
}
