//! Feeds in Redis, as many services implement them: an inbox for each reader, and a worker that pushes new posts to the inboxes.
//!
//! Responsible for:
//! - the common part of the designs: posts by id, pages with bodies, the fan-out, the active readers.
//!
//! Keys: `post:{id}` is a post as JSON text, with everything that a page shows. `own:{user}` is the outbox of a user, `in:{user}` is an
//! inbox; both hold ids in decimal digits. `following:{user}` and `followers:{user}` are the edges.

mod graph;
mod list;
mod server;
mod times;
mod zset;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Deserialize;
use serde_json::value::RawValue;

use self::graph::Graph;
use self::server::Server;
use self::times::Times;
use super::resp::pool::SharedLink;
use super::resp::protocol::Batch;
use super::{Client, Failure, Later, Target};
use crate::mint::Ids;
use crate::operation::{Answer, Item, Operation, PAGE_POSTS, Post, User};

/// Number of inboxes that are pushed to in one pipeline, with two commands each. The push rate is the same between 64 and 1,024; larger
/// pipelines delay the pages of other clients longer.
const PUSHES: usize = 256;

/// Number of commands that are sent together to load the world.
const SETUP_COMMANDS: usize = 1_000;

/// Number of edges in one command.
const EDGES: usize = 512;

/// The data type of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// A sorted set of ids, scored by the time of publishing.
    SortedSets(Encoding),
    /// A list of ids, newest first.
    Lists,
}

/// The encoding of a sorted set in Redis, which can be chosen by a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// A skip list and a hash table, the default for large sets: fast to push to.
    SkipList,
    /// One contiguous listpack: a sixth of the memory and faster to read, but a push takes twice the time.
    Listpack,
}

/// A running Redis server with the worker that fans posts out to its inboxes.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    worker: Arc<Worker>,
}

/// The state shared by all clients.
#[derive(Debug)]
struct Worker {
    design: Design,
    /// Number of posts in an inbox.
    posts_max: usize,
    graph: RwLock<Graph>,
    /// Used only by lists: sorted sets store the time of publishing as the score.
    times: Times,
}

/// A client of the design.
#[derive(Debug)]
struct RedisClient {
    worker: Arc<Worker>,
    link: SharedLink,
}

impl Redis {
    /// Starts a server. Inboxes keep the newest `posts_max` posts. `ids` is the kind of the post ids.
    ///
    /// # Errors
    /// If Redis is not installed or does not start.
    pub async fn start(design: Design, posts_max: usize, ids: Ids) -> Result<Self, Failure> {
        let (arguments, times) = match design {
            Design::SortedSets(encoding) => (zset::arguments(encoding, posts_max), Times::InIds),
            Design::Lists => (Vec::new(), Times::new(ids)),
        };
        let server = Server::start(arguments).await?;
        Ok(Self { server, worker: Arc::new(Worker { design, posts_max, graph: RwLock::default(), times }) })
    }

    async fn client(&self) -> Result<RedisClient, Failure> {
        Ok(RedisClient { worker: self.worker.clone(), link: self.server.pool().link().await? })
    }
}

impl Target for Redis {
    fn name(&self) -> &'static str {
        match self.worker.design {
            Design::SortedSets(Encoding::SkipList) => "redis_zset",
            Design::SortedSets(Encoding::Listpack) => "redis_zset_compact",
            Design::Lists => "redis_list",
        }
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = self.server.settings();
        settings.push(format!("inboxes: the newest {} posts of active readers", self.worker.posts_max));
        settings.push(format!("fan-out: pipelines of {PUSHES} inboxes, all of a post at once"));
        settings.push(
            "follow edges and active readers: kept by the fan-out worker in its own memory too, which favours Redis: \
             requests for the followers of each post would cost it more"
                .to_owned(),
        );
        settings.push("an unfollow does not wait for a fan-out that is under way, which favours Redis".to_owned());
        settings.extend(match self.worker.design {
            Design::SortedSets(encoding) => zset::settings(encoding, self.worker.posts_max),
            Design::Lists => list::settings(&self.worker.times),
        });
        settings
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        Box::pin(async { Ok(Box::new(self.client().await?) as Box<dyn Client>) })
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async move {
            let client = self.client().await?;
            let mut edges: Vec<(User, User)> =
                edges.iter().copied().filter(|(follower, source)| follower != source).collect();
            client.add_edges("following:", &mut edges).await?;
            self.worker.graph_to_change().follow_all(&edges);
            for (follower, source) in &mut edges {
                std::mem::swap(follower, source);
            }
            client.add_edges("followers:", &mut edges).await
        })
    }

    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async move { self.client().await?.activate(readers).await })
    }

    fn process(&self) -> Option<u32> {
        Some(self.server.process())
    }
}

impl Worker {
    /// No code panics while it holds the lock, so the graph is consistent even if the lock is poisoned.
    fn graph(&self) -> RwLockReadGuard<'_, Graph> {
        self.graph.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn graph_to_change(&self) -> RwLockWriteGuard<'_, Graph> {
        self.graph.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client for RedisClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let mut answer = Answer::default();
            match operation {
                Operation::Follow { follower, source } => self.follow(*follower, *source).await?,
                Operation::Unfollow { follower, source } => self.unfollow(*follower, *source).await?,
                Operation::Publish(post) => answer.deliveries = Some(self.publish(post).await?),
                Operation::Delete { id, author } => self.delete(*id, *author).await?,
                Operation::Pages { readers, .. } => answer.entries = self.pages(readers).await?,
                Operation::Page { .. } | Operation::OwnPage { .. } => {
                    self.page(operation, |_| {
                        answer.entries += 1;
                        Ok(())
                    })
                    .await?;
                }
            }
            Ok(answer)
        })
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(async move {
            let mut items = Vec::new();
            self.page(operation, |text| {
                items.push(item(text)?);
                Ok(())
            })
            .await?;
            Ok(items)
        })
    }
}

impl RedisClient {
    /// Reads the posts of a page, newest first. `found` is called with the stored text of each.
    async fn page(&self, of: &Operation, mut found: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let (prefix, user) = match of {
            Operation::Page { reader } => ("in:", *reader),
            Operation::OwnPage { author } => ("own:", *author),
            _ => return Err(Failure::Failed(format!("{} is not a page", of.kind().label()))),
        };
        // A reader who returns after a long time is activated first, as in real services.
        if prefix == "in:" && !self.worker.graph().is_active(user) {
            self.activate(&[user]).await?;
        }
        let mut seen: Vec<u64> = Vec::with_capacity(PAGE_POSTS);
        let mut missing = PAGE_POSTS;
        let mut offset = 0;
        loop {
            // Request as many as a page has: deleted posts are few, and mostly there are none.
            let mut batch = Batch::new("ids of a page");
            match self.worker.design {
                Design::SortedSets(_) => zset::range(&mut batch, prefix, user, offset),
                Design::Lists => list::range(&mut batch, prefix, user, offset),
            }
            let ids = self.link.ask(batch).await?.numbers();
            // A post can be in a list twice if a push and the fill by a follow happen at the same time.
            let new: Vec<u64> = ids.iter().copied().filter(|id| *id != list::NO_POST && !seen.contains(id)).collect();
            missing -= self.posts(&new, missing, &mut found).await?;
            if missing == 0 || ids.len() < PAGE_POSTS {
                return Ok(());
            }
            seen.extend(new);
            offset += ids.len();
        }
    }

    /// Reads the pages of several readers by the commands of single pages: one pipeline for all ids, and one for all posts. Returns the number of posts.
    async fn pages(&self, readers: &[User]) -> Result<usize, Failure> {
        let is_asleep = |reader: &User| !self.worker.graph().is_active(*reader);
        let asleep: Vec<User> = readers.iter().copied().filter(is_asleep).collect();
        self.activate(&asleep).await?;
        let mut batch = Batch::new("ids of pages");
        for reader in readers {
            match self.worker.design {
                Design::SortedSets(_) => zset::range(&mut batch, "in:", *reader, 0),
                Design::Lists => list::range(&mut batch, "in:", *reader, 0),
            }
        }
        let mut replies = self.link.ask(batch).await?;
        let pages: Vec<Vec<u64>> = readers.iter().map(|_| replies.numbers()).collect();
        let mut batch = Batch::new("MGET of pages");
        let is_post = |id: &&u64| **id != list::NO_POST;
        for ids in pages.iter().filter(|ids| ids.iter().any(|id| is_post(&id))) {
            batch.command("MGET", 1 + ids.iter().filter(is_post).count());
            for id in ids.iter().filter(is_post) {
                batch.key("post:", *id);
            }
        }
        let mut replies = self.link.ask(batch).await?;
        let mut entries = 0;
        for (reader, ids) in readers.iter().zip(&pages) {
            let mut found = 0;
            if ids.iter().any(|id| is_post(&id)) {
                let fetched = replies.count();
                found = (0..fetched).filter(|_| replies.text().is_some()).count();
            }
            if found < PAGE_POSTS && ids.len() == PAGE_POSTS {
                // Some of the posts are deleted, so the page continues below them.
                found = 0;
                self.page(&Operation::Page { reader: *reader }, |_| {
                    found += 1;
                    Ok(())
                })
                .await?;
            }
            entries += found;
        }
        Ok(entries)
    }

    /// Fetches up to `count` of these posts, without deleted ones.
    async fn posts(
        &self,
        ids: &[u64],
        count: usize,
        mut found: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let mut batch = Batch::new("MGET of a page");
        if !ids.is_empty() {
            batch.command("MGET", 1 + ids.len());
            for id in ids {
                batch.key("post:", *id);
            }
        }
        let mut replies = self.link.ask(batch).await?;
        let mut taken = 0;
        for _ in 0..replies.count() {
            if let Some(text) = replies.text()
                && taken < count
            {
                found(text)?;
                taken += 1;
            }
        }
        Ok(taken)
    }

    async fn publish(&self, post: &Post) -> Result<u64, Failure> {
        let Worker { design, posts_max, .. } = *self.worker;
        // Store the time before any reader can find the post.
        self.worker.times.published(post);
        let mut batch = Batch::new("SET of a post, and adding it to the outbox");
        batch.command("SET", 3).key("post:", post.id).text(stored(post).as_bytes());
        match design {
            Design::SortedSets(_) => zset::add_own(&mut batch, post),
            Design::Lists => list::add_own(&mut batch, post),
        }
        self.link.ask(batch).await?;
        // The post is in the outbox at this point, so readers who follow later find it there.
        let (readers, deliveries) = {
            let mut graph = self.worker.graph_to_change();
            graph.has_published(post.author);
            let mut readers = graph.active_followers(post.author);
            let deliveries = readers.len() as u64;
            if graph.is_active(post.author) {
                readers.push(post.author);
            }
            (readers, deliveries)
        };
        let (what, pieces) = match design {
            Design::SortedSets(_) => ("ZADD and ZREMRANGEBYRANK of a fan-out", zset::push(post, posts_max)),
            Design::Lists => ("LPUSHX and LTRIM of a fan-out", list::push(post, posts_max)),
        };
        let mut pending = Vec::new();
        for readers in readers.chunks(PUSHES) {
            let mut batch = Batch::new(what);
            batch.bytes.reserve(readers.len() * (pieces.iter().map(Vec::len).sum::<usize>() + 40));
            for reader in readers {
                batch.repeat(&pieces, "in:", u64::from(*reader));
            }
            pending.push(self.link.post(batch)?);
        }
        for pending in pending {
            pending.replies(what).await?;
        }
        Ok(deliveries)
    }

    async fn delete(&self, id: u64, author: User) -> Result<(), Failure> {
        let mut batch = Batch::new("DEL of a post, and removing it from the outbox");
        batch.command("DEL", 2).key("post:", id);
        match self.worker.design {
            Design::SortedSets(_) => zset::remove_own(&mut batch, id, author),
            Design::Lists => list::remove_own(&mut batch, id, author),
        }
        self.link.ask(batch).await.map(drop)
    }

    async fn follow(&self, follower: User, source: User) -> Result<(), Failure> {
        if follower == source {
            return Ok(());
        }
        // Change the graph before the outbox is read: posts published later are pushed.
        let is_active = {
            let mut graph = self.worker.graph_to_change();
            graph.follow(follower, source);
            graph.is_active(follower)
        };
        self.change_edge("SADD", follower, source).await?;
        if is_active { self.fill(&[(follower, vec![source])]).await } else { Ok(()) }
    }

    async fn unfollow(&self, follower: User, source: User) -> Result<(), Failure> {
        if follower == source {
            return Ok(());
        }
        let is_active = {
            let mut graph = self.worker.graph_to_change();
            graph.unfollow(follower, source);
            graph.is_active(follower)
        };
        self.change_edge("SREM", follower, source).await?;
        match self.worker.design {
            _ if !is_active => Ok(()),
            Design::SortedSets(_) => zset::remove_source(&self.link, follower, source, self.worker.posts_max).await,
            Design::Lists => list::remove_source(&self.link, follower, source, self.worker.posts_max).await,
        }
    }

    async fn change_edge(&self, command: &'static str, follower: User, source: User) -> Result<(), Failure> {
        let mut batch = Batch::new(command);
        batch.command(command, 3).key("following:", follower.into()).number(source.into());
        batch.command(command, 3).key("followers:", source.into()).number(follower.into());
        self.link.ask(batch).await.map(drop)
    }

    async fn activate(&self, readers: &[User]) -> Result<(), Failure> {
        let mut fills = Vec::new();
        let mut outboxes_read = 0;
        for reader in readers {
            // Activate the readers before outboxes are read: posts published later are pushed.
            let outboxes = {
                let mut graph = self.worker.graph_to_change();
                if !graph.activate(*reader) {
                    continue;
                }
                graph.outboxes(*reader)
            };
            outboxes_read += 1 + outboxes.len();
            fills.push((*reader, outboxes));
            if outboxes_read >= SETUP_COMMANDS {
                self.make(&fills).await?;
                fills.clear();
                outboxes_read = 0;
            }
        }
        self.make(&fills).await
    }

    /// Creates inboxes from outboxes.
    async fn make(&self, fills: &[(User, Vec<User>)]) -> Result<(), Failure> {
        let mut batch = Batch::new("RPUSH to new inboxes");
        if self.worker.design == Design::Lists {
            for (reader, _) in fills {
                list::make(&mut batch, *reader);
            }
        }
        self.link.ask(batch).await?;
        self.fill(fills).await
    }

    /// Adds posts from outboxes to the inboxes of readers.
    async fn fill(&self, fills: &[(User, Vec<User>)]) -> Result<(), Failure> {
        match self.worker.design {
            Design::SortedSets(_) => zset::fill(&self.link, fills, self.worker.posts_max).await,
            Design::Lists => list::fill(&self.link, &self.worker.times, fills, self.worker.posts_max).await,
        }
    }

    /// Adds the second user of each pair to the set of the first.
    async fn add_edges(&self, prefix: &str, edges: &mut [(User, User)]) -> Result<(), Failure> {
        edges.sort_unstable();
        let runs: Vec<&[(User, User)]> =
            edges.chunk_by(|one, other| one.0 == other.0).flat_map(|run| run.chunks(EDGES)).collect();
        for runs in runs.chunks(SETUP_COMMANDS) {
            let mut batch = Batch::new("SADD of edges");
            for run in runs {
                batch.command("SADD", 2 + run.len()).key(prefix, run[0].0.into());
                for (_, user) in *run {
                    batch.number((*user).into());
                }
            }
            self.link.ask(batch).await?;
        }
        Ok(())
    }
}

/// Returns the stored form of a post: everything that an application needs to show it.
fn stored(post: &Post) -> String {
    let Post { id, author, published_at_us, body } = post;
    format!(r#"{{"id":"{id}","author":"u{author}","published_at":{published_at_us},"body":{body}}}"#)
}

#[derive(Deserialize)]
struct Stored<'a> {
    id: &'a str,
    author: &'a str,
    #[serde(borrow)]
    body: &'a RawValue,
}

fn item(text: &[u8]) -> Result<Item, Failure> {
    let bad = || Failure::Failed(format!("a stored post is not readable: {}", String::from_utf8_lossy(text)));
    let Stored { id, author, body } = serde_json::from_slice(text).map_err(|_| bad())?;
    let author = author.strip_prefix('u').and_then(|number| number.parse().ok()).ok_or_else(bad)?;
    Ok(Item { id: id.parse().map_err(|_| bad())?, author, body: body.get().to_owned() })
}
