//! A WebSocket client with little overhead: it reads frames, answers pings, checks message numbers, and notifies a listener.
//!
//! Not responsible for:
//! - the content of messages besides type and number: parsing thousands of JSON messages per post would distort the measurement.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::ready;
use std::time::{Duration, Instant};

use memchr::memmem;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::live::Error;
use crate::live::frames::{Frame, Frames, pong};
use crate::live::numbers::{Numbers, Order};
use crate::operation::User;
use crate::target::tidewire::name;

/// Timeout until the `hello` of a connection.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Number of client addresses: each has about 28,000 ports for one address of the server.
pub(super) const ADDRESSES: u32 = 8;

/// Maximum bytes per read.
const READ_BYTES: usize = 256 * 1024;

/// Maximum bytes of the response to a handshake.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;

/// The close code of a connection that ended without a close frame.
const ABNORMAL: u16 = 1006;

/// The close code of a connection with invalid data.
const PROTOCOL_ERROR: u16 = 1002;

/// Size of the kernel's receive buffer of a client that does not read, in bytes.
const SMALL_BUFFER_BYTES: u32 = 4_096;

/// Segment size over a network in bytes, which is much smaller than over loopback.
const NETWORK_SEGMENT_BYTES: u32 = 1_400;

thread_local! {
    /// A read buffer that all connections share, one after the other.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A WebSocket connection.
pub(super) struct Socket {
    stream: TcpStream,
    frames: Frames,
    heard: Heard,
    listener: Rc<dyn Listener>,
}

/// Receives the events of connections.
pub(super) trait Listener {
    /// A connection received its `nth` post.
    fn on_post(&self, nth: usize, at: Instant);
    /// A message was received, with this order on its connection.
    fn count(&self, order: Order);
    /// A message without a number was received.
    fn count_unnumbered(&self);
    /// A ping was received.
    fn pinged(&self);
    /// A connection was closed with this code.
    fn leave(&self, code: u16);
}

/// The messages received on a connection.
#[derive(Default)]
struct Heard {
    /// The number of `hello` is the first.
    numbers: Numbers,
    posts: usize,
    /// Pongs that are to be sent.
    pongs: Vec<u8>,
    /// The close code, if the connection was closed.
    closed: Option<u16>,
}

/// The reading behaviour of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reads {
    Always,
    /// It stops reading after `hello`. The kernel buffers little for it, as over a network and unlike over loopback.
    NoMore,
}

impl Socket {
    /// Connects a client of a user and waits for `hello`.
    pub(super) async fn open(
        server: SocketAddr,
        user: User,
        reads: Reads,
        listener: Rc<dyn Listener>,
    ) -> Result<Self, Error> {
        let opened = timeout(OPEN_MAX, Self::connect(server, user, reads, listener)).await;
        let opened = opened
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("no hello after {OPEN_MAX:?}"))));
        opened.map_err(|source| Error::Connect { user: name(user), server, source })
    }

    async fn connect(server: SocketAddr, user: User, reads: Reads, listener: Rc<dyn Listener>) -> io::Result<Self> {
        let socket = if server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if reads == Reads::NoMore {
            // With the 64 KiB segments of loopback the kernel would buffer megabytes.
            SockRef::from(&socket).set_tcp_mss(NETWORK_SEGMENT_BYTES)?;
            socket.set_recv_buffer_size(SMALL_BUFFER_BYTES)?;
        }
        // Other addresses than loopback have only one client address.
        if matches!(server.ip(), IpAddr::V4(address) if address.is_loopback()) {
            socket.bind((Ipv4Addr::new(127, 0, 0, 2 + (user % ADDRESSES) as u8), 0).into())?;
        }
        let stream = socket.connect(server).await?;
        let mut socket = Self { stream, frames: Frames::default(), heard: Heard::default(), listener };
        socket.shake_hands(server, user).await?;
        while !socket.heard.numbers.begun() {
            if let Some(code) = socket.heard.closed {
                return Err(io::Error::other(format!("closed with {code}")));
            }
            socket.read().await?;
        }
        Ok(socket)
    }

    async fn shake_hands(&mut self, server: SocketAddr, user: User) -> io::Result<()> {
        let path = format!("/v1/users/{}/live", name(user));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {server}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        let end = loop {
            read_into(&mut self.stream, |bytes| head.extend_from_slice(bytes)).await?;
            if let Some(at) = memmem::find(&head, b"\r\n\r\n") {
                break at + 4;
            }
            if head.len() > HANDSHAKE_BYTES_MAX {
                return Err(io::Error::other(format!("GET {path}: the answer has no end")));
            }
        };
        if !head.starts_with(b"HTTP/1.1 101 ") {
            let answer = String::from_utf8_lossy(&head);
            return Err(io::Error::other(format!("GET {path}: {}", answer.lines().next().unwrap_or_default())));
        }
        self.frames.feed(&head[end..], |frame| self.heard.take(frame, &*self.listener))
    }

    /// Reads until the connection ends.
    pub(super) async fn listen(mut self) {
        let code = loop {
            match self.read().await {
                Ok(()) if !self.heard.pongs.is_empty() => {
                    if self.stream.write_all(&self.heard.pongs).await.is_err() {
                        break ABNORMAL;
                    }
                    self.heard.pongs.clear();
                }
                Ok(()) => {}
                Err(cause) if cause.kind() == io::ErrorKind::InvalidData => break PROTOCOL_ERROR,
                Err(_) => break ABNORMAL,
            }
            if let Some(code) = self.heard.closed {
                break code;
            }
        };
        self.listener.leave(code);
    }

    /// Waits for data and reads what is available.
    async fn read(&mut self) -> io::Result<()> {
        let Self { stream, frames, heard, listener } = self;
        let mut outcome = Ok(());
        read_into(stream, |bytes| outcome = frames.feed(bytes, |frame| heard.take(frame, &**listener))).await?;
        outcome
    }
}

async fn read_into(stream: &mut TcpStream, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    poll_fn(|cx| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into()).into();
            }
            take(buffer.filled());
            Ok(()).into()
        })
    })
    .await
}

impl Heard {
    fn take(&mut self, frame: Frame<'_>, listener: &dyn Listener) {
        match frame {
            Frame::Text(message) => self.message(message, listener),
            Frame::Ping(payload) => {
                listener.pinged();
                pong(payload, &mut self.pongs);
            }
            Frame::Close(code) => self.closed = Some(code),
            Frame::Pong => {}
        }
    }

    fn message(&mut self, message: &[u8], listener: &dyn Listener) {
        // A beat has no event. It repeats the last number.
        if message.starts_with(br#"{"type":"beat""#) {
            return;
        }
        let Some(number) = number_after(message, br#""seq":"#) else {
            return listener.count_unnumbered();
        };
        let is_hello = !self.numbers.begun();
        let order = self.numbers.take(number);
        listener.count(order);
        if !is_hello && order != Order::Again && message.starts_with(br#"{"type":"post""#) {
            listener.on_post(self.posts, Instant::now());
            self.posts += 1;
        }
    }
}

/// Returns the number after the first occurrence of the key.
fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let digits = &text[memmem::find(text, key)? + key.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::audience::Audience;

    #[test]
    fn numbers_are_found_in_messages() {
        let of = |text: &str| number_after(text.as_bytes(), br#""seq":"#);
        assert_eq!(of(r#"{"type":"post","seq":12,"item":{"post":{"body":{"seq":7}}}}"#), Some(12));
        assert_eq!(of(r#"{"type":"stale","seq":0}"#), Some(0));
        for text in ["", r#"{"type":"post"}"#, r#"{"seq":"12"}"#, r#"{"seq":12"#, r#"{"seq":99999999999999999999}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn posts_are_heard_once_and_beats_are_no_messages() {
        let (audience, mut heard) = (Audience::default(), Heard::default());
        for message in [
            r#"{"type":"hello","epoch":"e","seq":4,"recovered":false,"marker":null}"#,
            r#"{"type":"post","seq":5,"item":{}}"#,
            r#"{"type":"beat","seq":5}"#,
            r#"{"type":"update","seq":6,"post":{}}"#,
            r#"{"type":"post","seq":5,"item":{}}"#,
            r#"{"type":"post","seq":9,"item":{}}"#,
            "who knows",
        ] {
            heard.take(Frame::Text(message.as_bytes()), &audience);
        }
        assert_eq!((audience.messages(), heard.posts), (2, 2));
        let reported = ["2 messages lost", "1 messages doubled", "1 messages without a number"].map(str::to_owned);
        assert_eq!(audience.troubles(), (reported.to_vec(), 4));
    }

    #[test]
    fn pings_are_answered_and_closes_remembered() {
        let (audience, mut heard) = (Audience::default(), Heard::default());
        heard.take(Frame::Ping(b"x"), &audience);
        heard.take(Frame::Pong, &audience);
        heard.take(Frame::Close(4008), &audience);
        assert_eq!((audience.pings(), heard.pongs.len(), heard.closed), (1, 7, Some(4008)));
    }
}
