//! `tidewire import follows`: imports a file of follow edges into a running server or a data directory.
//!
//! The server accepts a bulk of edges completely or not at all. It lists all refused edges, so a refused batch is sent once more without
//! them.

use std::hash::Hash;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cli::Outcome;
use crate::cli::client::{Client, ServerResponse};
use crate::cli::follow_line::{Edge, EdgeLines};
use crate::cli::import::{self, Target};
use crate::cli::in_order::{Format, Item, SendBatch, StopCause, Stopped, Unusable};
use crate::cli::lines::InputLine;
use crate::cli::report::Report;
use tidewire::error::FollowRefusal;
use tidewire::limits::{BULK_REQUEST_BYTES_MAX, FOLLOWS_PER_REQUEST_MAX};

/// Arguments of `tidewire import follows`.
#[derive(Debug, clap::Args)]
pub struct ImportFollows {
    /// File with `follower source` in each line, separated by a tab, a comma or spaces; a third word `hidden` makes a hidden follow; #
    /// begins a comment; CSV may begin with column names; .gz too; - is standard input
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// An edge and its line number.
pub(crate) struct NumberedEdge {
    line: u64,
    edge: Edge,
}

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
        import::run(&self.file, self.target, EdgeLines::default())
    }
}

impl Format for EdgeLines {
    type Item = NumberedEdge;

    fn parse(&mut self, line: InputLine, report: &mut Report) -> Result<Option<NumberedEdge>, Unusable> {
        let text = line.text.map_err(str::to_owned)?;
        let edge = EdgeLines::parse(self, &text, report)?;
        Ok(edge.map(|edge| NumberedEdge { line: line.number, edge }))
    }

    fn sender(client: Client) -> impl SendBatch<NumberedEdge> {
        EdgeSender { client }
    }
}

impl Item for NumberedEdge {
    const WHAT: &'static str = "edges";
    const PER_REQUEST_MAX: usize = FOLLOWS_PER_REQUEST_MAX;
    const REQUEST_BYTES_MAX: usize = BULK_REQUEST_BYTES_MAX;
    const REPEATED: &'static str = "with the same edge as an earlier line; the last line counts";

    fn line(&self) -> u64 {
        self.line
    }

    fn bytes(&self) -> usize {
        // A request has space for the largest number of the longest edges.
        BULK_REQUEST_BYTES_MAX / FOLLOWS_PER_REQUEST_MAX
    }

    fn check(&self) -> Result<Option<impl Hash + use<>>, String> {
        let Edge { follower, source, .. } = self.edge.clone();
        if !follower.is_user() {
            return Err(FollowRefusal::NotAUser(follower).to_string());
        }
        Ok(Some((follower, source)))
    }
}

/// Sends edges with this client.
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
        let follows = batch.iter().map(|NumberedEdge { edge, .. }| BulkEdge {
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
