use super::*;
use crate::op::RecordedOp;
use crate::{Body, Inode};

fn at(parent: i64, path: &'static str) -> LinkName {
    LinkName {
        parent: Fnode(parent),
        path: path.into(),
    }
}

fn create(seq_no: i64, at: LinkName, kind: Kind) -> RecordedOp {
    let inode = Some(Inode {
        kind,
        ..Inode::default()
    });
    RecordedOp::new(seq_no, 0, 1, Body::Create { at, inode })
}

fn link(fnode: i64, at: LinkName) -> RecordedOp {
    RecordedOp::new(
        100,
        0,
        1,
        Body::Link {
            fnode: Fnode(fnode),
            at,
        },
    )
}

fn unlink(fnode: i64, at: LinkName) -> RecordedOp {
    RecordedOp::new(
        100,
        0,
        1,
        Body::Unlink {
            fnode: Fnode(fnode),
            at,
        },
    )
}

fn tree(mode: Mode, ops: &[RecordedOp]) -> Tree {
    let mut tree = Tree::new(mode);
    for op in ops {
        tree.apply(op).unwrap();
    }
    tree
}

fn names(tree: &Tree, parent: i64) -> Vec<(&[u8], i64)> {
    tree.children(Fnode(parent))
        .map(|(name, fnode)| (&name[..], fnode.0))
        .collect()
}

#[test]
fn paths_of_the_reference_make_directories_that_nobody_recorded() {
    let regular = |seq_no, path| create(seq_no, at(0, path), Kind::Regular);
    let mut tree = tree(Mode::Compat, &[regular(1, "/a/b/c"), regular(2, "/a/d")]);
    assert_eq!(names(&tree, 0), [(&b"a"[..], -1)]);
    assert_eq!(names(&tree, -1), [(&b"b"[..], -2), (b"d", 2)]);
    assert_eq!(tree.path(Fnode(1)).unwrap(), "/a/b/c");
    assert_eq!(tree.path(Fnode(-2)).unwrap(), "/a/b");
    assert_eq!(
        tree.implicit_directories().collect::<Vec<_>>(),
        [Fnode(-1), Fnode(-2)]
    );
    assert_eq!(tree.lookup(Fnode(-2), b"c"), Some(Fnode(1)));
    tree.apply(&unlink(1, at(0, "/a/b/c"))).unwrap();
    assert_eq!(
        names(&tree, -1),
        [(&b"d"[..], 2)],
        "an empty directory goes with its last file"
    );
    tree.apply(&unlink(2, at(0, "/a/d"))).unwrap();
    assert_eq!(names(&tree, 0), []);
}

#[test]
fn a_recorded_directory_is_its_file() {
    let ops = [
        create(1, at(0, "/.gzdir"), Kind::Directory),
        create(2, at(0, "/a/.gzdir"), Kind::Directory),
        create(3, at(0, "/a/b"), Kind::Regular),
    ];
    let tree = tree(Mode::Compat, &ops);
    assert_eq!(tree.root_fnode(), Some(Fnode(1)));
    assert_eq!(
        names(&tree, 0),
        [(&b"a"[..], 2)],
        "the root directory's file is hidden"
    );
    assert_eq!(names(&tree, 2), [(&b"b"[..], 3)]);
    assert_eq!(
        tree.links(Fnode(2)).collect::<Vec<_>>(),
        [(Fnode::ROOT, &"a".into())]
    );
    assert_eq!(tree.implicit_directories().count(), 0);
    assert!(tree.attributes(Fnode::ROOT).is_some());
}

#[test]
fn a_file_where_a_directory_must_be_is_an_orphan_until_it_goes() {
    let regular = |seq_no, path| create(seq_no, at(0, path), Kind::Regular);
    let mut tree = tree(
        Mode::Compat,
        &[regular(1, "/a"), regular(2, "/a/b"), regular(3, "//a")],
    );
    let orphans: Vec<i64> = tree.orphans().iter().map(|orphan| orphan.fnode.0).collect();
    assert_eq!(orphans, [3, 2]);
    tree.apply(&unlink(3, at(0, "//a"))).unwrap();
    tree.apply(&unlink(1, at(0, "/a"))).unwrap();
    assert_eq!(tree.orphans(), []);
    assert_eq!(tree.path(Fnode(2)).unwrap(), "/a/b");
}

#[test]
fn links_below_an_unknown_directory_count_and_have_no_place() {
    let ops = [
        create(1, at(0, "/"), Kind::Directory),
        create(9, at(5, "x"), Kind::Regular),
        link(9, at(0, "y")),
    ];
    let mut tree = tree(Mode::Native, &ops);
    assert_eq!(
        tree.orphans(),
        [Orphan {
            fnode: Fnode(9),
            at: at(5, "x")
        }]
    );
    assert_eq!(tree.path(Fnode(9)).unwrap(), "/y");
    tree.apply(&unlink(9, at(5, "x"))).unwrap();
    assert_eq!(tree.orphans(), []);
    tree.apply(&unlink(9, at(0, "y"))).unwrap();
    assert_eq!(tree.kind(Fnode(9)), None, "the last name is gone");
}

#[test]
fn what_a_removed_directory_held_is_an_orphan() {
    let ops = [
        create(1, at(0, "/"), Kind::Directory),
        create(2, at(0, "d"), Kind::Directory),
        create(3, at(2, "f"), Kind::Regular),
        unlink(2, at(0, "d")),
    ];
    let tree = tree(Mode::Native, &ops);
    assert_eq!(
        tree.orphans(),
        [Orphan {
            fnode: Fnode(3),
            at: at(2, "f")
        }]
    );
    assert_eq!(tree.path(Fnode(3)), None);
}

#[test]
fn directories_in_themselves_end_nothing() {
    let ops = [
        create(1, at(0, "/"), Kind::Directory),
        create(2, at(0, "d"), Kind::Directory),
        link(2, at(2, "d")),
        unlink(2, at(0, "d")),
    ];
    let tree = tree(Mode::Native, &ops);
    assert_eq!(tree.path(Fnode(2)), None);
    assert!(!tree.is_within(Fnode(2), Fnode(77)));
    assert_eq!(
        tree.orphans(),
        [Orphan {
            fnode: Fnode(2),
            at: at(2, "d")
        }]
    );
}

#[test]
fn a_directory_of_two_names_is_reported() {
    let ops = [
        create(1, at(0, "/"), Kind::Directory),
        create(2, at(0, "d"), Kind::Directory),
        link(2, at(0, "e")),
    ];
    assert_eq!(
        tree(Mode::Native, &ops).orphans(),
        [Orphan {
            fnode: Fnode(2),
            at: at(0, "e")
        }]
    );
}

#[test]
fn ops_that_fit_no_tree_are_errors() {
    let mut native = tree(Mode::Native, &[create(1, at(0, "/"), Kind::Directory)]);
    let bad_name = native.apply(&create(2, at(0, ".."), Kind::Regular));
    assert!(matches!(
        bad_name,
        Err(TreeError::Name {
            error: NameError::Escapes,
            ..
        })
    ));
    assert_eq!(native.fnodes().count(), 1, "nothing is left of it");
    assert_eq!(
        native.apply(&link(5, at(0, "x"))),
        Err(TreeError::Unknown(Fnode(5)))
    );
    let write = |fnode, offset| {
        let write = crate::Write {
            fnode: Fnode(fnode),
            offset,
            length: 1,
            ..Default::default()
        };
        RecordedOp::new(9, 0, 1, Body::Write(write))
    };
    assert_eq!(
        native.apply(&write(1, 0)),
        Err(TreeError::NotRegular(Fnode(1)))
    );
    native.apply(&create(3, at(0, "f"), Kind::Regular)).unwrap();
    assert_eq!(native.apply(&write(3, -1)), Err(TreeError::Range(Fnode(3))));
    let mut compat = Tree::new(Mode::Compat);
    let misnamed = compat.apply(&create(1, at(0, "/d"), Kind::Directory));
    assert_eq!(misnamed, Err(TreeError::Directory(Fnode(1))));
    let no_root = Tree::new(Mode::Native).apply(&create(1, at(0, "/"), Kind::Regular));
    assert_eq!(no_root, Err(TreeError::Directory(Fnode(1))));
}
