//! `tidewire snapshot export`: posts and follow edges of a snapshot, as text that `tidewire import` takes.
//!
//! Responsible for:
//! - posts oldest first, edges in the order they were made, in bounded memory;
//! - saying what the text cannot express.
//!
//! Not responsible for:
//! - what a line looks like (`cli::post_line`).
//!
//! A snapshot holds posts by source, newest first. So it is read once for where every post stands, 24 bytes of memory each,
//! and then once more for every [`SORTED_BYTES`] of lines, which are sorted and written. Damage is met in the first pass,
//! before anything is written.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::post_line::{Parts, PostLine, on_one_line};
use crate::cli::snapshot::Snapshot;
use crate::cli::snapshot::content::{each_block, each_record};
use crate::cli::{Outcome, terminal};
use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::record::PostRecord;
use crate::id::SourceId;
use crate::state::image::EdgesRecord;
use crate::storage::recovery::Batch;

/// Bytes of lines that are sorted together.
const SORTED_BYTES: u64 = 256 << 20;

/// What `tidewire snapshot export` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The snapshot
    file: PathBuf,

    /// Where to write posts, a JSON object in each line, oldest first; - is the standard output [default: -, unless --follows is given]
    #[arg(long, value_name = "OUT")]
    posts: Option<PathBuf>,

    /// Where to write follow edges, `follower source` in each line, oldest first; - is the standard output
    #[arg(long, value_name = "OUT")]
    follows: Option<PathBuf>,
}

/// What a snapshot holds, without the content of posts.
#[derive(Default)]
struct Outline {
    ids: Vec<SourceId>,
    /// Where each post stands, and the bytes of its line.
    posts: Vec<(Position, u32)>,
    edges: Vec<Edge>,
    hidden_posts: u64,
    edited_posts: u64,
    /// Posts whose body has line breaks.
    broken_bodies: u64,
    deleted: u64,
    has_archive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    since: UnixMicros,
    follower: u32,
    source: u32,
    hidden: bool,
}

impl Export {
    pub(super) fn run(self) -> Outcome {
        let stdout = Path::new("-");
        let Self { file, mut posts, follows } = self;
        if posts.is_none() && follows.is_none() {
            posts = Some(stdout.to_owned());
        }
        if posts.as_deref() == Some(stdout) && follows.as_deref() == Some(stdout) {
            terminal::warn("error: posts and follow edges cannot both go to the standard output; name a file for one");
            return Ok(ExitCode::from(2));
        }
        let snapshot = Snapshot::open(&file)?;
        let outline = Outline::read(&snapshot)?;
        for (out, is_posts) in [(&posts, true), (&follows, false)] {
            let Some(out) = out else { continue };
            let mut sink = open(out)?;
            let written = if is_posts {
                outline.write_posts(&snapshot, &mut sink, SORTED_BYTES)?
            } else {
                outline.write_edges(&mut sink)
            };
            let written = written.and_then(|()| sink.flush());
            if !terminal::is_enough(&written) {
                written.map_err(|cause| format!("cannot write {}: {cause}; it is not whole", out.display()))?;
            }
        }
        outline.tell(posts.is_some(), follows.is_some());
        Ok(ExitCode::SUCCESS)
    }
}

/// A new file, a device or pipe that is there, or the standard output.
fn open(out: &Path) -> Result<Box<dyn Write>, String> {
    if out == Path::new("-") {
        return Ok(terminal::output());
    }
    let is_device = fs::metadata(out).is_ok_and(|there| !there.is_file());
    let opened = OpenOptions::new().write(true).create_new(!is_device).open(out);
    opened.map(|file| Box::new(BufWriter::with_capacity(1 << 16, file)) as Box<dyn Write>).map_err(|cause| {
        let hint = if cause.kind() == io::ErrorKind::AlreadyExists { "; nothing is written over" } else { "" };
        format!("cannot create {}: {cause}{hint}", out.display())
    })
}

impl Outline {
    fn read(snapshot: &Snapshot) -> Result<Self, Box<dyn std::error::Error>> {
        let mut outline = Self::default();
        let end = each_block(&mut snapshot.reader()?, |batch| outline.take(batch))?;
        outline.has_archive = end.archive;
        outline.posts.sort_unstable();
        outline.edges.sort_unstable();
        Ok(outline)
    }

    fn take(&mut self, batch: Batch) -> Result<(), String> {
        match batch {
            Batch::Sources(records) => self.ids.extend(records.into_iter().map(|record| record.id)),
            Batch::Edges(records) => each_record("edges", &records, |record| self.take_edges(record))?,
            Batch::Posts(records) => each_record("posts", &records, |record| self.take_post(record))?,
            Batch::Deleted(records) => {
                self.deleted += records.iter().map(|record| record.ids.len() as u64 / 8).sum::<u64>();
            }
            Batch::UnderWay(_) | Batch::Inboxes(_) => {}
        }
        Ok(())
    }

    fn take_edges(&mut self, record: &EdgesRecord) -> Result<(), String> {
        let ((sources, _), (since, _)) = (record.sources.as_chunks::<4>(), record.since.as_chunks::<8>());
        if sources.len() != since.len() {
            return Err("its columns are of different length".to_owned());
        }
        self.id(record.follower)?;
        let first = self.edges.len();
        for (source, since) in sources.iter().zip(since) {
            let (source, since) = (u32::from_le_bytes(*source), UnixMicros(i64::from_le_bytes(*since)));
            self.id(source)?;
            self.edges.push(Edge { since, follower: record.follower, source, hidden: false });
        }
        for place in record.hidden.as_chunks::<4>().0 {
            let place = first.saturating_add(u32::from_le_bytes(*place) as usize);
            self.edges.get_mut(place).ok_or("a hidden edge is not there")?.hidden = true;
        }
        Ok(())
    }

    fn take_post(&mut self, record: &PostRecord<u32>) -> Result<(), String> {
        let line_bytes = self.line(record)?.len() + 1;
        self.posts.push((record.at, line_bytes as u32));
        self.hidden_posts += u64::from(record.hidden);
        self.edited_posts += u64::from(record.edited_at.is_some());
        self.broken_bodies += u64::from(matches!(on_one_line(record.body.as_str()), std::borrow::Cow::Owned(_)));
        Ok(())
    }

    fn id(&self, number: u32) -> Result<&SourceId, String> {
        self.ids.get(number as usize).ok_or_else(|| format!("source {number} is not there"))
    }

    fn line(&self, record: &PostRecord<u32>) -> Result<String, String> {
        let sources = record.sources.iter().map(|number| self.id(*number)).collect::<Result<_, _>>()?;
        let parts = Parts {
            position: record.at,
            kind: record.kind,
            body: record.body.as_str(),
            sources,
            repost_of: record.repost_of,
            reply_to: record.reply_to,
            hidden: record.hidden,
        };
        PostLine::new(&parts)?.json()
    }

    /// The outer error is of the snapshot, the inner one of what is written to.
    fn write_posts(
        &self,
        snapshot: &Snapshot,
        sink: &mut dyn Write,
        sorted_bytes: u64,
    ) -> Result<io::Result<()>, Box<dyn std::error::Error>> {
        for run in runs(&self.posts, sorted_bytes) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (wanted, mut lines) = (first.0..=last.0, Vec::with_capacity(run.len()));
            each_block(&mut snapshot.reader()?, |batch| {
                let Batch::Posts(records) = batch else { return Ok(()) };
                for record in records.iter().filter(|record| wanted.contains(&record.at)) {
                    lines.push((record.at, self.line(record)?));
                }
                Ok(())
            })?;
            lines.sort_unstable();
            let written = lines.iter().try_for_each(|(_, line)| writeln!(sink, "{line}"));
            if written.is_err() {
                return Ok(written);
            }
        }
        Ok(Ok(()))
    }

    fn write_edges(&self, sink: &mut dyn Write) -> io::Result<()> {
        for edge in &self.edges {
            let [follower, source] = [edge.follower, edge.source].map(|number| &self.ids[number as usize]);
            let hidden = if edge.hidden { "\thidden" } else { "" };
            writeln!(sink, "{follower}\t{source}{hidden}")?;
        }
        Ok(())
    }

    /// What was exported, and what was not. Beside the result, which may be the standard output.
    fn tell(&self, posts: bool, follows: bool) {
        let note = |what: &str, count: u64, meaning: &str| {
            if count > 0 {
                terminal::warn(&format!("{what}: {count}{meaning}"));
            }
        };
        if posts {
            terminal::warn(&format!("posts: {}", self.posts.len()));
            let hidden = " (`tidewire import posts` hides them again; POST /v1/posts refuses these lines)";
            note("hidden posts", self.hidden_posts, hidden);
            note("edited posts", self.edited_posts, " (as they are now; when they were edited is not exported)");
            note("bodies with line breaks", self.broken_bodies, " (spaces stand there instead)");
            note("deleted ids", self.deleted, " (not exported: after an import they can be used again)");
            if self.has_archive {
                terminal::warn("posts that are only in the archive the snapshot was taken beside are NOT exported");
            }
        }
        if follows {
            terminal::warn(&format!("follow edges: {} (when they were made is not exported)", self.edges.len()));
            let hidden_edges = self.edges.iter().filter(|edge| edge.hidden).count() as u64;
            note("hidden edges", hidden_edges, " (by a third word)");
        }
    }
}

/// Splits posts into runs whose lines take at most so many bytes, or are one.
fn runs(posts: &[(Position, u32)], bytes_max: u64) -> Vec<&[(Position, u32)]> {
    let mut run_bytes = 0;
    let mut starts = Vec::new();
    for (nth, (_, bytes)) in posts.iter().enumerate() {
        run_bytes += u64::from(*bytes);
        if nth == 0 || run_bytes > bytes_max {
            starts.push(nth);
            run_bytes = u64::from(*bytes);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([posts.len()]);
    starts.iter().zip(ends).map(|(start, end)| &posts[*start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_fits_and_at_least_one_post() {
        let posts: Vec<(Position, u32)> = [4, 4, 9, 1, 1, 8, 30].map(|bytes| (Position::MIN, bytes)).into();
        let lengths = |max| runs(&posts, max).iter().map(|run| run.len()).collect::<Vec<_>>();
        assert_eq!(lengths(10), [2, 2, 2, 1]);
        assert_eq!(lengths(1), [1; 7]);
        assert_eq!(lengths(u64::MAX), [7]);
        assert!(runs(&[], 10).is_empty());
    }

    #[test]
    fn many_short_runs_write_what_one_long_run_does() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
        let snapshot = Snapshot::open(&fixtures.join("snapshot-00000000000000000008.tide")).unwrap();
        let outline = Outline::read(&snapshot).unwrap();
        let written = |sorted_bytes| {
            let mut text = Vec::new();
            outline.write_posts(&snapshot, &mut text, sorted_bytes).unwrap().unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(written(1), written(SORTED_BYTES));
        assert_eq!(written(700).lines().count(), 5);
    }
}
