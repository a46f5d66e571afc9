//! Limits of the erasure of users.

/// Maximum number of users that are being erased at the same time. They share one pass over the archive.
pub const ERASURES_MAX: usize = 1_024;

/// Length of the pause of an erasure, as a multiple of the work before it.
pub const ERASURE_RESTS: u32 = 1;
