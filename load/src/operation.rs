//! What is asked of every design alike, and what it answers.
//!
//! Not responsible for:
//! - how a design does it (`target`), how often it is asked (`workload`).

/// A user, by number from 0 on. A design names it as it likes.
pub type User = u32;

/// A post as the one who loads makes it, the same in every design. Feeds are in the order of time, then of ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Post {
    /// Each is given once; whether in the order of time is up to who hands them out.
    pub id: u64,
    /// Who publishes it.
    pub author: User,
    /// Microseconds since 1970: where it stands in feeds.
    pub published_at_us: i64,
    /// What it says, as JSON text.
    pub body: String,
}

/// One thing to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The reader's feed has the source's posts from now on, earlier ones too.
    Follow {
        /// Who follows.
        follower: User,
        /// Whom.
        source: User,
    },
    /// None of the source's posts are in the reader's feed any more.
    Unfollow {
        /// Who followed.
        follower: User,
        /// Whom.
        source: User,
    },
    /// Done when the post is in the feed of every active follower, and in the author's own.
    Publish(Post),
    /// The post is in no feed any more.
    Delete {
        /// The post.
        id: u64,
        /// Who published it.
        author: User,
    },
    /// The newest [`PAGE_POSTS`] of a reader's feed, with bodies.
    Page {
        /// Whose feed.
        reader: User,
    },
    /// The newest [`PAGE_POSTS`] that a user published, with bodies.
    OwnPage {
        /// Whose posts.
        author: User,
    },
}

/// Posts on a page.
pub const PAGE_POSTS: usize = 20;

/// The kind of an [`Operation`], by which latencies are told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Operation::Page`]
    Page,
    /// [`Operation::OwnPage`]
    OwnPage,
    /// [`Operation::Publish`]
    Publish,
    /// [`Operation::Follow`]
    Follow,
    /// [`Operation::Unfollow`]
    Unfollow,
    /// [`Operation::Delete`]
    Delete,
}

impl Kind {
    /// All of them, in the order they are told.
    pub const ALL: [Self; 6] = [Self::Page, Self::OwnPage, Self::Publish, Self::Follow, Self::Unfollow, Self::Delete];

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Page => "feed page",
            Self::OwnPage => "own page",
            Self::Publish => "publish",
            Self::Follow => "follow",
            Self::Unfollow => "unfollow",
            Self::Delete => "delete",
        }
    }
}

impl Operation {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Follow { .. } => Kind::Follow,
            Self::Unfollow { .. } => Kind::Unfollow,
            Self::Publish(_) => Kind::Publish,
            Self::Delete { .. } => Kind::Delete,
            Self::Page { .. } => Kind::Page,
            Self::OwnPage { .. } => Kind::OwnPage,
        }
    }

    /// Whether it asks for a page.
    pub fn is_page(&self) -> bool {
        matches!(self, Self::Page { .. } | Self::OwnPage { .. })
    }
}

/// What an operation came to, as far as it is looked at under load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Posts on the page, with bodies; 0 for what is no page.
    pub entries: usize,
    /// Feeds of others that got the post, if it was one and the design tells.
    pub deliveries: Option<u64>,
}

/// A post on a page that is looked at closely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The post.
    pub id: u64,
    /// Who published it.
    pub author: User,
    /// What it says, as JSON text.
    pub body: String,
}

impl Post {
    /// Where it stands in feeds: of two, the greater comes first.
    pub fn position(&self) -> (i64, u64) {
        (self.published_at_us, self.id)
    }
}

impl Item {
    /// A post as it is on a page.
    pub fn of(post: &Post) -> Self {
        Self { id: post.id, author: post.author, body: post.body.clone() }
    }
}
