use super::*;

fn status(thread: u64, process: u64, blocked: u64, ignored: u64, caught: u64) -> String {
    format!(
        "Name:\tx\nVmSize:\t  100 kB\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\n\
         SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
    )
}

#[test]
fn a_kill_and_a_fatal_signal_end_a_call() {
    assert!(has_signal(&status(signals(&[9]), 0, 0, 0, 0)));
    assert!(has_signal(&status(0, signals(&[9]), 0, 0, 0)));
    // One that dumps core stays pending as itself.
    assert!(has_signal(&status(0, signals(&[3]), 0, 0, 0)));
}

#[test]
fn a_handled_signal_ends_a_call_if_it_is_meant_to() {
    let caught = signals(&[2, 14, 17, 23]);
    assert!(has_signal(&status(0, signals(&[2]), 0, 0, caught)));
    assert!(has_signal(&status(0, signals(&[14]), 0, 0, caught)));
    assert!(!has_signal(&status(0, signals(&[17]), 0, 0, caught)));
    assert!(!has_signal(&status(signals(&[23]), 0, 0, 0, caught)));
}

#[test]
fn blocked_ignored_and_stopping_signals_do_not_end_a_call() {
    assert!(!has_signal(&status(
        0,
        signals(&[15]),
        signals(&[15]),
        0,
        0
    )));
    assert!(!has_signal(&status(
        0,
        signals(&[15]),
        0,
        signals(&[15]),
        0
    )));
    assert!(!has_signal(&status(0, signals(&[20]), 0, 0, 0)));
    assert!(!has_signal(""));
}

#[test]
fn a_leaving_process_tells_how_it_began_to_leave() {
    let stat = |flags: u64, code: u64| {
        let zeros = "0 ".repeat(42);
        format!("7 (a) (b ) D 1 1 1 0 -1 {flags} {zeros}{code}\n")
    };
    assert!(was_killed(&stat(PF_EXITING, 9)));
    assert!(!was_killed(&stat(PF_EXITING, 1 << 8)));
    assert!(!was_killed(&stat(0, 9)));
}

#[test]
fn this_thread_waits_and_an_unknown_one_cannot_be_seen() {
    assert_eq!(Caller::new(std::process::id()).look(), None);
    assert_eq!(Caller::NOBODY.look(), None);
    assert_eq!(Caller::new(u32::MAX).look(), None);
}
