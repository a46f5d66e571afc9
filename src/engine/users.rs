//! The engine's interface for token revocation, for administrators of the server.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::id::SourceId;
use crate::live::sessions::Session;
use crate::runtime::message::Command;

impl Engine {
    /// Revokes the tokens of a user that were issued before `not_before`, and signals the user's sessions. Returns
    /// the instant that is valid from now on: a later one from an earlier revocation is kept. Revocations before
    /// `forget_before` may be forgotten, since the tokens they concern are refused anyway.
    ///
    /// # Errors
    /// Fails if the id is not a user's, or there are too many revocations.
    pub async fn revoke_tokens(
        &self,
        user: SourceId,
        not_before: UnixMicros,
        forget_before: Option<UnixMicros>,
    ) -> Result<UnixMicros, Error> {
        let of = user.clone();
        self.command(|reply| Command::RevokeTokens { user: of, not_before, forget_before, reply }).await?;
        // The revocation may already be forgotten.
        Ok(self.tokens_not_before(&user).map_or(not_before, |counts| counts.max(not_before)))
    }

    /// Returns the instant before which tokens of a user are revoked, if there is one.
    pub fn tokens_not_before(&self, user: &SourceId) -> Option<UnixMicros> {
        self.inner.shared.world.revocations.not_before(user)
    }

    /// Returns true if a token of a user issued at this time is revoked. A token without a time of issue counts as
    /// older than all others.
    pub fn is_token_revoked(&self, user: &SourceId, issued_at: Option<UnixMicros>) -> bool {
        self.tokens_not_before(user).is_some_and(|not_before| issued_at < Some(not_before))
    }

    /// Begins a session of a user. It is signalled whenever tokens of that user are revoked.
    pub fn session(&self, user: SourceId) -> Session {
        Arc::clone(&self.inner.shared.watchers.sessions).begin(user)
    }
}
