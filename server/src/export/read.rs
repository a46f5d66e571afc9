//! Builds a state from the lines of an export, and writes it as the files of a data directory.

use std::hash::Hasher as _;
use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use crate::export::line::{
    Counts, End, FORMAT, FollowsLine, Head, Id, Line, ListLine, PostLine, PreferencesLine, RepostsLine, Since,
    SourceLine, Time,
};
use tidewire::clock::{Timestamp, UnixMicros};
use tidewire::feed::event::Event;
use tidewire::feed::outbox::Route;
use tidewire::feed::position::Position;
use tidewire::feed::post::Body;
use tidewire::feed::record::PostRecord;
use tidewire::feed::resume::DeliveryWatermark;
use tidewire::id::{SourceId, SourceSlot};
use tidewire::limits::POST_TAGS_MAX;
use tidewire::recovery::rebuilt::InitialState;
use tidewire::recovery::write_world;
use tidewire::state::records::{
    EdgesRecord, ErasedRecord, InvalidRecordError, PreferencesRecord, RecordTraversal, RepostsRecord,
    RevocationsRecord, SourceRecord, pack_positions,
};
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::archive::{Archive, ArchiveError};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{SnapshotHeader, SnapshotWriter};

/// Maximum bytes of a line. A reader with a million mutes needs about 200 MB.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Number of posts after which posts that are too old for memory are archived.
const POSTS_AT_ONCE: u64 = 1_000;

/// The error for a first line that is not that of an export.
const NO_FIRST: &str = "it is not the first line of an export";

/// The reason why a file is not the export of a state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read the export: {0}")]
    In(#[from] io::Error),
    #[error("line {line}: {why}")]
    Line { line: u64, why: String },
    #[error("the export ends after {lines} lines without its last line: it is incomplete")]
    NoEnd { lines: u64 },
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A state that is being built.
pub(crate) struct Reading {
    world: Arc<World>,
    machine: StateMachine,
    /// Posts that are too old for memory go there. None if all stay in memory.
    archive: Option<Arc<dyn Archive>>,
    head: Option<Head>,
    numbers: FxHashMap<SourceId, u32>,
    /// The kind of the last line. Kinds have an order.
    stage: usize,
    read: Counts,
}

impl Reading {
    /// Begins with an empty world and its archive, if it has one.
    pub(crate) fn new((world, machine): (Arc<World>, StateMachine), archive: Option<Arc<dyn Archive>>) -> Self {
        let (head, numbers) = (None, FxHashMap::default());
        Self { world, machine, archive, head, numbers, stage: 0, read: Counts::default() }
    }

    /// Reads all lines. `note` is called after each with the counts so far. Returns the counts, and the hash of each line.
    ///
    /// # Errors
    /// Fails if a line is invalid, or the last one is missing. The state is then unusable.
    pub(crate) fn read(
        &mut self,
        mut from: impl BufRead,
        note: &mut dyn FnMut(Counts),
    ) -> Result<(Counts, Vec<u64>), ReadError> {
        let (mut lines, mut hash, mut text, mut hashes) = (0, Sha256::new(), Vec::new(), Vec::new());
        // Check this first, because a file of another kind may have no line break for gigabytes.
        if from.fill_buf()?.first() != Some(&b'{') {
            return Err(ReadError::Line { line: 1, why: NO_FIRST.to_owned() });
        }
        loop {
            let bad = |why: String| ReadError::Line { line: lines + 1, why };
            text.clear();
            from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
            if text.last() != Some(&b'\n') {
                let is_long = text.len() as u64 == LINE_BYTES_MAX;
                return Err(match (is_long, lines) {
                    (true, _) => bad("it is too long".to_owned()),
                    (false, 0) => bad(NO_FIRST.to_owned()),
                    (false, _) => ReadError::NoEnd { lines },
                });
            }
            let line: Line = serde_json::from_slice(&text).map_err(|cause| {
                let why = in_line(&cause);
                bad(if lines == 0 { format!("{NO_FIRST}: {why}") } else { why })
            })?;
            let end = self.take(line).map_err(|cause| match cause {
                Taking::Bad(why) => bad(why),
                Taking::Archive(cause) => cause.into(),
            })?;
            if let Some(end) = end {
                let sha256 = format!("{:x}", hash.finalize());
                if (end.lines, &end.sha256) != (lines, &sha256) {
                    let expected = format!("{} lines with the SHA-256 {} were written", end.lines, end.sha256);
                    return Err(bad(format!("{expected}, and {lines} with {sha256} are here")));
                }
                if from.fill_buf()?.is_empty() {
                    hashes.push(hash_of(&text));
                    return Ok((self.read, hashes));
                }
                return Err(ReadError::Line {
                    line: lines + 2,
                    why: "the line before it is the last of an export".to_owned(),
                });
            }
            hash.update(&text);
            hashes.push(hash_of(&text));
            lines += 1;
            note(self.read);
        }
    }

    /// Adds a line to the state, and returns it if it is the last.
    fn take(&mut self, line: Line) -> Result<Option<End>, Taking> {
        let stage = stage(&line);
        if stage < self.stage || (self.head.is_none() != matches!(line, Line::Export(_))) {
            return Err(Taking::Bad("it is in the wrong place".to_owned()));
        }
        if std::mem::replace(&mut self.stage, stage) < POSTS && stage >= POSTS {
            // All follows are known at this point. They determine which posts are pulled.
            self.machine.update_celebrities();
        }
        match line {
            Line::Export(head) if head.format > FORMAT => {
                let why = format!("the format is {}, and this version reads up to {FORMAT}", head.format);
                return Err(Taking::Bad(why));
            }
            Line::Export(head) => self.head = Some(head),
            Line::Source(line) => self.take_source(line)?,
            Line::Follows(line) => {
                self.read.follows += line.follows.len() as u64;
                self.machine.restore_edges(&self.edges(line)?)?;
            }
            Line::Preferences(line) => self.machine.restore_preferences(&self.preferences(line)?)?,
            Line::Reposts(line) => self.machine.restore_reposts(&self.reposts(&line)?)?,
            Line::Revoked(line) => {
                self.machine.restore_revocations(&RevocationsRecord { users: vec![(line.user, line.not_before.0)] });
            }
            Line::Post(line) => {
                self.machine.restore_post(&self.post(line)?)?;
                self.read.posts += 1;
                if self.read.posts.is_multiple_of(POSTS_AT_ONCE) {
                    self.archive_old()?;
                }
            }
            Line::Deleted(ids) => {
                self.read.deleted += ids.len() as u64;
                // Apply this as an event, so that the archive gets the tombstones as well.
                for Id(id) in ids {
                    self.machine.apply(&Event::Deleted { id, repost_of: None, post: None });
                }
                self.archive_old()?;
            }
            Line::End(end) => return Ok(Some(end)),
        }
        Ok(None)
    }

    fn take_source(&mut self, line: SourceLine) -> Result<(), Taking> {
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        if self.numbers.insert(line.id.clone(), number).is_some() {
            return Err(Taking::Bad(format!("{} occurs twice", line.id)));
        }
        self.read.sources += 1;
        let erased = |at: Time| ErasedRecord { at: at.0, is_under_way: false, user: None };
        self.machine.restore_source(&SourceRecord {
            id: line.id,
            last_seen: line.last_seen.map(|at| at.0),
            // Determined again before the first post.
            celebrity: false,
            late: line.late.iter().map(|late| (late.arrived_at.0, position(late.published_at, late.id))).collect(),
            late_forgotten: line.late_forgotten.map(|at| at.0),
            hidden: line.hidden.into_iter().map(|id| id.0).collect(),
            erased: line.erased_at.map(erased),
        })?;
        Ok(())
    }

    fn number(&self, id: &SourceId) -> Result<u32, Taking> {
        self.numbers.get(id).copied().ok_or_else(|| Taking::Bad(format!("{id} has no line before this one")))
    }

    fn numbers_of(&self, ids: &[SourceId]) -> Result<Vec<u32>, Taking> {
        ids.iter().map(|id| self.number(id)).collect()
    }

    fn edges(&self, line: FollowsLine) -> Result<EdgesRecord, Taking> {
        let mut record = EdgesRecord { follower: self.number(&line.follower)?, ..EdgesRecord::default() };
        let mut follows = Vec::with_capacity(line.follows.len());
        for follow in line.follows {
            follows.push((self.number(&follow.source)?, follow));
        }
        follows.sort_unstable_by_key(|(number, _)| *number);
        for (place, (number, follow)) in (0u32..).zip(follows) {
            record.sources.extend(number.to_le_bytes());
            record.since.extend(follow.since.0.0.to_le_bytes());
            if follow.hidden {
                record.hidden.extend(place.to_le_bytes());
            }
            record.starts.extend(follow.start.map(|start| (number, Position::from(start))));
        }
        for kept in line.kept {
            record.kept.push((
                self.number(&kept.source)?,
                kept.from.into(),
                kept.until.into(),
                kept.since.0,
                kept.hidden,
            ));
        }
        Ok(record)
    }

    fn since(&self, all: Vec<Since>) -> Result<Vec<(u32, UnixMicros)>, Taking> {
        all.into_iter().map(|Since { source, since }| Ok((self.number(&source)?, since.0))).collect()
    }

    fn preferences(&self, line: PreferencesLine) -> Result<PreferencesRecord, Taking> {
        let seen = line.marker.as_ref().and_then(|marker| marker.seen.as_ref());
        let list = |list: ListLine| Ok((list.name, self.since(list.members)?));
        Ok(PreferencesRecord {
            reader: self.number(&line.user)?,
            rules: line.rules,
            mutes: self.since(line.mutes)?,
            blocks: self.since(line.blocks)?,
            marker: line.marker.as_ref().map(|marker| marker.at.into()),
            marker_seen: seen.map(|seen| DeliveryWatermark { through: seen.through.0, ahead_us: seen.ahead_us }),
            lists: line.lists.into_iter().map(list).collect::<Result<_, Taking>>()?,
        })
    }

    fn reposts(&self, line: &RepostsLine) -> Result<RepostsRecord, Taking> {
        let (mut sources, mut authors) = (ByteBuf::new(), ByteBuf::new());
        for repost in &line.reposts {
            sources.extend(self.number(&repost.source)?.to_le_bytes());
            authors.extend(self.number(&repost.author)?.to_le_bytes());
        }
        let hidden = (0u32..).zip(&line.reposts).filter(|(_, repost)| repost.hidden);
        Ok(RepostsRecord {
            of: line.of.0,
            sources,
            authors,
            at: pack_positions(line.reposts.iter().map(|repost| repost.at.into())),
            hidden: hidden.flat_map(|(place, _)| place.to_le_bytes()).collect::<Vec<u8>>().into(),
            redirected: line.redirected.iter().flat_map(|id| id.0.0.to_le_bytes()).collect::<Vec<u8>>().into(),
        })
    }

    fn post(&self, line: PostLine) -> Result<PostRecord<u32>, Taking> {
        if line.sources.len() > POST_TAGS_MAX + 2 {
            return Err(Taking::Bad(format!("the post has {} sources", line.sources.len())));
        }
        let mut sources = vec![self.number(&line.author)?];
        sources.extend(self.numbers_of(&line.sources)?);
        let is_pulled = |slot: &u32| self.world.route(self.world.sources.at(SourceSlot(*slot))) == Route::Pull;
        let pulled = (0..).zip(&sources).filter(|(_, number)| is_pulled(number));
        let is_hexadecimal =
            line.fingerprint.len() == 16 && line.fingerprint.bytes().all(|digit| digit.is_ascii_hexdigit());
        let fingerprint = u64::from_str_radix(&line.fingerprint, 16).ok().filter(|_| is_hexadecimal);
        Ok(PostRecord {
            at: position(line.published_at, line.id),
            accepted_at: line.accepted_at.map(|at| at.0),
            kind: line.kind,
            body: Body::new(&line.body).map_err(|cause| Taking::Bad(format!("the body: {cause}")))?,
            pulled: pulled.fold(0, |bits, (nth, _)| bits | 1 << nth),
            sources,
            archived: 0,
            hidden: line.hidden,
            edited_at: line.edited_at.map(|at| at.0),
            repost_of: line.repost_of.map(|id| id.0),
            reply_to: line.reply_to.map(|id| id.0),
            external_id: line.external_id,
            answered: line.answered.as_ref().map(|author| self.number(author)).transpose()?,
            fingerprint: fingerprint
                .ok_or_else(|| Taking::Bad("the fingerprint is not 16 hexadecimal digits".to_owned()))?,
        })
    }

    /// Archives the posts that are too old for memory, by the rules of a server.
    fn archive_old(&mut self) -> Result<(), ArchiveError> {
        while self.machine.is_tiering_due() && self.archive_round()? {}
        Ok(())
    }

    /// Archives some posts that should not stay in memory. Returns false if there were none.
    fn archive_round(&mut self) -> Result<bool, ArchiveError> {
        let Some(archive) = &self.archive else { return Ok(false) };
        let tiering = self.machine.collect_tiering(self.sequence());
        if tiering.is_empty() {
            return Ok(false);
        }
        archive.write(&tiering.batch(&self.world))?;
        self.machine.finish_tiering(tiering);
        Ok(true)
    }

    fn sequence(&self) -> Sequence {
        Sequence(self.head.as_ref().map_or(0, |head| head.sequence))
    }

    /// Writes the state as a snapshot, and persists the archive. Returns the last event.
    ///
    /// # Errors
    /// Fails if the archive or the snapshot cannot be written.
    pub(crate) fn finish(mut self, files: &dyn Files) -> Result<Sequence, ReadError> {
        // The archive must have all tombstones before the snapshot is written, as on a server.
        while self.archive_round()? {}
        let archive = self.archive.clone();
        let InitialState { world, last_instant, sequence, .. } = self.built()?;
        archive.as_ref().map_or(Ok(()), |archive| archive.persist(sequence))?;
        let has_archived = archive.as_ref().is_some_and(|archive| !archive.is_empty());
        let header = SnapshotHeader { sequence, taken_at: last_instant.instant };
        let mut writer = SnapshotWriter::begin_beside(files, header, true, archive.as_deref())?;
        write_world(RecordTraversal { world: &world, sources: world.sources.len() }, &mut writer)?;
        writer.set_delivery(world.delivery.tokens_from(), world.delivery.revealed.all());
        writer.finish(sequence, last_instant, has_archived)?;
        Ok(sequence)
    }

    /// Returns the state, after all lines were read.
    ///
    /// # Errors
    /// Fails if there was no line, or the lines contradict each other.
    pub(crate) fn built(self) -> Result<InitialState, ReadError> {
        let sequence = self.sequence();
        if sequence == Sequence(0) && self.read.sources > 0 {
            return Err(ReadError::Line { line: 1, why: "a state after no event has no sources".to_owned() });
        }
        let Some(Head { last_instant, drift_us, tokens_from, revealed, .. }) = self.head else {
            return Err(ReadError::NoEnd { lines: 0 });
        };
        let revealed: Vec<_> = revealed.iter().map(|revealed| (revealed.at.0, revealed.id.0)).collect();
        self.world.delivery.restore(drift_us, tokens_from.map(|from| from.0), &revealed);
        let last_instant = Timestamp { instant: last_instant.0, drift_us };
        Ok(InitialState { world: self.world, last_instant, cluster: None, sequence })
    }
}

fn position(published_at: Time, id: Id) -> Position {
    Position { published_at: published_at.0, id: id.0 }
}

/// The reason why a line is invalid.
enum Taking {
    Bad(String),
    Archive(ArchiveError),
}

impl From<InvalidRecordError> for Taking {
    fn from(InvalidRecordError(why): InvalidRecordError) -> Self {
        Self::Bad(why)
    }
}

impl From<ArchiveError> for Taking {
    fn from(cause: ArchiveError) -> Self {
        Self::Archive(cause)
    }
}

/// Returns a hash of a line. An import compares the hashes to find the first line that differs. The last line contains the SHA-256 of all
/// others.
pub(super) fn hash_of(line: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(line);
    hasher.finish()
}

/// Describes a syntax error by its byte in the line. The parser also counts lines, but it sees one line at a time.
fn in_line(cause: &serde_json::Error) -> String {
    cause.to_string().replace(" at line 1 column ", " at byte ")
}

/// The index of posts in the order of lines.
const POSTS: usize = 6;

/// Returns the index of a kind in the order of lines.
fn stage(line: &Line) -> usize {
    match line {
        Line::Export(_) => 0,
        Line::Source(_) => 1,
        Line::Follows(_) => 2,
        Line::Preferences(_) => 3,
        Line::Reposts(_) => 4,
        Line::Revoked(_) => 5,
        Line::Post(_) => POSTS,
        Line::Deleted(_) => 7,
        Line::End(_) => 8,
    }
}
