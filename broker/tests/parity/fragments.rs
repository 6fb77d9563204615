//! Stored fragments in both directions.

use std::{collections::BTreeMap, fs, path::Path};

use gazette_client::Client;
use gazette_codecs::fragment_reader;
use gazette_protocol::{AppendRequest, CompressionCodec, Fragment, JournalSpec, Status};

use crate::house::{self, House};

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

/// Appends to a journal whose content is only in its store. That must be said to be known.
async fn append_after(client: &Client, journal: &str, end: usize, content: &'static str) {
    let refused = house::try_append(client, journal, content)
        .await
        .unwrap_err();
    assert_eq!(
        refused.status(),
        Some(Status::IndexHasGreaterOffset),
        "{refused}"
    );
    let request = AppendRequest {
        journal: journal.to_owned(),
        offset: i64::try_from(end).unwrap(),
        ..AppendRequest::default()
    };
    let response = client
        .append(request, bytes::Bytes::from_static(content.as_bytes()))
        .await;
    let commit = response.unwrap().commit.unwrap();
    assert_eq!(usize::try_from(commit.begin).unwrap(), end, "{journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_that_the_reference_stored_are_read_whole_and_from_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("fragments/store");
    copy_tree(&house::golden("fragments/store"), &store);
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let golden = house::golden_json("fragments/fragments.json");
    let mut seen = 0;
    for (journal, recorded) in golden["journals"].as_object().unwrap() {
        let fragments = recorded["fragments"].as_array().unwrap();
        if fragments
            .iter()
            .any(|f| f["file"].as_str().unwrap().starts_with("store_file_only"))
        {
            continue;
        }
        seen += 1;
        let mut spec = house::spec(journal);
        spec.fragment.stores = vec!["file:///store/".to_owned()];
        house::create(&client, spec).await;
        let mut expected = Vec::new();
        for append in recorded["appends"].as_array().unwrap() {
            expected.extend(house::golden_content(&append["content"]));
        }
        assert_eq!(house::read(&client, journal).await, expected, "{journal}");
        let middle = expected.len() / 2;
        let from_middle = house::try_read(&client, journal, middle.try_into().unwrap()).await;
        assert_eq!(from_middle.unwrap(), &expected[middle..], "{journal}");
        // It goes on where the stored content ends.
        append_after(&client, journal, expected.len(), "more").await;
        expected.extend_from_slice(b"more");
        assert_eq!(house::read(&client, journal).await, expected, "{journal}");
    }
    assert!(seen >= 8, "{seen} journals");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_that_we_store_are_named_by_what_they_hold_and_decode() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let codecs = [
        CompressionCodec::None,
        CompressionCodec::Gzip,
        CompressionCodec::Zstandard,
        CompressionCodec::Snappy,
    ];
    for codec in codecs {
        let journal = format!("ours/{}", codec.as_str_name().to_ascii_lowercase());
        let mut spec: JournalSpec = house::spec(&journal);
        spec.fragment.compression_codec = codec.into();
        spec.fragment.length = 1 << 16;
        spec.fragment.path_postfix_template = "codec={{ .Spool.CompressionCodec }}".to_owned();
        house::create(&client, spec).await;
        let mut expected = Vec::new();
        for (at, tag) in ["a", "b", "c"].into_iter().enumerate() {
            let content = match at {
                1 => house::golden_rand(3_000_000, 7),
                _ => house::golden_text(50_000, tag),
            };
            house::append(&client, &journal, content.clone()).await;
            expected.extend(content);
        }
        house::close_fragment(&client, &journal).await;
        house::stored(&client, &journal).await;
        let mut pieces = BTreeMap::new();
        let folder = folder.path().join("fragments").join(&journal);
        for path in files(&folder) {
            let relative = path.strip_prefix(&folder).unwrap().to_str().unwrap();
            assert!(
                relative.starts_with(&format!("codec={}/", codec.as_str_name())),
                "{relative}"
            );
            let fragment = Fragment::parse_relative(&journal, relative).unwrap();
            assert_eq!(fragment.compression_codec(), codec);
            let mut content = Vec::new();
            let mut reader = fragment_reader(&fragment, fs::File::open(&path).unwrap()).unwrap();
            std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
            assert_eq!(
                house::sha1_hex(&content),
                fragment.sum.to_hex(),
                "{relative}"
            );
            pieces.insert(fragment.begin, content);
        }
        let whole: Vec<u8> = pieces.into_values().flatten().collect();
        assert!(
            whole == expected,
            "{journal}: {} of {}",
            whole.len(),
            expected.len()
        );
        assert!(
            house::read(&client, &journal).await == expected,
            "{journal}"
        );
    }
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_for_stores_that_decompress_are_read_and_written_in_their_form() {
    let folder = tempfile::tempdir().unwrap();
    let (root, data) = (folder.path().join("root"), folder.path().join("data"));
    copy_tree(&house::golden("fragments/store_file_only"), &root);
    let house = House::start_with(&data, |options| {
        options.file_root = Some(root.clone());
        options.file_only = true;
    });
    let house = house.await.unwrap();
    let client = house.client();
    let golden = house::golden_json("fragments/fragments.json");
    let mut seen = 0;
    for (journal, recorded) in golden["journals"].as_object().unwrap() {
        let fragments = recorded["fragments"].as_array().unwrap();
        let is_file_only =
            |f: &serde_json::Value| f["file"].as_str().unwrap().starts_with("store_file_only");
        if !fragments.iter().all(is_file_only) {
            continue;
        }
        seen += 1;
        let mut spec = house::spec(journal);
        spec.fragment.stores = vec!["s3://bucket/prefix/".to_owned()];
        spec.fragment.compression_codec = CompressionCodec::GzipOffloadDecompression.into();
        house::create(&client, spec).await;
        let mut expected = Vec::new();
        for append in recorded["appends"].as_array().unwrap() {
            expected.extend(house::golden_content(&append["content"]));
        }
        assert!(house::read(&client, journal).await == expected, "{journal}");
        let known = files(&root);
        append_after(&client, journal, expected.len(), "more content").await;
        let end = expected.len() + "more content".len();
        house::close_fragment(&client, journal).await;
        house::stored(&client, journal).await;
        let stored: Vec<_> = files(&root)
            .into_iter()
            .filter(|path| !known.contains(path))
            .collect();
        assert_eq!(stored.len(), 1, "{stored:?}");
        let name = stored[0].file_name().unwrap().to_str().unwrap();
        assert!(
            name.contains(&format!("-{end:016x}-")) && !name.contains('.'),
            "{name}"
        );
        let bytes = fs::read(&stored[0]).unwrap();
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
        expected.extend_from_slice(b"more content");
        assert!(house::read(&client, journal).await == expected, "{journal}");
    }
    assert!(seen >= 1);
    house.stop().await;
}
