//! The core of a cluster: which records of a shared log count, which node is the sequencer, and which node owns which readers.
//!
//! Responsible for:
//! - the records of the log ([`record`]), and their meaning in their order ([`membership`]): every node that has read the same records comes
//!   to the same result;
//! - what a node has to append so that the cluster goes on ([`failure_detector`]);
//! - the log as the journal of a node ([`journal`]), and what other threads see of the cluster ([`state`]);
//! - how far a node has read the log, for its snapshots ([`log_checkpoint`]), from where it can read the log again ([`start_points`]), and which
//!   other nodes could give a snapshot ([`peers`]).
//!
//! The order of the log replaces an election. A node becomes the sequencer by appending a claim of the next epoch, and it is the sequencer
//! once it reads this claim back and no other node's claim of the same epoch stands before it. Only what the sequencer of the current epoch
//! has appended counts, and only without a gap. So a node that was paused or cut off and goes on writing changes nothing, on any node.

pub mod failure_detector;
pub mod figures;
pub mod join_error;
pub mod journal;
pub mod log_checkpoint;
pub mod membership;
pub mod peers;
pub mod placement;
pub mod record;
pub mod start_points;
pub mod state;
