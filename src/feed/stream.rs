//! A live stream: the state of the feed that was sent to the clients of one reader, and the changes to send next.
//!
//! Every possible change of a feed arrives as an [`Invalidation`]. The stream sends the present state of the feed. Invalidations may
//! therefore arrive twice, late and in any order, and many of them may be replaced by a less specific one.
//!
//! The newest entries, from [`FeedStream::floor`] up, are known exactly. Changes below are sent without knowing whether any client has the
//! entry; clients ignore changes of entries that they do not have.

use std::collections::VecDeque;
use std::ops::Range;

use crate::feed::position::Position;
use crate::id::PostId;

/// The reason why a feed may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// A post was published at this position.
    Published(Position),
    /// The body of a post was edited.
    Edited(PostId),
    /// The entry of this post may have been added, removed or moved.
    EntryChanged(PostId),
    /// Anything may have changed, because of a decision of a reader.
    Everything,
    /// The reader has moved the read marker.
    Marked,
    /// Invalidations were lost: any entry may have been added or removed.
    Missed,
}

impl Invalidation {
    /// Returns true if a recipient of this invalidation does not need the other one as well.
    pub fn covers(self, other: Self) -> bool {
        match self {
            Self::Missed => true,
            // It sends all entries that are visible now. It does not send an entry that was visible only for a moment, in which a client
            // may have read it: see `resend`.
            Self::Everything => matches!(other, Self::Published(_) | Self::Edited(_) | Self::Everything),
            Self::Published(_) | Self::Edited(_) | Self::EntryChanged(_) | Self::Marked => self == other,
        }
    }
}

/// An entry of the feed, reduced to the fields that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryFingerprint {
    /// The position of the entry.
    pub at: Position,
    /// The post that the entry shows.
    pub post: PostId,
    /// A hash of the reasons why the entry is in the feed.
    pub reasons: u64,
    /// A number that changes with the text of the post.
    pub version: u64,
}

/// A change that is sent to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The post has this entry, which replaces any other entry of it.
    Post(PostId),
    /// The text of the post changed; its entry stays where it is.
    Update(PostId),
    /// The post has no entry.
    Remove(PostId),
    /// All entries below this position may have changed; without one, all entries.
    Stale(Option<Position>),
    /// The read marker changed.
    Marker,
}

/// The id of one stream, which no other stream has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Epoch(pub u64);

/// A place in a stream: the changes that a client has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The number of the last change that the client has.
    pub last: u64,
}

/// The maximum sizes of a stream's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamLimits {
    /// Maximum number of newest entries that are known exactly, 32 bytes each.
    pub window_entries: usize,
    /// Maximum number of stored changes, 24 bytes each.
    pub history_changes: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { window_entries: 64, history_changes: 256 }
    }
}

/// The state of the feed that was sent to the clients of one reader.
#[derive(Debug)]
pub struct FeedStream {
    limits: StreamLimits,
    epoch: Epoch,
    last: u64,
    /// The entries from the floor up, newest first. Most new ones are the newest.
    window: VecDeque<EntryFingerprint>,
    floor: Position,
    history: VecDeque<Change>,
}

impl FeedStream {
    /// Creates a stream of a feed whose newest entries, complete from `floor` up, are `window`, newest first.
    pub fn new(limits: StreamLimits, epoch: Epoch, window: Vec<EntryFingerprint>, floor: Position) -> Self {
        Self { limits, epoch, last: 0, window: window.into(), floor, history: VecDeque::new() }
    }

    /// Returns the present place.
    pub fn place(&self) -> StreamPosition {
        StreamPosition { epoch: self.epoch, last: self.last }
    }

    /// Returns the position from which up all entries are known.
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// Applies the present entry of `post`, or its absence, and returns the change to send.
    pub fn observe(
        &mut self,
        post: PostId,
        now: Option<EntryFingerprint>,
        invalidation: Invalidation,
    ) -> Option<Change> {
        let known = self.window.iter().position(|entry_fingerprint| entry_fingerprint.post == post);
        match (known, now) {
            (Some(nth), None) => {
                self.window.remove(nth);
                Some(Change::Remove(post))
            }
            (Some(nth), Some(now)) => {
                let change = difference(self.window[nth], now).or(resend(post, invalidation))?;
                self.window.remove(nth);
                self.insert(now);
                Some(change)
            }
            (None, Some(now)) => {
                let is_deep = !self.insert(now);
                let is_edit = is_deep && matches!(invalidation, Invalidation::Edited(_));
                Some(if is_edit { Change::Update(post) } else { Change::Post(post) })
            }
            // A client may have scrolled to the entry, or may have read it before it was removed again.
            (None, None) => matches!(invalidation, Invalidation::EntryChanged(_)).then_some(Change::Remove(post)),
        }
    }

    /// Applies the present newest entries, complete from `floor` up, newest first, and returns the changes to send.
    pub fn observe_all(&mut self, window: Vec<EntryFingerprint>, floor: Position) -> Vec<Change> {
        // Below the higher of both floors no comparison is possible, and an entry that moved there counts as removed.
        let compared = self.floor.max(floor);
        let is_here = |post| window.iter().any(|now: &EntryFingerprint| now.post == post && now.at >= compared);
        let is_gone = |before: &&EntryFingerprint| before.at >= compared && !is_here(before.post);
        let mut changes: Vec<Change> =
            self.window.iter().filter(is_gone).map(|before| Change::Remove(before.post)).collect();
        // Oldest first, in the order in which entries are added one by one.
        for now in window.iter().rev().filter(|now| now.at >= compared) {
            match self.window.iter().find(|before| before.post == now.post) {
                Some(before) => changes.extend(difference(*before, *now)),
                None => changes.push(Change::Post(now.post)),
            }
        }
        if compared > Position::MIN {
            changes.push(Change::Stale(Some(compared).filter(|compared| *compared < Position::MAX)));
        }
        (self.window, self.floor) = (window.into(), floor);
        changes
    }

    /// Returns true if a page shows the entries that are known here. `shown` are its entries, newest first: all entries in `range` except
    /// `passed_over` skipped ones. Nothing is known below the floor.
    pub fn agrees(&self, shown: &[EntryFingerprint], range: Range<Position>, passed_over: usize) -> bool {
        let is_compared = |entry_fingerprint: &&EntryFingerprint| {
            range.contains(&entry_fingerprint.at) && entry_fingerprint.at >= self.floor
        };
        let mut known = self.window.iter().filter(is_compared);
        let mut shown = shown.iter().filter(is_compared);
        let missing = known.clone().count().saturating_sub(shown.clone().count());
        let is_known = shown.all(|shown| known.any(|known| known == shown));
        // Others may have been skipped below the floor.
        is_known && (missing == passed_over || missing < passed_over && range.start < self.floor)
    }

    /// Stores a change, and returns its number.
    pub fn record(&mut self, change: Change) -> u64 {
        if self.history.len() >= self.limits.history_changes {
            self.history.pop_front();
        }
        self.history.push_back(change);
        self.last += 1;
        self.last
    }

    /// Returns the changes sent after a place, each with its number; none if some of them are no longer stored.
    pub fn changes_after(&self, place: StreamPosition) -> Option<impl Iterator<Item = (u64, Change)>> {
        let missing = self.last.checked_sub(place.last).filter(|_| place.epoch == self.epoch)?;
        let missing = usize::try_from(missing).ok().filter(|missing| *missing <= self.history.len())?;
        let sent = self.history.range(self.history.len() - missing..).copied();
        Some((place.last + 1..).zip(sent))
    }

    /// Inserts an entry into the window. Returns false if it is below the floor.
    fn insert(&mut self, now: EntryFingerprint) -> bool {
        if now.at < self.floor {
            return false;
        }
        let nth = self.window.partition_point(|entry_fingerprint| entry_fingerprint.at > now.at);
        self.window.insert(nth, now);
        if self.window.len() > self.limits.window_entries {
            self.window.pop_back();
            self.floor = self.window.back().map_or(self.floor, |oldest| oldest.at);
        }
        true
    }
}

/// Returns the change to send although the entry did not change: it may have been different for a moment in which a client read a page.
fn resend(post: PostId, invalidation: Invalidation) -> Option<Change> {
    match invalidation {
        Invalidation::EntryChanged(_) => Some(Change::Post(post)),
        Invalidation::Edited(_) => Some(Change::Update(post)),
        Invalidation::Published(_) | Invalidation::Everything | Invalidation::Marked | Invalidation::Missed => None,
    }
}

/// Returns the change between two states of an entry, if there is any.
fn difference(before: EntryFingerprint, now: EntryFingerprint) -> Option<Change> {
    if (before.at, before.reasons) != (now.at, now.reasons) {
        return Some(Change::Post(now.post));
    }
    (before.version != now.version).then_some(Change::Update(now.post))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LIMITS: StreamLimits = StreamLimits { window_entries: 20, history_changes: 30 };

    /// The present feed: entries by post.
    type Feed = BTreeMap<PostId, EntryFingerprint>;

    fn newest(feed: &Feed, max: usize) -> (Vec<EntryFingerprint>, Position) {
        let mut all: Vec<EntryFingerprint> = feed.values().copied().collect();
        all.sort_unstable_by_key(|entry_fingerprint| std::cmp::Reverse(entry_fingerprint.at));
        let floor = if all.len() > max { all[max - 1].at } else { Position::MIN };
        all.truncate(max);
        (all, floor)
    }

    /// A client as `docs/live.md` describes it: its entries are complete from a bound up.
    #[derive(Clone)]
    struct Client {
        entries: Feed,
        bound: Position,
        place: StreamPosition,
    }

    impl Client {
        fn read(feed: &Feed, entries: usize, place: StreamPosition) -> Self {
            let (entries, bound) = newest(feed, entries);
            Self {
                entries: entries
                    .into_iter()
                    .map(|entry_fingerprint| (entry_fingerprint.post, entry_fingerprint))
                    .collect(),
                bound,
                place,
            }
        }

        /// Applies a change. A post has its present content, as a repeated message would have it.
        fn apply(&mut self, seq: u64, change: Change, feed: &Feed) {
            assert_eq!(seq, self.place.last + 1);
            self.place.last = seq;
            match change {
                Change::Post(post) => match feed.get(&post) {
                    Some(entry_fingerprint) => drop(self.entries.insert(post, *entry_fingerprint)),
                    None => drop(self.entries.remove(&post)),
                },
                Change::Update(post) => {
                    if let (Some(entry), Some(now)) = (self.entries.get_mut(&post), feed.get(&post)) {
                        entry.version = now.version;
                    }
                }
                Change::Remove(post) => drop(self.entries.remove(&post)),
                Change::Stale(below) => self.bound = self.bound.max(below.unwrap_or(Position::MAX)),
                Change::Marker => {}
            }
            let bound = self.bound;
            self.entries.retain(|_, entry| entry.at >= bound);
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// The entry of a post is added, moved or removed, for the same or other reasons.
        Turn { post: u8, at: Option<u8>, reasons: u8 },
        /// The text of the post changes.
        Edit { post: u8 },
        /// Many entries change together.
        Upheaval(Vec<(u8, Option<u8>)>),
        /// The client disconnects, and reconnects after this many operations.
        Away { operations: u8 },
        /// The client reads the feed again, this many entries of it.
        Read { entries: u8 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let place = prop::option::weighted(0.7, any::<u8>());
        prop_oneof![
            6 => (any::<u8>(), place.clone(), 0..3u8).prop_map(|(post, at, reasons)| Op::Turn { post, at, reasons }),
            2 => any::<u8>().prop_map(|post| Op::Edit { post }),
            1 => prop::collection::vec((any::<u8>(), place), 0..60).prop_map(Op::Upheaval),
            1 => (0..40u8).prop_map(|operations| Op::Away { operations }),
            1 => (1..=255u8).prop_map(|entries| Op::Read { entries }),
        ]
    }

    fn entry_fingerprint(post: u8, time: u8, reasons: u8, version: u64) -> EntryFingerprint {
        let id = u64::from(post);
        EntryFingerprint { at: at(i64::from(time), id), post: PostId(id), reasons: u64::from(reasons), version }
    }

    proptest! {
        #[test]
        fn a_client_that_applies_all_changes_has_the_feed(ops in prop::collection::vec(op(), 1..120), start in 0..250u8) {
            let mut feed: Feed = (0..start).map(|post| (PostId(post.into()), entry_fingerprint(post, post, 0, 0))).collect();
            let (window, floor) = newest(&feed, LIMITS.window_entries);
            let mut stream = FeedStream::new(LIMITS, Epoch(7), window, floor);
            let mut client = Client::read(&feed, 20, stream.place());
            let mut away = 0;
            for (nth, op) in ops.into_iter().enumerate() {
                let mut changes = Vec::new();
                match op {
                    Op::Turn { post, at, reasons } => {
                        let id = PostId(post.into());
                        match at {
                            Some(time) => drop(feed.insert(id, entry_fingerprint(post, time, reasons, nth as u64))),
                            None => drop(feed.remove(&id)),
                        }
                        changes.extend(stream.observe(id, feed.get(&id).copied(), Invalidation::EntryChanged(id)));
                    }
                    Op::Edit { post } => {
                        let id = PostId(post.into());
                        feed.entry(id).and_modify(|entry_fingerprint| entry_fingerprint.version = nth as u64);
                        changes.extend(stream.observe(id, feed.get(&id).copied(), Invalidation::Edited(id)));
                    }
                    Op::Upheaval(turns) => {
                        for (post, time) in turns {
                            match time {
                                Some(time) => drop(feed.insert(PostId(post.into()), entry_fingerprint(post, time, 9, 0))),
                                None => drop(feed.remove(&PostId(post.into()))),
                            }
                        }
                        let (window, floor) = newest(&feed, LIMITS.window_entries);
                        changes = stream.observe_all(window, floor);
                    }
                    Op::Away { operations } => away = operations,
                    Op::Read { entries } => client = Client::read(&feed, entries.into(), stream.place()),
                }
                for change in changes {
                    stream.record(change);
                }
                away = away.saturating_sub(1);
                if away == 0 {
                    match stream.changes_after(client.place) {
                        Some(missing) => missing.for_each(|(seq, change)| client.apply(seq, change, &feed)),
                        None => client = Client::read(&feed, 20, stream.place()),
                    }
                    let expected: Feed =
                        feed.iter().filter(|(_, entry_fingerprint)| entry_fingerprint.at >= client.bound).map(|(id, entry_fingerprint)| (*id, *entry_fingerprint)).collect();
                    prop_assert_eq!(&client.entries, &expected);
                    prop_assert_eq!(client.place, stream.place());
                }
            }
        }
    }

    #[test]
    fn a_known_change_is_not_sent_again() {
        let mut stream = FeedStream::new(LIMITS, Epoch(1), Vec::new(), Position::MIN);
        let (post, now) = (PostId(5), Some(entry_fingerprint(5, 5, 0, 0)));
        assert_eq!(stream.observe(post, now, Invalidation::Published(at(5, 5))), Some(Change::Post(post)));
        assert_eq!(stream.observe(post, now, Invalidation::Published(at(5, 5))), None);
        assert_eq!(stream.observe(post, None, Invalidation::EntryChanged(post)), Some(Change::Remove(post)));
        assert_eq!(stream.observe(post, None, Invalidation::Published(at(5, 5))), None);
        assert_eq!(stream.observe_all(Vec::new(), Position::MIN), []);
    }

    #[test]
    fn a_page_that_differs_from_the_sent_entries_does_not_agree() {
        let known = [9, 7, 5].map(|post| entry_fingerprint(post, post, 0, 0));
        let stream = FeedStream::new(LIMITS, Epoch(1), known.into(), at(5, 5));
        let [nine, seven, five] = known;
        let (new, deep) = (entry_fingerprint(8, 8, 0, 0), entry_fingerprint(3, 3, 0, 0));
        let all = Position::MIN..Position::MAX;
        let cases: &[(&[EntryFingerprint], Range<Position>, &[usize])] = &[
            (&[nine, seven, five], all.clone(), &[0, 1, 2]),
            (&[nine, seven, five, deep], all.clone(), &[0, 1, 2]),
            (&[nine, new, seven, five], all.clone(), &[]),
            (&[nine, entry_fingerprint(7, 7, 1, 0), five], all.clone(), &[]),
            (&[nine, five], all.clone(), &[1, 2]),
            (&[seven, five], all.clone(), &[1, 2]),
            (&[], all, &[]),
            (&[nine, seven], at(7, 7)..Position::MAX, &[0]),
            (&[nine], at(7, 7)..Position::MAX, &[1]),
            (&[five, deep], Position::MIN..at(7, 7), &[0, 1, 2]),
            (&[new, five], Position::MIN..at(9, 9), &[]),
            (&[deep, entry_fingerprint(2, 2, 0, 0)], Position::MIN..at(5, 5), &[0, 1, 2]),
        ];
        for (shown, range, agrees) in cases {
            let found: Vec<usize> =
                (0..3).filter(|passed_over| stream.agrees(shown, range.clone(), *passed_over)).collect();
            assert_eq!(found, *agrees, "{shown:?} in {range:?}, by how many were passed over");
        }
    }

    #[test]
    fn a_client_that_was_away_too_long_or_is_of_another_stream_cannot_resume() {
        let mut stream = FeedStream::new(LIMITS, Epoch(1), Vec::new(), Position::MIN);
        let start = stream.place();
        for told in 1..=LIMITS.history_changes as u64 + 1 {
            assert_eq!(stream.changes_after(start).map(Iterator::count), Some(told as usize - 1));
            assert_eq!(stream.record(Change::Marker), told);
        }
        assert!(stream.changes_after(start).is_none());
        assert!(stream.changes_after(StreamPosition { epoch: Epoch(2), ..stream.place() }).is_none());
        assert!(stream.changes_after(StreamPosition { last: stream.place().last + 1, ..stream.place() }).is_none());
    }
}
