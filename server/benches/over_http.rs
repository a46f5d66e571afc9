//! Measures acknowledged publishes over HTTP, with and without a consumer of the change stream, and single and bulk requests for posts.
//!
//! `cargo bench -p tidewire-server --bench over_http -- [PART] [DIRECTORY] [SECONDS] [ROUNDS]`: PART is `changes` or `bulk` [default:
//! both]; DIRECTORY selects the disk [default: the directory of temporary files]; SECONDS is the duration of each case in a round [default:
//! 3]; ROUNDS is the number of rounds [default: 7]. The cases of a round take turns, and the output is the median of the rounds.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::NewEdge;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::SourceId;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLIENTS: usize = 64;

const POLICIES: [(&str, Durability); 2] = [("always", Durability::Always), ("everysec", Durability::EverySecond)];

/// Number of clients that publish in bulk at the same time.
const BULK_CLIENTS: usize = 8;

/// Numbers of posts in one bulk request.
const SIZES: [usize; 4] = [1, 10, 100, 1_000];

struct Options {
    place: PathBuf,
    lasts: Duration,
    rounds: usize,
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (parts, rest): (Vec<_>, Vec<_>) = asked.into_iter().partition(|asked| ["changes", "bulk"].contains(&&**asked));
    let mut rest = rest.into_iter();
    let place = rest.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = rest.next().map_or(3.0, |seconds| seconds.parse().unwrap());
    let rounds = rest.next().map_or(7, |rounds| rounds.parse().unwrap());
    let lasts = if is_bench { Duration::from_secs_f64(seconds) } else { Duration::from_millis(20) };
    let options = Options { place, lasts, rounds: if is_bench { rounds } else { 1 } };
    let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if is_asked("changes") {
            changes(&options).await;
        }
        if is_asked("bulk") {
            bulk(&options).await;
        }
    });
}

/// A server on its own port.
struct Server {
    engine: Engine,
    address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(directory: &Path, durability: Durability) -> Self {
        let journal = JournalOptions { durability, ..JournalOptions::default() };
        let storage = StorageConfig { directory: directory.to_owned(), journal, ..StorageConfig::default() };
        let progress = RecoveryProgress::default();
        let (engine, _) = Engine::open(EngineConfig::default(), &storage, Arc::new(SystemClock), &progress).unwrap();
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (address, state) = (listener.local_addr().unwrap(), HttpState::from(engine.clone()));
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = serve::server(state, listener, 2).unwrap();
                tell.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        Self { engine, address, handle: told.recv().unwrap(), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.engine.stop_live();
        let handle = self.handle.clone();
        let stop = move || actix_web::rt::System::new().block_on(handle.stop(false));
        let _ = thread::spawn(stop).join();
        let _ = self.thread.take().map(thread::JoinHandle::join);
        self.engine.shutdown();
    }
}

/// A connection that sends one request after the other.
struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, received: Vec::with_capacity(1 << 16) }
    }

    /// Sends a request, and returns the status and the body of its answer.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, &[u8]) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.socket.peer_addr().unwrap());
        let length = body.len();
        let request = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        self.socket.write_all(request.as_bytes()).await.unwrap();
        self.received.clear();
        let (end, length) = loop {
            assert!(self.socket.read_buf(&mut self.received).await.unwrap() > 0, "the server has closed a connection");
            let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = str::from_utf8(&self.received[..end]).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            break (end + 4, length.unwrap());
        };
        while self.received.len() < end + length {
            assert!(self.socket.read_buf(&mut self.received).await.unwrap() > 0, "an answer is cut short");
        }
        let status = str::from_utf8(&self.received[9..12]).unwrap().parse().unwrap();
        (status, &self.received[end..end + length])
    }
}

fn post(author: usize, nth: u64) -> String {
    format!(
        r#"{{"author":"author-{author}","body":{{"text":"post {nth} has some hundred bytes, as most of them have","lang":"en"}},"tags":["rust"]}}"#
    )
}

/// Publishes with this many clients, each in a closed loop, for a time. Returns the posts per second.
async fn publish(server: &Server, count: usize, lasts: Duration) -> f64 {
    let (mut clients, until) = (JoinSet::new(), Instant::now() + lasts);
    for author in 0..count {
        let mut client = Client::connect(server.address).await;
        clients.spawn(async move {
            let mut count = 0;
            while Instant::now() < until {
                let (status, answer) = client.ask("POST", "/v1/posts", &post(author, count)).await;
                assert_eq!(status, 201, "{}", String::from_utf8_lossy(answer));
                count += 1;
            }
            count
        });
    }
    let (began, mut count) = (Instant::now(), 0);
    while let Some(of_client) = clients.join_next().await {
        count += of_client.unwrap();
    }
    count as f64 / began.elapsed().as_secs_f64()
}

/// A consumer of the change stream on its own thread. Its processor time is counted separately from that of the server and its clients.
struct Consumer {
    is_over: Arc<AtomicBool>,
    /// Returns the number of events, and the processor time in seconds.
    thread: thread::JoinHandle<(u64, f64)>,
}

impl Consumer {
    /// Lines of a server-sent event: `event`, `id`, `data`, and an empty one.
    const LINES: u64 = 4;

    fn start(address: SocketAddr, types: &str) -> Self {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let head = format!("Host: {address}\r\nAccept: text/event-stream\r\n");
        socket.write_all(format!("GET /v1/changes{types} HTTP/1.1\r\n{head}\r\n").as_bytes()).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut piece, mut lines) = (vec![0; 1 << 16], 0);
            while !over.load(Ordering::Relaxed) {
                let Ok(read) = socket.read(&mut piece) else { continue };
                lines += piece[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            }
            (lines / Self::LINES, processor_seconds("thread-self"))
        });
        Self { is_over, thread }
    }

    fn stop(self) -> (u64, f64) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the processor time so far of this process (`self`) or of this thread (`thread-self`), in seconds.
fn processor_seconds(of: &str) -> f64 {
    /// Clock ticks in a second, as `/proc` has them.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}

/// No consumer, a consumer of all events, one whose filter matches none of them, and one of missed posts of sleeping readers.
const CONSUMERS: [Option<&str>; 4] = [None, Some(""), Some("?types=erased"), Some("?types=missed")];

/// Creates a sleeping reader for each client, who follows its author and has the rule `notify` for missed posts.
async fn add_sleepers(engine: &Engine) {
    for author in 0..CLIENTS {
        let id = |text: &str| SourceId::new(&format!("{text}-{author}")).unwrap();
        engine.follow(vec![NewEdge::new(id("sleeper"), id("author"))]).await.unwrap();
        let rules = RulesPatch { notify: Some(true), ..RulesPatch::default() };
        engine.change_rules(id("sleeper"), rules).await.unwrap();
    }
}

/// The measurements of one case in each round.
#[derive(Default)]
struct Case {
    rates: Vec<f64>,
    /// Processor time of the server and its clients for each post, in microseconds. It depends less on other load of the machine than the
    /// rate.
    us_per_post: Vec<f64>,
    received: Vec<f64>,
    /// Processor time of the consumer for each post, in microseconds.
    consumer_us_per_post: Vec<f64>,
}

async fn changes(options: &Options) {
    println!(
        "posts/s acknowledged by {CLIENTS} clients over HTTP, and processor time for each post: of server and clients, and of the consumer"
    );
    println!("| durability | consumer | posts/s | us a post | cost | us of the consumer | events/s received |");
    println!("|---|---|---|---|---|---|---|");
    for (name, durability) in POLICIES {
        let directory = tempfile::tempdir_in(&options.place).unwrap();
        let server = Server::start(directory.path(), durability);
        add_sleepers(&server.engine).await;
        publish(&server, CLIENTS, options.lasts).await;
        let mut cases: [Case; CONSUMERS.len()] = Default::default();
        for round in 0..options.rounds {
            for turn in 0..CONSUMERS.len() {
                let nth = (round + turn) % CONSUMERS.len();
                let (before, began) = (processor_seconds("self"), Instant::now());
                let consumer = CONSUMERS[nth].map(|types| Consumer::start(server.address, types));
                let rate = publish(&server, CLIENTS, options.lasts).await;
                let (events, of_consumer) = consumer.map(Consumer::stop).unwrap_or_default();
                let (took, lasted) = (processor_seconds("self") - before, began.elapsed().as_secs_f64());
                let (case, us) = (&mut cases[nth], |seconds: f64| seconds * 1e6 / (rate * lasted));
                case.rates.push(rate);
                case.us_per_post.push(us(took - of_consumer));
                case.consumer_us_per_post.push(us(of_consumer));
                case.received.push(events as f64 / lasted);
            }
        }
        let without = median(&mut cases[0].us_per_post);
        for (consumer, case) in CONSUMERS.iter().zip(&mut cases) {
            let (rate, us) = (median(&mut case.rates), median(&mut case.us_per_post));
            let (received, of_consumer) = (median(&mut case.received), median(&mut case.consumer_us_per_post));
            let (of, cost) =
                (consumer.map_or("none".to_owned(), |types| format!("`{types}`")), (us / without - 1.0) * 100.0);
            println!("| {name} | {of} | {rate:.0} | {us:.1} | {cost:.1} % | {of_consumer:.1} | {received:.0} |");
        }
    }
}

/// Publishes posts in requests of this size, with `clients` clients, and returns posts per second.
async fn publish_many(server: &Server, clients: usize, size: usize, lasts: Duration) -> f64 {
    let (mut tasks, until) = (JoinSet::new(), Instant::now() + lasts);
    for author in 0..clients {
        let mut client = Client::connect(server.address).await;
        tasks.spawn(async move {
            let mut count = 0;
            while Instant::now() < until {
                let posts: Vec<String> = (0..size as u64).map(|nth| post(author, count + nth)).collect();
                let body = format!(r#"{{"posts":[{}]}}"#, posts.join(","));
                let (status, answer) = client.ask("POST", "/v1/posts/batch", &body).await;
                assert_eq!(status, 200, "a batch was refused");
                // The server refuses posts that the journal cannot store in time. The rate counts only the other posts.
                count += String::from_utf8_lossy(answer).matches(r#""created":true"#).count() as u64;
            }
            count
        });
    }
    let (began, mut count) = (Instant::now(), 0);
    while let Some(of_client) = tasks.join_next().await {
        count += of_client.unwrap();
    }
    count as f64 / began.elapsed().as_secs_f64()
}

/// Reads posts in requests of this size, and returns posts per second.
async fn read_many(server: &Server, ids: &[String], size: usize, lasts: Duration) -> f64 {
    let mut client = Client::connect(server.address).await;
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < lasts {
        for some in ids.chunks_exact(size) {
            let path =
                if size == 1 { format!("/v1/posts/{}", some[0]) } else { format!("/v1/posts?ids={}", some.join(",")) };
            assert_eq!(client.ask("GET", &path, "").await.0, 200);
            count += size;
        }
    }
    count as f64 / began.elapsed().as_secs_f64()
}

async fn bulk(options: &Options) {
    println!("posts/s acknowledged over HTTP; one client sends one request after the other, or {BULK_CLIENTS} do");
    println!("| durability | clients | single | 1 | 10 | 100 | 1,000 in a request |");
    println!("|---|---|---|---|---|---|---|");
    for (name, durability) in POLICIES {
        for clients in [1, BULK_CLIENTS] {
            let directory = tempfile::tempdir_in(&options.place).unwrap();
            let server = Server::start(directory.path(), durability);
            let mut rates: Vec<Vec<f64>> = vec![Vec::new(); SIZES.len() + 1];
            for _ in 0..options.rounds {
                rates[0].push(publish(&server, clients, options.lasts).await);
                for (nth, size) in SIZES.into_iter().enumerate() {
                    rates[nth + 1].push(publish_many(&server, clients, size, options.lasts).await);
                }
            }
            let rates: Vec<String> = rates.iter_mut().map(|rates| format!("{:.0}", median(rates))).collect();
            println!("| {name} | {clients} | {} |", rates.join(" | "));
        }
    }
    let directory = tempfile::tempdir_in(&options.place).unwrap();
    let server = Server::start(directory.path(), Durability::EverySecond);
    let mut ids = Vec::new();
    let mut client = Client::connect(server.address).await;
    for nth in 0..1_000 {
        let id = (1_000 + nth).to_string();
        let body = post(0, nth).replacen('{', &format!(r#"{{"id":"{id}","#), 1);
        assert_eq!(client.ask("POST", "/v1/posts", &body).await.0, 201);
        ids.push(id);
    }
    println!("posts/s read over HTTP by one client");
    println!("| single | 10 | 100 in a request |");
    println!("|---|---|---|");
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..options.rounds {
        for (size, rates) in [1, 10, 100].into_iter().zip(&mut rates) {
            rates.push(read_many(&server, &ids, size, options.lasts).await);
        }
    }
    let rates = rates.each_mut().map(|rates| format!("{:.0}", median(rates)));
    println!("| {} |", rates.join(" | "));
}
