//! Any sequence of work, weather and changes of owners.

use std::{
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_protocol::Status;
use gazette_recoverylog::{
    fsm::{Fnode, Mode},
    recorder::{Fault, Planted, Recorder, RecorderOptions},
    take_over,
};
use proptest::prelude::*;
use tonic::Code;

use crate::support::{LOG, author, barrier, broker, create, options, play, start, start_with};

#[derive(Debug, Clone)]
enum Step {
    Create,
    Barrier,
    /// The next append, or the next read, goes wrong like that.
    Weather(bool, Weather),
    Pause(u64),
    /// Another owner takes the log over.
    Change,
}

#[derive(Debug, Clone, Copy)]
enum Weather {
    Lost,
    Away,
    NoPrimary,
    Full,
    Hangs,
    Slow,
}

impl Weather {
    fn fault(self) -> BrokerFault {
        match self {
            Self::Lost => BrokerFault::DropAnswer,
            Self::Away => BrokerFault::Rpc(Code::Unavailable, "away"),
            Self::NoPrimary => BrokerFault::Status(Status::NoJournalPrimaryBroker),
            Self::Full => BrokerFault::Rpc(Code::ResourceExhausted, "full"),
            Self::Hangs => BrokerFault::Hang,
            Self::Slow => BrokerFault::Delay(Duration::from_millis(7)),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let weather = prop_oneof![
        4 => Just(Weather::Lost),
        2 => Just(Weather::Away),
        1 => Just(Weather::NoPrimary),
        1 => Just(Weather::Full),
        1 => Just(Weather::Hangs),
        3 => Just(Weather::Slow),
    ];
    prop_oneof![
        10 => Just(Step::Create),
        6 => Just(Step::Barrier),
        5 => (any::<bool>(), weather).prop_map(|(of, weather)| Step::Weather(of, weather)),
        4 => (0..15_u64).prop_map(Step::Pause),
        1 => Just(Step::Change),
    ]
}

fn quick(planted: Option<Planted>) -> RecorderOptions {
    RecorderOptions {
        planted,
        answer_within: Duration::from_millis(40),
        idle_mark: Some(Duration::from_millis(10)),
        ..options()
    }
}

/// A barrier that was asked for: its answer, how many names were recorded before it, and whether its owner
/// had lost the log by then.
struct Asked {
    answer: Receiver<Result<(), Fault>>,
    names: Vec<String>,
    was_lost: bool,
}

struct Owner {
    recorder: Recorder,
    names: Vec<String>,
    has_lost: bool,
}

async fn change(broker: &FakeBroker, number: u32, options: RecorderOptions) -> Recorder {
    // Whoever takes over does so in good weather.
    broker.heal();
    let fsm = play(broker).fsm;
    take_over(&broker.client(), LOG, Mode::Native, author(number), &fsm)
        .await
        .unwrap();
    start_with(broker, number, options).await.unwrap()
}

async fn run(steps: &[Step], planted: Option<Planted>) {
    let broker = broker();
    let mut owners = vec![Owner {
        recorder: start_with(&broker, 1, quick(planted)).await.unwrap(),
        names: Vec::new(),
        has_lost: false,
    }];
    let mut asked = Vec::new();
    let mut count = 0;
    for step in steps {
        match step {
            Step::Create => {
                for (index, owner) in owners.iter_mut().enumerate() {
                    count += 1;
                    let name = format!("{index}-{count}");
                    if create(&owner.recorder, &name).is_ok() {
                        owner.names.push(name);
                    }
                }
            }
            Step::Barrier => {
                for owner in &owners {
                    asked.push(Asked {
                        answer: barrier(&owner.recorder),
                        names: owner.names.clone(),
                        was_lost: owner.has_lost,
                    });
                }
            }
            Step::Weather(true, weather) => broker.inject(Call::Append, [weather.fault()]),
            Step::Weather(false, weather) => broker.inject(Call::Read, [weather.fault()]),
            Step::Pause(time) => tokio::time::sleep(Duration::from_millis(*time)).await,
            Step::Change => {
                let number = u32::try_from(owners.len()).unwrap() + 1;
                let recorder = change(&broker, number, quick(planted)).await;
                for owner in &mut owners {
                    owner.has_lost = true;
                }
                owners.push(Owner {
                    recorder,
                    names: Vec::new(),
                    has_lost: false,
                });
            }
        }
    }
    broker.heal();
    let last = owners.last().unwrap();
    let acked = last.recorder.flush().await.unwrap();
    let image = play(&broker);
    let has = |name: &String| image.tree.lookup(Fnode::ROOT, name.as_bytes()).is_some();
    assert!(last.names.iter().all(has), "the last owner lost something");
    let begun = Instant::now();
    for Asked {
        answer,
        names,
        was_lost,
    } in asked
    {
        let answer = loop {
            if let Ok(answer) = answer.try_recv() {
                break answer;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "never answered");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        if answer.is_ok() {
            assert!(!was_lost, "acknowledged after another owner had the log");
            assert!(names.iter().all(has), "acknowledged, and not in the log");
        }
    }
    assert_eq!(acked.offset, broker.head(LOG));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn no_barrier_lies_and_the_last_owner_loses_nothing(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(run(&steps, None));
        runtime.shutdown_background();
    }
}

#[tokio::test]
#[should_panic(expected = "acknowledged after another owner had the log")]
async fn checks_that_are_skipped_are_found() {
    let steps = [Step::Create, Step::Change, Step::Create, Step::Barrier];
    run(&steps, Some(Planted::NoChecks)).await;
}

#[tokio::test]
async fn a_take_over_is_made_once_though_its_answer_is_lost() {
    let broker = broker();
    let old = start(&broker, 1).await.unwrap();
    old.stop().await.unwrap();
    let fsm = play(&broker).fsm;
    broker.inject(Call::Append, [BrokerFault::None, BrokerFault::DropAnswer]);
    let client = broker.client();
    let head = take_over(&client, LOG, Mode::Native, author(2), &fsm).await;
    assert_eq!(head.unwrap(), broker.head(LOG));
    let again = take_over(&client, LOG, Mode::Native, author(2), &fsm).await;
    assert_eq!(again.unwrap(), broker.head(LOG));
    let new = start(&broker, 2).await.unwrap();
    create(&new, "a").unwrap();
    new.stop().await.unwrap();
}
