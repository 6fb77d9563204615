//! Damaged logs: an error that names the damage, or a tree that does not have it.

use bytes::BytesMut;
use gazette_recoverylog::{
    Source,
    fsm::{Author, Fnode, Inode, Mark, Mode, Mutation, OpWriter, Place as Named, Timestamp},
    history::{HistoryFilter, history},
    player::{HintsChoice, Point, RecoverError, RecoverOptions, Recovered, recover},
};

use crate::{
    look::{compare, look_at},
    support::{Place, broker_with, options, place},
    world::{LOG, World},
};

fn small_world(seed: u64) -> World {
    let mut world = World::new(seed, Mode::Native);
    world.seals_each = true;
    for _ in 0..14 {
        world.step();
    }
    world.mark(Mark::Idle);
    world
}

async fn played(log: &[u8], point: Point) -> (Result<Recovered, RecoverError>, Place) {
    let broker = broker_with(LOG, Mode::Native, log);
    let place = place();
    let options = RecoverOptions {
        point,
        hints: HintsChoice::Never,
        ..options(LOG, &place.to)
    };
    let source = Source::Broker(broker.client());
    let limit = std::time::Duration::from_secs(30);
    let result = tokio::time::timeout(limit, recover(&source, options))
        .await
        .expect("it ends");
    assert!(place.leftovers().is_empty());
    assert_eq!(result.is_ok(), place.to.exists());
    (result, place)
}

fn newest_before(world: &World, offset: i64) -> usize {
    world
        .cuts
        .iter()
        .rposition(|cut| cut.end <= offset)
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_cut_anywhere_plays_to_the_last_whole_group_and_reports_the_rest() {
    let world = small_world(50);
    let first = usize::try_from(world.cuts[0].end).unwrap();
    for length in (first..world.log.len())
        .step_by(5)
        .chain(world.log.len() - 80..world.log.len())
    {
        let (result, place) = played(&world.log[..length], Point::Head).await;
        let recovered = result.unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        let end = i64::try_from(length).unwrap();
        let cut = &world.cuts[newest_before(&world, end)];
        compare(
            look_at(&place.to, true),
            &cut.files,
            &format!("cut at {length}"),
        );
        assert_eq!((recovered.offset, recovered.write_head), (cut.end, end));
        let torn = recovered
            .report
            .torn_tail()
            .map(|torn| (torn.begin, torn.end));
        assert_eq!(
            torn,
            (cut.end < end).then_some((cut.end, end)),
            "cut at {length}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_a_changed_byte_is_an_error_or_plays_to_a_tree_that_it_had() {
    let world = small_world(51);
    let last = world.cuts.last().unwrap();
    let mut errors = 0;
    for (index, at) in (0..world.log.len()).step_by(11).enumerate() {
        let mut log = world.log.clone();
        log[at] ^= 1 << (index % 8);
        let (result, place) = played(&log, Point::Head).await;
        let title = format!("changed at {at}");
        let offset = i64::try_from(at).unwrap();
        match result {
            Ok(recovered) => match recovered.report.torn_tail() {
                // Only at the end can it look like a record that was cut.
                Some(torn) => {
                    assert!(torn.begin <= offset, "{title}: {torn:?}");
                    let cut = &world.cuts[newest_before(&world, torn.begin)];
                    compare(look_at(&place.to, true), &cut.files, &title);
                    assert!(cut.end >= last.end - 100, "{title}: {torn:?}");
                }
                None => compare(look_at(&place.to, true), &last.files, &title),
            },
            Err(RecoverError::Damaged(damage)) => {
                errors += 1;
                assert!(damage.good <= offset, "{title}: {damage}");
                let (result, place) = played(&log, Point::Offset(damage.good)).await;
                let recovered = result.unwrap_or_else(|error| panic!("{title}: {damage}; {error}"));
                assert_eq!(recovered.offset, damage.good);
                let cut = &world.cuts[newest_before(&world, damage.good)];
                if cut.end == damage.good {
                    compare(look_at(&place.to, true), &cut.files, &title);
                } else {
                    assert!(damage.good < world.cuts[0].end, "{title}: {damage}");
                }
            }
            Err(error) => panic!("{title}: {error}"),
        }
    }
    assert!(errors > 60, "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lacks_an_append_is_an_error_and_one_that_has_it_twice_is_not() {
    let world = small_world(52);
    for pair in world.cuts.windows(2).take(world.cuts.len() - 2) {
        let [begin, end] = [&pair[0], &pair[1]].map(|cut| usize::try_from(cut.end).unwrap());
        let lacking = [&world.log[..begin], &world.log[end..]].concat();
        let (result, _) = played(&lacking, Point::Head).await;
        let error = result.map(|recovered| recovered.offset).unwrap_err();
        assert!(matches!(error, RecoverError::Damaged(_)), "{error}");
        let twice = [&world.log[..end], &world.log[begin..]].concat();
        let (result, place) = played(&twice, Point::Head).await;
        assert!(result.unwrap().report.dead_ops > 0);
        let last = world.cuts.last().unwrap();
        compare(look_at(&place.to, true), &last.files, "twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_told_with_its_offset_its_time_and_its_files() {
    let mut world = World::new(53, Mode::Native);
    world.seals_each = true;
    for _ in 0..40 {
        world.step();
    }
    // A byte of content, which its own sum tells.
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let source = Source::Broker(broker.client());
    let mut entries = history(&source, LOG, HistoryFilter::default())
        .await
        .unwrap();
    while let Some(entry) = entries.next().await {
        let entry = entry.unwrap();
        if entry.event.name() != "write" {
            continue;
        }
        let mut log = world.log.clone();
        log[usize::try_from(entry.end).unwrap() - 1] ^= 1;
        let (result, _) = played(&log, Point::Head).await;
        let Err(RecoverError::Damaged(damage)) = result else {
            panic!("{result:?}");
        };
        // Several ops, where a write has blocks of zeros.
        assert!(
            (entry.offset..entry.end).contains(&damage.offset),
            "{damage}"
        );
        assert!(damage.good <= entry.offset, "{damage}");
        assert_eq!(damage.time, entry.time);
        assert!(damage.files.contains(&entry.paths[0].to_vec()), "{damage}");
        assert!(damage.to_string().contains("CRC-32C"), "{damage}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_that_cannot_be_had_are_refused_with_what_can() {
    let world = small_world(54);
    let head = i64::try_from(world.log.len()).unwrap();
    let (result, _) = played(&world.log, Point::Offset(head + 1)).await;
    let error = result
        .map(|recovered| recovered.offset)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("it ends at {head}; next: ")),
        "{error}"
    );
    let early = Timestamp {
        seconds: 3,
        nanos: 0,
    };
    let (result, _) = played(&world.log, Point::Time(early)).await;
    let error = result
        .map(|recovered| recovered.offset)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("its first op is of 1970-01-12T13:46:40.000Z"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_author_who_goes_on_behind_a_torn_record_is_followed() {
    let world = small_world(55);
    let whole = world.cuts[8].end;
    let torn = whole + 30;
    let mut log = world.log[..usize::try_from(torn).unwrap()].to_vec();
    let (result, _) = played(&log, Point::Head).await;
    let recovered = result.unwrap();
    assert_eq!((recovered.offset, recovered.write_head), (whole, torn));
    let author = Author::new(8).unwrap();
    let Recovered { fsm, tree, .. } = recovered;
    let mut writer = OpWriter::new(Mode::Native, author, LOG, fsm, tree).unwrap();
    let mut out = BytesMut::new();
    let now = writer.last_time().unwrap();
    writer.mark(Mark::Claim, now, &mut out);
    let inode = Inode {
        mode: 0o640,
        ..Inode::default()
    };
    let at = Some(Named {
        parent: Fnode::ROOT,
        name: b"of the successor",
    });
    let create = Mutation::Create { at, inode: &inode };
    writer.write(&create, now, &mut |_, _| 0, &mut out).unwrap();
    log.extend_from_slice(&out);
    let (result, place) = played(&log, Point::Head).await;
    let recovered = result.unwrap();
    assert_eq!(recovered.last_author, Some(author));
    assert!(place.to.join("of the successor").exists());
    let skipped = &recovered.report.skipped;
    let skipped: Vec<_> = skipped
        .iter()
        .map(|s| (s.begin, s.end, s.is_tail))
        .collect();
    assert_eq!(skipped, [(whole, torn, false)]);
}
