//! The embedded stores behave as the suite says.

use gazette_coordination::{Embedded, EmbeddedOptions, conformance};

#[tokio::test]
async fn the_store_in_memory_conforms() {
    conformance::run(&Embedded::in_memory(), "/suite").await;
}

#[tokio::test(start_paused = true)]
async fn the_store_in_memory_conforms_on_virtual_time() {
    conformance::run(&Embedded::in_memory(), "/suite").await;
}

#[tokio::test]
async fn the_store_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path().join("coordination.db"))
        .await
        .unwrap();
    conformance::run(&store, "/suite").await;
    store.close().await;
}

#[tokio::test]
async fn another_limit_of_operations_conforms() {
    let options = EmbeddedOptions {
        max_txn_ops: 20,
        ..EmbeddedOptions::default()
    };
    conformance::run(&Embedded::in_memory_with(&options), "/suite").await;
}
