//! What the server's owner does about users.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::id::SourceId;
use crate::live::sessions::Session;
use crate::runtime::message::Command;

impl Engine {
    /// Revokes the tokens of a user that were made before `not_before`, and calls the user's sessions. Returns the instant that
    /// counts from now on: a later one of before stays. Revocations before `forget_before` refuse nothing that is not refused anyway.
    ///
    /// # Errors
    /// When it is no user, or there are too many revocations.
    pub async fn revoke_tokens(
        &self,
        user: SourceId,
        not_before: UnixMicros,
        forget_before: Option<UnixMicros>,
    ) -> Result<UnixMicros, Error> {
        let of = user.clone();
        self.command(|reply| Command::RevokeTokens { user: of, not_before, forget_before, reply }).await?;
        // It may be forgotten already.
        Ok(self.tokens_not_before(&user).map_or(not_before, |counts| counts.max(not_before)))
    }

    /// Before which instant tokens of a user must not have been made, if that was said.
    pub fn tokens_not_before(&self, user: &SourceId) -> Option<UnixMicros> {
        self.inner.shared.world.revocations.not_before(user)
    }

    /// Whether tokens of a user were revoked that were made then. One that does not say when it was made is as old as any.
    pub fn is_token_revoked(&self, user: &SourceId, issued_at: Option<UnixMicros>) -> bool {
        self.tokens_not_before(user).is_some_and(|not_before| issued_at < Some(not_before))
    }

    /// A session of a user: it is called whenever tokens of that user are revoked.
    pub fn session(&self, user: SourceId) -> Session {
        Arc::clone(&self.inner.shared.watchers.sessions).begin(user)
    }
}
