//! FairQueue: who of many that wait goes next.
//!
//! Responsible for:
//! - how many are at it together, how many may wait, and in which order their turns come.
//!
//! Not responsible for:
//! - what they do when it is their turn (`runtime::reader::read_scheduler`).

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// FairQueue of a few at a time. Whoever waits comes with a crowd `C`. Of two turns one goes to whoever has waited longest, so that nobody
/// waits for ever; the other goes round by crowds, so that few who come beside a huge crowd do not wait for all of it. It is fair
/// queueing (Nagle, RFC 970, 1985), for half of the turns.
#[derive(Debug)]
pub(super) struct FairQueue<C, T> {
    together_max: usize,
    waiting_max: usize,
    /// FairQueue that were given and did not end.
    given: usize,
    waiting: usize,
    /// Whoever waits, with the number of the arrival, by crowd; the oldest of each first.
    crowds: FxHashMap<C, VecDeque<(u64, T)>>,
    /// These crowds, in the order of their turns.
    round: VecDeque<C>,
    /// Arrivals and their crowds, the oldest first. Some have had their turn since.
    arrivals: VecDeque<(u64, C)>,
    arrived: u64,
    is_oldest_next: bool,
}

/// How much room is kept once nobody waits, for those who wait next.
const KEPT: usize = 64;

impl<C: Copy + Eq + Hash, T> FairQueue<C, T> {
    /// So many turns at the same time, and room for so many to wait.
    pub(super) fn new(together_max: usize, waiting_max: usize) -> Self {
        Self {
            together_max,
            waiting_max,
            given: 0,
            waiting: 0,
            crowds: FxHashMap::default(),
            round: VecDeque::new(),
            arrivals: VecDeque::new(),
            arrived: 0,
            is_oldest_next: false,
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a turn, if there is one that nobody waits for.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.given < self.together_max && self.waiting == 0;
        self.given += usize::from(is_free);
        is_free
    }

    /// Has somebody wait, who came with this crowd. Returns whether there is a turn to give.
    ///
    /// # Errors
    /// Hands back whom there is no room for.
    pub(super) fn wait(&mut self, crowd: C, who: T) -> Result<bool, T> {
        if self.waiting >= self.waiting_max {
            return Err(who);
        }
        let number = self.arrived;
        self.arrived += 1;
        self.waiting += 1;
        self.arrivals.push_back((number, crowd));
        let waiting = self.crowds.entry(crowd).or_insert_with(|| {
            self.round.push_back(crowd);
            VecDeque::new()
        });
        waiting.push_back((number, who));
        Ok(self.given < self.together_max)
    }

    /// Ends a turn. Returns whether somebody waits for it.
    pub(super) fn end(&mut self) -> bool {
        self.given -= 1;
        self.waiting > 0
    }

    /// Gives a turn to the next one, if there is any and anybody waits.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.given >= self.together_max || self.waiting == 0 {
            return None;
        }
        self.is_oldest_next = !self.is_oldest_next;
        let crowd = if self.is_oldest_next { self.crowd_of_the_oldest() } else { self.crowd_of_the_round() }?;
        let (_, who) = self.crowds.get_mut(&crowd)?.pop_front()?;
        self.given += 1;
        self.waiting -= 1;
        if self.waiting == 0 {
            self.forget();
        }
        Some(who)
    }

    /// Takes somebody out who waits, without a turn.
    pub(super) fn remove(&mut self) -> Option<T> {
        let crowd = self.crowd_of_the_oldest()?;
        self.waiting -= 1;
        self.crowds.get_mut(&crowd)?.pop_front().map(|(_, who)| who)
    }

    fn crowd_of_the_oldest(&mut self) -> Option<C> {
        while let Some((number, crowd)) = self.arrivals.pop_front() {
            let oldest = self.crowds.get(&crowd).and_then(VecDeque::front);
            if oldest.is_some_and(|(oldest, _)| *oldest == number) {
                return Some(crowd);
            }
        }
        None
    }

    fn crowd_of_the_round(&mut self) -> Option<C> {
        while let Some(crowd) = self.round.pop_front() {
            if self.crowds.get(&crowd).is_some_and(|waiting| !waiting.is_empty()) {
                self.round.push_back(crowd);
                return Some(crowd);
            }
            self.crowds.remove(&crowd);
        }
        None
    }

    /// Nobody waits: what a crowd needed is not kept for the next one.
    fn forget(&mut self) {
        self.crowds.clear();
        self.round.clear();
        self.arrivals.clear();
        self.crowds.shrink_to(KEPT);
        self.round.shrink_to(KEPT);
        self.arrivals.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One turn, which is given, and these who wait, each a crowd and a name.
    fn crowded(waiting: &[(char, u32)]) -> FairQueue<char, (char, u32)> {
        let mut turns = FairQueue::new(1, waiting.len());
        assert!(turns.take() && !turns.take());
        waiting.iter().for_each(|who| assert_eq!(turns.wait(who.0, *who), Ok(false)));
        turns
    }

    /// Ends the turn that was given, and gives it to the next.
    fn pass_on(turns: &mut FairQueue<char, (char, u32)>) -> Option<(char, u32)> {
        assert_eq!(turns.end(), turns.waiting() > 0);
        let next = turns.next();
        assert!(!turns.take() || next.is_none(), "it is given");
        next
    }

    fn order(turns: &mut FairQueue<char, (char, u32)>) -> String {
        let all: String = std::iter::repeat_n((), turns.waiting())
            .filter_map(|()| pass_on(turns))
            .map(|(crowd, name)| format!("{crowd}{name} "))
            .collect();
        assert!(!turns.end() && turns.next().is_none());
        all
    }

    #[test]
    fn one_of_two_turns_is_the_oldest_ones_and_the_other_goes_round_by_crowds() {
        for (waiting, expected) in [
            (&[('a', 1), ('a', 2), ('a', 3)][..], "a1 a2 a3 "),
            (&[('a', 1), ('a', 2), ('a', 3), ('a', 4), ('b', 1), ('b', 2)], "a1 a2 a3 b1 a4 b2 "),
            (&[('a', 1), ('b', 1), ('c', 1)], "a1 b1 c1 "),
            (&[('a', 1), ('a', 2), ('b', 1), ('c', 1), ('a', 3)], "a1 a2 b1 c1 a3 "),
        ] {
            assert_eq!(order(&mut crowded(waiting)), expected, "{waiting:?}");
        }
    }

    #[test]
    fn who_comes_beside_a_huge_crowd_waits_for_few_of_it() {
        let crowd: Vec<_> = (0..10_000).map(|nth| ('a', nth)).chain([('b', 0)]).collect();
        let mut turns = crowded(&crowd);
        let before = std::iter::from_fn(|| pass_on(&mut turns)).take_while(|(crowd, _)| *crowd == 'a').count();
        assert!(before <= 4, "{before} came before");
    }

    #[test]
    fn of_those_who_come_without_end_the_oldest_waits_for_twice_as_many_as_were_there() {
        let mut turns = crowded(&[('a', 0); 100]);
        turns.waiting_max = usize::MAX;
        turns.wait('a', ('a', 1)).unwrap();
        let mut before = 0;
        while pass_on(&mut turns).unwrap() != ('a', 1) {
            // Each with a crowd of its own, which the round knows how to prefer.
            turns.wait(char::from_u32(1_000 + before).unwrap(), ('z', before)).unwrap();
            before += 1;
        }
        assert!((150..=202).contains(&before), "{before} came before");
        assert!(turns.arrivals.len() < 2 * turns.waiting(), "what is gone is forgotten");
    }

    #[test]
    fn a_turn_is_free_only_while_nobody_waits_for_it() {
        let mut turns = crowded(&[('a', 1), ('b', 2)]);
        assert_eq!(turns.wait('c', ('c', 3)), Err(('c', 3)), "there is room for two");
        assert_eq!(turns.next(), None, "it is not free");
        assert!(turns.end() && !turns.take(), "nobody gets ahead of those who wait");
        assert_eq!(turns.next(), Some(('a', 1)));
        assert_eq!(turns.wait('a', ('a', 4)), Ok(false));
        assert_eq!(order(&mut turns), "a4 b2 ");
        assert_eq!((turns.given, turns.waiting(), turns.crowds.len(), turns.arrivals.len()), (0, 0, 0, 0));
        assert!(turns.take() && !turns.take());
        assert_eq!(turns.wait('a', ('a', 5)), Ok(false));
        assert_eq!(order(&mut turns), "a5 ");
        assert_eq!(turns.wait('a', ('a', 6)), Ok(true), "a turn has ended since it was looked for");
    }
}
