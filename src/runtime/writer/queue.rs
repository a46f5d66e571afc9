//! The queue to the scribe.
//!
//! Responsible for:
//! - bounding the commands that wait and the bytes they hold. Callers may be gone by then, so that nobody else counts them;
//! - dropping what nobody will take any more, so that its callers are answered.
//!
//! Not responsible for:
//! - what the scribe has taken, which its groups bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};

use crate::runtime::message::Command;

/// Why a command was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// There is no room.
    Full {
        /// What of.
        queue: &'static str,
        /// How much there is.
        limit: usize,
    },
    /// Nobody takes commands any more.
    Closed,
}

/// The scribe has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

/// Where commands go in. Clones lead to the same queue.
#[derive(Clone)]
pub struct CommandSender {
    commands: Sender<Command>,
    /// The other end, to empty it once the scribe has ended: a channel keeps what was sent until its last sender goes.
    unwanted: Receiver<Command>,
    is_closed: Arc<AtomicBool>,
    commands_max: usize,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// Where the scribe takes them out.
pub struct CommandReceiver {
    commands: Receiver<Command>,
    is_closed: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
}

/// A queue for so many commands, which may hold so many bytes.
pub fn queue(commands_max: usize, bytes_max: usize) -> (CommandSender, CommandReceiver) {
    let (sender, receiver) = crossbeam_channel::bounded(commands_max);
    let (bytes, is_closed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let sender = CommandSender {
        commands: sender,
        unwanted: receiver.clone(),
        is_closed: Arc::clone(&is_closed),
        commands_max,
        bytes: Arc::clone(&bytes),
        bytes_max,
    };
    (sender, CommandReceiver { commands: receiver, is_closed, bytes })
}

impl CommandSender {
    /// Puts a command in, if there is room. One that is larger than the limit goes into an empty queue.
    pub fn try_send(&self, command: Command) -> Result<(), NotTaken> {
        self.offer(command).map_err(|(cause, _)| cause)
    }

    /// The same, and gives back what was not taken; not always when nobody takes commands any more.
    pub fn offer(&self, command: Command) -> Result<(), (NotTaken, Option<Command>)> {
        let bytes = command.bytes();
        let has_room = |held: usize| bytes == 0 || held == 0 || held + bytes <= self.bytes_max;
        let enter = |held: usize| has_room(held).then_some(held + bytes);
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_err() {
            return Err((NotTaken::Full { queue: "scribe_bytes", limit: self.bytes_max }, Some(command)));
        }
        self.commands.try_send(command).map_err(|cause| {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match cause {
                TrySendError::Full(command) => {
                    (NotTaken::Full { queue: "scribe", limit: self.commands_max }, Some(command))
                }
                TrySendError::Disconnected(command) => (NotTaken::Closed, Some(command)),
            }
        })?;
        self.check_open().map_err(|Closed| (NotTaken::Closed, None))
    }

    /// Puts a command of the engine's own in, and waits for room. These hold no bytes.
    pub fn send(&self, command: Command) -> Result<(), Closed> {
        debug_assert_eq!(command.bytes(), 0, "callers do not wait for room");
        self.commands.send(command).map_err(|_| Closed)?;
        self.check_open()
    }

    /// Refuses what was just sent if the scribe has ended. If not, it takes it, or drops it when it ends.
    fn check_open(&self) -> Result<(), Closed> {
        if self.is_closed.load(Ordering::SeqCst) {
            drop_all(&self.unwanted, &self.bytes);
            return Err(Closed);
        }
        Ok(())
    }

    /// Commands that wait.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Bytes they hold.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl CommandReceiver {
    /// The next command, once there is one.
    pub fn recv(&self) -> Result<Command, RecvTimeoutError> {
        self.commands.recv().map(|command| self.taken(command)).map_err(|_| RecvTimeoutError::Disconnected)
    }

    /// The same, for so long.
    pub fn recv_timeout(&self, at_most: Duration) -> Result<Command, RecvTimeoutError> {
        self.commands.recv_timeout(at_most).map(|command| self.taken(command))
    }

    /// The next command, if there is one.
    pub fn try_recv(&self) -> Option<Command> {
        self.commands.try_recv().ok().map(|command| self.taken(command))
    }

    fn taken(&self, command: Command) -> Command {
        self.bytes.fetch_sub(command.bytes(), Ordering::Relaxed);
        command
    }
}

impl Drop for CommandReceiver {
    fn drop(&mut self) {
        // First: whoever sends later finds it so, and drops its command itself.
        self.is_closed.store(true, Ordering::SeqCst);
        drop_all(&self.commands, &self.bytes);
    }
}

/// Drops what waits, by which its callers know.
fn drop_all(commands: &Receiver<Command>, bytes: &AtomicUsize) {
    for command in commands.try_iter() {
        bytes.fetch_sub(command.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::post::{Body, Draft};
    use crate::id::{PostId, SourceId};
    use tokio::sync::oneshot;

    fn publish(body_bytes: usize) -> Command {
        let body = Body::new(&format!("\"{}\"", "x".repeat(body_bytes - 2))).unwrap();
        let draft = Box::new(Draft::new(SourceId::new("ann").unwrap(), body));
        Command::Publish { draft, wait: false, reply: oneshot::channel().0 }
    }

    fn delete() -> Command {
        Command::Delete { id: PostId(1), reply: oneshot::channel().0 }
    }

    #[test]
    fn commands_are_bounded_by_their_number_and_by_what_they_hold() {
        let of_one = publish(100).bytes();
        let (sender, receiver) = queue(3, 2 * of_one);
        assert!(sender.try_send(publish(100)).is_ok() && sender.try_send(publish(100)).is_ok());
        let full = NotTaken::Full { queue: "scribe_bytes", limit: 2 * of_one };
        assert_eq!((sender.try_send(publish(10)), sender.bytes()), (Err(full), 2 * of_one));
        assert_eq!(sender.try_send(delete()), Ok(()), "what holds nothing needs no bytes");
        assert_eq!(sender.try_send(delete()), Err(NotTaken::Full { queue: "scribe", limit: 3 }));
        for _ in 0..3 {
            assert!(receiver.try_recv().is_some());
        }
        assert_eq!(sender.bytes(), 0);
        assert_eq!(sender.try_send(publish(60_000)), Ok(()), "the largest finds room once there is nothing else");
        drop(receiver);
        assert_eq!((sender.try_send(delete()), sender.bytes()), (Err(NotTaken::Closed), 0));
    }

    #[test]
    fn callers_of_commands_that_nobody_takes_any_more_are_answered() {
        for _ in 0..200 {
            let (sender, receiver) = queue(1_000, 1 << 20);
            let sends = std::thread::spawn(move || {
                let mut answers = Vec::new();
                loop {
                    let (reply, answer) = oneshot::channel();
                    let sent = sender.try_send(Command::Delete { id: PostId(1), reply });
                    answers.push(answer);
                    if sent == Err(NotTaken::Closed) {
                        // The sender is still there: it is not its end that answers.
                        return (answers, sender);
                    }
                }
            });
            drop(receiver);
            let (answers, sender) = sends.join().unwrap();
            for mut answer in answers {
                assert_eq!(answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
            }
            assert_eq!(sender.len(), 0);
        }
    }
}
