use std::time::Duration;

use super::*;
use crate::{Op, RangeRequest, Txn, TxnResponse};

struct Fixture {
    _folder: tempfile::TempDir,
    database: Database,
    engine: Engine,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coordination.db");
        let (database, engine) = open(path, EmbeddedOptions::default()).unwrap();
        Self {
            _folder: folder,
            database,
            engine,
            now: Instant::now(),
        }
    }

    fn apply(&mut self, requests: Vec<Request>) -> Vec<Result<Response, CoordinationError>> {
        let job = |request| Job {
            now: self.now,
            request,
            reply: oneshot::channel().0,
        };
        let group: Vec<_> = requests.into_iter().map(job).collect();
        apply(&mut self.engine, &mut self.database, &group)
    }
}

fn put(key: &str, size: usize) -> Request {
    Request::Txn(Txn::new(
        vec![],
        vec![Op::put(key.to_owned(), vec![b'v'; size])],
    ))
}

fn read() -> Request {
    Request::Range(RangeRequest::prefix(""))
}

fn count(answer: &Result<Response, CoordinationError>) -> usize {
    match answer {
        Ok(Response::Range(response)) => response.count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_changes_nothing_and_reads_go_on() {
    let mut fixture = Fixture::new();
    fixture.apply(vec![put("before", 10)]);
    let lease = match fixture
        .apply(vec![Request::Grant {
            ttl: Duration::from_secs(9),
        }])
        .pop()
    {
        Some(Ok(Response::Granted(lease))) => lease,
        other => panic!("{other:?}"),
    };
    fixture.database.limit_pages(8);
    let revision = fixture.engine.header().revision;

    let group = vec![
        read(),
        put("small", 10),
        read(),
        put("large", 1 << 20),
        read(),
    ];
    let answers = fixture.apply(group);
    assert_eq!(answers[1], Err(CoordinationError::NoSpace));
    assert_eq!(answers[3], Err(CoordinationError::NoSpace));
    assert_eq!([0, 2, 4].map(|n| count(&answers[n])), [1, 1, 1]);
    assert_eq!(fixture.engine.header().revision, revision);

    // There is room for less, and the next change takes the next revision.
    let answers = fixture.apply(vec![Request::KeepAlive { lease }, put("small", 10), read()]);
    assert!(answers[0].is_ok());
    let Ok(Response::Txn(TxnResponse { header, .. })) = &answers[1] else {
        panic!("{answers:?}")
    };
    assert_eq!(header.revision, revision + 1);
    assert_eq!(count(&answers[2]), 2);
}

#[test]
fn a_group_is_one_commit_and_each_member_gets_its_own_answer() {
    let mut fixture = Fixture::new();
    let absent = crate::Compare::absent("key");
    let create = Request::Txn(Txn::new(vec![absent], vec![Op::put("key", "1")]));
    let answers = fixture.apply(vec![create.clone(), read(), create, read()]);
    let outcome = |answer: &Result<Response, CoordinationError>| match answer {
        Ok(Response::Txn(response)) => (response.succeeded, response.header.revision),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (outcome(&answers[0]), outcome(&answers[2])),
        ((true, 2), (false, 2))
    );
    assert_eq!((count(&answers[1]), count(&answers[3])), (1, 1));
    assert!(fixture.engine.changes().is_empty(), "all is committed");
}

#[test]
fn after_a_failed_sync_every_change_is_refused() {
    let mut fixture = Fixture::new();
    fixture.database.break_schema();
    let refused = |answer: &Result<Response, CoordinationError>| {
        assert!(
            matches!(answer, Err(CoordinationError::Unavailable { .. })),
            "{answer:?}"
        );
    };
    fixture.apply(vec![put("one", 1)]).iter().for_each(refused);
    fixture.apply(vec![put("two", 1)]).iter().for_each(refused);
    assert_eq!(count(&fixture.apply(vec![read()])[0]), 0);
}
