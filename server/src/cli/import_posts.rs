//! `tidewire import posts`: a file of posts into a running server or a data directory.
//!
//! A line is the document of `POST /v1/posts`. It may say `hidden` beside, as the lines of an export do: such a post is
//! published and then hidden.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::Outcome;
use crate::cli::client::{Client, ClientError, Said};
use crate::cli::import::{self, Sent, Target};
use crate::cli::lines::{Lines, ReadError};
use crate::cli::progress::Progress;
use crate::cli::report::Report;

/// Posts on their way at the same time. All posts of one author go the same way, so they keep their order.
const SENDERS: usize = 8;

/// Posts read ahead of each sender.
const READ_AHEAD: usize = 256;

/// What `tidewire import posts` takes.
#[derive(Debug, clap::Args)]
pub struct ImportPosts {
    /// A post in each line, as POST /v1/posts takes it; .gz too; - is the standard input
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// A line on its way.
struct Line {
    number: u64,
    /// The document of `POST /v1/posts`.
    json: String,
    hidden: bool,
    /// Bytes of the file that were read for it.
    bytes: u64,
}

/// What decides which way a post goes, and whether it is hidden. The server checks the rest.
#[derive(Default, Deserialize)]
struct Head {
    author: Option<serde_json::Value>,
    hidden: Option<bool>,
}

impl ImportPosts {
    /// Sends the posts of the file to where they are to go.
    pub(crate) fn run(self) -> Outcome {
        import::run(&self.file, self.target, "posts", send_all)
    }
}

fn send_all(lines: &mut Lines, client: &Client) -> Sent {
    let progress = Progress::new(lines.bar.clone(), "posts");
    thread::scope(|scope| {
        let (ways, senders): (Vec<_>, Vec<_>) = (0..SENDERS)
            .map(|_| {
                let (way, taken) = crossbeam_channel::bounded(READ_AHEAD);
                let (client, progress) = (client.clone(), &progress);
                (way, scope.spawn(move || send(&client, &taken, progress)))
            })
            .unzip();
        let read = read(lines, &ways);
        drop(ways);
        (read, senders.into_iter().map(thread::ScopedJoinHandle::join).collect())
    })
}

fn read(lines: &mut Lines, ways: &[Sender<Line>]) -> Result<Report, ReadError> {
    let mut report = Report::begin();
    let hash = RandomState::new();
    while let Some(line) = lines.next() {
        let line = line?;
        let text = match line.text {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => text,
            Err(why) => {
                report.refuse(line.number, why);
                continue;
            }
        };
        let Head { author, hidden } = serde_json::from_str(&text).unwrap_or_default();
        let way = hash.hash_one(author.map(|author| author.to_string())) as usize % ways.len();
        let json = if hidden.is_some() { without_hidden(&text).unwrap_or(text) } else { text };
        let line = Line { number: line.number, json, hidden: hidden == Some(true), bytes: lines.taken() };
        if ways[way].send(line).is_err() {
            // The sender failed and says why.
            break;
        }
    }
    Ok(report)
}

/// The same document without the field that the server does not take. Its other fields stay as they were written.
fn without_hidden(json: &str) -> Option<String> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(json).ok()?;
    fields.remove("hidden");
    serde_json::to_string(&fields).ok()
}

fn send(client: &Client, taken: &Receiver<Line>, progress: &Progress) -> Result<Report, ClientError> {
    let mut report = Report::begin();
    for Line { number, json, hidden, bytes } in taken {
        let before = report.done();
        let mut said = client.post("/v1/posts", &json)?;
        let created = matches!(said, Said::Done(201, _));
        if hidden && let Said::Done(status, text) = &said {
            said = hide(client, *status, text)?;
        }
        match said {
            Said::Done(..) if created => report.created += 1,
            Said::Done(..) => report.existing += 1,
            Said::Refused(refused) => report.refuse(number, format!("{}: {}", refused.code, refused.detail)),
        }
        progress.add(report.done() - before, bytes);
    }
    Ok(report)
}

/// Hides a post that was just published, as the answer to that tells.
fn hide(client: &Client, status: u16, answer: &str) -> Result<Said, ClientError> {
    #[derive(Deserialize)]
    struct Published {
        id: String,
    }
    let Ok(Published { id }) = serde_json::from_str(answer) else { return Err(client.foreign(status, answer)) };
    client.patch(&format!("/v1/posts/{id}"), r#"{"hidden":true}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_is_taken_out_and_the_rest_stays_as_it_was_written() {
        let json = r#"{"hidden": true, "author":"a","body":{ "n": 1.50, "hidden":true }}"#;
        assert_eq!(without_hidden(json).unwrap(), r#"{"author":"a","body":{ "n": 1.50, "hidden":true }}"#);
    }
}
