//! The core of a cluster: the records of a shared log that take effect, the sequencer, and the owners of readers.
//!
//! Responsible for:
//! - the records of the log ([`record`]), and their meaning in their order ([`membership`]): all nodes that have read
//!   the same records have the same result;
//! - the records that a node has to append so that the cluster continues to work ([`failure_detector`]);
//! - the log as the journal of a node ([`journal`]), and the cluster state for other threads ([`state`]);
//! - the checkpoint of a node in the log, for its snapshots ([`log_checkpoint`]), the places from which it can read the
//!   log again ([`start_points`]), and the nodes that could send it a snapshot ([`peers`]).
//!
//! The order of the log replaces an election. A node becomes the sequencer by appending a claim of the next epoch: it
//! is the sequencer once it reads this claim back and no other node's claim of the same epoch stands before it. Records
//! take effect only if the sequencer of the current epoch has appended them, and only without a gap. So a node that was
//! paused or cut off and continues to write changes nothing, on any node.

pub mod failure_detector;
pub mod figures;
pub mod join_error;
pub mod journal;
pub mod log_checkpoint;
pub mod membership;
pub mod peers;
pub mod placement;
pub mod received;
pub mod record;
pub mod start_points;
pub mod state;
