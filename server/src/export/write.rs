//! Writes the state of a world at rest as the lines of an export.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::export::line::{
    Counts, End, FORMAT, Follow, FollowsLine, Head, Id, Kept, Late, Line, ListLine, MarkerLine, PostLine,
    PreferencesLine, RepostLine, RepostsLine, Revealed, RevokedLine, Seen, Since, SourceLine, Time,
};
use tidewire::clock::{Timestamp, UnixMicros};
use tidewire::feed::position::Position;
use tidewire::feed::post::{Post, replies};
use tidewire::feed::reposts::Repost;
use tidewire::id::{ExternalId, PostId, SourceId};
use tidewire::recovery::Recovered;
use tidewire::state::posts::Stored;
use tidewire::state::records::{EdgesRecord, PreferencesRecord, RecordTraversal, SourceRecord};
use tidewire::state::world::World;
use tidewire::storage::archive::ArchiveError;
use tidewire::storage::sequence::Sequence;

/// Number of ids that are read from the archive together.
const IDS_AT_ONCE: usize = 1_000;

/// Maximum number of reposts or ids of deleted posts in a line.
const PER_LINE: usize = 1_000;

/// A state at rest: it does not change while it is written.
pub(crate) struct AtRest {
    pub(super) world: Arc<World>,
    /// The last event.
    pub(super) sequence: Sequence,
    last_instant: Timestamp,
    hidden: HiddenReplies,
    /// The posts whose tombstones are in the archive, ascending.
    deleted: Vec<PostId>,
}

/// Hidden replies in the archive, by the slots of their source of replies.
type HiddenReplies = HashMap<usize, Vec<PostId>>;

/// The reason why a state was not written as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("cannot write the export: {0}; it is incomplete")]
    Out(#[from] io::Error),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(
        "a user is being erased: use a state from after the erasure, or one from before it, and then erase the user again"
    )]
    Erasing,
    #[error("the archive is remote and cannot list its posts: copy it to a file first (tidewire archive copy)")]
    NoList,
}

impl AtRest {
    /// Creates the state from a recovery. Earlier versions archived replies without creating their source of replies, and hid some without
    /// recording them there. A newer archive may have reposts that are not in the index. This adds all of them.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub(super) fn of(Recovered { world, machine, tail, last_instant, .. }: Recovered) -> Result<Self, WriteError> {
        let (mut hidden, mut deleted) = (HiddenReplies::new(), Vec::new());
        for_each_archived(&world, |id| {
            let post = match world.find(id)? {
                Some(Stored::Live(post)) => post,
                Some(Stored::Deleted) => {
                    deleted.push(id);
                    return Ok(());
                }
                None => return Ok(()),
            };
            machine.note_repost(&post);
            if let Some(thread) = thread(&post) {
                let thread = machine.intern(&thread).slot.0 as usize;
                if post.hidden {
                    hidden.entry(thread).or_default().push(id);
                }
            }
            Ok(())
        })?;
        Ok(Self { world, sequence: tail.last, last_instant, hidden, deleted })
    }
}

/// Counts the lines, and computes their checksum.
struct Lines<W> {
    out: W,
    lines: u64,
    hash: Sha256,
    text: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        self.hash.update(&self.text);
        self.lines += 1;
        self.out.write_all(&self.text)
    }
}

/// Writes a whole state. `note` is called with the number of posts so far. Returns the counts.
///
/// # Errors
/// Fails if the lines cannot be written, a post cannot be read, or a user is being erased.
pub(crate) fn write(state: &AtRest, out: impl Write, note: &mut dyn FnMut(u64)) -> Result<Counts, WriteError> {
    let mut to = Lines { out, lines: 0, hash: Sha256::new(), text: Vec::new() };
    let (world, mut written) = (&*state.world, Counts::default());
    let walk = RecordTraversal { world, sources: world.sources.len() };
    let mut names = Names(Vec::with_capacity(world.sources.len()));
    to.write(&Line::Export(head(state)))?;
    for record in walk.sources() {
        if record.erased.as_ref().is_some_and(|erased| erased.is_under_way) {
            return Err(WriteError::Erasing);
        }
        let hidden = state.hidden.get(&names.0.len()).into_iter().flatten().copied();
        names.0.push(record.id.clone());
        to.write(&Line::Source(source(world, record, hidden)?))?;
        written.sources += 1;
    }
    for record in walk.edges() {
        let line = names.follows(&record);
        written.follows += line.follows.len() as u64;
        to.write(&Line::Follows(line))?;
    }
    for record in walk.preferences() {
        to.write(&Line::Preferences(names.preferences(record)))?;
    }
    write_reposts(state, &names, &mut to)?;
    for (user, not_before) in walk.revocations().flat_map(|record| record.users) {
        to.write(&Line::Revoked(RevokedLine { user, not_before: Time(not_before) }))?;
    }
    let deleted = write_posts(world, &names, &mut to, &mut |posts| {
        written.posts = posts;
        note(posts);
    })?;
    for some in deleted.chunks(PER_LINE) {
        to.write(&Line::Deleted(some.iter().copied().map(Id).collect()))?;
    }
    written.deleted = deleted.len() as u64;
    let end = End { lines: to.lines, sha256: format!("{:x}", to.hash.clone().finalize()) };
    to.write(&Line::End(end))?;
    to.out.flush()?;
    Ok(written)
}

fn head(AtRest { world, sequence, last_instant, .. }: &AtRest) -> Head {
    let revealed = world.delivery.revealed.all();
    Head {
        format: FORMAT,
        sequence: sequence.0,
        last_instant: Time(last_instant.instant),
        drift_us: last_instant.drift_us,
        tokens_from: world.delivery.tokens_from().map(Time),
        revealed: revealed.into_iter().map(|(at, id)| Revealed { at: Time(at), id: Id(id) }).collect(),
    }
}

/// Converts a record. `hidden` has posts that may be missing from the record. It may have others that a newer archive shows or has deleted.
fn source(
    world: &World,
    record: SourceRecord,
    hidden: impl Iterator<Item = PostId>,
) -> Result<SourceLine, ArchiveError> {
    let mut hidden: BTreeSet<PostId> = hidden.collect();
    for id in record.hidden {
        match world.find(id)? {
            Some(Stored::Live(post)) if !post.hidden => {}
            Some(Stored::Deleted) => {}
            _ => {
                hidden.insert(id);
            }
        }
    }
    Ok(SourceLine {
        id: record.id,
        last_seen: record.last_seen.map(Time),
        late: record.late.into_iter().map(late).collect(),
        late_forgotten: record.late_forgotten.map(Time),
        hidden: hidden.into_iter().map(Id).collect(),
        erased_at: record.erased.map(|erased| Time(erased.at)),
    })
}

fn late((arrived_at, Position { published_at, id }): (UnixMicros, Position)) -> Late {
    Late { arrived_at: Time(arrived_at), published_at: Time(published_at), id: Id(id) }
}

/// The ids of sources in lines, by their slots. Erased users have no id there.
struct Names(Vec<SourceId>);

impl Names {
    fn of(&self, slot: u32) -> SourceId {
        self.0[slot as usize].clone()
    }

    fn follows(&self, record: &EdgesRecord) -> FollowsLine {
        let numbers = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|slot| u32::from_le_bytes(*slot)).collect();
        let (sources, hidden): (Vec<u32>, HashSet<u32>) =
            (numbers(&record.sources), numbers(&record.hidden).into_iter().collect());
        let starts: HashMap<u32, Position> = record.starts.iter().copied().collect();
        let since = record.since.as_chunks::<8>().0.iter().map(|at| UnixMicros(i64::from_le_bytes(*at)));
        let follow = |((place, source), since): ((u32, u32), UnixMicros)| Follow {
            source: self.of(source),
            since: Time(since),
            hidden: hidden.contains(&place),
            start: starts.get(&source).map(|start| (*start).into()),
        };
        let kept = |(source, from, until, since, hidden): &(u32, Position, Position, UnixMicros, bool)| Kept {
            source: self.of(*source),
            from: (*from).into(),
            until: (*until).into(),
            since: Time(*since),
            hidden: *hidden,
        };
        FollowsLine {
            follower: self.of(record.follower),
            follows: (0..).zip(sources).zip(since).map(follow).collect(),
            kept: record.kept.iter().map(kept).collect(),
        }
    }

    fn since(&self, all: Vec<(u32, UnixMicros)>) -> Vec<Since> {
        all.into_iter().map(|(slot, since)| Since { source: self.of(slot), since: Time(since) }).collect()
    }

    fn preferences(&self, record: PreferencesRecord) -> PreferencesLine {
        let seen = record.marker_seen.map(|seen| Seen { through: Time(seen.through), ahead_us: seen.ahead_us });
        PreferencesLine {
            user: self.of(record.reader),
            rules: record.rules,
            mutes: self.since(record.mutes),
            blocks: self.since(record.blocks),
            marker: record.marker.map(|at| MarkerLine { at: at.into(), seen }),
            lists: record
                .lists
                .into_iter()
                .map(|(name, members)| ListLine { name, members: self.since(members) })
                .collect(),
        }
    }
}

impl Names {
    fn post(&self, world: &World, post: &Post) -> Result<PostLine, ArchiveError> {
        let mut sources = post.sources().iter().map(|source| self.of(source.slot.0));
        let author = sources.next().expect("a post has an author");
        let missing = thread(post).filter(|_| post.replies().is_none());
        let answered = match (&post.answered, post.reply_to) {
            // The record of replies is limited, so replies may be missing if they came before their parent.
            (None, Some(parent)) => world.find(parent)?.and_then(Stored::live).map(|parent| parent.author().slot),
            (answered, _) => answered.as_ref().map(|answered| answered.slot),
        };
        let answered = answered.filter(|answered| !world.sources.at(*answered).is_erased());
        Ok(PostLine {
            id: Id(post.id()),
            external_id: post.external_id().and_then(|id| ExternalId::new(id).ok()),
            author,
            published_at: Time(post.position.published_at),
            accepted_at: Some(post.accepted_at).filter(|at| *at != post.position.published_at).map(Time),
            kind: post.kind,
            sources: sources.chain(missing).collect(),
            hidden: post.hidden,
            edited_at: post.edited_at.map(Time),
            repost_of: post.repost_of.map(Id),
            reply_to: post.reply_to.map(Id),
            answered: answered.map(|answered| self.of(answered.0)),
            fingerprint: format!("{:016x}", post.fingerprint),
            body: post.body().to_owned(),
        })
    }
}

/// Returns the source that the replies to the same post belong to.
fn thread(post: &Post) -> Option<SourceId> {
    replies(post.reply_to, post.repost_of)
}

/// Calls `each` with the ids of all posts and tombstones in the archive, ascending, until a call fails.
fn for_each_archived(world: &World, mut each: impl FnMut(PostId) -> Result<(), WriteError>) -> Result<(), WriteError> {
    let archive = world.archive().filter(|archive| !archive.is_empty());
    let mut from = archive.map(|_| PostId(0));
    while let (Some(first), Some(archive)) = (from, archive) {
        let ids = archive.ids_from(first, IDS_AT_ONCE)?.ok_or(WriteError::NoList)?;
        ids.iter().try_for_each(|id| each(*id))?;
        let last = ids.last().filter(|_| ids.len() == IDS_AT_ONCE);
        from = last.and_then(|last| last.0.checked_add(1)).map(PostId);
    }
    Ok(())
}

/// Divides the items of one line into several lines.
fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || Some(all.by_ref().take(PER_LINE).collect::<Vec<T>>()).filter(|some| !some.is_empty()))
}

/// Combines the chunks of two columns. The shorter one ends with empty chunks.
fn pairs<A, B>(
    mut first: impl Iterator<Item = Vec<A>>,
    mut second: impl Iterator<Item = Vec<B>>,
) -> impl Iterator<Item = (Vec<A>, Vec<B>)> {
    let next = move || match (first.next(), second.next()) {
        (None, None) => None,
        (first, second) => Some((first.unwrap_or_default(), second.unwrap_or_default())),
    };
    std::iter::from_fn(next)
}

/// Writes the reposts of each post, by ascending ids of the posts. The index may contain posts, and reposts of posts, whose tombstones are
/// only in the archive.
fn write_reposts(state: &AtRest, names: &Names, to: &mut Lines<impl Write>) -> io::Result<()> {
    let world = &*state.world;
    let is_deleted = |id: PostId| state.deleted.binary_search(&id).is_ok();
    let mut redirected: BTreeMap<PostId, Vec<Id>> = BTreeMap::new();
    for (repost, origin) in world.reposts.all_redirected() {
        redirected.entry(origin).or_default().push(Id(repost));
    }
    let all: BTreeSet<PostId> = world.reposts.origins().into_iter().chain(redirected.keys().copied()).collect();
    for of in all {
        let mut reposts: Vec<RepostLine> = world.reposts.of(of).map_or_else(Vec::new, |reposts| {
            let reposts = reposts.read();
            let line = |repost: Repost| RepostLine {
                at: repost.at.into(),
                source: names.of(repost.source.0),
                author: names.of(repost.author.0),
                hidden: reposts.is_hidden(repost.at),
            };
            reposts.iter().map(line).collect()
        });
        let mut redirected = redirected.remove(&of).unwrap_or_default();
        reposts.retain(|repost| !is_deleted(of) && !is_deleted(repost.at.id.0));
        redirected.retain(|repost| !is_deleted(repost.0));
        reposts.sort_unstable();
        redirected.sort_unstable();
        for (reposts, redirected) in pairs(chunks(reposts), chunks(redirected)) {
            to.write(&Line::Reposts(RepostsLine { of: Id(of), reposts, redirected }))?;
        }
    }
    Ok(())
}

/// Writes all posts in memory and in the archive by ascending id, and returns the ids of deleted posts.
fn write_posts(
    world: &World,
    names: &Names,
    to: &mut Lines<impl Write>,
    note: &mut dyn FnMut(u64),
) -> Result<Vec<PostId>, WriteError> {
    let mut in_memory = world.sorted_post_ids();
    in_memory.extend(world.posts.deleted());
    in_memory.sort_unstable();
    in_memory.dedup();
    let (mut in_memory, mut posts, mut deleted) = (in_memory.into_iter().peekable(), 0, Vec::new());
    let mut write = |id: PostId| -> Result<(), WriteError> {
        let post = match world.find(id)? {
            Some(Stored::Live(post)) => post,
            Some(Stored::Deleted) => {
                deleted.push(id);
                return Ok(());
            }
            None => return Ok(()),
        };
        posts += 1;
        to.write(&Line::Post(names.post(world, &post)?))?;
        note(posts);
        Ok(())
    };
    for_each_archived(world, |id| {
        while let Some(before) = in_memory.next_if(|before| *before < id) {
            write(before)?;
        }
        let _ = in_memory.next_if_eq(&id);
        write(id)
    })?;
    in_memory.try_for_each(write)?;
    Ok(deleted)
}
