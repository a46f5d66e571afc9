//! The slice queue: the order in which a shard delivers the slices of a fan-out.
//!
//! Slices of small jobs go first. A small post may therefore be delivered before an earlier large one of the same author. Inboxes are
//! sorted, so only the order of arrival differs.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::limits::SLICE_RECIPIENTS_MAX;

/// The size of a job, by the number of followers that it may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobSize {
    /// One slice for each shard and route is enough.
    Small,
    /// It may need more slices.
    Large,
}

impl JobSize {
    /// Both sizes; small jobs are served first.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Returns the size of a job that may reach this many followers.
    pub fn of(followers: u64) -> Self {
        if followers <= SLICE_RECIPIENTS_MAX as u64 { Self::Small } else { Self::Large }
    }
}

/// Two values, one for jobs of each size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BySize<T> {
    small: T,
    large: T,
}

impl<T> Index<JobSize> for BySize<T> {
    type Output = T;

    fn index(&self, size: JobSize) -> &T {
        match size {
            JobSize::Small => &self.small,
            JobSize::Large => &self.large,
        }
    }
}

impl<T> IndexMut<JobSize> for BySize<T> {
    fn index_mut(&mut self, size: JobSize) -> &mut T {
        match size {
            JobSize::Small => &mut self.small,
            JobSize::Large => &mut self.large,
        }
    }
}

/// The slices that wait for delivery in one shard. The credit of `feed::schedule` limits their number.
#[derive(Debug)]
pub struct SliceQueue<S> {
    /// Each slice, with the number of its recipients.
    waiting: BySize<VecDeque<(usize, S)>>,
    /// The number of recipients of small jobs that were served while a large one waited, since the last slice of a large one.
    passed: usize,
}

impl<S> Default for SliceQueue<S> {
    fn default() -> Self {
        Self { waiting: BySize::default(), passed: 0 }
    }
}

impl<S> SliceQueue<S> {
    /// Adds a slice with this many recipients.
    pub fn push(&mut self, size: JobSize, recipients: usize, slice: S) {
        self.waiting[size].push_back((recipients, slice));
    }

    /// Returns true if no slice waits.
    pub fn is_empty(&self) -> bool {
        JobSize::ALL.into_iter().all(|size| self.waiting[size].is_empty())
    }

    /// Removes and returns the next slice to deliver: the oldest slice of a small job. It is the oldest slice of a large job if no small
    /// one waits, or if small ones with [`SLICE_RECIPIENTS_MAX`] recipients have passed it.
    pub fn pop(&mut self) -> Option<S> {
        let has_large = !self.waiting.large.is_empty();
        if !(has_large && self.passed >= SLICE_RECIPIENTS_MAX)
            && let Some((recipients, slice)) = self.waiting.small.pop_front()
        {
            self.passed = if has_large { self.passed + recipients } else { 0 };
            return Some(slice);
        }
        self.passed = 0;
        self.waiting.large.pop_front().map(|(_, slice)| slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Serves slices written as `s50` (small) or `L500` (large), all of them waiting from the start, and returns their order.
    fn served(slices: &str) -> String {
        let mut queue = SliceQueue::default();
        for slice in slices.split(' ') {
            let size = if slice.starts_with('s') { JobSize::Small } else { JobSize::Large };
            queue.push(size, slice[1..].parse().unwrap(), slice);
        }
        std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn small_jobs_overtake_large_ones_up_to_a_bound() {
        for (slices, order) in [
            ("L500", "L500"),
            ("L500 s50", "s50 L500"),
            ("L500 L499 s1 s2", "s1 s2 L500 L499"),
            ("s300 s301 s302", "s300 s301 s302"),
            ("L1 s300 s301 s302", "s300 s301 L1 s302"),
            ("L1 L2 s500 s400 s100 s50", "s500 L1 s400 s100 L2 s50"),
        ] {
            assert_eq!(served(slices), order, "of {slices}");
        }
    }

    #[test]
    fn a_job_is_small_if_one_slice_is_enough() {
        let sizes = [0, 1, 500, 501].map(JobSize::of);
        assert_eq!(sizes, [JobSize::Small, JobSize::Small, JobSize::Small, JobSize::Large]);
    }

    proptest! {
        /// Slices arrive and are served in any mix.
        #[test]
        fn a_large_slice_waits_for_a_bounded_number_of_small_recipients(
            steps in prop::collection::vec((0..3u8, 1..=SLICE_RECIPIENTS_MAX), 1..200),
        ) {
            let mut queue = SliceQueue::default();
            let (mut pushed, mut popped, mut passed, mut large_waiting) = (0, 0, 0, 0);
            let drain = (0..200).map(|_| (2, 0));
            for (kind, recipients) in steps.into_iter().chain(drain) {
                if kind < 2 {
                    let size = JobSize::ALL[usize::from(kind)];
                    queue.push(size, recipients, (size, recipients));
                    pushed += 1;
                    large_waiting += usize::from(size == JobSize::Large);
                    continue;
                }
                let Some((size, recipients)) = queue.pop() else { continue };
                popped += 1;
                match size {
                    JobSize::Small if large_waiting > 0 => passed += recipients,
                    JobSize::Small => passed = 0,
                    JobSize::Large => (large_waiting, passed) = (large_waiting - 1, 0),
                }
                prop_assert!(passed < 2 * SLICE_RECIPIENTS_MAX, "{} recipients passed a large slice", passed);
            }
            prop_assert!(queue.is_empty());
            prop_assert_eq!(pushed, popped);
        }
    }
}
