//! The eraser: carries out erasures in the background, until no data of the users is left.
//!
//! Responsible for:
//! - removing other users' edges to an erased user and their decisions about it, and deleting the user's posts, in
//!   memory and in the archive, all by ordinary events;
//! - then requesting a rewrite of the archive, a new segment of the journal, and a snapshot that makes all older files
//!   superfluous. Readers of changes get time to read these files first, unless segments are retained for consumers:
//!   then the segments are rewritten without the users (`retained`);
//! - continuing the work of an earlier process: every step is repeated, and has no effect if it was already done.

mod retained;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::{Event, MuteOrBlock};
use crate::feed::outbox::{OutboxQuery, Part};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::id::{PostId, SourceId};
use crate::limits::{CHANGE_READER_AWAY_MAX, CHANGE_READERS_RETURN_MAX, ERASURE_RESTS, SNAPSHOT_REQUESTS_MAX};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::resolver::{Resolver, needs};
use crate::runtime::message::{Command, CompletedSnapshot, EraseStep, Reply, Sleep};
use crate::runtime::processor::queue::CommandSender;
use crate::runtime::shared::Shared;
use crate::state::resolved::Resolved;
use crate::state::sources::Source;
use crate::state::sources::erasures::Erasure;
use crate::storage::files::Files;
use crate::storage::sequence::Sequence;

/// Maximum delay between two attempts.
const ERASURE_RETRY_MAX: Duration = Duration::from_secs(10 * 60);

/// Delay after the first failed attempt of an erasure; it doubles after each further one. A common cause is a disk
/// without space for another copy of the archive.
const ERASURE_RETRY: Duration = Duration::from_secs(1);

/// Maximum time that an erasure waits for a backup of the journal. An unreachable backup store must not prevent the
/// erasure.
const ERASURE_BACKUP_WAIT_MAX: Duration = Duration::from_secs(60);

/// The period between checks whether a backup has the journal, or the engine ends.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// Number of posts that an erasure deletes in the archive before it waits until the archive has written the deletions.
const ERASURE_FLUSH_POSTS: usize = 4 * 1024;

/// Maximum number of changes that an erasure requests together: posts to delete, or edges and preferences of other users to remove.
const ERASURE_STEP_MAX: usize = 256;

/// The background worker that carries out erasures.
pub(crate) struct Eraser {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: CommandSender,
    /// The data directory, if there is one with a journal.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The sender of requests to the snapshotter, if there is a data directory.
    pub(crate) snapshotter: Option<Sender<Reply<CompletedSnapshot>>>,
    /// Receives a message when an erasure begins. It is disconnected when the engine ends.
    pub(crate) wake: Receiver<()>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// The engine's monotonic clock when the engine started.
    pub(crate) started: Duration,
    /// True if several nodes apply the same log. The sequencer then carries out the erasures.
    pub(crate) has_shared_log: bool,
}

/// Erasures that have already waited for readers of changes. If a later step fails, the eraser retries them without a
/// second wait. Erasures that were requested meanwhile are not among them, since they must still wait.
struct Kept {
    /// When the erasures began.
    at: Vec<UnixMicros>,
    /// The first event that readers of changes can still expect in the journal. No event from this one on names the users.
    from: Sequence,
}

/// The pending answers to commands that were sent together.
type Answers = Vec<(PostId, oneshot::Receiver<Result<(), Error>>)>;

impl Eraser {
    /// Carries out erasures until the engine ends.
    pub(crate) fn run(self) {
        let (mut failures, mut kept) = (0_u32, None::<Kept>);
        loop {
            let mut erasures = self.shared.world.sources.erasures().all();
            if let Some(kept) = &kept {
                erasures.retain(|erasure| kept.at.contains(&erasure.at));
            }
            let (began, count) = (Instant::now(), erasures.len());
            let outcome = if erasures.is_empty() { Ok(()) } else { self.carry_out(&erasures, &mut kept) };
            // After a failure, too: until the next attempt, snapshots remove the usual files.
            self.shared.world.sources.erasures().set_journal_from(None);
            *self.shared.change_consumers.hold_journal() = Sequence(0);
            match &outcome {
                // The server log must not name the erased users either.
                Ok(()) if count > 0 => info!("completed {count} erasures in {:.1?}", began.elapsed()),
                Err(Error::ShuttingDown) => return,
                // Another node of the cluster carries them out. This node does so if it takes over.
                Err(Error::NotSequencer) => {}
                Err(cause) if failures == 0 => warn!("{count} erasures failed; retrying: {cause}"),
                _ => {}
            }
            failures = if matches!(outcome, Ok(()) | Err(Error::NotSequencer)) { 0 } else { failures + 1 };
            if failures == 0 {
                kept = None;
            }
            let wait = ERASURE_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(ERASURE_RETRY_MAX);
            match self.wake.recv_timeout(wait) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Carries out these erasures. `kept` is set once they have waited for readers of changes. The caller resets the
    /// event from which snapshots keep the journal.
    fn carry_out(&self, erasures: &[Arc<Erasure>], kept: &mut Option<Kept>) -> Result<(), Error> {
        erasures.iter().for_each(|erasure| self.put_to_sleep(&erasure.source));
        // Refused unless this node accepts writes.
        self.step(EraseStep::Apply(Vec::new()))?;
        // Erasures without an id were recovered from a snapshot that was taken when only older files contained the
        // user's id.
        let named: Vec<(&Erasure, &SourceId)> =
            erasures.iter().filter_map(|erasure| Some((&**erasure, erasure.user.as_ref()?))).collect();
        if !named.is_empty() {
            self.take_back(&named)?;
            named.iter().try_for_each(|(erasure, user)| self.delete_posts(erasure, user))?;
            let users = named.iter().map(|(_, user)| (*user).clone()).collect();
            self.step(EraseStep::Rewrite(users))?;
        }
        let of_all = |event: fn(UnixMicros) -> Event| erasures.iter().map(|erasure| event(erasure.at)).collect();
        // No event from here on names the users.
        self.step(EraseStep::BeginSegment)?;
        let all = self.shared.world.sources.erasures();
        // On a shared log, the id is needed until the end, since other nodes may take a snapshot at any event. The
        // shared log itself is not truncated here.
        if !self.has_shared_log {
            let from = match kept {
                Some(kept) => kept.from,
                None => {
                    let from = self.last_event()?.next();
                    let config = &self.shared.config;
                    // With a longer retention, readers find the unread events in retained segments.
                    if config.changes_retention < config.erasure_grace {
                        self.keep_for_readers()?;
                    }
                    *kept = Some(Kept { at: erasures.iter().map(|erasure| erasure.at).collect(), from });
                    from
                }
            };
            let _no_snapshot = all.hold_snapshots();
            self.rewrite_retained(erasures, from)?;
            self.step(EraseStep::Apply(of_all(|at| Event::ErasureScrubbed { at })))?;
            all.set_journal_from(Some(from));
        }
        self.wait_for_backup()?;
        self.take_snapshot()?;
        self.step(EraseStep::Apply(of_all(|at| Event::ErasureEnded { at })))?;
        erasures.iter().for_each(|erasure| self.put_to_sleep(&erasure.source));
        Ok(())
    }

    /// Ends the user's own live connections, and removes the inbox.
    fn put_to_sleep(&self, source: &Source) {
        // If the actor's mailbox is full, the next attempt puts it to sleep, or the activator does when it is idle.
        let _ = self.shared.directory.send(source.slot, Sleep);
    }

    /// Removes other users' edges to these users and their decisions about them. No new ones are added in the
    /// meantime, since they are refused.
    fn take_back(&self, users: &[(&Erasure, &SourceId)]) -> Result<(), Error> {
        let world = &self.shared.world;
        let (mut events, mut since) = (Vec::new(), Instant::now());
        for (nth, other) in world.sources.iter().enumerate().filter(|(_, other)| !other.is_erased()) {
            users.iter().for_each(|(erasure, user)| references(other, erasure, user, &mut events));
            if events.len() >= ERASURE_STEP_MAX {
                self.step(EraseStep::Apply(std::mem::take(&mut events)))?;
                self.rest(&mut since)?;
            } else if nth % ERASURE_STEP_MAX == 0 {
                self.rest(&mut since)?;
            }
        }
        self.step(EraseStep::Apply(events))
    }

    /// Deletes all posts of a user, by ordinary commands.
    fn delete_posts(&self, erasure: &Erasure, user: &SourceId) -> Result<(), Error> {
        self.delete_in_memory(&erasure.source)?;
        self.delete_archived(user)?;
        // Again, for posts that were being moved to the archive while it was searched.
        self.delete_in_memory(&erasure.source)
    }

    fn delete_in_memory(&self, source: &Source) -> Result<(), Error> {
        let (mut positions, mut since) = (Vec::new(), Instant::now());
        loop {
            positions.clear();
            source.outbox().copy(Part::Whole, PositionRange::ALL, Direction::Newer, ERASURE_STEP_MAX, &mut positions);
            if positions.is_empty() {
                return Ok(());
            }
            self.delete(&positions)?;
            self.rest(&mut since)?;
        }
    }

    fn delete_archived(&self, user: &SourceId) -> Result<(), Error> {
        let Some(archive) = self.shared.world.archive() else { return Ok(()) };
        let (mut span, mut positions, mut since) = (PositionRange::ALL, Vec::new(), Instant::now());
        for round in 1.. {
            positions.clear();
            let query = OutboxQuery { part: Part::Whole, span, direction: Direction::Older, max: ERASURE_STEP_MAX };
            let read = archive.positions(user, query, &mut positions);
            read.map_err(|cause| archive_failed(&cause))?;
            let Some(last) = positions.last() else { return Ok(()) };
            span = span.beyond(*last, Direction::Older);
            self.delete(&positions)?;
            if round % (ERASURE_FLUSH_POSTS / ERASURE_STEP_MAX) == 0 {
                // The deletions are stored in memory until the archive is written.
                self.flush()?;
            }
            self.rest(&mut since)?;
        }
        Ok(())
    }

    /// Waits until the archive contains all pending changes.
    fn flush(&self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Mark { sync: true, reply }).map_err(|_| Error::ShuttingDown)?;
        answer.blocking_recv().unwrap_or(Err(Error::ShuttingDown)).map(drop)
    }

    /// Deletes posts. Archived posts that cannot be read are left to the rewrite of the archive.
    fn delete(&self, positions: &[Position]) -> Result<(), Error> {
        let mut answers = Answers::with_capacity(positions.len());
        for Position { id, .. } in positions {
            answers.push((*id, self.send_delete(*id)?));
        }
        for (id, answer) in answers {
            match answer.blocking_recv().unwrap_or(Err(Error::ShuttingDown)) {
                Err(Error::ArchiveFailed(cause)) => {
                    warn!("could not delete post {id}; the rewrite of the archive removes it: {cause}");
                }
                deleted => deleted?,
            }
        }
        Ok(())
    }

    fn send_delete(&self, id: PostId) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let (command, resolved) = (Command::Delete { id, reply }, Resolved::default());
        let needs = needs(&command, &self.shared.world, &resolved);
        if needs.is_empty() {
            self.commands.send(command).map_err(|_| Error::ShuttingDown)?;
        } else {
            Resolver::new(Arc::clone(&self.shared), self.commands.clone()).resolve(command, resolved, 0, needs);
        }
        Ok(answer)
    }

    fn step(&self, step: EraseStep) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::EraseStep { step, reply }).map_err(|_| Error::ShuttingDown)?;
        answer.blocking_recv().unwrap_or(Err(Error::ShuttingDown))
    }

    /// Returns the last event of the journal.
    fn last_event(&self) -> Result<Sequence, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Mark { sync: false, reply }).map_err(|_| Error::ShuttingDown)?;
        Ok(answer.blocking_recv().unwrap_or(Err(Error::ShuttingDown))?.last)
    }

    /// Gives readers of changes time to reach the new segment before older segments are removed. A disconnected reader
    /// may have to reconnect, and then continues slightly before the last event that it received. Readers of an earlier
    /// process are not known here, so the eraser waits for them for some time after a start.
    fn keep_for_readers(&self) -> Result<(), Error> {
        let (grace, readers, clock) =
            (self.shared.config.erasure_grace, &self.shared.change_readers, &self.shared.clock);
        let any = || readers.any_within(CHANGE_READER_AWAY_MAX);
        let passed = |since: Duration, time: Duration| clock.monotonic().saturating_sub(since) >= time;
        let began = clock.monotonic();
        self.wait_until(|| any() || passed(began, grace) || passed(self.started, CHANGE_READERS_RETURN_MAX))?;
        if !any() {
            return Ok(());
        }
        let began = clock.monotonic();
        self.wait_until(|| passed(began, grace))
    }

    fn wait_until(&self, is_over: impl Fn() -> bool) -> Result<(), Error> {
        while !is_over() {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(Error::ShuttingDown);
            }
            std::thread::park_timeout(POLL_PERIOD);
        }
        Ok(())
    }

    /// Waits until a backup has the journal that the next snapshot removes. Otherwise no point in time between the last
    /// backup and the next one could be restored.
    fn wait_for_backup(&self) -> Result<(), Error> {
        let wanted = self.last_event()?.0;
        self.shared.backup_wanted.store(wanted, Ordering::Relaxed);
        let has_it = || self.shared.backed_up.load(Ordering::Relaxed) >= wanted;
        let clock = &self.shared.clock;
        let began = clock.monotonic();
        let is_late = || clock.monotonic().saturating_sub(began) >= ERASURE_BACKUP_WAIT_MAX;
        self.wait_until(|| has_it() || is_late())?;
        if !has_it() {
            warn!("an erasure removes journal segments that no backup has; the moments in them cannot be restored");
        }
        Ok(())
    }

    /// Requests a snapshot that removes all older files, and waits for it.
    fn take_snapshot(&self) -> Result<(), Error> {
        let Some(snapshotter) = &self.snapshotter else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        let full = |_| Error::Overloaded { queue: "snapshot", limit: SNAPSHOT_REQUESTS_MAX };
        snapshotter.try_send(reply).map_err(full)?;
        answer.blocking_recv().unwrap_or(Err(Error::ShuttingDown)).map(drop)
    }

    /// Pauses after work, so that requests do not wait for it on machines with few cores.
    fn rest(&self, since: &mut Instant) -> Result<(), Error> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::ShuttingDown);
        }
        std::thread::park_timeout(since.elapsed() * ERASURE_RESTS);
        *since = Instant::now();
        Ok(())
    }
}

/// Adds the events that remove the references of `other` to a user: an edge or the posts kept from one, mutes,
/// blocks, and list entries.
fn references(other: &Source, Erasure { source, .. }: &Erasure, user: &SourceId, events: &mut Vec<Event>) {
    let (slot, reader) = (source.slot, &other.id);
    let following = other.following();
    if following.contains(slot) || following.is_only_kept(slot) {
        let (follower, source) = (reader.clone(), user.clone());
        events.push(Event::Unfollowed { follower, source, keep_until: None });
    }
    let Some(preferences) = other.own_preferences() else { return };
    for (how, silenced) in [(MuteOrBlock::Mute, &preferences.mutes), (MuteOrBlock::Block, &preferences.blocks)] {
        if silenced.contains(slot) {
            let (reader, source) = (reader.clone(), user.clone());
            events.push(Event::MuteChanged { reader, source, how, since: None });
        }
    }
    for (list, _) in preferences.lists.iter().filter(|(_, members)| members.contains(slot)) {
        let (reader, list, source) = (reader.clone(), list.clone(), user.clone());
        events.push(Event::ListMemberChanged { reader, list, source, since: None });
    }
}
