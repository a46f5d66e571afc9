//! A WebSocket client that costs little: it reads frames, answers pings, checks that numbers count up, and tells the audience.
//!
//! Not responsible for:
//! - what the messages say beyond their type and number: reading JSON thousands of times for each post would be measured too.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::ready;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::audience::Audience;

/// How long a connection may take until its `hello`.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Addresses of this side: each has some 28,000 ports for one address of the server.
const ADDRESSES: usize = 8;

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// The close code of a connection that ended without saying so.
const ABNORMAL: u16 = 1006;

/// The close code of one that sent what cannot be read.
const PROTOCOL_ERROR: u16 = 1002;

thread_local! {
    /// All connections read into the same memory, one after the other.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

pub struct Socket {
    stream: TcpStream,
    frames: Frames,
    heard: Heard,
    audience: Rc<Audience>,
}

/// What a connection has heard so far.
#[derive(Default)]
struct Heard {
    /// The number of the last message; that of `hello` is the first.
    seq: Option<u64>,
    posts: usize,
    /// Answers to pings that are to be sent.
    pongs: Vec<u8>,
    /// The code it was closed with.
    closed: Option<u16>,
}

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Always,
    /// It stops after `hello`. As over a network, and other than over loopback, the kernel keeps little for it.
    NoMore,
}

impl Socket {
    /// Connects a user's client, the `nth` of all, and waits for `hello`.
    pub async fn open(
        server: SocketAddr,
        user: String,
        nth: usize,
        reads: Reads,
        audience: Rc<Audience>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if reads == Reads::NoMore {
            // With the segments of loopback, 64 KiB each, it would keep megabytes.
            SockRef::from(&socket).set_tcp_mss(1_400)?;
            socket.set_recv_buffer_size(4_096)?;
        }
        socket.bind((Ipv4Addr::new(127, 0, 0, 2 + (nth % ADDRESSES) as u8), 0).into())?;
        timeout(OPEN_MAX, async {
            let stream = socket.connect(server).await?;
            let mut socket = Self { stream, frames: Frames::default(), heard: Heard::default(), audience };
            socket.shake_hands(server, &user).await?;
            while socket.heard.seq.is_none() {
                socket.read().await?;
            }
            Ok(socket)
        })
        .await?
    }

    async fn shake_hands(&mut self, server: SocketAddr, user: &str) -> io::Result<()> {
        let request = format!(
            "GET /v1/users/{user}/live HTTP/1.1\r\nhost: {server}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        let end = loop {
            read_into(&mut self.stream, |bytes| head.extend_from_slice(bytes)).await?;
            if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        if !head.starts_with(b"HTTP/1.1 101 ") {
            let answer = String::from_utf8_lossy(&head);
            return Err(io::Error::other(format!("{user}/live: {answer}")));
        }
        self.frames.feed(&head[end..], |frame| self.heard.take(frame, &self.audience))
    }

    /// Reads until the connection ends.
    pub async fn listen(mut self) {
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
        self.audience.leave(code);
    }

    /// Reads what is there, once there is something.
    async fn read(&mut self) -> io::Result<()> {
        let Self { stream, frames, heard, audience } = self;
        let mut outcome = Ok(());
        read_into(stream, |bytes| outcome = frames.feed(bytes, |frame| heard.take(frame, audience))).await?;
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
    fn take(&mut self, frame: Frame<'_>, audience: &Audience) {
        match frame {
            Frame::Text(message) => self.message(message, audience),
            Frame::Ping(payload) => {
                audience.pinged();
                // A frame of a client is masked; the mask of zeros leaves the payload as it is.
                self.pongs.extend_from_slice(&[0x8a, 0x80 | payload.len() as u8, 0, 0, 0, 0]);
                self.pongs.extend_from_slice(payload);
            }
            Frame::Close(code) => self.closed = Some(code),
            Frame::Pong => {}
        }
    }

    fn message(&mut self, message: &[u8], audience: &Audience) {
        // A beat says that nothing happened, by the number there was.
        if message.starts_with(br#"{"type":"beat""#) {
            return;
        }
        let Some(seq) = number_after(message, br#""seq":"#) else {
            return audience.miscounted();
        };
        let last = self.seq.replace(seq);
        if last.is_some_and(|last| seq != last + 1) {
            audience.miscounted();
        }
        if last.is_some() && after(message, br#""type":"post""#).is_some() {
            audience.hear(self.posts, Instant::now());
            self.posts += 1;
        }
    }
}

fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    Some(&text[at + key.len()..])
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let digits = after(text, key)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Bytes on their way to being frames.
#[derive(Default)]
struct Frames {
    /// The beginning of a frame whose end has not come.
    begun: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Frame<'a> {
    Text(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    Close(u16),
}

impl Frames {
    /// Hands over all frames that are complete now.
    fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Frame<'_>)) -> io::Result<()> {
        if self.begun.is_empty() {
            let used = whole_frames(bytes, &mut each)?;
            self.begun.extend_from_slice(&bytes[used..]);
        } else {
            self.begun.extend_from_slice(bytes);
            let used = whole_frames(&self.begun, &mut each)?;
            self.begun.drain(..used);
        }
        Ok(())
    }
}

fn whole_frames(bytes: &[u8], each: &mut impl FnMut(Frame<'_>)) -> io::Result<usize> {
    let mut used = 0;
    while let Some((kind, payload, bytes)) = frame(&bytes[used..]) {
        // Whole text frames, pings, pongs and closes: nobody asked for fragments or compression.
        each(match kind {
            0x81 => Frame::Text(payload),
            0x89 => Frame::Ping(payload),
            0x8a => Frame::Pong,
            0x88 => Frame::Close(payload.first_chunk().map_or(1_005, |code| u16::from_be_bytes(*code))),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        });
        used += bytes;
    }
    Ok(used)
}

/// The first frame, if it is there as a whole: its first byte, its payload, and how many bytes it takes. A server masks none.
fn frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (kind, short) = (*bytes.first()?, *bytes.get(1)?);
    let (head, payload) = match short {
        126 => (4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize),
        127 => (10, u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize),
        short => (2, short as usize),
    };
    let end = head + payload;
    Some((kind, bytes.get(head..end)?, end))
}
