//! Logs that stay small.

use std::{fs, os::unix::fs::FileExt};

use serde_json::Value;

use crate::harness::{House, LOG, Recorder, assert_same, eventually};

const FRAGMENTS: &str = "replication: 1
fragment:
  length: 1048576
  compression_codec: NONE
  stores: [file:///]
  refresh_interval: 1s
";
const LIVE: usize = 4 << 20;

/// Rewrites a file as often, and waits until the log has it.
fn rewrite(recorder: &Recorder, times: u8) {
    let open = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(recorder.file("file"));
    let file = open.expect("open");
    for time in 0..times {
        for (at, page) in (0..LIVE).step_by(1 << 16).enumerate() {
            let byte = time.wrapping_mul(31) ^ u8::try_from(at % 251).expect("it is small");
            let offset = u64::try_from(page).expect("it is small");
            file.write_all_at(&vec![byte | 1; 1 << 16], offset)
                .expect("write");
        }
    }
    file.sync_all().expect("sync");
}

fn status(house: &House) -> Value {
    serde_json::from_str(&house.gazfs_ok("status", &["dir", "--json"])).expect("JSON")
}

#[test]
fn a_log_is_compacted_pruned_and_kept_as_asked() {
    let Some(house) = House::new() else { return };
    fs::write(house.path("spec.yaml"), FRAGMENTS).expect("write");
    let recorder = house.record("dir", &["--spec", "spec.yaml", "--clean-rate", "0"]);
    recorder.write("small", "a file that never changes");
    rewrite(&recorder, 2);
    let then = status(&house)["acked_offset"].to_string();
    let kept = house.recover("kept-before", &["--at", &then]);
    let root = house.path("up/broker/fragments");
    let root = root.to_str().expect("UTF-8");
    let prune = |more: &[&str]| {
        let mut arguments = vec!["--log", LOG, "--store-root", root];
        arguments.extend(more);
        house.gazfs_ok("prune", &arguments)
    };
    prune(&["--keep", &then]);
    rewrite(&recorder, 14);

    let dry: Value = serde_json::from_str(
        &house.gazfs_ok("compact", &["dir", "--log", LOG, "--dry-run", "--json"]),
    )
    .expect("JSON");
    let span = dry["span_bytes_before"].as_u64().expect("a number");
    assert!(span > 12 * LIVE as u64, "{dry}");
    let done: Value =
        serde_json::from_str(&house.gazfs_ok("compact", &["dir", "--log", LOG, "--json"]))
            .expect("JSON");
    let span = done["span_bytes"].as_u64().expect("a number");
    assert!(span < 3 * LIVE as u64, "{done}");

    let told = prune(&["--dry-run"]);
    assert!(
        told.contains("would go: ") && told.contains(&format!("keep/{then}")),
        "{told}"
    );
    // Fragments are stored when they are full, a little later.
    eventually("something is freed", || {
        let told = prune(&[]);
        eprintln!("{told}");
        !told.contains(&format!("{LOG}: 0 fragments"))
    });
    let copy = house.recover("copy", &[]);
    assert_same(&recorder.point, &copy);
    let again = house.recover("kept-after", &["--at", &then]);
    assert_same(&kept, &again);
    let released = prune(&["--release", &format!("keep/{then}")]);
    // Of it there stays only the note that it ended, as long as that of the pin is there too.
    let of_pin = released.replace("the end of keep/", "");
    assert!(!of_pin.contains("keep/"), "{released}");

    let history = house.gazfs_ok("log", &["--log", LOG]);
    assert!(!history.contains("restated"), "{history}");
    let status = status(&house);
    let live = status["live_bytes"].as_u64().expect("a number");
    assert!(
        (LIVE as u64..LIVE as u64 + 10_000).contains(&live),
        "{status}"
    );
    assert!(status["recovery_seconds"].is_number(), "{status}");
    assert_eq!(recorder.end().0, Some(0));
}

#[test]
fn a_daemon_cleans_and_prunes_by_itself_and_so_does_the_next_one() {
    let Some(house) = House::new() else { return };
    fs::write(house.path("spec.yaml"), FRAGMENTS).expect("write");
    let root = house.path("up/broker/fragments");
    let root = root.to_str().expect("UTF-8");
    let more = ["--spec", "spec.yaml", "--prune", "--store-root", root];
    let folder = house.path("up/broker/fragments").join(LOG);
    let stored = || -> u64 {
        let files = fs::read_dir(&folder).expect("list");
        let sizes = files.filter_map(|entry| entry.ok()?.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    };
    for _ in 0..2 {
        let recorder = house.record("dir", &more);
        recorder.write("small", "a file that hardly changes");
        rewrite(&recorder, 16);
        // Twice the live size and 16 MiB are let be.
        eventually("the log is cleaned", || {
            let needed = status(&house)["log_bytes_needed"]
                .as_u64()
                .expect("a number");
            needed < 2 * LIVE as u64 + (17 << 20)
        });
        // Both daemons recorded more than 32 times the live size.
        eventually("the store is pruned", || stored() < 20 * LIVE as u64);
        let copy = house.recover("copy", &[]);
        assert_same(&recorder.point, &copy);
        fs::remove_dir_all(copy).expect("remove");
        assert_eq!(recorder.end().0, Some(0));
    }
}
