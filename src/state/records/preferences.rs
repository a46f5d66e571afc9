//! The records of readers' preferences.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::preferences::{Marker, Preferences, Silenced};
use crate::feed::resume::DeliveryWatermark;
use crate::feed::rules::Rules;
use crate::id::{ListName, SourceSlot};
use crate::state::records::{InvalidRecordError, RecordTraversal, invalid};
use crate::state::world::StateMachine;
use std::sync::Arc;

/// The preferences of one reader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferencesRecord {
    /// The index of the reader.
    pub reader: u32,
    /// The rules that decide which posts are shown.
    pub rules: Rules,
    /// Muted sources, each with the instant of the mute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutes: Vec<(u32, UnixMicros)>,
    /// Blocked sources, each with the instant of the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<(u32, UnixMicros)>,
    /// The position up to which the reader has read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<Position>,
    /// The delivery watermark at the time when the marker was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker_seen: Option<DeliveryWatermark>,
    /// Lists: the name of each, and its members with the instant at which each was added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<(ListName, Vec<(u32, UnixMicros)>)>,
}

impl RecordTraversal<'_> {
    /// Returns the records of all readers that have preferences.
    pub fn preferences(self) -> impl Iterator<Item = PreferencesRecord> {
        self.readers().filter_map(move |reader| {
            reader.own_preferences().map(|preferences| self.record_preferences(reader.slot, &preferences))
        })
    }

    fn record_preferences(self, reader: SourceSlot, preferences: &Preferences) -> PreferencesRecord {
        // Sources added after the traversal began are left out: the event that added them is replayed.
        let is_known = |slot: SourceSlot| (slot.0 as usize) < self.sources;
        let silenced = |silenced: &Silenced| {
            silenced.iter().filter(|(source, _)| is_known(*source)).map(|(source, since)| (source.0, since)).collect()
        };
        let members = |members: &Following| {
            let known = members.edges().filter(|edge| is_known(edge.source));
            known.map(|edge| (edge.source.0, edge.since)).collect()
        };
        PreferencesRecord {
            reader: reader.0,
            rules: preferences.rules,
            mutes: silenced(&preferences.mutes),
            blocks: silenced(&preferences.blocks),
            marker: preferences.marker.map(|marker| marker.at),
            marker_seen: preferences.marker.and_then(|marker| marker.seen),
            lists: preferences.lists.iter().map(|(name, list)| (name.clone(), members(list))).collect(),
        }
    }
}

impl StateMachine {
    /// Restores the preferences of a reader.
    ///
    /// # Errors
    /// Fails if a source is not known.
    pub fn restore_preferences(&mut self, record: &PreferencesRecord) -> Result<(), InvalidRecordError> {
        let known = self.world().sources.len();
        let silenced = record.mutes.iter().chain(&record.blocks).map(|(source, _)| *source);
        let members = record.lists.iter().flat_map(|(_, members)| members).map(|(source, _)| *source);
        let mut named = silenced.chain(members).chain([record.reader]);
        if named.any(|source| source as usize >= known) {
            return invalid(format!("the preferences of source {} name sources that do not exist", record.reader));
        }
        let marker = record.marker.map(|at| Marker { at, seen: record.marker_seen });
        let mut preferences = Preferences { rules: record.rules, marker, ..Preferences::default() };
        for (source, since) in &record.mutes {
            preferences.mutes.insert(SourceSlot(*source), *since);
        }
        for (source, since) in &record.blocks {
            if preferences.blocks.insert(SourceSlot(*source), *since) {
                self.world().sources.at(SourceSlot(*source)).note_blocked(*since, true);
            }
        }
        for (name, members) in &record.lists {
            let mut list = Following::default();
            for (source, since) in members {
                list.insert(SourceSlot(*source), *since, false);
            }
            preferences.lists.insert(name.clone(), Arc::new(list));
        }
        preferences.note_change();
        let reader = Arc::clone(self.world().sources.at(SourceSlot(record.reader)));
        self.world().notified.set(reader.slot, preferences.rules.notify);
        self.world().sources.change_preferences(&reader, |restored| *restored = Some(Arc::new(preferences)));
        Ok(())
    }
}
