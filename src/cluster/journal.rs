//! The journal of a node in a cluster: the shared log, as the command processor sees it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use serde::Serialize;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::cluster::failure_detector::{Action, FailureDetector};
pub use crate::cluster::join_error::JoinError;
use crate::cluster::log_checkpoint::{LogCheckpoint, first_read};
use crate::cluster::membership::{Membership, ReadError, RecordOutcome};
use crate::cluster::placement::Placement as _;
use crate::cluster::received::{ReceivedContent, ReceivedRecord};
use crate::cluster::record::{
    ClusterId, Content, Epoch, Header, Incarnation, NodeName, decode_content, encode, encode_packed,
};
use crate::cluster::state::ClusterState;
use crate::feed::event::Event;
use crate::storage::frame::pack;
use crate::storage::journal::writer::JournalFigures;
use crate::storage::journal::{Committed, Journal, JournalError, LogOutcome, SharedJournal};
use crate::storage::log::{LogError, LogReader, LogRecord, LogWriter, SharedLog};
use crate::storage::sequence::Sequence;
use crate::throttle::Throttle;

/// Maximum number of batches of records that were read and not applied yet.
const BATCHES_AHEAD: usize = 4;

/// Time for which the reading thread waits for a record.
const READ_WAIT: Duration = Duration::from_millis(100);

/// Delay before a log that could not be read is tried again.
const READ_RETRY: Duration = Duration::from_millis(200);

/// Maximum time that a leaving node waits until the log has stored its last record.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// The default time after which a silent node counts as dead.
pub const SESSION: Duration = Duration::from_secs(6);

/// The options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name of the node, unique in the cluster.
    pub name: NodeName,
    /// The address at which other nodes reach it: scheme, host and port.
    pub address: String,
    /// Time after which a silent node counts as dead. All nodes have the same.
    pub session: Duration,
}

type Records = Result<Vec<ReceivedRecord>, LogError>;

/// The journal of a node in a cluster.
pub struct ClusterJournal {
    me: Incarnation,
    session: Duration,
    clock: Arc<dyn Clock>,
    writer: Box<dyn LogWriter>,
    incoming: Receiver<Records>,
    membership: Membership,
    failure_detector: FailureDetector,
    /// The contents of events that are accepted and not sent yet.
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
    /// The epoch for which this process was promoted, and the number of its next record in it.
    epoch: Epoch,
    next_nth: u64,
    /// The number of events that were sent in this epoch and not read back yet, and the time since which the node waits
    /// for the first.
    unread: usize,
    unread_since: Duration,
    /// For each group that was sent and not read back yet: the number of its last event, and the time at which it was
    /// sent.
    groups: VecDeque<(u64, Duration)>,
    /// True if a record was lost on its way, so that later records have no effect: a new epoch must begin.
    must_reclaim: bool,
    reclaimed_at: Option<Duration>,
    applied: Sequence,
    /// The hash of the record at `applied`.
    fingerprint: u64,
    figures: Arc<JournalFigures>,
    /// The last record that was in the log when this process started.
    ready_at: Sequence,
    failed: bool,
    unavailable_logged: Throttle,
    view: Arc<ClusterState>,
}

/// An event as the content of a record, without copying it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum EventContent<'a> {
    Event(&'a Event),
}

/// Writes the first record of a log that begins with an empty state.
///
/// # Errors
/// Fails if the log has records already, or cannot be used.
pub fn bootstrap_log(log: &dyn SharedLog, partitions: u32, cluster: ClusterId) -> Result<(), LogError> {
    append_first(log, &first_record(cluster, &Content::Founded { partitions, archive: false }))
}

/// Writes the same for a cluster whose nodes share an archive.
///
/// # Errors
/// Fails for the same reasons as [`bootstrap_log`].
pub fn bootstrap_log_with_archive(log: &dyn SharedLog, partitions: u32, cluster: ClusterId) -> Result<(), LogError> {
    append_first(log, &first_record(cluster, &Content::Founded { partitions, archive: true }))
}

/// Returns the first record of a log, with this content.
pub fn first_record(cluster: ClusterId, content: &Content) -> LogRecord {
    let by = Incarnation { node: "init".parse().expect("a valid name"), run: 0 };
    let header = Header { cluster, by, epoch: Epoch(0), nth: 0 };
    LogRecord { sequence: Sequence(1), bytes: encode(&header, content) }
}

/// Refuses a log that is in use.
///
/// # Errors
/// Fails if the log has records already, or cannot be read.
pub fn refuse_used(log: &dyn SharedLog) -> Result<(), LogError> {
    match log.range()?.last {
        Sequence(0) => Ok(()),
        _ => Err(LogError::Setup(format!("{} already has records, or had some", log.place()))),
    }
}

/// Appends the first record of a log, and waits until the log has it.
///
/// # Errors
/// Fails if the log has records already, or cannot be used.
pub fn append_first(log: &dyn SharedLog, record: &LogRecord) -> Result<(), LogError> {
    refuse_used(log)?;
    let mut writer = log.writer()?;
    writer.append(record.bytes.clone())?;
    let mut reader = log.reader(Sequence(0))?;
    match first_read(&mut *reader, FOUND_WAIT)? {
        None => Err(LogError::Unavailable(format!("{} has not stored the first record in time", log.place()))),
        Some(first) if first == *record => Ok(()),
        Some(_) => Err(LogError::Setup(format!("{} became the log of another cluster at the same time", log.place()))),
    }
}

/// Maximum time until the log has its first record.
const FOUND_WAIT: Duration = Duration::from_secs(30);

impl ClusterJournal {
    /// Opens the log of a cluster after the record up to which it was `followed`, and starts the thread that reads it.
    ///
    /// # Errors
    /// Fails if the log cannot be used, or does not have the records after that one.
    pub fn open(
        log: &dyn SharedLog,
        followed: LogCheckpoint,
        options: NodeOptions,
        view: Arc<ClusterState>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        let ready_at = log.range()?.last;
        let LogCheckpoint { membership, sequence: applied, last_event, fingerprint } = followed;
        view.begin(last_event);
        let (reader, writer) = (log.reader(applied)?, log.writer()?);
        let (me, now) = (view.run().clone(), clock.monotonic());
        let (batches, incoming) = crossbeam_channel::bounded(BATCHES_AHEAD);
        let reading = {
            let me = me.clone();
            thread::Builder::new().name("tidewire-log".to_owned()).spawn(move || read(reader, &me, &batches))
        };
        reading.map_err(|cause| LogError::Unavailable(format!("cannot start a thread to read it: {cause}")))?;
        let mut journal = Self {
            failure_detector: FailureDetector::new(me.clone(), options.address, options.session, now),
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
            groups: VecDeque::new(),
            must_reclaim: false,
            reclaimed_at: None,
            applied,
            fingerprint,
            figures: Arc::default(),
            ready_at,
            failed: false,
            unavailable_logged: Throttle::default(),
            view,
        };
        journal.note_applied();
        Ok(journal)
    }

    /// Returns the figures of the records that were read from the log.
    pub fn figures(&self) -> Arc<JournalFigures> {
        Arc::clone(&self.figures)
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

    fn fulfil(&mut self, action: Action) -> Result<(), LogError> {
        match action {
            Action::Heartbeat(nth, content) => {
                self.writer.append(encode(&self.header(self.membership.epoch(), nth), &content))
            }
            Action::Claim => self.claim(),
            Action::AsSequencer(content) => {
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

    fn read_record(&mut self, record: ReceivedRecord) -> Result<Option<LogOutcome>, ReadError> {
        let ReceivedRecord { sequence, bytes, fingerprint, decoded } = record;
        let (header, content) = decoded?;
        let expected = self.membership.next_nth();
        let counted = match content {
            ReceivedContent::Decoded(content) => self.membership.read(sequence, &header, content)?,
            // This process waits for its oldest event, which it has, so the content is not decoded.
            ReceivedContent::OwnEvent(_) if self.unread > 0 => match self.membership.read_event(&header) {
                true => RecordOutcome::OwnEvent,
                false => RecordOutcome::Nothing,
            },
            ReceivedContent::OwnEvent(content) => self.membership.read(sequence, &header, decode_content(&content))?,
        };
        let is_mine = header.by == self.me;
        let counted = match counted {
            RecordOutcome::Event(_) if is_mine && self.unread > 0 => RecordOutcome::OwnEvent,
            counted => counted,
        };
        if matches!(counted, RecordOutcome::Event(_) | RecordOutcome::OwnEvent) {
            self.view.begin(sequence);
        }
        // A record before this one was lost on its way, so no more records of this epoch take effect.
        self.must_reclaim |= counted == RecordOutcome::Nothing
            && is_mine
            && self.is_sequencer()
            && header.epoch == self.epoch
            && header.nth > expected;
        (self.applied, self.fingerprint) = (sequence, fingerprint);
        self.figures.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        let (now, heard_before) = (self.clock.monotonic(), self.failure_detector.heard_at());
        self.failure_detector.note(now, &header, &counted, &self.membership);
        if let Some(sent) = self.failure_detector.heard_at().filter(|sent| Some(*sent) != heard_before) {
            self.view.figures.beat_latency.record(now.saturating_sub(sent));
        }
        Ok(match counted {
            RecordOutcome::OwnEvent => {
                (self.unread, self.unread_since) = (self.unread - 1, now);
                if let Some(sent) = self.groups.front().filter(|(last, _)| *last == header.nth).map(|(_, sent)| *sent) {
                    self.groups.pop_front();
                    self.view.figures.commit_latency.record(now.saturating_sub(sent));
                }
                Some(LogOutcome::Local)
            }
            RecordOutcome::Event(event) => Some(LogOutcome::Remote(event)),
            RecordOutcome::Claimed => {
                info!("epoch {}: {} is the sequencer", header.epoch.0, header.by.node);
                // Events of an earlier epoch after this record have no effect.
                self.unread = 0;
                self.groups.clear();
                self.pending.clear();
                self.pending_bytes = 0;
                (self.must_reclaim, self.reclaimed_at) = (false, None);
                if is_mine {
                    (self.epoch, self.next_nth) = (header.epoch, 1);
                }
                Some(LogOutcome::Fenced { is_promoted: is_mine })
            }
            RecordOutcome::Nothing => {
                self.view.figures.note_fenced();
                None
            }
            RecordOutcome::Members | RecordOutcome::Heartbeat { .. } | RecordOutcome::Left => None,
        })
    }

    fn fail(&mut self, cause: String) -> Option<LogOutcome> {
        self.failed = true;
        self.view.fail();
        Some(LogOutcome::Failed(cause))
    }

    fn is_sequencer(&self) -> bool {
        self.membership.sequencer() == Some(&self.me) && self.membership.epoch() == self.epoch
    }

    fn show(&self) {
        let has_company = self.failure_detector.has_company(self.clock.monotonic());
        self.view.show(
            &self.membership,
            self.applied,
            (&self.failure_detector, has_company),
            self.applied >= self.ready_at,
        );
    }
}

/// Reads the log for the process `me`, and decodes its records, until the receiver is dropped.
fn read(mut reader: Box<dyn LogReader>, me: &Incarnation, batches: &Sender<Records>) {
    loop {
        let records = reader.read(READ_WAIT);
        let decode =
            |records: Vec<LogRecord>| records.iter().map(|record| ReceivedRecord::decode(record, me)).collect();
        let records = records.map(decode);
        let has_failed = records.is_err();
        // An empty batch is sent as well, so that this thread notices a dropped receiver.
        if batches.send(records).is_err() {
            return;
        }
        if has_failed {
            thread::park_timeout(READ_RETRY);
        }
    }
}

impl Journal for ClusterJournal {
    type Received = ReceivedRecord;

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
            return Err(JournalError::Unavailable("this node does not accept writes now".to_owned()));
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
        self.groups.push_back((self.next_nth.saturating_sub(1), self.clock.monotonic()));
        Ok(Committed::Sent)
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn last(&self) -> Sequence {
        self.applied
    }

    fn shared(&mut self) -> Option<&mut dyn SharedJournal<ReceivedRecord>> {
        Some(self)
    }

    fn close(&mut self) -> Result<(), JournalError> {
        self.leave().map_err(|cause| JournalError::Unavailable(cause.to_string()))
    }
}

impl SharedJournal<ReceivedRecord> for ClusterJournal {
    fn incoming(&self) -> &Receiver<Records> {
        &self.incoming
    }

    fn read(&mut self, record: ReceivedRecord) -> Option<LogOutcome> {
        if self.failed {
            return None;
        }
        let sequence = record.sequence;
        self.read_record(record).unwrap_or_else(|cause| self.fail(format!("record {sequence}: {cause}")))
    }

    fn needs_fanout(&self, record: &ReceivedRecord) -> bool {
        let content = record.decoded.as_ref().map(|(_, content)| content);
        matches!(content, Ok(ReceivedContent::Decoded(Ok(Content::Event(Event::Published { .. })))))
    }

    fn end_message(&mut self, message: Result<(), LogError>) -> Option<LogOutcome> {
        if self.failed {
            return None;
        }
        match message {
            Ok(()) => {}
            Err(
                cause @ (LogError::Deleted { .. }
                | LogError::Shorter { .. }
                | LogError::Replaced { .. }
                | LogError::Damaged { .. }
                | LogError::Setup(_)),
            ) => {
                return self.fail(cause.to_string());
            }
            Err(cause) => self.log_unavailable(&cause),
        }
        if self.failure_detector.must_give_up_name(self.clock.monotonic(), &self.membership) {
            return self.fail(format!("another process already runs as node {}", self.me.node));
        }
        None
    }

    fn followed(&self) -> Vec<u8> {
        let (membership, sequence, fingerprint) = (self.membership.clone(), self.applied, self.fingerprint);
        let mut record = Vec::new();
        pack(&LogCheckpoint { membership, sequence, last_event: self.view.last_event(), fingerprint }, &mut record);
        record
    }

    fn note_applied(&mut self) {
        self.figures.committed.publish(self.applied);
        if self.applied >= self.ready_at {
            self.failure_detector.set_ready();
        }
        if !self.failed {
            self.show();
        }
    }

    fn tend(&mut self) {
        if self.failed || self.failure_detector.has_left() {
            return;
        }
        let now = self.clock.monotonic();
        self.must_reclaim |= self.unread > 0 && now.saturating_sub(self.unread_since) > self.session / 2;
        let mut actions = self.failure_detector.actions(now, &self.membership, self.applied);
        let waits = self.reclaimed_at.is_some_and(|at| now.saturating_sub(at) <= self.session / 2);
        if self.is_sequencer() && self.must_reclaim && !waits {
            self.reclaimed_at = Some(now);
            actions.push(Action::Claim);
        }
        for action in actions {
            if let Err(cause) = self.fulfil(action) {
                self.note_failed_append(&cause);
            }
        }
    }

    fn outruns_members(&self) -> bool {
        self.failure_detector.outruns_members(&self.membership)
    }

    fn may_judge(&self) -> bool {
        let is_leased = self.failure_detector.lease_until().is_some_and(|until| self.clock.monotonic() < until);
        !self.failed && !self.failure_detector.has_left() && self.is_sequencer() && is_leased && !self.must_reclaim
    }

    fn leave(&mut self) -> Result<(), LogError> {
        if self.failure_detector.has_left() {
            return Ok(());
        }
        self.writer.append(encode(&self.header(self.membership.epoch(), 0), &Content::Leave))?;
        self.failure_detector.leave();
        // Otherwise other nodes would take over only after a session.
        self.writer.flush(LEAVE_WAIT);
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.session
    }
}
