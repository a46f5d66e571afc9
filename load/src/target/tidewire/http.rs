//! Tidewire in its own process, over HTTP.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use tidewire::clock::UnixMicros;
use tidewire::limits::FOLLOWS_PER_REQUEST_MAX;
use tokio::time::timeout;

use crate::operation::{Answer, Item, Operation, PAGE_POSTS, User};
use crate::target::process::{Process, free_address, harness};
use crate::target::tidewire::connection::Connection;
use crate::target::tidewire::{Settings, is_refusal, name, page};
use crate::target::{ANSWER_MAX, Client, Failure, Later, Target, answered, unsupported};

/// The name of the hidden command by which this program runs the server: both are in one build.
pub const SERVER: &str = "tidewire";

/// Number of readers that are woken concurrently.
const WAKING_AT_ONCE: usize = 16;

/// A running Tidewire server.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    settings: Vec<String>,
    /// The server process; `None` if another program started it.
    process: Option<Process>,
    /// True if a publish waits until the post is delivered.
    pub(super) waits: Arc<AtomicBool>,
    /// True if all posts are pushed into inboxes. This is not known for a server that another program started.
    pushes_all: bool,
}

impl Http {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(settings: &Settings) -> Result<Self, Failure> {
        let mut http = Self::start_server(settings).await?;
        http.settings.push("a separate process, over HTTP/1.1, with a connection for each client".to_owned());
        Ok(http)
    }

    /// Starts a server, without a note on its clients in the settings.
    pub(super) async fn start_server(settings: &Settings) -> Result<Self, Failure> {
        let address = free_address().map_err(|cause| Failure::of(&cause))?;
        let (process, lines) = start(address, settings).await.map_err(|cause| Failure::of(&cause))?;
        Ok(Self {
            address,
            settings: lines,
            process: Some(process),
            waits: waits(),
            pushes_all: settings.celebrity_followers.is_none(),
        })
    }

    /// Uses a server that is already running.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            settings: vec![format!("at {address}, with the settings it was started with")],
            process: None,
            waits: waits(),
            pushes_all: false,
        }
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn connect(&self) -> Result<HttpClient, Failure> {
        let opened = async { Connection::open(self.address).await.map_err(|cause| Failure::of(&cause)) };
        let connection = answered("connecting", opened).await?;
        Ok(HttpClient { connection, request: String::new(), body: String::new(), waits: Arc::clone(&self.waits) })
    }
}

async fn start(address: SocketAddr, settings: &Settings) -> io::Result<(Process, Vec<String>)> {
    let lines = settings.describe();
    let flags: Vec<String> = lines.iter().skip(1).flat_map(|flag| flag.split(' ')).map(str::to_owned).collect();
    let mut process = Process::start(&harness()?, |directory| {
        let data = directory.join("data").display().to_string();
        let fixed = [SERVER, "serve", "--listen", &address.to_string(), "--data-dir", &data].map(str::to_owned);
        fixed.into_iter().chain(flags).collect()
    })?;
    let is_ready = async || match Connection::open(address).await {
        Ok(mut connection) => {
            let ready = connection.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            ready.is_ok_and(|(status, _)| status == 200)
        }
        Err(_) => false,
    };
    process.wait_until(is_ready).await?;
    Ok((process, lines))
}

impl Target for Http {
    fn name(&self) -> &'static str {
        "tidewire_http"
    }

    fn settings(&self) -> Vec<String> {
        self.settings.clone()
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        Box::pin(async { Ok(Box::new(self.connect().await?) as Box<dyn Client>) })
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async {
            let mut client = self.connect().await?;
            for batch in edges.chunks(FOLLOWS_PER_REQUEST_MAX) {
                client.follow_all(batch).await?;
            }
            Ok(())
        })
    }

    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async {
            let mut waking = Vec::new();
            for part in readers.chunks(readers.len().div_ceil(WAKING_AT_ONCE).max(1)) {
                let mut client = self.connect().await?;
                waking.push(async move {
                    for reader in part {
                        client.send(&Operation::Page { reader: *reader }).await?;
                    }
                    Ok(())
                });
            }
            futures_util::future::try_join_all(waking).await.map(drop)
        })
    }

    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        Box::pin(async {
            if !self.pushes_all {
                return Ok(None);
            }
            let mut client = self.connect().await?;
            client.request.push_str("GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let stats: Stats = serde_json::from_slice(client.ask().await?)
                .map_err(|cause| Failure::Failed(format!("GET /v1/stats has no count of deliveries: {cause}")))?;
            Ok(Some(stats.deliveries + stats.deliveries_below_floor))
        })
    }

    fn wait_for_delivery(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    fn live_address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

/// The statistics of the server that are used here.
#[derive(Deserialize)]
struct Stats {
    deliveries: u64,
    /// Deliveries of posts that were older than the floor of the inbox.
    deliveries_below_floor: u64,
}

struct HttpClient {
    connection: Connection,
    request: String,
    body: String,
    waits: Arc<AtomicBool>,
}

fn waits() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

// Writing to a `String` cannot fail.
impl HttpClient {
    /// Sends the request of an operation. Returns the body of the response.
    async fn send(&mut self, operation: &Operation) -> Result<&[u8], Failure> {
        self.request.clear();
        let request = &mut self.request;
        let _ = match operation {
            Operation::Page { reader } => {
                write!(request, "GET /v1/users/u{reader}/feed?limit={PAGE_POSTS} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }
            Operation::OwnPage { author } => {
                write!(request, "GET /v1/users/u{author}/posts?limit={PAGE_POSTS} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }
            Operation::Pages { pipelined: true, .. } => return Err(unsupported(operation)),
            Operation::Pages { readers, pipelined: false } => {
                self.body.clear();
                for (nth, reader) in readers.iter().enumerate() {
                    let comma = if nth > 0 { "," } else { "" };
                    let _ = write!(self.body, r#"{comma}"u{reader}""#);
                }
                let body = format!(r#"{{"users":[{}],"limit":{PAGE_POSTS}}}"#, self.body);
                with_body(request, format_args!("POST /v1/feeds"), &body)
            }
            Operation::Follow { follower, source } => {
                with_body(request, format_args!("PUT /v1/users/u{follower}/following/u{source}"), "")
            }
            Operation::Unfollow { follower, source } => {
                write!(request, "DELETE /v1/users/u{follower}/following/u{source} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }
            Operation::Delete { id, .. } => {
                write!(request, "DELETE /v1/posts/{id} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }
            Operation::Publish(post) => {
                self.body.clear();
                let (id, author, at) = (post.id, post.author, UnixMicros(post.published_at_us));
                let body = &post.body;
                let _ =
                    write!(self.body, r#"{{"id":"{id}","author":"u{author}","published_at":"{at}","body":{body}}}"#);
                let wait = if self.waits.load(Ordering::Relaxed) { "?wait=delivered" } else { "" };
                with_body(request, format_args!("POST /v1/posts{wait}"), &self.body)
            }
        };
        self.ask().await
    }

    async fn follow_all(&mut self, edges: &[(User, User)]) -> Result<(), Failure> {
        self.body.clear();
        self.body.push_str(r#"{"follows":["#);
        for (nth, (follower, source)) in edges.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            let (follower, source) = (name(*follower), name(*source));
            let _ = write!(self.body, r#"{comma}{{"follower":"{follower}","source":"{source}"}}"#);
        }
        self.body.push_str("]}");
        self.request.clear();
        let _ = with_body(&mut self.request, format_args!("POST /v1/follows"), &self.body);
        self.ask().await.map(drop)
    }

    async fn ask(&mut self) -> Result<&[u8], Failure> {
        let asked = || self.request.lines().next().unwrap_or_default();
        let Ok(answer) = timeout(ANSWER_MAX, self.connection.ask(self.request.as_bytes())).await else {
            return Err(Failure::Silent(asked().to_owned()));
        };
        match answer {
            Ok((200..=299, body)) => Ok(body),
            Ok((status, body)) => {
                let detail = serde_json::from_slice::<&RawValue>(body).map_or("", RawValue::get);
                let message = format!("{}: {status} {detail}", asked());
                Err(if is_refusal(status, body) { Failure::Refused(message) } else { Failure::Failed(message) })
            }
            Err(cause) => Err(Failure::Failed(format!("{}: {cause}", asked()))),
        }
    }
}

fn with_body(request: &mut String, line: std::fmt::Arguments<'_>, body: &str) -> std::fmt::Result {
    let length = body.len();
    write!(
        request,
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Client for HttpClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(async {
            let body = self.send(operation).await?;
            let entries = match operation {
                Operation::Page { .. } | Operation::OwnPage { .. } => page::count(body),
                Operation::Pages { .. } => page::count_together(body)?,
                _ => 0,
            };
            Ok(Answer { entries, deliveries: None })
        })
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(async { page::items(self.send(operation).await?) })
    }
}
