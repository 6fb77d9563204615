//! Two owners of one log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_protocol::Status;
use gazette_recoverylog::{
    fsm::{Fnode, Mode},
    hints::{HintsHome, JournalHints},
    recorder::{
        Acked, Fault, Fence, Hold, Planted, Recorder, RecorderError, RecorderOptions, State,
    },
    take_over,
};

use tokio::task::JoinHandle;

use crate::support::{
    Acknowledged, LOG, author, barrier, broker, create, eventually, options, play, start,
    start_with,
};

#[tokio::test]
async fn the_old_owner_learns_who_took_over_and_where() {
    let broker = broker();
    let old = start(&broker, 1).await.unwrap();
    create(&old, "a").unwrap();
    let acked = old.flush().await.unwrap();
    let new = start(&broker, 2).await.unwrap();
    let fence = Fence {
        author: Some(author(2)),
        offset: acked.offset,
    };
    create(&old, "b").unwrap();
    assert_eq!(old.flush().await, Err(Fault::Fenced(fence)));
    assert_eq!(create(&old, "c"), Err(Hold::Fenced(fence)));
    assert_eq!(barrier(&old).recv().unwrap(), Err(Fault::Fenced(fence)));
    assert_eq!(old.status().state, State::Fenced(fence));
    assert_eq!(old.stop().await, Err(Fault::Fenced(fence)));
    create(&new, "d").unwrap();
    new.stop().await.unwrap();
    let image = play(&broker);
    let names: Vec<_> = image
        .tree
        .children(Fnode::ROOT)
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(names, ["a", "d"]);
}

#[tokio::test]
async fn an_idle_owner_learns_it_within_an_idle_mark() {
    let broker = broker();
    let old = start(&broker, 1).await.unwrap();
    let mut state = old.watch();
    let new = start(&broker, 2).await.unwrap();
    let fenced = state.wait_for(|state| matches!(state, State::Fenced(_)));
    tokio::time::timeout(Duration::from_secs(2), fenced)
        .await
        .unwrap()
        .unwrap();
    new.stop().await.unwrap();
}

#[tokio::test]
async fn an_idle_owner_costs_the_broker_no_appends() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    eventually("hints", || recorder.status().hints_offset.is_some()).await;
    let appends = broker.calls(Call::Append);
    let reads = broker.calls(Call::Read);
    eventually("looks", || broker.calls(Call::Read) > reads + 3).await;
    assert_eq!(broker.calls(Call::Append), appends);
    // Where it cannot be read, it is looked at otherwise.
    broker.inject_every(Call::Read, 1, BrokerFault::Status(Status::Suspended));
    let new = start(&broker, 2).await.unwrap();
    eventually("fenced", || {
        matches!(recorder.status().state, State::Fenced(_))
    })
    .await;
    broker.heal();
    new.stop().await.unwrap();
}

#[tokio::test]
async fn a_barrier_without_anything_recorded_fails_after_the_fence_too() {
    let broker = broker();
    let options = RecorderOptions {
        idle_mark: None,
        ..options()
    };
    let old = start_with(&broker, 1, options).await.unwrap();
    old.flush().await.unwrap();
    let new = start(&broker, 2).await.unwrap();
    assert!(matches!(old.flush().await, Err(Fault::Fenced(_))));
    new.stop().await.unwrap();
}

#[tokio::test]
async fn what_landed_before_the_fence_counts_though_its_answer_was_lost() {
    let broker = broker();
    let options = RecorderOptions {
        idle_mark: None,
        ..options()
    };
    let old = start_with(&broker, 1, options).await.unwrap();
    eventually("hints", || old.status().hints_offset.is_some()).await;
    broker.inject(Call::Append, [BrokerFault::DropAnswer]);
    create(&old, "a").unwrap();
    let before = broker.head(LOG);
    eventually("the append", || broker.head(LOG) > before).await;
    let head = broker.head(LOG);
    let new = start(&broker, 2).await.unwrap();
    // Its barrier fails, as the log is no longer its own; where the successor began is told exactly.
    let fault = old.flush().await.unwrap_err();
    assert!(matches!(fault, Fault::Fenced(_)), "{fault}");
    eventually("the exact fence", || {
        old.status().state
            == State::Fenced(Fence {
                author: Some(author(2)),
                offset: head,
            })
    })
    .await;
    new.stop().await.unwrap();
    assert!(play(&broker).tree.lookup(Fnode::ROOT, b"a").is_some());
}

#[tokio::test]
async fn what_somebody_appends_who_is_no_owner_ends_it() {
    let broker = broker();
    let old = start(&broker, 1).await.unwrap();
    let head = broker.head(LOG);
    broker.append(LOG, b"hello");
    create(&old, "a").unwrap();
    let fault = old.flush().await.unwrap_err();
    let fence = Fence {
        author: None,
        offset: head,
    };
    assert_eq!(fault, Fault::Fenced(fence));
}

#[tokio::test]
async fn of_owners_that_start_at_once_the_log_gets_one() {
    for _ in 0..10 {
        let broker = broker();
        let starts = (1..=4).map(|number| {
            let broker = broker.clone();
            tokio::spawn(async move { start(&broker, number).await })
        });
        let starts: Vec<_> = starts.collect();
        let mut owners = Vec::new();
        for start in starts {
            match start.await.unwrap() {
                Ok(recorder) => owners.push(recorder),
                Err(RecorderError::NotClaimed { .. } | RecorderError::HeadMoved { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let mut flushed = 0;
        for owner in &owners {
            if create(owner, "mine").is_ok() && owner.flush().await.is_ok() {
                flushed += 1;
            }
        }
        assert_eq!(flushed, 1);
    }
}

#[tokio::test]
async fn an_old_owner_publishes_no_hints() {
    let broker = broker();
    let old = start(&broker, 1).await.unwrap();
    create(&old, "a").unwrap();
    old.flush().await.unwrap();
    let new = start(&broker, 2).await.unwrap();
    create(&new, "b").unwrap();
    new.stop().await.unwrap();
    old.stop().await.unwrap_err();
    let home = JournalHints::new(broker.client(), LOG);
    let last = home.list().await.unwrap();
    assert_eq!(last.last().unwrap().author, author(2));
}

/// Records and waits until it is fenced, and notes what was acknowledged. Returns how many barriers
/// succeeded that were asked for after `fenced` was set.
async fn work(
    recorder: Recorder,
    number: u32,
    acknowledged: Acknowledged,
    fenced: Arc<AtomicBool>,
) -> usize {
    let mut late = 0;
    for index in 0.. {
        let name = format!("{number}-{index}");
        let was_fenced = fenced.load(Ordering::SeqCst);
        if create(&recorder, &name).is_err() {
            break;
        }
        match recorder.flush().await {
            Ok(Acked { .. }) => {
                late += usize::from(was_fenced);
                acknowledged.lock().unwrap().push(name);
            }
            Err(Fault::Fenced(_)) => break,
            Err(fault) => panic!("{fault}"),
        }
        if late > 100 {
            break;
        }
        tokio::task::yield_now().await;
    }
    late
}

/// Lets owners take the log from each other, each in the middle of the other's work. Returns what went
/// wrong.
async fn fight(broker: &FakeBroker, first: u32, planted: Option<Planted>) -> Result<(), String> {
    let acknowledged = Acknowledged::default();
    let mut before: Option<(JoinHandle<usize>, Arc<AtomicBool>)> = None;
    let mut late = 0;
    for number in first..first + 8 {
        let options = RecorderOptions {
            planted,
            ..options()
        };
        // The owner before is at work: a log that grows cannot be recovered to its end.
        let recovered = play(broker);
        let client = broker.client();
        let taken = take_over(&client, LOG, Mode::Native, author(number), &recovered.fsm).await;
        taken.map_err(|error| error.to_string())?;
        if let Some((task, fenced)) = before.take() {
            fenced.store(true, Ordering::SeqCst);
            late += task.await.map_err(|error| error.to_string())?;
        }
        let recorder = start_with(broker, number, options).await;
        let recorder = recorder.map_err(|error| error.to_string())?;
        let fenced = Arc::new(AtomicBool::new(false));
        let task = work(
            recorder,
            number,
            Arc::clone(&acknowledged),
            Arc::clone(&fenced),
        );
        before = Some((tokio::spawn(task), fenced));
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    if let Some((task, _)) = before {
        task.abort();
    }
    if late > 0 {
        return Err(format!("{late} barriers succeeded after a fence"));
    }
    let image = play(broker);
    for name in acknowledged.lock().unwrap().iter() {
        if image.tree.lookup(Fnode::ROOT, name.as_bytes()).is_none() {
            return Err(format!("{name} was acknowledged, and is not in the log"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_fight_for_a_log_lose_nothing_that_was_acknowledged() {
    let broker = broker();
    fight(&broker, 1, None).await.unwrap();
    broker.inject_every(Call::Append, 7, BrokerFault::DropAnswer);
    fight(&broker, 11, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_are_skipped_are_found() {
    let broker = broker();
    let fought = fight(&broker, 1, Some(Planted::NoChecks)).await;
    let wrong = fought.unwrap_err();
    assert!(wrong.contains("after a fence"), "{wrong}");
}
