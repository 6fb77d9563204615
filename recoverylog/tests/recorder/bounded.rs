//! Logs that are rewritten for ever, cleaned and pruned, with a real broker and its disk.

use std::{path::Path, sync::Arc, time::Duration};

use gazette_broker::{Embedded, EmbeddedOptions};
use gazette_client::Client;
use gazette_protocol::{CompressionCodec, FragmentsRequest, JournalSpec, journal_spec};
use gazette_recoverylog::{
    Source,
    fsm::{
        Fnode, FsmHints, Kind, Mode, SizeChange, Timestamp,
        clean::{CleanPolicy, Repeat},
        prune::Verdict,
    },
    hints::{HintsHome, HintsPoint, JournalHints, NoteBody, Pin, PinError, append_note, pin},
    history::{HistoryFilter, history},
    journals::make_log,
    player::{Point, RecoverOptions, Recovered, recover},
    prune::{PruneError, PruneOptions, PrunePlanted, Pruned, prune},
    recorder::{Recorder, RecorderOptions, Start},
};
use gazette_recoverylog_fsm::Mutation;
use gazette_stores::{Fault, FaultyStore, Operation, Store, StoreConfig, StoreErrorKind, Stores};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::support::{LOG, apply, author, create, eventually, inode, options};

const FRAGMENT: i64 = 512 << 10;
const PAGE: usize = 4096;
/// Pages of the file.
const PAGES: usize = 512;
const SLACK: u64 = 8 << 20;

/// A log, whoever records into it, and what he recorded.
struct House {
    _broker: Embedded,
    client: Client,
    stores: Stores,
    recorder: Option<Recorder>,
    number: u32,
    file: Fnode,
    content: Vec<u8>,
    mtime: Timestamp,
    random: StdRng,
}

fn recorder_options() -> RecorderOptions {
    RecorderOptions {
        hints_at_least_bytes: 256 << 10,
        ..options()
    }
}

fn policy() -> CleanPolicy {
    CleanPolicy {
        floor_bytes: 2 << 20,
        ..CleanPolicy::default()
    }
}

impl House {
    async fn new(data: &Path, seed: u64) -> Self {
        let options = EmbeddedOptions::new(data, "unix://localhost/not/served");
        let stores = Stores::new(StoreConfig {
            file_root: Some(options.fragments_dir()),
            ..StoreConfig::default()
        });
        let broker = Embedded::start(options).await.unwrap();
        let client = broker.client();
        let template = JournalSpec {
            replication: 1,
            fragment: journal_spec::Fragment {
                length: FRAGMENT,
                compression_codec: CompressionCodec::None.into(),
                stores: vec!["file:///".to_owned()],
                refresh_interval: Duration::from_secs(1).try_into().unwrap(),
                ..journal_spec::Fragment::default()
            },
            ..JournalSpec::default()
        };
        make_log(&client, LOG, Mode::Native, &template)
            .await
            .unwrap();
        let start = Start::fresh(LOG, Mode::Native, author(1), inode(Kind::Directory)).unwrap();
        let recorder = Recorder::start(client.clone(), start, recorder_options())
            .await
            .unwrap();
        let file = create(&recorder, "data").unwrap();
        let house = Self {
            _broker: broker,
            client,
            stores,
            recorder: Some(recorder),
            number: 1,
            file,
            content: vec![0; PAGES * PAGE],
            mtime: Timestamp::default(),
            random: StdRng::seed_from_u64(seed),
        };
        let size = house.content.len() as u64;
        house.change(&Mutation::Size {
            fnode: file,
            change: SizeChange::Truncate { size },
            mtime: Timestamp::default(),
        });
        house
    }

    fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().unwrap()
    }

    fn change(&self, mutation: &Mutation<'_>) {
        apply(self.recorder(), mutation).unwrap();
    }

    /// Rewrites as much as the file has, at random places.
    async fn rewrite(&mut self) {
        for _ in 0..PAGES {
            let offset = self.random.random_range(0..PAGES) * PAGE;
            let data = [self.random.random_range(1..=u8::MAX); PAGE];
            self.mtime.seconds += 1;
            self.content[offset..offset + PAGE].copy_from_slice(&data);
            self.change(&Mutation::Write {
                fnode: self.file,
                offset: offset as u64,
                data: &data,
                mtime: self.mtime,
            });
        }
        self.recorder().flush().await.unwrap();
    }

    async fn clean(&self) {
        for _ in 0..8 {
            let chosen = self.recorder().choose_repeats(&policy(), 1 << 20);
            if chosen.is_empty() {
                return;
            }
            for repeat in &chosen {
                let reservation = self.recorder().reserve_repeat(repeat).unwrap();
                let data = match *repeat {
                    Repeat::Content {
                        fnode,
                        offset,
                        length,
                    } if fnode == self.file => {
                        let (from, length) = (
                            usize::try_from(offset).unwrap(),
                            usize::try_from(length).unwrap(),
                        );
                        &self.content[from..from + length]
                    }
                    Repeat::Content { .. } | Repeat::Size { .. } | Repeat::Inode { .. } => &[],
                };
                self.recorder().repeat(reservation, repeat, data);
            }
            self.recorder().flush().await.unwrap();
        }
    }

    /// Rewrites and cleans until so much may go. Hints and fragments come some time behind what is recorded.
    async fn rewrite_until_goes(&mut self, bytes: u64) {
        for round in 0.. {
            self.rewrite().await;
            self.clean().await;
            let dry = PruneOptions {
                is_dry_run: true,
                ..PruneOptions::default()
            };
            if round >= 8 && self.prune(dry).await.bytes().1 >= bytes {
                return;
            }
            assert!(round < 200, "less than {bytes} bytes ever go");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn prune(&self, options: PruneOptions) -> Pruned {
        prune(&self.client, &self.stores, LOG, options)
            .await
            .unwrap()
    }

    async fn recovered(&self, point: Point) -> Result<(Recovered, Vec<u8>), String> {
        let place = tempfile::tempdir().unwrap();
        let source = Source::Broker(self.client.clone());
        let options = RecoverOptions {
            point,
            sync: false,
            ..RecoverOptions::new(LOG, place.path().join("to"))
        };
        let recovered = recover(&source, options).await;
        let recovered = recovered.map_err(|error| error.to_string())?;
        let content = std::fs::read(recovered.path.join("data"));
        Ok((recovered, content.map_err(|error| error.to_string())?))
    }

    /// Recovers, and looks whether it is right, and how much was read.
    async fn check(&self) {
        let (recovered, content) = self.recovered(Point::Head).await.unwrap();
        assert!(content == self.content, "another content was recovered");
        let attributes = recovered.tree.attributes(self.file).unwrap();
        assert_eq!(attributes.mtime, Some(self.mtime));
        let live = self.content.len() as u64;
        assert!(
            recovered.report.bytes < 3 * live + SLACK,
            "a recovery read {}",
            recovered.report.bytes
        );
    }

    /// Another owner goes on.
    async fn take_over(&mut self) {
        let recorder = self.recorder.take().unwrap();
        recorder.stop().await.unwrap();
        let (recovered, _) = self.recovered(Point::Head).await.unwrap();
        self.number += 1;
        let start = Start {
            log: LOG.to_owned(),
            mode: Mode::Native,
            author: author(self.number),
            fsm: recovered.fsm,
            tree: recovered.tree,
            liveness: recovered.liveness,
            root: inode(Kind::Directory),
            write_head: recovered.write_head,
        };
        let recorder = Recorder::start(self.client.clone(), start, recorder_options()).await;
        self.recorder = Some(recorder.unwrap());
    }

    async fn retained(&self) -> u64 {
        let request = FragmentsRequest {
            journal: LOG.to_owned(),
            ..FragmentsRequest::default()
        };
        let listed = self.client.list_all_fragments(request).await.unwrap();
        let stored = listed.iter().filter(|listed| listed.spec.mod_time != 0);
        stored
            .map(|listed| listed.spec.end.abs_diff(listed.spec.begin))
            .sum()
    }

    /// The hints that are published of now.
    async fn published(&self) -> (i64, FsmHints) {
        let acked = self.recorder().flush().await.unwrap();
        let home = JournalHints::new(self.client.clone(), LOG);
        let newest = home.newest(HintsPoint::Head).await.unwrap().unwrap();
        assert!(newest.offset <= acked.offset);
        (newest.offset, newest.hints)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_rewritten_for_ever_stays_small_and_recovers() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 5).await;
    let live = house.content.len() as u64;
    for round in 0..30 {
        house.rewrite().await;
        house.clean().await;
        if round % 2 == 1 {
            house.prune(PruneOptions::default()).await;
        }
        if round % 6 == 5 {
            house.check().await;
        }
        if round % 10 == 9 {
            house.take_over().await;
        }
    }
    let written = house.recorder().acked().offset.unsigned_abs();
    assert!(written > 20 * live, "{written}");
    // The broker lists its store again each second.
    let limit = 4 * live + SLACK;
    for _ in 0..50 {
        house.prune(PruneOptions::default()).await;
        if house.retained().await < limit {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let retained = house.retained().await;
    assert!(retained < limit, "{retained} of {live} are retained");
    let estimate = house.recorder().estimate();
    assert!(estimate.read_bytes < 3 * live + SLACK, "{estimate:?}");
    assert!(estimate.live_bytes <= live + 4 * 512, "{estimate:?}");
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_again_is_no_part_of_the_history() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 6).await;
    for _ in 0..6 {
        house.rewrite().await;
        house.clean().await;
    }
    let source = Source::Broker(house.client.clone());
    let mut history = history(&source, LOG, HistoryFilter::default())
        .await
        .unwrap();
    let (mut told, mut repeats) = (0, 0);
    while let Some(entry) = history.next().await {
        let entry = entry.unwrap();
        if entry.event.is_repeat() {
            repeats += 1;
        } else {
            told += 1;
        }
    }
    assert!(repeats > 3, "{repeats}");
    // All of a batch that are neighbours may be one.
    assert!(told > 100 && told < 6 * PAGES + 20, "{told}");
}

/// Prunes a log of which a moment is kept, and says whether it can be had then.
async fn kept_moment(options: PruneOptions) -> (bool, bool) {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 7).await;
    house.rewrite().await;
    house.rewrite().await;
    let then = house.content.clone();
    let to = house.recorder().flush().await.unwrap().offset;
    let (from, hints) = house.published().await;
    let kept = Pin {
        name: "keep/then".to_owned(),
        until: None,
        from,
        to,
        hints,
    };
    pin(&house.client, LOG, kept).await.unwrap();
    for _ in 0..8 {
        house.rewrite().await;
        house.clean().await;
        house.prune(options).await;
    }
    let at = house.recovered(Point::Offset(to)).await;
    let was_there = at.is_ok_and(|(_, content)| content == then);
    let name = "keep/then".to_owned();
    append_note(&house.client, LOG, NoteBody::Release { name })
        .await
        .unwrap();
    house.prune(options).await;
    let is_there = house.recovered(Point::Offset(to)).await.is_ok();
    house.check().await;
    (was_there, is_there)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_keeps_a_moment_until_it_is_released() {
    assert_eq!(kept_moment(PruneOptions::default()).await, (true, false));
    let overlooks = PruneOptions {
        planted: Some(PrunePlanted::NoPins),
        ..PruneOptions::default()
    };
    assert_eq!(kept_moment(overlooks).await, (false, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_pins_what_a_pruner_is_about_to_remove_is_told() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 8).await;
    house.rewrite().await;
    let (from, hints) = house.published().await;
    let ranges = vec![(0, FRAGMENT)];
    append_note(&house.client, LOG, NoteBody::Prune { ranges })
        .await
        .unwrap();
    let late = |name: &str| Pin {
        name: name.to_owned(),
        until: None,
        from,
        to: from,
        hints: hints.clone(),
    };
    let error = pin(&house.client, LOG, late("keep/late")).await;
    assert!(
        matches!(&error, Err(PinError::Gone { begin: 0, .. })),
        "{error:?}"
    );
    // It is over: nothing is kept for it.
    let pruned = house
        .prune(PruneOptions {
            is_dry_run: true,
            ..PruneOptions::default()
        })
        .await;
    let keeps_late = pruned.fragments.iter().any(|of| {
        let late: Arc<str> = "keep/late".into();
        matches!(&of.verdict, Verdict::Needed(by) if by.contains(&late))
    });
    assert!(!keeps_late);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pruner_that_is_stopped_at_any_step_takes_nothing_that_is_needed() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 11).await;
    house.rewrite_until_goes(16 * FRAGMENT.unsigned_abs()).await;
    let faulty = Arc::new(FaultyStore::new(house.stores.get("file:///")));
    let stores = Stores::new(StoreConfig::default());
    let shared: Arc<dyn Store> = Arc::<FaultyStore>::clone(&faulty);
    stores.insert("file:///", shared);
    let mut stops = 0;
    for step in 0..100 {
        faulty.heal();
        let fault = if step % 2 == 0 {
            Fault::Fail(StoreErrorKind::Denied)
        } else {
            Fault::LoseAnswer(StoreErrorKind::Denied)
        };
        let passes = std::iter::repeat_n(Fault::Pass, step % 3);
        faulty.script(Operation::Remove, passes.chain([fault]));
        match prune(&house.client, &stores, LOG, PruneOptions::default()).await {
            Err(PruneError::Store(_)) => stops += 1,
            Ok(_) => break,
            Err(error) => panic!("{error}"),
        }
        house.check().await;
    }
    assert!(stops > 5, "it was stopped {stops} times");
    house.take_over().await;
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_removes_nothing_and_says_what_stays_for_whom() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 9).await;
    house.rewrite_until_goes(1).await;
    let dry = PruneOptions {
        is_dry_run: true,
        ..PruneOptions::default()
    };
    let told = house.prune(dry).await;
    let (stays, goes) = told.bytes();
    assert!(stays > 0 && goes > 0, "{stays} {goes}");
    assert!(told.fragments.iter().all(|of| !of.is_removed));
    let done = house.prune(PruneOptions::default()).await;
    let removed = done.fragments.iter().filter(|of| of.is_removed);
    let removed: u64 = removed
        .map(|of| of.fragment.end.abs_diff(of.fragment.begin))
        .sum();
    assert!(removed >= goes, "{removed} {goes}");
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_that_need_what_is_gone_count_neither_for_pruners_nor_for_players() {
    let data = tempfile::tempdir().unwrap();
    let mut house = House::new(data.path(), 10).await;
    house.rewrite().await;
    eventually("hints are published", || {
        house.recorder().status().hints_offset.is_some()
    })
    .await;
    // As of one who was away meanwhile.
    let home = JournalHints::new(house.client.clone(), LOG);
    let mut stale = home.newest(HintsPoint::Head).await.unwrap().unwrap();
    for _ in 0..8 {
        house.rewrite().await;
        house.clean().await;
        house.prune(PruneOptions::default()).await;
    }
    let newest = home.newest(HintsPoint::Head).await.unwrap().unwrap();
    stale.offset = house.recorder().flush().await.unwrap().offset;
    for _ in 0..3 {
        home.publish(&stale).await.unwrap();
    }
    let pruned = house.prune(PruneOptions::default()).await;
    let what: Arc<str> = "the newest hints".into();
    let mut needed = pruned.fragments.iter().filter(
        |of| matches!(&of.verdict, Verdict::Needed(by) if of.fragment.journal == LOG && by.contains(&what)),
    );
    let first = needed.next().unwrap().fragment.begin;
    let first_hinted = newest.hints.live_nodes[0].segments[0].first_offset;
    assert!(first <= first_hinted && first_hinted < first + 2 * FRAGMENT);
    house.check().await;
}
