use super::*;
use crate::conformance::conformance;

#[tokio::test]
async fn it_behaves_as_a_store() {
    conformance(&MemoryStore::new()).await;
}

#[tokio::test]
async fn objects_carry_the_time_that_was_set_and_the_encoding() {
    let store = MemoryStore::new();
    let content = || Arc::new(Bytes::from_static(b"x"));
    store.put("a", content(), None).await.unwrap();
    store.set_time(1_700_000_000);
    store.put("b", content(), Some("gzip")).await.unwrap();

    let times: Vec<i64> = store
        .list("")
        .await
        .unwrap()
        .iter()
        .map(|o| o.mod_time)
        .collect();
    assert_eq!(times, [1, 1_700_000_000]);
    assert_eq!(store.object("b").unwrap().1.as_deref(), Some("gzip"));
}
