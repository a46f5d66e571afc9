//! The resolver: looks up records that commands need from the archive, on threads that may wait for a disk, and
//! queues the commands for the command processor.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;
use crate::id::PostId;
use crate::limits::{
    ARCHIVE_QUEUE_MAX, ARCHIVED_IDS_LISTED_MAX, BACKFILL_MAX, BACKFILLS_PER_REQUEST_MAX, FOLLOWS_PER_REQUEST_MAX,
};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::message::Command;
use crate::runtime::processor::queue::{CommandSender, NotTaken};
use crate::runtime::shared::Shared;
use crate::state::resolved::{Needs, Resolved};
use crate::state::world::World;
use crate::storage::archive::Archive;

/// Maximum number of archive look-ups of one command before it is refused. The results stay in memory from the first look-up on, so that
/// one more is enough.
const RESOLUTIONS_MAX: u32 = 8;

/// Returns the records that a command needs from the archive and that are neither in memory nor in `resolved`.
pub fn needs(command: &Command, world: &World, resolved: &Resolved) -> Needs {
    let mut needs = Needs::default();
    if world.has_archived() {
        add_needs(command, world, resolved, &mut needs);
    }
    needs
}

fn add_needs(command: &Command, world: &World, resolved: &Resolved, needs: &mut Needs) {
    match command {
        // One look-up for all of them, so that they stay in order and together.
        Command::Many(commands) => commands.iter().for_each(|command| add_needs(command, world, resolved, needs)),
        Command::Publish { draft, .. } => {
            let ids = [draft.id, draft.repost_of, draft.reply_to];
            ids.into_iter().flatten().for_each(|id| needs.post(id, world, resolved));
        }
        Command::Edit { id, .. } | Command::Delete { id, .. } => needs.post(*id, world, resolved),
        Command::ChangeEdges { follows, unfollows, keep, .. } => {
            let asked: usize = follows.iter().filter_map(|edge| edge.backfill).fold(0, usize::saturating_add);
            // Larger requests are refused before any lookup.
            if asked <= BACKFILLS_PER_REQUEST_MAX && follows.len() <= FOLLOWS_PER_REQUEST_MAX {
                let backfills = follows.iter().filter_map(|edge| Some((&edge.source, edge.backfill?)));
                let backfills = backfills.filter(|(_, posts)| *posts <= BACKFILL_MAX);
                backfills.for_each(|(source, posts)| needs.newest_of(source, posts.max(1), world, resolved));
            }
            if let ([edge], true) = (&unfollows[..], *keep) {
                needs.newest_of(&edge.source, 1, world, resolved);
            }
        }
        _ => {}
    }
}

/// Looks up records for commands.
#[derive(Clone)]
pub struct Resolver {
    shared: Arc<Shared>,
    commands: CommandSender,
}

impl Resolver {
    /// Creates a resolver that queues commands through `commands`.
    pub fn new(shared: Arc<Shared>, commands: CommandSender) -> Self {
        Self { shared, commands }
    }

    /// Queues a command after looking up `needs`, in addition to the records found in earlier `attempts`. Refuses the
    /// command if the lookup fails.
    pub fn resolve(&self, command: Command, resolved: Resolved, attempts: u32, needs: Needs) {
        if attempts >= RESOLUTIONS_MAX {
            return command.refuse(self.shared.overloaded("archive", ARCHIVE_QUEUE_MAX));
        }
        // The job and the refusal share the command; only one of them uses it.
        let command = Arc::new(Mutex::new(Some(command)));
        let (waiting, this) = (Arc::clone(&command), self.clone());
        let is_taken = self.ask(move |world| {
            if let Some(command) = waiting.lock().take() {
                this.look_up(command, resolved, attempts, needs, world);
            }
        });
        if !is_taken && let Some(command) = command.lock().take() {
            command.refuse(self.shared.overloaded("archive", ARCHIVE_QUEUE_MAX));
        }
    }

    fn look_up(&self, command: Command, mut resolved: Resolved, attempts: u32, needs: Needs, world: &World) {
        if let Err(cause) = resolved.look_up(needs, world) {
            return command.refuse(archive_failed(&cause));
        }
        let resolved =
            Command::Resolved { command: Box::new(command), resolved: Box::new(resolved), attempts: attempts + 1 };
        match self.commands.offer(resolved) {
            Ok(()) => {}
            Err((NotTaken::Full { queue, limit }, Some(command))) => {
                command.refuse(self.shared.overloaded(queue, limit));
            }
            // A caller whose command was dropped notices that its reply channel is closed.
            Err((_, command)) => command.into_iter().for_each(|command| command.refuse(Error::ShuttingDown)),
        }
    }

    /// Lists the next ids in the archive from this one on, for the command processor. Returns false if the queue is full.
    pub fn list_ids(&self, from: PostId) -> bool {
        let commands = self.commands.clone();
        self.ask(move |world| {
            let list = |archive: &Arc<dyn Archive>| archive.ids_from(from, ARCHIVED_IDS_LISTED_MAX);
            let listed = world.archive().map_or(Ok(None), list).map_err(|cause| archive_failed(&cause));
            // This fails only if the command processor has ended.
            let _ = commands.send(Command::IdsListed { listed });
        })
    }

    /// Returns the refusal of a post while the free ids are unknown, and counts it.
    pub fn overloaded(&self) -> Error {
        self.shared.overloaded("archive", ARCHIVE_QUEUE_MAX)
    }

    fn ask(&self, job: impl FnOnce(&World) + Send + 'static) -> bool {
        self.shared.archive_readers.ask(job)
    }
}
