use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::super::luck::{Everything, Seeded, Strict};
use super::*;

fn meta() -> Meta {
    Meta {
        mode: 0o644,
        uid: 0,
        gid: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
    }
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn file(model: &mut Model, folder: Ino, text: &str) -> Ino {
    model.create(folder, name(text), New::File, meta()).unwrap()
}

fn folder(model: &mut Model, above: Ino, text: &str) -> Ino {
    model
        .create(above, name(text), New::Folder, meta())
        .unwrap()
}

fn paths(survivors: &Survivors) -> BTreeSet<PathBuf> {
    survivors
        .walk()
        .into_iter()
        .map(|(path, ..)| path)
        .filter(|p| p != Path::new(""))
        .collect()
}

fn strict(model: &Model) -> BTreeSet<PathBuf> {
    paths(&model.survivors(&mut Strict))
}

fn set<const N: usize>(expected: [&str; N]) -> BTreeSet<PathBuf> {
    expected.map(PathBuf::from).into()
}

#[test]
fn a_sync_of_a_folder_takes_along_what_its_changes_build_on() {
    let mut model = Model::new(meta());
    let a = folder(&mut model, ROOT, "a");
    let b = folder(&mut model, ROOT, "b");
    model.sync_folder(ROOT).unwrap();
    file(&mut model, a, "x");
    file(&mut model, a, "other");
    model
        .rename((a, name("x")), (b, name("y")), RenameTo::Replace)
        .unwrap();
    model.sync_folder(b).unwrap();
    assert_eq!(
        strict(&model),
        set(["a", "b", "b/y"]),
        "the name a/other is not needed for b/y"
    );
}

#[test]
fn a_change_within_a_new_folder_does_not_make_that_folder_last() {
    let mut model = Model::new(meta());
    let a = folder(&mut model, ROOT, "a");
    file(&mut model, a, "partial");
    model
        .rename((a, name("partial")), (a, name("final")), RenameTo::Replace)
        .unwrap();
    file(&mut model, a, "x");
    model.unlink(a, name("x")).unwrap();
    model.sync_folder(a).unwrap();
    assert_eq!(strict(&model), set([]));
    model.sync_folder(ROOT).unwrap();
    assert_eq!(strict(&model), set(["a", "a/final"]));
}

#[test]
fn what_moved_into_a_new_folder_is_in_one_of_the_two() {
    let mut model = Model::new(meta());
    file(&mut model, ROOT, "x");
    model.sync_all();
    let a = folder(&mut model, ROOT, "a");
    model
        .rename((ROOT, name("x")), (a, name("x")), RenameTo::Replace)
        .unwrap();
    model.sync_folder(a).unwrap();
    assert_eq!(strict(&model), set(["a", "a/x"]));
}

#[test]
fn a_removed_folder_took_its_content_along() {
    let mut model = Model::new(meta());
    let a = folder(&mut model, ROOT, "a");
    file(&mut model, a, "x");
    model.sync_all();
    model
        .rename((a, name("x")), (ROOT, name("x")), RenameTo::Replace)
        .unwrap();
    model.remove_folder(ROOT, name("a")).unwrap();
    for seed in 0..200 {
        let left = paths(&model.survivors(&mut Seeded::new(seed)));
        assert_eq!(
            left.iter().filter(|path| path.ends_with("x")).count(),
            1,
            "{left:?}"
        );
    }
    model.sync_folder(ROOT).unwrap();
    assert_eq!(strict(&model), set(["x"]));
}

#[test]
fn folders_never_end_up_inside_each_other() {
    let mut model = Model::new(meta());
    let a = folder(&mut model, ROOT, "a");
    let b = folder(&mut model, ROOT, "b");
    file(&mut model, a, "in-a");
    file(&mut model, b, "in-b");
    model.sync_all();
    let replace = RenameTo::Replace;
    model
        .rename((ROOT, name("a")), (b, name("a")), replace)
        .unwrap();
    model
        .rename((b, name("a")), (ROOT, name("a")), replace)
        .unwrap();
    model
        .rename((ROOT, name("b")), (a, name("b")), replace)
        .unwrap();
    for seed in 0..200 {
        let left = paths(&model.survivors(&mut Seeded::new(seed)));
        for expected in ["in-a", "in-b"] {
            assert_eq!(
                left.iter().filter(|path| path.ends_with(expected)).count(),
                1,
                "{left:?}"
            );
        }
    }
}

#[test]
fn a_file_is_dropped_once_nothing_can_bring_it_back() {
    let mut model = Model::new(meta());
    let count = |model: &Model| model.inodes().count();
    let a = folder(&mut model, ROOT, "a");
    let x = file(&mut model, a, "x");
    model.hold(x);
    model.unlink(a, name("x")).unwrap();
    model.sync_folder(a).unwrap();
    assert_eq!(count(&model), 3, "it is still open");
    model.release(x, 1);
    assert_eq!(count(&model), 2);

    file(&mut model, a, "y");
    model.sync_all();
    model.unlink(a, name("y")).unwrap();
    assert_eq!(count(&model), 3, "it is still on the disk");
    model.remove_folder(ROOT, name("a")).unwrap();
    model.sync_folder(ROOT).unwrap();
    assert_eq!(count(&model), 1);
    assert_eq!(model.pending.take_synced(a).len(), 0);
}

#[test]
fn an_exchange_is_whole() {
    let mut model = Model::new(meta());
    let a = folder(&mut model, ROOT, "a");
    let x = file(&mut model, a, "x");
    let y = file(&mut model, ROOT, "y");
    model.sync_all();
    model
        .rename((a, name("x")), (ROOT, name("y")), RenameTo::Exchange)
        .unwrap();
    assert_eq!(model.lookup(a, name("x")), Ok(y));
    assert_eq!(model.lookup(ROOT, name("y")), Ok(x));
    for seed in 0..50 {
        let left = paths(&model.survivors(&mut Seeded::new(seed)));
        assert_eq!(left, set(["a", "a/x", "y"]));
    }
    let free = model.rename((a, name("x")), (ROOT, name("y")), RenameTo::Free);
    assert_eq!(free, Err(ModelError::Exists));
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize, usize),
    MakeFolder(usize, usize),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    RemoveFolder(usize, usize),
    Rename(usize, usize, usize, usize),
    Write(usize, u8),
    SyncFile(usize),
    SyncFolder(usize),
    Hold(usize),
    Release(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    // Numbers of folders and files are taken modulo those that there are. Few names, so that they meet.
    let n = 0_usize..20;
    let name = 0_usize..4;
    prop_oneof![
        3 => (n.clone(), name.clone()).prop_map(|(f, name)| Step::Create(f, name)),
        2 => (n.clone(), name.clone()).prop_map(|(f, name)| Step::MakeFolder(f, name)),
        1 => (n.clone(), n.clone(), name.clone()).prop_map(|(i, f, name)| Step::Link(i, f, name)),
        2 => (n.clone(), name.clone()).prop_map(|(f, name)| Step::Unlink(f, name)),
        1 => (n.clone(), name.clone()).prop_map(|(f, name)| Step::RemoveFolder(f, name)),
        3 => (n.clone(), name.clone(), n.clone(), name).prop_map(|(f, a, t, b)| Step::Rename(f, a, t, b)),
        2 => (n.clone(), any::<u8>()).prop_map(|(i, byte)| Step::Write(i, byte)),
        1 => n.clone().prop_map(Step::SyncFile),
        1 => n.clone().prop_map(Step::SyncFolder),
        1 => n.clone().prop_map(Step::Hold),
        1 => n.prop_map(Step::Release),
    ]
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn apply(model: &mut Model, held: &mut Vec<Ino>, step: &Step) {
    let (folders, others): (Vec<Ino>, Vec<Ino>) = model.inodes().partition(|i| model.is_folder(*i));
    let folder = |n: usize| folders[n % folders.len()];
    let other = |n: usize| others.get(n % others.len().max(1)).copied().unwrap_or(ROOT);
    let text = |n: usize| OsStr::new(NAMES[n]);
    // Many make no sense and are refused; then nothing may change.
    match *step {
        Step::Create(f, n) => drop(model.create(folder(f), text(n), New::File, meta())),
        Step::MakeFolder(f, n) => drop(model.create(folder(f), text(n), New::Folder, meta())),
        Step::Link(i, f, n) => drop(model.link(other(i), folder(f), text(n))),
        Step::Unlink(f, n) => drop(model.unlink(folder(f), text(n))),
        Step::RemoveFolder(f, n) => drop(model.remove_folder(folder(f), text(n))),
        Step::Rename(f, a, t, b) => {
            let (from, to) = ((folder(f), text(a)), (folder(t), text(b)));
            let _ = model.rename(from, to, RenameTo::Replace);
        }
        Step::Write(i, byte) => {
            if let Ok(file) = model.file_mut(other(i)) {
                file.write(0, &[byte; 10]);
            }
        }
        Step::SyncFile(i) => {
            if let Ok(file) = model.file_mut(other(i)) {
                file.sync();
            }
        }
        Step::SyncFolder(f) => drop(model.sync_folder(folder(f))),
        Step::Hold(i) => {
            model.hold(other(i));
            held.push(other(i));
        }
        Step::Release(i) => {
            if !held.is_empty() {
                let ino = held.swap_remove(i % held.len());
                model.release(ino, 1);
            }
        }
    }
}

/// Counts of names, as they follow from the names themselves.
fn check_counts(model: &Model) {
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut durable: BTreeMap<Ino, u32> = BTreeMap::new();
    for inode in model.inodes.values() {
        if let Node::Folder(folder) = &inode.node {
            folder
                .current
                .values()
                .for_each(|ino| *links.entry(*ino).or_default() += 1);
            folder
                .durable
                .values()
                .for_each(|ino| *durable.entry(*ino).or_default() += 1);
        }
    }
    for (ino, inode) in &model.inodes {
        assert_eq!(
            inode.links,
            links.remove(ino).unwrap_or(0),
            "links of {ino}"
        );
        assert_eq!(
            inode.durable_links,
            durable.remove(ino).unwrap_or(0),
            "durable links of {ino}"
        );
        assert!(inode.is_used(), "{ino} is dropped once it is not used");
    }
    assert!(
        links.is_empty() && durable.is_empty(),
        "every name leads somewhere"
    );
}

/// The current tree, by the means of a program: from the top down.
fn current(model: &Model) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![(PathBuf::new(), ROOT)];
    while let Some((path, ino)) = pending.pop() {
        let content = model.file(ino).ok().map(|f| f.current().read(0, 100));
        if let Ok(entries) = model.entries(ino) {
            pending.extend(entries.map(|(name, ino)| (path.join(name), ino)));
        }
        found.insert(path, content);
    }
    found
}

fn found(survivors: &Survivors) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let walked = survivors.walk().into_iter().map(|(path, _, survivor)| {
        let content = match survivor {
            Survivor::File(content) => Some(content.read(0, 100)),
            Survivor::Folder(_) | Survivor::Link(_) => None,
        };
        (path, content)
    });
    walked.collect()
}

proptest! {
    #[test]
    fn names_are_counted_right_whatever_happens(steps in prop::collection::vec(any_step(), 0..80)) {
        let mut model = Model::new(meta());
        let mut held = vec![];
        for step in &steps {
            apply(&mut model, &mut held, step);
            check_counts(&model);
        }
    }

    #[test]
    fn all_survives_with_full_luck_or_after_a_sync_of_all(
        steps in prop::collection::vec(any_step(), 0..80),
    ) {
        let mut model = Model::new(meta());
        for step in &steps {
            apply(&mut model, &mut vec![], step);
        }
        let now = current(&model);
        prop_assert_eq!(&found(&model.survivors(&mut Everything)), &now);
        model.sync_all();
        check_counts(&model);
        prop_assert_eq!(&found(&model.survivors(&mut Strict)), &now);
        prop_assert_eq!(model.pending.lucky(&mut Everything).count(), 0);
    }

    #[test]
    fn a_file_whose_way_is_synced_survives_any_luck(
        before in prop::collection::vec(any_step(), 0..60),
        after in prop::collection::vec(any_step(), 0..20),
        pick in any::<prop::sample::Index>(),
        seed: u64,
    ) {
        let mut model = Model::new(meta());
        for step in &before {
            apply(&mut model, &mut vec![], step);
        }
        let files: Vec<PathBuf> =
            current(&model).into_iter().filter(|(_, c)| c.is_some()).map(|(path, _)| path).collect();
        prop_assume!(!files.is_empty());
        let path = pick.get(&files);

        // Sync it and each folder on its way.
        let mut way = vec![ROOT];
        for part in path {
            way.push(model.lookup(*way.last().unwrap(), part).unwrap());
        }
        let ino = way.pop().unwrap();
        model.file_mut(ino).unwrap().sync();
        for folder in way {
            model.sync_folder(folder).unwrap();
        }

        // Then do something else, and do not touch it or its way.
        for step in &after {
            let mut scratch = vec![];
            let touches_names = matches!(
                step,
                Step::Unlink(..) | Step::RemoveFolder(..) | Step::Rename(..) | Step::Write(..)
            );
            if !touches_names {
                apply(&mut model, &mut scratch, step);
            }
        }
        let content = model.file(ino).unwrap().current().read(0, 100);
        for left in [model.survivors(&mut Strict), model.survivors(&mut Seeded::new(seed))] {
            prop_assert_eq!(found(&left).remove(path), Some(Some(content.clone())), "{:?}", path);
        }
    }

    #[test]
    fn a_synced_file_is_found_once_at_least_wherever_it_moved(
        before in prop::collection::vec(any_step(), 0..40),
        after in prop::collection::vec(any_step(), 0..40),
        seed: u64,
    ) {
        let mut model = Model::new(meta());
        for step in &before {
            apply(&mut model, &mut vec![], step);
        }
        model.sync_all();
        let reachable = |left: &Survivors| -> BTreeSet<Ino> {
            left.walk().into_iter().map(|(_, ino, _)| ino).collect()
        };
        let synced = reachable(&model.survivors(&mut Strict));
        for step in &after {
            apply(&mut model, &mut vec![], step);
        }
        // What had a name then and has one now has one after a loss of power, whatever was lost.
        let now = reachable(&model.survivors(&mut Everything));
        let left = reachable(&model.survivors(&mut Seeded::new(seed)));
        let lost: Vec<&Ino> = synced.intersection(&now).filter(|ino| !left.contains(ino)).collect();
        prop_assert!(lost.is_empty(), "{lost:?}");
    }
}
