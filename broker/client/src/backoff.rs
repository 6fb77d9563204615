//! How long to wait before another try.

use std::time::Duration;

/// Delays by number of failed attempts before this one. The last is repeated.
const SCHEDULE_MS: [u64; 7] = [50, 50, 100, 100, 1000, 1000, 5000];

/// Returns how long to wait after the failure of attempt number `attempt`, counted from zero.
///
/// Two short waits each of 50 ms and 100 ms cover the usual change of a route, two of a second a
/// restart; after that it is 5 s for ever.
pub fn retry_delay(attempt: u32) -> Duration {
    let index = usize::try_from(attempt).unwrap_or(usize::MAX);
    Duration::from_millis(SCHEDULE_MS[index.min(SCHEDULE_MS.len() - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_five_seconds_and_stay() {
        let delays: Vec<u128> = (0..9).map(|n| retry_delay(n).as_millis()).collect();
        assert_eq!(delays, [50, 50, 100, 100, 1000, 1000, 5000, 5000, 5000]);
        assert_eq!(retry_delay(u32::MAX).as_millis(), 5000);
    }
}
