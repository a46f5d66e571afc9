//! A design, started and loaded, its answers checked.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::runtime::{self, Runtime};

use crate::check::{self, Loaded};
use crate::compare::{Load, Settings, Watch};
use crate::operation::{Operation, User};
use crate::report::Case;
use crate::target::kind::Kind;
use crate::target::process::resident_bytes;
use crate::target::{Failure, Target};

/// Clients that publish what is there before anyone is active.
const LOADERS: usize = 16;

/// Readers whose pages are checked once the world is loaded.
const READERS_CHECKED: usize = 100;

/// A design that is ready to be measured.
pub(super) struct Prepared {
    pub(super) kind: Kind,
    pub(super) target: Arc<dyn Target>,
    /// The runtime that it was started on, which drives what it may have left there.
    _runtime: Runtime,
    pub(super) pages_checked: usize,
    pub(super) memory: Option<Memory>,
}

/// What inboxes took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    bytes: u64,
    inboxes: usize,
}

impl Memory {
    pub(super) fn case(self) -> Case {
        let each = self.bytes as f64 / self.inboxes.max(1) as f64;
        Case { unit: "bytes/inbox".to_owned(), median: each, rounds: vec![each], ..Case::default() }
    }
}

impl Prepared {
    pub(super) fn new(kind: Kind, settings: &Settings, load: &Load, watch: &dyn Watch) -> Result<Self, Failure> {
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| Failure::of(&cause))?;
        let step = |what: &str| watch.step(kind.name(), what);
        step("starting");
        let target = runtime.block_on(kind.start(&settings.target))?;
        let checked = runtime.block_on(async {
            step("loading follows");
            target.load_follows(&load.world.edges()).await?;
            step("publishing what is there before");
            publish(&*target, load).await?;
            let before = target.process().map(resident_bytes);
            step("filling inboxes");
            target.activate(&load.world.active).await?;
            let after = target.process().map(resident_bytes);
            step("checking answers");
            let memory = before.zip(after).filter(|_| kind.pushes()).map(|(before, after)| Memory {
                bytes: after.saturating_sub(before),
                inboxes: load.world.active.len(),
            });
            Ok((check(kind, &*target, settings, load).await?, memory))
        });
        let (pages_checked, memory) = checked?;
        Ok(Self { kind, target, _runtime: runtime, pages_checked, memory })
    }
}

/// Publishes all posts, those of one author in order.
async fn publish(target: &dyn Target, load: &Load) -> Result<(), Failure> {
    let by_author: Vec<_> = load.posts.values().collect();
    let loaders = (0..LOADERS.min(by_author.len())).map(|loader| {
        let authors = by_author.iter().skip(loader).step_by(LOADERS);
        async move {
            let mut client = target.open().await?;
            for post in authors.flat_map(|posts| posts.iter()) {
                client.perform(&Operation::Publish(post.clone())).await?;
            }
            Ok(())
        }
    });
    try_join_all(loaders).await.map(drop)
}

/// Checks a random history of users of their own, and pages of the loaded world. Returns how many pages were right.
async fn check(kind: Kind, target: &dyn Target, settings: &Settings, load: &Load) -> Result<usize, Failure> {
    if kind == Kind::Mock {
        return Ok(0);
    }
    let strangers = load.world.users() as User;
    let in_history = check::random_history(target, strangers, settings.seed).await?;
    let edges = |reader| load.world.following.of(reader).to_vec();
    let loaded = Loaded { edges: &edges, posts: &load.posts };
    let readers: Vec<User> = load.world.active.iter().copied().take(READERS_CHECKED).collect();
    Ok(in_history + loaded.check(target, &readers).await?)
}
