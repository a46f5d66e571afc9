//! Starts a design, loads it and checks its answers.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::runtime::{self, Runtime};

use crate::check::History;
use crate::drive::Run;
use crate::initial_load::Load;
use crate::live::online::{self, Online};
use crate::operation::{Kind as OperationKind, Operation, User};
use crate::report::Case;
use crate::report::progress::Progress;
use crate::settle::settled;
use crate::target::kind::{Kind, Settings};
use crate::target::process::resident_bytes;
use crate::target::tidewire::http::Http;
use crate::target::{Failure, Target};
use crate::verifier::{Allowance, Verifier};
use crate::workload::Mix;

/// Number of clients that publish the initial posts before any reader is active.
const LOADERS: usize = 16;

/// Number of readers whose pages are checked after loading.
const READERS_CHECKED: usize = 100;

/// If posts are deleted, one page in this many may be short: a design that makes two requests for a page may find a post deleted in
/// between.
const ODD_PAGES_SHARE: u64 = 100;

/// A design that is ready to be measured.
pub struct Prepared {
    /// The kind of the design.
    pub kind: Kind,
    /// The running design.
    pub target: Arc<dyn Target>,
    /// Number of pages that were compared and found correct.
    pub pages_checked: usize,
    /// Memory of the inboxes, for a design that pushes and has a server process of its own.
    pub memory: Option<Memory>,
    /// Observes all operations on the design; `None` for the mock, whose pages are empty.
    pub verifier: Option<Arc<Verifier>>,
    /// Readers who are online, for a design with live connections.
    pub online: Option<Online>,
    /// The runtime that the design was started on. It drives tasks that the design has spawned there.
    pub runtime: Runtime,
}

/// The memory of the inboxes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    bytes: u64,
    inboxes: usize,
}

impl Memory {
    /// Returns it as a case of the report.
    pub fn case(self) -> Case {
        let each = self.bytes as f64 / self.inboxes.max(1) as f64;
        Case { unit: "bytes/inbox".to_owned(), median: each, rounds: vec![each], ..Case::default() }
    }
}

impl Prepared {
    /// Starts a design, loads it, and checks its answers.
    ///
    /// # Errors
    /// If it does not start, or an answer is wrong.
    pub fn start(
        kind: Kind,
        settings: &Settings,
        load: &Load,
        seed: u64,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let runtime = runtime()?;
        progress.step(kind.name(), "starting");
        raise_open_files(load)?;
        let target = runtime.block_on(kind.start(&load.settings(settings)))?;
        Self::load(kind, target, runtime, load, seed, progress)
    }

    /// Does the same with a Tidewire server that is already running.
    ///
    /// # Errors
    /// If it does not answer, or an answer is wrong.
    pub fn running(address: SocketAddr, load: &Load, seed: u64, progress: &Progress) -> Result<Self, Failure> {
        raise_open_files(load)?;
        Self::load(Kind::TidewireHttp, Arc::new(Http::at(address)), runtime()?, load, seed, progress)
    }

    /// Checks that the results of a run are visible. Returns the number of compared pages.
    ///
    /// # Errors
    /// If something is wrong: the message has the expected and the actual result.
    pub fn check_after(&self, mix: &Mix, run: &Run) -> Result<usize, Failure> {
        let Some(verifier) = &self.verifier else { return Ok(0) };
        let pages = [OperationKind::Page, OperationKind::OwnPage].iter().filter_map(|kind| run.record.done.get(kind));
        let odd_pages = if mix.deletes() { pages.sum::<u64>() / ODD_PAGES_SHARE } else { 0 };
        let allowance = Allowance { by_arrival: self.kind == Kind::RedisList, odd_pages };
        self.runtime.block_on(verifier.check(&*self.target, allowance))
    }

    /// Creates a design without any data.
    #[cfg(test)]
    pub(crate) fn of(kind: Kind, target: Arc<dyn Target>) -> Self {
        Self {
            kind,
            target,
            pages_checked: 0,
            memory: None,
            verifier: None,
            online: None,
            runtime: runtime().expect("there is memory for a runtime"),
        }
    }

    fn load(
        kind: Kind,
        target: Arc<dyn Target>,
        runtime: Runtime,
        load: &Load,
        seed: u64,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let step = |what: &str| progress.step(kind.name(), what);
        let verifier = (kind != Kind::Mock).then(|| Arc::new(Verifier::new(load)));
        let (pages_checked, memory, online) = runtime
            .block_on(async {
                step("loading follows");
                target.load_follows(&load.world.edges()).await?;
                step("publishing the initial posts");
                publish(&*target, load).await?;
                let before = settled_bytes(&*target).await;
                step("filling inboxes");
                target.activate(&load.world.active).await?;
                let after = settled_bytes(&*target).await;
                let memory = before.zip(after).filter(|_| kind.pushes()).map(|(before, after)| Memory {
                    bytes: after.saturating_sub(before),
                    inboxes: load.world.active.len(),
                });
                step("checking answers");
                let checked = match &verifier {
                    Some(verifier) => check(&*target, load, verifier, seed).await?,
                    None => 0,
                };
                let online = match target.live_address().filter(|_| !load.online.is_empty()) {
                    Some(address) => {
                        step("connecting readers");
                        Some(Online::connect(address, load.online.to_vec()).map_err(|cause| Failure::of(&cause))?)
                    }
                    None => None,
                };
                progress.done(&format!("{checked} pages right"));
                Ok((checked, memory, online))
            })
            .map_err(
                |cause: Failure| if let Failure::Silent(_) = cause { cause.of_what(kind.name()) } else { cause },
            )?;
        Ok(Self { kind, target, pages_checked, memory, verifier, online, runtime })
    }
}

/// Raises the limit on open files for the connections of readers, in this process and in servers that it starts.
fn raise_open_files(load: &Load) -> Result<(), Failure> {
    online::make_room(load.online.len()).map_err(|cause| Failure::of(&cause))
}

/// Returns the settled memory of the server process, or `None` if there is no such process.
async fn settled_bytes(target: &dyn Target) -> Option<u64> {
    let process = target.process()?;
    Some(settled(|| resident_bytes(process)).await)
}

fn runtime() -> Result<Runtime, Failure> {
    runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| Failure::of(&cause))
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

/// Checks a random history of separate users, and pages of the loaded world. Returns the number of correct pages.
async fn check(target: &dyn Target, load: &Load, verifier: &Verifier, seed: u64) -> Result<usize, Failure> {
    let (ids, inbox_posts) = (load.mint.ids(), load.inbox_posts);
    let history = History { first_user: load.world.users() as User, seed, ids, inbox_posts };
    let in_history = history.check(target).await?;
    // Reset the counter: the deliveries up to now belong to no run.
    verifier.check_deliveries(target).await?;
    let readers: Vec<User> = load.world.active.iter().copied().take(READERS_CHECKED).collect();
    Ok(in_history + verifier.check_pages(target, &readers, false).await?)
}
