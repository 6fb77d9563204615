use gazette_client::fake::{Call, FakeBroker, Fault};
use gazette_recoverylog_fsm::FsmHints;

use super::*;

const LOG: &str = "app/log";
const JOURNAL: &str = "app/log.hints";

fn author(number: u32) -> Author {
    Author::new(number).unwrap()
}

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create(LOG);
    broker.create(JOURNAL);
    broker
}

fn own(broker: &FakeBroker, number: u32) {
    broker.set_registers(LOG, registers_of(author(number)));
}

fn published(number: u32, offset: i64) -> PublishedHints {
    PublishedHints {
        author: author(number),
        offset,
        seq_no: offset,
        checksum: 1,
        time: Timestamp {
            seconds: offset * 10,
            nanos: 0,
        },
        hints: FsmHints::of_log(LOG),
    }
}

async fn offset_at(home: &JournalHints, point: HintsPoint) -> Option<i64> {
    let found = home.newest(point).await.unwrap();
    found.map(|hints| hints.offset)
}

#[tokio::test]
async fn the_newest_hints_up_to_a_point_are_found() {
    let broker = broker();
    own(&broker, 1);
    let home = JournalHints::new(broker.client(), LOG);
    assert_eq!(offset_at(&home, HintsPoint::Head).await, None);
    for offset in [5, 10, 20] {
        home.publish(&published(1, offset)).await.unwrap();
    }
    assert_eq!(offset_at(&home, HintsPoint::Head).await, Some(20));
    assert_eq!(offset_at(&home, HintsPoint::Offset(19)).await, Some(10));
    assert_eq!(offset_at(&home, HintsPoint::Offset(4)).await, None);
    let time = |seconds| HintsPoint::Time(Timestamp { seconds, nanos: 0 });
    assert_eq!(offset_at(&home, time(100)).await, Some(10));
    assert_eq!(offset_at(&home, time(99)).await, Some(5));
    let offsets: Vec<_> = home.list().await.unwrap();
    let offsets: Vec<_> = offsets.iter().map(|hints| hints.offset).collect();
    assert_eq!(offsets, [5, 10, 20]);
}

#[tokio::test]
async fn hints_far_from_the_end_are_found() {
    let broker = broker();
    own(&broker, 1);
    let home = JournalHints::new(broker.client(), LOG);
    home.publish(&published(1, 5)).await.unwrap();
    broker.append(JOURNAL, &vec![0; 3 << 20]);
    assert_eq!(offset_at(&home, HintsPoint::Head).await, Some(5));
}

#[tokio::test]
async fn no_journal_has_no_hints() {
    let broker = FakeBroker::new();
    broker.create(LOG);
    let home = JournalHints::new(broker.client(), LOG);
    assert_eq!(offset_at(&home, HintsPoint::Head).await, None);
    assert_eq!(home.list().await.unwrap(), []);
}

#[tokio::test]
async fn damaged_hints_give_way_to_older_ones_and_are_named_if_there_are_none() {
    let broker = broker();
    own(&broker, 1);
    let home = JournalHints::new(broker.client(), LOG);
    let mut record = published(1, 20).encode().unwrap().to_vec();
    record[20] ^= 1;
    broker.append(JOURNAL, &record);
    let error = home.newest(HintsPoint::Head).await.unwrap_err();
    assert!(error.to_string().contains("record at 0"), "{error}");
    home.publish(&published(1, 10)).await.unwrap();
    broker.append(JOURNAL, &record);
    broker.append(JOURNAL, &record[..15]);
    assert_eq!(offset_at(&home, HintsPoint::Head).await, Some(10));
}

#[tokio::test]
async fn an_old_owner_cannot_publish() {
    let broker = broker();
    own(&broker, 1);
    let first = JournalHints::new(broker.client(), LOG);
    first.publish(&published(1, 5)).await.unwrap();
    // Until the new owner comes here, what the old one publishes is as true as before.
    own(&broker, 2);
    first.publish(&published(1, 6)).await.unwrap();
    let second = JournalHints::new(broker.client(), LOG);
    second.publish(&published(2, 7)).await.unwrap();
    let error = first.publish(&published(1, 8)).await.unwrap_err();
    assert!(
        matches!(&error, HintsHomeError::Fenced { author: Some(who), .. } if *who == author(2)),
        "{error}"
    );
    // Nor can one who comes anew with an old claim.
    let late = JournalHints::new(broker.client(), LOG);
    late.publish(&published(1, 8)).await.unwrap_err();
    second.publish(&published(2, 9)).await.unwrap();
    let authors: Vec<_> = second.list().await.unwrap();
    let authors: Vec<_> = authors.iter().map(|hints| hints.author.get()).collect();
    assert_eq!(authors, [1, 1, 2, 2]);
}

#[tokio::test]
async fn an_owner_takes_back_what_one_before_him_claimed_late() {
    let broker = broker();
    own(&broker, 2);
    let home = JournalHints::new(broker.client(), LOG);
    home.publish(&published(2, 5)).await.unwrap();
    broker.set_registers(JOURNAL, registers_of(author(1)));
    home.publish(&published(2, 6)).await.unwrap();
    assert_eq!(broker.registers(JOURNAL), registers_of(author(2)));
}

#[tokio::test]
async fn a_lost_answer_is_an_error_and_the_next_try_succeeds() {
    let broker = broker();
    own(&broker, 1);
    let home = JournalHints::new(broker.client(), LOG);
    // Two empty appends come before the record.
    broker.inject(Call::Append, [Fault::None, Fault::None, Fault::DropAnswer]);
    home.publish(&published(1, 5)).await.unwrap_err();
    home.publish(&published(1, 5)).await.unwrap();
    assert_eq!(offset_at(&home, HintsPoint::Head).await, Some(5));
}
