//! The continuous activity of the users of `tidewire demo`, so that the figures of the server change.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use fastrand::Rng;
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Method, Request};

use crate::cli::demo_world::DemoWorld;
use tidewire::feed::post::Draft;
use tidewire::id::SourceId;

/// Interval between two posts.
const PUBLISH_PERIOD: Duration = Duration::from_millis(500);

/// Interval between two pages.
const READ_PERIOD: Duration = Duration::from_millis(50);

/// One in this many pages is of a reader who reads seldom and sleeps in between.
const SELDOM_READ: u32 = 40;

/// Number of posts between two follows or unfollows.
const POSTS_PER_FOLLOW: u64 = 4;

/// Number of posts between two mutes or unmutes.
const POSTS_PER_MUTE: u64 = 10;

/// One in this many posts is a reply to one of the latest posts.
const POSTS_PER_REPLY: u64 = 3;
const REPLIED_LATEST: u64 = 10;

/// Number of posts from one storm of reposts to the next, about a minute. The first storm is after a few seconds.
const POSTS_PER_STORM: u64 = 100;
const FIRST_STORM: u64 = 12;

/// Number of reposts of one storm, and the interval between two of them.
const STORM_REPOSTS: usize = 40;
const STORM_PERIOD: Duration = Duration::from_millis(50);

/// Maximum number of follows and of mutes that the demo has added and not removed again.
const ADDED_FOLLOWS_MAX: usize = 40;
const MUTES_MAX: usize = 10;

/// Maximum number of posts of this run. The demo deletes the oldest ones above it.
const POSTS_MAX: usize = 50_000;

/// Number of users who watch live, the duration of each watch in seconds, and the pause until the next one.
const WATCHERS: u64 = 10;
const WATCH_SECONDS: Range<u64> = 10..60;
const BREAK_SECONDS: Range<u64> = 1..30;

/// Bytes of the receive buffer of the slow client, and the time after which it gives up. The server disconnects it earlier, when its own
/// buffer of half a megabyte is full. This takes about eight minutes.
const SLOW_BUFFER_BYTES: usize = 2_048;
const SLOW_SECONDS: u64 = 540;

/// Pause after a request without an answer.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// The running threads of the demo's users. Dropping it ends them, each after its current request.
pub(crate) struct DemoLoad {
    ended: Arc<AtomicBool>,
}

impl DemoLoad {
    /// Starts the threads of the users, which send their requests to the server at `base`, with `key` if the server has keys.
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub(crate) fn start(world: &DemoWorld, base: String, key: Option<&str>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let agent = Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
        let people =
            People { agent, base, authorization: key.map(|key| format!("Bearer {key}")), ended: ended.clone() };
        let run = |name: String, people: People, mut world: DemoWorld, work: fn(&People, &mut DemoWorld)| {
            thread::Builder::new().name(name).spawn(move || work(&people, &mut world))
        };
        run("demo-authors".to_owned(), people.clone(), world.reseeded(1), author)?;
        run("demo-readers".to_owned(), people.clone(), world.reseeded(2), read)?;
        for nth in 0..WATCHERS {
            run(format!("demo-watcher-{nth}"), people.clone(), world.reseeded(3 + nth), watch)?;
        }
        run("demo-slow-client".to_owned(), people, world.reseeded(3 + WATCHERS), dawdle)?;
        Ok(Self { ended })
    }
}

impl Drop for DemoLoad {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The client that all users share.
#[derive(Clone)]
struct People {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    ended: Arc<AtomicBool>,
}

impl People {
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Sends a request, and returns the answer, even if it is a refusal: these are normal under load. Returns null without an answer.
    fn ask(&self, method: &Method, path: &str, json: Option<&Value>) -> Value {
        let answer = self.send(method, path, json).and_then(|mut answer| answer.body_mut().read_to_string());
        match answer {
            Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
            Err(_) => {
                pause(RETRY_PERIOD);
                Value::Null
            }
        }
    }

    fn send(
        &self,
        method: &Method,
        path: &str,
        json: Option<&Value>,
    ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        match json {
            Some(json) => self.agent.run(request.header(CONTENT_TYPE, "application/json").body(json.to_string())?),
            None => self.agent.run(request.body(())?),
        }
    }

    /// Opens the event stream of a reader without a client library, and reads none of it.
    fn watch_without_reading(&self, reader: &str) -> io::Result<()> {
        let host = self.base.trim_start_matches("http://");
        let address = host.parse::<SocketAddr>().map_err(io::Error::other)?;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Set this before connecting, because TCP then announces the size of the buffer to the server.
        socket.set_recv_buffer_size(SLOW_BUFFER_BYTES)?;
        socket.connect(&address.into())?;
        let mut connection = TcpStream::from(socket);
        let authorization =
            self.authorization.iter().map(|key| format!("Authorization: {key}\r\n")).collect::<String>();
        write!(connection, "GET /v1/users/{reader}/events HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n")?;
        let until = Instant::now() + Duration::from_secs(SLOW_SECONDS);
        while Instant::now() < until && !self.is_over() {
            pause(RETRY_PERIOD);
        }
        Ok(())
    }

    /// Publishes a post. Returns its id if it was accepted.
    fn publish(&self, post: &Value) -> Option<String> {
        let answer = self.ask(&Method::POST, "/v1/posts", Some(post));
        answer.get("id")?.as_str().map(str::to_owned)
    }
}

/// Publishes, replies, follows, unfollows, mutes and reposts.
fn author(people: &People, world: &mut DemoWorld) {
    let mut posts: VecDeque<String> = VecDeque::new();
    let (mut follows, mut mutes) = (VecDeque::new(), VecDeque::new());
    let mut latest_of_celebrity = None;
    for nth in 1_u64.. {
        if people.is_over() {
            return;
        }
        let draft = world.post();
        let reply_to = (nth.is_multiple_of(POSTS_PER_REPLY) && !posts.is_empty())
            .then(|| &posts[posts.len() - 1 - world.number(0..REPLIED_LATEST.min(posts.len() as u64)) as usize]);
        let id = people.publish(&new_post(&draft, reply_to));
        if draft.author == *world.celebrity() {
            latest_of_celebrity = id.clone().or(latest_of_celebrity);
        }
        posts.extend(id);
        if nth.is_multiple_of(POSTS_PER_FOLLOW) {
            add_or_take_back(people, world, "following", &mut follows, ADDED_FOLLOWS_MAX);
        }
        if nth.is_multiple_of(POSTS_PER_MUTE) {
            add_or_take_back(people, world, "mutes", &mut mutes, MUTES_MAX);
        }
        if nth % POSTS_PER_STORM == FIRST_STORM
            && let Some(post) = latest_of_celebrity.clone().or(posts.back().cloned())
        {
            posts.extend(repost(people, world, &post));
        }
        while posts.len() > POSTS_MAX {
            let oldest = posts.pop_front().unwrap_or_default();
            people.ask(&Method::DELETE, &format!("/v1/posts/{oldest}"), None);
        }
        pause(PUBLISH_PERIOD);
    }
}

fn new_post(draft: &Draft, reply_to: Option<&String>) -> Value {
    let body: Value = serde_json::from_str(draft.body.as_str()).unwrap_or_default();
    let tags: Vec<&str> = draft.tags.iter().filter_map(SourceId::tag_name).collect();
    let mut post = json!({"author": draft.author, "body": body, "tags": tags});
    if let Some(answered) = reply_to {
        post["reply_to"] = json!(answered);
    }
    post
}

/// Adds an entry to the list of a random reader, and removes the oldest added one if there are already `most`. It does not remove entries
/// of the start, because those follows would become fewer and fewer.
fn add_or_take_back(people: &People, world: &mut DemoWorld, list: &str, added: &mut VecDeque<String>, most: usize) {
    if added.len() == most
        && let Some(path) = added.pop_front()
    {
        people.ask(&Method::DELETE, &path, None);
    }
    let (reader, source) = (world.frequent_reader(), world.somebody());
    if reader != source {
        let path = format!("/v1/users/{reader}/{list}/{source}");
        if people.ask(&Method::PUT, &path, None)["created"] == true {
            added.push_back(path);
        }
    }
}

/// Reposts the same post by many users within seconds. Returns the ids of the reposts.
fn repost(people: &People, world: &mut DemoWorld, post: &str) -> Vec<String> {
    let mut reposts = Vec::with_capacity(STORM_REPOSTS);
    for user in world.frequent_readers(STORM_REPOSTS) {
        let repost = json!({"author": user, "body": {"text": "Have you seen this?"}, "repost_of": post});
        reposts.extend(people.publish(&repost));
        pause(STORM_PERIOD);
    }
    reposts
}

/// Reads pages: mostly the newest one, sometimes also the one below it, and moves the marker of the reader.
fn read(people: &People, world: &mut DemoWorld) {
    let mut draw = Rng::with_seed(7);
    while !people.is_over() {
        let reader = if draw.u32(..SELDOM_READ) == 0 { world.seldom_reader() } else { world.frequent_reader() };
        let feed = format!("/v1/users/{reader}/feed?limit=20");
        let page = people.ask(&Method::GET, &feed, None);
        if draw.u8(..8) == 0
            && let Some(next) = page["next"].as_str()
        {
            people.ask(&Method::GET, &format!("{feed}&before={next}"), None);
        }
        if draw.u8(..16) == 0
            && let Some(newest) = page["newest"].as_str()
        {
            people.ask(&Method::PUT, &format!("/v1/users/{reader}/marker"), Some(&json!({"cursor": newest})));
        }
        pause(READ_PERIOD);
    }
}

/// Watches the feeds of different readers one after the other, each for some time.
fn watch(people: &People, world: &mut DemoWorld) {
    while !people.is_over() {
        let reader = world.frequent_reader();
        let until = Instant::now() + Duration::from_secs(world.number(WATCH_SECONDS));
        let Ok(answer) = people.send(&Method::GET, &format!("/v1/users/{reader}/events"), None) else {
            pause(RETRY_PERIOD);
            continue;
        };
        let mut lines = BufReader::new(answer.into_body().into_reader());
        let mut line = Vec::new();
        while Instant::now() < until && lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            line.clear();
        }
        // Closes the connection.
        drop(lines);
        pause(Duration::from_secs(world.number(BREAK_SECONDS)));
    }
}

/// Watches a busy feed without reading, so that the server disconnects it.
fn dawdle(people: &People, world: &mut DemoWorld) {
    while !people.is_over() {
        // After the server has disconnected the client, it waits and connects again.
        let _ = people.watch_without_reading(world.slow_reader().as_str());
        pause(Duration::from_secs(world.number(BREAK_SECONDS)));
    }
}

#[expect(clippy::disallowed_methods, reason = "these are threads of the demo's clients, not of actors")]
fn pause(time: Duration) {
    thread::sleep(time);
}
