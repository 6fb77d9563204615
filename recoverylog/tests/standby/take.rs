//! Who gets a log.

use std::{sync::Arc, time::Duration};

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_protocol::LabelSet;
use gazette_recoverylog::{
    Claimed,
    fsm::{Fnode, Kind, Mode},
    player::Recovered,
    recorder::{Fault, Planted, Recorder, RecorderOptions, Start},
    standby::{From, Standby},
};
use tempfile::TempDir;

use crate::{
    follow::{caught_up, standby},
    support::{
        Acknowledged, LOG, author, broker, create, inode, options, play, start, start_with, write,
    },
};

const WITHIN: Duration = Duration::from_secs(10);

fn start_of(recovered: Recovered, number: u32) -> Start {
    Start {
        log: LOG.to_owned(),
        mode: Mode::Native,
        author: author(number),
        fsm: recovered.fsm,
        tree: recovered.tree,
        root: inode(Kind::Directory),
        write_head: recovered.write_head,
    }
}

/// Takes the log over from whoever has it, and begins to record.
async fn promote(broker: &FakeBroker, standby: Standby, number: u32, from: From) -> Recorder {
    let claimed = standby.claim(author(number), from).await.unwrap();
    let Claimed::Ours { end } = claimed else {
        panic!("{claimed:?}")
    };
    let recovered = standby.finish(end, WITHIN).await.unwrap();
    let start = start_of(recovered, number);
    Recorder::start(broker.client(), start, options())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_orderly_handoff_the_standby_goes_on_from_all_that_was_recorded() {
    let broker = broker();
    let owner = start(&broker, 1).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("to");
    let standby = standby(&broker, &to).await;
    let file = create(&owner, "a").unwrap();
    write(&owner, file, 0, b"the last word").unwrap();
    owner.release().await.unwrap();
    assert!(create(&owner, "late").is_err());
    let next = promote(&broker, standby, 2, From::Owner(Some(author(1)))).await;
    assert_eq!(std::fs::read(to.join("a")).unwrap(), b"the last word");
    create(&next, "b").unwrap();
    next.stop().await.unwrap();
    let image = play(&broker);
    let names: Vec<_> = image
        .tree
        .children(Fnode::ROOT)
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_standbys_exactly_one_wins_whatever_answers_are_lost() {
    for (round, has_registers) in [(0, true), (1, false), (2, true)] {
        let broker = broker();
        let owner = start(&broker, 1).await.unwrap();
        create(&owner, "a").unwrap();
        owner.flush().await.unwrap();
        drop(owner);
        let place = tempfile::tempdir().unwrap();
        let mut standbys = Vec::new();
        for number in 2..8_u32 {
            let standby = standby(&broker, &place.path().join(number.to_string())).await;
            caught_up(&broker, &standby).await;
            standbys.push((number, Arc::new(standby)));
        }
        if !has_registers {
            // All brokers lost them.
            broker.set_registers(LOG, LabelSet::default());
        }
        if round == 2 {
            broker.inject_every(Call::Append, 3, BrokerFault::DropAnswer);
        }
        let seen_end = broker.head(LOG);
        let mut claims = Vec::new();
        for (number, standby) in &standbys {
            let (number, standby) = (*number, Arc::clone(standby));
            let from = if number % 2 == 0 {
                From::Silent { seen_end }
            } else {
                From::Owner(Some(author(1)))
            };
            claims.push(tokio::spawn(async move {
                standby.claim(author(number), from).await
            }));
        }
        let mut won = 0;
        for claim in claims {
            won += u32::from(matches!(claim.await.unwrap(), Ok(Claimed::Ours { .. })));
        }
        assert_eq!(won, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_who_recorded_meanwhile_is_not_taken_for_silent() {
    let broker = broker();
    let owner = start(&broker, 1).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let standby = standby(&broker, &place.path().join("to")).await;
    caught_up(&broker, &standby).await;
    let standby = Arc::new(standby);
    let late = || BrokerFault::Delay(Duration::from_millis(300));
    // He records before it is asked whose the log is; and between that and the claim.
    for (round, faults) in [vec![late()], vec![BrokerFault::None, late()]]
        .into_iter()
        .enumerate()
    {
        broker.inject(Call::Append, faults);
        let claiming = Arc::clone(&standby);
        let seen_end = broker.head(LOG);
        let claim = tokio::spawn(async move {
            let silent = From::Silent { seen_end };
            claiming.claim(author(2), silent).await.unwrap()
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        create(&owner, &round.to_string()).unwrap();
        owner.flush().await.unwrap();
        assert_eq!(claim.await.unwrap(), Claimed::Moved, "{round}");
        create(&owner, &format!("{round} goes on")).unwrap();
        owner.flush().await.unwrap();
        caught_up(&broker, &standby).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_against_an_owner_who_is_one_no_more_is_refused() {
    let broker = broker();
    let first = start(&broker, 1).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let standby = standby(&broker, &place.path().join("to")).await;
    first.stop().await.unwrap();
    let second = start(&broker, 2).await.unwrap();
    let claimed = standby
        .claim(author(3), From::Owner(Some(author(1))))
        .await
        .unwrap();
    let owner = Some(author(2));
    assert_eq!(claimed, Claimed::Theirs { owner });
    create(&second, "a").unwrap();
    second.stop().await.unwrap();
    standby.stop().await;
}

/// Records and waits for the log until it is fenced. Returns how many barriers succeeded that began after that.
async fn work(
    recorder: Recorder,
    number: u32,
    acknowledged: Acknowledged,
    broker: FakeBroker,
) -> usize {
    let mut late = 0;
    for index in 0.. {
        let name = format!("{number}-{index}");
        let is_fenced = {
            let registers = broker.registers(LOG);
            let value = registers.value_of("author").unwrap_or_default().to_owned();
            value != gazette_recoverylog::author_value(author(number))
        };
        if create(&recorder, &name).is_err() {
            break;
        }
        match recorder.flush().await {
            Ok(_) => {
                late += usize::from(is_fenced);
                acknowledged.lock().unwrap().push(name);
            }
            Err(Fault::Fenced(_)) => break,
            Err(fault) => panic!("{fault}"),
        }
        if late > 50 {
            break;
        }
        tokio::task::yield_now().await;
    }
    late
}

/// A chain of standbys of which each takes the log from an owner at work. Returns what went wrong.
async fn fight(rounds: u32, planted: Option<Planted>) -> Result<(), String> {
    let broker = broker();
    let place: TempDir = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::default();
    let fighting = RecorderOptions {
        planted,
        ..options()
    };
    let mut owner = start_with(&broker, 1, fighting).await.unwrap();
    for number in 2..rounds + 2 {
        let standby = standby(&broker, &place.path().join(number.to_string())).await;
        let work = tokio::spawn(work(
            owner,
            number - 1,
            Arc::clone(&acknowledged),
            broker.clone(),
        ));
        tokio::time::sleep(Duration::from_millis(u64::from(number % 5) * 4)).await;
        let from = From::Owner(Some(author(number - 1)));
        let claimed = standby.claim(author(number), from).await;
        let claimed = claimed.map_err(|error| error.to_string())?;
        let Claimed::Ours { end } = claimed else {
            return Err(format!("{claimed:?}"));
        };
        let late = work.await.map_err(|error| error.to_string())?;
        if late > 0 {
            return Err(format!("{late} barriers succeeded after a fence"));
        }
        let recovered = standby.finish(end, WITHIN).await;
        let recovered = recovered.map_err(|error| error.to_string())?;
        for name in acknowledged.lock().unwrap().iter() {
            if recovered
                .tree
                .lookup(Fnode::ROOT, name.as_bytes())
                .is_none()
            {
                return Err(format!(
                    "{name} was acknowledged, and the next owner has it not"
                ));
            }
        }
        let start = start_of(recovered, number);
        let started = Recorder::start(broker.client(), start, fighting).await;
        owner = started.map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_standbys_that_fight_lose_nothing_that_was_acknowledged() {
    let rounds = std::env::var("GAZFS_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    fight(rounds.unwrap_or(20), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_without_checks_is_found() {
    let wrong = fight(5, Some(Planted::NoChecks)).await.unwrap_err();
    assert!(wrong.contains("after a fence"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_fsync_that_does_not_wait_is_found() {
    let wrong = fight(5, Some(Planted::NoWait)).await.unwrap_err();
    assert!(!wrong.is_empty());
}
