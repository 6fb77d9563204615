//! Rounds of load, end, restart and judgement.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use gazette_tests::{
    forgetful,
    workload::{self, Damage},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tempfile::TempDir;

use crate::{
    broker::Broker,
    load::{self, Ledger},
};

/// Acknowledgements that a round must have before the broker is ended.
const ACKNOWLEDGED_MIN: usize = 100;
/// How long a writer tries an append: after the end of the broker, that long for nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for them.
const LOAD_MAX: Duration = Duration::from_mins(1);

/// Faults that can be planted into the broker, each with the ending that must find it.
pub(crate) const FAULTS: &[(&str, Ending)] = &[
    ("late-log-write", Ending::Kill),
    ("no-log-sync", Ending::PowerCut),
    ("no-record-check", Ending::PowerCut),
    ("no-spool-sync", Ending::PowerCut),
    ("no-directory-sync", Ending::PowerCut),
];

/// How the broker of a round ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By kill -9: the page cache survives.
    Kill,
    /// By a power cut: what was not synced is gone, or not, as a seed decides.
    PowerCut,
}

/// A number of rounds on the same data.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) ending: Ending,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) fault: Option<&'static str>,
}

/// What a campaign showed.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It ran.
    Ran {
        rounds: u32,
        acknowledged: usize,
        damage: Damage,
    },
    /// It could not run here.
    Skipped(String),
}

impl Outcome {
    pub(crate) fn is_damaged(&self) -> bool {
        matches!(self, Self::Ran { damage, .. } if damage.is_any())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran {
                rounds,
                acknowledged,
                damage,
            } => {
                write!(f, "{rounds} rounds, {acknowledged} acknowledged: {damage}")
            }
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

impl Campaign {
    pub(crate) fn name(&self) -> String {
        let ending = match self.ending {
            Ending::Kill => "kill -9",
            Ending::PowerCut => "power cut",
        };
        match self.fault {
            Some(fault) => format!("{ending}, planted fault {fault}"),
            None => ending.to_owned(),
        }
    }

    /// Runs the rounds; a planted fault ends them when it is found.
    pub(crate) async fn run(&self) -> anyhow::Result<Outcome> {
        if self.ending == Ending::PowerCut
            && let Err(why) = forgetful::available()
        {
            return Ok(Outcome::Skipped(why));
        }
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut house = House::new()?;
        let ledger = Arc::new(Mutex::new(Ledger::new()));
        let mut next = vec![0_u64; load::WRITERS as usize];
        let mut total = 0;
        let mut damage = Damage::default();
        for number in 1..=self.rounds {
            let before = count(&ledger);
            self.load(&mut house, &mut random, &mut next, &ledger)
                .await?;
            let acknowledged = count(&ledger) - before;
            total += acknowledged;
            ensure!(
                acknowledged >= ACKNOWLEDGED_MIN,
                "round {number} has only {acknowledged} acknowledgements"
            );
            let found = self.judge(&mut house, &ledger).await?;
            println!(
                "{} round {number}: {acknowledged} acknowledged, {found}",
                self.name()
            );
            damage.add(found);
            if damage.is_any() {
                // What a planted fault did is known.
                if self.fault.is_none() {
                    println!("{}: the data is kept in {}", self.name(), house.keep());
                }
                return Ok(Outcome::Ran {
                    rounds: number,
                    acknowledged: total,
                    damage,
                });
            }
        }
        Ok(Outcome::Ran {
            rounds: self.rounds,
            acknowledged: total,
            damage,
        })
    }

    /// Starts the broker, lets the writers go, and ends it at a random moment.
    async fn load(
        &self,
        house: &mut House,
        random: &mut StdRng,
        next: &mut [u64],
        ledger: &Arc<Mutex<Ledger>>,
    ) -> anyhow::Result<()> {
        let power = match self.ending {
            Ending::Kill => None,
            Ending::PowerCut => Some(forgetful::mount(&house.data(), &house.mount())?),
        };
        let data = if power.is_some() {
            house.mount()
        } else {
            house.data()
        };
        let broker = Broker::start(&data, &house.socket(), self.fault).await?;
        load::create_journals(&broker.client()?).await?;
        let already = count(ledger);
        let mut writers = Vec::new();
        let over = Arc::new(AtomicBool::new(false));
        for (writer, first) in (0..).zip(next.iter().copied()) {
            let client = broker.client_with(PATIENCE)?;
            let ledger = Arc::clone(ledger);
            writers.push(tokio::spawn(load::write(
                client,
                writer,
                first,
                random.random(),
                ledger,
                Arc::clone(&over),
            )));
        }
        let waited = tokio::time::timeout(LOAD_MAX, async {
            while count(ledger) < already + ACKNOWLEDGED_MIN {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.context("wait for acknowledgements")?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
        match power {
            None => broker.kill()?,
            Some(power) => {
                power.cut(random.random())?;
                over.store(true, Ordering::Release);
                broker.kill()?;
                house.become_survivors(power)?;
            }
        }
        over.store(true, Ordering::Release);
        for (writer, last) in writers.into_iter().zip(next) {
            *last = writer.await.context("a writer panicked")?;
        }
        Ok(())
    }

    /// Starts the broker again and compares each journal with what was acknowledged.
    async fn judge(&self, house: &mut House, ledger: &Mutex<Ledger>) -> anyhow::Result<Damage> {
        let broker = Broker::start(&house.data(), &house.socket(), self.fault).await?;
        let client = broker.client()?;
        let mut damage = Damage::default();
        for number in 0..load::JOURNALS {
            let name = load::journal(number);
            let acknowledged = ledger
                .lock()
                .expect("no writer panics")
                .get(&name)
                .cloned()
                .unwrap_or_default();
            // The registers first: their append waits until the journal is served.
            let left = async {
                let registers = load::registers(&client, &name).await?;
                anyhow::Ok((registers, load::read_all(&client, &name).await?))
            };
            match left.await {
                Ok((registers, content)) => {
                    damage.add(workload::judge(&content, &registers, &acknowledged));
                }
                Err(error) => {
                    println!("{}: {error:#}", self.name());
                    damage.add(Damage {
                        unserved: 1,
                        ..Damage::default()
                    });
                }
            }
        }
        broker.kill()?;
        Ok(damage)
    }
}

fn count(ledger: &Mutex<Ledger>) -> usize {
    ledger
        .lock()
        .expect("no writer panics")
        .values()
        .map(Vec::len)
        .sum()
}

/// The folder of a campaign, whose data moves on at each power cut.
struct House {
    base: TempDir,
    generation: u32,
}

impl House {
    fn new() -> anyhow::Result<Self> {
        let base = tempfile::Builder::new().prefix("gazfs-crash-").tempdir()?;
        let house = Self {
            base,
            generation: 0,
        };
        std::fs::create_dir(house.data())?;
        std::fs::create_dir(house.mount())?;
        Ok(house)
    }

    /// Leaves the folder behind, for who looks for the cause. Returns its path.
    fn keep(&mut self) -> String {
        self.base.disable_cleanup(true);
        self.base.path().display().to_string()
    }

    fn data(&self) -> PathBuf {
        self.base.path().join(format!("data-{}", self.generation))
    }

    fn mount(&self) -> PathBuf {
        self.base.path().join("mount")
    }

    fn socket(&self) -> PathBuf {
        self.base.path().join("socket")
    }

    /// Goes on with what survived the power cut.
    fn become_survivors(&mut self, power: forgetful::Guard) -> anyhow::Result<()> {
        let before = self.data();
        self.generation += 1;
        std::fs::create_dir(self.data())?;
        power.survivors(&self.data())?;
        drop(power);
        std::fs::remove_dir_all(before)?;
        Ok(())
    }
}
