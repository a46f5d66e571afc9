//! Request order: passes each request of a client to the HTTP parser after the previous one is answered.
//!
//! Responsible for:
//! - deferring later requests of a connection. If the body of a later request is still arriving when the dispatcher answers an earlier
//!   one, the dispatcher treats that body as unread and closes the connection;
//! - limiting how much is read of a body after its request is answered;
//! - deferring the end of the client's data until its requests are answered, because the dispatcher reads nothing after it;
//! - sending `100 Continue` to a client that waits with its body, when the application requests the body.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::web::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use crate::http::sockets::framing::Framing;
use tidewire::limits::UNREAD_BYTES_MAX;

const ASK: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket that defers later requests of its client.
pub(in crate::http) struct RequestOrder<T> {
    socket: T,
    connection: Arc<ConnectionState>,
    framing: Framing,
    /// Received bytes of later requests.
    buffered: BytesMut,
    /// Bytes of bodies received after their requests were answered.
    unread_bytes: usize,
    /// The unwritten rest of `100 Continue`.
    asking: &'static [u8],
    is_flushed: bool,
    /// True if reading is paused until the request in progress is answered.
    is_waiting: bool,
    /// True if the client has closed its sending side: nothing follows the buffered bytes.
    is_half_closed: bool,
}

impl<T> RequestOrder<T> {
    pub(in crate::http) fn new(socket: T, connection: Arc<ConnectionState>) -> Self {
        let (framing, buffered) = (Framing::default(), BytesMut::new());
        Self {
            socket,
            connection,
            framing,
            buffered,
            unread_bytes: 0,
            asking: &[],
            is_flushed: true,
            is_waiting: false,
            is_half_closed: false,
        }
    }

    /// Returns the state of the connection.
    pub(in crate::http) fn state(&self) -> &Arc<ConnectionState> {
        &self.connection
    }

    /// Returns true if the client has received the responses to all requests that were passed to the parser.
    fn may_begin(&self) -> bool {
        self.is_flushed && self.connection.answered() >= self.framing.heads()
    }

    /// Returns true if the parser may now see the end of the client's data: all its requests are answered, or one is incomplete.
    fn may_end(&self) -> bool {
        self.is_half_closed && self.buffered.is_empty() && (self.may_begin() || !self.framing.is_between())
    }

    /// Returns true if the socket may be read now.
    fn may_read(&self) -> bool {
        if self.is_half_closed {
            return false;
        }
        let is_later = !self.buffered.is_empty() || (self.framing.is_between() && !self.may_begin());
        // Reads the rest of a body for a moment, so that its client sees the response before the dispatcher closes the connection.
        (!is_later || self.connection.may_buffer()) && self.unread_bytes < UNREAD_BYTES_MAX
    }

    /// Stores the number of buffered bytes. `is_waiting` is true if reading waits for the response to the request in progress.
    fn note_buffered(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.connection.set_buffered(self.buffered.len(), is_waiting);
    }

    /// Passes buffered bytes to the parser that need not wait any more.
    fn release(&mut self, into: &mut ReadBuf<'_>) {
        let (capacity, may_begin) = (into.remaining().min(self.buffered.len()), self.may_begin());
        let on = self.framing.pass(&mut self.buffered[..capacity], may_begin);
        into.put_slice(&self.buffered[..on]);
        self.buffered.advance(on);
        if self.buffered.is_empty() {
            self.buffered = BytesMut::new();
        }
    }
}

impl<T> Drop for RequestOrder<T> {
    fn drop(&mut self) {
        self.connection.set_buffered(0, false);
    }
}

impl<T: AsyncWrite + Unpin> RequestOrder<T> {
    fn poll_ask(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.takes_ask() {
            self.asking = ASK;
        }
        while !self.asking.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(task, self.asking))?;
            if written == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.asking = &self.asking[written..];
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for RequestOrder<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        loop {
            if !this.buffered.is_empty() {
                this.release(into);
                if into.filled().len() > before {
                    this.note_buffered(!this.buffered.is_empty());
                    return Poll::Ready(Ok(()));
                }
            }
            if this.may_end() {
                this.note_buffered(false);
                return Poll::Ready(Ok(()));
            }
            let may_read = this.may_read();
            this.note_buffered(!may_read || !this.buffered.is_empty());
            if !may_read {
                this.connection.register(task.waker());
                // The socket is not polled here, so it cannot report that the connection has ended.
                let is_ended = this.connection.is_ended();
                return if is_ended { Poll::Ready(Err(ErrorKind::ConnectionAborted.into())) } else { Poll::Pending };
            }
            // Reads the socket even while bytes are buffered, because only reading detects a closed connection.
            match Pin::new(&mut this.socket).poll_read(task, into) {
                Poll::Pending => {
                    this.connection.register(task.waker());
                    return Poll::Pending;
                }
                // Many TLS clients close their sending side without `close_notify`. An attacker in the network could do so too, but each
                // request declares its end, so a truncated request never counts as complete. The end within a request remains a failure.
                Poll::Ready(Err(cause)) if cause.kind() == ErrorKind::UnexpectedEof && this.framing.is_between() => {}
                Poll::Ready(read) => read?,
            }
            if into.filled().len() == before {
                this.is_half_closed = true;
                this.connection.note_half_closed();
                continue;
            }
            let may_begin = this.buffered.is_empty() && this.may_begin();
            let is_unread = this.framing.is_in_body() && this.connection.answered() >= this.framing.heads();
            let received = &mut into.filled_mut()[before..];
            let on = if this.buffered.is_empty() { this.framing.pass(received, may_begin) } else { 0 };
            this.unread_bytes += if is_unread { on } else { 0 };
            this.buffered.extend_from_slice(&received[on..]);
            into.set_filled(before + on);
            this.note_buffered(!this.buffered.is_empty());
            if on > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for RequestOrder<T> {
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
        // The dispatcher flushes after it has written all data. Deferred bytes may pass now, and nothing else wakes the task that reads
        // them.
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
