//! `tidewire import follows`: a file of edges into a running server.
//!
//! The server takes edges in bulk, all or none. It names every edge it refuses, so a refused batch is sent once more
//! without those.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::cli::client::{Client, ClientError, Said, ServerArgs};
use crate::cli::lines::{Line, Lines};
use crate::cli::report::Report;
use crate::cli::{Outcome, terminal};
use crate::id::SourceId;
use crate::limits::FOLLOWS_PER_REQUEST_MAX;

/// Batches on their way at the same time.
const SENDERS: usize = 2;

/// Batches read ahead of the senders.
const READ_AHEAD: usize = 4;

/// What `tidewire import follows` takes.
#[derive(Debug, clap::Args)]
pub struct ImportFollows {
    /// `follower source` in each line, apart by tab, comma or spaces; # begins a comment; .gz too; - is the standard input
    file: PathBuf,

    #[command(flatten)]
    server: ServerArgs,
}

/// An edge and the line it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NumberedEdge {
    line: u64,
    follower: SourceId,
    source: SourceId,
}

#[derive(Serialize)]
struct Bulk<'a> {
    follows: Vec<BulkEdge<'a>>,
}

#[derive(Serialize)]
struct BulkEdge<'a> {
    follower: &'a str,
    source: &'a str,
}

#[derive(Deserialize)]
struct Followed {
    created: usize,
    existing: usize,
}

impl ImportFollows {
    /// Sends the edges of the file to the server.
    pub(crate) fn run(self) -> Outcome {
        let mut lines = Lines::open(&self.file)?;
        let client = Client::new(&self.server);
        let (batches, taken) = crossbeam_channel::bounded::<Vec<NumberedEdge>>(READ_AHEAD);
        let bar = lines.bar.clone();
        let (read, sent) = thread::scope(|scope| {
            let send = || {
                let (taken, client, bar) = (taken.clone(), client.clone(), &bar);
                scope.spawn(move || {
                    let mut report = Report::begin();
                    for batch in taken {
                        send(&client, batch, &mut report)?;
                        bar.set_message(format!("{} edges", report.created + report.existing));
                    }
                    Ok::<_, ClientError>(report)
                })
            };
            let senders: Vec<_> = (0..SENDERS).map(|_| send()).collect();
            drop(taken);
            let read = read(&mut lines, |batch| batches.send(batch).is_ok());
            drop(batches);
            let sent: Vec<_> = senders.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (read, sent)
        });
        bar.finish_and_clear();
        let mut report = read?;
        for sender in sent {
            report.add(sender.map_err(|_| "a sender crashed")??);
        }
        if report.created + report.existing + report.refused() == 0 {
            terminal::warn(&format!("{} has no edges", self.file.display()));
            return Ok(ExitCode::FAILURE);
        }
        Ok(report.print("edges"))
    }
}

/// Reads all edges, and gives them on in batches until `give` wants no more.
fn read(lines: &mut Lines, give: impl Fn(Vec<NumberedEdge>) -> bool) -> Result<Report, crate::cli::lines::ReadError> {
    let mut report = Report::begin();
    let mut batch = Vec::with_capacity(FOLLOWS_PER_REQUEST_MAX);
    for line in lines {
        let line = line?;
        match parse(&line) {
            Ok(None) => {}
            Ok(Some(edge)) => batch.push(edge),
            Err(why) => report.refuse(line.number, why),
        }
        if batch.len() == FOLLOWS_PER_REQUEST_MAX {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(FOLLOWS_PER_REQUEST_MAX));
            if !give(full) {
                return Ok(report);
            }
        }
    }
    if !batch.is_empty() {
        give(batch);
    }
    Ok(report)
}

/// The edge of a line, if it has one.
fn parse(line: &Line) -> Result<Option<NumberedEdge>, String> {
    let text = line.text.as_ref().map_err(|why| (*why).to_owned())?;
    let text = text.split('#').next().unwrap_or("").trim();
    if text.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
    let [follower, source] = words[..] else {
        return Err(format!("expected `follower source`, found {} words", words.len()));
    };
    let id = |text: &str| SourceId::new(text).map_err(|cause| format!("{text:?}: {cause}"));
    let (follower, source) = (id(follower)?, id(source)?);
    if follower == source {
        return Err(format!("{follower} cannot follow itself"));
    }
    Ok(Some(NumberedEdge { line: line.number, follower, source }))
}

/// Sends a batch, and once more without what the server refused.
fn send(client: &Client, mut batch: Vec<NumberedEdge>, report: &mut Report) -> Result<(), ClientError> {
    while !batch.is_empty() {
        let edge = |edge: &NumberedEdge| (edge.follower.clone(), edge.source.clone());
        let edges: Vec<_> = batch.iter().map(edge).collect();
        let follows =
            edges.iter().map(|(follower, source)| BulkEdge { follower: follower.as_str(), source: source.as_str() });
        let json = serde_json::to_string(&Bulk { follows: follows.collect() }).unwrap_or_default();
        let refused = match client.post("/v1/follows", &json)? {
            Said::Done(status, text) => {
                let Ok(followed) = serde_json::from_str::<Followed>(&text) else {
                    return Err(ClientError::Foreign { server: client.server().to_owned(), status, text });
                };
                report.created += followed.created;
                report.existing += followed.existing;
                return Ok(());
            }
            Said::Refused(refused) => refused,
        };
        if refused.errors.is_empty() {
            // Refused as a whole.
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

    fn parsed(text: &str) -> Result<Option<(String, String)>, String> {
        let edge = parse(&Line { number: 7, text: Ok(text.to_owned()) })?;
        Ok(edge.map(|edge| (edge.follower.to_string(), edge.source.to_string())))
    }

    #[test]
    fn edges_are_read_whatever_separates_them() {
        for text in ["a b", "a\tb", "a,b", " a ,  b # c", "a b#"] {
            assert_eq!(parsed(text), Ok(Some(("a".to_owned(), "b".to_owned()))), "{text:?}");
        }
        for text in ["", "  ", "# a b", "#"] {
            assert_eq!(parsed(text), Ok(None), "{text:?}");
        }
        for text in ["a", "a b c", "a a", "a b/c", "é b"] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }
}
