use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn listed(name: &str, create_revision: i64) -> Listed<'_> {
    Listed {
        name,
        create_revision,
    }
}

fn tree(names: &[&str]) -> Tree {
    let mut tree = Tree::new();
    tree.replace(10, names.iter().map(|name| listed(name, 5)));
    tree
}

fn find(tree: &Tree, path: &str) -> Option<(Ino, Kind)> {
    let mut at = (Ino::ROOT, Kind::Directory);
    for component in path.split('/').filter(|component| !component.is_empty()) {
        at = tree.lookup(at.0, component)?;
    }
    Some(at)
}

/// All paths, directories with a slash at the end.
fn walk(tree: &Tree) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut open = vec![(Ino::ROOT, String::new())];
    while let Some((ino, path)) = open.pop() {
        for entry in tree.list(ino).expect("a directory that is listed is there") {
            let path = format!("{path}{}", entry.name);
            assert_eq!(find(tree, &path), Some((entry.ino, entry.kind)), "{path}");
            assert_eq!(tree.parent(entry.ino), Some(ino));
            if entry.kind == Kind::Directory {
                open.push((entry.ino, format!("{path}/")));
                paths.insert(format!("{path}/"));
            } else {
                paths.insert(path);
            }
        }
    }
    paths
}

#[test]
fn a_journal_that_is_also_a_directory_has_the_suffix_while_it_is_both() {
    let mut tree = tree(&["app/log", "app/log/errors"]);
    let expected = ["app/", "app/log/", "app/log;journal", "app/log/errors"];
    assert_eq!(walk(&tree), expected.map(str::to_owned).into());
    let both = find(&tree, "app/log;journal").expect("it is there");
    tree.remove("app/log/errors");
    assert_eq!(find(&tree, "app/log"), Some(both));
    assert_eq!(find(&tree, "app/log;journal"), None);
}

#[test]
fn a_journal_beside_a_directory_of_its_name_is_made_through_the_suffix() {
    let tree = tree(&["app/log/errors"]);
    let (app, _) = find(&tree, "app").expect("it is there");
    assert_eq!(
        tree.journal_name(app, "log;journal").as_deref(),
        Some("app/log")
    );
    assert_eq!(
        tree.journal_name(app, "x;journal").as_deref(),
        Some("app/x;journal")
    );
}

#[test]
fn a_journal_made_again_is_another_node() {
    let mut tree = tree(&["app/log"]);
    let (before, _) = find(&tree, "app/log").expect("it is there");
    let changes = tree.replace(20, [listed("app/log", 15)]);
    let (after, _) = find(&tree, "app/log").expect("it is there");
    assert_ne!(before, after);
    assert_eq!(changes.removed, [before]);
    assert_eq!(changes.added, [(after, "app/log".to_owned())]);
    assert_eq!(tree.kind(before), None);
}

#[test]
fn an_unchanged_listing_changes_nothing() {
    let mut tree = tree(&["app/log", "app/log/errors", "web/access"]);
    let changes = tree.replace(
        11,
        ["app/log", "app/log/errors", "web/access"].map(|name| listed(name, 5)),
    );
    assert_eq!(changes, Changes::default());
}

#[test]
fn a_listing_older_than_an_own_change_does_not_undo_it() {
    let mut tree = tree(&["app/old"]);
    tree.insert(listed("app/new", 12));
    tree.remove_deleted("app/old", 13);
    assert_eq!(
        tree.remove_directory(Ino::ROOT, "app"),
        Err(TreeError::NotEmpty)
    );
    tree.replace(11, [listed("app/old", 5)]);
    assert_eq!(walk(&tree), ["app/", "app/new"].map(str::to_owned).into());
    tree.replace(13, [listed("app/new", 12)]);
    assert_eq!(walk(&tree), ["app/", "app/new"].map(str::to_owned).into());
    // Deleted and made again by somebody else.
    tree.replace(14, [listed("app/new", 12), listed("app/old", 14)]);
    assert_eq!(
        walk(&tree),
        ["app/", "app/new", "app/old"].map(str::to_owned).into()
    );
}

#[test]
fn a_listing_of_another_store_is_taken_as_it_is() {
    let mut tree = tree(&["app/old"]);
    tree.insert(listed("app/new", 12));
    tree.replace(3, [listed("app/other", 2)]);
    assert_eq!(walk(&tree), ["app/", "app/other"].map(str::to_owned).into());
}

#[test]
fn a_made_directory_lasts_until_it_is_removed() {
    let mut tree = tree(&[]);
    let made = tree
        .make_directory(Ino::ROOT, "app")
        .expect("nothing is there");
    assert_eq!(
        tree.make_directory(Ino::ROOT, "app"),
        Err(TreeError::Exists)
    );
    tree.replace(11, [listed("app/log", 11)]);
    assert_eq!(find(&tree, "app"), Some((made, Kind::Directory)));
    assert_eq!(
        tree.remove_directory(Ino::ROOT, "app"),
        Err(TreeError::NotEmpty)
    );
    tree.replace(12, []);
    assert_eq!(find(&tree, "app"), Some((made, Kind::Directory)));
    assert_eq!(tree.remove_directory(Ino::ROOT, "app"), Ok(()));
    assert_eq!(find(&tree, "app"), None);
    assert_eq!(
        tree.remove_directory(Ino::ROOT, "app"),
        Err(TreeError::NotFound)
    );
}

#[test]
fn directories_nobody_made_go_with_their_last_journal() {
    let mut tree = tree(&["a/b/c/log", "a/x/log"]);
    tree.remove("a/b/c/log");
    assert_eq!(
        walk(&tree),
        ["a/", "a/x/", "a/x/log"].map(str::to_owned).into()
    );
    tree.remove("a/x/log");
    assert!(walk(&tree).is_empty());
}

#[test]
fn removing_a_directory_leaves_the_one_above() {
    let mut tree = Tree::new();
    let above = tree
        .make_directory(Ino::ROOT, "a")
        .expect("nothing is there");
    tree.make_directory(above, "b").expect("nothing is there");
    assert_eq!(tree.remove_directory(above, "b"), Ok(()));
    assert_eq!(walk(&tree), BTreeSet::from(["a/".to_owned()]));
}

#[test]
fn a_journal_is_no_directory() {
    let mut tree = tree(&["log1"]);
    assert_eq!(
        tree.remove_directory(Ino::ROOT, "log1"),
        Err(TreeError::NotDirectory)
    );
    assert_eq!(
        tree.make_directory(Ino::ROOT, "log1"),
        Err(TreeError::Exists)
    );
}

#[test]
fn ten_thousand_journals_are_listed_in_order() {
    let names: Vec<String> = (0..10_000)
        .map(|n| format!("dir{}/log{n:05}", n % 7))
        .collect();
    let mut tree = Tree::new();
    tree.replace(1, names.iter().map(|name| listed(name, 1)));
    assert_eq!(walk(&tree).len(), 10_007);
    let (dir, _) = find(&tree, "dir3").expect("it is there");
    assert!(
        tree.list(dir)
            .expect("it is a directory")
            .is_sorted_by_key(|e| e.name.clone())
    );
}

#[test]
fn names_that_cannot_be_shown_are_counted() {
    let mut tree = Tree::new();
    let long = format!("app/{}", "x".repeat(300));
    let changes = tree.replace(
        1,
        [
            listed("../etc/passwd", 1),
            listed(&long, 1),
            listed("app1", 1),
        ],
    );
    assert_eq!(changes.hidden, 2);
    assert_eq!(walk(&tree), BTreeSet::from(["app1".to_owned()]));
}

#[derive(Debug, Clone)]
enum Step {
    Listing(BTreeMap<String, i64>),
    Make(String),
    Remove(String),
}

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab]", 1..4).prop_map(|parts| parts.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        proptest::collection::btree_map(path(), 1..3i64, 0..6).prop_map(Step::Listing),
        path().prop_map(Step::Make),
        path().prop_map(Step::Remove),
    ]
}

/// The tree as sets of names: nothing to keep in step.
#[derive(Default)]
struct Model {
    journals: BTreeMap<String, i64>,
    made: BTreeSet<String>,
}

impl Model {
    fn is_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self.made.contains(path)
            || self.made.iter().any(|made| made.starts_with(&below))
            || self.journals.keys().any(|name| name.starts_with(&below))
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.made.iter().any(|made| made.starts_with(&below))
            && !self.journals.keys().any(|name| name.starts_with(&below))
    }

    fn walk(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        let ends = self.made.iter().map(|made| format!("{made}/"));
        for name in self.journals.keys().cloned().chain(ends) {
            for (at, _) in name.match_indices('/') {
                paths.insert(name[..=at].to_owned());
            }
        }
        for name in self.journals.keys() {
            let suffix = if self.is_directory(name) {
                JOURNAL_SUFFIX
            } else {
                ""
            };
            paths.insert(format!("{name}{suffix}"));
        }
        paths
    }

    fn make(&mut self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let may = self.is_directory(parent)
            && !self.is_directory(path)
            && !self.journals.contains_key(path);
        if may {
            self.made.insert(path.to_owned());
        }
        may
    }

    fn remove(&mut self, path: &str) -> bool {
        let may = self.is_directory(path) && self.is_empty(path);
        if may {
            self.made.remove(path);
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if !parent.is_empty() && !self.made.contains(parent) && self.is_empty(parent) {
                self.made.insert(parent.to_owned());
            }
        }
        may
    }
}

#[test]
fn a_directory_whose_journal_stays_does_not_keep_the_one_above() {
    let mut tree = Tree::new();
    tree.replace(1, [listed("b/a", 1)]);
    let (above, _) = find(&tree, "b").expect("it is above a journal");
    tree.make_directory(above, "b").expect("the name is free");
    tree.replace(3, [listed("b/b", 3)]);
    let removed = tree.remove_directory(above, "b");
    assert_eq!(removed, Ok(()));
    tree.replace(5, []);
    assert_eq!(walk(&tree), BTreeSet::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_tree_is_what_a_naive_model_says(steps in proptest::collection::vec(step(), 1..20)) {
        let mut tree = Tree::new();
        let mut model = Model::default();
        let mut inos = BTreeMap::new();
        for (revision, step) in (1i64..).zip(steps) {
            match step {
                Step::Listing(journals) => {
                    tree.replace(revision, journals.iter().map(|(name, at)| listed(name, *at - 3)));
                    model.journals = journals;
                }
                Step::Make(path) => {
                    let (parent, last) = path.rsplit_once('/').unwrap_or(("", &path));
                    let parent = find(&tree, parent).filter(|(_, kind)| *kind == Kind::Directory);
                    let made = parent.is_some_and(|(ino, _)| tree.make_directory(ino, last).is_ok());
                    prop_assert_eq!(made, model.make(&path));
                }
                Step::Remove(path) => {
                    let (parent, last) = path.rsplit_once('/').unwrap_or(("", &path));
                    let parent = find(&tree, parent).filter(|(_, kind)| *kind == Kind::Directory);
                    let gone = parent.is_some_and(|(ino, _)| tree.remove_directory(ino, last).is_ok());
                    prop_assert_eq!(gone, model.remove(&path));
                }
            }
            prop_assert_eq!(walk(&tree), model.walk());
            // A number means one journal of one creation, for ever.
            for (name, created) in &model.journals {
                let ino = tree.journal(name).expect("a listed journal is there");
                let owner = inos.entry(ino).or_insert_with(|| (name.clone(), *created));
                prop_assert_eq!(&*owner, &(name.clone(), *created));
            }
        }
    }
}
