//! What a standby has.

use std::{path::Path, time::Duration};

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_recoverylog::{
    fsm::{Fnode, Mutation},
    player::RecoverOptions,
    recorder::Recorder,
    standby::Standby,
};

use crate::support::{LOG, apply, broker, create, eventually, place, start, write};

pub(crate) async fn standby(broker: &FakeBroker, to: &Path) -> Standby {
    let mut options = RecoverOptions::new(LOG, to);
    options.restore_owner = false;
    options.sync = false;
    Standby::start(&broker.client(), options).await.unwrap()
}

/// Waits until a copy is as far as the log.
pub(crate) async fn caught_up(broker: &FakeBroker, standby: &Standby) {
    let watch = standby.watch();
    eventually("it is as far as the log", || {
        let followed = watch.borrow();
        assert_eq!(followed.ended, None);
        followed.offset == broker.head(LOG)
    })
    .await;
}

fn seen(standby: &Standby, name: &str) -> Option<Vec<u8>> {
    let look = standby
        .copied()
        .look(Duration::from_secs(5), |tree, content| {
            let fnode = tree.lookup(Fnode::ROOT, name.as_bytes())?;
            let content = content(fnode).and_then(|path| std::fs::read(path).ok());
            Some(content.unwrap_or_default())
        });
    look.expect("it is there")
}

fn rename(recorder: &Recorder, from: &str, to: &str) {
    let rename = Mutation::Rename {
        from: place(from),
        to: place(to),
        exchange: false,
    };
    apply(recorder, &rename).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_follows_what_is_recorded() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let before = create(&recorder, "before").unwrap();
    write(&recorder, before, 0, b"was there").unwrap();
    recorder.flush().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let standby = standby(&broker, &place.path().join("to")).await;
    assert_eq!(seen(&standby, "before").unwrap(), b"was there");
    for round in 0..50_u8 {
        let name = format!("file-{round}");
        let file = create(&recorder, &name).unwrap();
        write(&recorder, file, 0, &vec![round; 70_000]).unwrap();
        rename(&recorder, &name, "moved");
        recorder.flush().await.unwrap();
        caught_up(&broker, &standby).await;
        assert_eq!(seen(&standby, &name), None);
        assert_eq!(seen(&standby, "moved").unwrap(), vec![round; 70_000]);
    }
    assert!(
        !place.path().join("to").exists(),
        "it is not there before it is taken over"
    );
    standby.stop().await;
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_a_rename_in_two_parts() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let standby = standby(&broker, &place.path().join("to")).await;
    let copied = standby.copied();
    let looking = std::thread::spawn(move || {
        let mut looks = 0;
        loop {
            let names = copied.look(Duration::from_secs(5), |tree, _| {
                let names = tree.children(Fnode::ROOT);
                let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
                names
            });
            let names = names.expect("it is there");
            if names.contains(&"end".into()) {
                return looks;
            }
            assert_eq!(names.len(), 1, "{names:?}");
            looks += 1;
        }
    });
    for round in 0..200 {
        let (from, to) = if round % 2 == 0 {
            ("a", "b")
        } else {
            ("b", "a")
        };
        rename(&recorder, from, to);
        if round % 10 == 0 {
            recorder.flush().await.unwrap();
        }
    }
    create(&recorder, "end").unwrap();
    recorder.flush().await.unwrap();
    assert!(looking.join().unwrap() > 0);
    standby.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_outlasts_reads_that_fail() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    broker.inject_every(Call::Read, 2, BrokerFault::BreakAfter(3));
    let standby = standby(&broker, &place.path().join("to")).await;
    for round in 0..20 {
        create(&recorder, &format!("file-{round}")).unwrap();
        recorder.flush().await.unwrap();
    }
    caught_up(&broker, &standby).await;
    assert!(seen(&standby, "file-19").is_some());
    standby.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_with_a_word_where_the_log_is_none_any_more() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let standby = standby(&broker, &place.path().join("to")).await;
    recorder.stop().await.unwrap();
    // A good op of which the one before it is missing.
    let mut frame = broker.content(LOG);
    frame.truncate(frame.len() / 2);
    broker.append(LOG, &vec![7; 100]);
    broker.append(LOG, &frame);
    broker.append(LOG, &frame);
    let mut watch = standby.watch();
    let ended = tokio::time::timeout(
        Duration::from_secs(5),
        watch.wait_for(|followed| followed.ended.is_some() || followed.offset == broker.head(LOG)),
    );
    ended.await.expect("it says something").unwrap();
    standby.stop().await;
}
