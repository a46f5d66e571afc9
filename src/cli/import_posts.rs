//! `tidewire import posts`: a file of posts into a running server.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use indicatif::ProgressBar;
use serde::Deserialize;

use crate::cli::client::{Client, ClientError, Said, ServerArgs};
use crate::cli::lines::{Lines, ReadError};
use crate::cli::report::Report;
use crate::cli::{Outcome, terminal};

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
    server: ServerArgs,
}

type Numbered = (u64, String);

/// What decides which way a post goes. The server checks the rest.
#[derive(Deserialize)]
struct Author {
    author: Option<serde_json::Value>,
}

impl ImportPosts {
    /// Sends the posts of the file to the server.
    pub(crate) fn run(self) -> Outcome {
        let mut lines = Lines::open(&self.file)?;
        let client = Client::new(&self.server);
        let bar = lines.bar.clone();
        let (read, sent) = thread::scope(|scope| {
            let (ways, senders): (Vec<_>, Vec<_>) = (0..SENDERS)
                .map(|_| {
                    let (way, taken) = crossbeam_channel::bounded(READ_AHEAD);
                    let (client, bar) = (client.clone(), bar.clone());
                    (way, scope.spawn(move || send(&client, &taken, &bar)))
                })
                .unzip();
            let read = read(&mut lines, &ways);
            drop(ways);
            let sent: Vec<_> = senders.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (read, sent)
        });
        bar.finish_and_clear();
        let mut report = read?;
        for sender in sent {
            report.add(sender.map_err(|_| "a sender crashed")??);
        }
        if report.created + report.existing + report.refused() == 0 {
            terminal::warn(&format!("{} has no posts", self.file.display()));
            return Ok(ExitCode::FAILURE);
        }
        Ok(report.print("posts"))
    }
}

fn read(lines: &mut Lines, ways: &[Sender<Numbered>]) -> Result<Report, ReadError> {
    let mut report = Report::begin();
    let hash = RandomState::new();
    for line in lines {
        let line = line?;
        let text = match line.text {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => text,
            Err(why) => {
                report.refuse(line.number, why);
                continue;
            }
        };
        let author = serde_json::from_str::<Author>(&text).ok().and_then(|post| post.author);
        let way = hash.hash_one(author.map(|author| author.to_string())) as usize % ways.len();
        if ways[way].send((line.number, text)).is_err() {
            // The sender failed and says why.
            break;
        }
    }
    Ok(report)
}

fn send(client: &Client, taken: &Receiver<Numbered>, bar: &ProgressBar) -> Result<Report, ClientError> {
    let mut report = Report::begin();
    for (line, json) in taken {
        match client.post("/v1/posts", &json)? {
            Said::Done(201, _) => report.created += 1,
            Said::Done(..) => report.existing += 1,
            Said::Refused(refused) => report.refuse(line, format!("{}: {}", refused.code, refused.detail)),
        }
        bar.set_message(format!("line {line}"));
    }
    Ok(report)
}
