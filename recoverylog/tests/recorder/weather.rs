//! Lost answers, brokers that are away, hang, or are full.

use std::time::{Duration, Instant};

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_protocol::{LabelSet, Status};
use gazette_recoverylog::{
    fsm::Fnode,
    recorder::{Fault, Hold, Planted, Recorder, RecorderError, RecorderOptions, State},
};
use tonic::Code;

use crate::support::{
    LOG, apply, barrier, broker, content, create, eventually, options, place, play, start,
    start_with, write,
};

/// Names in the root directory that the log has.
fn names(broker: &FakeBroker) -> usize {
    play(broker).tree.children(Fnode::ROOT).count()
}

fn is_stalled(recorder: &Recorder) -> bool {
    matches!(recorder.status().state, State::Stalled { .. })
}

#[tokio::test]
async fn an_append_whose_answer_was_lost_is_found_and_not_repeated() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    for number in 0..20 {
        broker.inject(Call::Append, [BrokerFault::DropAnswer]);
        create(&recorder, &format!("file-{number}")).unwrap();
        recorder.flush().await.unwrap();
    }
    assert_eq!(names(&broker), 20);
    // Each op is there once: the log plays without a repeated one.
    let acked = recorder.stop().await.unwrap();
    assert_eq!(play(&broker).fsm.next_seq_no(), acked.seq_no + 1);
    assert_eq!(acked.offset, broker.head(LOG));
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_a_claim() {
    for faults in [
        vec![BrokerFault::None, BrokerFault::DropAnswer],
        vec![BrokerFault::None, BrokerFault::Hang],
        vec![
            BrokerFault::None,
            BrokerFault::Rpc(Code::Unavailable, "away"),
        ],
        vec![
            BrokerFault::None,
            BrokerFault::DropAnswer,
            BrokerFault::Hang,
            BrokerFault::None,
            BrokerFault::DropAnswer,
        ],
    ] {
        let broker = broker();
        broker.inject(Call::Append, faults);
        let recorder = start(&broker, 1).await.unwrap();
        create(&recorder, "a").unwrap();
        recorder.stop().await.unwrap();
        assert_eq!(names(&broker), 1);
    }
}

#[tokio::test]
async fn an_append_that_is_killed_in_the_middle_is_made_again() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    broker.inject(Call::Append, [BrokerFault::Hang, BrokerFault::Hang]);
    create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    assert_eq!(names(&broker), 1);
}

#[tokio::test]
async fn whatever_the_weather_each_op_lands_once_and_in_order() {
    let broker = broker();
    broker.inject_every(Call::Append, 3, BrokerFault::DropAnswer);
    let recorder = start(&broker, 1).await.unwrap();
    for number in 0..30_usize {
        let faults = [
            BrokerFault::Rpc(Code::Unavailable, "away"),
            BrokerFault::Status(Status::NoJournalPrimaryBroker),
            BrokerFault::Delay(Duration::from_millis(3)),
            BrokerFault::Rpc(Code::Unknown, "it broke"),
            BrokerFault::DropAnswer,
        ];
        broker.inject(Call::Append, [faults[number % faults.len()].clone()]);
        let file = create(&recorder, &format!("file-{number}")).unwrap();
        write(&recorder, file, 0, &[number.to_le_bytes()[0]; 10]).unwrap();
        if number % 7 == 0 {
            recorder.flush().await.unwrap();
        }
    }
    broker.heal();
    recorder.flush().await.unwrap();
    let image = play(&broker);
    for number in 0..30_u8 {
        assert_eq!(content(&image, &format!("file-{number}")), [number; 10]);
    }
}

#[tokio::test]
async fn a_broker_that_is_away_is_waited_for_and_recording_resumes_by_itself() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    broker.inject_every(Call::Append, 1, BrokerFault::Rpc(Code::Unavailable, "away"));
    create(&recorder, "a").unwrap();
    let waiting = barrier(&recorder);
    eventually("stalled", || is_stalled(&recorder)).await;
    // Mutations go on.
    create(&recorder, "b").unwrap();
    assert!(waiting.try_recv().is_err());
    let status = recorder.status();
    assert!(status.pending_bytes > 0 && status.oldest_pending.is_some());
    assert!(status.last_error.unwrap().contains("away"));
    broker.heal();
    recorder.flush().await.unwrap();
    assert_eq!(waiting.recv().unwrap(), Ok(()));
    assert_eq!(recorder.status().state, State::Recording);
    assert_eq!(names(&broker), 2);
}

#[tokio::test]
async fn fail_after_turns_waiting_into_a_fault_and_nothing_is_lost() {
    let broker = broker();
    let options = RecorderOptions {
        fail_after: Some(Duration::from_millis(200)),
        max_pending_bytes: 4096,
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    broker.inject_every(Call::Append, 1, BrokerFault::Rpc(Code::Unavailable, "away"));
    write(&recorder, file, 0, &[7; 4000]).unwrap();
    let begun = Instant::now();
    let fault = recorder.flush().await.unwrap_err();
    assert!(matches!(fault, Fault::TimedOut { .. }), "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let hold = write(&recorder, file, 4000, &[7; 4000]).unwrap_err();
    assert!(
        matches!(hold, Hold::Failed(Fault::TimedOut { .. })),
        "{hold}"
    );
    broker.heal();
    eventually("all is acknowledged", || {
        recorder.status().pending_bytes == 0
    })
    .await;
    recorder.flush().await.unwrap();
    assert_eq!(content(&play(&broker), "a"), [7; 4000]);
}

#[tokio::test]
async fn a_full_broker_holds_what_grows_and_takes_what_frees_space() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let file = create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    broker.inject_every(
        Call::Append,
        1,
        BrokerFault::Rpc(Code::ResourceExhausted, "the disk is full"),
    );
    write(&recorder, file, 0, b"x").unwrap();
    eventually("no space", || recorder.status().is_out_of_space).await;
    assert_eq!(write(&recorder, file, 1, b"y").unwrap_err(), Hold::NoSpace);
    let unlink = gazette_recoverylog::fsm::Mutation::Unlink { at: place("a") };
    apply(&recorder, &unlink).unwrap();
    broker.heal();
    recorder.flush().await.unwrap();
    create(&recorder, "b").unwrap();
    recorder.flush().await.unwrap();
    assert_eq!(names(&broker), 1);
}

#[tokio::test]
async fn a_start_without_a_broker_ends_in_its_time() {
    let broker = broker();
    let options = RecorderOptions {
        start_within: Duration::from_millis(700),
        ..options()
    };
    broker.inject_every(Call::Append, 1, BrokerFault::Hang);
    let begun = Instant::now();
    let error = start_with(&broker, 1, options).await.unwrap_err();
    assert!(
        matches!(
            error,
            RecorderError::TimedOut { .. } | RecorderError::Append(_)
        ),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The claim itself hangs.
    broker.heal();
    broker.inject(Call::Append, [BrokerFault::None]);
    broker.inject_every(Call::Append, 1, BrokerFault::Hang);
    let error = start_with(&broker, 1, options).await.unwrap_err();
    assert!(matches!(error, RecorderError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn a_stop_without_a_broker_ends_in_its_time_and_says_so() {
    let broker = broker();
    let options = RecorderOptions {
        stop_within: Duration::from_millis(300),
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    broker.inject_every(Call::Append, 1, BrokerFault::Hang);
    create(&recorder, "a").unwrap();
    let waiting = barrier(&recorder);
    let begun = Instant::now();
    let fault = recorder.stop().await.unwrap_err();
    assert!(matches!(fault, Fault::TimedOut { .. }), "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert!(waiting.recv().unwrap().is_err());
}

#[tokio::test]
async fn a_register_that_the_broker_lost_is_set_again() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    let before = broker.registers(LOG);
    broker.set_registers(LOG, LabelSet::default());
    create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    eventually("the register", || broker.registers(LOG) == before).await;
    recorder.stop().await.unwrap();
}

#[tokio::test]
async fn a_log_that_lost_its_end_is_reported() {
    let broker = broker();
    let recorder = start(&broker, 1).await.unwrap();
    create(&recorder, "a").unwrap();
    let acked = recorder.flush().await.unwrap();
    let registers = broker.registers(LOG);
    broker.delete(LOG);
    broker.create(LOG);
    broker.set_registers(LOG, registers);
    create(&recorder, "b").unwrap();
    let fault = recorder.flush().await.unwrap_err();
    let lost = Fault::Lost {
        acknowledged: acked.offset,
        head: 0,
    };
    assert_eq!(fault, lost);
    assert_eq!(recorder.status().state, State::Failed(lost));
}

/// Whether a barrier that succeeds means that the log has what was recorded before it.
async fn barrier_holds(planted: Option<Planted>) -> bool {
    let broker = broker();
    let options = RecorderOptions {
        planted,
        ..options()
    };
    let recorder = start_with(&broker, 1, options).await.unwrap();
    broker.inject(Call::Append, [BrokerFault::Hang]);
    create(&recorder, "a").unwrap();
    recorder.flush().await.unwrap();
    names(&broker) == 1
}

#[tokio::test]
async fn a_barrier_that_does_not_wait_is_found() {
    assert!(barrier_holds(None).await);
    assert!(!barrier_holds(Some(Planted::NoWait)).await);
}
