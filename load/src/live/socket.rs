//! A WebSocket client with little overhead: it reads frames, answers pings, and passes messages to the wire protocol of its design.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::ready;
use std::time::Duration;

use futures_util::FutureExt as _;
use memchr::memmem;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::live::Error;
use crate::live::frames::{Frame, Frames, Kind, frame_of};
use crate::live::messages::Listener;
use crate::live::wire::Wire;
use crate::operation::User;
use crate::target::tidewire::name;

/// Timeout until a connection is ready.
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

/// The state of a connection's received messages, without incomplete frames.
struct Heard {
    wire: Box<dyn Wire>,
    /// Frames to send.
    out: Vec<u8>,
    /// The close code, if the connection was closed.
    closed: Option<u16>,
    /// The first error in a message.
    wrong: io::Result<()>,
}

/// The reading behaviour of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reads {
    Always,
    /// Stops reading once it is ready. The kernel buffers only a few bytes for it, as on a network and unlike on loopback.
    NoMore,
}

impl Socket {
    /// Connects a client of a user and waits until its wire protocol is ready.
    pub(super) async fn open(
        server: SocketAddr,
        user: User,
        wire: Box<dyn Wire>,
        reads: Reads,
        listener: Rc<dyn Listener>,
    ) -> Result<Self, Error> {
        let opened = timeout(OPEN_MAX, Self::connect(server, user, wire, reads, listener)).await;
        let opened = opened
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("not ready after {OPEN_MAX:?}"))));
        opened.map_err(|source| Error::Connect { user: name(user), server, source })
    }

    async fn connect(
        server: SocketAddr,
        user: User,
        wire: Box<dyn Wire>,
        reads: Reads,
        listener: Rc<dyn Listener>,
    ) -> io::Result<Self> {
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
        stream.set_nodelay(true)?;
        let heard = Heard { wire, out: Vec::new(), closed: None, wrong: Ok(()) };
        let mut socket = Self { stream, frames: Frames::default(), heard, listener };
        socket.shake_hands(server).await?;
        socket.heard.wire.greet(&mut socket.heard.out);
        socket.flush().await?;
        while !socket.heard.wire.is_ready() {
            if let Some(code) = socket.heard.closed {
                return Err(io::Error::other(format!("closed with {code}")));
            }
            socket.read().await?;
            socket.flush().await?;
        }
        Ok(socket)
    }

    async fn shake_hands(&mut self, server: SocketAddr) -> io::Result<()> {
        let path = self.heard.wire.path();
        let protocol = self.heard.wire.protocol().map(|name| format!("Sec-WebSocket-Protocol: {name}\r\n"));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {server}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{}\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            protocol.unwrap_or_default()
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
        let Self { frames, heard, listener, .. } = self;
        frames.feed(&head[end..], |frame| heard.take(frame, &**listener))?;
        heard.wrong()
    }

    /// Reads until the connection ends.
    pub(super) async fn listen(mut self) {
        let code = loop {
            match self.read().await {
                Ok(()) if self.flush().await.is_err() => break ABNORMAL,
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

    /// Waits for data, reads the available data, and answers it.
    pub(super) async fn read_once(&mut self) -> io::Result<()> {
        self.read().await?;
        self.flush().await?;
        match self.heard.closed {
            Some(code) => Err(io::Error::other(format!("closed with {code}"))),
            None => Ok(()),
        }
    }

    /// Sends a message of the wire protocol, after it has read and answered the data that has arrived.
    pub(super) async fn send(&mut self, write: impl FnOnce(&mut dyn Wire, &mut Vec<u8>)) -> io::Result<()> {
        while let Some(read) = self.read_once().now_or_never() {
            read?;
        }
        write(&mut *self.heard.wire, &mut self.heard.out);
        self.flush().await
    }

    /// Ends the connection. Returns the wire protocol of the same client when it comes back.
    pub(super) fn leave(self) -> Box<dyn Wire> {
        self.heard.wire.again()
    }

    /// Waits for data and reads the available data.
    async fn read(&mut self) -> io::Result<()> {
        let Self { stream, frames, heard, listener } = self;
        let mut outcome = Ok(());
        read_into(stream, |bytes| outcome = frames.feed(bytes, |frame| heard.take(frame, &**listener))).await?;
        outcome.and_then(|()| heard.wrong())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.heard.out.is_empty() {
            self.stream.write_all(&self.heard.out).await?;
            self.heard.out.clear();
        }
        Ok(())
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
            Frame::Text(message) | Frame::Binary(message) => {
                let taken = self.wire.take(message, &mut self.out, listener);
                if self.wrong.is_ok() {
                    self.wrong = taken;
                }
            }
            Frame::Ping(payload) => {
                listener.pinged();
                frame_of(Kind::Pong, payload, &mut self.out);
            }
            Frame::Close(code) => self.closed = Some(code),
            Frame::Pong => {}
        }
    }

    /// Returns the first error in a message since the last call.
    fn wrong(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.wrong, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::audience::Audience;
    use crate::live::wire::Tidewire;

    #[test]
    fn pings_are_answered_and_closes_remembered() {
        let wire = Box::new(Tidewire::of(1));
        let (audience, mut heard) = (Audience::default(), Heard { wire, out: Vec::new(), closed: None, wrong: Ok(()) });
        heard.take(Frame::Ping(b"x"), &audience);
        heard.take(Frame::Pong, &audience);
        heard.take(Frame::Close(4008), &audience);
        assert_eq!((audience.pings(), heard.out.len(), heard.closed), (1, 7, Some(4008)));
    }
}
