//! The erasure part of the command processor: beginning an erasure, its steps, and refusing commands that name a user in the
//! meantime.

use crate::error::Error;
use crate::feed::event::Event;
use crate::id::SourceId;
use crate::limits::ERASURES_MAX;
use crate::runtime::message::{Command, EraseStep, Erasing, PreferenceChange, Reply};
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::storage::journal::Journal;

impl<J: Journal> CommandProcessor<J> {
    /// Begins an erasure. It is a group of its own, so later commands are validated after it is applied.
    pub(super) fn erase(&mut self, user: SourceId, reply: Reply<Erasing>) {
        self.settle();
        let world = self.machine.world();
        let erasures = world.sources.erasures();
        if !user.is_user() {
            return refuse(reply, Error::NotAUser { id: user, action: "be erased" });
        }
        if erasures.is_of(&user) {
            return drop(reply.send(Ok(Erasing::UnderWay)));
        }
        // A revocation contains the id of a user, even if the user is otherwise unknown.
        if world.sources.get(&user).is_none() && world.revocations.not_before(&user).is_none() {
            return drop(reply.send(Ok(Erasing::Unknown)));
        }
        if erasures.len() >= ERASURES_MAX {
            return refuse(reply, self.shared.overloaded("erasures", ERASURES_MAX));
        }
        // A user who is known only by a revocation gets a permanent slot now.
        if let Err(full) = self.check_sources_limit([&user].into_iter()) {
            return refuse(reply, full);
        }
        let at = self.tick(1).instant;
        self.accept(Event::Erased { user, at }, Completion::Erase(reply));
        self.settle();
    }

    /// Returns the refusal of a command that names a user who is being erased, since no new data about the user may
    /// be stored.
    pub(super) fn names_erased(&self, command: &Command) -> Option<Error> {
        let erasures = self.machine.world().sources.erasures();
        if !erasures.any() {
            return None;
        }
        let is_erased = |id: &&SourceId| erasures.is_of(id);
        let named = match command {
            Command::Publish { draft, .. } => Some(&draft.author).filter(is_erased),
            Command::ChangeEdges { follows, unfollows, .. } => {
                let removed = unfollows.iter().flat_map(|edge| [&edge.follower, &edge.source]);
                follows.iter().flat_map(|edge| [&edge.follower, &edge.source]).chain(removed).find(is_erased)
            }
            Command::RegisterUser { user, .. } | Command::RevokeTokens { user, .. } => Some(user).filter(is_erased),
            Command::SetPreference { reader, choice, .. } => {
                std::iter::once(reader).chain(chosen(choice)).find(is_erased)
            }
            Command::Resolved { command, .. } => return self.names_erased(command),
            _ => None,
        };
        named.map(|id| Error::BeingErased { id: id.clone() })
    }

    pub(super) fn erase_step(&mut self, step: EraseStep, reply: Reply<()>) {
        self.settle();
        match step {
            EraseStep::Apply(mut events) => {
                events.retain(|event| self.is_of_erasure(event));
                let Some(last) = events.pop() else { return drop(reply.send(Ok(()))) };
                for event in events {
                    self.accept(event, Completion::Nothing);
                }
                // If a crash loses all but the first events, the erasure continues with the rest after the restart.
                self.accept(last, Completion::Answer(reply));
                self.settle();
            }
            EraseStep::Rewrite(users) => self.rewrite_archive(users, reply),
            EraseStep::BeginSegment => {
                let begun = self.failed.clone().map_or(Ok(()), Err);
                let begun = begun.and_then(|()| self.journal.begin_segment().map_err(|cause| self.refusal(&cause)));
                drop(reply.send(begun));
            }
        }
    }

    /// Returns false if the erasure of an event has ended because another node carried it out. The id may belong to a
    /// new user by now.
    fn is_of_erasure(&self, event: &Event) -> bool {
        let erasures = self.machine.world().sources.erasures();
        match event {
            Event::Unfollowed { source, .. }
            | Event::MuteChanged { source, .. }
            | Event::ListMemberChanged { source, .. } => erasures.is_of(source),
            Event::ErasureScrubbed { at } | Event::ErasureEnded { at } => erasures.at(*at).is_some(),
            _ => true,
        }
    }
}

/// Returns the source that a decision is about, if there is one.
fn chosen(choice: &PreferenceChange) -> Option<&SourceId> {
    match choice {
        PreferenceChange::Silence { source, .. } | PreferenceChange::List { source, .. } => Some(source),
        PreferenceChange::Rules(_) | PreferenceChange::Mark(_) | PreferenceChange::DropList(_) => None,
    }
}
