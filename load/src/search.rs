//! Searches the maximum throughput of a design: doubles the clients until the rate stops growing.
//!
//! It has no side effects except those of `rate`.

use std::num::NonZeroUsize;

/// Maximum number of clients.
const CLIENTS_MAX: usize = 1_024;

/// Minimum growth of the rate, when the clients double, for the search to continue.
const WORTH: f64 = 1.05;

/// Tries 1, 2, 4 … clients until doubling them gains less than 5 % two times in a row. `rate` measures the operations per second of that
/// many clients. Returns all measurements in order, and the error that ended the search, if any.
pub fn most<E>(mut rate: impl FnMut(NonZeroUsize) -> Result<f64, E>) -> (Vec<(NonZeroUsize, f64)>, Option<E>) {
    let (mut tried, mut best, mut in_vain) = (Vec::new(), 0.0, 0);
    let mut clients = NonZeroUsize::MIN;
    while in_vain < 2 && clients.get() <= CLIENTS_MAX {
        let reached = match rate(clients) {
            Ok(reached) => reached,
            Err(cause) => return (tried, Some(cause)),
        };
        tried.push((clients, reached));
        in_vain = if reached > best * WORTH { 0 } else { in_vain + 1 };
        best = f64::max(best, reached);
        clients = clients.saturating_add(clients.get());
    }
    (tried, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn tried(rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let (measured, _) = most(|clients| Ok::<_, Infallible>(rate(clients.get())));
        measured.into_iter().map(|(clients, _)| clients.get()).collect()
    }

    #[test]
    fn the_search_ends_when_more_clients_do_not_raise_the_rate() {
        assert_eq!(tried(|clients| clients.min(8) as f64), [1, 2, 4, 8, 16, 32]);
        assert_eq!(tried(|_| 7.0), [1, 2, 4]);
        assert_eq!(tried(|_| 0.0), [1, 2]);
        assert_eq!(tried(|clients| clients as f64).last(), Some(&1_024));
    }

    #[test]
    fn one_bad_measurement_does_not_end_the_search() {
        assert_eq!(tried(|clients| if clients == 4 { 1.0 } else { clients.min(16) as f64 }), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn a_failure_ends_the_search_and_keeps_earlier_results() {
        let (tried, ended) = most(|clients| if clients.get() < 4 { Ok(clients.get() as f64) } else { Err("gone") });
        assert_eq!((tried.len(), ended), (2, Some("gone")));
    }
}
