//! `tidewire import follows`: imports a file of follow edges into a running server or a data directory.
//!
//! The server accepts a bulk of edges completely or not at all. It names every edge it refuses, so a refused batch is sent once more
//! without those.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cli::Outcome;
use crate::cli::client::{Client, ServerResponse};
use crate::cli::import::{self, StopCause, Stopped, Target};
use crate::cli::in_order::{self, Item, SendBatch};
use crate::cli::lines::InputLine;
use crate::cli::report::Report;
use tidewire::id::SourceId;
use tidewire::limits::{BULK_REQUEST_BYTES_MAX, FOLLOWS_PER_REQUEST_MAX};

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
        import::run(&self.file, self.target, NumberedEdge::WHAT, |lines, client| {
            in_order::send_all(lines, |line| parse(&line), EdgeSender { client: client.clone() })
        })
    }
}

impl Item for NumberedEdge {
    const WHAT: &'static str = "edges";
    const PER_REQUEST_MAX: usize = FOLLOWS_PER_REQUEST_MAX;
    const REQUEST_BYTES_MAX: usize = BULK_REQUEST_BYTES_MAX;

    fn bytes(&self) -> usize {
        // A request has space for the largest number of the longest edges.
        BULK_REQUEST_BYTES_MAX / FOLLOWS_PER_REQUEST_MAX
    }
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

/// Sends edges through this client.
struct EdgeSender {
    client: Client,
}

impl SendBatch<NumberedEdge> for EdgeSender {
    fn send(&mut self, batch: Vec<NumberedEdge>, report: &mut Report) -> Result<(), Stopped> {
        Ok(follow(&self.client, batch, report)?)
    }
}

/// Sends a batch, and sends it again without the edges that the server refused.
fn follow(client: &Client, mut batch: Vec<NumberedEdge>, report: &mut Report) -> Result<(), StopCause> {
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
            let reason = import::reason(refused)?;
            batch.iter().for_each(|edge| report.refuse(edge.line, reason.as_str()));
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
