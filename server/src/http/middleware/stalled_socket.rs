//! Timeout for stalled sockets: closes connections whose clients do not receive the data sent to them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::{ActixStream, Ready, TcpStream};
use actix_web::rt::time::{Sleep, sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::middleware::pace::Pace;
use crate::http::sockets::connection_slots::ConnectionSlot;
use crate::http::sockets::connection_slots::connection_state::ConnectionState;

/// A socket that fails with a timeout when its client does not read.
pub(in crate::http) struct StalledSocketTimeout<T = TcpStream> {
    socket: T,
    pace: Pace,
    slot: ConnectionSlot,
    /// The state of pending data, if the socket did not accept all of it.
    behind: Option<Behind>,
}

struct Behind {
    deadline: Pin<Box<Sleep>>,
    taken_bytes: usize,
}

impl<T> StalledSocketTimeout<T> {
    /// Wraps a socket whose client must keep this pace. The socket keeps its slot until it is closed.
    pub(in crate::http) fn new(socket: T, pace: Pace, slot: ConnectionSlot) -> Self {
        Self { socket, pace, slot, behind: None }
    }

    /// Returns the state of the connection.
    pub(in crate::http) fn state(&self) -> &Arc<ConnectionState> {
        self.slot.state()
    }

    /// Fails once the connection was evicted for another one.
    fn check(&self) -> io::Result<()> {
        if self.state().is_ended() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Notes that the system has closed the connection because its client received no data for too long. A vanished client looks the
    /// same.
    fn note_timeout(&self, cause: &io::Error) {
        if cause.kind() == io::ErrorKind::TimedOut {
            self.state().note_stalled();
        }
    }

    /// Returns the inner socket.
    pub(in crate::http) fn socket(&self) -> &T {
        &self.socket
    }

    /// Updates the stall state after a write, and replaces a pending write by an error after the deadline.
    fn check_write(&mut self, task: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(behind) = &mut self.behind {
                    behind.taken_bytes = behind.taken_bytes.saturating_add(*bytes);
                }
                self.behind.take_if(|behind| behind.taken_bytes >= self.pace.stall_bytes);
            }
            Poll::Ready(Err(cause)) => self.note_timeout(cause),
            Poll::Pending => {
                let begin = || Behind { deadline: Box::pin(sleep(self.pace.stall_max)), taken_bytes: 0 };
                ready!(self.behind.get_or_insert_with(begin).deadline.as_mut().poll(task));
                self.state().note_stalled();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StalledSocketTimeout<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.socket).poll_read(task, into);
        if let Poll::Ready(Err(cause)) = &read {
            self.note_timeout(cause);
        }
        if read.is_pending() {
            self.state().register(task.waker());
            // The connection may have been evicted before the waker was registered.
            self.check()?;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StalledSocketTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.socket).poll_write(task, bytes);
        self.check_write(task, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.socket).poll_write_vectored(task, slices);
        self.check_write(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(task))?;
        // The dispatcher flushes after it has written all data, so no data is pending any more.
        self.behind = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(task)
    }
}

impl<T: ActixStream> ActixStream for StalledSocketTimeout<T> {
    fn poll_read_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.poll_read_ready(task)
    }

    fn poll_write_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.poll_write_ready(task)
    }
}
