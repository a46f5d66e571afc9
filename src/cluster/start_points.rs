//! The points from which a node can read a log: the records after which it knows the state of the cluster.

use parking_lot::Mutex;

use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::storage::sequence::Sequence;

/// Maximum number of known states. Above it, the state that is closest to its neighbours is dropped, so that the rest
/// covers the whole log.
const STATES_MAX: usize = 64;

/// States of the cluster, each after a record: after the first record, at the snapshots of this node, and where readers
/// of changes have ended.
pub struct StartPoints(Mutex<Vec<LogCheckpoint>>);

impl StartPoints {
    /// Starts with these states.
    pub fn new(states: Vec<LogCheckpoint>) -> Self {
        let points = Self(Mutex::default());
        states.into_iter().for_each(|state| points.add(state));
        points
    }

    /// Adds the state at another record.
    pub fn add(&self, state: LogCheckpoint) {
        let mut states = self.0.lock();
        let Err(nth) = states.binary_search_by_key(&state.sequence, |state| state.sequence) else { return };
        states.insert(nth, state);
        if states.len() > STATES_MAX {
            let gap = |nth: &usize| states[nth + 1].sequence.0 - states[nth - 1].sequence.0;
            let dispensable = (1..states.len() - 1).min_by_key(gap).unwrap_or_default();
            states.remove(dispensable);
        }
    }

    /// Returns the last state from which the log, which begins at `first`, can be read to get all events after `after`.
    ///
    /// # Errors
    /// If there is none, returns the first event that can be read, or None if the log cannot be read from any known
    /// state.
    pub fn before(&self, after: Sequence, first: Sequence) -> Result<LogCheckpoint, Option<Sequence>> {
        let mut states = self.0.lock();
        states.retain(|state| state.sequence.next() >= first);
        // The first record of a log is not an event.
        let is_early = |state: &&LogCheckpoint| state.sequence <= after.max(Sequence(1));
        let found = states.iter().rev().find(is_early).cloned();
        found.ok_or_else(|| states.first().map(|state| state.sequence.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::membership::Membership;

    fn state(sequence: u64) -> LogCheckpoint {
        let sequence = Sequence(sequence);
        LogCheckpoint { membership: Membership::unknown(), sequence, last_event: sequence, fingerprint: 0 }
    }

    fn from(points: &StartPoints, after: u64, first: u64) -> Result<u64, Option<u64>> {
        let found = points.before(Sequence(after), Sequence(first));
        found.map(|state| state.sequence.0).map_err(|first| first.map(|first| first.0))
    }

    #[test]
    fn reading_begins_at_the_last_early_enough_state_that_the_log_still_has() {
        let points = StartPoints::new([1, 50, 20].map(state).into());
        for (after, first, expected) in [
            (0, 1, Ok(1)),
            (19, 1, Ok(1)),
            (20, 1, Ok(20)),
            (90, 21, Ok(50)),
            (49, 21, Ok(20)),
            (19, 21, Err(Some(21))),
            (49, 22, Err(Some(51))),
            (49, 52, Err(None)),
        ] {
            assert_eq!(from(&points, after, first), expected, "after {after} in a log from {first} on");
        }
        points.add(state(70));
        assert_eq!(from(&points, 80, 52), Ok(70), "a snapshot that was taken later");
    }

    #[test]
    fn many_states_are_thinned_out_evenly_over_the_log() {
        let points = StartPoints::new(Vec::new());
        (1..=10_000).for_each(|sequence| points.add(state(sequence)));
        assert_eq!(points.0.lock().len(), STATES_MAX);
        assert_eq!((from(&points, 1, 1), from(&points, 10_000, 1)), (Ok(1), Ok(10_000)));
        let sequences: Vec<u64> = points.0.lock().iter().map(|state| state.sequence.0).collect();
        let longest = sequences.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= 10_000 / 16, "{sequences:?}");
    }
}
