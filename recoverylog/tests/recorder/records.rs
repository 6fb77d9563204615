//! What is recorded is in the log, in order, and who waits learns it.

use std::{thread, time::Duration};

use gazette_client::fake::{Call, Fault as BrokerFault};
use gazette_protocol::labels;
use gazette_recoverylog::{
    fsm::{Fnode, FsmHints, Inode, Kind, Mark, Mode, Mutation, SizeChange, Timestamp},
    hints::{HintsHome, HintsPoint, JournalHints},
    journals::content_type,
    recorder::{Fault, Hold, Recorder, RecorderError, RecorderOptions, Room, Start, State},
};
use gazette_recoverylog_fsm::image::MemoryImage;

use crate::support::{
    LOG, apply, author, barrier, broker, content, create, eventually, inode, options, place, play,
    recovered, start, start_with, write,
};

#[tokio::test]
async fn what_is_recorded_plays_to_the_same_tree() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let directory = apply(
        &recorder,
        &Mutation::Create {
            at: Some(place("d")),
            inode: &inode(Kind::Directory),
        },
    );
    let directory = directory.unwrap().fnode.unwrap();
    let file = create(&recorder, "a").unwrap();
    write(&recorder, file, 0, b"hello ").unwrap();
    write(&recorder, file, 6, b"world").unwrap();
    let mutation = Mutation::Rename {
        from: place("a"),
        to: gazette_recoverylog::fsm::Place {
            parent: directory,
            name: b"b",
        },
        exchange: false,
    };
    apply(&recorder, &mutation).unwrap();
    recorder.mark(Mark::Text("a remark".into()));
    let acked = recorder.flush().await.unwrap();
    assert_eq!(acked.offset, broker.head(LOG));
    assert_eq!(recorder.fnode_at(directory, b"b"), Some(file));
    let image = play(&broker);
    assert_eq!(image.tree.lookup(directory, b"b"), Some(file));
    assert_eq!(image.tree.lookup(Fnode::ROOT, b"a"), None);
    assert_eq!(image.content(file).bytes(), b"hello world");
    assert_eq!(image.fsm.next_seq_no(), acked.seq_no + 1);
    assert_eq!(recorder.stop().await.unwrap(), acked);
}

#[tokio::test]
async fn a_recorder_goes_on_from_what_another_one_left() {
    let broker = broker();
    for number in 1..=3 {
        let recorder = start(&broker, number).await.unwrap();
        create(&recorder, &format!("by-{number}")).unwrap();
        recorder.stop().await.unwrap();
    }
    let image = play(&broker);
    for number in 1..=3 {
        assert_eq!(content(&image, &format!("by-{number}")), b"");
    }
}

#[tokio::test]
async fn ops_gather_behind_an_append_and_adjacent_writes_become_one() {
    let broker = broker();
    let recorder = start_with(
        &broker,
        1,
        RecorderOptions {
            answer_within: Duration::from_secs(10),
            idle_mark: None,
            ..options()
        },
    )
    .await
    .unwrap();
    let file = create(&recorder, "a").unwrap();
    eventually("hints", || recorder.status().hints_offset.is_some()).await;
    recorder.flush().await.unwrap();
    let before = broker.calls(Call::Append);
    broker.inject(
        Call::Append,
        [BrokerFault::Delay(Duration::from_millis(200))],
    );
    write(&recorder, file, 0, b"0").unwrap();
    eventually("the append", || broker.calls(Call::Append) == before + 1).await;
    for at in 1..100 {
        write(&recorder, file, at, b"x").unwrap();
    }
    let seq_no = recorder.status().recorded_seq_no;
    let acked = recorder.flush().await.unwrap();
    assert_eq!(acked.seq_no, seq_no);
    assert_eq!(broker.calls(Call::Append), before + 2);
    let image = play(&broker);
    // The create, the first write, and one for all the others.
    assert_eq!(image.fsm.next_seq_no(), seq_no + 1);
    assert_eq!(acked.seq_no - file.0, 2);
    assert_eq!(content(&image, "a").len(), 100);
}

#[tokio::test]
async fn plain_threads_record_and_wait_without_a_runtime() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let recorder = recorder.clone();
            thread::spawn(move || {
                for index in 0..50 {
                    create(&recorder, &format!("{number}-{index}")).unwrap();
                    barrier(&recorder).recv().unwrap().unwrap();
                }
            })
        })
        .collect();
    tokio::task::spawn_blocking(|| threads.into_iter().for_each(|t| t.join().unwrap()))
        .await
        .unwrap();
    let image = play(&broker);
    assert_eq!(image.tree.children(Fnode::ROOT).count(), 200);
}

#[tokio::test]
async fn no_room_holds_a_mutation_until_there_is_some_or_its_caller_gives_up() {
    let broker = broker();
    let options = RecorderOptions {
        max_pending_bytes: 4096,
        answer_within: Duration::from_secs(10),
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    broker.inject(
        Call::Append,
        [BrokerFault::Delay(Duration::from_millis(400))],
    );
    write(&recorder, file, 0, &[1; 3000]).unwrap();
    assert_eq!(
        write(&recorder, file, 3000, &[2; 3000]).unwrap_err(),
        Hold::Full
    );
    let mutation = move |data| Mutation::Write {
        fnode: file,
        offset: 3000,
        data,
        mtime: Timestamp::default(),
    };
    let waiting = recorder.clone();
    tokio::task::spawn_blocking(move || {
        let begun = std::time::Instant::now();
        let gave_up = waiting.reserve_blocking(&mutation(&[2; 3000]), &|| {
            begun.elapsed() > Duration::from_millis(60)
        });
        assert_eq!(gave_up.unwrap_err(), Hold::GivenUp);
        assert!(begun.elapsed() < Duration::from_millis(200));
        let mutation = mutation(&[2; 3000]);
        let reservation = waiting.reserve_blocking(&mutation, &|| false).unwrap();
        waiting.record(reservation, &mutation, &mut |_, _| 0);
    })
    .await
    .unwrap();
    recorder.flush().await.unwrap();
    assert_eq!(content(&play(&broker), "a").len(), 6000);
}

#[tokio::test]
async fn a_reservation_that_is_not_used_is_given_back() {
    let broker = broker();
    let options = RecorderOptions {
        max_pending_bytes: 4096,
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    let mutation = Mutation::Write {
        fnode: file,
        offset: 0,
        data: &[0; 3000],
        mtime: Timestamp::default(),
    };
    let first = recorder.reserve(&mutation).unwrap();
    assert_eq!(recorder.reserve(&mutation).unwrap_err(), Hold::Full);
    drop(first);
    drop(recorder.reserve(&mutation).unwrap());
}

#[tokio::test]
async fn growing_mutations_leave_the_reserve_of_the_disk_alone() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    recorder.set_room(Some(Room {
        total: 100,
        available: 9,
        reserve: 10,
    }));
    assert_eq!(write(&recorder, file, 0, b"x").unwrap_err(), Hold::NoSpace);
    let cut = Mutation::Size {
        fnode: file,
        change: SizeChange::Truncate { size: 0 },
        mtime: Timestamp::default(),
    };
    apply(&recorder, &cut).unwrap();
    apply(&recorder, &Mutation::Unlink { at: place("a") }).unwrap();
    recorder.set_room(None);
    create(&recorder, "b").unwrap();
    recorder.flush().await.unwrap();
}

#[tokio::test]
async fn hints_tell_of_what_the_log_has_and_the_last_ones_of_all_of_it() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    write(&recorder, file, 0, b"content").unwrap();
    let acked = recorder.stop().await.unwrap();
    let home = JournalHints::new(broker.client(), LOG);
    let hints = home.newest(HintsPoint::Head).await.unwrap().unwrap();
    assert_eq!(hints.author, author(1));
    assert_eq!((hints.offset, hints.seq_no), (acked.offset, acked.seq_no));
    let image = play(&broker);
    assert_eq!(hints.checksum, image.fsm.next_checksum());
    let fnodes: Vec<_> = hints
        .hints
        .live_nodes
        .iter()
        .map(|node| node.fnode)
        .collect();
    assert!(fnodes.contains(&file), "{fnodes:?}");
    // Offsets are exact, as the running owner knows where each append landed.
    for segment in hints
        .hints
        .live_nodes
        .iter()
        .flat_map(|node| &node.segments)
    {
        assert!(segment.last_offset > 0 && segment.last_offset <= acked.offset);
    }
}

#[tokio::test]
async fn hints_are_published_after_so_many_bytes() {
    let broker = broker();
    let options = RecorderOptions {
        hints_every_bytes: 2000,
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    for at in 0..5 {
        write(&recorder, file, at * 3000, &[1; 3000]).unwrap();
        let acked = recorder.flush().await.unwrap();
        eventually("hints", || {
            recorder.status().hints_offset == Some(acked.offset)
        })
        .await;
    }
    let home = JournalHints::new(broker.client(), LOG);
    assert!(home.list().await.unwrap().len() >= 5);
}

#[tokio::test]
async fn hints_that_cannot_be_published_stop_nothing() {
    let broker = broker();
    broker.delete("app/log.hints");
    let recorder = start(&broker, 1).await.unwrap();
    create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    recorder.stop().await.unwrap();
    assert_eq!(content(&play(&broker), "a"), b"");
}

#[tokio::test]
async fn a_recorder_does_not_start_on_what_is_not_the_log_that_was_read() {
    let broker = broker();
    let fresh =
        |log: &str, mode| Start::fresh(log, mode, author(1), inode(Kind::Directory)).unwrap();
    let begin = async |start| Recorder::start(broker.client(), start, options()).await;
    let error = begin(fresh("app/none", Mode::Native)).await.unwrap_err();
    assert!(matches!(error, RecorderError::NoLog { .. }), "{error}");
    let error = begin(fresh(LOG, Mode::Compat)).await.unwrap_err();
    assert!(matches!(error, RecorderError::Mode { .. }), "{error}");
    let early = recovered(&broker, 2);
    let recorder = begin(fresh(LOG, Mode::Native)).await.unwrap();
    let error = begin(early).await.unwrap_err();
    assert!(matches!(error, RecorderError::HeadMoved { .. }), "{error}");
    recorder.stop().await.unwrap();
}

#[test]
fn every_barrier_is_answered_when_the_runtime_ends() {
    let broker = broker();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let recorder = runtime.block_on(start(&broker, 1)).unwrap();
    broker.inject_every(Call::Append, 1, BrokerFault::Hang);
    create(&recorder, "a").unwrap();
    let waiting = barrier(&recorder);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let answer = waiting.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(answer, Err(Fault::Ended));
    assert_eq!(create(&recorder, "b"), Err(Hold::Failed(Fault::Ended)));
    assert_eq!(barrier(&recorder).recv().unwrap(), Err(Fault::Ended));
}

#[tokio::test]
async fn the_last_clone_that_is_dropped_ends_it() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let mut state = recorder.watch();
    broker.inject_every(Call::Append, 1, BrokerFault::Hang);
    create(&recorder, "a").unwrap();
    let waiting = barrier(&recorder);
    drop(recorder);
    assert_eq!(waiting.recv().unwrap(), Err(Fault::Ended));
    state
        .wait_for(|state| *state == State::Failed(Fault::Ended))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_mutation_that_contradicts_the_log_ends_the_recording() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    create(&recorder, "a").unwrap();
    // A defect of the caller: the name is taken.
    let inode = Inode::default();
    let mutation = Mutation::Create {
        at: Some(place("a")),
        inode: &inode,
    };
    apply(&recorder, &mutation).unwrap();
    let fault = recorder.flush().await.unwrap_err();
    assert!(matches!(fault, Fault::Diverged { .. }), "{fault}");
    assert!(matches!(create(&recorder, "b"), Err(Hold::Failed(_))));
}

#[tokio::test]
async fn a_log_of_mode_compat_gets_content_again_where_old_readers_need_it() {
    let broker = broker();
    let mut spec = gazette_client::fake::FakeBroker::spec(LOG);
    let compat = content_type(Mode::Compat);
    spec.labels.set_value(labels::CONTENT_TYPE, compat);
    broker.upsert(spec);
    let start = Start::fresh(LOG, Mode::Compat, author(1), inode(Kind::Directory)).unwrap();
    let recorder = Recorder::start(broker.client(), start, options())
        .await
        .unwrap();
    let file = create(&recorder, "a").unwrap();
    write(&recorder, file, 0, b"0123456789").unwrap();
    let cut = Mutation::Size {
        fnode: file,
        change: SizeChange::Truncate { size: 4 },
        mtime: Timestamp::default(),
    };
    let reservation = recorder.reserve(&cut).unwrap();
    let recorded = recorder.record(reservation, &cut, &mut |offset, buffer| {
        let rest = &b"0123"[usize::try_from(offset).unwrap()..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    });
    let (old, new) = recorded.replaced.expect("another fnode stands for it");
    assert_eq!(old, file);
    recorder.stop().await.unwrap();
    let mut image = MemoryImage::new(Mode::Compat, &FsmHints::of_log(LOG)).unwrap();
    let log = broker.content(LOG).into();
    image.play(&LOG.into(), &log, |_, _, _| {}).unwrap();
    assert_eq!(image.tree.lookup(Fnode::ROOT, b"a"), Some(new));
    assert_eq!(image.content(new).bytes(), b"0123");
}

#[tokio::test]
async fn what_a_log_cannot_say_is_refused_before_it_is_done() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let file = Inode::default();
    for name in ["", ".", "..", "a/b"] {
        let mutation = Mutation::Create {
            at: Some(place(name)),
            inode: &file,
        };
        let hold = recorder.reserve(&mutation).unwrap_err();
        assert!(matches!(hold, Hold::Refused(_)), "{name}: {hold}");
    }
    recorder.stop().await.unwrap();
}
