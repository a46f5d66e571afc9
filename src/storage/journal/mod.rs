//! The journal: the order of accepted events, and the durability guarantee for them.
//!
//! Responsible for:
//! - the interface between the command processor and the storage of events.

pub mod committed;
pub mod pieces;
pub mod reader;
pub mod space;
pub mod sync;
pub mod writer;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::feed::event::Event;
use crate::storage::log::LogError;
use crate::storage::sequence::Sequence;

/// The reason why events were not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The disk is full. None of the events since the last commit was written. Later events can be written once there is space.
    #[error("no space left to write {place}")]
    DiskFull {
        /// Path of the file that could not grow.
        place: String,
    },
    /// The system could not open the file of the next segment. None of the events since the last commit was written. Later events can be
    /// written once other files are closed.
    #[error("cannot create {place} now: {cause}")]
    OutOfFiles {
        /// Path of the file that could not be created.
        place: String,
        /// The error of the operating system.
        cause: String,
    },
    /// The shared log accepts no records now. None of the events since the last commit was appended. Later events may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The content on disk is unknown, so no more events can be appended. The text is the cause.
    #[error("{0}")]
    Failed(String),
}

/// The state of events when a commit returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Committed {
    /// The events are stored.
    Stored,
    /// The events were sent to a log that several nodes share. They are stored once they are read back, see [`LogOutcome`].
    Sent,
    /// Only this number of first events was sent. The others were not appended.
    SentFirst(usize, JournalError),
}

/// A result of reading the shared log of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are events, and each is moved a few times only")]
pub enum LogOutcome {
    /// The oldest event of this process that was sent and not read back yet is stored.
    Local,
    /// Another process appended this event, or this process did and no longer waits for it.
    Remote(Event),
    /// The events of this process that were not read back yet are void.
    Fenced {
        /// True if this process is the sequencer from here on, and has read all earlier records.
        is_promoted: bool,
    },
    /// The journal cannot follow the log any further. The text is the cause.
    Failed(String),
}

/// The additional methods of a journal on a shared log, whose records arrive as `R`.
pub trait SharedJournal<R> {
    /// Returns the channel on which records arrive, decoded as far as possible.
    fn incoming(&self) -> &Receiver<Result<Vec<R>, LogError>>;

    /// Reads the next record, and returns its outcome, if it has one.
    fn read(&mut self, record: R) -> Option<LogOutcome>;

    /// Returns true if a record needs capacity for fan-out, because another process has accepted its post.
    fn needs_fanout(&self, record: &R) -> bool;

    /// Ends a message after all its records were read, or with its error. Returns an outcome if the log cannot be followed any
    /// further.
    fn end_message(&mut self, message: Result<(), LogError>) -> Option<LogOutcome>;

    /// Returns the log checkpoint, as the record of a snapshot ([`Section::Cluster`](crate::storage::snapshot::Section)).
    fn followed(&self) -> Vec<u8>;

    /// Publishes to other threads that all records read so far are applied.
    fn note_applied(&mut self);

    /// Appends the records of the failure detector that are due, such as heartbeats and claims. It is called several times a second.
    fn tend(&mut self);

    /// Returns true if this process is the sequencer, and has read from the log recently.
    fn may_judge(&self) -> bool;

    /// Returns true if another node is too far behind to accept more events.
    fn outruns_members(&self) -> bool;

    /// Returns the maximum time for an event in flight. After it, the caller gets the answer that the outcome is unknown.
    fn patience(&self) -> Duration;

    /// Appends, once, a record that this process is about to end. From then on it judges no commands, and others take over its duties.
    ///
    /// # Errors
    /// Fails if the log rejects the record. Then the others take over after the member timeout.
    fn leave(&mut self) -> Result<(), LogError>;
}

/// The durability policy: when an event counts as committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// An event is committed when it is synced. It survives a power loss at any moment.
    #[default]
    Always,
    /// An event is committed when it is written; a thread syncs once a second. It survives the end of the process. A power loss destroys
    /// about one second of events.
    EverySecond,
    /// An event is committed when it is written; the operating system decides when to sync.
    Never,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "everysec" => Ok(Self::EverySecond),
            "no" => Ok(Self::Never),
            _ => Err(format!("{text:?} is neither always, everysec nor no")),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::Never => "no",
        })
    }
}

/// Stores events in order.
pub trait Journal: Send + 'static {
    /// A record of a shared log, as it arrives. [`Infallible`] if the journal is not on one.
    type Received: Send;

    /// Appends an event. It is stored once [`Journal::commit`] has returned.
    ///
    /// # Errors
    /// Fails if the event cannot be appended.
    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError>;

    /// Bytes that are appended and not yet committed.
    fn pending_bytes(&self) -> usize;

    /// Stores all events appended so far, with the durability of the policy, or sends them to a shared log.
    ///
    /// # Errors
    /// Fails if it is not certain that the events are stored, or on their way.
    fn commit(&mut self) -> Result<Committed, JournalError>;

    /// Makes all committed events survive a power loss.
    ///
    /// # Errors
    /// Fails if it is not certain that the events are synced.
    fn sync(&mut self) -> Result<(), JournalError>;

    /// The last committed event.
    fn last(&self) -> Sequence;

    /// Returns true if [`Journal::mark_synced`] has something to write now or later.
    fn wants_mark(&self) -> bool {
        false
    }

    /// Writes a frame that records which events are synced. It is called when the journal is idle: otherwise the next event records it. The
    /// method cannot fail, since all events are stored without this frame, too.
    fn mark_synced(&mut self) {}

    /// Returns true if the last write was refused for a reason that may pass, such as a full disk.
    fn is_refusing(&self) -> bool {
        false
    }

    /// Tests, without an event, whether the journal can store events again after a refusal. It is called with nothing pending.
    ///
    /// # Errors
    /// Fails if it would still refuse them.
    fn probe(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Starts a new segment, so that all segments with events committed until now can be deleted together.
    ///
    /// # Errors
    /// Fails if it is not certain that the segment was started.
    fn begin_segment(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Returns the part for a shared log, if the journal is on one.
    fn shared(&mut self) -> Option<&mut dyn SharedJournal<Self::Received>> {
        None
    }

    /// Closes the journal in order, with everything synced.
    ///
    /// # Errors
    /// Fails if it is not certain that the journal was closed.
    fn close(&mut self) -> Result<(), JournalError>;
}

/// A journal that stores nothing: it only counts events. For engines without durability.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    last: Sequence,
}

impl Journal for MemoryJournal {
    type Received = Infallible;

    fn append(&mut self, _event: &Event) -> Result<Sequence, JournalError> {
        self.last = self.last.next();
        Ok(self.last)
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    fn commit(&mut self) -> Result<Committed, JournalError> {
        Ok(Committed::Stored)
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn last(&self) -> Sequence {
        self.last
    }

    fn close(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}
