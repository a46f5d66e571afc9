//! Free ids: the ids to be minted next that the archive does not contain.
//!
//! Callers may choose any post ids, even ids that would be minted years from now. A minted id may therefore be in use
//! already, though most archived ids are smaller. The archive lists the next few ids that are in use. Any other id that
//! is archived later leaves memory first, and is noted then.

use std::collections::BTreeSet;

use crate::id::PostId;
use crate::limits::ARCHIVED_IDS_LISTED_MAX;

/// The archived ids within the range that will be minted next.
#[derive(Debug, Default)]
pub struct FreeIds {
    known: Option<IdRange>,
    /// The range that is being listed, with the ids that have left memory since the listing began.
    asked: Option<IdRange>,
}

/// A range of ids, both bounds inclusive, and the ids in it that are in use.
#[derive(Debug)]
struct IdRange {
    from: PostId,
    through: PostId,
    taken: BTreeSet<PostId>,
    /// From this id on, the next ids should be listed.
    renew_at: PostId,
}

impl IdRange {
    fn from(from: PostId) -> Self {
        Self { from, through: PostId(u64::MAX), taken: BTreeSet::new(), renew_at: PostId(u64::MAX) }
    }

    fn note(&mut self, id: PostId) {
        if self.from <= id && id <= self.through {
            self.taken.insert(id);
            if self.taken.len() > 2 * ARCHIVED_IDS_LISTED_MAX
                && let Some(last) = self.taken.pop_last()
            {
                // The range ends before the id that was dropped.
                self.end(PostId(last.0 - 1));
            }
        }
    }

    fn end(&mut self, through: PostId) {
        self.through = self.through.min(through);
        self.renew_at = PostId(self.from.0 + self.through.0.saturating_sub(self.from.0) / 2);
    }
}

impl FreeIds {
    /// Notes an id that has moved from memory to the archive.
    pub fn note(&mut self, id: PostId) {
        self.known.iter_mut().chain(&mut self.asked).for_each(|range| range.note(id));
    }

    /// Returns true if the archive does not contain an id, or `None` if this is not known.
    pub fn is_free(&self, id: PostId) -> Option<bool> {
        let known = self.known.as_ref().filter(|known| known.from <= id && id <= known.through)?;
        Some(!known.taken.contains(&id))
    }

    /// Notes that ids below this one will not be queried again. Returns true if the next ids should be listed.
    pub fn pass(&mut self, id: PostId) -> bool {
        let Some(known) = &mut self.known else { return self.asked.is_none() };
        while known.taken.first().is_some_and(|first| *first < id) {
            known.taken.pop_first();
        }
        self.asked.is_none() && (id >= known.renew_at || id > known.through || id < known.from)
    }

    /// Notes that a listing of the ids from this one on begins.
    pub fn ask(&mut self, from: PostId) {
        self.asked = Some(IdRange::from(from));
    }

    /// Ends the listing with the ids found, ascending, or `None` if it failed. `is_all` is true if there are no more.
    pub fn answer(&mut self, listed: Option<(&[PostId], bool)>) {
        let (Some(mut range), Some((ids, is_all))) = (self.asked.take(), listed) else { return };
        if let Some(last) = ids.last().filter(|_| !is_all) {
            range.end(*last);
        }
        ids.iter().for_each(|id| range.note(*id));
        self.known = Some(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<PostId> {
        ids.into_iter().map(PostId).collect()
    }

    #[test]
    fn no_id_is_known_as_free_before_ids_were_listed() {
        let mut free = FreeIds::default();
        assert_eq!((free.is_free(PostId(5)), free.pass(PostId(5))), (None, true));
        free.ask(PostId(5));
        assert!(!free.pass(PostId(5)), "it is under way");
        free.answer(None);
        assert_eq!((free.is_free(PostId(5)), free.pass(PostId(5))), (None, true), "it failed");
    }

    #[test]
    fn a_complete_listing_is_never_requested_again() {
        let mut free = FreeIds::default();
        free.ask(PostId(5));
        free.answer(Some((&ids([7, u64::MAX]), true)));
        let answers = [4, 5, 7, 8, u64::MAX].map(|id| free.is_free(PostId(id)));
        assert_eq!(answers, [None, Some(true), Some(false), Some(true), Some(false)]);
        assert!(!free.pass(PostId(u64::MAX - 1)));
    }

    #[test]
    fn posts_archived_during_a_listing_are_taken_ids() {
        let mut free = FreeIds::default();
        free.ask(PostId(10));
        [3, 12, 30].into_iter().for_each(|id| free.note(PostId(id)));
        free.answer(Some((&ids([11, 20]), false)));
        let answers = [10, 11, 12, 19, 20, 21, 30].map(|id| free.is_free(PostId(id)));
        assert_eq!(answers, [Some(true), Some(false), Some(false), Some(true), Some(false), None, None]);
        free.note(PostId(19));
        assert_eq!(free.is_free(PostId(19)), Some(false));
        assert!(!free.pass(PostId(14)) && free.pass(PostId(15)), "half of it has gone by");
    }

    #[test]
    fn the_number_of_remembered_ids_is_bounded_and_answers_stay_correct() {
        let mut free = FreeIds::default();
        free.ask(PostId(0));
        free.answer(Some((&[], true)));
        let many = 5 * ARCHIVED_IDS_LISTED_MAX as u64;
        (0..many).rev().for_each(|id| free.note(PostId(2 * id)));
        assert!(free.known.as_ref().unwrap().taken.len() <= 2 * ARCHIVED_IDS_LISTED_MAX);
        for id in 0..2 * many {
            assert!(free.is_free(PostId(id)).is_none_or(|is_free| is_free == (id % 2 == 1)), "{id}");
        }
        assert_eq!(free.is_free(PostId(1)), Some(true));
    }
}
