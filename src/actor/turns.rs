//! Turns: who of many that wait goes next.
//!
//! Responsible for:
//! - how many are at it together, how many may wait, in which order, and for how long.
//!
//! Not responsible for:
//! - what they do when it is their turn (`actor::reception`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Turns of a few at a time. While few wait, the oldest is next. While many do, the newest is, as Facebook does it ("Fail at
/// Scale", 2015): whoever waits for longest is likeliest to have given up, and those who come beside a crowd are not behind all of it.
#[derive(Debug)]
pub(super) struct Turns<T> {
    rules: Rules,
    /// Turns that were given and did not end.
    given: usize,
    /// Oldest first.
    waiting: VecDeque<(T, Instant)>,
}

/// How turns are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Turns at the same time.
    pub together_max: usize,
    /// Who may wait for one.
    pub waiting_max: usize,
    /// While more than this wait, the newest is next.
    pub newest_first_above: usize,
    /// How long anyone waits.
    pub wait_max: Duration,
}

/// What becomes of somebody who comes.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Arrival<T> {
    /// It is its turn.
    Turn(T),
    /// It waits.
    Waits,
    /// There is no room to wait.
    NoRoom(T),
}

/// Who gets a turn that has ended.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next<T> {
    /// This one.
    Turn(T),
    /// Not this one, which waited too long; who else is for another look to say.
    TooLate(T),
}

impl<T> Turns<T> {
    /// Turns that nobody has yet.
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, given: 0, waiting: VecDeque::new() }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Somebody comes at `now`.
    pub(super) fn come(&mut self, who: T, now: impl FnOnce() -> Instant) -> Arrival<T> {
        if self.given < self.rules.together_max {
            self.given += 1;
            return Arrival::Turn(who);
        }
        if self.waiting.len() >= self.rules.waiting_max {
            return Arrival::NoRoom(who);
        }
        self.waiting.push_back((who, now()));
        Arrival::Waits
    }

    /// A turn has ended, at `now`. Passes it on, or takes it back if nobody waits.
    pub(super) fn next(&mut self, now: impl FnOnce() -> Instant) -> Option<Next<T>> {
        let Some((_, since)) = self.waiting.front() else {
            self.given -= 1;
            // What a crowd needed is not kept for the next one.
            self.waiting.shrink_to(self.rules.newest_first_above);
            return None;
        };
        if now().saturating_duration_since(*since) > self.rules.wait_max {
            return self.waiting.pop_front().map(|(who, _)| Next::TooLate(who));
        }
        let many_wait = self.waiting.len() > self.rules.newest_first_above;
        let next = if many_wait { self.waiting.pop_back() } else { self.waiting.pop_front() };
        next.map(|(who, _)| Next::Turn(who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { together_max: 2, waiting_max: 6, newest_first_above: 3, wait_max: Duration::from_secs(2) };

    /// Turns of which all are given, and `waiting` who came one second after the other wait.
    fn crowded(waiting: usize, start: Instant) -> Turns<usize> {
        let mut turns = Turns::new(RULES);
        (0..2).for_each(|_| assert_eq!(turns.come(99, || start), Arrival::Turn(99)));
        for nth in 0..waiting {
            assert_eq!(turns.come(nth, || start), Arrival::Waits);
        }
        turns
    }

    #[test]
    fn the_newest_go_first_while_many_wait_and_the_oldest_once_few_do() {
        let start = Instant::now();
        let mut turns = crowded(6, start);
        let order: Vec<_> = std::iter::from_fn(|| turns.next(|| start)).collect();
        assert_eq!(order, [5, 4, 3, 0, 1, 2].map(Next::Turn));
    }

    #[test]
    fn as_many_are_at_it_as_may_be_and_no_more_wait_than_there_is_room_for() {
        let start = Instant::now();
        let mut turns = crowded(6, start);
        assert_eq!(turns.come(6, || start), Arrival::NoRoom(6));
        // The turn goes to one who waited, not to one who comes.
        assert_eq!(turns.next(|| start), Some(Next::Turn(5)));
        assert_eq!(turns.come(6, || start), Arrival::Waits);
        while turns.next(|| start).is_some() {}
        assert_eq!((turns.given, turns.waiting()), (1, 0));
        assert_eq!(turns.next(|| start), None);
        assert_eq!(turns.come(7, || start), Arrival::Turn(7));
        assert_eq!(turns.come(8, || start), Arrival::Turn(8));
        assert_eq!(turns.come(9, || start), Arrival::Waits);
    }

    #[test]
    fn nobody_waits_too_long_for_those_who_came_later() {
        let start = Instant::now();
        let mut turns = crowded(4, start);
        let late = start + RULES.wait_max + Duration::from_millis(1);
        assert_eq!(turns.come(4, || late), Arrival::Waits);
        let order: Vec<_> = std::iter::from_fn(|| turns.next(|| late)).collect();
        assert_eq!(order[..4], [0, 1, 2, 3].map(Next::TooLate));
        assert_eq!(order[4..], [Next::Turn(4)]);
    }
}
