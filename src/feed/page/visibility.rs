//! The interface by which a page decides which of its candidates are visible.

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::id::SourceSlot;

/// The visibility of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility<E> {
    /// It is visible, as this entry.
    Shown(E),
    /// It is not visible at present.
    Hidden,
    /// It is not visible at this position: its entry is at another one.
    Elsewhere,
    /// It is deleted for good: any holder may drop it.
    Gone,
    /// Its state is in the archive.
    Archived,
    /// It is in the archive, but cannot be read.
    Unreadable,
    /// It is in the archive, which does not answer at present.
    Late,
}

impl<E> Visibility<E> {
    /// Returns true if the candidate is deleted for good.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

/// Decides which candidates are visible.
pub trait VisibilityFilter {
    /// The data of a visible entry.
    type Entry;

    /// Returns the visibility of the post at `position` in the present state.
    fn look(&mut self, position: Position) -> Visibility<Self::Entry>;

    /// Returns true if [`VisibilityFilter::prepare`] makes the next looks faster.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Announces the positions of the next calls of [`VisibilityFilter::look`].
    fn prepare(&mut self, _: &[Position]) {}

    /// Returns the time of acceptance of the post at `position`, if it can be looked up.
    fn accepted_at(&self, position: Position) -> Option<UnixMicros>;

    /// Returns the owner of the page. `partial` names the owner for posts that are late, since their sources are not
    /// known.
    fn owner(&self) -> Option<SourceSlot>;

    /// Returns the source to which the entry counts for the limit of entries per source.
    fn source(entry: &Self::Entry) -> SourceSlot;
}
