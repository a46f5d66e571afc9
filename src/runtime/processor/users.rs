//! The user part of the command processor: registering ids, validating preferences of readers, and revoking tokens.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::{Event, MuteOrBlock};
use crate::feed::preferences::{Marker, Preferences};
use crate::id::{ListName, SourceId};
use crate::limits::{LISTS_MAX, REVOCATIONS_MAX};
use crate::runtime::message::{PreferenceChange, Reply};
use crate::runtime::processor::group::Added;
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::state::sources::Source;
use crate::storage::journal::Journal;

/// Maximum number of sources that one reader may mute. The same limit applies to blocks.
const SILENCED_MAX: usize = 10_000;

/// The number of edges that use as much memory as one more source in a reader's preferences, or as the first
/// preferences of a reader.
const PREFERENCE_AS_EDGES: usize = 8;

impl<J: Journal> CommandProcessor<J> {
    /// Registers a user id, so that the user can be watched. This is not an event: the id is journaled with the first
    /// event that names it.
    pub(super) fn register_user(&mut self, user: SourceId, reply: Reply<Arc<Source>>) {
        if !user.is_user() {
            return refuse(reply, Error::NotAUser { id: user, action: "be watched" });
        }
        match self.check_sources_limit([&user].into_iter()) {
            // The caller may have disconnected.
            Ok(()) => {
                self.group.note_registered(&user);
                drop(reply.send(Ok(self.machine.intern(&user))));
            }
            Err(full) => refuse(reply, full),
        }
    }

    pub(super) fn choose(&mut self, reader: SourceId, choice: PreferenceChange, reply: Reply<bool>) {
        match self.validate_choice(reader, choice) {
            Ok(Some(event)) => {
                self.accept(event, Completion::Chosen(reply));
            }
            Ok(None) => {
                let _ = reply.send(Ok(false));
            }
            Err(refused) => refuse(reply, refused),
        }
    }

    /// Returns the event for a decision, or None if it changes nothing.
    fn validate_choice(&mut self, reader: SourceId, choice: PreferenceChange) -> Result<Option<Event>, Error> {
        if !reader.is_user() {
            return Err(Error::NotAUser { id: reader, action: "set preferences" });
        }
        let known = self.machine.world().sources.get(&reader);
        let is_first = known.as_ref().is_none_or(|reader| reader.own_preferences().is_none());
        let preferences = known.map(|reader| reader.preferences()).unwrap_or_default();
        match choice {
            PreferenceChange::Silence { source, how, on } => {
                self.validate_silence(reader, &preferences, source, how, on)
            }
            PreferenceChange::Rules(patch) => {
                let rules = preferences.rules.patched(patch);
                self.check_sources_limit([&reader].into_iter())?;
                let is_new = rules != preferences.rules;
                self.check_preference_bytes(is_first && is_new)?;
                Ok(is_new.then_some(Event::RulesChanged { reader, rules }))
            }
            PreferenceChange::Mark(marker) => {
                self.check_sources_limit([&reader].into_iter())?;
                self.check_preference_bytes(is_first)?;
                let Marker { at, seen } = marker;
                Ok((preferences.marker != Some(marker)).then_some(Event::MarkerMoved { reader, at, seen }))
            }
            PreferenceChange::List { list, source, on } => self.validate_list(reader, &preferences, list, source, on),
            PreferenceChange::DropList(list) => {
                Ok(preferences.lists.contains_key(&list).then_some(Event::ListDeleted { reader, list }))
            }
        }
    }

    /// Checks that a decision that takes more memory fits into the budget. All others are allowed.
    fn check_preference_bytes(&self, takes_more: bool) -> Result<(), Error> {
        let edges = self.group.added().edges + PREFERENCE_AS_EDGES;
        if takes_more { self.check_graph_bytes(edges, 0) } else { Ok(()) }
    }

    fn validate_silence(
        &mut self,
        reader: SourceId,
        preferences: &Preferences,
        source: SourceId,
        how: MuteOrBlock,
        on: bool,
    ) -> Result<Option<Event>, Error> {
        let (silenced, what, action) = match how {
            MuteOrBlock::Mute => (&preferences.mutes, "mutes", "mute"),
            MuteOrBlock::Block => (&preferences.blocks, "blocks", "block"),
        };
        if reader == source {
            return Err(Error::Oneself { reader, action });
        }
        let known = self.machine.world().sources.get(&source);
        if known.is_some_and(|source| silenced.contains(source.slot)) == on {
            return Ok(None);
        }
        if on && silenced.len() >= SILENCED_MAX {
            return Err(Error::TooMany { reader, what, limit: SILENCED_MAX });
        }
        self.check_sources_limit([&reader, &source].into_iter())?;
        // A block protects the reader, so it is allowed even if the memory is full.
        self.check_preference_bytes(on && how == MuteOrBlock::Mute)?;
        let since = on.then(|| self.tick(1).instant);
        Ok(Some(Event::MuteChanged { reader, source, how, since }))
    }

    fn validate_list(
        &mut self,
        reader: SourceId,
        preferences: &Preferences,
        list: ListName,
        source: SourceId,
        on: bool,
    ) -> Result<Option<Event>, Error> {
        let members = preferences.lists.get(&list);
        let known = self.machine.world().sources.get(&source);
        let is_on = members.zip(known).is_some_and(|(members, source)| members.contains(source.slot));
        if is_on == on {
            return Ok(None);
        }
        if on && members.is_none() && preferences.lists.len() >= LISTS_MAX {
            return Err(Error::TooMany { reader, what: "lists", limit: LISTS_MAX });
        }
        let limit = self.shared.config.following_max;
        if on && members.is_some_and(|members| members.len() >= limit) {
            return Err(Error::TooMany { reader, what: "members of a list", limit });
        }
        self.check_sources_limit([&reader, &source].into_iter())?;
        self.check_preference_bytes(on)?;
        let since = on.then(|| self.tick(1).instant);
        Ok(Some(Event::ListMemberChanged { reader, list, source, since }))
    }

    /// Revokes tokens of a user that were issued before an instant. A later revocation remains in effect.
    pub(super) fn revoke(
        &mut self,
        user: SourceId,
        not_before: UnixMicros,
        forget_before: Option<UnixMicros>,
        reply: Reply<()>,
    ) {
        if !user.is_user() {
            return refuse(reply, Error::NotAUser { id: user, action: "have tokens" });
        }
        let revocations = &self.machine.world().revocations;
        let known = revocations.not_before(&user);
        if known >= Some(not_before) {
            // The caller may have disconnected.
            return drop(reply.send(Ok(())));
        }
        let more = self.group.added().revocations + usize::from(known.is_none());
        if known.is_none() && revocations.would_exceed(REVOCATIONS_MAX, more, forget_before) {
            return refuse(reply, Error::Full { what: "revocation", limit: REVOCATIONS_MAX });
        }
        if self.accept(Event::Revoked { user, not_before, forget_before }, Completion::Answer(reply)) {
            self.group.add(Added { revocations: usize::from(known.is_none()), ..Added::default() });
        }
    }
}
