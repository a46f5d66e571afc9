//! The state that all actors of an engine share.

use std::ops::Deref;
use std::sync::Arc;

use crate::runtime::core::Core;
use crate::runtime::reader::direct_budget::DirectBudget;
use crate::runtime::reader::inboxes::Inboxes;
use crate::runtime::reader::user::directory::Directory;

/// The state that all actors of an engine share: its core, and the awake readers. User actors have only the core and
/// the directory.
pub struct Shared {
    /// The settings, the data and the figures.
    pub(crate) core: Arc<Core>,
    /// The directory of awake readers.
    pub directory: Arc<Directory>,
    /// The inboxes of each shard.
    pub inboxes: Box<[Arc<Inboxes>]>,
    /// The budget of pages that are built on the threads of their callers.
    pub(crate) direct_budget: DirectBudget,
}

impl Shared {
    /// Creates the state of an engine without actors, in which all readers are asleep.
    pub(crate) fn new(core: Core) -> Self {
        let sharding = core.world.sharding;
        Self {
            core: Arc::new(core),
            directory: Arc::new(Directory::new(sharding)),
            inboxes: (0..sharding.shards()).map(|_| Arc::default()).collect(),
            direct_budget: DirectBudget::default(),
        }
    }
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
