use std::{future::pending, time::Instant};

use super::*;

fn group() -> TaskGroup {
    TaskGroup::new(&CancellationToken::new())
}

#[tokio::test]
async fn a_group_whose_tasks_end_well_is_joined() {
    let tasks = group();
    tasks.spawn("one", async { Ok(()) });
    let more = tasks.clone();
    tasks.spawn("two", async move {
        more.spawn("three", async { Ok(()) });
        Ok(())
    });
    tasks.join(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn the_first_failure_cancels_the_others_and_is_reported() {
    let tasks = group();
    let token = tasks.token();
    tasks.spawn("waits", async move {
        token.cancelled().await;
        anyhow::bail!("a consequence")
    });
    tasks.spawn("fails", async {
        Err(anyhow::anyhow!("disk full").context("write spool"))
    });
    let error = tasks.join(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "fails: write spool: disk full");
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let tasks = group();
    let token = tasks.token();
    tasks.spawn("waits", async move {
        token.cancelled().await;
        Ok(())
    });
    tasks.spawn("panics", async { panic!("no {}", "way") });
    let error = tasks.join(Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(&error, TaskError::Panicked { task, message }
        if task == "panics" && message == "no way"));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_is_aborted_and_named() {
    let tasks = group();
    tasks.spawn("sleeps", pending());
    tasks.spawn("ends", async { Ok(()) });
    tasks.cancel();
    let error = tasks.join(Duration::from_secs(15)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "stop tasks: sleeps did not end within 15 s"
    );
}

#[tokio::test]
async fn joining_does_not_wait_for_the_grace_when_tasks_end() {
    let parent = CancellationToken::new();
    let tasks = TaskGroup::new(&parent);
    let token = tasks.token();
    tasks.spawn("waits", async move {
        token.cancelled().await;
        Ok(())
    });
    parent.cancel();
    let begun = Instant::now();
    tasks.join(Duration::from_mins(1)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
}
