//! The k-way merge: merges the positions of an inbox and many outboxes into one sorted sequence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::feed::inbox::Inbox;
use crate::feed::outbox::{OutboxQuery, Part, ReadGap};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::work::Budget;
use crate::id::SourceSlot;

/// Reads positions from outboxes.
pub trait Outboxes {
    /// Appends the requested positions of the outbox of `source` to `into`.
    ///
    /// # Errors
    /// Returns an error if positions are missing although fewer than `ask.max` were appended.
    fn pull(&self, source: SourceSlot, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap>;

    /// Returns true if reading a source may take long: all others are read before it.
    fn is_slow(&self, _: SourceSlot) -> bool {
        false
    }

    /// Announces the next pulls, so that the outboxes can be read concurrently.
    fn prepare(&self, _: &mut dyn Iterator<Item = (SourceSlot, OutboxQuery)>) {}
}

/// An input of the merge.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The inbox of a reader.
    Inbox(&'a Inbox),
    /// A part of a source's outbox.
    Outbox(SourceSlot, Part),
    /// A list of positions, ascending.
    Listed(&'a [Position]),
}

/// A merge of all inputs. It yields each position once, however many inputs have it.
pub struct Merge<'a, O> {
    outboxes: &'a O,
    budget: &'a Budget<'a>,
    direction: Direction,
    /// The expected length of the sequence. The inbox, which is likely to have most of it, is read in chunks of this size.
    wanted: usize,
    /// The number of positions that are read from an outbox at a time.
    chunk: usize,
    streams: Vec<Stream<'a>>,
    /// The head of every stream that is not exhausted, the next position on top.
    heads: BinaryHeap<Reverse<(u128, u32)>>,
    /// The chunks of all streams, one after the other, so that a stream costs no allocation of its own.
    buffer: Vec<Position>,
    unavailable: Vec<SourceSlot>,
    /// At and below this position some outbox has posts that are not in memory.
    archived: Option<Position>,
    /// True if the budget was spent before the next position was known.
    is_cut: bool,
    /// The number of streams whose head is, or was, in the heap.
    filled: usize,
}

/// The missing parts of a merge.
#[derive(Debug, Default)]
pub struct Shortfall {
    /// The sources whose outboxes could not be read.
    pub unavailable: Vec<SourceSlot>,
    /// The position at which the merge ended, because some outbox continues in the archive.
    pub archived: Option<Position>,
    /// True if the budget was spent before the merge was complete.
    pub is_cut: bool,
}

struct Stream<'a> {
    input: Input<'a>,
    /// The span that was not read yet.
    rest: PositionRange,
    /// The index in the buffer of the rest of the last chunk.
    at: usize,
    end: usize,
    /// True if the last chunk was shorter than requested: the stream has no more positions.
    dry: bool,
}

impl Stream<'_> {
    fn is_slow(&self, outboxes: &impl Outboxes) -> bool {
        matches!(self.input, Input::Outbox(source, _) if outboxes.is_slow(source))
    }
}

impl<'a, O: Outboxes> Merge<'a, O> {
    /// Starts a merge of `inputs` through `span` that is expected to yield `wanted` positions.
    pub fn new(
        outboxes: &'a O,
        budget: &'a Budget<'a>,
        inputs: impl Iterator<Item = Input<'a>>,
        span: PositionRange,
        direction: Direction,
        wanted: usize,
    ) -> Self {
        let streams: Vec<_> =
            inputs.map(|input| Stream { input, rest: span, at: 0, end: 0, dry: span.is_empty() }).collect();
        // The chunk is twice an even share, so that most streams are read once, and never more than the whole.
        let share = (2 * wanted).div_ceil(streams.len().max(1));
        let chunk = share.clamp(2, wanted.max(2));
        let mut merge = Self {
            outboxes,
            budget,
            direction,
            wanted: wanted.max(2),
            chunk,
            heads: BinaryHeap::with_capacity(streams.len()),
            buffer: Vec::with_capacity(streams.len() * chunk),
            streams,
            unavailable: Vec::new(),
            archived: None,
            filled: 0,
            is_cut: false,
        };
        merge.shuffle();
        merge.prepare();
        merge.fill();
        merge
    }

    /// Announces the first read of each outbox.
    fn prepare(&self) {
        let asks = self.streams.iter().filter(|stream| !stream.dry).filter_map(|stream| match stream.input {
            Input::Outbox(source, part) => Some((source, self.ask(stream, part))),
            Input::Inbox(_) | Input::Listed(_) => None,
        });
        self.outboxes.prepare(&mut { asks });
    }

    /// Returns the next read of an outbox.
    fn ask(&self, stream: &Stream<'_>, part: Part) -> OutboxQuery {
        // A slow outbox is read once in full: a second read may not fit into the page's time.
        let max = if stream.is_slow(self.outboxes) { self.wanted } else { self.chunk };
        OutboxQuery { part, span: stream.rest, direction: self.direction, max }
    }

    /// Returns at most `max` positions that were read already and are next, in no particular order. There may be others between them.
    pub fn ahead(&self, max: usize) -> Vec<Position> {
        let heads = self.heads.iter().map(|&Reverse((head, _))| position(head, self.direction));
        let read = self.streams.iter().flat_map(|stream| &self.buffer[stream.at..stream.end]).copied();
        let mut ahead: Vec<Position> = heads.chain(read).collect();
        if ahead.len() > max {
            ahead.select_nth_unstable_by_key(max, |position| order(*position, self.direction));
            ahead.truncate(max);
        }
        ahead
    }

    /// On the last attempt some outboxes may be omitted. The known slow ones are read last, and the order of the others is random, so that
    /// not always the same ones are omitted.
    fn shuffle(&mut self) {
        if self.budget.allowance().is_last {
            fastrand::Rng::with_seed(self.budget.allowance().seed).shuffle(&mut self.streams);
            self.streams.sort_by_key(|stream| stream.is_slow(self.outboxes));
        }
    }

    fn fill(&mut self) {
        while self.filled < self.streams.len() {
            self.advance(self.filled);
            if self.is_cut {
                break;
            }
            self.filled += 1;
        }
    }

    /// Returns true if the budget was spent before the next position was known.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Omits the outboxes that were not read before the budget was spent, so that the positions of the others are merged. The budget must
    /// have been extended before.
    pub fn omit_unread(&mut self) {
        self.is_cut = false;
        for nth in self.filled..self.streams.len() {
            match self.streams[nth].input {
                Input::Inbox(_) | Input::Listed(_) => self.advance(nth),
                Input::Outbox(source, _) => {
                    self.unavailable.push(source);
                    self.streams[nth].dry = true;
                }
            }
        }
    }

    /// Returns the parts that are missing so far.
    pub fn into_shortfall(self) -> Shortfall {
        let ended =
            self.heads.peek().is_none_or(|&Reverse((next, _))| self.is_archived(position(next, self.direction)));
        let archived = self.archived.filter(|_| ended && !self.is_cut);
        Shortfall { unavailable: self.unavailable, archived, is_cut: self.is_cut }
    }

    /// Returns true if a position that is not in memory may be at `next` or before it.
    fn is_archived(&self, next: Position) -> bool {
        match self.direction {
            Direction::Older => self.archived.is_some_and(|archived| next <= archived),
            // In ascending order, archived positions are first.
            Direction::Newer => self.archived.is_some(),
        }
    }

    /// Pushes the next position of a stream onto the heap.
    fn advance(&mut self, nth: usize) {
        let stream = &mut self.streams[nth];
        if stream.at == stream.end && !stream.dry {
            self.refill(nth);
        }
        let stream = &mut self.streams[nth];
        if stream.at < stream.end {
            let position = self.buffer[stream.at];
            stream.at += 1;
            self.heads.push(Reverse((order(position, self.direction), nth as u32)));
        }
    }

    fn refill(&mut self, nth: usize) {
        if self.budget.is_spent() {
            self.is_cut = true;
            return;
        }
        let stream = &self.streams[nth];
        let start = self.buffer.len();
        let mut max = self.wanted;
        match stream.input {
            Input::Inbox(inbox) => inbox.copy(stream.rest, self.direction, max, &mut self.buffer),
            Input::Listed(listed) => copy(listed, stream.rest, self.direction, max, &mut self.buffer),
            Input::Outbox(source, part) => {
                let ask = self.ask(&self.streams[nth], part);
                max = ask.max;
                let pulled = self.outboxes.pull(source, ask, &mut self.buffer);
                self.budget.pull(self.buffer.len() - start);
                match pulled {
                    Ok(()) => {}
                    Err(ReadGap::Late | ReadGap::Unreadable) => self.unavailable.push(source),
                    Err(ReadGap::Archived(at)) => self.archived = self.archived.max(Some(at)),
                }
            }
        }
        let stream = &mut self.streams[nth];
        (stream.at, stream.end) = (start, self.buffer.len());
        stream.dry = stream.end - stream.at < max;
        if let Some(last) = self.buffer[start..].last() {
            stream.rest = stream.rest.beyond(*last, self.direction);
        }
    }
}

impl<O: Outboxes> Iterator for Merge<'_, O> {
    type Item = Position;

    fn next(&mut self) -> Option<Position> {
        let &Reverse((next, _)) = self.heads.peek()?;
        if self.is_cut || self.is_archived(position(next, self.direction)) {
            return None;
        }
        while let Some(&Reverse((head, nth))) = self.heads.peek()
            && head == next
        {
            self.heads.pop();
            self.advance(nth as usize);
        }
        Some(position(next, self.direction))
    }
}

/// Appends to `into` at most `max` of the listed positions inside `span`, nearest first in `direction`.
fn copy(listed: &[Position], span: PositionRange, direction: Direction, max: usize, into: &mut Vec<Position>) {
    let start = listed.partition_point(|position| *position <= span.above);
    let end = listed.partition_point(|position| *position < span.below);
    let inside = &listed[start..end.max(start)];
    match direction {
        Direction::Newer => into.extend(inside.iter().take(max)),
        Direction::Older => into.extend(inside.iter().rev().take(max)),
    }
}

/// Returns a number whose order is the order of the merge: the first position has the smallest one.
fn order(position: Position, direction: Direction) -> u128 {
    match direction {
        Direction::Newer => position.rank(),
        Direction::Older => !position.rank(),
    }
}

fn position(order: u128, direction: Direction) -> Position {
    match direction {
        Direction::Newer => Position::of_rank(order),
        Direction::Older => Position::of_rank(!order),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::feed::outbox::{Outbox, Route};
    use crate::feed::position::at;
    use crate::feed::work::Allowance;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::num::NonZeroUsize;

    pub(crate) fn unlimited() -> Budget<'static> {
        Budget::untimed(Allowance::UNLIMITED)
    }

    /// Outboxes by slot. They count the copied positions and fail after a number of pulls.
    #[derive(Default)]
    pub(crate) struct TestOutboxes {
        pub(crate) outboxes: Vec<Outbox>,
        pub(crate) copied: Cell<usize>,
        pub(crate) pulls_left: Option<Cell<usize>>,
        /// Sources that are always late.
        pub(crate) late: BTreeSet<SourceSlot>,
    }

    impl Outboxes for TestOutboxes {
        fn pull(&self, source: SourceSlot, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
            if let Some(left) = &self.pulls_left {
                left.set(left.get().checked_sub(1).ok_or(ReadGap::Late)?);
            }
            if self.late.contains(&source) {
                return Err(ReadGap::Late);
            }
            let before = into.len();
            let outcome = self.outboxes[source.0 as usize].pull(ask, into);
            self.copied.set(self.copied.get() + into.len() - before);
            outcome
        }
    }

    proptest! {
        #[test]
        fn a_merge_is_the_sorted_union_of_its_inputs(
            posts in prop::collection::vec((0..5usize, 0..40i64, 0..3u64, any::<bool>()), 0..200),
            in_inbox in prop::collection::vec((0..40i64, 0..3u64), 0..30),
            (above, below) in (0..20i64, 20..45i64),
            newer: bool,
            wanted in 1..30usize,
        ) {
            let mut world = TestOutboxes { outboxes: vec![Outbox::default(); 5], ..TestOutboxes::default() };
            let mut all = BTreeSet::new();
            for (source, time, id, push) in posts {
                world.outboxes[source].insert(at(time, id), if push { Route::Push } else { Route::Pull });
                all.insert(at(time, id));
            }
            let mut inbox = Inbox::new(NonZeroUsize::new(100).unwrap());
            for (time, id) in in_inbox {
                inbox.push(at(time, id));
                all.insert(at(time, id));
            }
            let span = PositionRange { above: at(above, 1), below: at(below, 1) };
            let budget = unlimited();
            let direction = if newer { Direction::Newer } else { Direction::Older };
            let inputs = (0..5).map(|slot| Input::Outbox(SourceSlot(slot), Part::Whole)).chain([Input::Inbox(&inbox)]);
            let merged: Vec<_> = Merge::new(&world, &budget, inputs, span, direction, wanted).collect();
            let mut expected: Vec<_> = all.into_iter().filter(|p| *p > span.above && *p < span.below).collect();
            if !newer {
                expected.reverse();
            }
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn a_merge_reads_only_as_many_posts_of_a_source_as_the_page_needs() {
        let mut world = TestOutboxes { outboxes: vec![Outbox::default(); 300], ..TestOutboxes::default() };
        for (slot, outbox) in world.outboxes.iter_mut().enumerate() {
            (0..1_000).for_each(|time| assert!(outbox.insert(at(time, slot as u64), Route::Pull)));
        }
        let budget = unlimited();
        let inputs = (0..300).map(|slot| Input::Outbox(SourceSlot(slot), Part::Pulled));
        let page: Vec<_> =
            Merge::new(&world, &budget, inputs, PositionRange::ALL, Direction::Older, 20).take(20).collect();
        assert_eq!(page.len(), 20);
        assert!(world.copied.get() <= 300 * 2 + 20 * 2, "copied {}", world.copied.get());
    }

    #[test]
    fn a_merge_ends_where_an_outbox_continues_in_the_archive() {
        let mut world = TestOutboxes { outboxes: vec![Outbox::default(); 2], ..TestOutboxes::default() };
        for time in [1, 3, 5, 7, 9] {
            world.outboxes[0].insert(at(time, 0), Route::Push);
            world.outboxes[1].insert(at(time + 1, 0), Route::Push);
        }
        world.outboxes[1].move_to_archive(at(2, 0));
        world.outboxes[1].move_to_archive(at(4, 0));
        let budget = unlimited();
        let inputs = || (0..2).map(|slot| Input::Outbox(SourceSlot(slot), Part::Whole));
        for wanted in 1..12 {
            let mut merge = Merge::new(&world, &budget, inputs(), PositionRange::ALL, Direction::Older, wanted);
            let merged: Vec<_> = merge.by_ref().map(|position| position.published_at.0).collect();
            assert_eq!((merged, merge.into_shortfall().archived), (vec![10, 9, 8, 7, 6, 5], Some(at(4, 0))));
            let mut merge = Merge::new(&world, &budget, inputs(), PositionRange::ALL, Direction::Newer, wanted);
            assert_eq!((merge.next(), merge.into_shortfall().archived), (None, Some(at(4, 0))));
            let above = PositionRange { above: at(4, 0), ..PositionRange::ALL };
            let mut merge = Merge::new(&world, &budget, inputs(), above, Direction::Newer, wanted);
            assert_eq!((merge.by_ref().count(), merge.into_shortfall().archived), (6, None));
        }
        let mut short = Merge::new(&world, &budget, inputs(), PositionRange::ALL, Direction::Older, 20);
        assert_eq!(short.by_ref().take(3).count(), 3);
        assert_eq!(short.into_shortfall().archived, None, "the merge did not reach that far");
    }

    #[test]
    fn a_failing_outbox_is_named_and_the_merge_continues_without_it() {
        let mut world = TestOutboxes {
            outboxes: vec![Outbox::default(); 2],
            pulls_left: Some(Cell::new(1)),
            ..TestOutboxes::default()
        };
        world.outboxes[0].insert(at(1, 1), Route::Pull);
        world.outboxes[1].insert(at(2, 2), Route::Pull);
        let budget = unlimited();
        let inputs = (0..2).map(|slot| Input::Outbox(SourceSlot(slot), Part::Whole));
        let mut merge = Merge::new(&world, &budget, inputs, PositionRange::ALL, Direction::Older, 5);
        assert_eq!(merge.by_ref().collect::<Vec<_>>(), [at(1, 1)]);
        assert_eq!(merge.into_shortfall().unavailable, [SourceSlot(1)]);
    }
}
