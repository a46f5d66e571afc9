//! Tidewire embedded in this program: the engine without HTTP.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use futures_util::future::try_join_all;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, FeedPage, StorageConfig};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::NewEdge;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::limits::FOLLOWS_PER_REQUEST_MAX;
use tidewire::state::reader::PageRequest;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;

use crate::operation::{Answer, Item, Operation, PAGE_POSTS, Post, User};
use crate::target::process::PrivateDirectory;
use crate::target::tidewire::{Settings, name};
use crate::target::{Client, Failure, Later, Target, unsupported};

/// A request for the newest page.
const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: PAGE_POSTS };

/// Number of readers that are woken concurrently.
const WAKING_AT_ONCE: usize = 256;

/// An engine in this process.
pub struct InProcess {
    engine: Engine,
    settings: Vec<String>,
    /// Removed after the engine has shut down.
    _directory: PrivateDirectory,
}

impl InProcess {
    /// Starts an engine on a private directory.
    ///
    /// # Errors
    /// If the directory cannot be created or opened.
    pub fn start(settings: &Settings) -> Result<Self, Failure> {
        let directory = PrivateDirectory::new().map_err(|cause| Failure::of(&cause))?;
        let celebrity = settings.celebrity_followers.map_or(CelebrityPolicy::PushAll, |followers| {
            NonZeroU64::new(followers).map_or(CelebrityPolicy::PullAll, CelebrityPolicy::Above)
        });
        let inbox_posts = NonZeroUsize::new(settings.inbox_posts).unwrap_or(NonZeroUsize::MIN);
        let default = EngineConfig::default();
        let following_max = settings.following_max.unwrap_or(default.following_max);
        let config = EngineConfig { inbox_posts, celebrity, following_max, ..default };
        let storage = StorageConfig {
            directory: directory.path().join("data"),
            journal: JournalOptions { durability: Durability::EverySecond, ..JournalOptions::default() },
            ..StorageConfig::default()
        };
        let opened = Engine::open(config, &storage, Arc::new(SystemClock), &Default::default());
        let (engine, _) = opened.map_err(|cause| Failure::of(&cause))?;
        let mut lines = settings.describe();
        lines.push("in the process of the client, without HTTP".to_owned());
        Ok(Self { engine, settings: lines, _directory: directory })
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

impl Target for InProcess {
    fn name(&self) -> &'static str {
        "tidewire_in_process"
    }

    fn settings(&self) -> Vec<String> {
        self.settings.clone()
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        let client: Box<dyn Client> = Box::new(EngineClient { engine: self.engine.clone() });
        Box::pin(async { Ok(client) })
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async {
            for batch in edges.chunks(FOLLOWS_PER_REQUEST_MAX) {
                let edge = |(follower, source): &(User, User)| Ok(NewEdge::new(id(*follower)?, id(*source)?));
                let edges: Vec<NewEdge> = batch.iter().map(edge).collect::<Result<_, Failure>>()?;
                self.engine.follow(edges).await.map_err(failure)?;
            }
            Ok(())
        })
    }

    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async {
            for some in readers.chunks(WAKING_AT_ONCE) {
                let wake = async |reader: User| self.engine.feed(&id(reader)?, NEWEST).await.map_err(failure);
                try_join_all(some.iter().map(|reader| wake(*reader))).await?;
            }
            Ok(())
        })
    }

    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        let counters = &self.engine.shared().counters;
        // Includes deliveries of posts that were older than the floor of the inbox.
        let delivered = counters.deliveries.get() + counters.below_floor.get();
        let pushes_all = matches!(self.engine.shared().config.celebrity, CelebrityPolicy::PushAll);
        Box::pin(async move { Ok(pushes_all.then_some(delivered)) })
    }

    fn process(&self) -> Option<u32> {
        None
    }
}

struct EngineClient {
    engine: Engine,
}

impl EngineClient {
    async fn page(&self, operation: &Operation) -> Result<Option<FeedPage>, Failure> {
        let page = match operation {
            Operation::Page { reader } => self.engine.feed(&id(*reader)?, NEWEST).await,
            Operation::OwnPage { author } => self.engine.own_page(&id(*author)?, NEWEST).await,
            _ => return Ok(None),
        };
        page.map(Some).map_err(failure)
    }

    async fn write(&self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Page { .. } | Operation::OwnPage { .. } => Ok(()),
            Operation::Pages { .. } => Err(unsupported(operation)),
            Operation::Publish(post) => self.engine.publish(draft(post)?, true).await.map(drop).map_err(failure),
            Operation::Delete { id, .. } => self.engine.delete(PostId(*id)).await.map_err(failure),
            Operation::Follow { follower, source } => {
                let edge = NewEdge::new(id(*follower)?, id(*source)?);
                self.engine.follow(vec![edge]).await.map(drop).map_err(failure)
            }
            Operation::Unfollow { follower, source } => {
                self.engine.unfollow(id(*follower)?, id(*source)?).await.map_err(failure)
            }
        }
    }
}

impl Client for EngineClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(async {
            let Some(page) = self.page(operation).await? else {
                return self.write(operation).await.map(|()| Answer::default());
            };
            Ok(Answer { entries: page.page.items.len(), deliveries: None })
        })
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(async {
            let page = self.page(operation).await?;
            let items = page.iter().flat_map(|page| &page.page.items);
            items.map(|(_, entry)| item(&entry.post)).collect()
        })
    }
}

fn id(user: User) -> Result<SourceId, Failure> {
    SourceId::new(&name(user)).map_err(|cause| Failure::of(&cause))
}

fn draft(post: &Post) -> Result<Draft, Failure> {
    let body = Body::new(&post.body).map_err(|cause| Failure::of(&cause))?;
    let draft = Draft::new(id(post.author)?, body);
    Ok(Draft { id: Some(PostId(post.id)), published_at: Some(UnixMicros(post.published_at_us)), ..draft })
}

fn item(post: &tidewire::feed::post::Post) -> Result<Item, Failure> {
    let author = post.author().id.as_str();
    let number = author.strip_prefix('u').and_then(|number| number.parse().ok());
    let author = number.ok_or_else(|| Failure::Failed(format!("{author} is not an author of this data set")))?;
    Ok(Item { id: post.id().0, author, body: post.body().to_owned() })
}

fn failure(cause: Error) -> Failure {
    match cause {
        Error::Overloaded { .. } => Failure::Refused(cause.to_string()),
        other => Failure::of(&other),
    }
}
