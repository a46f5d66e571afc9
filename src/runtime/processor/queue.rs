//! The command queue to the command processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};

use crate::runtime::message::Command;

/// A message from one of two channels.
#[derive(Debug)]
pub enum Received<T> {
    /// The next command.
    Command(Command),
    /// A message of the other channel.
    Other(T),
}

/// The reason why a command was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// The queue has no capacity left.
    Full {
        /// The name of the exceeded limit.
        queue: &'static str,
        /// The value of the limit, in commands or bytes.
        limit: usize,
    },
    /// The command processor has ended.
    Closed,
}

/// The error of a queue whose command processor has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

/// The sender of commands. Clones send to the same queue.
#[derive(Clone)]
pub struct CommandSender {
    commands: Sender<Command>,
    /// The receiving end, to empty the channel after the command processor has ended: a channel stores its messages until the
    /// last sender is dropped.
    unwanted: Receiver<Command>,
    is_closed: Arc<AtomicBool>,
    commands_max: usize,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// The command processor's end of the queue.
pub struct CommandReceiver {
    commands: Receiver<Command>,
    is_closed: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
}

/// Creates a queue with limits for the number of commands and the bytes they hold.
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
    /// Queues a command if there is capacity. An empty queue accepts a command that is larger than the limit of
    /// bytes.
    pub fn try_send(&self, command: Command) -> Result<(), NotTaken> {
        self.offer(command).map_err(|(cause, _)| cause)
    }

    /// The same, but returns the refused command. If the command processor has ended, the command may be dropped instead.
    pub fn offer(&self, command: Command) -> Result<(), (NotTaken, Option<Command>)> {
        let bytes = command.bytes();
        let fits = |held: usize| bytes == 0 || held == 0 || held + bytes <= self.bytes_max;
        let enter = |held: usize| fits(held).then_some(held + bytes);
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_err() {
            return Err((NotTaken::Full { queue: "command_bytes", limit: self.bytes_max }, Some(command)));
        }
        self.commands.try_send(command).map_err(|cause| {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match cause {
                TrySendError::Full(command) => {
                    (NotTaken::Full { queue: "commands", limit: self.commands_max }, Some(command))
                }
                TrySendError::Disconnected(command) => (NotTaken::Closed, Some(command)),
            }
        })?;
        self.check_open().map_err(|Closed| (NotTaken::Closed, None))
    }

    /// Queues a command from the engine itself, and waits for capacity. These commands hold no bytes.
    pub fn send(&self, command: Command) -> Result<(), Closed> {
        debug_assert_eq!(command.bytes(), 0, "callers do not wait for capacity");
        self.commands.send(command).map_err(|_| Closed)?;
        self.check_open()
    }

    /// Returns an error if the command processor has ended after the command was sent. Otherwise the command processor receives the
    /// command, or drops it when it ends.
    fn check_open(&self) -> Result<(), Closed> {
        if self.is_closed.load(Ordering::SeqCst) {
            drop_all(&self.unwanted, &self.bytes);
            return Err(Closed);
        }
        Ok(())
    }

    /// Returns the number of waiting commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns true if no command waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the bytes that the waiting commands hold.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl CommandReceiver {
    /// Waits for the next command.
    pub fn recv(&self) -> Result<Command, RecvTimeoutError> {
        self.commands.recv().map(|command| self.taken(command)).map_err(|_| RecvTimeoutError::Disconnected)
    }

    /// Waits at most this long for the next command.
    pub fn recv_timeout(&self, at_most: Duration) -> Result<Command, RecvTimeoutError> {
        self.commands.recv_timeout(at_most).map(|command| self.taken(command))
    }

    /// Waits at most this long for the next command, or for a message of another channel, which has priority. Returns
    /// None if neither arrives.
    pub fn recv_or<T>(&self, other: &Receiver<T>, at_most: Duration) -> Result<Option<Received<T>>, RecvTimeoutError> {
        if let Ok(message) = other.try_recv() {
            return Ok(Some(Received::Other(message)));
        }
        crossbeam_channel::select! {
            recv(other) -> message => message.map(|message| Some(Received::Other(message))).map_err(|_| RecvTimeoutError::Disconnected),
            recv(self.commands) -> command => {
                let received = command.map(|command| Some(Received::Command(self.taken(command))));
                received.map_err(|_| RecvTimeoutError::Disconnected)
            }
            default(at_most) => Ok(None),
        }
    }

    /// Returns the next command, if there is one.
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
        // The flag is set first, so that a later sender notices it and drops its command itself.
        self.is_closed.store(true, Ordering::SeqCst);
        drop_all(&self.commands, &self.bytes);
    }
}

/// Drops the waiting commands. Their callers notice that the reply channels are closed.
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
    fn commands_are_bounded_by_number_and_bytes() {
        let of_one = publish(100).bytes();
        let (sender, receiver) = queue(3, 2 * of_one);
        assert!(sender.try_send(publish(100)).is_ok() && sender.try_send(publish(100)).is_ok());
        let full = NotTaken::Full { queue: "command_bytes", limit: 2 * of_one };
        assert_eq!((sender.try_send(publish(10)), sender.bytes()), (Err(full), 2 * of_one));
        assert_eq!(sender.try_send(delete()), Ok(()), "what holds nothing needs no bytes");
        assert_eq!(sender.try_send(delete()), Err(NotTaken::Full { queue: "commands", limit: 3 }));
        for _ in 0..3 {
            assert!(receiver.try_recv().is_some());
        }
        assert_eq!(sender.bytes(), 0);
        assert_eq!(sender.try_send(publish(60_000)), Ok(()), "the largest finds room once there is nothing else");
        drop(receiver);
        assert_eq!((sender.try_send(delete()), sender.bytes()), (Err(NotTaken::Closed), 0));
    }

    #[test]
    fn callers_of_abandoned_commands_receive_an_answer() {
        for _ in 0..200 {
            let (sender, receiver) = queue(1_000, 1 << 20);
            let sends = std::thread::spawn(move || {
                let mut answers = Vec::new();
                loop {
                    let (reply, answer) = oneshot::channel();
                    let sent = sender.try_send(Command::Delete { id: PostId(1), reply });
                    answers.push(answer);
                    if sent == Err(NotTaken::Closed) {
                        // The sender is returned, so the callers cannot get their answers from its drop.
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
