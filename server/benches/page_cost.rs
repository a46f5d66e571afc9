//! Measures the work of one page: `scripts/page_cost.sh` runs this under valgrind, which counts instructions.
//!
//! `page_cost embedded PAGES` reads pages of awake readers from an engine in this process. `page_cost http PAGES` serves them to a client
//! in another process, which valgrind does not count. Without arguments it does both with few pages.
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
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;

const READERS: usize = 50;
const AUTHORS: usize = 40;
const POSTS: usize = 600;
const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 20 };

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["embedded", pages] => embedded(pages.parse().unwrap()),
        ["http", pages] => over_http(pages.parse().unwrap()),
        ["client", address, pages] => client(address.parse().unwrap(), pages.parse().unwrap()),
        _ => {
            embedded(10);
            over_http(10);
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

fn over_http(pages: usize) {
    let (started, is_started) = mpsc::channel();
    let server = thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let (engine, listener) = (world().await, serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap());
            let address = listener.local_addr().unwrap();
            let server = serve::server(HttpState::from(engine.clone()), listener, 1).unwrap();
            started.send((address, server.handle())).unwrap();
            server.await.unwrap();
            engine.shutdown();
        });
    });
    let (address, handle) = is_started.recv().unwrap();
    let client = [String::from("client"), address.to_string(), pages.to_string()];
    let ended = Command::new(env::current_exe().unwrap()).args(client).status().unwrap();
    assert!(ended.success());
    println!("{pages} pages over HTTP");
    actix_web::rt::System::new().block_on(handle.stop(true));
    server.join().unwrap();
}

/// Reads pages one after the other over one connection.
fn client(address: SocketAddr, pages: usize) {
    let mut server = TcpStream::connect(address).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut answer, mut part) = (Vec::new(), [0; 16 * 1024]);
    for nth in 0..pages {
        let reader = nth % READERS;
        let request = format!("GET /v1/users/r{reader}/feed?limit=20 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        server.write_all(request.as_bytes()).unwrap();
        answer.clear();
        while !is_whole(&answer) {
            let bytes = server.read(&mut part).unwrap();
            assert!(bytes > 0, "the server closed the connection");
            answer.extend_from_slice(&part[..bytes]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let text = std::str::from_utf8(&answer[..head]).unwrap();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    answer.len() == head + 4 + length.parse::<usize>().unwrap()
}
