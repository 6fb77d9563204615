//! Random histories are recovered at each of their points, and compared in full with the directory that was
//! recorded.

use std::fs;

use gazette_client::{ClientOptions, fake::FakeBroker};
use gazette_protocol::CompressionCodec;
use gazette_recoverylog::{
    Source,
    fsm::{Mode, Timestamp},
    player::{HintsUse, Point, RecoverOptions, Recovered, recover},
};

use crate::{
    look::{compare, look_at},
    support::{broker_with, options, place},
    world::{LOG, World},
};

pub(crate) fn world(seed: u64, mode: Mode, steps: usize) -> World {
    let mut world = World::new(seed, mode);
    for _ in 0..steps {
        world.step();
    }
    world.seal();
    world
}

pub(crate) fn add_hints(broker: &FakeBroker, world: &World) {
    let journal = format!("{LOG}.hints");
    broker.create(&journal);
    for hints in &world.hints {
        broker.append(&journal, &hints.encode().unwrap());
    }
}

async fn check(
    source: &Source,
    world: &World,
    index: usize,
    point: Point,
    title: &str,
) -> Recovered {
    let place = place();
    let options = RecoverOptions {
        point,
        ..options(LOG, &place.to)
    };
    let recovered = recover(source, options)
        .await
        .unwrap_or_else(|error| panic!("{title}: {error}"));
    let with_data = world.mode == Mode::Native;
    compare(
        look_at(&place.to, with_data),
        &world.cuts[index].files,
        title,
    );
    assert!(place.leftovers().is_empty(), "{title}");
    assert_eq!(recovered.offset, world.cuts[index].end, "{title}");
    assert!(recovered.report.skipped.is_empty(), "{title}");
    assert_eq!(recovered.report.not_restored_count, 0, "{title}");
    assert_eq!(recovered.mode, Some(world.mode), "{title}");
    recovered
}

async fn at_each_point(seed: u64, mode: Mode, with_hints: bool) {
    let world = world(seed, mode, 60);
    let broker = broker_with(LOG, mode, &world.log);
    if with_hints {
        add_hints(&broker, &world);
    }
    let source = Source::Broker(broker.client());
    for (index, cut) in world.cuts.iter().enumerate() {
        let title = format!("{mode:?}, seed {seed}, cut {index} at {}", cut.end);
        let recovered = check(&source, &world, index, Point::Offset(cut.end), &title).await;
        let newest = world
            .hints
            .iter()
            .rev()
            .find(|hints| hints.offset <= cut.end);
        let expected = match newest {
            Some(hints) if with_hints => HintsUse::Of(hints.offset),
            _ => HintsUse::None,
        };
        assert_eq!(recovered.report.hints, expected, "{title}");
        let title = format!("{mode:?}, seed {seed}, cut {index} at {:?}", cut.time);
        let later = Timestamp {
            nanos: cut.time.nanos + 1,
            ..cut.time
        };
        check(&source, &world, index, Point::Time(cut.time), &title).await;
        check(&source, &world, index, Point::Time(later), &title).await;
    }
    let last = world.cuts.len() - 1;
    check(&source, &world, last, Point::Head, "the head").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_history_is_recovered_at_each_point() {
    for seed in 0..3 {
        at_each_point(seed, Mode::Native, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_history_is_recovered_at_each_point_by_hints() {
    for seed in 10..13 {
        at_each_point(seed, Mode::Native, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compat_history_is_recovered_at_each_point() {
    at_each_point(20, Mode::Compat, false).await;
    at_each_point(21, Mode::Compat, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_is_recovered_from_fragments_of_each_codec_with_and_without_brokers() {
    let mut world = world(30, Mode::Native, 80);
    world.note_hints();
    let store = tempfile::tempdir().unwrap();
    let broker = broker_with(LOG, Mode::Native, &[]);
    let codecs = [
        CompressionCodec::None,
        CompressionCodec::Gzip,
        CompressionCodec::Zstandard,
        CompressionCodec::Snappy,
    ];
    let mut at = 0;
    let mut stored = 0;
    for (index, codec) in codecs.iter().cycle().take(11).enumerate() {
        // Fragments end anywhere.
        let end = world.log.len() * (index + 1) / 12;
        broker.append(LOG, &world.log[at..end]);
        let fragment = broker.store(LOG, *codec, store.path()).unwrap();
        stored = fragment.end;
        at = end;
    }
    broker.append(LOG, &world.log[at..]);
    add_hints(&broker, &world);
    broker
        .store(
            &format!("{LOG}.hints"),
            CompressionCodec::Gzip,
            store.path(),
        )
        .unwrap();
    let last = world.cuts.len() - 1;
    let client = broker.client_with(ClientOptions {
        file_root: Some(store.path().to_owned()),
        ..ClientOptions::default()
    });
    check(
        &Source::Broker(client),
        &world,
        last,
        Point::Head,
        "fragments read here",
    )
    .await;
    let proxied = Source::Broker(broker.client());
    check(
        &proxied,
        &world,
        last,
        Point::Head,
        "fragments read by the broker",
    )
    .await;

    // What was never persisted is not in the store.
    let source = Source::of_store(&format!("file://{}/", store.path().display()));
    let newest = world
        .cuts
        .iter()
        .rposition(|cut| cut.end <= stored)
        .unwrap();
    let place = place();
    // Hints of what is not stored are left aside.
    assert!(world.hints.iter().any(|hints| hints.offset > stored));
    let later = Timestamp {
        seconds: i64::MAX,
        nanos: 0,
    };
    for point in [Point::Head, Point::Time(later)] {
        let recovered = recover(
            &source,
            RecoverOptions {
                point,
                ..options(LOG, &place.to)
            },
        )
        .await
        .unwrap();
        assert!(matches!(recovered.report.hints, HintsUse::Of(offset) if offset <= stored));
        fs::remove_dir_all(&place.to).unwrap();
    }
    let recovered = recover(&source, options(LOG, &place.to)).await.unwrap();
    compare(
        look_at(&place.to, true),
        &world.cuts[newest].files,
        "the store alone",
    );
    assert_eq!(recovered.report.unpersisted_from, Some(stored));
    assert_eq!(recovered.mode, Some(Mode::Native));
    fs::remove_dir_all(store.path().join(format!("{LOG}.hints"))).unwrap();
    check(
        &source,
        &world,
        newest,
        Point::Offset(world.cuts[newest].end),
        "no hints",
    )
    .await;
}
