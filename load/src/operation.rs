//! The operations that every design supports, and their answers.

/// The number of a user, from 0 on. Each design maps it to an id of its own.
pub type User = u32;

/// A post, the same in every design. Feeds are ordered by time, then by id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Post {
    /// The unique id. Some kinds of ids are ordered by time.
    pub id: u64,
    /// The user who publishes it.
    pub author: User,
    /// Microseconds since 1970, which determine the position in feeds.
    pub published_at_us: i64,
    /// The body as JSON text.
    pub body: String,
}

/// An operation on a design.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Adds the posts of a source to the feed of a reader, including earlier posts.
    Follow {
        /// The user who follows.
        follower: User,
        /// The user who is followed.
        source: User,
    },
    /// Removes all posts of the source from the feed of the reader.
    Unfollow {
        /// The user who follows.
        follower: User,
        /// The user who is followed.
        source: User,
    },
    /// Publishes a post. It ends when the post is in the feed of every active follower and of the author.
    Publish(Post),
    /// Removes a post from all feeds.
    Delete {
        /// The id of the post.
        id: u64,
        /// The author of the post.
        author: User,
    },
    /// Reads the newest [`PAGE_POSTS`] posts of a reader's feed, with bodies.
    Page {
        /// The reader of the feed.
        reader: User,
    },
    /// Reads the newest [`PAGE_POSTS`] posts of an author, with bodies.
    OwnPage {
        /// The author of the posts.
        author: User,
    },
    /// Reads the newest [`PAGE_POSTS`] posts of the feeds of several readers at once, with bodies. Only some designs support it.
    Pages {
        /// The readers of the feeds.
        readers: Vec<User>,
        /// True for the requests of single pages in one pipeline. Otherwise one request, if the design has such a request.
        pipelined: bool,
    },
}

/// Number of posts on a page.
pub const PAGE_POSTS: usize = 20;

/// Number of readers of an [`Operation::Pages`] in one request.
pub const PAGES_TOGETHER: usize = 50;

/// Number of readers of an [`Operation::Pages`] in one pipeline.
pub const PAGES_PIPELINED: usize = 16;

/// The kind of an [`Operation`]. Latencies are reported by kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The kind of [`Operation::Page`].
    Page,
    /// The kind of [`Operation::OwnPage`].
    OwnPage,
    /// The kind of [`Operation::Publish`].
    Publish,
    /// The kind of [`Operation::Follow`].
    Follow,
    /// The kind of [`Operation::Unfollow`].
    Unfollow,
    /// The kind of [`Operation::Delete`].
    Delete,
    /// The kind of [`Operation::Pages`] in one request.
    Pages,
    /// The kind of [`Operation::Pages`] in one pipeline.
    PagesPipelined,
}

impl Kind {
    /// All kinds, in the order of the reports.
    pub const ALL: [Self; 8] = [
        Self::Page,
        Self::OwnPage,
        Self::Publish,
        Self::Follow,
        Self::Unfollow,
        Self::Delete,
        Self::Pages,
        Self::PagesPipelined,
    ];

    /// Returns the name of the kind for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Page => "feed page",
            Self::OwnPage => "own page",
            Self::Publish => "publish",
            Self::Follow => "follow",
            Self::Unfollow => "unfollow",
            Self::Delete => "delete",
            Self::Pages => "feed pages together",
            Self::PagesPipelined => "feed pages pipelined",
        }
    }
}

impl Operation {
    /// Returns the kind of the operation.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Follow { .. } => Kind::Follow,
            Self::Unfollow { .. } => Kind::Unfollow,
            Self::Publish(_) => Kind::Publish,
            Self::Delete { .. } => Kind::Delete,
            Self::Page { .. } => Kind::Page,
            Self::OwnPage { .. } => Kind::OwnPage,
            Self::Pages { pipelined: false, .. } => Kind::Pages,
            Self::Pages { pipelined: true, .. } => Kind::PagesPipelined,
        }
    }

    /// Returns true if the operation reads one page.
    pub fn is_page(&self) -> bool {
        matches!(self, Self::Page { .. } | Self::OwnPage { .. })
    }
}

/// The answer to an operation, as far as it is checked under load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Number of posts with bodies on the page, or on all pages together; 0 if the operation reads no page.
    pub entries: usize,
    /// Number of feeds, besides the author's own, that received the post, if the design reports it.
    pub deliveries: Option<u64>,
}

/// A post on a page whose content is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The id of the post.
    pub id: u64,
    /// The author of the post.
    pub author: User,
    /// The body as JSON text.
    pub body: String,
}

impl Post {
    /// Returns the position in feeds. The post with the greater position is listed first.
    pub fn position(&self) -> (i64, u64) {
        (self.published_at_us, self.id)
    }
}

impl Item {
    /// Returns the post as an entry of a page.
    pub fn of(post: &Post) -> Self {
        Self { id: post.id, author: post.author, body: post.body.clone() }
    }
}
