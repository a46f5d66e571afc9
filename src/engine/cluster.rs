//! An engine that is a node of a cluster.

use std::sync::Arc;

use crate::clock::Clock;
use crate::cluster::journal::{ClusterJournal, JoinError, NodeOptions};
use crate::cluster::view::ClusterView;
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::engine::start::{Foundation, start};
use crate::feed::followers::Sharding;
use crate::state::world::World;
use crate::storage::log::SharedLog;

impl Engine {
    /// Starts an engine that takes part in the cluster of `log`, with all state in memory. It reads the log from its start, and is ready
    /// once it has read all that was there (`ClusterView::is_ready`). Commands are refused while another node is the sequencer.
    ///
    /// # Errors
    /// Fails if the log cannot be used, or is not the log of a cluster.
    pub fn join(
        config: EngineConfig,
        log: &dyn SharedLog,
        options: NodeOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Arc<ClusterView>), JoinError> {
        let journal = ClusterJournal::open(log, options, Arc::clone(&clock))?;
        let view = journal.view();
        let (world, writer) = World::create(config.celebrity, Sharding::new(config.shards.get()));
        let config = Arc::new(config);
        let (engine, _) = start(Foundation { config, clock, world, writer, journal, last_instant: None, lock: None });
        Ok((engine, view))
    }
}
