//! No timelines: a page is computed from the authors whom the reader follows.
//!
//! How a page is computed. `authors` stores the time of each author's last post, as large sites do. The first statement selects the 20
//! followed authors who published last. Every post of the page is theirs, and none is older than the last post of the twentieth author. So
//! the second statement reads 20 short ranges of the outbox index, 25 to 45 entries in all. If a reader follows fewer such authors, no post
//! of the page is older than the twentieth post of any one of them. That needs one more statement, and ranges of at most 20 entries.
//!
//! Processor time of the server for one page (600,000 posts of 20,000 authors, the most active with 4,000), for a reader who follows 300
//! or 40 authors:
//!
//! | form | 300 | 40 |
//! |---|---|---|
//! | `follows JOIN posts ORDER BY .. LIMIT 20` with bodies | 95 ms | 12 ms |
//! | `ROW_NUMBER() OVER (PARTITION BY author ..) <= 20`, then bodies | 18 ms | 3.0 ms |
//! | `UNION ALL` of `(.. WHERE author = ? .. LIMIT 20)` for each author, then bodies | 17 ms | 2.3 ms |
//! | the join for ids alone, then bodies | 7.7 ms | 1.7 ms |
//! | the 20 newest authors by a subquery on the outbox of each, then ranges | 3.5 ms | 1.2 ms |
//! | the 20 newest authors by `authors`, then ranges: this one | 1.0 ms | 0.7 ms |

use std::collections::HashMap;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Statement, Value};

use super::super::{Client, Failure, Later, Target, answered, unsupported};
use super::server::Server;
use super::session::Session;
use super::{
    DELETE_EDGE, DELETE_POST, FOLLOWS, INSERT_EDGE, INSERT_POST, OWN_PAGE, Options, POSTS, edge_rows, not_a_page,
};
use crate::operation::{Answer, Item, Operation, PAGE_POSTS, Post, User};

/// The time of the last post of each author. An author whose posts are all deleted keeps a row with the earliest possible time.
const AUTHORS: &str = "CREATE TABLE authors (
    author INT UNSIGNED NOT NULL PRIMARY KEY,
    newest BIGINT NOT NULL
) ENGINE = InnoDB";

/// Selects the sources of a reader that published last, latest first. Sources that share the last rank are all included, because the post
/// on the page can be from any of them.
const NEWEST_SOURCES: &str = "SELECT f.source, a.newest
    FROM follows f STRAIGHT_JOIN authors a ON a.author = f.source
    WHERE f.follower = ? ORDER BY a.newest DESC FETCH FIRST ? ROWS WITH TIES";

/// Selects the latest of the twentieth posts of all sources, for a reader with few sources; null if no source has that many posts.
/// Parameters: number of posts before it, reader.
const TWENTIETH_POST: &str = "SELECT MAX((
        SELECT published_at FROM posts WHERE author = f.source ORDER BY published_at DESC, id DESC LIMIT 1 OFFSET ?))
    FROM follows f WHERE f.follower = ?";

/// This also locks the author, so that its publishes and deletes are serialized.
const TOUCH_AUTHOR: &str = "INSERT INTO authors (author, newest) VALUES (?, ?)
    ON DUPLICATE KEY UPDATE newest = GREATEST(newest, VALUES(newest))";

const LOCK_AUTHOR: &str = "SELECT newest FROM authors WHERE author = ? FOR UPDATE";

/// Parameters: author, the earliest possible time, author.
const CORRECT_AUTHOR: &str = "UPDATE authors SET newest = COALESCE(
        (SELECT published_at FROM posts WHERE author = ? ORDER BY published_at DESC, id DESC LIMIT 1), ?)
    WHERE author = ?";

/// Feeds that are computed when they are read.
pub struct MariaDbPull {
    server: Server,
}

impl MariaDbPull {
    /// Starts the server.
    ///
    /// # Errors
    /// If MariaDB is not installed or does not start.
    pub async fn start(options: &Options) -> Result<Self, Failure> {
        Ok(Self { server: Server::start(options, &[POSTS, FOLLOWS, AUTHORS]).await? })
    }
}

impl Target for MariaDbPull {
    fn name(&self) -> &'static str {
        "mariadb_pull"
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = self.server.settings();
        settings.push("a page is the 20 followed authors who published last, then ranges of their posts".to_owned());
        settings
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        Box::pin(answered("connecting", async move {
            let mut session = Session::new(self.server.connect().await?);
            let statements = Statements::prepare(&mut session).await?;
            Ok(Box::new(PullClient { session, statements, pages: HashMap::new() }) as Box<dyn Client>)
        }))
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async move { self.server.load("follows (follower, source)", &edge_rows(edges.iter().copied())).await })
    }

    fn activate<'a>(&'a self, _: &'a [User]) -> Later<'a, Result<(), Failure>> {
        // Nothing is stored for a reader.
        Box::pin(async { Ok(()) })
    }

    fn process(&self) -> Option<u32> {
        Some(self.server.process())
    }
}

struct Statements {
    newest_sources: Statement,
    twentieth_post: Statement,
    own_page: Statement,
    touch_author: Statement,
    lock_author: Statement,
    correct_author: Statement,
    insert_post: Statement,
    delete_post: Statement,
    insert_edge: Statement,
    delete_edge: Statement,
}

impl Statements {
    async fn prepare(session: &mut Session) -> Result<Self, Failure> {
        Ok(Self {
            newest_sources: session.prepare(NEWEST_SOURCES).await?,
            twentieth_post: session.prepare(TWENTIETH_POST).await?,
            own_page: session.prepare(OWN_PAGE).await?,
            touch_author: session.prepare(TOUCH_AUTHOR).await?,
            lock_author: session.prepare(LOCK_AUTHOR).await?,
            correct_author: session.prepare(CORRECT_AUTHOR).await?,
            insert_post: session.prepare(INSERT_POST).await?,
            delete_post: session.prepare(DELETE_POST).await?,
            insert_edge: session.prepare(INSERT_EDGE).await?,
            delete_edge: session.prepare(DELETE_EDGE).await?,
        })
    }
}

struct PullClient {
    session: Session,
    statements: Statements,
    /// The second statement of a page, by the number of sources. Prepared when first needed.
    pages: HashMap<usize, Statement>,
}

impl PullClient {
    /// Returns the statement that reads a page and its parameters, or `None` if no followed author has published.
    async fn page(&mut self, reader: User) -> Result<Option<(Statement, Params)>, Failure> {
        let newest: Vec<(User, i64)> = self.session.rows(&self.statements.newest_sources, (reader, PAGE_POSTS)).await?;
        let since = match newest.last() {
            None => return Ok(None),
            Some(&(_, since)) if newest.len() >= PAGE_POSTS => since,
            Some(_) => self.twentieth_post(reader).await?.unwrap_or(i64::MIN),
        };
        let statement = match self.pages.get(&newest.len()) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.session.prepare(&page_statement(newest.len())).await?;
                self.pages.insert(newest.len(), statement.clone());
                statement
            }
        };
        let mut parameters: Vec<Value> = newest.iter().map(|&(source, _)| source.into()).collect();
        parameters.push(since.into());
        Ok(Some((statement, Params::Positional(parameters))))
    }

    async fn twentieth_post(&mut self, reader: User) -> Result<Option<i64>, Failure> {
        let times = self.session.rows(&self.statements.twentieth_post, (PAGE_POSTS - 1, reader)).await?;
        Ok(times.into_iter().next().flatten())
    }

    async fn publish(&mut self, post: &Post) -> Result<(), Failure> {
        /// The row count of an `INSERT .. ON DUPLICATE KEY UPDATE` that inserted; an update counts as zero or two rows.
        const INSERTED: u64 = 1;
        let Self { session, statements, .. } = self;
        let Post { id, author, published_at_us: at, body } = post;
        session
            .transaction(async |connection: &mut Conn| {
                connection.exec_drop(&statements.touch_author, (author, at)).await?;
                if connection.affected_rows() == INSERTED {
                    // Every author follows themself, so that own posts are part of the same query.
                    connection.exec_drop(&statements.insert_edge, (author, author)).await?;
                }
                connection.exec_drop(&statements.insert_post, (id, author, at, body)).await
            })
            .await
    }

    async fn delete(&mut self, id: u64, author: User) -> Result<(), Failure> {
        let Self { session, statements, .. } = self;
        session
            .transaction(async |connection: &mut Conn| {
                connection.exec_drop(&statements.lock_author, (author,)).await?;
                connection.exec_drop(&statements.delete_post, (id, author)).await?;
                connection.exec_drop(&statements.correct_author, (author, i64::MIN, author)).await
            })
            .await
    }
}

impl Client for PullClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(answered(operation.kind().label(), async move {
            let mut answer = Answer::default();
            match *operation {
                Operation::Page { reader } => {
                    if let Some((statement, parameters)) = self.page(reader).await? {
                        answer.entries = self.session.count(&statement, parameters).await?;
                    }
                }
                Operation::OwnPage { author } => {
                    answer.entries = self.session.count(&self.statements.own_page, (author, PAGE_POSTS)).await?;
                }
                Operation::Pages { .. } => return Err(unsupported(operation)),
                Operation::Publish(ref post) => self.publish(post).await?,
                Operation::Delete { id, author } => self.delete(id, author).await?,
                Operation::Follow { follower, source } => {
                    self.session.once(&self.statements.insert_edge, (follower, source)).await?;
                }
                Operation::Unfollow { follower, source } if follower == source => {}
                Operation::Unfollow { follower, source } => {
                    self.session.once(&self.statements.delete_edge, (follower, source)).await?;
                }
            }
            Ok(answer)
        }))
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(answered(operation.kind().label(), async move {
            match *operation {
                Operation::Page { reader } => match self.page(reader).await? {
                    Some((statement, parameters)) => self.session.items(&statement, parameters).await,
                    None => Ok(Vec::new()),
                },
                Operation::OwnPage { author } => {
                    self.session.items(&self.statements.own_page, (author, PAGE_POSTS)).await
                }
                _ => Err(not_a_page()),
            }
        }))
    }
}

/// Selects the newest posts of several authors. Parameters: the authors, and the earliest time of a post of the page.
fn page_statement(authors: usize) -> String {
    let authors = vec!["?"; authors].join(",");
    format!(
        "SELECT id, author, body FROM posts FORCE INDEX (outbox) WHERE author IN ({authors}) AND published_at >= ?
            ORDER BY published_at DESC, id DESC LIMIT {PAGE_POSTS}"
    )
}
