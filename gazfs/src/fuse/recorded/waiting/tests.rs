use std::sync::mpsc::RecvTimeoutError;

use super::*;

fn who(pid: u32) -> Who {
    Who {
        unique: 2,
        uid: 0,
        gid: 0,
        caller: Caller::new(pid),
    }
}

/// A call of this process, what answers it, and what tells how it was answered.
fn call(waiting: &Waiting) -> (Answer, mpsc::Receiver<bool>) {
    let (told, answer) = mpsc::channel();
    let done = waiting.until_killed(&who(std::process::id()), move |done| {
        told.send(done.is_ok()).expect("the test waits");
    });
    (Box::new(done), answer)
}

#[test]
fn who_waits_is_answered_once() {
    let waiting = Waiting::start().expect("start threads");
    let (done, answer) = call(&waiting);
    done(Ok(()));
    assert_eq!(answer.recv_timeout(LONG), Ok(true));
    assert_eq!(
        answer.recv_timeout(LONG),
        Err(RecvTimeoutError::Disconnected)
    );
}

// A log that ends, or a thread that does not start, drops what it was to do.
#[test]
fn an_answer_that_nobody_will_give_is_dropped_and_does_not_wait_for_ever() {
    let waiting = Waiting::start().expect("start threads");
    let (done, answer) = call(&waiting);
    drop(done);
    assert_eq!(
        answer.recv_timeout(LONG),
        Err(RecvTimeoutError::Disconnected)
    );
    assert!(waiting.watched.lock().calls.is_empty());
}

const LONG: Duration = Duration::from_secs(10);
