//! The engine's interface for registered consumers of changes.

use crate::engine::Engine;
use crate::engine::changes::{ChangeLog, ChangesError};
use crate::id::ConsumerName;
use crate::limits::CHANGE_CONSUMERS_MAX;
use crate::storage::error::StorageError;
use crate::storage::sequence::Sequence;

/// A consumer of changes that is registered by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeConsumer {
    /// The name by which it is registered.
    pub name: ConsumerName,
    /// The last event that it has processed.
    pub sequence: Sequence,
    /// The number of records that were committed after that.
    pub behind: u64,
}

/// The reason why a consumer could not be registered or removed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeConsumerError {
    /// The journal does not have its position.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// The engine is a node of a cluster, whose log keeps records by rules of its own.
    #[error("consumers of changes cannot be registered in a cluster: the log of the cluster has its own retention")]
    InCluster,
    /// The maximum number of consumers is registered.
    #[error("there are {CHANGE_CONSUMERS_MAX} consumers of changes, the maximum")]
    TooMany,
    /// The positions could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Engine {
    /// Returns all registered consumers, in the order of their names.
    pub fn change_consumers(&self) -> Vec<ChangeConsumer> {
        let consumers = self.inner.shared.change_consumers.all();
        let described = consumers.into_iter().map(|(name, sequence)| self.change_consumer(name, sequence));
        described.collect()
    }

    /// Returns the position of a consumer, if it is registered.
    pub fn change_consumer_position(&self, name: &ConsumerName) -> Option<Sequence> {
        self.inner.shared.change_consumers.position(name)
    }

    /// Registers a consumer that has processed all events up to `sequence`, or moves it there. From then on the journal
    /// after this event is kept, up to `changes_retention_bytes`. Blocks until this is stored.
    ///
    /// # Errors
    /// Fails if the journal no longer has the event after `sequence` or ends before `sequence`, if there are too many
    /// consumers, or if the position cannot be stored. The positions are then unchanged.
    pub fn set_change_consumer(
        &self,
        name: ConsumerName,
        sequence: Sequence,
    ) -> Result<ChangeConsumer, ChangeConsumerError> {
        let (log, consumers) = (self.own_log()?, &self.inner.shared.change_consumers);
        let journal_begins = consumers.hold_journal();
        let mut range = log.range().map_err(ChangesError::from)?;
        range.first = range.first.max(*journal_begins);
        range.check_after(sequence).map_err(ChangesError::from)?;
        if !consumers.set(name.clone(), sequence)? {
            return Err(ChangeConsumerError::TooMany);
        }
        Ok(self.change_consumer(name, sequence))
    }

    /// Removes a consumer. Blocks until this is stored. Returns false if no consumer has this name.
    ///
    /// # Errors
    /// Fails if this cannot be stored. The consumer then stays registered.
    pub fn remove_change_consumer(&self, name: &ConsumerName) -> Result<bool, ChangeConsumerError> {
        self.own_log()?;
        Ok(self.inner.shared.change_consumers.remove(name)?)
    }

    fn change_consumer(&self, name: ConsumerName, sequence: Sequence) -> ChangeConsumer {
        let last = self.journal().map_or(sequence, |journal| journal.committed.last());
        ChangeConsumer { name, sequence, behind: last.0.saturating_sub(sequence.0) }
    }

    fn own_log(&self) -> Result<&ChangeLog, ChangeConsumerError> {
        match self.inner.changes.as_ref().ok_or(ChangesError::NoJournal)? {
            log @ ChangeLog::Own(_) => Ok(log),
            ChangeLog::Shared(..) => Err(ChangeConsumerError::InCluster),
        }
    }
}
