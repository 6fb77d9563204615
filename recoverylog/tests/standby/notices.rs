//! What is said beside a log.

use std::time::Duration;

use gazette_client::fake::{Call, FakeBroker, Fault as BrokerFault};
use gazette_recoverylog::notices::{Notice, Notices, make_notices, notices_journal};

use crate::support::LOG;

fn ask(id: usize) -> Notice {
    Notice::Ask { id: id.to_string() }
}

#[tokio::test]
async fn what_is_said_is_heard_once_in_order_also_where_reads_fail() {
    let broker = FakeBroker::new();
    let client = broker.client();
    for _ in 0..2 {
        make_notices(&client, LOG, &FakeBroker::spec("t/t"))
            .await
            .unwrap();
    }
    let notices = Notices::new(client, LOG);
    assert_eq!(notices.recent().await.unwrap(), []);
    for id in 0..3 {
        notices.say(&ask(id)).await.unwrap();
    }
    assert_eq!(notices.recent().await.unwrap(), [ask(0), ask(1), ask(2)]);
    broker.inject_every(Call::Read, 2, BrokerFault::BreakAfter(3));
    let mut told = notices.hear().await.unwrap();
    for id in 3..30 {
        notices.say(&ask(id)).await.unwrap();
    }
    for id in 0..30 {
        let heard = tokio::time::timeout(Duration::from_secs(10), told.next())
            .await
            .unwrap();
        assert_eq!((heard.notice, heard.is_old), (ask(id), id < 3));
    }
}

#[tokio::test]
async fn only_what_was_said_of_late_is_recent() {
    let broker = FakeBroker::new();
    broker.create(&notices_journal(LOG));
    broker.append(&notices_journal(LOG), &[b'x'; 100_000]);
    broker.append(&notices_journal(LOG), b"\n");
    let notices = Notices::new(broker.client(), LOG);
    notices.say(&ask(1)).await.unwrap();
    assert_eq!(notices.recent().await.unwrap(), [ask(1)]);
}
