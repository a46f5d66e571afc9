//! The fair queue: the order in which waiting elements get permits.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// A queue with a limited number of permits. Each waiting element has a flow key `C`. Every other permit is granted
/// to the element that has waited longest, so that no element waits forever. The rest are granted to the flows in
/// round-robin order, so that the few elements of a small flow do not wait for all elements of a huge one. This is
/// fair queueing (Nagle, RFC 970, 1985) for half of the permits.
#[derive(Debug)]
pub(super) struct FairQueue<C, T> {
    permits_max: usize,
    waiting_max: usize,
    /// The number of permits in use.
    granted: usize,
    waiting: usize,
    /// The waiting elements of each flow with their arrival numbers, oldest first.
    flows: FxHashMap<C, VecDeque<(u64, T)>>,
    /// The flows in round-robin order.
    round: VecDeque<C>,
    /// Arrival numbers and their flows, oldest first. Includes elements that have got their permit since.
    arrivals: VecDeque<(u64, C)>,
    arrived: u64,
    is_oldest_next: bool,
}

/// The capacity that each collection keeps when the queue becomes empty.
const CAPACITY_KEPT: usize = 64;

impl<C: Copy + Eq + Hash, T> FairQueue<C, T> {
    /// Creates a queue with these limits for permits in use and for waiting elements.
    pub(super) fn new(permits_max: usize, waiting_max: usize) -> Self {
        Self {
            permits_max,
            waiting_max,
            granted: 0,
            waiting: 0,
            flows: FxHashMap::default(),
            round: VecDeque::new(),
            arrivals: VecDeque::new(),
            arrived: 0,
            is_oldest_next: false,
        }
    }

    /// Returns the number of waiting elements.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a permit if one is free and no element waits. Returns true if it did.
    pub(super) fn try_acquire(&mut self) -> bool {
        let is_free = self.granted < self.permits_max && self.waiting == 0;
        self.granted += usize::from(is_free);
        is_free
    }

    /// Adds an element with this flow key. Returns true if a permit is free.
    ///
    /// # Errors
    /// Returns the element if the queue is full.
    pub(super) fn enqueue(&mut self, flow: C, element: T) -> Result<bool, T> {
        if self.waiting >= self.waiting_max {
            return Err(element);
        }
        let number = self.arrived;
        self.arrived += 1;
        self.waiting += 1;
        self.arrivals.push_back((number, flow));
        let waiting = self.flows.entry(flow).or_insert_with(|| {
            self.round.push_back(flow);
            VecDeque::new()
        });
        waiting.push_back((number, element));
        Ok(self.granted < self.permits_max)
    }

    /// Releases a permit. Returns true if an element waits for it.
    pub(super) fn release(&mut self) -> bool {
        self.granted -= 1;
        self.waiting > 0
    }

    /// Grants a permit to the next element, if a permit is free and an element waits.
    pub(super) fn grant_next(&mut self) -> Option<T> {
        if self.granted >= self.permits_max || self.waiting == 0 {
            return None;
        }
        self.is_oldest_next = !self.is_oldest_next;
        let flow = if self.is_oldest_next { self.oldest_flow() } else { self.next_flow() }?;
        let (_, element) = self.flows.get_mut(&flow)?.pop_front()?;
        self.granted += 1;
        self.waiting -= 1;
        if self.waiting == 0 {
            self.shrink();
        }
        Some(element)
    }

    /// Removes a waiting element without a permit.
    pub(super) fn remove_oldest(&mut self) -> Option<T> {
        let flow = self.oldest_flow()?;
        self.waiting -= 1;
        self.flows.get_mut(&flow)?.pop_front().map(|(_, element)| element)
    }

    fn oldest_flow(&mut self) -> Option<C> {
        while let Some((number, flow)) = self.arrivals.pop_front() {
            let oldest = self.flows.get(&flow).and_then(VecDeque::front);
            if oldest.is_some_and(|(oldest, _)| *oldest == number) {
                return Some(flow);
            }
        }
        None
    }

    fn next_flow(&mut self) -> Option<C> {
        while let Some(flow) = self.round.pop_front() {
            if self.flows.get(&flow).is_some_and(|waiting| !waiting.is_empty()) {
                self.round.push_back(flow);
                return Some(flow);
            }
            self.flows.remove(&flow);
        }
        None
    }

    /// Releases memory when the queue becomes empty: the capacity that a large flow needed is not kept.
    fn shrink(&mut self) {
        self.flows.clear();
        self.round.clear();
        self.arrivals.clear();
        self.flows.shrink_to(CAPACITY_KEPT);
        self.round.shrink_to(CAPACITY_KEPT);
        self.arrivals.shrink_to(CAPACITY_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a queue with one permit, which is in use, and with these waiting elements, each a flow key and a name.
    fn full_queue(waiting: &[(char, u32)]) -> FairQueue<char, (char, u32)> {
        let mut queue = FairQueue::new(1, waiting.len());
        assert!(queue.try_acquire() && !queue.try_acquire());
        waiting.iter().for_each(|element| assert_eq!(queue.enqueue(element.0, *element), Ok(false)));
        queue
    }

    /// Releases the permit, and grants it to the next element.
    fn release_and_grant(queue: &mut FairQueue<char, (char, u32)>) -> Option<(char, u32)> {
        assert_eq!(queue.release(), queue.waiting() > 0);
        let next = queue.grant_next();
        assert!(!queue.try_acquire() || next.is_none(), "it is granted");
        next
    }

    fn order(queue: &mut FairQueue<char, (char, u32)>) -> String {
        let all: String = std::iter::repeat_n((), queue.waiting())
            .filter_map(|()| release_and_grant(queue))
            .map(|(flow, name)| format!("{flow}{name} "))
            .collect();
        assert!(!queue.release() && queue.grant_next().is_none());
        all
    }

    #[test]
    fn turns_alternate_between_the_oldest_request_and_round_robin_over_flows() {
        for (waiting, expected) in [
            (&[('a', 1), ('a', 2), ('a', 3)][..], "a1 a2 a3 "),
            (&[('a', 1), ('a', 2), ('a', 3), ('a', 4), ('b', 1), ('b', 2)], "a1 a2 a3 b1 a4 b2 "),
            (&[('a', 1), ('b', 1), ('c', 1)], "a1 b1 c1 "),
            (&[('a', 1), ('a', 2), ('b', 1), ('c', 1), ('a', 3)], "a1 a2 b1 c1 a3 "),
        ] {
            assert_eq!(order(&mut full_queue(waiting)), expected, "{waiting:?}");
        }
    }

    #[test]
    fn a_request_beside_a_huge_flow_waits_for_few_others() {
        let flow: Vec<_> = (0..10_000).map(|nth| ('a', nth)).chain([('b', 0)]).collect();
        let mut queue = full_queue(&flow);
        let before = std::iter::from_fn(|| release_and_grant(&mut queue)).take_while(|(flow, _)| *flow == 'a').count();
        assert!(before <= 4, "{before} came before");
    }

    #[test]
    fn under_endless_arrivals_the_oldest_request_waits_for_a_bounded_number() {
        let mut queue = full_queue(&[('a', 0); 100]);
        queue.waiting_max = usize::MAX;
        queue.enqueue('a', ('a', 1)).unwrap();
        let mut before = 0;
        while release_and_grant(&mut queue).unwrap() != ('a', 1) {
            // Each has a flow key of its own, which the round-robin order prefers.
            queue.enqueue(char::from_u32(1_000 + before).unwrap(), ('z', before)).unwrap();
            before += 1;
        }
        assert!((150..=202).contains(&before), "{before} came before");
        assert!(queue.arrivals.len() < 2 * queue.waiting(), "what is gone is forgotten");
    }

    #[test]
    fn a_permit_is_free_only_while_no_request_waits() {
        let mut queue = full_queue(&[('a', 1), ('b', 2)]);
        assert_eq!(queue.enqueue('c', ('c', 3)), Err(('c', 3)), "the capacity is two");
        assert_eq!(queue.grant_next(), None, "it is not free");
        assert!(queue.release() && !queue.try_acquire(), "no element overtakes those that wait");
        assert_eq!(queue.grant_next(), Some(('a', 1)));
        assert_eq!(queue.enqueue('a', ('a', 4)), Ok(false));
        assert_eq!(order(&mut queue), "a4 b2 ");
        assert_eq!((queue.granted, queue.waiting(), queue.flows.len(), queue.arrivals.len()), (0, 0, 0, 0));
        assert!(queue.try_acquire() && !queue.try_acquire());
        assert_eq!(queue.enqueue('a', ('a', 5)), Ok(false));
        assert_eq!(order(&mut queue), "a5 ");
        assert_eq!(queue.enqueue('a', ('a', 6)), Ok(true), "a permit was released since it was requested");
    }
}
