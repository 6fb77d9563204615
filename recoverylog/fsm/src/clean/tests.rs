use super::*;
use crate::op::{Body, LinkName, RecordedOp};
use crate::{Applied, OpExtent, Write};

/// A file in one log, of which another log is a fork.
fn forked() -> Liveness {
    let mut liveness = Liveness::new();
    let mut offset = 0;
    let bodies = [
        Body::Create {
            at: LinkName {
                parent: Fnode::ROOT,
                path: "f".into(),
            },
            inode: None,
        },
        Body::Write(Write {
            fnode: Fnode(1),
            length: 10_000,
            ..Write::default()
        }),
        Body::NoOp { mark: None },
    ];
    for (seq_no, body) in (1..).zip(bodies) {
        let log = if seq_no < 3 { "a/log" } else { "b/log" }.into();
        let op = RecordedOp::new(seq_no, 0, 9, body);
        let extent = OpExtent {
            log: &log,
            begin: offset,
            end: offset + 20_000,
        };
        offset = if seq_no == 2 { 0 } else { offset + 20_000 };
        liveness.apply(&op, Applied::Applied, extent);
    }
    liveness
}

#[test]
fn nothing_is_recorded_again_within_the_bounds() {
    let policy = CleanPolicy::default();
    assert_eq!(debt(&forked(), &policy), 0);
    assert_eq!(choose(&forked(), &policy, 1 << 20), []);
}

#[test]
fn a_fork_that_leaves_the_other_log_records_all_of_it_again() {
    let policy = CleanPolicy {
        leaves_other_logs: true,
        ..CleanPolicy::default()
    };
    assert_eq!(debt(&forked(), &policy), 40_000);
    let fnode = Fnode(1);
    let content = Repeat::Content {
        fnode,
        offset: 0,
        length: 10_000,
    };
    let all = [content, Repeat::Size { fnode }, Repeat::Inode { fnode }];
    assert_eq!(choose(&forked(), &policy, 1 << 20), all);
    assert_eq!(choose(&forked(), &policy, 1), all[..1]);
}
