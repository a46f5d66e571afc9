//! The whole state of a server as lines of JSON, with names in place of numbers: for other systems, and for another data directory.
//!
//! Responsible for:
//! - the lines and their order (`line`), specified in `docs/export.md`; writing them from a state at rest (`write`); building a data directory from
//!   them (`read`).
//!
//! Sources come in the order of their numbers, and an import gives them these numbers again: the export of an imported state is the same bytes. Where
//! a post is stored, in memory or in the archive, and whether it is pushed or pulled is not exported: a server decides it again.

pub(crate) mod directory;
mod line;
mod read;
mod tests;
mod write;

pub(crate) use write::{WriteError, write};
