//! Turns: a client's requests go to the HTTP parser one after the other, each when the one before is answered.
//!
//! Responsible for:
//! - holding back later requests of a connection. The dispatcher behind takes a body that is still coming for one that nobody reads, when it
//!   answers an earlier request, and ends the connection;
//! - taking little of a body whose request is answered already;
//! - asking a client for its body that waits for that (`100 Continue`), once somebody wants it.
//!
//! Not responsible for:
//! - where requests end ([`super::framing`]).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::web::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::api::sockets::framing::Framing;
use crate::api::sockets::line::Line;
use crate::limits::{PIPELINED_BYTES_MAX, UNREAD_BYTES_MAX};

const ASK: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket whose client's requests take turns.
pub(in crate::api) struct Turns<T> {
    socket: T,
    line: Arc<Line>,
    framing: Framing,
    /// What was received of later requests.
    held: BytesMut,
    /// Bytes of bodies that came after their requests were answered.
    unread_bytes: usize,
    /// What is to be written yet of asking for a body.
    asking: &'static [u8],
    is_flushed: bool,
}

impl<T> Turns<T> {
    pub(in crate::api) fn new(socket: T, line: Arc<Line>) -> Self {
        let (framing, held) = (Framing::default(), BytesMut::new());
        Self { socket, line, framing, held, unread_bytes: 0, asking: &[], is_flushed: true }
    }

    /// Its connection.
    pub(in crate::api) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Whether the client has all answers to what went on.
    fn may_begin(&self) -> bool {
        self.is_flushed && self.line.answered() >= self.framing.heads()
    }

    /// Lets go what is not held back any more.
    fn release(&mut self, into: &mut ReadBuf<'_>) {
        let (room, may_begin) = (into.remaining().min(self.held.len()), self.may_begin());
        let on = self.framing.pass(&mut self.held[..room], may_begin);
        into.put_slice(&self.held[..on]);
        self.held.advance(on);
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }
}

impl<T: AsyncWrite + Unpin> Turns<T> {
    fn poll_ask(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.line.takes_ask() {
            self.asking = ASK;
        }
        while !self.asking.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(task, self.asking))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.asking = &self.asking[written..];
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Turns<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        loop {
            if !this.held.is_empty() {
                this.release(into);
                if into.filled().len() > before {
                    return Poll::Ready(Ok(()));
                }
            }
            this.line.hold(!this.held.is_empty());
            // The rest of a body is taken for a moment, so that its client sees the answer, before the dispatcher ends the connection.
            if this.held.len() >= PIPELINED_BYTES_MAX || this.unread_bytes >= UNREAD_BYTES_MAX {
                this.line.register(task.waker());
                return Poll::Pending;
            }
            // Also while something is held back: a client that has gone is noticed by this alone.
            match Pin::new(&mut this.socket).poll_read(task, into) {
                Poll::Pending => {
                    this.line.register(task.waker());
                    return Poll::Pending;
                }
                Poll::Ready(read) => read?,
            }
            if into.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            let may_begin = this.held.is_empty() && this.may_begin();
            let is_unread = this.framing.is_in_body() && this.line.answered() >= this.framing.heads();
            let received = &mut into.filled_mut()[before..];
            let on = if this.held.is_empty() { this.framing.pass(received, may_begin) } else { 0 };
            this.unread_bytes += if is_unread { on } else { 0 };
            this.held.extend_from_slice(&received[on..]);
            into.set_filled(before + on);
            if on > 0 {
                this.line.hold(!this.held.is_empty());
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Turns<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_ask(task))?;
        self.is_flushed = false;
        Pin::new(&mut self.socket).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_ask(task))?;
        self.is_flushed = false;
        Pin::new(&mut self.socket).poll_write_vectored(task, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_ask(task))?;
        ready!(Pin::new(&mut self.socket).poll_flush(task))?;
        // This is asked for once all is written. What was held back until then may go on, and nothing else wakes whoever reads it.
        if !std::mem::replace(&mut self.is_flushed, true) && !self.held.is_empty() {
            task.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(task)
    }
}
