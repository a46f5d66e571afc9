//! `tidewire import posts`: imports a file of posts into a running server or a data directory.
//!
//! Each line is the document of `POST /v1/posts`. It may also have the field `hidden`, as the lines of an export do: such a post is
//! published and then hidden.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::Outcome;
use crate::cli::client::{Client, ClientError, ServerResponse};
use crate::cli::import::{self, Sent, Target};
use crate::cli::lines::{Lines, ReadError};
use crate::cli::progress::Progress;
use crate::cli::report::Report;

/// Number of posts that are sent at the same time. All posts of one author use the same sender, so their order is preserved.
const SENDERS: usize = 8;

/// Maximum number of posts read ahead for each sender.
const READ_AHEAD: usize = 256;

/// Arguments of `tidewire import posts`.
#[derive(Debug, clap::Args)]
pub struct ImportPosts {
    /// A post in each line, as POST /v1/posts takes it; .gz too; - is the standard input
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// A line that is being sent.
struct SentLine {
    number: u64,
    /// The body of the `POST /v1/posts` request.
    json: String,
    hidden: bool,
    /// Bytes of the file that were read for this line.
    bytes: u64,
}

/// The fields that select the sender, and whether the post is to be hidden. The server validates the rest.
#[derive(Default, Deserialize)]
struct SenderFields {
    author: Option<serde_json::Value>,
    hidden: Option<bool>,
}

impl ImportPosts {
    /// Sends the posts of the file to the target.
    pub(crate) fn run(self) -> Outcome {
        import::run(&self.file, self.target, "posts", send_all)
    }
}

fn send_all(lines: &mut Lines, client: &Client) -> Sent {
    let progress = Progress::new(lines.bar.clone(), "posts");
    thread::scope(|scope| {
        let (queues, senders): (Vec<_>, Vec<_>) = (0..SENDERS)
            .map(|_| {
                let (queue, lines_of_sender) = crossbeam_channel::bounded(READ_AHEAD);
                let (client, progress) = (client.clone(), &progress);
                (queue, scope.spawn(move || send(&client, &lines_of_sender, progress)))
            })
            .unzip();
        let read = read(lines, &queues);
        drop(queues);
        (read, senders.into_iter().map(thread::ScopedJoinHandle::join).collect())
    })
}

fn read(lines: &mut Lines, queues: &[Sender<SentLine>]) -> Result<Report, ReadError> {
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
        let SenderFields { author, hidden } = serde_json::from_str(&text).unwrap_or_default();
        let queue = hash.hash_one(author.map(|author| author.to_string())) as usize % queues.len();
        let json = if hidden.is_some() { without_hidden(&text).unwrap_or(text) } else { text };
        let line = SentLine { number: line.number, json, hidden: hidden == Some(true), bytes: lines.taken() };
        if queues[queue].send(line).is_err() {
            // The sender failed. Its own result has the error.
            break;
        }
    }
    Ok(report)
}

/// Returns the same document without the field `hidden`, which the server does not accept. The other fields are unchanged.
fn without_hidden(json: &str) -> Option<String> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(json).ok()?;
    fields.remove("hidden");
    serde_json::to_string(&fields).ok()
}

fn send(client: &Client, lines_of_sender: &Receiver<SentLine>, progress: &Progress) -> Result<Report, ClientError> {
    let mut report = Report::begin();
    for SentLine { number, json, hidden, bytes } in lines_of_sender {
        let before = report.done();
        let mut response = client.post("/v1/posts", &json)?;
        let created = matches!(response, ServerResponse::Done(201, _));
        if hidden && let ServerResponse::Done(status, text) = &response {
            response = hide(client, *status, text)?;
        }
        match response {
            ServerResponse::Done(..) if created => report.created += 1,
            ServerResponse::Done(..) => report.existing += 1,
            ServerResponse::Refused(refused) => report.refuse(number, format!("{}: {}", refused.code, refused.detail)),
        }
        progress.add(report.done() - before, bytes);
    }
    Ok(report)
}

/// Hides a post that was just published. `answer` is the response to the publish request, which has the post's id.
fn hide(client: &Client, status: u16, answer: &str) -> Result<ServerResponse, ClientError> {
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
