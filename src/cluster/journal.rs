//! The journal of a node in a cluster: the shared log, as the scribe sees it.
//!
//! Responsible for:
//! - appending events as records of the current epoch, and telling of the records that were read back which of them count;
//! - beats, claims and changes of the members, when they are due;
//! - showing other threads where requests must be handled ([`ClusterView`]).
//!
//! Not responsible for:
//! - which records count (`cluster::membership`), applying events (`runtime::writer`).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use serde::Serialize;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::cluster::membership::{Counted, Membership, ReadError};
use crate::cluster::presence::{Duty, Presence};
use crate::cluster::record::{Content, Epoch, Header, NodeName, NodeRun, decode_header, encode, encode_packed};
use crate::cluster::view::ClusterView;
use crate::feed::event::Event;
use crate::storage::frame::pack;
use crate::storage::journal::{Committed, Journal, JournalError, ReadBack, Sequence, SharedJournal};
use crate::storage::log::{LogError, LogReader, LogRecord, LogWriter, SharedLog};
use crate::throttle::Throttle;

/// Maximum number of batches of records that were read and not applied yet.
const BATCHES_AHEAD: usize = 4;

/// Time for which the reading thread waits for a record.
const READ_WAIT: Duration = Duration::from_millis(100);

/// Time after which a log that could not be read is tried again.
const READ_RETRY: Duration = Duration::from_millis(200);

/// Maximum time that a node which leaves waits until the log has stored that.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// The default time after which a silent node counts as dead.
pub const SESSION: Duration = Duration::from_secs(6);

/// The options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name of the node, which no other node of the cluster has.
    pub name: NodeName,
    /// The address at which other nodes reach it: scheme, host and port.
    pub address: String,
    /// Time after which a silent node counts as dead. All nodes have the same.
    pub session: Duration,
}

type Records = Result<Vec<LogRecord>, LogError>;

/// The journal of a node in a cluster.
pub struct ClusterJournal {
    me: NodeRun,
    session: Duration,
    clock: Arc<dyn Clock>,
    writer: Box<dyn LogWriter>,
    incoming: Receiver<Records>,
    membership: Membership,
    presence: Presence,
    /// The contents of events that are accepted and not sent yet.
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
    /// The epoch for which this process was promoted, and the number of its next record in it.
    epoch: Epoch,
    next_nth: u64,
    /// The number of events that were sent in this epoch and not read back yet, and the time since which the first of them is.
    unread: usize,
    unread_since: Duration,
    /// True if a record was lost on its way, so that those after it do not count: a new epoch must begin.
    must_reclaim: bool,
    reclaimed_at: Option<Duration>,
    applied: Sequence,
    /// The last record that was in the log when this process started.
    ready_at: Sequence,
    failed: bool,
    unavailable_logged: Throttle,
    view: Arc<ClusterView>,
}

/// The reason why a node could not join a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The log could not be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log is empty.
    #[error("{0} is empty: create the cluster with `tidewire cluster init`")]
    Empty(String),
    /// The first record is not that of a cluster.
    #[error("record {sequence} of {place}: {cause}")]
    NotACluster {
        /// The address of the log.
        place: String,
        /// The sequence of the record.
        sequence: Sequence,
        /// The reason of the refusal.
        cause: ReadError,
    },
}

/// An event as the content of a record, without copying it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum EventContent<'a> {
    Event(&'a Event),
}

/// Writes the first record of a log.
///
/// # Errors
/// Fails if the log has records already, or cannot be used.
pub fn found(log: &dyn SharedLog, partitions: u32, cluster: crate::cluster::record::ClusterId) -> Result<(), LogError> {
    let range = log.range()?;
    if range.last >= range.first && range.last > Sequence(0) {
        return Err(LogError::Setup(format!("{} has records already", log.place())));
    }
    let by = NodeRun { node: "init".parse().expect("a valid name"), run: 0 };
    let header = Header { cluster, by, epoch: Epoch(0), nth: 0 };
    let mut writer = log.writer()?;
    writer.append(encode(&header, &Content::Founded { partitions }))?;
    let mut reader = log.reader(Sequence(0))?;
    let first = reader.read(FOUND_WAIT)?;
    let first = first.first().and_then(|record| decode_header(&record.bytes).ok());
    match first {
        None => Err(LogError::Unavailable(format!("{} has not stored the first record in time", log.place()))),
        Some((first, _)) if first.cluster == cluster => Ok(()),
        Some(_) => Err(LogError::Setup(format!("{} was made the log of another cluster just now", log.place()))),
    }
}

/// Time for which the first record of a log may take.
const FOUND_WAIT: Duration = Duration::from_secs(30);

impl ClusterJournal {
    /// Opens the log of a cluster at its start, and starts the thread that reads it. Blocks until the first record was read.
    ///
    /// # Errors
    /// Fails if the log cannot be used, or is not the log of a cluster.
    pub fn open(log: &dyn SharedLog, options: NodeOptions, clock: Arc<dyn Clock>) -> Result<Self, JoinError> {
        let range = log.range()?;
        let mut reader = log.reader(Sequence(0))?;
        let first = reader.read(FOUND_WAIT)?;
        let Some(founding) = first.first() else { return Err(JoinError::Empty(log.place())) };
        let not_a_cluster = |cause| JoinError::NotACluster { place: log.place(), sequence: founding.sequence, cause };
        let header = decode_header(&founding.bytes).map_err(ReadError::from);
        let founded = header.and_then(|(header, content)| Membership::founded(&header, content));
        let membership = founded.map_err(not_a_cluster)?;
        let me = NodeRun { node: options.name, run: fastrand::u64(..) };
        let now = clock.monotonic();
        let view = Arc::new(ClusterView::new(me.clone(), membership.clone(), Arc::clone(&clock)));
        let (batches, incoming) = crossbeam_channel::bounded(BATCHES_AHEAD);
        let applied = founding.sequence;
        let rest = first.into_iter().skip(1).collect();
        let writer = log.writer()?;
        let reading =
            thread::Builder::new().name("tidewire-log".to_owned()).spawn(move || read(reader, rest, &batches));
        reading.map_err(|cause| LogError::Unavailable(format!("no thread to read it: {cause}")))?;
        Ok(Self {
            presence: Presence::new(me.clone(), options.address, options.session, now),
            me,
            session: options.session,
            clock,
            writer,
            incoming,
            membership,
            pending: Vec::new(),
            pending_bytes: 0,
            epoch: Epoch::default(),
            next_nth: 0,
            unread: 0,
            unread_since: now,
            must_reclaim: false,
            reclaimed_at: None,
            applied,
            ready_at: range.last,
            failed: false,
            unavailable_logged: Throttle::default(),
            view,
        })
    }

    /// Returns what other threads see of the cluster.
    pub fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.view)
    }

    fn header(&self, epoch: Epoch, nth: u64) -> Header {
        Header { cluster: self.membership.cluster(), by: self.me.clone(), epoch, nth }
    }

    /// Appends a record of the sequencer.
    fn append_as_sequencer(&mut self, content: &[u8]) -> Result<(), LogError> {
        self.writer.append(encode_packed(&self.header(self.epoch, self.next_nth), content))?;
        self.next_nth += 1;
        Ok(())
    }

    fn fulfil(&mut self, duty: Duty) -> Result<(), LogError> {
        match duty {
            Duty::Beat(nth, content) => {
                self.writer.append(encode(&self.header(self.membership.epoch(), nth), &content))
            }
            Duty::Claim => self.claim(),
            Duty::AsSequencer(content) => {
                let mut bytes = Vec::new();
                pack(&content, &mut bytes);
                self.append_as_sequencer(&bytes)
            }
        }
    }

    /// A writer that has failed may have lost records that were appended before.
    fn note_failed_append(&mut self, cause: &LogError) {
        let may_have_lost = !matches!(cause, LogError::Busy { .. } | LogError::TooLarge { .. });
        self.must_reclaim |= may_have_lost && self.unread > 0;
        self.log_unavailable(cause);
    }

    fn claim(&mut self) -> Result<(), LogError> {
        self.writer.append(encode(&self.header(self.membership.epoch().next(), 0), &Content::Claim))
    }

    fn log_unavailable(&self, cause: &LogError) {
        if let Some(left_out) = self.unavailable_logged.due() {
            warn!(more_since_last = left_out, "{cause}");
        }
    }

    fn read_record(&mut self, record: &LogRecord, each: &mut dyn FnMut(Sequence, ReadBack)) -> Result<(), ReadError> {
        let (header, content) = decode_header(&record.bytes)?;
        let expected = self.membership.next_nth();
        let counted = self.membership.read(record.sequence, &header, content)?;
        let is_mine = header.by == self.me;
        // A record before this one was lost on its way, so no more of this epoch count.
        self.must_reclaim |= counted == Counted::Nothing
            && is_mine
            && self.is_sequencer()
            && header.epoch == self.epoch
            && header.nth > expected;
        self.applied = record.sequence;
        self.presence.note(self.clock.monotonic(), &header, &counted);
        match counted {
            Counted::Event(_) if is_mine && self.unread > 0 => {
                (self.unread, self.unread_since) = (self.unread - 1, self.clock.monotonic());
                each(record.sequence, ReadBack::Own);
            }
            Counted::Event(event) => each(record.sequence, ReadBack::Other(event)),
            Counted::Claimed => {
                info!("epoch {}: {} is the sequencer", header.epoch.0, header.by.node);
                // Events of an earlier epoch that stand behind this record do not count.
                self.unread = 0;
                self.pending.clear();
                self.pending_bytes = 0;
                (self.must_reclaim, self.reclaimed_at) = (false, None);
                each(record.sequence, ReadBack::Void);
                if is_mine {
                    (self.epoch, self.next_nth) = (header.epoch, 1);
                    each(record.sequence, ReadBack::Promoted);
                }
            }
            Counted::Members | Counted::Beat { .. } | Counted::Left | Counted::Nothing => {}
        }
        Ok(())
    }

    fn fail(&mut self, cause: String, each: &mut dyn FnMut(Sequence, ReadBack)) {
        self.failed = true;
        self.view.fail();
        each(self.applied, ReadBack::Failed(cause));
    }

    fn is_sequencer(&self) -> bool {
        self.membership.sequencer() == Some(&self.me) && self.membership.epoch() == self.epoch
    }

    fn show(&self) {
        self.view.show(&self.membership, self.applied, self.presence.lease_until(), self.applied >= self.ready_at);
    }
}

/// Reads the log until the receiver is dropped.
fn read(mut reader: Box<dyn LogReader>, first: Vec<LogRecord>, batches: &Sender<Records>) {
    let mut records = Ok(first);
    loop {
        let has_failed = records.is_err();
        // An empty batch is sent as well: so this notices that nobody receives any more.
        if batches.send(records).is_err() {
            return;
        }
        if has_failed {
            thread::park_timeout(READ_RETRY);
        }
        records = reader.read(READ_WAIT);
    }
}

impl Journal for ClusterJournal {
    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError> {
        let mut content = Vec::new();
        pack(&EventContent::Event(event), &mut content);
        self.pending_bytes += content.len();
        self.pending.push(content);
        Ok(self.applied)
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    fn commit(&mut self) -> Result<Committed, JournalError> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if !self.is_sequencer() || self.must_reclaim {
            return Err(JournalError::Unavailable("this node takes no writes now".to_owned()));
        }
        for (nth, content) in pending.iter().enumerate() {
            if self.unread == 0 {
                self.unread_since = self.clock.monotonic();
            }
            if let Err(cause) = self.append_as_sequencer(content) {
                self.note_failed_append(&cause);
                let cause = JournalError::Unavailable(cause.to_string());
                return if nth == 0 { Err(cause) } else { Ok(Committed::SentFirst(nth, cause)) };
            }
            self.unread += 1;
        }
        Ok(Committed::Sent)
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn last(&self) -> Sequence {
        self.applied
    }

    fn shared(&mut self) -> Option<&mut dyn SharedJournal> {
        Some(self)
    }

    fn close(&mut self) -> Result<(), JournalError> {
        let left = self.writer.append(encode(&self.header(self.membership.epoch(), 0), &Content::Leave));
        // Otherwise the others would wait for a session until they take over.
        self.writer.flush(LEAVE_WAIT);
        left.map_err(|cause| JournalError::Unavailable(cause.to_string()))
    }
}

impl SharedJournal for ClusterJournal {
    fn incoming(&self) -> &Receiver<Records> {
        &self.incoming
    }

    fn read(&mut self, records: Records, each: &mut dyn FnMut(Sequence, ReadBack)) {
        if self.failed {
            return;
        }
        match records {
            Ok(records) => {
                for record in &records {
                    if let Err(cause) = self.read_record(record, each) {
                        return self.fail(format!("record {}: {cause}", record.sequence), each);
                    }
                }
            }
            Err(
                cause @ (LogError::Deleted { .. }
                | LogError::Shorter { .. }
                | LogError::Replaced { .. }
                | LogError::Setup(_)),
            ) => {
                return self.fail(cause.to_string(), each);
            }
            Err(cause) => self.log_unavailable(&cause),
        }
        if self.presence.must_give_up_name(self.clock.monotonic(), &self.membership) {
            self.fail(format!("another process takes part in the cluster as node {}", self.me.node), each);
        }
    }

    fn note_applied(&mut self) {
        if self.applied >= self.ready_at {
            self.presence.set_ready();
        }
        if !self.failed {
            self.show();
        }
    }

    fn tend(&mut self) {
        if self.failed {
            return;
        }
        let now = self.clock.monotonic();
        self.must_reclaim |= self.unread > 0 && now.saturating_sub(self.unread_since) > self.session / 2;
        let mut duties = self.presence.duties(now, &self.membership, self.applied);
        let waits = self.reclaimed_at.is_some_and(|at| now.saturating_sub(at) <= self.session / 2);
        if self.is_sequencer() && self.must_reclaim && !waits {
            self.reclaimed_at = Some(now);
            duties.push(Duty::Claim);
        }
        for duty in duties {
            if let Err(cause) = self.fulfil(duty) {
                self.note_failed_append(&cause);
            }
        }
    }

    fn may_judge(&self) -> bool {
        let is_leased = self.presence.lease_until().is_some_and(|until| self.clock.monotonic() < until);
        !self.failed && self.is_sequencer() && is_leased && !self.must_reclaim
    }

    fn patience(&self) -> Duration {
        self.session
    }
}
