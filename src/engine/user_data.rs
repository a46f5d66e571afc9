//! The engine's interface for the data that it stores about one user.

use tokio::sync::oneshot;

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::position::Position;
use crate::feed::preferences::Marker;
use crate::id::SourceId;
use crate::runtime::background::archiver::archive_failed;
use crate::state::all_posts::AuthorPosts;

/// Maximum number of posts of a page of one author.
const PAGE_POSTS: usize = 100;

/// Bytes of JSON after which such a page ends. Many clients may read all data of a user slowly, each with a page in
/// memory.
const PAGE_BYTES: usize = 256 << 10;

/// The stored data about a user, except lists of other sources, rules, and posts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// The time at which the user last read the home feed.
    pub last_seen: Option<UnixMicros>,
    /// The instant before which tokens of the user are revoked.
    pub tokens_not_before: Option<UnixMicros>,
    /// The read marker.
    pub marker: Option<Marker>,
    /// Posts that stay in the home feed after an unfollow, by source.
    pub kept: Vec<KeptPosts>,
}

/// The posts of a source that stay in a feed after the follow ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptPosts {
    /// The source that was followed.
    pub source: SourceId,
    /// The time at which it was followed.
    pub since: UnixMicros,
    /// True if it was followed virtually.
    pub hidden: bool,
    /// Posts that were published before this time do not stay. None if all earlier posts stay.
    pub published_from: Option<UnixMicros>,
    /// Posts that were published after this time do not stay.
    pub published_until: UnixMicros,
}

impl Engine {
    /// Returns the stored data about a user, except the results of [`Engine::following`], [`Engine::hidden_following`],
    /// [`Engine::followers`], [`Engine::silenced`], [`Engine::lists`], [`Engine::members`], [`Engine::rules`] and
    /// [`Engine::posts_of_author`].
    ///
    /// # Errors
    /// Fails if the user is unknown, or the id is not that of a user.
    pub fn account(&self, user: &SourceId) -> Result<Account, Error> {
        let shared = &self.inner.shared;
        let (world, now) = (&shared.world, shared.clock.now());
        let tokens_not_before = self.tokens_not_before(user);
        let Some(source) = world.sources.get(user).filter(|source| source.id.is_user()) else {
            let account = Account { tokens_not_before, ..Account::default() };
            return tokens_not_before.map(|_| account).ok_or_else(|| Error::UnknownSource(user.clone()));
        };
        let following = source.following();
        // An erasure removes its user from the data of others only after some time.
        let kept = following.kept().iter().filter(|kept| !world.sources.is_erased(kept.source));
        let kept = kept.map(|kept| KeptPosts {
            source: world.sources.at(kept.source).id.clone(),
            since: shared.clock_report.shown(kept.since, now),
            hidden: kept.hidden,
            published_from: Some(kept.from.published_at).filter(|_| kept.from > Position::MIN),
            published_until: kept.until.published_at,
        });
        Ok(Account {
            last_seen: source.last_seen(),
            tokens_not_before,
            marker: source.preferences().marker,
            kept: kept.collect(),
        })
    }

    /// Returns a page of all posts of an author below a position, newest first. It includes hidden posts, and reposts
    /// as separate posts.
    ///
    /// # Errors
    /// Fails if a queue is full, or the archive cannot be read.
    pub async fn posts_of_author(&self, author: &SourceId, below: Position) -> Result<AuthorPosts, Error> {
        let Some(source) = self.inner.shared.world.sources.get(author) else { return Ok(AuthorPosts::default()) };
        let (reply, answer) = oneshot::channel();
        self.ask_archive(move |world| {
            let page = world.posts_of_author(source.slot, below, PAGE_POSTS, PAGE_BYTES);
            drop(reply.send(page.map_err(|cause| archive_failed(&cause))));
        })?;
        answer.await.unwrap_or(Err(Error::ShuttingDown))
    }
}
