//! The identity that all files of a data directory have in common.

use std::fmt;

/// Length of an identity in bytes.
pub const IDENTITY_BYTES: usize = 16;

/// Random bytes that are the same in all files of one directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; IDENTITY_BYTES]);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

/// The first bytes of the identity that all nodes of a cluster have. Other identities are random.
const OF_CLUSTER: [u8; 8] = *b"cluster\0";

impl Identity {
    /// Returns the identity of the data directories of all nodes of a cluster.
    pub fn of_cluster(cluster: u64) -> Self {
        let mut bytes = [0; IDENTITY_BYTES];
        let (start, end) = bytes.split_at_mut(OF_CLUSTER.len());
        start.copy_from_slice(&OF_CLUSTER);
        end.copy_from_slice(&cluster.to_be_bytes());
        Self(bytes)
    }

    /// Returns the cluster if this is the identity of its nodes.
    pub fn cluster(self) -> Option<u64> {
        let end = self.0.strip_prefix(&OF_CLUSTER)?;
        end.try_into().ok().map(u64::from_be_bytes)
    }

    pub(super) fn line(self) -> String {
        format!("tidewire {self} {:08x}\n", crc32c::crc32c(&self.0))
    }

    pub(super) fn of_line(line: &str) -> Option<Self> {
        let identity = Self(u128::from_str_radix(line.split(' ').nth(1)?, 16).ok()?.to_be_bytes());
        (identity.line() == line).then_some(identity)
    }
}
