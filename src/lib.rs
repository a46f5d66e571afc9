//! Tidewire: a feed engine in one process.
//!
//! It returns, fast and for very many readers, the newest posts of the sources that a reader follows.
//! [`Engine`] has every operation. [`Engine::start`] stores all data in memory; [`Engine::open_directory`] also persists it in a data
//! directory. An engine runs on threads of its own, so a program under any runtime can embed it. Clones of an `Engine` share one engine.
//!
//! ```
//! use tidewire::{Body, Draft, Engine, EngineConfig, NewEdge, PageRequest, SourceId};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let engine = Engine::start(EngineConfig::default());
//! let (ann, bob) = (SourceId::new("ann")?, SourceId::new("bob")?);
//! engine.follow(vec![NewEdge::new(ann.clone(), bob.clone())]).await?;
//! engine.publish(Draft::new(bob, Body::new(r#"{"text":"hello"}"#)?), true).await?;
//! let feed = engine.feed(&ann, PageRequest::newest(20)).await?;
//! assert_eq!(feed.page.items.len(), 1);
//! engine.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate `tidewire-server` serves an engine over HTTP. It uses the engine's modules, which are hidden here and promise no stability.
//! ARCHITECTURE.md in the repository is the map of them.

// Hidden, since only the items that are named below are the interface: the server, the load tool and the tests use the modules directly.
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod cluster;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod error_text;
#[doc(hidden)]
pub mod feed;
#[doc(hidden)]
pub mod id;
#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod latency;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod live;
#[doc(hidden)]
pub mod recovery;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod state;
#[doc(hidden)]
pub mod storage;
#[doc(hidden)]
pub mod throttle;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

pub use clock::{Clock, SystemClock, TimeError, UnixMicros};
pub use config::EngineConfig;
pub use engine::{
    Candidate, Changes, ChangesError, Engine, Erasing, FeedPage, Listed, Missed, PublishedPost, QueueDepth, RouteCost,
    SnapshotOptions, SourceInfo, StorageConfig, StoredEvent, Unread, Watcher,
};
pub use error::{Error, FollowRefusal};
pub use feed::body::BodyError;
pub use feed::celebrity::{CelebrityPolicy, CostModel, RouteBasis};
pub use feed::event::{Event, MuteOrBlock, NewEdge};
pub use feed::kind::Kind;
pub use feed::outbox::Route;
pub use feed::page::{Page, Range, Reach};
pub use feed::position::Position;
pub use feed::post::{Body, Draft, Post};
pub use feed::resume::{DeliveryWatermark, Resume};
pub use feed::rules::{Replies, Rules, RulesPatch};
pub use feed::stream::{Epoch, StreamLimits, StreamPosition};
pub use id::{
    ExternalId, ExternalIdError, ListName, PostId, PostIdError, PostName, PostNameError, SourceId, SourceIdError,
};
pub use live::event::{EventKind, LiveEntry, LiveEvent};
pub use live::subscriber_queue::Closing;
pub use recovery::{RecoveryProgress, RecoveryReport};
pub use runtime::message::{FollowResult, InboxTotals, Published, SnapshotTaken};
pub use state::explain::{Blocker, DecidedBy, Explanation, Reason};
pub use state::feed_filter::Entry;
pub use state::reader::PageRequest;
pub use state::verify::Verdict;
pub use storage::error::StorageError;
pub use storage::journal::Durability;
pub use storage::journal::writer::JournalOptions;
pub use storage::log::LogError;
pub use storage::sequence::Sequence;

/// Compiles the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
