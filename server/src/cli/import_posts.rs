//! `tidewire import posts`: imports a file of posts into a running server or a data directory.
//!
//! Each line is the document of `POST /v1/posts`. It may also have the field `hidden`, as the lines of an export do: such a post is
//! published and then hidden.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::Outcome;
use crate::cli::client::{Client, ClientError, ServerResponse};
use crate::cli::import::{self, Part, Sent, StopCause, Stopped, Target};
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
    has_id: bool,
    hidden: bool,
    /// Bytes of the file that were read for this line.
    bytes: u64,
}

/// The fields that select the sender, and whether the post is to be hidden. The server validates the rest.
#[derive(Default, Deserialize)]
struct SenderFields {
    author: Option<serde_json::Value>,
    id: Option<serde_json::Value>,
    hidden: Option<bool>,
}

impl ImportPosts {
    /// Sends the posts of the file to the target.
    pub(crate) fn run(self) -> Outcome {
        import::run(&self.file, self.target, "posts", send_all)
    }
}

fn send_all(lines: &mut Lines, client: &Client) -> Sent {
    let (progress, reached) = (Progress::new(lines.bar.clone(), "posts"), Reached::default());
    let (read, sent) = thread::scope(|scope| {
        let reached = &reached;
        let (queues, senders): (Vec<_>, Vec<_>) = (0..SENDERS)
            .map(|_| {
                let (queue, lines_of_sender) = crossbeam_channel::bounded(READ_AHEAD);
                let (client, progress) = (client.clone(), &progress);
                (queue, scope.spawn(move || send(&client, &lines_of_sender, progress, reached)))
            })
            .unzip();
        let read = read(lines, &queues, reached);
        drop(queues);
        (read, senders.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    let stopped = |cause| Stopped { cause, place: reached.advice() };
    let sent = sent.into_iter().map(|sender| sender.map(|(report, cause)| (report, cause.map(stopped))));
    (read, sent.collect())
}

/// How far all senders have come together, for an import that stops.
struct Reached {
    has_answers: AtomicBool,
    /// The smallest number of a line at which a sender stopped.
    stopped_at: AtomicU64,
    last_sent: AtomicU64,
}

impl Default for Reached {
    fn default() -> Self {
        Self { has_answers: AtomicBool::new(false), stopped_at: AtomicU64::new(u64::MAX), last_sent: AtomicU64::new(0) }
    }
}

impl Reached {
    fn stop_at(&self, line: u64) {
        self.stopped_at.fetch_min(line, Ordering::Relaxed);
    }

    fn has_stopped(&self) -> bool {
        self.stopped_at.load(Ordering::Relaxed) != u64::MAX
    }

    /// Returns where to go on, as the end of a sentence; nothing if no line was answered.
    fn advice(&self) -> String {
        if !self.has_answers.load(Ordering::Relaxed) {
            return String::new();
        }
        let [first, last] = [&self.stopped_at, &self.last_sent].map(|number| number.load(Ordering::Relaxed));
        format!(
            "; line {first} is the first that is not done, and line {last} the last that was sent; to go on, import again from line {first} \
             on: posts with an `id` are not published twice, but those without one that were published already are"
        )
    }
}

fn read(lines: &mut Lines, queues: &[Sender<SentLine>], reached: &Reached) -> Part<ReadError> {
    let mut report = Report::begin();
    let hash = RandomState::new();
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(cause) => return (report, Some(cause)),
        };
        let text = match line.text {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => text,
            Err(why) => {
                report.refuse(line.number, why);
                continue;
            }
        };
        let SenderFields { author, id, hidden } = serde_json::from_str(&text).unwrap_or_default();
        let queue = hash.hash_one(author.map(|author| author.to_string())) as usize % queues.len();
        let json = if hidden.is_some() { without_hidden(&text).unwrap_or(text) } else { text };
        let line = SentLine {
            number: line.number,
            json,
            has_id: id.is_some(),
            hidden: hidden == Some(true),
            bytes: lines.taken(),
        };
        if queues[queue].send(line).is_err() || reached.has_stopped() {
            // A sender failed. Its own result has the error.
            break;
        }
    }
    (report, None)
}

/// Returns the same document without the field `hidden`, which the server does not accept. The other fields are unchanged.
fn without_hidden(json: &str) -> Option<String> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(json).ok()?;
    fields.remove("hidden");
    serde_json::to_string(&fields).ok()
}

/// Sends the lines of one queue until it ends, or until the import has to stop.
fn send(
    client: &Client,
    lines_of_sender: &Receiver<SentLine>,
    progress: &Progress,
    reached: &Reached,
) -> Part<StopCause> {
    let mut report = Report::begin();
    for line in lines_of_sender {
        let before = report.done();
        reached.last_sent.fetch_max(line.number, Ordering::Relaxed);
        if let Err(cause) = send_line(client, &line, &mut report) {
            reached.stop_at(line.number);
            return (report, Some(cause));
        }
        reached.has_answers.store(true, Ordering::Relaxed);
        progress.add(report.done() - before, line.bytes);
    }
    (report, None)
}

fn send_line(client: &Client, line: &SentLine, report: &mut Report) -> Result<(), StopCause> {
    match publish(client, line)? {
        (ServerResponse::Done(..), true) => report.created += 1,
        (ServerResponse::Done(..), false) => report.existing += 1,
        (ServerResponse::Refused(refused), _) => {
            let refused = import::of_one_line(refused)?;
            report.refuse(line.number, format!("{}: {}", refused.code, refused.detail));
        }
    }
    Ok(())
}

/// Publishes the post of a line, and hides it if it is to be hidden. Returns the last answer, and true if the post was not there before.
fn publish(client: &Client, line: &SentLine) -> Result<(ServerResponse, bool), ClientError> {
    // Without an id of its own, a post that is sent twice is published twice.
    let published = match line.has_id {
        true => client.post("/v1/posts", &line.json),
        false => client.post_once("/v1/posts", &line.json),
    }?;
    let created = matches!(published, ServerResponse::Done(201, _));
    match &published {
        ServerResponse::Done(status, text) if line.hidden => Ok((hide(client, *status, text)?, created)),
        _ => Ok((published, created)),
    }
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
