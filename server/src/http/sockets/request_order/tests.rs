//! Tests of deferred requests, with clients that send without end.
#![cfg(test)]

use super::*;
use crate::http::sockets::connection_slots::connection_state::UnderWay;
use crate::http::sockets::connection_slots::{ConnectionLimits, ConnectionSlot, Connections};
use tidewire::limits::{PIPELINED_BYTES_IN_ALL_MAX, PIPELINED_BYTES_MAX};

const READ_BYTES: usize = 32 * 1024;

/// A client that sends a request, and then the same byte forever.
struct Endless {
    begin: &'static [u8],
    byte: u8,
}

impl AsyncRead for Endless {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let begin = std::mem::take(&mut self.begin);
        into.put_slice(begin);
        if begin.is_empty() {
            let rest = into.remaining();
            into.put_slice(&vec![self.byte; rest]);
        }
        Poll::Ready(Ok(()))
    }
}

struct Connection {
    queue: RequestOrder<Endless>,
    slot: ConnectionSlot,
}

impl Connection {
    fn new(connections: &Arc<Connections>, begin: &'static str, byte: u8) -> Self {
        let slot = connections.enter(None).unwrap();
        let socket = Endless { begin: begin.as_bytes(), byte };
        Self { queue: RequestOrder::new(socket, Arc::clone(slot.state())), slot }
    }

    /// Reads until the socket accepts nothing more.
    fn read(&mut self) -> (usize, Poll<io::Result<()>>) {
        let (mut bytes, mut task) = (0, Context::from_waker(std::task::Waker::noop()));
        loop {
            let mut buffer = vec![0; READ_BYTES];
            let mut into = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.queue).poll_read(&mut task, &mut into) {
                Poll::Ready(Ok(())) => bytes += into.filled().len(),
                other => return (bytes, other),
            }
        }
    }

    /// Reads the first request and marks it as in progress.
    fn begin(&mut self) -> UnderWay {
        let mut buffer = vec![0; READ_BYTES];
        let mut into = ReadBuf::new(&mut buffer);
        let read = Pin::new(&mut self.queue).poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut into);
        assert!(matches!(read, Poll::Ready(Ok(()))) && !into.filled().is_empty());
        self.slot.state().begin().unwrap()
    }
}

fn connections(all: usize) -> Arc<Connections> {
    Arc::new(Connections::new(ConnectionLimits::of(all)))
}

const GET: &str = "GET / HTTP/1.1\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n";

#[test]
fn an_evicted_connection_fails_even_while_its_reads_are_paused() {
    let connections = connections(1);
    let mut connection = Connection::new(&connections, POST, b'x');
    drop(connection.begin());
    let (taken, read) = connection.read();
    assert!(read.is_pending() && (UNREAD_BYTES_MAX..=UNREAD_BYTES_MAX + READ_BYTES).contains(&taken), "{taken}");
    let _other = connections.enter(None).unwrap();
    assert!(connection.slot.state().is_ended());
    assert!(matches!(connection.read(), (0, Poll::Ready(Err(_)))), "it keeps its socket");
}

#[test]
fn the_buffered_bytes_of_all_connections_are_limited() {
    const MANY: usize = 2 * PIPELINED_BYTES_IN_ALL_MAX / PIPELINED_BYTES_MAX;
    let connections = connections(MANY);
    let mut all: Vec<_> = (0..MANY).map(|_| Connection::new(&connections, GET, b'x')).collect();
    let mut busy: Vec<_> = all.iter_mut().map(Connection::begin).collect();
    assert!(all.iter_mut().all(|connection| connection.read().1.is_pending()));
    let buffered = |all: &[Connection]| all.iter().map(|connection| connection.queue.buffered.len()).sum::<usize>();
    let most = PIPELINED_BYTES_IN_ALL_MAX + READ_BYTES;
    assert!((PIPELINED_BYTES_IN_ALL_MAX..=most).contains(&buffered(&all)), "{} bytes are held", buffered(&all));
    assert_eq!(connections.buffered_bytes(), buffered(&all));
    // A connection whose request is answered continues, even if the other connections buffer too much.
    drop(busy.pop());
    let last = all.last_mut().unwrap();
    assert!(last.queue.buffered.is_empty() && last.queue.may_begin());
    let mut buffer = vec![0; READ_BYTES];
    let mut into = ReadBuf::new(&mut buffer);
    let read = Pin::new(&mut last.queue).poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut into);
    assert!(matches!(read, Poll::Ready(Ok(()))) && into.filled().len() == READ_BYTES);
    drop((busy, all));
    assert_eq!(connections.buffered_bytes(), 0, "nothing is counted of those that have gone");
}
