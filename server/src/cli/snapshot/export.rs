//! `tidewire snapshot export`: writes the posts and follow edges of a snapshot and its archive as text for `tidewire import`.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::cli::snapshot::outline::{ExportedPost, Outline, SORTED_BYTES};
use crate::cli::snapshot::{Snapshot, file_at};
use crate::cli::{Outcome, terminal};
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::storage::archive::{self, ReadOnlyArchive};

/// Arguments of `tidewire snapshot export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Snapshot file to export, or a data directory to export its newest snapshot
    #[arg(value_name = "FILE|DIR")]
    file: PathBuf,

    /// Output file for posts, one JSON object per line, oldest first; - is standard output [default: -, unless --follows is given]
    #[arg(long, value_name = "OUT")]
    posts: Option<PathBuf>,

    /// Output file for follow edges, `follower source` in each line, oldest first; - is standard output
    #[arg(long, value_name = "OUT")]
    follows: Option<PathBuf>,

    /// Archive with the posts that are too old for the snapshot; no server may have it open [default: archive.redb beside the snapshot, if
    /// the snapshot needs one]
    #[arg(long, value_name = "FILE", conflicts_with = "without_archive")]
    archive: Option<PathBuf>,

    /// Leave out the posts that are only in the archive
    #[arg(long)]
    without_archive: bool,

    /// Print the report on standard error as one JSON document
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(super) fn run(mut self) -> Outcome {
        let stdout = Path::new("-");
        if self.posts.is_none() && self.follows.is_none() {
            self.posts = Some(stdout.to_owned());
        }
        if self.posts.as_deref() == Some(stdout) && self.follows.as_deref() == Some(stdout) {
            let why = "posts and follow edges cannot both go to the standard output; name a file for one";
            return Ok(terminal::refuse(why));
        }
        let is_directory = self.file.is_dir();
        self.file = file_at(&self.file)?;
        if is_directory && !self.json {
            let why = "later events are only in the journal, and are NOT exported";
            terminal::warn(&format!("from {}: {why}", self.file.display()));
        }
        let snapshot = Snapshot::open(&self.file)?;
        let mut outline = Outline::read(&snapshot)?;
        let archive = if self.posts.is_some() { self.open_archive(&outline)? } else { None };
        if let Some(archive) = &archive {
            outline.read_archive(archive)?;
        }
        for (out, is_posts) in [(&self.posts, true), (&self.follows, false)] {
            let Some(out) = out else { continue };
            let mut sink = terminal::create(out)?;
            let written = if is_posts {
                outline.write_posts(&snapshot, archive.as_ref(), &mut sink, SORTED_BYTES)?
            } else {
                outline.write_edges(&mut sink)
            };
            let written = written.and_then(|()| sink.flush());
            if !terminal::is_enough(&written) {
                written.map_err(|cause| format!("cannot write {}: {cause}; it is incomplete", out.display()))?;
            }
        }
        if self.json {
            self.report_json(&outline, archive.is_some());
            return Ok(ExitCode::SUCCESS);
        }
        if self.posts.is_some() {
            report_posts(&outline, archive.is_some());
        }
        if self.follows.is_some() {
            report_edges(&outline);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn report_json(&self, outline: &Outline, has_archive: bool) {
        let count = |is: fn(&ExportedPost) -> bool| outline.posts.iter().filter(|post| is(post)).count();
        let posts = self.posts.is_some().then(|| {
            json!({
                "exported": outline.posts.len(),
                "archived": count(|post| post.is_archived),
                "hidden": count(|post| post.is_hidden),
                "edited": count(|post| post.is_edited),
                "deleted_ids": outline.deleted.len(),
                "without_archive": outline.needs_archive && !has_archive,
            })
        });
        let follows = self.follows.is_some().then(|| {
            json!({
                "exported": outline.edges.len(),
                "hidden": outline.edges.iter().filter(|edge| edge.hidden).count(),
                "readers_with_preferences": outline.with_preferences.len(),
                "revoked_users": outline.revoked,
            })
        });
        terminal::warn(&json!({"posts": posts, "follows": follows}).to_string());
    }

    /// Opens the archive if it is needed. A missing archive is an error, because posts are left out only on request.
    fn open_archive(&self, outline: &Outline) -> Result<Option<ReadOnlyArchive>, Box<dyn Error>> {
        if self.without_archive || (self.archive.is_none() && !outline.needs_archive) {
            return Ok(None);
        }
        let file = self.archive.clone().unwrap_or_else(|| self.file.with_file_name(archive::FILE));
        let without = "--without-archive exports only the other posts";
        if !file.exists() {
            let needed = format!("the archive {} with the older posts does not exist", file.display());
            return Err(format!("{needed}; name it with --archive; {without}").into());
        }
        let opened = ReadOnlyArchive::open(&file, ARCHIVE_CACHE_BYTES);
        opened.map(Some).map_err(|cause| format!("{}; {without}", terminal::message_of(&cause)).into())
    }
}

fn note(what: &str, count: usize, meaning: &str) {
    if count > 0 {
        terminal::warn(&format!("{what}: {count}{meaning}"));
    }
}

/// Reports the exported and omitted posts. This goes to standard error, because the result may go to standard output.
fn report_posts(outline: &Outline, has_archive: bool) {
    let count = |is: fn(&ExportedPost) -> bool| outline.posts.iter().filter(|post| is(post)).count();
    terminal::warn(&format!("posts: {}", outline.posts.len()));
    let hidden = " (`tidewire import posts` hides them again; POST /v1/posts refuses these lines)";
    note("archived posts", count(|post| post.is_archived), " (among them; some may be newer than the snapshot)");
    note("hidden posts", count(|post| post.is_hidden), hidden);
    note("edited posts", count(|post| post.is_edited), " (as they are now; times of edits are not exported)");
    note("bodies with line breaks", count(|post| post.has_breaks), " (replaced by spaces)");
    note("deleted ids", outline.deleted.len(), " (not exported: after an import they can be used again)");
    if outline.needs_archive && !has_archive {
        terminal::warn("posts that are only in the archive are NOT exported");
    }
}

fn report_edges(outline: &Outline) {
    terminal::warn(&format!("follow edges: {} (times of follows are not exported)", outline.edges.len()));
    note("hidden edges", outline.edges.iter().filter(|edge| edge.hidden).count(), " (marked by a third word)");
    let preferences =
        " (their mutes, blocks, rules, lists and markers, and the starts of their edges, are not exported)";
    note("readers with preferences", outline.with_preferences.len(), preferences);
    note("users whose tokens are revoked", outline.revoked, " (revocations are not exported)");
}
