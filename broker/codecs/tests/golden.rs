//! Objects that the reference wrote decode to the content that was appended.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "golden data is right, and small"
)]

use std::io::Read;
use std::path::{Path, PathBuf};

use gazette_codecs::{CompressionCodec, decoder, fragment_reader};
use gazette_protocol::{Fragment, Sha1Sum};
use serde_json::Value;

#[test]
fn objects_of_the_reference_decode_to_what_was_appended() {
    let golden = golden();
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(golden.join("fragments.json")).unwrap()).unwrap();

    let mut files = Vec::new();
    for (journal, facts) in recorded["journals"].as_object().unwrap() {
        let content: Vec<u8> = list(&facts["appends"]).iter().flat_map(appended).collect();
        for facts in list(&facts["fragments"]) {
            let file = text(&facts["file"]);
            let object = std::fs::read(golden.join(file)).unwrap();
            let fragment = fragment(facts);
            let range = fragment.begin as usize..fragment.end as usize;
            let expected = &content[range];

            let mut plain = Vec::new();
            decoder(fragment.compression_codec(), object.as_slice())
                .unwrap()
                .read_to_end(&mut plain)
                .unwrap();
            assert!(plain == expected, "content of {file} in {journal}");

            let mut checked = Vec::new();
            fragment_reader(&fragment, object.as_slice())
                .unwrap()
                .read_to_end(&mut checked)
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(checked == expected, "checked content of {file}");
            files.push(file.to_owned());
        }
    }
    files.sort();
    assert_eq!(files, files_below(&golden), "every recorded file is tested");
}

#[test]
fn a_damaged_object_of_the_reference_is_found_out() {
    let golden = golden();
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(golden.join("fragments.json")).unwrap()).unwrap();
    for (_, facts) in recorded["journals"].as_object().unwrap() {
        // The longest: in a short one, the middle is a header, where a change may mean nothing.
        let facts = list(&facts["fragments"]).last().unwrap();
        let mut object = std::fs::read(golden.join(text(&facts["file"]))).unwrap();
        let middle = object.len() / 2;
        object[middle] ^= 0x10;

        let mut content = Vec::new();
        let result = fragment_reader(&fragment(facts), object.as_slice())
            .unwrap()
            .read_to_end(&mut content);
        assert!(result.is_err(), "{facts}");
    }
}

fn fragment(facts: &Value) -> Fragment {
    let number = |name: &str| facts[name].as_i64().unwrap();
    let part = |name: &str| facts["sum"][name].as_u64().unwrap();
    let codec = CompressionCodec::from_str_name(text(&facts["compression_codec"])).unwrap();
    Fragment {
        begin: number("begin"),
        end: number("end"),
        sum: Sha1Sum {
            part1: part("part1"),
            part2: part("part2"),
            part3: u32::try_from(part("part3")).unwrap(),
        },
        compression_codec: codec.into(),
        ..Fragment::default()
    }
}

/// Makes the content of an append, by the formulas that the golden file states.
fn appended(append: &Value) -> Vec<u8> {
    let content = &append["content"];
    let length = content["length"].as_u64().unwrap() as usize;
    match text(&content["kind"]) {
        "text" => {
            let tag = text(&content["tag"]);
            let line = |i| format!("{tag} {i:08} the quick brown fox jumps over the lazy dog\n");
            (0..)
                .flat_map(|i| line(i).into_bytes())
                .take(length)
                .collect()
        }
        "rand" => {
            let mut state = content["seed"].as_u64().unwrap();
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u8
            };
            (0..length).map(|_| next()).collect()
        }
        kind => panic!("unknown kind of content {kind}"),
    }
}

fn files_below(golden: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut pending = vec![golden.join("store"), golden.join("store_file_only")];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let relative = path.strip_prefix(golden).unwrap();
                files.push(relative.to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/broker/fragments")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
