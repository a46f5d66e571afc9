//! The records of sources, and of users who are being erased or were erased.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::resume::LatePosts;
use crate::id::{PostId, SourceId};
use crate::state::records::{InvalidRecordError, RecordTraversal, invalid};
use crate::state::world::StateMachine;

/// A source. Records are in the order of slots: other records name a source by its index in that order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// The id of the source.
    pub id: SourceId,
    /// The instant at which the source last read its feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<UnixMicros>,
    /// True if its posts are pulled. Stored, because within the hysteresis it depends on earlier follower counts.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub celebrity: bool,
    /// The last posts that arrived late: the instant and the position of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<(UnixMicros, Position)>,
    /// Posts that arrived late up to this instant may be missing from `late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_forgotten: Option<UnixMicros>,
    /// The hidden posts, archived ones included, if the source collects the replies to a post.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PostId>,
    /// Its erasure, if it was or is being erased. `id` is then a placeholder that nobody can look up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased: Option<ErasedRecord>,
}

impl SourceRecord {
    /// Creates the record of a source of which only the id is known.
    pub fn new(id: SourceId) -> Self {
        Self {
            id,
            last_seen: None,
            celebrity: false,
            late: Vec::new(),
            late_forgotten: None,
            hidden: Vec::new(),
            erased: None,
        }
    }
}

/// The erasure of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErasedRecord {
    /// The instant at which the erasure began.
    pub at: UnixMicros,
    /// True if the erasure has not ended.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub is_under_way: bool,
    /// The id of the user, as long as the archive may contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<SourceId>,
}

impl RecordTraversal<'_> {
    /// Returns the records of all sources, in the order of slots.
    pub fn sources(self) -> impl Iterator<Item = SourceRecord> {
        self.readers().map(move |source| {
            if let Some(at) = source.erased_at() {
                return self.erased(at);
            }
            let outbox = source.outbox();
            let (late, late_forgotten) = outbox.late().map_or((Vec::new(), None), |late| {
                let (posts, forgotten) = late.parts();
                (posts.collect(), forgotten)
            });
            SourceRecord {
                id: source.id.clone(),
                last_seen: source.last_seen(),
                celebrity: source.is_celebrity(),
                late,
                late_forgotten,
                hidden: outbox.hidden().to_vec(),
                erased: None,
            }
        })
    }

    /// Returns the record of a source whose erasure began at `at`.
    fn erased(self, at: UnixMicros) -> SourceRecord {
        let erasure = self.world.sources.erasures().at(at);
        let user = erasure.as_ref().filter(|erasure| !erasure.is_scrubbed()).and_then(|erasure| erasure.user.clone());
        let record = ErasedRecord { at, is_under_way: erasure.is_some(), user };
        let name = SourceId::new(&format!("erased:{}", at.0)).expect("a short prefix and digits are an id");
        SourceRecord { erased: Some(record), ..SourceRecord::new(name) }
    }
}

impl StateMachine {
    /// Restores a source.
    ///
    /// # Errors
    /// Fails if the source is known already.
    pub fn restore_source(&mut self, record: &SourceRecord) -> Result<(), InvalidRecordError> {
        if let Some(erased) = &record.erased {
            self.restore_erased(&record.id, erased);
            return Ok(());
        }
        let before = self.world().sources.len();
        let source = self.world().sources.intern(&record.id);
        if source.slot.0 as usize != before {
            return invalid(format!("source {} is stored twice", record.id));
        }
        record.last_seen.into_iter().for_each(|at| source.seen(at));
        if !record.late.is_empty() || record.late_forgotten.is_some() {
            let late = LatePosts::restored(record.late.iter().copied(), record.late_forgotten);
            source.change_outbox(|outbox| outbox.set_late(late));
        }
        if !record.hidden.is_empty() {
            source.change_outbox(|outbox| record.hidden.iter().for_each(|id| outbox.hide(*id, true)));
        }
        source.celebrity.store(record.celebrity, Ordering::Relaxed);
        Ok(())
    }

    fn restore_erased(&mut self, name: &SourceId, record: &ErasedRecord) {
        self.world().sources.restore_erased(name, record.at, record.user.clone(), record.is_under_way);
    }
}
