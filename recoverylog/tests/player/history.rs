//! The history of a log, as it is shown to people.

use gazette_recoverylog::{
    Source,
    fsm::Mode,
    history::{HistoryEntry, HistoryFilter, Moment, history},
};

use crate::{
    histories::{add_hints, world},
    support::broker_with,
    world::LOG,
};

async fn all(source: &Source, filter: HistoryFilter) -> Vec<HistoryEntry> {
    let mut history = history(source, LOG, filter).await.unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = history.next().await {
        entries.push(entry.unwrap());
    }
    entries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_tells_each_group_of_ops_and_filters() {
    let world = world(40, Mode::Native, 120);
    let broker = broker_with(LOG, Mode::Native, &world.log);
    add_hints(&broker, &world);
    let source = Source::Broker(broker.client());
    let entries = all(&source, HistoryFilter::default()).await;
    assert_eq!(entries[0].event.name(), "claim");
    assert_eq!(entries[0].offset, 0);
    assert!(entries.is_sorted_by_key(|entry| entry.offset));
    assert!(
        entries
            .iter()
            .all(|entry| entry.time.is_some() && entry.author == 7)
    );
    for cut in &world.cuts {
        let last = entries.iter().rfind(|entry| entry.end <= cut.end).unwrap();
        assert_eq!((last.end, last.time), (cut.end, Some(cut.time)));
    }
    for name in [
        "create",
        "write",
        "rename",
        "unlink",
        "link",
        "attributes",
        "set-xattr",
        "truncate",
    ] {
        assert!(
            entries.iter().any(|entry| entry.event.name() == name),
            "{name}"
        );
    }
    let renames = entries
        .iter()
        .filter(|entry| entry.event.name() == "rename");
    assert!(
        renames
            .clone()
            .all(|entry| entry.paths.len() == 2 && entry.paths[0] != entry.paths[1])
    );

    // From a point on, hints make it unnecessary to read all.
    for cut in world.cuts.iter().step_by(9) {
        for (from, until) in [
            (Some(Moment::Offset(cut.end)), None),
            (None, Some(Moment::Offset(cut.end))),
            (Some(Moment::Time(cut.time)), None),
            (None, Some(Moment::Time(cut.time))),
        ] {
            let wanted: Vec<_> = entries
                .iter()
                .filter(|entry| match from.or(until).unwrap() {
                    Moment::Offset(offset) if from.is_some() => entry.offset >= offset,
                    Moment::Offset(offset) => entry.end <= offset,
                    Moment::Time(time) if from.is_some() => entry.time.unwrap() >= time,
                    Moment::Time(time) => entry.time.unwrap() <= time,
                })
                .cloned()
                .collect();
            let filter = HistoryFilter {
                from,
                until,
                ..HistoryFilter::default()
            };
            assert_eq!(all(&source, filter).await, wanted, "{from:?} {until:?}");
        }
    }
    let below = entries.iter().flat_map(|entry| &entry.paths);
    let below = below.filter(|path| path.split(|byte| *byte == b'/').count() == 3);
    let wanted = below
        .map(|path| path.split(|byte| *byte == b'/').nth(1).unwrap().to_vec())
        .next();
    let wanted = [b"/", &wanted.unwrap()[..]].concat();
    let filter = HistoryFilter {
        path: Some(wanted.clone().into()),
        ..HistoryFilter::default()
    };
    let about = all(&source, filter).await;
    assert!(about.len() > 1 && about.len() < entries.len());
    let inside = [&wanted[..], b"/"].concat();
    assert!(about.iter().all(|entry| {
        entry
            .paths
            .iter()
            .any(|path| path.as_ref() == wanted || path.starts_with(&inside))
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_whose_beginning_is_pruned_begins_with_the_oldest_hints() {
    let mut world = world(41, Mode::Native, 120);
    world.note_hints();
    let broker = broker_with(LOG, Mode::Native, &[]);
    let hints = world.hints.last().unwrap();
    add_hints(&broker, &world);
    broker.append(LOG, &world.log);
    let whole = Source::Broker(broker.client());
    let filter = || HistoryFilter {
        from: Some(Moment::Offset(hints.offset)),
        ..HistoryFilter::default()
    };
    let wanted = all(&whole, filter()).await;
    // All that the newest hints do without goes away at the beginning.
    let first = hints.hints.live_nodes[0].segments[0].first_offset;
    assert!(first > 0, "the first op is a mark");
    broker.truncate(LOG, first);
    let entries = all(&whole, HistoryFilter::default()).await;
    assert!(entries.len() >= wanted.len());
    assert_eq!(entries[entries.len() - wanted.len()..], wanted);
}
