//! `tidewire import follows`: imports a file of follow edges into a running server or a data directory.
//!
//! The server accepts a bulk of edges completely or not at all. It names every edge it refuses, so a refused batch is sent once more
//! without those.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::cli::Outcome;
use crate::cli::client::{Client, ServerResponse};
use crate::cli::import::{self, Part, Sent, StopCause, Target};
use crate::cli::lines::{InputLine, Lines, ReadError};
use crate::cli::progress::Progress;
use crate::cli::report::Report;
use tidewire::id::SourceId;
use tidewire::limits::FOLLOWS_PER_REQUEST_MAX;

/// Number of batches that are sent at the same time.
const SENDERS: usize = 2;

/// Maximum number of batches read ahead of the senders.
const READ_AHEAD: usize = 4;

/// Arguments of `tidewire import follows`.
#[derive(Debug, clap::Args)]
pub struct ImportFollows {
    /// `follower source` in each line, apart by tab, comma or spaces; a third word `hidden` makes a hidden follow; # begins a
    /// comment; .gz too; - is the standard input
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// An edge and the number of the line it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NumberedEdge {
    line: u64,
    follower: SourceId,
    source: SourceId,
    hidden: bool,
}

/// Edges that are sent in one request, and the bytes of the file they came from.
struct Batch {
    edges: Vec<NumberedEdge>,
    bytes: u64,
}

/// The third word of a line that marks a hidden edge, which appears in no list and no count.
const HIDDEN: &str = "hidden";

#[derive(Serialize)]
struct Bulk<'a> {
    follows: Vec<BulkEdge<'a>>,
}

#[derive(Serialize)]
struct BulkEdge<'a> {
    follower: &'a str,
    source: &'a str,
    hidden: bool,
}

#[derive(Deserialize)]
struct Followed {
    created: usize,
    existing: usize,
}

impl ImportFollows {
    /// Sends the edges of the file to the target.
    pub(crate) fn run(self) -> Outcome {
        import::run(&self.file, self.target, "edges", send_all)
    }
}

fn send_all(lines: &mut Lines, client: &Client) -> Sent {
    let (batches, taken) = crossbeam_channel::bounded::<Batch>(READ_AHEAD);
    let (progress, has_stopped) = (Progress::new(lines.bar.clone(), "edges"), AtomicBool::new(false));
    let has_stopped = &has_stopped;
    thread::scope(|scope| {
        let start = || {
            let (taken, client, progress) = (taken.clone(), client.clone(), &progress);
            scope.spawn(move || {
                let mut report = Report::begin();
                for Batch { edges, bytes } in taken {
                    let before = report.done();
                    if let Err(cause) = send(&client, edges, &mut report) {
                        has_stopped.store(true, Ordering::Relaxed);
                        return (report, Some(cause.into()));
                    }
                    progress.add(report.done() - before, bytes);
                }
                (report, None)
            })
        };
        let senders: Vec<_> = (0..SENDERS).map(|_| start()).collect();
        drop(taken);
        let read = read(lines, |batch| batches.send(batch).is_ok() && !has_stopped.load(Ordering::Relaxed));
        drop(batches);
        (read, senders.into_iter().map(thread::ScopedJoinHandle::join).collect())
    })
}

/// Reads all edges and passes them to `queue` in batches until it returns false.
fn read(lines: &mut Lines, queue: impl Fn(Batch) -> bool) -> Part<ReadError> {
    let mut report = Report::begin();
    let mut batch = Vec::with_capacity(FOLLOWS_PER_REQUEST_MAX);
    let mut unread = None;
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(cause) => {
                unread = Some(cause);
                break;
            }
        };
        match parse(&line) {
            Ok(None) => {}
            Ok(Some(edge)) => batch.push(edge),
            Err(why) => report.refuse(line.number, why),
        }
        if batch.len() == FOLLOWS_PER_REQUEST_MAX {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(FOLLOWS_PER_REQUEST_MAX));
            if !queue(Batch { edges: full, bytes: lines.taken() }) {
                return (report, None);
            }
        }
    }
    queue(Batch { edges: batch, bytes: lines.taken() });
    (report, unread)
}

/// Parses the edge of a line. Returns `None` for an empty line or a comment.
fn parse(line: &InputLine) -> Result<Option<NumberedEdge>, String> {
    let text = line.text.as_ref().map_err(|why| (*why).to_owned())?;
    let text = text.split('#').next().unwrap_or("").trim();
    if text.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
    let (follower, source, hidden) = match words[..] {
        [follower, source] => (follower, source, false),
        [follower, source, HIDDEN] => (follower, source, true),
        _ => return Err(format!("expected `follower source`, found {} words", words.len())),
    };
    let id = |text: &str| SourceId::new(text).map_err(|cause| format!("{text:?}: {cause}"));
    let (follower, source) = (id(follower)?, id(source)?);
    if follower == source {
        return Err(format!("{follower} cannot follow itself"));
    }
    Ok(Some(NumberedEdge { line: line.number, follower, source, hidden }))
}

/// Sends a batch, and sends it again without the edges that the server refused.
fn send(client: &Client, mut batch: Vec<NumberedEdge>, report: &mut Report) -> Result<(), StopCause> {
    while !batch.is_empty() {
        let follows = batch.iter().map(|edge| BulkEdge {
            follower: edge.follower.as_str(),
            source: edge.source.as_str(),
            hidden: edge.hidden,
        });
        let json = serde_json::to_string(&Bulk { follows: follows.collect() }).unwrap_or_default();
        let refused = match client.post("/v1/follows", &json)? {
            ServerResponse::Done(status, text) => {
                let Ok(followed) = serde_json::from_str::<Followed>(&text) else {
                    return Err(client.foreign(status, &text).into());
                };
                report.created += followed.created;
                report.existing += followed.existing;
                return Ok(());
            }
            ServerResponse::Refused(refused) => refused,
        };
        if refused.errors.is_empty() {
            // The server refused the request as a whole.
            let refused = import::of_one_line(refused)?;
            batch.iter().for_each(|edge| report.refuse(edge.line, format!("{}: {}", refused.code, refused.detail)));
            return Ok(());
        }
        let mut reasons: Vec<Option<String>> = vec![None; batch.len()];
        for part in refused.errors {
            if let Some(reason) = reasons.get_mut(part.index) {
                *reason = Some(part.detail);
            }
        }
        let mut kept = Vec::with_capacity(batch.len());
        for (edge, reason) in batch.into_iter().zip(reasons) {
            match reason {
                None => kept.push(edge),
                Some(reason) => report.refuse(edge.line, reason),
            }
        }
        batch = kept;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<(String, String, bool)>, String> {
        let edge = parse(&InputLine { number: 7, text: Ok(text.to_owned()) })?;
        Ok(edge.map(|edge| (edge.follower.to_string(), edge.source.to_string(), edge.hidden)))
    }

    #[test]
    fn edges_are_read_whatever_separates_them() {
        for text in ["a b", "a\tb", "a,b", " a ,  b # c", "a b#"] {
            assert_eq!(parsed(text), Ok(Some(("a".to_owned(), "b".to_owned(), false))), "{text:?}");
        }
        assert_eq!(parsed("a\tb\thidden"), Ok(Some(("a".to_owned(), "b".to_owned(), true))));
        for text in ["", "  ", "# a b", "#"] {
            assert_eq!(parsed(text), Ok(None), "{text:?}");
        }
        for text in ["a", "a b c", "a a", "a b/c", "é b"] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }
}
