//! Taking over a tree that is there.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::harness::{House, LOG, assert_same};

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).expect("make");
    fs::write(root.join("a/file"), "content").expect("write");
    fs::hard_link(root.join("a/file"), root.join("a/b/link")).expect("link");
    symlink("../file", root.join("a/b/symbolic")).expect("link");
    let sparse = fs::File::create(root.join("sparse")).expect("create");
    sparse.set_len(64 << 20).expect("grow");
    sparse
        .write_all_at(b"in the middle", 32 << 20)
        .expect("write");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::open(root.join("a/file")).expect("open");
    file.set_modified(old).expect("set the time");
    fs::File::open(root.join("a"))
        .and_then(|dir| dir.set_modified(old))
        .expect("set the time");
    let _may_be_refused = rustix::fs::setxattr(
        root.join("sparse"),
        "user.key",
        b"value",
        rustix::fs::XattrFlags::empty(),
    );
}

#[test]
fn a_tree_is_taken_over_with_all_that_it_is() {
    let Some(house) = House::new() else { return };
    let from = house.path("from");
    make_tree(&from);
    let recorder = house.record("dir", &["--seed", "from"]);
    assert_same(&from, &recorder.point);
    let copy = house.recover("copy", &[]);
    assert_same(&from, &copy);
    for name in ["a", "a/file"] {
        let (was, is) = (from.join(name), copy.join(name));
        let time = |path: &Path| {
            fs::metadata(path)
                .expect("look")
                .modified()
                .expect("a time")
        };
        assert_eq!(time(&was), time(&is), "{name}");
    }
    let blocks = fs::metadata(copy.join("sparse")).expect("look").blocks();
    assert!(blocks < 2048, "{blocks} blocks are taken");
    // The same command again finds that it is done.
    recorder.write("a/file", "changed");
    assert_eq!(recorder.end().0, Some(0));
    let recorder = house.record("dir", &["--seed", "from"]);
    assert_eq!(recorder.read("a/file"), "changed");
}

#[test]
fn a_seed_that_was_cut_short_is_done_again() {
    let Some(house) = House::new() else { return };
    let from = house.path("from");
    make_tree(&from);
    for nth in 0..2000 {
        fs::write(from.join(format!("many-{nth}")), vec![b'x'; 5000]).expect("write");
    }
    fs::create_dir(house.path("dir")).expect("make");
    let arguments = ["dir", "--log", LOG, "--work", "dir.work", "--seed", "from"];
    let mut child = house
        .command("record", &arguments)
        .spawn()
        .expect("run gazfs");
    let tree = house.path("dir.work/tree");
    crate::harness::eventually("it has begun", || {
        fs::read_dir(&tree).is_ok_and(|entries| entries.count() > 100)
    });
    child.kill().expect("kill");
    child.wait().expect("wait");
    // Half of a tree is nothing that anybody may take for it.
    let refused = house.gazfs("recover", &["--log", LOG, "--to", "half"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = crate::harness::errors(&refused);
    assert!(text.contains("--seed"), "{text}");
    let refused = house.try_record("dir", "dir.work", &[]);
    assert!(refused.is_err(), "it takes half a tree for one");

    let recorder = house.record("dir", &["--seed", "from"]);
    assert_same(&from, &recorder.point);
    assert_same(&from, &house.recover("copy", &[]));
}

#[test]
fn a_tree_around_its_own_copy_is_refused() {
    let Some(house) = House::new() else { return };
    fs::create_dir_all(house.path("from/dir")).expect("make");
    for (point, work) in [("from/dir", "work"), ("dir", "from/work")] {
        let _there = fs::create_dir(house.path("dir"));
        let arguments = [point, "--log", LOG, "--work", work, "--seed", "from"];
        let refused = house.gazfs("record", &arguments);
        assert_eq!(refused.status.code(), Some(1));
        let text = crate::harness::errors(&refused);
        assert!(text.contains("overlaps"), "{text}");
    }
}
