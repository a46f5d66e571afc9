//! Measures the work of one page: `scripts/page_cost.sh` runs this under valgrind, which counts instructions.
//!
//! `page_cost embedded PAGES` reads pages of awake readers from an engine in this process. `page_cost http PAGES` and `page_cost resp PAGES`
//! serve them to a client in another process, which valgrind does not count. Without arguments it does all with few pages.
//!
//! The allocator is the system's, because valgrind counts its blocks.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::event::NewEdge;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;
use tidewire_server::http::serve::{self, Listeners};
use tidewire_server::http::state::HttpState;

const READERS: usize = 50;
const AUTHORS: usize = 40;
const POSTS: usize = 600;
const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 20 };

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["embedded", pages] => embedded(pages.parse().unwrap()),
        [protocol @ ("http" | "resp"), pages] => served(protocol, pages.parse().unwrap()),
        ["client", protocol, address, pages] => client(protocol, address.parse().unwrap(), pages.parse().unwrap()),
        _ => {
            embedded(10);
            served("http", 10);
            served("resp", 10);
        }
    }
}

fn id(kind: char, number: usize) -> SourceId {
    SourceId::new(&format!("{kind}{number}")).unwrap()
}

/// Starts an engine with awake readers who follow half of the authors.
async fn world() -> Engine {
    let engine = Engine::start(EngineConfig { shards: NonZeroUsize::MIN, ..EngineConfig::default() });
    let edge = |nth: usize| NewEdge::new(id('r', nth / AUTHORS), id('a', nth % AUTHORS));
    engine.follow((0..READERS * AUTHORS).step_by(2).map(edge).collect()).await.unwrap();
    for nth in 0..POSTS {
        let body = format!(
            r#"{{"text":"post {nth}, of about a hundred bytes in all, which is what short messages have: {nth}"}}"#
        );
        engine.publish(Draft::new(id('a', nth % AUTHORS), Body::new(&body).unwrap()), true).await.unwrap();
    }
    for nth in 0..READERS {
        let page = engine.feed(&id('r', nth), NEWEST).await.unwrap().page;
        assert_eq!(page.items.len(), NEWEST.limit);
    }
    engine
}

fn embedded(pages: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let readers: Vec<SourceId> = (0..READERS).map(|nth| id('r', nth)).collect();
    let engine = runtime.block_on(async {
        let engine = world().await;
        for nth in 0..pages {
            let page = engine.feed(&readers[nth % READERS], NEWEST).await.unwrap().page;
            assert_eq!(page.items.len(), NEWEST.limit);
        }
        engine
    });
    println!("{pages} pages embedded");
    engine.shutdown();
}

fn served(protocol: &str, pages: usize) {
    let (started, is_started) = mpsc::channel();
    let server = thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let bind = || serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let (engine, http, resp) = (world().await, bind(), bind());
            let addresses = (http.local_addr().unwrap(), resp.local_addr().unwrap());
            let listeners = Listeners { http, resp: Some(resp) };
            let server = serve::server(HttpState::from(engine.clone()), listeners, 1).unwrap();
            started.send((addresses, server.handle())).unwrap();
            server.await.unwrap();
            engine.shutdown();
        });
    });
    let ((http, resp), handle) = is_started.recv().unwrap();
    let address = if protocol == "http" { http } else { resp };
    let client = ["client", protocol, &address.to_string(), &pages.to_string()].map(String::from);
    let ended = Command::new(env::current_exe().unwrap()).args(client).status().unwrap();
    assert!(ended.success());
    println!("{pages} pages over {protocol}");
    actix_web::rt::System::new().block_on(handle.stop(true));
    server.join().unwrap();
}

/// Reads pages one after the other over one connection.
fn client(protocol: &str, address: SocketAddr, pages: usize) {
    let mut server = TcpStream::connect(address).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut answer, mut part) = (Vec::new(), [0; 16 * 1024]);
    let length = if protocol == "http" { length_of_http } else { length_of_resp };
    for nth in 0..pages {
        let reader = nth % READERS;
        let request = match protocol {
            "http" => format!("GET /v1/users/r{reader}/feed?limit=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            _ => format!("FEED.GET r{reader} COUNT 20\r\n"),
        };
        server.write_all(request.as_bytes()).unwrap();
        answer.clear();
        while length(&answer) != Some(answer.len()) {
            let bytes = server.read(&mut part).unwrap();
            assert!(bytes > 0, "the server closed the connection");
            answer.extend_from_slice(&part[..bytes]);
        }
        let is_page = answer.starts_with(b"HTTP/1.1 200 ") || answer.starts_with(b"$");
        assert!(is_page, "{}", String::from_utf8_lossy(&answer));
    }
}

/// Returns the bytes of an answer, once its head is there.
fn length_of_http(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).unwrap();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    Some(head + 4 + length.parse::<usize>().unwrap())
}

/// Returns the bytes of a reply, once its head is there.
fn length_of_resp(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(2).position(|window| window == b"\r\n")?;
    let text = std::str::from_utf8(&answer[1..head]).unwrap();
    Some(head + 4 + text.parse::<usize>().unwrap())
}
