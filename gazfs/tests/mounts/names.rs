//! Names, making and removing; owners and modes; attributes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    time::{Duration, Instant},
};

use gazette_client::fake::FakeBroker;
use gazfs::journals::Template;
use rustix::{fs::OFlags, io::Errno};

use crate::harness::{Mount, Way, errno, eventually, open_raw};

fn names(mount: &Mount, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(mount.path(folder)).expect("list");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("a line")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

// Path components of the journal name; where a journal is also a directory of others, the file is
// shown with the suffix `;journal`.
#[test]
fn names_are_paths_and_a_journal_that_is_a_directory_has_the_suffix() {
    let Some(mount) = Mount::new() else { return };
    for name in [
        "app/log",
        "app/log/errors",
        "web/a=1/%41_x+y-z.w",
        "top-level",
    ] {
        mount.broker.create(name);
        mount.broker.append(name, name.as_bytes());
    }
    assert_eq!(names(&mount, ""), ["app", "top-level", "web"]);
    assert_eq!(names(&mount, "app"), ["log", "log;journal"]);
    assert_eq!(names(&mount, "app/log"), ["errors"]);
    let read = |path: &str| fs::read_to_string(mount.path(path)).expect("read");
    assert_eq!(read("app/log;journal"), "app/log");
    assert_eq!(read("app/log/errors"), "app/log/errors");
    assert_eq!(read("web/a=1/%41_x+y-z.w"), "web/a=1/%41_x+y-z.w");
}

// A journal that was made elsewhere is found at once, and one that was deleted is gone.
#[test]
fn what_others_make_is_there_at_once() {
    let Some(mount) = Mount::new() else { return };
    for n in 0..20 {
        let name = format!("made/log{n}");
        assert_eq!(errno(fs::metadata(mount.path(&name))), Errno::NOENT);
        mount.broker.create(&name);
        assert!(
            fs::metadata(mount.path(&name))
                .expect("it is there")
                .is_file()
        );
        assert_eq!(names(&mount, "made").len(), n + 1);
    }
    mount.broker.delete("made/log3");
    assert_eq!(names(&mount, "made").len(), 19);
}

// Owner and mode by `--uid --gid --mode`; changing them is refused, as it would not last.
#[test]
fn owner_and_mode_are_those_of_the_mount() {
    let Some(mount) = Mount::with(|options| {
        (options.uid, options.gid, options.mode) = (1234, 5678, 0o640);
    }) else {
        return;
    };
    mount.broker.create("app/log");
    let file = fs::metadata(mount.path("app/log")).expect("look");
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777),
        (1234, 5678, 0o640)
    );
    let folder = fs::metadata(mount.path("app")).expect("look");
    assert_eq!(
        (folder.uid(), folder.gid(), folder.mode() & 0o7777),
        (1234, 5678, 0o750)
    );
    let changed = fs::set_permissions(mount.path("app/log"), fs::Permissions::from_mode(0o600));
    assert_eq!(errno(changed), Errno::PERM);
    let same = fs::set_permissions(mount.path("app/log"), fs::Permissions::from_mode(0o640));
    same.expect("nothing changes");
}

// create, `> new`: makes the journal from a template spec (`--spec FILE`).
#[test]
fn making_a_file_makes_a_journal_of_the_template() {
    let yaml = "replication: 1\nlabels:\n- name: team\n  value: core\nfragment:\n  length: 65536\n  \
                compression_codec: SNAPPY\n  refresh_interval: 1m0s\n";
    let template = Template::from_yaml(yaml).expect("a template");
    let Some(mount) = Mount::with(|options| options.template = template) else {
        return;
    };
    fs::create_dir(mount.path("app")).expect("make a directory");
    mount.sh_ok("echo one > $J/app/new; echo two >> $J/app/new; (echo a; echo b) > $J/app/both");
    mount.sh_ok(": > $J/app/empty; mknod $J/app/node p && exit 1; touch $J/app/touched");
    assert_eq!(mount.broker.content("app/new"), b"one\ntwo\n");
    assert_eq!(mount.broker.content("app/both"), b"a\nb\n");
    assert_eq!(names(&mount, "app"), ["both", "empty", "new", "touched"]);
    let client = mount.broker.client();
    let made = mount
        .block_on(client.get_journal("app/new"))
        .expect("look up");
    let spec = made.expect("it is there").spec;
    assert_eq!(spec.fragment.length, 65536);
    assert_eq!(spec.labels.value_of("team"), Some("core"));
    let exclusive = open_raw(
        &mount.path("app/new"),
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
    );
    assert_eq!(exclusive.expect_err("it is there"), Errno::EXIST);
}

// A name that no journal can have is refused, and so is one that is too long.
#[test]
fn names_that_no_journal_can_have_are_refused() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).expect("make a directory");
    for name in [
        "abc",
        "dir/with space",
        "dir/co,mma",
        "dir/x;journal",
        "dir/\u{1f980}",
    ] {
        assert_eq!(
            errno(fs::File::create(mount.path(name))),
            Errno::INVAL,
            "{name}"
        );
    }
    assert_eq!(errno(fs::create_dir(mount.path("a b"))), Errno::INVAL);
    let long = "x".repeat(256);
    assert_eq!(
        errno(fs::File::create(mount.path(&long))),
        Errno::NAMETOOLONG
    );
    assert_eq!(errno(fs::metadata(mount.path(&long))), Errno::NAMETOOLONG);
    fs::File::create(mount.path(&"x".repeat(255))).expect("this one fits");
    let letters = "dir/gr\u{fc}n-\u{65e5}\u{672c}";
    fs::File::create(mount.path(letters)).expect("letters of any script");
    assert_eq!(names(&mount, "dir"), ["gr\u{fc}n-\u{65e5}\u{672c}"]);
}

// mkdir works and lasts while it is empty.
#[test]
fn an_empty_directory_lasts_until_it_is_removed() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("a/b/c")).expect("make directories");
    assert_eq!(errno(fs::create_dir(mount.path("a"))), Errno::EXIST);
    mount.broker.create("a/b/c/log1");
    eventually("the journal is listed", || {
        names(&mount, "a/b/c") == ["log1"]
    });
    assert_eq!(errno(fs::remove_dir(mount.path("a/b/c"))), Errno::NOTEMPTY);
    mount.broker.delete("a/b/c/log1");
    eventually("the journal is gone", || names(&mount, "a/b/c").is_empty());
    fs::remove_dir(mount.path("a/b/c")).expect("it is empty");
    assert_eq!(names(&mount, "a"), ["b"]);
}

// unlink: EPERM unless `--allow-delete`.
#[test]
fn deleting_is_refused_unless_it_is_allowed() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    assert_eq!(errno(fs::remove_file(mount.path("app/log"))), Errno::PERM);
    drop(mount);
    let Some(mount) = Mount::with(|options| options.allow_delete = true) else {
        return;
    };
    mount.broker.create("app/log");
    mount.broker.create("app/other");
    fs::remove_file(mount.path("app/log")).expect("delete");
    assert_eq!(names(&mount, "app"), ["other"]);
    assert_eq!(errno(fs::metadata(mount.path("app/log"))), Errno::NOENT);
    mount.sh_ok("rm -r $J/app");
    assert!(names(&mount, "").is_empty());
}

// rename: EPERM (never EXDEV: mv would copy), nothing changed.
#[test]
fn moving_and_linking_are_refused_and_change_nothing() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", b"kept");
    let (from, to) = (mount.path("app/log"), mount.path("app/moved"));
    assert_eq!(errno(fs::rename(&from, &to)), Errno::PERM);
    assert_eq!(errno(fs::hard_link(&from, &to)), Errno::PERM);
    assert_eq!(errno(std::os::unix::fs::symlink(&from, &to)), Errno::PERM);
    assert!(!mount.sh("mv $J/app/log $J/app/moved").status.success());
    assert_eq!(names(&mount, "app"), ["log"]);
    assert_eq!(mount.broker.content("app/log"), b"kept");
}

// xattrs `user.gazette.*`: write head, first offset, labels, spec as YAML, primary.
#[test]
fn attributes_tell_what_a_journal_is() {
    let Some(mount) = Mount::new() else { return };
    let mut spec = FakeBroker::spec("app/log");
    spec.labels.set_value("team", "core");
    mount.broker.upsert(spec);
    mount.broker.append("app/log", &[b'x'; 300]);
    mount.broker.truncate("app/log", 100);
    let path = mount.path("app/log");
    let mut buffer = [0u8; 4096];
    let length = rustix::fs::listxattr(&path, &mut buffer[..]).expect("list");
    let listed = String::from_utf8_lossy(&buffer[..length]).into_owned();
    assert_eq!(listed.split_terminator('\0').count(), 5);
    let get = |name: &str| {
        let mut buffer = [0u8; 4096];
        let length = rustix::fs::getxattr(&path, name, &mut buffer[..]).expect("get");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(get("user.gazette.write_head"), "300");
    assert_eq!(get("user.gazette.first_offset"), "100");
    assert_eq!(get("user.gazette.labels"), "team=core");
    assert!(get("user.gazette.spec").starts_with("name: app/log\n"));
    assert!(get("user.gazette.primary").contains("http://fake.invalid:8080"));
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(&path, "user.gazette.labels", b"x", flags);
    assert_eq!(set.expect_err("they are read-only"), Errno::PERM);
    let mut small = [0u8; 1];
    let got = rustix::fs::getxattr(&path, "user.gazette.write_head", &mut small[..]);
    assert_eq!(got.expect_err("it does not fit"), Errno::RANGE);
    let got = rustix::fs::getxattr(&path, "user.other", &mut small[..]);
    assert_eq!(got.expect_err("there is none"), Errno::NODATA);
}

// 10,000 journals listed with `ls -R` in < 2 s (measured by the benchmark; here it must be near).
#[test]
fn ten_thousand_journals_are_listed_fast() {
    let broker = FakeBroker::new();
    for n in 0..10_000 {
        broker.create(&format!("dir{:02}/journal-{n:05}", n % 40));
    }
    let Some(mount) = Mount::of(broker, Way::Inside, |_| {}) else {
        return;
    };
    let started = Instant::now();
    let listed = mount.sh_ok("ls -R $J | grep -c journal-");
    let took = started.elapsed();
    eprintln!("ls -R of 10,000 journals: {took:?}");
    assert_eq!(listed.trim(), "10000");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let listed = mount.sh_ok("ls -l $J/dir07 | grep -c journal-");
    assert_eq!(listed.trim(), "250");
}

// statfs is sensible.
#[test]
fn the_free_space_is_shown() {
    let Some(mount) = Mount::with(|options| options.space_of = Some("/".into())) else {
        return;
    };
    let (ours, root) = (
        rustix::fs::statvfs(mount.path("")).expect("ours"),
        rustix::fs::statvfs("/").expect("that of the root"),
    );
    assert_eq!(ours.f_blocks * ours.f_frsize, root.f_blocks * root.f_frsize);
    assert_eq!(ours.f_namemax, 255);
}
