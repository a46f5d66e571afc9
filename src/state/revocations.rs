//! Revocations: for each user, the instant before which issued tokens are rejected.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use parking_lot::RwLock;

use crate::clock::UnixMicros;
use crate::id::SourceId;

/// Maximum number of expired revocations that are deleted with a new one, so that an addition takes no longer after a
/// quiet period.
const REVOCATIONS_FORGOTTEN_TOGETHER: usize = 1_024;

/// The tokens of a user that were issued before this instant are rejected. Sorted with the oldest first.
pub type Revocation = (UnixMicros, SourceId);

/// All revocations, by user and by instant.
#[derive(Debug, Default)]
pub struct Revocations(RwLock<StoredRevocation>);

#[derive(Debug, Default)]
struct StoredRevocation {
    by_user: HashMap<SourceId, UnixMicros, foldhash::fast::RandomState>,
    by_instant: BTreeSet<Revocation>,
}

impl Revocations {
    /// Returns the instant before which tokens of this user are rejected.
    pub fn not_before(&self, user: &SourceId) -> Option<UnixMicros> {
        self.0.read().by_user.get(user).copied()
    }

    /// The number of revocations stored.
    pub fn len(&self) -> usize {
        self.0.read().by_user.len()
    }

    /// Returns true if there are no revocations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if adding `more` revocations would exceed `limit`, after those before `forget_before` are deleted.
    pub fn would_exceed(&self, limit: usize, more: usize, forget_before: Option<UnixMicros>) -> bool {
        let kept = self.0.read();
        let Some(excess) = (kept.by_instant.len() + more).checked_sub(limit).filter(|excess| *excess > 0) else {
            return false;
        };
        // Examines only as many as one addition deletes.
        let oldest = kept.by_instant.iter().take(excess.min(REVOCATIONS_FORGOTTEN_TOGETHER));
        oldest.take_while(|(instant, _)| Some(*instant) < forget_before).count() < excess
    }

    /// Returns the next `max` revocations after `last`, in ascending order.
    pub fn after(&self, last: Option<&Revocation>, max: usize) -> Vec<Revocation> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.read().by_instant.range((from, Bound::Unbounded)).take(max).cloned().collect()
    }

    /// Removes the revocation of a user who is being erased, because it contains the user's id.
    pub(super) fn remove(&self, user: &SourceId) {
        let kept = &mut *self.0.write();
        if let Some(instant) = kept.by_user.remove(user) {
            kept.by_instant.remove(&(instant, user.clone()));
        }
    }

    /// Adds a revocation, unless the same user has a later one, and deletes some of those before `forget_before`.
    pub(super) fn add(&self, user: &SourceId, not_before: UnixMicros, forget_before: Option<UnixMicros>) {
        let kept = &mut *self.0.write();
        let before = kept.by_user.get(user).copied();
        if before < Some(not_before) {
            before.map(|before| kept.by_instant.remove(&(before, user.clone())));
            kept.by_user.insert(user.clone(), not_before);
            kept.by_instant.insert((not_before, user.clone()));
        }
        for _ in 0..REVOCATIONS_FORGOTTEN_TOGETHER {
            let is_due = |(instant, _): &&Revocation| Some(*instant) < forget_before;
            let Some((_, user)) = kept.by_instant.first().filter(is_due).cloned() else { break };
            kept.by_instant.pop_first();
            kept.by_user.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn user(nth: u64) -> SourceId {
        SourceId::new(&format!("u{nth}")).unwrap()
    }

    fn all(revocations: &Revocations) -> Vec<Revocation> {
        let mut all = Vec::new();
        while let some @ [_, ..] = &*revocations.after(all.last(), 3) {
            all.extend_from_slice(some);
        }
        all
    }

    #[test]
    fn revocations_agree_with_a_naive_list_and_are_idempotent() {
        let mut random = fastrand::Rng::with_seed(7);
        let (revocations, mut naive) = (Revocations::default(), BTreeMap::<SourceId, UnixMicros>::new());
        for step in 0..5_000_i64 {
            let (user, not_before) = (user(random.u64(0..40)), UnixMicros(step + random.i64(-50..50)));
            let forget_before = random.bool().then_some(UnixMicros(step - 100));
            for _ in 0..random.u8(1..3) {
                revocations.add(&user, not_before, forget_before);
            }
            let latest = naive.entry(user.clone()).or_insert(not_before);
            *latest = not_before.max(*latest);
            naive.retain(|_, instant| Some(*instant) >= forget_before);
            let mut expected: Vec<_> = naive.iter().map(|(user, instant)| (*instant, user.clone())).collect();
            expected.sort();
            assert_eq!(all(&revocations), expected);
            assert_eq!(revocations.not_before(&user), naive.get(&user).copied());
            assert_eq!(revocations.len(), naive.len());
            if step % 50 == 0 {
                revocations.remove(&user);
                naive.remove(&user);
            }
        }
    }

    #[test]
    fn forgotten_revocations_make_room_for_as_many_others() {
        let revocations = Revocations::default();
        (0..10).for_each(|nth| revocations.add(&user(nth), UnixMicros(nth as i64), None));
        let exceeds = |more, forget_before: i64| revocations.would_exceed(10, more, Some(UnixMicros(forget_before)));
        assert!(!revocations.would_exceed(10, 0, None) && revocations.would_exceed(10, 1, None));
        assert!(
            exceeds(1, 0) && !exceeds(1, 1) && exceeds(2, 1) && !exceeds(2, 2) && !exceeds(10, 10) && exceeds(11, 10)
        );
    }

    #[test]
    fn adding_a_revocation_forgets_a_bounded_number_of_others() {
        let (revocations, many) = (Revocations::default(), 3 * REVOCATIONS_FORGOTTEN_TOGETHER as i64);
        (0..many).for_each(|nth| revocations.add(&user(nth as u64), UnixMicros(nth), None));
        revocations.add(&user(u64::MAX), UnixMicros(many), Some(UnixMicros(many)));
        assert_eq!(revocations.len(), 2 * REVOCATIONS_FORGOTTEN_TOGETHER + 1);
    }
}
