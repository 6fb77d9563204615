use std::collections::BTreeMap;

use gazette_recoverylog_fsm::{Body, Inode, Kind, LinkName, Mode, RecordedOp, Tree};

use super::*;

fn create(tree: &mut Tree, fnode: i64, parent: i64, name: &str, kind: Kind) {
    let at = LinkName {
        parent: Fnode(parent),
        path: name.to_owned().into(),
    };
    let inode = Some(Inode {
        kind,
        mode: 0o700,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Inode::default()
    });
    let op = RecordedOp::new(fnode, 0, 1, Body::Create { at, inode });
    tree.apply(&op).unwrap();
}

fn finish(image: Image, tree: &Tree) -> Built {
    let options = BuildOptions {
        restore_owner: true,
        sync: true,
    };
    image.finish(tree, &BTreeMap::new(), options).unwrap()
}

#[test]
fn more_files_than_descriptors_are_written_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::begin(&folder.path().join("to"), "a/log").unwrap();
    let mut tree = Tree::new(Mode::Native);
    let count = 3 * i64::try_from(OPEN_FILES_MAX).unwrap();
    for fnode in 1..=count {
        create(&mut tree, fnode, 0, &format!("f{fnode}"), Kind::Regular);
    }
    for round in 0..3u64 {
        for fnode in 1..=count {
            let text = format!("{fnode:06}");
            image
                .write(Fnode(fnode), round * 6, text.as_bytes())
                .unwrap();
        }
    }
    // Some are removed, and one of them comes back empty.
    image.forget(Fnode(7)).unwrap();
    image.forget(Fnode(7)).unwrap();
    let built = finish(image, &tree);
    assert_eq!(built.files, count.cast_unsigned());
    for fnode in 1..=count {
        let content = fs::read_to_string(built.path.join(format!("f{fnode}"))).unwrap();
        let expected = if fnode == 7 {
            String::new()
        } else {
            format!("{fnode:06}").repeat(3)
        };
        assert_eq!(content, expected);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_tree_may_be_deeper_than_any_path_is_long() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::begin(&folder.path().join("to"), "a/log").unwrap();
    let mut tree = Tree::new(Mode::Native);
    let name = "d".repeat(200);
    for depth in 1..=60 {
        create(&mut tree, depth, depth - 1, &name, Kind::Directory);
    }
    create(&mut tree, 61, 60, "file", Kind::Regular);
    image.write(Fnode(61), 0, b"deep").unwrap();
    let built = finish(image, &tree);
    assert_eq!(built.files, 61);
    let mut here = rustix::fs::open(
        &built.path,
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..60 {
        let flags = rustix::fs::OFlags::PATH;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let file = rustix::fs::statat(&here, "file", rustix::fs::AtFlags::empty()).unwrap();
    assert_eq!(file.st_size, 4);
    // Unfinished work of that depth can be removed too.
    fs::rename(&built.path, folder.path().join(".to.recovered")).unwrap();
    fs::create_dir(folder.path().join(".to.recovering")).unwrap();
    drop(Image::begin(&folder.path().join("to"), "a/log").unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_write_that_fails_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::begin(&folder.path().join("to"), "a/log").unwrap();
    let error = image
        .write(Fnode(3), u64::MAX, b"x")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/03/3") && error.contains("next: "),
        "{error}"
    );
}
