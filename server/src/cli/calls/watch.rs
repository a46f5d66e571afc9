//! `tidewire watch`: prints the changes of a feed as they happen.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU64;
use std::pin::pin;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use actix_web::rt::{System, signal};
use futures_util::future::{Either, select};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cli::calls::entry::{Entry, Post};
use crate::cli::calls::screen::Screen;
use crate::cli::calls::{Call, in_path, parsed};
use crate::cli::client::{Client, ClientError};
use crate::cli::{Outcome, terminal};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::id::SourceId;

/// Wait before the first attempt to reconnect. It doubles with each further attempt, up to `WAIT_MAX`.
const WAIT_MIN: Duration = Duration::from_millis(500);

/// Maximum wait before an attempt.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of an event, and of a line of one. It suffices for a post with the largest body, and the reposts of its entry.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Arguments of `tidewire watch`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Ctrl-C ends it with exit code 0. With --json it prints every message of docs/live.md.")]
pub(crate) struct Watch {
    /// Reader whose feed is watched
    user: SourceId,

    /// Number of changes to print before the end [default: run until Ctrl-C]
    #[arg(long, value_name = "CHANGES")]
    count: Option<NonZeroU64>,

    #[command(flatten)]
    call: Call,
}

/// A message of the stream.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Hello {
        recovered: bool,
    },
    Post {
        item: Entry,
    },
    Remove {
        post: String,
    },
    Update {
        post: Post,
    },
    Stale {},
    Marker {},
    Unread {},
    Beat {},
    #[serde(other)]
    Other,
}

/// The next step after an event.
#[derive(PartialEq, Eq)]
enum Next {
    /// The requested number of changes is printed, or the output is closed.
    Ends,
    /// Continue, with a new stream if this one has ended.
    GoesOn,
}

impl Watch {
    pub(crate) fn run(self) -> Outcome {
        let call = self.call.clone();
        call.run(|client| {
            let (watching, time) = (client.clone(), client.patience());
            let ((ended, end), (began, begin)) = (oneshot::channel(), oneshot::channel());
            // The client runs on its own thread because it blocks on the server, and a signal must end the command at any moment.
            thread::spawn(move || {
                // Sending fails only if a signal has ended the command.
                let _ = ended.send(Watching::new(self, watching, began).run());
            });
            System::new().block_on(async {
                let watched = async {
                    // If the thread ends before the first event, it drops the sender. The error then comes from the thread.
                    match timeout(time, begin).await {
                        Ok(_) => match end.await {
                            Ok(outcome) => outcome.map_err(|cause| -> Box<dyn Error> { cause }),
                            Err(_) => Err("the thread that watches has crashed".into()),
                        },
                        Err(_) => Err(client.silent().into()),
                    }
                };
                match select(pin!(signal::ctrl_c()), pin!(watched)).await {
                    Either::Left((signal, _)) => signal.map_err(Into::into),
                    Either::Right((outcome, _)) => outcome,
                }
            })?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn too_large() -> Failure {
    format!("an event of the server is larger than {} MiB", EVENT_BYTES_MAX >> 20).into()
}

type Failure = Box<dyn Error + Send + Sync>;

/// A feed that is being watched.
struct Watching {
    watch: Watch,
    client: Client,
    /// Notified of the first event.
    began: Option<oneshot::Sender<()>>,
    screen: Screen,
    /// The last message, as `epoch:seq`.
    last: Option<String>,
    left: Option<u64>,
}

impl Watching {
    fn new(watch: Watch, client: Client, began: oneshot::Sender<()>) -> Self {
        let left = watch.count.map(NonZeroU64::get);
        Self { watch, client, began: Some(began), screen: Screen::of_stdout(), last: None, left }
    }

    /// Prints messages, and reconnects whenever the stream ends.
    fn run(mut self) -> Result<(), Failure> {
        let (mut wait, start, mut attempts) = (WAIT_MIN, Instant::now(), 0);
        loop {
            attempts += 1;
            let mut why = "the connection ended".to_owned();
            match self.client.events(&self.path()) {
                Ok(Ok(stream)) => {
                    let before = self.last.clone();
                    if self.read(stream)? == Next::Ends {
                        return Ok(());
                    }
                    if self.last != before {
                        wait = WAIT_MIN;
                    }
                }
                Ok(Err((refused, Some(retry_after)))) => {
                    wait = wait.max(retry_after.min(WAIT_MAX));
                    if self.last.is_none() && start.elapsed() + wait >= self.client.patience() {
                        return Err(self.client.still_refused(attempts, refused).into());
                    }
                    why = refused.to_string();
                }
                Ok(Err((refused, None))) => return Err(refused.into()),
                // If the first connection fails, this is an error. A restart of the server is not.
                Err(cause @ (ClientError::Unreachable { .. } | ClientError::Foreign { .. })) if self.last.is_some() => {
                    why = cause.to_string();
                }
                Err(cause) => return Err(cause.into()),
            }
            if self.last.is_some() {
                terminal::warn(&format!("note: {why}; trying again in {wait:.1?}"));
            }
            #[expect(clippy::disallowed_methods, reason = "this is a thread of a tool, not an actor")]
            thread::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0));
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    fn path(&self) -> String {
        let path = format!("/v1/users/{}/events", in_path(&self.watch.user));
        match self.last.as_deref().and_then(|last| last.split_once(':')) {
            Some((epoch, seq)) => format!("{path}?epoch={epoch}&seq={seq}"),
            None => path,
        }
    }

    /// Reads events until the stream ends.
    fn read(&mut self, stream: Box<dyn Read + Send>) -> Result<Next, Failure> {
        let mut lines = BufReader::new(stream);
        let (mut id, mut data) = (None, String::new());
        loop {
            let mut line = Vec::new();
            match lines.by_ref().take(EVENT_BYTES_MAX as u64).read_until(b'\n', &mut line) {
                Ok(1..) if line.ends_with(b"\n") => {}
                Ok(EVENT_BYTES_MAX) => return Err(too_large()),
                // The stream has ended, or there was no data for too long.
                _ => return Ok(Next::GoesOn),
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if let Some(text) = line.strip_prefix("data: ") {
                // JSON has line breaks only between tokens.
                data.push(' ');
                data.push_str(text);
                if data.len() > EVENT_BYTES_MAX {
                    return Err(too_large());
                }
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if line.is_empty() && !data.is_empty() {
                let message = std::mem::take(&mut data);
                let is_resumed = self.last.is_some();
                if self.print(message.trim_start(), is_resumed)? == Next::Ends {
                    return Ok(Next::Ends);
                }
                // Sending fails if a signal has ended the command.
                self.began.take().map(|began| began.send(()));
                self.last = id.take().or(self.last.take());
            }
        }
    }

    fn print(&mut self, text: &str, is_resumed: bool) -> Result<Next, Failure> {
        let message: Message = parsed(text).map_err(|cause| cause.to_string())?;
        let is_change =
            !matches!(message, Message::Hello { .. } | Message::Beat {} | Message::Unread {} | Message::Other);
        let is_written = match self.watch.call.json {
            true => terminal::try_print_line(text),
            false => self.shown(&message, is_resumed).is_none_or(|text| terminal::try_print_line(&text)),
        };
        if is_change {
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        Ok(if is_written && self.left != Some(0) { Next::GoesOn } else { Next::Ends })
    }

    /// Returns the text of a message, or none if there is nothing to print.
    fn shown(&self, message: &Message, is_resumed: bool) -> Option<String> {
        let (screen, user, now) = (self.screen, &self.watch.user, SystemClock.now());
        Some(match message {
            Message::Hello { recovered } => {
                match (is_resumed, recovered) {
                    (false, _) => terminal::warn(&format!("watching the feed of {user}; Ctrl-C ends it")),
                    (true, true) => terminal::warn("note: connected again, nothing was missed"),
                    (true, false) => terminal::warn(&format!(
                        "note: connected again, some changes may be missing here: `tidewire feed {user}` shows them"
                    )),
                }
                return None;
            }
            Message::Post { item } => item.text(screen, now),
            Message::Remove { post } => screen.dim(&format!("post {post} is no longer in the feed")),
            Message::Update { post } => post.text(screen, now, &["edited".to_owned()]),
            Message::Stale {} => {
                screen.dim(&format!("more changes than the server sends: `tidewire feed {user}` shows them"))
            }
            Message::Marker {} => screen.dim("the read marker has moved"),
            Message::Unread {} | Message::Beat {} | Message::Other => return None,
        })
    }
}
