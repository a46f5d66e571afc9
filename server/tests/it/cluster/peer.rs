//! Nodes that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use testkit::DEADLINE;

/// What a node does once it has read the head of a request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It never answers.
    Hangs,
    /// It closes the connection.
    Closes,
    /// It sends this much of an answer and closes the connection.
    Breaks(&'static str),
}

/// A node that misbehaves.
pub struct Peer {
    pub url: String,
    requests: Arc<AtomicUsize>,
    gone: mpsc::Receiver<()>,
}

impl Peer {
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, (notify, gone)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (counted, notify) = (Arc::clone(&counted), notify.clone());
                thread::spawn(move || answer(stream, fault, &counted, &notify));
            }
        });
        Self { url, requests, gone }
    }

    /// The number of requests that have come.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Waits until a node that never answers is left by who asked it.
    pub fn is_left(&self) -> bool {
        self.gone.recv_timeout(DEADLINE).is_ok()
    }
}

fn answer(mut stream: TcpStream, fault: Fault, requests: &AtomicUsize, gone: &mpsc::Sender<()>) {
    let (mut read, mut bytes) = (Vec::new(), [0; 4_096]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => read.extend_from_slice(&bytes[..count]),
            _ => return,
        }
    }
    requests.fetch_add(1, Ordering::Relaxed);
    match fault {
        Fault::Hangs => {
            while matches!(stream.read(&mut bytes), Ok(count) if count > 0) {}
            let _ = gone.send(());
        }
        Fault::Closes => {}
        Fault::Breaks(part) => {
            stream.write_all(part.as_bytes()).unwrap();
        }
    }
}
