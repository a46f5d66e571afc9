//! The revocation part of the command processor: revoking tokens of users.

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::Event;
use crate::id::SourceId;
use crate::limits::REVOCATIONS_MAX;
use crate::runtime::message::Reply;
use crate::runtime::processor::group::Added;
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::storage::journal::Journal;

impl<J: Journal> CommandProcessor<J> {
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
