//! A client over a real socket that keeps a feed, as `docs/live.md` says it should, and comes back as often as it must.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::future::ready;
use serde_json::Value;
use testkit::{DEADLINE, PageCount, eventually_async, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::live::client::{Next, open};

// Bounds are cursors, which compare as text; these are above and below all of them.
const ABOVE_ALL: &str = "\u{ffff}";
const BELOW_ALL: &str = "";

/// Where a client is: the epoch, and the number of the last message.
pub type Session = (String, u64);

pub struct FeedClient {
    pub reader: String,
    pub session: Option<Session>,
    /// How often it came back and got what it had missed.
    pub recovered: usize,
    /// How often it had to read the feed, the first time among them.
    pub anew: usize,
    /// How often it was refused for a while.
    pub refused: usize,
    socket: Option<WebSocketStream<TcpStream>>,
    entries: BTreeMap<String, Value>,
    bound: String,
}

impl FeedClient {
    pub fn new(reader: &str) -> Self {
        Self {
            reader: reader.to_owned(),
            session: None,
            recovered: 0,
            anew: 0,
            refused: 0,
            socket: None,
            entries: BTreeMap::new(),
            bound: ABOVE_ALL.to_owned(),
        }
    }

    /// Connects, where it was if it was anywhere, and reads the feed if that is needed.
    pub async fn come(&mut self, address: SocketAddr) {
        let hello = self.connect(address).await;
        let session = (hello["epoch"].as_str().unwrap().to_owned(), hello["seq"].as_u64().unwrap());
        if hello["recovered"] == true {
            assert_eq!(Some(&session), self.session.as_ref(), "{}: exactly what is missing follows", self.reader);
            self.recovered += 1;
        } else {
            self.session = Some(session);
            self.anew += 1;
            self.read(address).await;
        }
    }

    /// Loses its connection.
    pub fn go(&mut self) {
        self.socket = None;
    }

    /// Takes in what is told until then, and what is there by then, or until it is closed: then with which code.
    pub async fn listen(&mut self, until: impl Future<Output = ()>) -> Option<u16> {
        let mut until = pin!(until);
        loop {
            let next = tokio::select! {
                biased;
                next = next(self.socket.as_mut().unwrap()) => next,
                () = &mut until => return None,
            };
            match next {
                Next::Message(message) => drop(self.take_in(message)),
                Next::Closed(code) => {
                    self.go();
                    return Some(code);
                }
            }
        }
    }

    /// Waits until it has what pages show, which must not change any more.
    pub async fn settle(&mut self, address: SocketAddr) {
        eventually_async("a client has what pages show", async || {
            assert_eq!(self.listen(ready(())).await, None, "{}", self.reader);
            let pages = self.pages(address).await;
            if self.entries.values().rev().eq(&pages) {
                return Ok(());
            }
            let (told, session, bound) = (self.entries.values().rev(), &self.session, &self.bound);
            let told: Vec<_> = told.cloned().collect();
            Err(format!("{} at {session:?}, from {bound:?} up: {told:?}, not {pages:?}", self.reader))
        })
        .await;
    }

    /// Returns the first message.
    async fn connect(&mut self, address: SocketAddr) -> Value {
        let place = self.session.as_ref().map(|(epoch, seq)| format!("?epoch={epoch}&seq={seq}")).unwrap_or_default();
        let path = format!("/v1/users/{}/live{place}", self.reader);
        let mut socket = eventually_async("a client is let in", async || match open(address, &path).await {
            Ok(socket) => Some(socket),
            Err(Error::Http(answer)) if answer.status() == 503 => {
                self.refused += 1;
                None
            }
            Err(cause) => panic!("{}: {cause}", self.reader),
        })
        .await;
        let hello = timeout(DEADLINE, next(&mut socket)).await;
        let Ok(Next::Message(hello)) = hello else { panic!("{} is greeted: {hello:?}", self.reader) };
        assert_eq!(hello["type"], "hello", "{}", self.reader);
        self.socket = Some(socket);
        hello
    }

    /// Reads the newest page. What is told meanwhile is applied on top of it.
    async fn read(&mut self, address: SocketAddr) {
        self.entries.clear();
        self.bound = ABOVE_ALL.to_owned();
        let path = format!("/v1/users/{}/feed?limit=10", self.reader);
        let (mut page, mut since) = (pin!(get(address, &path)), Vec::new());
        let page = loop {
            let socket = self.socket.as_mut().unwrap();
            tokio::select! {
                page = &mut page => break page,
                next = next(socket) => {
                    let Next::Message(message) = next else { panic!("{}: {next:?}", self.reader) };
                    since.push(self.take_in(message));
                }
            }
        };
        page["next"].as_str().unwrap_or(BELOW_ALL).clone_into(&mut self.bound);
        items(&page).into_iter().for_each(|item| self.put(item));
        since.into_iter().for_each(|message| self.apply(message));
    }

    fn take_in(&mut self, message: Value) -> Value {
        let (_, seq) = self.session.as_mut().unwrap();
        *seq += 1;
        assert_eq!(message["seq"], *seq, "{}: numbers count up by one", self.reader);
        self.apply(message.clone());
        message
    }

    fn apply(&mut self, mut message: Value) {
        match message["type"].as_str().unwrap() {
            "post" => self.put(message["item"].take()),
            "remove" => self.entries.retain(|_, item| item["post"]["id"] != message["post"]),
            "update" => {
                let is_it = |item: &&mut Value| item["post"]["id"] == message["post"]["id"];
                self.entries.values_mut().filter(is_it).for_each(|item| item["post"] = message["post"].clone());
            }
            "stale" => {
                let below = message["below"].as_str().unwrap_or(ABOVE_ALL).to_owned();
                self.bound = below.max(std::mem::take(&mut self.bound));
            }
            other => panic!("{}: {other}", self.reader),
        }
        self.entries = self.entries.split_off(&self.bound);
    }

    fn put(&mut self, item: Value) {
        self.entries.retain(|_, other| other["post"]["id"] != item["post"]["id"]);
        self.entries.insert(item["cursor"].as_str().unwrap().to_owned(), item);
    }

    /// The feed from the bound up, newest first.
    async fn pages(&self, address: SocketAddr) -> Vec<Value> {
        let (mut feed, mut before) = (Vec::new(), String::new());
        let mut pages = PageCount::default();
        loop {
            pages.count();
            let page = get(address, &format!("/v1/users/{}/feed?limit=100{before}", self.reader)).await;
            feed.extend(items(&page));
            let Some(next) = page["next"].as_str().filter(|next| **next > *self.bound) else { break };
            before = format!("&before={next}");
        }
        feed.retain(|item| item["cursor"].as_str().unwrap() >= self.bound.as_str());
        feed
    }
}

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().unwrap().clone()
}

/// What is told next, but for what keeps the connection alive.
async fn next(socket: &mut WebSocketStream<TcpStream>) -> Next {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] != "beat" {
                    return Next::Message(message);
                }
            }
            Some(Ok(Message::Ping(_))) => {}
            Some(Ok(Message::Close(frame))) => return Next::Closed(frame.map_or(0, |frame| frame.code.into())),
            other => panic!("neither told nor closed: {other:?}"),
        }
    }
}

/// What a server answers. Asked again while it has too much to do.
async fn get(address: SocketAddr, path: &str) -> Value {
    eventually_async(path, async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time("it is answered", stream.read_to_string(&mut answer)).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        if head.starts_with("HTTP/1.1 200 ") {
            return Ok(serde_json::from_str(body).unwrap());
        }
        assert!(head.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
        Err(answer)
    })
    .await
}
