//! FairQueue: a client's requests go to the HTTP parser one after the other, each when the one before is answered.
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

use crate::http::sockets::framing::Framing;
use crate::http::sockets::line::Line;
use tidewire::limits::UNREAD_BYTES_MAX;

const ASK: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket whose client's requests take turns.
pub(in crate::http) struct FairQueue<T> {
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
    /// Nothing is read until the request under way is answered.
    is_waiting: bool,
}

impl<T> FairQueue<T> {
    pub(in crate::http) fn new(socket: T, line: Arc<Line>) -> Self {
        let (framing, held) = (Framing::default(), BytesMut::new());
        Self { socket, line, framing, held, unread_bytes: 0, asking: &[], is_flushed: true, is_waiting: false }
    }

    /// Its connection.
    pub(in crate::http) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Whether the client has all answers to what went on.
    fn may_begin(&self) -> bool {
        self.is_flushed && self.line.answered() >= self.framing.heads()
    }

    /// Whether more may be read from the socket now.
    fn may_read(&self) -> bool {
        let is_later = !self.held.is_empty() || (self.framing.is_between() && !self.may_begin());
        // The rest of a body is taken for a moment, so that its client sees the answer, before the dispatcher ends the connection.
        (!is_later || self.line.may_hold()) && self.unread_bytes < UNREAD_BYTES_MAX
    }

    /// Notes how much is held back, and whether the answer to the request under way is waited for.
    fn note_held(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.line.hold(self.held.len(), is_waiting);
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

impl<T> Drop for FairQueue<T> {
    fn drop(&mut self) {
        self.line.hold(0, false);
    }
}

impl<T: AsyncWrite + Unpin> FairQueue<T> {
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

impl<T: AsyncRead + Unpin> AsyncRead for FairQueue<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        loop {
            if !this.held.is_empty() {
                this.release(into);
                if into.filled().len() > before {
                    this.note_held(!this.held.is_empty());
                    return Poll::Ready(Ok(()));
                }
            }
            let may_read = this.may_read();
            this.note_held(!may_read || !this.held.is_empty());
            if !may_read {
                this.line.register(task.waker());
                // Nothing is asked of the socket, which would know.
                let is_ended = this.line.is_ended();
                return if is_ended {
                    Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
                } else {
                    Poll::Pending
                };
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
            this.note_held(!this.held.is_empty());
            if on > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FairQueue<T> {
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
        if !std::mem::replace(&mut self.is_flushed, true) && self.is_waiting {
            task.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests;
