//! Loads Tidewire, and the designs that people use in its place, side by side: the same work, the same machine, one run.
//!
//! Responsible for:
//! - worlds of users (`world`) and the work they make (`workload`), posts with ids and times (`mint`);
//! - doing that work on each design (`target`), in a closed loop or at intended times (`drive`), and first of all checking
//!   that each design answers right (`check`), and afterwards that it still does (`verifier`);
//! - the same when more is asked for than is possible (`overload`, `recovery`), for hours (`soak`), and of connections that are
//!   told live (`live`);
//! - what was measured (`measure`), whether to believe it (`warning`), and telling it (`report`).
//!
//! Not responsible for:
//! - what a feed is: that is `tidewire`, and for the check a naive model.

pub mod check;
pub mod cli;
pub mod compare;
pub mod drive;
pub mod environment;
pub mod latency;
pub mod live;
pub mod measure;
pub mod mint;
pub mod operation;
pub mod overload;
pub mod prepare;
pub mod recovery;
pub mod report;
pub mod search;
pub mod settle;
pub mod soak;
pub mod target;
pub mod turn;
pub mod verifier;
pub mod warning;
pub mod workload;
pub mod world;
