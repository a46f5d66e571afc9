//! A benchmark of Tidewire and of alternative feed designs: the same work, the same machine, one run.
//!
//! Responsible for:
//! - worlds of users (`world`), the operations on them (`workload`), and posts with ids and times (`mint`);
//! - running these operations on each design (`target`), in a closed loop or at intended times (`drive`), after checking that each design
//!   answers correctly (`check`), and checking again afterwards (`verifier`);
//! - the same under overload (`overload`, `recovery`), for hours (`soak`), and for live connections (`live`);
//! - measurements of the nodes of a cluster (`cluster`), and the needs of larger clusters (`scale`), by `simulation`;
//! - computing the results (`measure`), checking that they are reliable (`warning`), and reporting them (`report`).

pub mod check;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod drive;
pub mod environment;
pub mod initial_load;
pub mod latency;
pub mod live;
pub mod measure;
pub mod mint;
pub mod operation;
pub mod overload;
pub mod prepare;
pub mod recovery;
pub mod report;
pub mod scale;
pub mod search;
pub mod settle;
pub mod simulation;
pub mod soak;
pub mod target;
pub mod turn;
pub mod verifier;
pub mod warning;
pub mod workload;
pub mod world;
