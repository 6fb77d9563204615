use proptest::prelude::*;

use super::*;

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "results are relative to it")]
    Instant::now()
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A flow whose append began at the returned instant.
fn flow(min_rate: u64, max_rate: Option<u64>) -> (FlowControl, Instant) {
    let began = start();
    let mut flow = FlowControl::new();
    flow.begin(began, min_rate, max_rate);
    (flow, began)
}

#[test]
fn without_a_maximum_everything_passes() {
    let (mut flow, now) = flow(0, None);
    for _ in 0..10 {
        assert_eq!(flow.charge(now, 1 << 30), Charge::Pass);
    }
    assert_eq!(flow.starves_at(), None, "nor is there a minimum");
}

#[test]
fn a_second_of_the_maximum_passes_at_once_and_more_is_held() {
    let (mut flow, now) = flow(0, Some(1000));
    assert_eq!(flow.charge(now, 900), Charge::Pass);
    assert_eq!(flow.charge(now, 300), Charge::Hold(now + ms(200)));
    assert_eq!(flow.resume(now + ms(100)), Charge::Hold(now + ms(200)));
    assert_eq!(flow.resume(now + ms(200)), Charge::Pass);
    assert_eq!(
        flow.charge(now + ms(200), 1),
        Charge::Hold(now + ms(250)),
        "waits are on a grid"
    );
}

#[test]
fn a_chunk_larger_than_the_bank_is_paid_bit_by_bit() {
    let (mut flow, now) = flow(65_536, Some(1000));
    assert_eq!(flow.charge(now, 101_000), Charge::Hold(now + ms(100_000)));
    assert_eq!(
        flow.resume(now + ms(60_000)),
        Charge::Hold(now + ms(100_000))
    );
    assert_eq!(flow.starves_at(), None, "its client is not to blame");
    assert_eq!(flow.resume(now + ms(100_000)), Charge::Pass);
    assert_eq!(flow.starves_at(), Some(now + ms(101_000)));
}

#[test]
fn unused_content_is_kept_for_ten_seconds_across_appends() {
    let (mut flow, now) = flow(0, Some(1000));
    flow.charge(now, 1000);
    flow.end();
    let later = now + Duration::from_mins(1);
    flow.begin(later, 0, Some(1000));
    assert_eq!(flow.charge(later, 10_000), Charge::Pass);
    assert_eq!(flow.charge(later, 100), Charge::Hold(later + ms(100)));
}

#[test]
fn a_client_must_sustain_the_minimum_after_a_second() {
    let (mut flow, now) = flow(1000, None);
    assert_eq!(flow.starves_at(), Some(now + ms(1000)));
    flow.charge(now + ms(900), 400);
    assert_eq!(flow.starves_at(), Some(now + ms(1400)));
    flow.charge(now + ms(1000), 5000);
    assert_eq!(
        flow.starves_at(),
        Some(now + ms(2000)),
        "it is a second ahead at most"
    );
    flow.charge(now + ms(1900), 7);
    assert_eq!(
        flow.starves_at(),
        Some(now + ms(2050)),
        "waits are on a grid"
    );
}

#[test]
fn lifting_the_maximum_lets_a_held_chunk_pass() {
    let (mut flow, now) = flow(0, Some(10));
    assert!(matches!(flow.charge(now, 1000), Charge::Hold(_)));
    flow.lift_max();
    assert_eq!(flow.resume(now), Charge::Pass);
    assert_eq!(flow.charge(now, 1000), Charge::Pass);
    flow.end();
    flow.begin(now, 0, Some(10));
    assert!(
        matches!(flow.charge(now, 1000), Charge::Hold(_)),
        "it is lifted for one append"
    );
}

#[test]
fn a_clock_that_steps_back_earns_nothing_until_it_has_caught_up() {
    let began = start() + Duration::from_mins(1);
    let mut flow = FlowControl::new();
    flow.begin(began, 0, Some(1000));
    flow.charge(began, 1000);
    flow.end();
    let earlier = began.checked_sub(ms(500)).unwrap();
    flow.begin(earlier, 0, Some(1000));
    assert!(matches!(flow.charge(earlier, 100), Charge::Hold(_)));
    assert!(matches!(flow.resume(began), Charge::Hold(_)));
    assert_eq!(flow.resume(began + ms(100)), Charge::Pass);
}

#[test]
fn the_broker_limits_journals_that_do_not_limit_themselves() {
    assert_eq!(max_rate(0, 0), None);
    assert_eq!(max_rate(0, 1000), Some(1000));
    assert_eq!(max_rate(10, 1000), Some(10));
    assert_eq!(max_rate(5000, 1000), Some(1000));
    assert_eq!(max_rate(5000, 0), Some(5000));
    assert_eq!(max_rate(-1, 0), None);
}

proptest! {
    #[test]
    fn no_flow_exceeds_its_rate_and_its_bank(
        rate in 1..2000u64,
        chunks in prop::collection::vec((0..3000u64, 1..5000usize), 1..40),
    ) {
        let (mut flow, began) = flow(0, Some(rate));
        let mut now = began;
        let mut passed = 0u64;
        for (pause, length) in chunks {
            now += ms(pause);
            let mut charge = flow.charge(now, length);
            while let Charge::Hold(until) = charge {
                prop_assert!(until > now, "a hold lasts");
                now = until;
                charge = flow.resume(now);
            }
            passed += length as u64;
            let allowed = rate * (1 + (now - began).as_secs() + 1);
            prop_assert!(passed <= allowed, "{} of {} bytes", passed, allowed);
        }
    }

    #[test]
    fn a_client_that_is_fast_enough_never_starves(
        pauses in prop::collection::vec(1..900u64, 1..40),
    ) {
        let (mut flow, mut now) = flow(1000, None);
        for pause in pauses {
            now += ms(pause);
            prop_assert!(flow.starves_at() >= Some(now));
            flow.charge(now, usize::try_from(pause).unwrap());
        }
    }
}
