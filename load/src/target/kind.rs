//! The designs by name.

use std::sync::Arc;

use crate::mint::Ids;
use crate::target::mariadb::{MariaDbPull, MariaDbPush, Options};
use crate::target::mock::Mock;
use crate::target::redis::{Design, Encoding, Redis};
use crate::target::tidewire::Settings as TidewireSettings;
use crate::target::tidewire::http::Http;
use crate::target::tidewire::in_process::InProcess;
use crate::target::tidewire::resp::Resp;
use crate::target::{Failure, Target};

/// A design that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    /// Tidewire as a server, over HTTP
    TidewireHttp,
    /// Tidewire as a server, over the Redis protocol
    TidewireResp,
    /// Tidewire embedded, without HTTP
    TidewireInProcess,
    /// A list for each inbox: LPUSHX and LTRIM
    RedisList,
    /// A sorted set for each inbox: ZADD and ZREMRANGEBYRANK
    RedisZset,
    /// The same sets, each stored as one listpack: a sixth of the memory, but pushes take twice as long
    RedisZsetCompact,
    /// A timeline table with a row for each follower
    MariadbPush,
    /// No timelines: a query for each read
    MariadbPull,
    /// No server: measures the maximum rate of this program
    Mock,
}

/// The settings that apply to all designs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of posts in an inbox.
    pub inbox_posts: usize,
    /// Followers above which Tidewire pulls an author's posts. `None`: it pushes all posts, as the other designs do.
    pub celebrity_followers: Option<u64>,
    /// The kind of the post ids.
    pub ids: Ids,
    /// Maximum number of sources that a reader of Tidewire may follow. `None`: its default.
    pub following_max: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { inbox_posts: 300, celebrity_followers: None, ids: Ids::default(), following_max: None }
    }
}

impl Kind {
    /// The designs of a comparison.
    pub const COMPARED: [Self; 8] = [
        Self::TidewireHttp,
        Self::TidewireResp,
        Self::TidewireInProcess,
        Self::RedisList,
        Self::RedisZset,
        Self::RedisZsetCompact,
        Self::MariadbPush,
        Self::MariadbPull,
    ];

    /// Returns the name, which is the same as [`Target::name`].
    pub fn name(self) -> &'static str {
        match self {
            Self::TidewireHttp => "tidewire_http",
            Self::TidewireResp => "tidewire_resp",
            Self::TidewireInProcess => "tidewire_in_process",
            Self::RedisList => "redis_list",
            Self::RedisZset => "redis_zset",
            Self::RedisZsetCompact => "redis_zset_compact",
            Self::MariadbPush => "mariadb_push",
            Self::MariadbPull => "mariadb_pull",
            Self::Mock => "mock",
        }
    }

    /// Returns true if publishing puts posts into inboxes.
    pub fn pushes(self) -> bool {
        self != Self::MariadbPull
    }

    /// Returns true if a client of the design can send several requests before it has the first answer.
    pub fn pipelines(self) -> bool {
        matches!(self, Self::TidewireResp | Self::RedisList | Self::RedisZset | Self::RedisZsetCompact | Self::Mock)
    }

    /// Returns true if the design can read the pages of many readers in one request, or in a pipeline of requests.
    pub fn reads_pages_together(self) -> bool {
        self.pipelines() || self == Self::TidewireHttp
    }

    /// Returns true if the design notifies readers over live connections.
    pub fn pushes_live(self) -> bool {
        matches!(self, Self::TidewireHttp | Self::TidewireResp)
    }

    /// Starts the design.
    ///
    /// # Errors
    /// If it does not start or is not installed.
    pub async fn start(self, settings: &Settings) -> Result<Arc<dyn Target>, Failure> {
        let Settings { inbox_posts, celebrity_followers, ids, following_max } = *settings;
        let tidewire = TidewireSettings { inbox_posts, celebrity_followers, following_max, more_flags: Vec::new() };
        Ok(match self {
            Self::TidewireHttp => Arc::new(Http::start(&tidewire).await?),
            Self::TidewireResp => Arc::new(Resp::start(&tidewire).await?),
            Self::TidewireInProcess => Arc::new(InProcess::start(&tidewire)?),
            Self::RedisList => Arc::new(Redis::start(Design::Lists, inbox_posts, ids).await?),
            Self::RedisZset => Arc::new(Redis::start(Design::SortedSets(Encoding::SkipList), inbox_posts, ids).await?),
            Self::RedisZsetCompact => {
                Arc::new(Redis::start(Design::SortedSets(Encoding::Listpack), inbox_posts, ids).await?)
            }
            Self::Mock => Arc::new(Mock::blind(None)),
            Self::MariadbPush => Arc::new(MariaDbPush::start(&mariadb(inbox_posts)).await?),
            Self::MariadbPull => Arc::new(MariaDbPull::start(&mariadb(inbox_posts)).await?),
        })
    }
}

fn mariadb(inbox_posts: usize) -> Options {
    Options { backfill_posts_max: u32::try_from(inbox_posts).unwrap_or(u32::MAX), ..Options::default() }
}
