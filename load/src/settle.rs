//! Measures the memory of a server after it has finished its work.

use std::time::Duration;

/// Maximum difference between two consecutive readings, as a share of the later one.
const APART_MAX: f64 = 0.01;

/// Time between two readings.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum number of readings: half a minute of them.
const READINGS_MAX: usize = 60;

/// Reads until two consecutive readings agree or `READINGS_MAX` is reached. Returns the last reading.
pub async fn settled(read: impl FnMut() -> u64) -> u64 {
    settled_with(read, PAUSE).await
}

async fn settled_with(mut read: impl FnMut() -> u64, pause: Duration) -> u64 {
    let mut last = read();
    for _ in 1..READINGS_MAX {
        tokio::time::sleep(pause).await;
        let now = read();
        let agree = now.abs_diff(last) as f64 <= now as f64 * APART_MAX;
        last = now;
        if agree {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime;

    /// Returns the settled memory and the number of readings.
    fn of(readings: impl Fn(usize) -> u64) -> (u64, usize) {
        let mut count = 0;
        let read = || {
            count += 1;
            readings(count)
        };
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        (runtime.block_on(settled_with(read, Duration::ZERO)), count)
    }

    #[test]
    fn memory_is_read_until_two_readings_agree() {
        let growing = [0, 1_000, 1_500, 1_520, 1_530, 9_000];
        assert_eq!(of(|nth| growing[nth]), (1_530, 4));
        let shrinking = [0, 1_000, 900, 892, 100];
        assert_eq!(of(|nth| shrinking[nth]), (892, 3));
        assert_eq!(of(|_| 0), (0, 2));
    }

    #[test]
    fn the_wait_for_a_server_that_never_settles_is_bounded() {
        assert_eq!(of(|nth| 2_u64.pow(nth as u32 % 40)).1, READINGS_MAX);
    }
}
