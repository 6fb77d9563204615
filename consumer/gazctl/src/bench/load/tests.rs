use super::*;

struct Sleeper {
    pause: Duration,
    fails: bool,
}

impl Operation for Sleeper {
    async fn run(&mut self) -> anyhow::Result<u64> {
        tokio::time::sleep(self.pause).await;
        if self.fails {
            Err(anyhow!("no luck"))
        } else {
            Ok(100)
        }
    }
}

fn window(warmup: u64, length: u64) -> Window {
    let begin = Instant::now() + Duration::from_secs(warmup);
    Window {
        begin,
        end: begin + Duration::from_secs(length),
    }
}

async fn measure(clients: Vec<Sleeper>, window: Window) -> Measurement {
    let stop = CancellationToken::new();
    run(clients, window, Arc::new(Counters::default()), &stop)
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_what_ends_in_the_window_counts() {
    let pause = Duration::from_millis(300);
    let sleeper = || Sleeper {
        pause,
        fails: false,
    };
    let measured = measure(vec![sleeper(), sleeper()], window(2, 10)).await;
    // Ends at 2.1 s, 2.4 s … 11.7 s: 33 of each client. At 12.0 s the window has ended.
    assert_eq!(measured.operations, 66);
    assert_eq!(measured.bytes, 6600);
    assert_eq!(measured.errors, 0);
    assert_eq!(measured.elapsed, Duration::from_secs(10));
    assert_eq!(measured.latency.len(), 66);
    let median = measured.latency.value_at_quantile(0.5);
    assert!((299_000..=302_000).contains(&median), "{median}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_and_the_first_is_kept() {
    let failing = Sleeper {
        pause: Duration::from_millis(900),
        fails: true,
    };
    let measured = measure(vec![failing], window(0, 10)).await;
    assert_eq!(measured.operations, 0);
    // Each with its pause takes a second.
    assert_eq!(measured.errors, 10);
    assert_eq!(measured.first_error.as_deref(), Some("no luck"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_does_not_hold_the_end_up() {
    let begun = Instant::now();
    let stuck = Sleeper {
        pause: Duration::from_hours(1),
        fails: false,
    };
    let measured = measure(vec![stuck], window(0, 1)).await;
    assert_eq!(measured.operations, 0);
    assert_eq!(begun.elapsed(), Duration::from_secs(1) + OVERTIME_MAX);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_ended_early() {
    let sleeper = Sleeper {
        pause: Duration::from_millis(100),
        fails: false,
    };
    let stop = CancellationToken::new();
    let token = stop.clone();
    drop(tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1050)).await;
        token.cancel();
    }));
    let counters = Arc::new(Counters::default());
    let measured = run(vec![sleeper], window(0, 60), counters, &stop)
        .await
        .unwrap();
    assert_eq!(measured.operations, 10);
    assert_eq!(measured.elapsed, Duration::from_millis(1050));
}
