//! Live clients that keep their feeds as `docs/live.md` describes, through any node, and come back whenever they lose their connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::balancer::Balancer;
use super::client::{Client, Done, Outcome};
use super::writers::entry;
use crate::live::client::open;

/// Time without a message after which a client takes its connection for lost: longer than between two beats.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// Time after a page that a client cannot use.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Time within which a connection is made.
const CONNECT_MAX: Duration = Duration::from_secs(3);

// Bounds are cursors, which compare as text.
const ABOVE_ALL: &str = "\u{ffff}";
const BELOW_ALL: &str = "";

/// What a client has of a feed.
#[derive(Clone, Default)]
pub struct Held {
    /// The id and the text of each entry, by cursor.
    pub entries: BTreeMap<String, (u64, String)>,
    /// The cursor down to which the entries are complete.
    pub bound: String,
    pub counts: Counts,
}

/// How often a client lost its connection, went on where it was, and read the feed anew.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub lost: u64,
    pub recovered: u64,
    pub anew: u64,
    pub messages: u64,
}

pub struct Watchers {
    pub held: BTreeMap<usize, Arc<Mutex<Held>>>,
    tasks: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl Watchers {
    pub fn start(readers: impl Iterator<Item = usize>, balancer: &Balancer, seed: u64) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let held: BTreeMap<_, _> = readers.map(|reader| (reader, Arc::<Mutex<Held>>::default())).collect();
        let mut tasks = Vec::new();
        for (reader, held) in &held {
            let random = fastrand::Rng::with_seed(seed.wrapping_add(1_000 + *reader as u64));
            let (balancer, held) = (balancer.clone(), held.clone());
            let watcher = Watcher {
                reader: *reader,
                random,
                balancer,
                held,
                session: None,
                is_complete: false,
                meanwhile: Vec::new(),
                after_sequence: 0,
            };
            tasks.push(runtime.spawn(watcher.run()));
        }
        Self { held, tasks, runtime: Some(runtime) }
    }

    /// Fails if a watcher has failed.
    pub fn check(&self) {
        assert!(self.tasks.iter().all(|task| !task.is_finished()), "no watcher has received what it must not");
    }

    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for held in self.held.values() {
            let Counts { lost, recovered, anew, messages } = held.lock().unwrap().counts;
            (sum.lost, sum.recovered) = (sum.lost + lost, sum.recovered + recovered);
            (sum.anew, sum.messages) = (sum.anew + anew, sum.messages + messages);
        }
        sum
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

struct Watcher {
    reader: usize,
    random: fastrand::Rng,
    balancer: Balancer,
    held: Arc<Mutex<Held>>,
    /// The epoch, and the number of the last message.
    session: Option<(String, u64)>,
    /// False until the feed was read in this session.
    is_complete: bool,
    /// The messages since the first attempt to read it.
    meanwhile: Vec<Value>,
    /// The sequence that pages must have at least.
    after_sequence: u64,
}

/// Why a connection ended.
struct Lost;

impl Watcher {
    async fn run(mut self) {
        loop {
            let Lost = self.watch().await;
            self.held.lock().unwrap().counts.lost += 1;
            sleep(Duration::from_millis(self.random.u64(20..200))).await;
        }
    }

    async fn watch(&mut self) -> Lost {
        let Some(mut socket) = self.connect().await else { return Lost };
        loop {
            while !self.is_complete {
                if self.read(&mut socket).await.is_none() {
                    return Lost;
                }
            }
            let Some(message) = next(&mut socket).await else { return Lost };
            self.take(&message);
        }
    }

    async fn connect(&mut self) -> Option<WebSocketStream<TcpStream>> {
        let address: SocketAddr =
            self.balancer.any_url(&mut self.random).trim_start_matches("http://").parse().unwrap();
        let place = self.session.as_ref().map(|(epoch, seq)| format!("?epoch={epoch}&seq={seq}")).unwrap_or_default();
        let path = format!("/v1/users/reader-{}/live{place}", self.reader);
        let mut socket = timeout(CONNECT_MAX, open(address, &path)).await.ok()?.ok()?;
        let hello = timeout(CONNECT_MAX, next(&mut socket)).await.ok()??;
        assert_eq!(hello["type"], "hello", "reader-{}", self.reader);
        self.after_sequence = hello["after_sequence"].as_u64().unwrap();
        let session = Some((hello["epoch"].as_str().unwrap().to_owned(), hello["seq"].as_u64().unwrap()));
        let mut held = self.held.lock().unwrap();
        if hello["recovered"] == true {
            assert_eq!(session, self.session, "reader-{}: exactly what is missing follows", self.reader);
            held.counts.recovered += 1;
        } else {
            (self.session, self.is_complete) = (session, false);
            self.meanwhile.clear();
            held.counts.anew += 1;
        }
        Some(socket)
    }

    /// Reads the newest page. The messages that arrive meanwhile are applied after it.
    async fn read(&mut self, socket: &mut WebSocketStream<TcpStream>) -> Option<()> {
        let url = format!("{}/v1/users/reader-{}/feed?limit=100", self.balancer.any_url(&mut self.random), self.reader);
        let after = self.after_sequence;
        let mut page = tokio::task::spawn_blocking(move || Client::new().get_after(after, &url));
        let page = loop {
            tokio::select! {
                page = &mut page => break page.unwrap(),
                message = next(socket) => {
                    let message = self.take(&message?);
                    self.meanwhile.push(message);
                }
            }
        };
        let page = match page {
            Outcome::Done(Done { status: 200, body, .. }) if body["partial"] == json!([]) => body,
            // A page without the old posts of a slow archive is short: they are on later pages.
            _ => {
                sleep(READ_AGAIN_AFTER).await;
                return Some(());
            }
        };
        let mut held = self.held.lock().unwrap();
        held.entries.clear();
        page["next"].as_str().unwrap_or(BELOW_ALL).clone_into(&mut held.bound);
        page["items"].as_array().unwrap().iter().for_each(|item| held.put(item));
        // One of them may ask to read again.
        self.is_complete = true;
        for message in self.meanwhile.drain(..) {
            self.is_complete &= held.apply(&message);
        }
        Some(())
    }

    fn take(&mut self, message: &Value) -> Value {
        let (_, seq) = self.session.as_mut().unwrap();
        *seq += 1;
        assert_eq!(message["seq"], *seq, "reader-{}: numbers count up by one", self.reader);
        let mut held = self.held.lock().unwrap();
        held.counts.messages += 1;
        self.is_complete &= held.apply(message);
        message.clone()
    }
}

impl Held {
    /// Returns false if the feed must be read again.
    fn apply(&mut self, message: &Value) -> bool {
        match message["type"].as_str().unwrap() {
            "post" => self.put(&message["item"]),
            "remove" => self.remove(&message["post"]),
            "update" => {
                let (id, text) = entry(message);
                let entry = self.entries.values_mut().find(|(other, _)| *other == id);
                entry.into_iter().for_each(|(_, held)| text.clone_into(held));
            }
            "marker" => {}
            "stale" => {
                self.entries.clear();
                ABOVE_ALL.clone_into(&mut self.bound);
                return false;
            }
            other => panic!("a message of the type {other}"),
        }
        self.entries = self.entries.split_off(&self.bound);
        true
    }

    fn remove(&mut self, id: &Value) {
        let id: u64 = id.as_str().unwrap().parse().unwrap();
        self.entries.retain(|_, (other, _)| *other != id);
    }

    fn put(&mut self, item: &Value) {
        self.remove(&item["post"]["id"]);
        let (id, text) = entry(item);
        self.entries.insert(item["cursor"].as_str().unwrap().to_owned(), (id, text.to_owned()));
    }
}

/// Returns the next message, except for beats, or none if the connection is lost.
async fn next(socket: &mut WebSocketStream<TcpStream>) -> Option<Value> {
    loop {
        match timeout(SILENCE_MAX, socket.next()).await.ok()?? {
            Ok(Message::Text(text)) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] != "beat" {
                    return Some(message);
                }
            }
            Ok(Message::Ping(_)) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}
