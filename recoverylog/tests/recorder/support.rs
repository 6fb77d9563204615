//! A broker, recorders of its log, and what the log says.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_client::{ClientOptions, fake::FakeBroker};
use gazette_protocol::labels;
use gazette_recoverylog::{
    fsm::{Author, Fnode, Inode, Kind, Mode, Mutation, Place, Timestamp},
    journals::{content_type, hints_journal},
    recorder::{Fault, Hold, Recorded, Recorder, RecorderError, RecorderOptions, Start},
};
use gazette_recoverylog_fsm::{FsmHints, image::MemoryImage};

pub(crate) const LOG: &str = "app/log";

pub(crate) fn author(number: u32) -> Author {
    Author::new(number).unwrap()
}

/// A broker with an empty log, and the journal of its hints.
pub(crate) fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    let mut spec = FakeBroker::spec(LOG);
    let native = content_type(Mode::Native);
    spec.labels.set_value(labels::CONTENT_TYPE, native);
    broker.upsert(spec);
    broker.create(&hints_journal(LOG));
    broker
}

/// Options with times that suit a test.
pub(crate) fn options() -> RecorderOptions {
    RecorderOptions {
        idle_mark: Some(Duration::from_millis(100)),
        answer_within: Duration::from_millis(300),
        start_within: Duration::from_secs(10),
        stop_within: Duration::from_secs(5),
        // Hints are told by bytes and at the end, so that appends can be counted.
        hints_every: Duration::from_hours(1),
        ..RecorderOptions::default()
    }
}

pub(crate) fn inode(kind: Kind) -> Inode {
    Inode {
        kind,
        mode: 0o644,
        ..Inode::default()
    }
}

/// Plays what the log has.
pub(crate) fn play(broker: &FakeBroker) -> MemoryImage {
    let mut image = MemoryImage::new(Mode::Native, &FsmHints::of_log(LOG)).unwrap();
    let content = Bytes::from(broker.content(LOG));
    image.play(&LOG.into(), &content, |_, _, _| {}).unwrap();
    image
}

/// What a recorder goes on from after all that the log has now.
pub(crate) fn recovered(broker: &FakeBroker, number: u32) -> Start {
    let write_head = broker.head(LOG);
    let MemoryImage { fsm, tree, .. } = play(broker);
    Start {
        log: LOG.to_owned(),
        mode: Mode::Native,
        author: author(number),
        fsm,
        tree,
        liveness: None,
        root: inode(Kind::Directory),
        write_head,
    }
}

pub(crate) async fn start(broker: &FakeBroker, number: u32) -> Result<Recorder, RecorderError> {
    start_with(broker, number, options()).await
}

pub(crate) async fn start_with(
    broker: &FakeBroker,
    number: u32,
    options: RecorderOptions,
) -> Result<Recorder, RecorderError> {
    let client = broker.client_with(ClientOptions {
        append_give_up_after: Some(Duration::from_millis(500)),
        ..ClientOptions::default()
    });
    Recorder::start(client, recovered(broker, number), options).await
}

pub(crate) fn apply(recorder: &Recorder, mutation: &Mutation<'_>) -> Result<Recorded, Hold> {
    let reservation = recorder.reserve(mutation)?;
    Ok(recorder.record(reservation, mutation, &mut |_, _| 0))
}

pub(crate) fn place(name: &str) -> Place<'_> {
    Place {
        parent: Fnode::ROOT,
        name: name.as_bytes(),
    }
}

pub(crate) fn create(recorder: &Recorder, name: &str) -> Result<Fnode, Hold> {
    let inode = inode(Kind::Regular);
    let at = Some(place(name));
    let recorded = apply(recorder, &Mutation::Create { at, inode: &inode })?;
    Ok(recorded.fnode.expect("a new file has an fnode"))
}

pub(crate) fn write(
    recorder: &Recorder,
    fnode: Fnode,
    offset: u64,
    data: &[u8],
) -> Result<Recorded, Hold> {
    let mtime = Timestamp::default();
    apply(
        recorder,
        &Mutation::Write {
            fnode,
            offset,
            data,
            mtime,
        },
    )
}

/// Content of a file that the log has.
pub(crate) fn content(image: &MemoryImage, name: &str) -> Vec<u8> {
    let fnode = image.tree.lookup(Fnode::ROOT, name.as_bytes()).unwrap();
    image.content(fnode).bytes()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A barrier whose answer is received.
pub(crate) fn barrier(recorder: &Recorder) -> mpsc::Receiver<Result<(), Fault>> {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    recorder.barrier(move |result| drop(tell.lock().unwrap().send(result)));
    told
}

/// Names that were acknowledged, with whoever recorded them.
pub(crate) type Acknowledged = Arc<Mutex<Vec<String>>>;
