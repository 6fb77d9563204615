//! Where a recovered directory may appear, and what stays when it cannot.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use gazette_recoverylog::{
    ImageError, Refused, Source,
    fsm::Mode,
    player::{RecoverError, RecoverOptions, Recovered, recover},
};

use crate::{
    histories::world,
    look::{compare, look_at},
    support::{broker_with, options, place},
    world::{LOG, World},
};

async fn recover_to(world: &World, to: &Path) -> Result<Recovered, RecoverError> {
    let broker = broker_with(LOG, Mode::Native, &world.log);
    recover(&Source::Broker(broker.client()), options(LOG, to)).await
}

fn image_error(result: Result<Recovered, RecoverError>) -> ImageError {
    match result {
        Err(RecoverError::Image(error)) => error,
        result => panic!("{result:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_new_or_empty_directory_is_taken() {
    let world = world(60, Mode::Native, 20);
    let place = place();
    fs::create_dir(&place.to).unwrap();
    fs::write(place.to.join("mine"), b"precious").unwrap();
    let error = image_error(recover_to(&world, &place.to).await);
    assert!(matches!(error, ImageError::NotEmpty(_)), "{error}");
    assert_eq!(fs::read(place.to.join("mine")).unwrap(), b"precious");
    assert!(place.leftovers().is_empty());

    let file = place.to.join("mine");
    let error = image_error(recover_to(&world, &file).await);
    assert!(matches!(error, ImageError::NotDirectory(_)), "{error}");
    let error = image_error(recover_to(&world, &place.to.join("no/such")).await);
    assert!(matches!(error, ImageError::Io { .. }), "{error}");

    fs::remove_file(file).unwrap();
    recover_to(&world, &place.to).await.unwrap();
    compare(
        look_at(&place.to, true),
        &world.cuts.last().unwrap().files,
        "an empty one",
    );
    let error = image_error(recover_to(&world, &place.to).await);
    assert!(matches!(error, ImageError::NotEmpty(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_work_is_done_again_and_that_of_others_left_alone() {
    let world = world(61, Mode::Native, 20);
    let place = place();
    let parent = place.to.parent().unwrap();
    let (work, tree) = (parent.join(".to.recovering"), parent.join(".to.recovered"));

    // What another program put there.
    fs::create_dir(&work).unwrap();
    fs::write(work.join("mine"), b"precious").unwrap();
    let error = image_error(recover_to(&world, &place.to).await);
    assert!(matches!(error, ImageError::Foreign(_)), "{error}");
    assert_eq!(fs::read(work.join("mine")).unwrap(), b"precious");

    // What a recovery left that was killed.
    fs::write(work.join("recovery"), b"unfinished recovery of test/log\n").unwrap();
    let closed = tree.join("a/b");
    fs::create_dir_all(&closed).unwrap();
    fs::write(closed.join("c"), b"").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();

    // While it still runs.
    let marker = fs::File::open(work.join("recovery")).unwrap();
    rustix::fs::flock(&marker, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = image_error(recover_to(&world, &place.to).await);
    assert!(matches!(error, ImageError::Busy(_)), "{error}");
    drop(marker);

    recover_to(&world, &place.to).await.unwrap();
    compare(
        look_at(&place.to, true),
        &world.cuts.last().unwrap().files,
        "redone",
    );
    assert!(place.leftovers().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_recovery_leaves_nothing() {
    let world = world(62, Mode::Native, 20);
    let place = place();
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let options = options(LOG, &place.to);
    options.cancel.cancel();
    let error = recover(&Source::Broker(broker.client()), options)
        .await
        .unwrap_err();
    assert!(matches!(error, RecoverError::Cancelled { .. }), "{error}");
    assert!(!place.to.exists() && place.leftovers().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_owners_what_is_not_restored_is_listed() {
    let world = world(63, Mode::Native, 60);
    let place = place();
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let options = RecoverOptions {
        restore_owner: false,
        ..options(LOG, &place.to)
    };
    let recovered = recover(&Source::Broker(broker.client()), options)
        .await
        .unwrap();
    let found = look_at(&place.to, true);
    let wanted = &world.cuts.last().unwrap().files;
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    let owners = recovered.report.not_restored.iter();
    let owners = owners.filter(|refused| matches!(refused.what, Refused::Owner { .. }));
    assert_eq!(owners.count() as u64, recovered.report.not_restored_count);
}

/// The same as another user, to whom this program runs itself again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_privilege_it_is_an_error_or_the_rest_is_restored() {
    if std::env::var_os("PLAYER_TEST_UNPRIVILEGED").is_none() {
        run_unprivileged();
        return;
    }
    let world = root_world();
    let place = place();
    let broker = broker_with(LOG, Mode::Native, &world.0);
    let source = Source::Broker(broker.client());
    let error = recover(&source, options(LOG, &place.to)).await.unwrap_err();
    assert!(error.to_string().contains("--no-owner"), "{error}");
    assert!(!place.to.exists() && place.leftovers().is_empty());

    let options = RecoverOptions {
        restore_owner: false,
        ..options(LOG, &place.to)
    };
    let recovered = recover(&source, options).await.unwrap();
    let refused = &recovered.report.not_restored;
    assert!(
        refused
            .iter()
            .any(|refused| matches!(refused.what, Refused::Device { .. }))
    );
    assert!(
        refused
            .iter()
            .any(|refused| matches!(refused.what, Refused::Xattr { .. }))
    );
    assert!(
        refused
            .iter()
            .any(|refused| matches!(refused.what, Refused::Owner { .. }))
    );
    assert_eq!(fs::read(place.to.join("closed/file")).unwrap(), b"content");
    let closed = fs::metadata(place.to.join("closed")).unwrap();
    assert_eq!(closed.permissions().mode() & 0o7777, 0o500);
    fs::set_permissions(place.to.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// A log with what only root may make.
fn root_world() -> (Vec<u8>,) {
    use bytes::BytesMut;
    use gazette_recoverylog::fsm::{
        Author, Fnode, Fsm, Inode, Kind, Mutation, OpWriter, Place, Timestamp, Tree,
    };
    let mode = Mode::Native;
    let author = Author::new(7).unwrap();
    let fsm = Fsm::of_log(LOG).unwrap();
    let mut writer = OpWriter::new(mode, author, LOG, fsm, Tree::new(mode)).unwrap();
    let mut out = BytesMut::new();
    let now = Timestamp::default();
    let directory = Inode {
        kind: Kind::Directory,
        mode: 0o555,
        ..Inode::default()
    };
    writer.begin(&directory, now, &mut out).unwrap();
    let mut nothing = |_: u64, _: &mut [u8]| 0;
    let mut create = |parent, name: &str, inode: &Inode| {
        let at = Some(Place {
            parent,
            name: name.as_bytes(),
        });
        let mutation = Mutation::Create { at, inode };
        let written = writer.write(&mutation, now, &mut nothing, &mut out);
        written.unwrap().fnode.unwrap()
    };
    let device = Inode {
        kind: Kind::CharDevice,
        rdev: 0x103,
        ..Inode::default()
    };
    create(Fnode::ROOT, "null", &device);
    let closed = Inode {
        mode: 0o500,
        ..directory.clone()
    };
    let closed = create(Fnode::ROOT, "closed", &closed);
    let file = Inode {
        mode: 0o600,
        uid: 1234,
        ..Inode::default()
    };
    let file = create(closed, "file", &file);
    for mutation in [
        Mutation::Write {
            fnode: file,
            offset: 0,
            data: b"content",
            mtime: now,
        },
        Mutation::SetXattr {
            fnode: file,
            name: b"trusted.x",
            value: b"y",
        },
    ] {
        writer
            .write(&mutation, now, &mut nothing, &mut out)
            .unwrap();
    }
    (out.to_vec(),)
}

fn run_unprivileged() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("player");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args([
            "--exact",
            "targets::without_privilege_it_is_an_error_or_the_rest_is_restored",
        ])
        .env("PLAYER_TEST_UNPRIVILEGED", "1")
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .output();
    match ran {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "setpriv"),
    }
}
