//! The scribe's side of erasures: beginning one, its steps, and refusing what names a user meanwhile.

use crate::error::Error;
use crate::feed::event::Event;
use crate::id::SourceId;
use crate::limits::ERASURES_MAX;
use crate::runtime::message::{Choice, Command, EraseStep, Erasing, Reply};
use crate::runtime::writer::{Scribe, Then, refuse};
use crate::storage::journal::Journal;

impl<J: Journal> Scribe<J> {
    /// Begins an erasure. It is a group of its own: what comes after it is judged when it is applied.
    pub(super) fn erase(&mut self, user: SourceId, reply: Reply<Erasing>) {
        self.commit();
        let world = self.writer.world();
        let erasures = world.sources.erasures();
        if !user.is_user() {
            return refuse(reply, Error::NotAUser { id: user, action: "be erased" });
        }
        if erasures.is_of(&user) {
            return drop(reply.send(Ok(Erasing::UnderWay)));
        }
        // A revocation holds the id of a user of whom nothing else may be known.
        if world.sources.get(&user).is_none() && world.revocations.not_before(&user).is_none() {
            return drop(reply.send(Ok(Erasing::Unknown)));
        }
        if erasures.len() >= ERASURES_MAX {
            return refuse(reply, Error::Overloaded { queue: "erasures", limit: ERASURES_MAX });
        }
        let at = self.tick(1).instant;
        self.accept(Event::Erased { user, at }, Then::Erase(reply));
        self.commit();
    }

    /// The refusal of a command that names a user who is being erased: nothing new may come to be known of one.
    pub(super) fn names_erased(&self, command: &Command) -> Option<Error> {
        let erasures = self.writer.world().sources.erasures();
        if !erasures.any() {
            return None;
        }
        let is_erased = |id: &&SourceId| erasures.is_of(id);
        let named = match command {
            Command::Publish { draft, .. } => Some(&draft.author).filter(is_erased),
            Command::Follow { edges, .. } => {
                edges.iter().flat_map(|edge| [&edge.follower, &edge.source]).find(is_erased)
            }
            Command::Meet { user, .. } | Command::RevokeTokens { user, .. } => Some(user).filter(is_erased),
            Command::Unfollow { follower, source, .. } => [follower, source].into_iter().find(is_erased),
            Command::Choose { reader, choice, .. } => std::iter::once(reader).chain(chosen(choice)).find(is_erased),
            Command::Resolved { command, .. } => return self.names_erased(command),
            _ => None,
        };
        named.map(|id| Error::BeingErased { id: id.clone() })
    }

    pub(super) fn erase_step(&mut self, step: EraseStep, reply: Reply<()>) {
        self.commit();
        match step {
            EraseStep::Apply(mut events) => {
                let Some(last) = events.pop() else { return drop(reply.send(Ok(()))) };
                for event in events {
                    self.accept(event, Then::Nothing);
                }
                // All are committed, or none is.
                self.accept(last, Then::Answer(reply));
                self.commit();
            }
            EraseStep::Rewrite(users) => self.rewrite_archive(users, reply),
            EraseStep::BeginSegment => {
                let begun = self.failed.clone().map_or(Ok(()), Err);
                let begun = begun.and_then(|()| self.journal.begin_segment().map_err(|cause| self.refusal(cause)));
                drop(reply.send(begun));
            }
        }
    }
}

/// The source that a decision is about, if it is about one.
fn chosen(choice: &Choice) -> Option<&SourceId> {
    match choice {
        Choice::Silence { source, .. } | Choice::List { source, .. } => Some(source),
        Choice::Rules(_) | Choice::Mark(_) | Choice::Unlist(_) => None,
    }
}
