//! The engine's interface for users: reading all of them in pages, the data about one, revoking tokens, and erasures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

use crate::clock::UnixMicros;
use crate::engine::sources::SourceInfo;
use crate::engine::{Engine, Inner};
use crate::error::Error;
use crate::feed::position::Position;
use crate::feed::preferences::Marker;
use crate::id::{SourceId, SourceSlot};
use crate::live::sessions::Session;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::eraser::Eraser;
pub use crate::runtime::message::Erasing;
use crate::runtime::message::{Command, CompletedSnapshot, Reply};
use crate::state::all_posts::AuthorPosts;

/// Maximum number of posts of a page of one author.
const PAGE_POSTS: usize = 100;

/// Bytes of JSON after which such a page ends. Many clients may read all data of a user slowly, each with a page in
/// memory.
const PAGE_BYTES: usize = 256 << 10;

/// The users who existed at one moment, 4 bytes each, from which pages of all users are read.
#[derive(Clone, Debug)]
pub struct AllUsers(Box<[SourceSlot]>);

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

/// The erasures in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErasuresUnderWay {
    /// The number of erasures.
    pub count: usize,
    /// Seconds since the oldest one began.
    pub oldest_seconds: Option<u64>,
}

/// The engine's handle of its eraser. The eraser ends when the handle is dropped.
pub(super) struct EraserHandle {
    wake: Sender<()>,
    thread: JoinHandle<()>,
    pub(super) stopping: Arc<AtomicBool>,
}

impl Engine {
    /// Collects all users, for [`Engine::users_after`]. Sorting their ids takes about a second for a million users, so
    /// callers use a thread that may block, and use the result for many pages.
    pub fn all_users(&self) -> AllUsers {
        let sources = &self.inner.shared.world.sources;
        let users = sources.iter().filter(|source| source.id.is_user() && !source.is_erased());
        let mut slots: Vec<SourceSlot> = users.map(|user| user.slot).collect();
        slots.sort_unstable_by(|one, other| sources.at(*one).id.cmp(&sources.at(*other).id));
        AllUsers(slots.into())
    }

    /// Returns the next users, at most `limit`, by ascending id: their ids begin with `prefix` and are greater than
    /// `after`. Users who were erased since they were collected are left out.
    pub fn users_after(&self, users: &AllUsers, prefix: &str, after: Option<&str>, limit: usize) -> Vec<SourceInfo> {
        let sources = &self.inner.shared.world.sources;
        let is_before = |slot: &SourceSlot| {
            let id = sources.at(*slot).id.as_str();
            id < prefix || after.is_some_and(|after| id <= after)
        };
        let rest = users.0[users.0.partition_point(is_before)..].iter().map(|slot| sources.at(*slot));
        let these = rest.take_while(|user| user.id.as_str().starts_with(prefix)).filter(|user| !user.is_erased());
        these.take(limit).map(|user| self.source_info(user)).collect()
    }

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

    /// Erases a user permanently. After the answer no reader sees any data of the user. The data on disk is removed in
    /// the background, and until then the id cannot be used.
    ///
    /// # Errors
    /// Fails if the id is not a user's, too many users are being erased, or for the same reasons as every write.
    pub async fn erase(&self, user: SourceId) -> Result<Erasing, Error> {
        let erasures = self.inner.shared.world.sources.erasures();
        let before = erasures.len();
        let erasing = self.command(|reply| Command::Erase { user, reply }).await?;
        // A repeated request for an erasure in progress does not wake the eraser, so that its retry delay stays in
        // effect.
        if erasures.len() == before {
            return Ok(erasing);
        }
        if let Some(eraser) = self.inner.eraser.lock().as_ref() {
            // The channel is full if the eraser has already been woken.
            let _ = eraser.wake.try_send(());
        }
        Ok(erasing)
    }

    /// Returns the erasures in progress.
    pub fn erasures(&self) -> ErasuresUnderWay {
        let shared = &self.inner.shared;
        let (erasures, now) = (shared.world.sources.erasures(), shared.clock.now());
        let seconds = |at| (now.0 - shared.clock_report.shown(at, now).0).max(0) as u64 / 1_000_000;
        ErasuresUnderWay { count: erasures.len(), oldest_seconds: erasures.oldest().map(seconds) }
    }

    /// Starts the eraser. It continues the erasures that an earlier process began.
    pub(super) fn start_eraser(&self, snapshotter: Option<Sender<Reply<CompletedSnapshot>>>, has_shared_log: bool) {
        let files = self.inner.snapshotter.lock().as_ref().map(|snapshotter| Arc::clone(&snapshotter.files));
        let (wake, woken) = crossbeam_channel::bounded(1);
        let stopping = Arc::<AtomicBool>::default();
        let eraser = Eraser {
            shared: Arc::clone(&self.inner.shared),
            commands: self.inner.commands.clone(),
            files,
            snapshotter,
            wake: woken,
            stopping: Arc::clone(&stopping),
            started: self.inner.shared.clock.monotonic(),
            has_shared_log,
        };
        let thread = thread::Builder::new().name("tidewire-eraser".to_owned()).spawn(move || {
            let _abort_on_exit = AbortOnExit("eraser");
            eraser.run();
        });
        let thread = thread.expect(super::start::THREADS);
        *self.inner.eraser.lock() = Some(EraserHandle { wake, thread, stopping });
    }
}

impl Inner {
    /// Stops the eraser. The next start continues the erasures in progress.
    pub(super) fn stop_eraser(&self) {
        if let Some(EraserHandle { wake, thread, stopping }) = self.eraser.lock().take() {
            stopping.store(true, Ordering::Relaxed);
            drop(wake);
            let _ = thread.join();
        }
    }
}
