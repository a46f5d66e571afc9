//! The whole state of a server as lines of JSON, with names instead of numbers: for other systems, and for another data directory.
//!
//! Responsible for:
//! - the lines and their order (`line`), specified in `docs/export.md`; writing them from a state at rest (`write`); building a data
//!   directory from them (`read`).
//!
//! Sources are in the order of their numbers, and an import gives them the same numbers again. So the export of an imported state has the
//! same bytes. The place of a post (memory or archive) and its route (push or pull) are not exported: a server determines them again.

pub(crate) mod directory;
mod line;
mod read;
mod tests;
mod write;

pub(crate) use write::{WriteError, write};
