//! A connection that clients share: requests made at the same time are sent in one write.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::target::resp::protocol::{Batch, Replies, reply_end};
use crate::target::{Failure, answered};

/// Maximum bytes per read.
const READ_BYTES: usize = 256 << 10;

/// A shared connection, closed when its handle is dropped.
#[derive(Debug)]
pub(in crate::target) struct Link {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when there are bytes to write.
    asked: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes to write next.
    bytes: Vec<u8>,
    /// Requests that wait for replies, in the order of their commands.
    waiting: VecDeque<Waiting>,
    /// The reason why the connection is closed.
    closed: Option<String>,
}

#[derive(Debug)]
struct Waiting {
    replies_left: usize,
    error: Option<String>,
    answer: oneshot::Sender<Result<Vec<u8>, String>>,
}

impl Shared {
    /// No code panics while it holds the lock, so the state is consistent even if the lock is poisoned.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, why: &str) {
        let mut state = self.state();
        state.closed = Some(why.to_owned());
        for waiting in state.waiting.drain(..) {
            // Sending fails if the caller no longer waits.
            let _ = waiting.answer.send(Err(why.to_owned()));
        }
    }
}

impl Link {
    /// Connects on the runtime of the current thread.
    pub(in crate::target) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|cause| Failure::of(&cause))?;
        stream.set_nodelay(true).map_err(|cause| Failure::of(&cause))?;
        let (read, write) = stream.into_split();
        let shared = Arc::new(Shared::default());
        let reader = tokio::spawn(receive(read, shared.clone())).abort_handle();
        let writer = tokio::spawn(send(write, shared.clone())).abort_handle();
        Ok(Self { shared, tasks: [reader, writer] })
    }

    /// Returns true if the connection can be used.
    pub(in crate::target) fn is_open(&self) -> bool {
        self.shared.state().closed.is_none()
    }

    /// Sends commands and waits for all replies.
    pub(in crate::target) async fn ask(&self, batch: Batch) -> Result<Replies, Failure> {
        let what = batch.what;
        self.post(batch)?.replies(what).await
    }

    /// Sends commands without waiting for the replies.
    pub(in crate::target) fn post(&self, batch: Batch) -> Result<Pending, Failure> {
        let (answer, pending) = oneshot::channel();
        if batch.commands == 0 {
            let _ = answer.send(Ok(Vec::new()));
            return Ok(Pending(pending));
        }
        let mut state = self.shared.state();
        if let Some(why) = &state.closed {
            return Err(failure(batch.what, why));
        }
        let is_first = state.bytes.is_empty();
        if is_first && state.bytes.capacity() < batch.bytes.len() {
            state.bytes = batch.bytes;
        } else {
            state.bytes.extend_from_slice(&batch.bytes);
        }
        state.waiting.push_back(Waiting { replies_left: batch.commands, error: None, answer });
        drop(state);
        if is_first {
            self.shared.asked.notify_one();
        }
        Ok(Pending(pending))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A handle for replies that have not arrived yet.
#[derive(Debug)]
pub(in crate::target) struct Pending(oneshot::Receiver<Result<Vec<u8>, String>>);

impl Pending {
    /// Waits for the replies.
    pub(in crate::target) async fn replies(self, what: &'static str) -> Result<Replies, Failure> {
        let replies = async {
            match self.0.await {
                Ok(Ok(bytes)) => Ok(Replies::new(bytes)),
                Ok(Err(why)) => Err(failure(what, &why)),
                Err(_) => Err(failure(what, "the connection was closed")),
            }
        };
        answered(what, replies).await
    }
}

/// Creates the failure of a batch. A reply of an overloaded server becomes a refusal.
fn failure(what: &'static str, why: &str) -> Failure {
    let text = format!("{what}: {why}");
    match why.split(' ').next() {
        Some("OOM" | "LOADING" | "BUSY" | "TRYAGAIN" | "OVERLOADED") => Failure::Refused(text),
        _ => Failure::Failed(text),
    }
}

async fn send(mut write: OwnedWriteHalf, shared: Arc<Shared>) {
    let mut bytes = Vec::new();
    loop {
        shared.asked.notified().await;
        loop {
            bytes.clear();
            std::mem::swap(&mut shared.state().bytes, &mut bytes);
            if bytes.is_empty() {
                break;
            }
            if let Err(cause) = write.write_all(&bytes).await {
                shared.close(&format!("cannot write: {cause}"));
                return;
            }
        }
    }
}

async fn receive(mut read: OwnedReadHalf, shared: Arc<Shared>) {
    let mut received = Received { bytes: Vec::with_capacity(READ_BYTES), begun: 0, at: 0 };
    loop {
        received.bytes.reserve(READ_BYTES);
        let why = match read.read_buf(&mut received.bytes).await {
            Ok(0) => "the server closed the connection".to_owned(),
            Err(cause) => format!("cannot read: {cause}"),
            Ok(_) => match received.hand_out(&mut shared.state()) {
                Ok(()) => continue,
                Err(why) => why,
            },
        };
        shared.close(&why);
        return;
    }
}

/// Bytes that were read and not assigned to a request yet.
struct Received {
    bytes: Vec<u8>,
    /// Start of the replies of the first waiting request.
    begun: usize,
    /// Start of the first incomplete reply.
    at: usize,
}

impl Received {
    /// Passes complete replies to the requests that wait for them.
    fn hand_out(&mut self, state: &mut State) -> Result<(), String> {
        while self.at < self.bytes.len() {
            let Some(waiting) = state.waiting.front_mut() else {
                return Err("the server sent a reply without a request".to_owned());
            };
            match reply_end(&self.bytes, self.at, &mut waiting.error) {
                Ok(Some(end)) => self.at = end,
                Ok(None) => break,
                Err(cause) => return Err(cause.to_string()),
            }
            waiting.replies_left -= 1;
            if waiting.replies_left == 0
                && let Some(waiting) = state.waiting.pop_front()
            {
                let replies = self.bytes[self.begun..self.at].to_vec();
                // Sending fails if the caller no longer waits.
                let _ = waiting.answer.send(waiting.error.map_or(Ok(replies), Err));
                self.begun = self.at;
            }
        }
        self.bytes.drain(..self.begun);
        self.at -= self.begun;
        self.begun = 0;
        Ok(())
    }
}
