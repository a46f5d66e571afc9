//! Sockets of clients that have to take what they are sent.
//!
//! Responsible for:
//! - ending a connection whose client takes too little for too long, over TLS as well: this is below it;
//! - ending one whose place another gets (`http::sockets`).
//!
//! Not responsible for:
//! - what is sent, and how much of it may wait (`http::middleware::admission`).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::{ActixStream, Ready, TcpStream};
use actix_web::rt::time::{Sleep, sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::middleware::pace::Pace;
use crate::http::sockets::line::Line;
use crate::http::sockets::places::Place;

/// A socket that ends when its client falls behind.
pub(in crate::http) struct Stall<T = TcpStream> {
    socket: T,
    pace: Pace,
    place: Place,
    /// Since when something waits for the client, if it does.
    behind: Option<Behind>,
}

struct Behind {
    deadline: Pin<Box<Sleep>>,
    taken_bytes: usize,
}

impl<T> Stall<T> {
    /// A socket whose client has this pace, and which has this place until it is closed.
    pub(in crate::http) fn new(socket: T, pace: Pace, place: Place) -> Self {
        Self { socket, pace, place, behind: None }
    }

    /// Its connection.
    pub(in crate::http) fn line(&self) -> &Arc<Line> {
        self.place.line()
    }

    /// An error once the connection is to end for another.
    fn check(&self) -> io::Result<()> {
        if self.line().is_ended() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// The socket.
    pub(in crate::http) fn socket(&self) -> &T {
        &self.socket
    }

    /// What becomes of a write that went like this.
    fn judge(&mut self, task: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(behind) = &mut self.behind {
                    behind.taken_bytes = behind.taken_bytes.saturating_add(bytes);
                }
                self.behind.take_if(|behind| behind.taken_bytes >= self.pace.stall_bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let begin = || Behind { deadline: Box::pin(sleep(self.pace.stall_max)), taken_bytes: 0 };
                ready!(self.behind.get_or_insert_with(begin).deadline.as_mut().poll(task));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stall<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.socket).poll_read(task, into);
        if read.is_pending() {
            self.line().register(task.waker());
            // It may have been ended in between.
            self.check()?;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stall<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.socket).poll_write(task, bytes);
        self.judge(task, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.socket).poll_write_vectored(task, slices);
        self.judge(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(task))?;
        // This is asked for once all is written: nothing waits any more.
        self.behind = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(task)
    }
}

impl<T: ActixStream> ActixStream for Stall<T> {
    fn poll_read_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.poll_read_ready(task)
    }

    fn poll_write_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.poll_write_ready(task)
    }
}
