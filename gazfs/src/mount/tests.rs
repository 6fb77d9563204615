//! A mount comes about, whatever the kernel does with what it announced.

use std::{fs, sync::Arc};

use super::*;
use crate::{
    fuse::{Way, obstacle},
    recorded::memory::MemoryLog,
};

/// Mounts with rings for so much beside headers, uses it, and returns by which way that went.
fn way(transport: Transport, payload_bytes: usize) -> Option<io::Result<Chosen>> {
    if let Err(error) = check_device() {
        eprintln!("SKIPPED, NOT TESTED: {error}");
        return None;
    }
    let dir = tempfile::tempdir().expect("make a folder");
    let (point, tree) = (dir.path().join("mount"), dir.path().join("tree"));
    for folder in [&point, &tree] {
        fs::create_dir(folder).expect("make a folder");
    }
    let log = Arc::new(MemoryLog::default());
    let fs = RecordedFs::start(log, &tree).expect("start");
    let adapter = recorded::Adapter::new(fs).expect("start threads");
    let place = Place {
        point: &point,
        allowed: Allowed {
            access: Access::Owner,
            privileges: false,
        },
    };
    let session = match Session::start_with(adapter, transport, &place, payload_bytes) {
        Ok(session) => session,
        Err(error) => {
            let table = read().expect("read the table");
            assert_eq!(at(&table, &point), None, "nothing is left of it");
            return Some(Err(error));
        }
    };
    let chosen = session.chosen().clone();
    let mounted = serve(session, point.clone()).expect("start a thread");
    fs::write(point.join("file"), "content").expect("write a file");
    let found = fs::read(tree.join("file")).expect("read a file");
    assert_eq!(found, b"content");
    drop(mounted);
    Some(Ok(chosen))
}

/// Says whether the kernel has rings for FUSE, loudly if not.
fn has_rings() -> bool {
    let obstacle = obstacle();
    if let Some(why) = obstacle {
        eprintln!("SKIPPED, NOT TESTED: {why}");
    }
    obstacle.is_none()
}

const ENOUGH_BYTES: usize = 1 << 20;

#[test]
fn rings_are_used_where_there_are_some_and_else_it_is_told_why() {
    let Some(chosen) = way(Transport::Auto, ENOUGH_BYTES) else {
        return;
    };
    let chosen = chosen.expect("it is mounted");
    match obstacle() {
        None => assert_eq!(chosen.way, Way::IoUring, "{chosen}"),
        Some(why) => assert_eq!(chosen.to_string(), format!("classic ({why})")),
    }
}

#[test]
fn rings_that_the_kernel_announced_and_does_not_take_do_not_hang_the_mount() {
    if !has_rings() {
        return;
    }
    // It is less than what both sides agreed on.
    let Some(chosen) = way(Transport::Auto, 4096) else {
        return;
    };
    let chosen = chosen.expect("it is mounted");
    assert_eq!(chosen.way, Way::Classic);
    assert!(chosen.why.contains("does not take the rings"), "{chosen}");
    let refused = way(Transport::IoUring, 4096).expect("there is FUSE");
    let refused = refused
        .expect_err("it was asked for nothing else")
        .to_string();
    assert!(refused.contains("does not take the rings"), "{refused}");
}

#[test]
fn a_process_that_may_have_no_rings_mounts_without() {
    if !has_rings() {
        return;
    }
    // So much memory there is not.
    let Some(chosen) = way(Transport::Auto, usize::MAX >> 1) else {
        return;
    };
    let chosen = chosen.expect("it is mounted");
    assert_eq!(chosen.way, Way::Classic);
    assert!(chosen.why.contains("no rings"), "{chosen}");
}

#[test]
fn the_classic_way_can_be_asked_for() {
    let Some(chosen) = way(Transport::Classic, ENOUGH_BYTES) else {
        return;
    };
    let chosen = chosen.expect("it is mounted").to_string();
    assert_eq!(chosen, "classic (asked for)");
}
