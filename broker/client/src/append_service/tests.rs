use std::time::Duration;

use gazette_protocol::{LabelSelector, Status};
use tokio::time::timeout;
use tonic::Code;

use super::*;
use crate::{
    ErrorKind, Resolution,
    fake::{Call, FakeBroker, Fault},
};

fn service(broker: &FakeBroker) -> AppendService {
    AppendService::new(broker.client(), AppendServiceOptions::default())
}

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker
}

async fn queue(service: &AppendService, content: impl Into<Bytes>) -> Queued {
    service
        .append("app/log", content.into(), AppendParams::default())
        .await
}

#[tokio::test]
async fn appends_land_in_the_order_of_the_calls_and_know_where() {
    let broker = broker();
    let service = service(&broker);
    let mut tickets = Vec::new();
    for n in 0..2000 {
        tickets.push((n, queue(&service, format!("record {n}\n")).await));
    }
    let mut end = 0;
    for (n, ticket) in tickets {
        let landed = ticket.wait().await.unwrap();
        assert_eq!(landed.begin, end);
        end = landed.end;
        let content = broker.content("app/log");
        let range = usize::try_from(landed.begin).unwrap()..usize::try_from(landed.end).unwrap();
        assert_eq!(content[range], *format!("record {n}\n").as_bytes());
    }
    assert_eq!(broker.head("app/log"), end);
    assert!(broker.calls(Call::Append) < 1000, "they are batched");
    assert_eq!(service.pending_bytes(), 0);
}

#[tokio::test]
async fn the_place_in_the_order_is_that_of_the_call_and_not_of_the_first_poll() {
    let broker = broker();
    let service = service(&broker);
    let first = service.append("app/log", "1".into(), AppendParams::default());
    let second = service.append("app/log", "2".into(), AppendParams::default());
    let second = second.await;
    let first = first.await;
    second.wait().await.unwrap();
    first.wait().await.unwrap();
    assert_eq!(broker.content("app/log"), b"12");
}

#[tokio::test]
async fn an_append_of_unknown_outcome_is_not_repeated_and_the_next_one_goes_on() {
    let broker = broker();
    let service = service(&broker);
    broker.inject(Call::Append, [Fault::DropAnswer]);
    let lost = queue(&service, "lost").await;
    let next = queue(&service, "next").await;
    let error = lost.wait().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    insta::assert_snapshot!(error, @"append app/log: the connection was lost (it may have taken place); next: look whether the content is there before repeating it");
    assert_eq!(next.wait().await.unwrap().begin, 4);
    assert_eq!(broker.content("app/log"), b"lostnext");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_is_tried_again_and_then_given_up() {
    let broker = broker();
    let service = service(&broker);
    broker.inject(
        Call::Append,
        [
            Fault::Status(Status::NoJournalPrimaryBroker),
            Fault::Rpc(Code::Unavailable, "away"),
        ],
    );
    // The second fault is met before the request to commit is read, but that may have been sent.
    let error = queue(&service, "x").await.wait().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);

    broker.inject_every(
        Call::Append,
        1,
        Fault::Status(Status::InsufficientJournalBrokers),
    );
    let started = Instant::now();
    let first = queue(&service, "x").await;
    let second = queue(&service, "y").await;
    let error = first.wait().await.unwrap_err();
    assert_eq!(
        (error.outcome(), error.kind()),
        (Outcome::NotDone, ErrorKind::Retry)
    );
    assert_eq!(error.status(), Some(Status::InsufficientJournalBrokers));
    second.wait().await.unwrap_err();
    // Not sixty seconds for each of them.
    assert!(
        started.elapsed() <= Duration::from_secs(62),
        "{:?}",
        started.elapsed()
    );

    broker.heal();
    queue(&service, "z").await.wait().await.unwrap();
    assert_eq!(broker.content("app/log"), b"z");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_answers_does_not_hold_up_for_ever() {
    let broker = broker();
    let service = service(&broker);
    broker.inject(Call::Append, [Fault::Hang]);
    let error = queue(&service, "x").await.wait().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    insta::assert_snapshot!(error, @"append app/log: no answer within 60.0 s (it may have taken place); next: look whether the content is there before repeating it");
    queue(&service, "y").await.wait().await.unwrap();
}

#[tokio::test]
async fn memory_is_bounded_and_callers_wait_for_room() {
    let broker = broker();
    let options = AppendServiceOptions {
        max_batch_bytes: 1 << 10,
        max_pending_bytes: 16 << 10,
        max_journal_bytes: 8 << 10,
        ..AppendServiceOptions::default()
    };
    let service = AppendService::new(broker.client(), options);
    broker.inject_every(Call::Append, 1, Fault::Delay(Duration::from_millis(1)));
    let mut tickets = Vec::new();
    for n in 0..500 {
        tickets.push(queue(&service, format!("{n:0>500}")).await);
        assert!(service.pending_bytes() <= 8 << 10);
    }
    for ticket in tickets {
        ticket.wait().await.unwrap();
    }
    let content = broker.content("app/log");
    for (n, record) in content.chunks(500).enumerate() {
        assert_eq!(record, format!("{n:0>500}").as_bytes());
    }
}

#[tokio::test]
async fn a_caller_that_does_not_wait_for_room_does_not_append() {
    let broker = broker();
    let options = AppendServiceOptions {
        max_journal_bytes: 1000,
        give_up_after: None,
        ..AppendServiceOptions::default()
    };
    let service = AppendService::new(broker.client(), options);
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(100))]);
    let first = queue(&service, vec![b'1'; 700]).await;
    let impatient = queue(&service, vec![b'2'; 700]);
    assert!(timeout(Duration::from_millis(10), impatient).await.is_err());
    let third = queue(&service, vec![b'3'; 10]).await;
    first.wait().await.unwrap();
    third.wait().await.unwrap();
    assert!(!broker.content("app/log").contains(&b'2'));
}

#[tokio::test]
async fn a_dropped_ticket_harms_nobody_and_its_error_is_seen_by_a_flush() {
    let broker = broker();
    let service = service(&broker);
    drop(queue(&service, "1").await);
    drop(queue(&service, "2").await);
    let kept = queue(&service, "3").await;
    service.flush("app/log").await.unwrap();
    assert_eq!(broker.content("app/log"), b"123");
    kept.wait().await.unwrap();

    broker.inject(Call::Append, [Fault::Status(Status::NotAllowed)]);
    drop(queue(&service, "4").await);
    let error = service.flush("app/log").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    service.flush("app/log").await.unwrap();

    // Also if the result had come already.
    broker.inject(Call::Append, [Fault::Status(Status::NotAllowed)]);
    let ticket = queue(&service, "5").await;
    service.flush("app/log").await.unwrap();
    drop(ticket);
    service.flush("app/log").await.unwrap_err();
    service.flush("no/such").await.unwrap();
}

#[tokio::test]
async fn expected_offsets_and_registers_hold_within_batches() {
    let broker = broker();
    let service = service(&broker);
    let at = |offset| AppendParams {
        offset: Some(offset),
        ..AppendParams::default()
    };
    let append = |content: &'static str, params| service.append("app/log", content.into(), params);
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(20))]);
    let first = append("aa", at(0)).await;
    let wrong = append("bb", at(7)).await;
    let right = append("cc", at(2)).await;
    let follows = append("dd", at(4)).await;
    assert_eq!(first.wait().await.unwrap().end, 2);
    assert!(wrong.wait().await.unwrap_err().is_wrong_append_offset());
    assert_eq!(right.wait().await.unwrap().end, 4);
    assert_eq!(follows.wait().await.unwrap().end, 6);
    assert_eq!(broker.content("app/log"), b"aaccdd");

    // A batch of which the first is wrong: the second is tried by itself, and is right.
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(20))]);
    let first = append("e", AppendParams::default()).await;
    let wrong = append("ff", at(5)).await;
    let right = append("g", at(7)).await;
    first.wait().await.unwrap();
    assert!(wrong.wait().await.unwrap_err().is_wrong_append_offset());
    assert_eq!(right.wait().await.unwrap().end, 8);

    let owned = LabelSet::from_pairs([("owner", "me")]);
    let params = AppendParams {
        union_registers: Some(owned.clone()),
        ..AppendParams::default()
    };
    let landed = append("h", params).await.wait().await.unwrap();
    assert_eq!(landed.registers(), Some(&owned));
    let check = LabelSelector::equal("owner", "other");
    let params = AppendParams {
        check_registers: Some(check),
        ..AppendParams::default()
    };
    let error = append("i", params).await.wait().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.registers()),
        (ErrorKind::Fenced, Some(&owned))
    );
    assert_eq!(broker.content("app/log"), b"aaccddegh");
}

#[tokio::test]
async fn a_request_that_is_not_valid_fails_by_itself() {
    let service = service(&broker());
    let params = AppendParams {
        offset: Some(-7),
        ..AppendParams::default()
    };
    let ticket = service.append("app/log", "x".into(), params).await;
    let error = ticket.wait().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Invalid, Outcome::NotDone)
    );
    let ticket = service
        .append("", "x".into(), AppendParams::default())
        .await;
    assert_eq!(ticket.wait().await.unwrap_err().outcome(), Outcome::NotDone);
}

/// Appends `count` records of which each fifth answer is lost, and resolves what became of them.
async fn append_and_resolve(service: &AppendService, count: u32) {
    let mut offset = 0;
    for n in 0..count {
        let record = Bytes::from(format!("r{n}\n"));
        loop {
            let params = AppendParams {
                offset: Some(offset),
                ..AppendParams::default()
            };
            let ticket = service.append("app/log", record.clone(), params).await;
            let error = match ticket.wait().await {
                Ok(landed) => {
                    offset = landed.end;
                    break;
                }
                Err(error) => error,
            };
            assert!(
                error.is_ambiguous() || error.is_wrong_append_offset(),
                "{error}"
            );
            let client = service.client();
            match client.resolve_append("app/log", offset, &record).await {
                Ok(Resolution::Landed { end }) => {
                    offset = end;
                    break;
                }
                Ok(Resolution::Other) => panic!("somebody else wrote at {offset}"),
                // The answer to the question may be lost as well.
                Ok(Resolution::Absent) | Err(_) => {}
            }
        }
    }
}

fn records(count: u32) -> String {
    let records: Vec<String> = (0..count).map(|n| format!("r{n}\n")).collect();
    records.concat()
}

/// Case B-56.
#[tokio::test]
async fn five_hundred_appends_are_five_hundred_records_though_answers_are_lost() {
    let broker = broker();
    broker.inject_every(Call::Append, 5, Fault::DropAnswer);
    append_and_resolve(&service(&broker), 500).await;
    let content = String::from_utf8(broker.content("app/log")).unwrap();
    assert_eq!(content, records(500));
}

/// Case B-56, with connections that really break.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_when_connections_are_cut() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let client = Client::connect(server.endpoint(), crate::ClientOptions::default()).unwrap();
    let service = AppendService::new(client, AppendServiceOptions::default());
    let cutter = tokio::spawn({
        let broker = broker.clone();
        async move {
            for calls in (3..).step_by(3) {
                while broker.calls(Call::Append) < calls {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
                server.cut();
            }
        }
    });
    append_and_resolve(&service, 500).await;
    cutter.abort();
    let content = String::from_utf8(broker.content("app/log")).unwrap();
    assert_eq!(content, records(500));
}

#[test]
fn an_append_may_be_taken_back_outside_of_the_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let broker = broker();
    let options = AppendServiceOptions {
        max_journal_bytes: 1000,
        ..AppendServiceOptions::default()
    };
    let service = AppendService::new(broker.client(), options);
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(50))]);
    let append = |length| {
        service.append(
            "app/log",
            vec![b'x'; length].into(),
            AppendParams::default(),
        )
    };
    let (first, second, third) = {
        let _context = runtime.enter();
        (append(700), append(700), append(10))
    };
    drop(second);
    let third = runtime.block_on(third);
    runtime
        .block_on(async { first.await.wait().await })
        .unwrap();
    runtime.block_on(third.wait()).unwrap();
    assert_eq!(broker.head("app/log"), 710);
}
