use std::sync::Arc;

use gazette_recoverylog::fsm::OpExtent;
use tempfile::TempDir;

use super::*;

/// A tree of files, and the state of a log that says the same.
fn left() -> (TempDir, Fsm, Tree) {
    let temp = tempfile::tempdir().expect("make a folder");
    let root = temp.path();
    fs::create_dir_all(root.join("folder/inner")).expect("make");
    fs::write(root.join("folder/file"), "content").expect("write");
    fs::hard_link(root.join("folder/file"), root.join("link")).expect("link");
    std::os::unix::fs::symlink("link", root.join("symbolic")).expect("link");
    let mut fsm = Fsm::of_log("some/log").expect("a log");
    let mut tree = Tree::new(Mode::Native);
    let name = |parent, path: &'static str| LinkName {
        parent: Fnode(parent),
        path: Bytes::from_static(path.as_bytes()),
    };
    let create = |at: LinkName, path: &str| {
        let metadata = root.join(path).symlink_metadata().expect("look");
        let inode = Inode {
            kind: kind(&metadata),
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            ..Inode::default()
        };
        Body::Create {
            at,
            inode: Some(inode),
        }
    };
    let bodies = [
        create(root_name(), ""),
        create(name(0, "folder"), "folder"),
        create(name(2, "inner"), "folder/inner"),
        create(name(2, "file"), "folder/file"),
        Body::Link {
            fnode: Fnode(4),
            at: name(0, "link"),
        },
        create(name(0, "symbolic"), "symbolic"),
    ];
    let log: Arc<str> = "some/log".into();
    for body in bodies {
        let op = RecordedOp::new(fsm.next_seq_no(), fsm.next_checksum(), 7, body);
        let extent = OpExtent {
            log: &log,
            begin: op.seq_no * 10,
            end: op.seq_no * 10 + 10,
        };
        fsm.apply(&op, op.checksum + 1, extent).expect("it chains");
        tree.apply(&op).expect("it fits");
    }
    (temp, fsm, tree)
}

#[test]
fn what_was_left_is_kept_with_all_its_names() {
    let (temp, fsm, tree) = left();
    let bytes = image(&fsm, None, 70, temp.path()).expect("an image");
    let kept = keep(&bytes, 70, temp.path()).expect("it is as it was");
    assert_eq!(kept.fsm.links(), fsm.links());
    assert_eq!(kept.fsm.live_nodes(), fsm.live_nodes());
    for (parent, name) in [
        (0, "folder"),
        (2, "inner"),
        (2, "file"),
        (0, "link"),
        (0, "symbolic"),
        (0, "none"),
    ] {
        let look = |tree: &Tree| tree.lookup(Fnode(parent), name.as_bytes());
        assert_eq!(look(&kept.tree), look(&tree), "{name}");
    }
}

#[test]
fn nothing_is_kept_if_anything_changed() {
    type Spoil = fn(&Path);
    let spoils: [Spoil; 4] = [
        |root| fs::write(root.join("folder/file"), "CONTENT").expect("write"),
        |root| fs::remove_file(root.join("symbolic")).expect("remove"),
        |root| fs::rename(root.join("link"), root.join("other")).expect("rename"),
        |root| {
            let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o500);
            fs::set_permissions(root.join("folder/inner"), read_only).expect("change");
        },
    ];
    for (nth, spoil) in spoils.into_iter().enumerate() {
        let (temp, fsm, _) = left();
        let bytes = image(&fsm, None, 70, temp.path()).expect("an image");
        // The kernel's clock for files ticks some hundred times a second.
        std::thread::sleep(std::time::Duration::from_millis(20));
        spoil(temp.path());
        assert!(keep(&bytes, 70, temp.path()).is_err(), "change {nth}");
    }
}

#[test]
fn a_damaged_image_is_none() {
    let (temp, fsm, _) = left();
    let bytes = image(&fsm, None, 70, temp.path()).expect("an image");
    assert!(keep(&bytes, 71, temp.path()).is_err());
    for at in 0..bytes.len() {
        assert!(keep(&bytes[..at], 70, temp.path()).is_err());
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(keep(&damaged, 70, temp.path()).is_err(), "byte {at}");
    }
}
