use std::{fs, os::unix::fs::MetadataExt, path::Path};

use gazette_recoverylog_fsm::{Fnode, Kind};
use tempfile::TempDir;

use super::*;

/// A tree on the disk, and the names of it.
struct Fixture {
    backing: Backing,
    names: Names,
    dir: TempDir,
}

impl Fixture {
    fn new(cached_max: usize) -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let (backing, root) = Backing::open(dir.path()).expect("open it");
        let node = Arc::new(Node::new(Ino::ROOT, Kind::Directory, Some(Fnode::ROOT)));
        Self {
            backing,
            names: Names::new(node, root, cached_max),
            dir,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Has the kernel look up a name.
    fn look_up(&mut self, path: &str) -> Ino {
        let metadata = fs::symlink_metadata(self.path(path)).expect("look");
        let ino = self.backing.ino(metadata.ino());
        let above = Path::new(path).parent().expect("it has one");
        let parent = fs::metadata(self.dir.path().join(above))
            .expect("look")
            .ino();
        let parent = self.backing.ino(parent);
        let name = Path::new(path).file_name().expect("it has one");
        let node = Node::new(ino, Kind::Regular, Some(Fnode(1)));
        self.names.add(node, parent, name.as_encoded_bytes());
        ino
    }

    fn reaches(&mut self, ino: Ino) -> bool {
        let descriptor = self.names.descriptor(&self.backing, ino);
        descriptor.is_ok_and(|descriptor| {
            let found = fstat(&descriptor).expect("look").st_ino;
            let stat = self.names.stat(&self.backing, ino).expect("look").st_ino;
            (self.backing.ino(found), found) == (ino, stat)
        })
    }
}

#[test]
fn a_node_is_reached_through_names_however_few_descriptors_are_kept() {
    for cached_max in [1, 2, 100] {
        let mut fixture = Fixture::new(cached_max);
        fs::create_dir_all(fixture.path("a/b/c")).expect("make directories");
        fs::write(fixture.path("a/b/c/f"), "x").expect("make a file");
        let inos = ["a", "a/b", "a/b/c", "a/b/c/f"].map(|path| fixture.look_up(path));
        for ino in inos.into_iter().rev().chain(inos) {
            assert!(fixture.reaches(ino));
        }
        // A directory above is renamed: what is below is still found.
        fs::rename(fixture.path("a"), fixture.path("z")).expect("rename");
        fixture.names.moved(inos[0], Ino::ROOT, b"z");
        assert!(inos.into_iter().all(|ino| fixture.reaches(ino)));
    }
}

#[test]
fn a_node_whose_name_went_away_is_reached_until_it_is_forgotten() {
    let mut fixture = Fixture::new(8);
    fs::write(fixture.path("f"), "x").expect("make a file");
    let ino = fixture.look_up("f");
    let root = fixture
        .names
        .descriptor(&fixture.backing, Ino::ROOT)
        .expect("open");
    let kept = open_name(root.as_fd(), b"f").expect("open");
    fs::remove_file(fixture.path("f")).expect("remove");
    fixture.names.removed(ino, Ino::ROOT, b"f", kept);
    assert!(fixture.reaches(ino));
    assert!(fixture.names.last_name(ino).is_none());
    fixture.names.forget(ino, 1);
    assert!(fixture.names.get(ino).is_none());
}

#[test]
fn another_name_of_a_node_takes_over() {
    let mut fixture = Fixture::new(8);
    fs::write(fixture.path("f"), "x").expect("make a file");
    fs::hard_link(fixture.path("f"), fixture.path("g")).expect("link");
    let ino = fixture.look_up("f");
    let root = fixture
        .names
        .descriptor(&fixture.backing, Ino::ROOT)
        .expect("open");
    let kept = open_name(root.as_fd(), b"f").expect("open");
    fs::remove_file(fixture.path("f")).expect("remove");
    fixture.names.removed(ino, Ino::ROOT, b"f", kept);
    // It was looked up under both.
    assert_eq!(fixture.look_up("g"), ino);
    assert_eq!(fixture.names.last_name(ino), Some(&b"g"[..]));
    assert!(fixture.reaches(ino));
    fixture.names.forget(ino, 1);
    assert!(fixture.names.get(ino).is_some());
    fixture.names.forget(ino, 1);
    assert!(fixture.names.get(ino).is_none());
}

#[test]
fn directories_stay_as_long_as_something_is_reached_through_them() {
    let mut fixture = Fixture::new(8);
    fs::create_dir_all(fixture.path("a/b")).expect("make directories");
    fs::write(fixture.path("a/b/f"), "x").expect("make a file");
    let [a, b, f] = ["a", "a/b", "a/b/f"].map(|path| fixture.look_up(path));
    // The kernel may forget them in any order.
    fixture.names.forget(a, 1);
    fixture.names.forget(b, 1);
    assert!(fixture.reaches(f));
    fixture.names.forget(f, 1);
    assert_eq!(fixture.names.inos(), [Ino::ROOT]);
}

#[test]
fn a_name_that_leads_elsewhere_is_not_followed() {
    let mut fixture = Fixture::new(8);
    fs::write(fixture.path("f"), "x").expect("make a file");
    let ino = fixture.look_up("f");
    fs::write(fixture.path("g"), "y").expect("make a file");
    fs::rename(fixture.path("g"), fixture.path("f")).expect("rename behind its back");
    assert!(!fixture.reaches(ino));
}
