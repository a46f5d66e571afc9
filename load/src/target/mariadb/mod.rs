//! MariaDB: a timeline table that is written on publish, or a query over the followed authors for each page.
//!
//! Responsible for:
//! - the two designs, [`MariaDbPush`] and [`MariaDbPull`], each on its own server;
//! - their common part: posts, bulk loading of edges, the mapping of errors.

mod pull;
mod push;
mod server;
mod session;

pub use pull::MariaDbPull;
pub use push::MariaDbPush;

use std::fmt::Write;

use super::Failure;
use crate::operation::User;

/// The settings that the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Size of the InnoDB buffer pool in bytes. All data should fit. Default: 2 GiB.
    pub buffer_pool_bytes: u64,
    /// Size of the redo log in bytes. A small one makes the server write pages early. Default: 1 GiB.
    pub redo_log_bytes: u64,
    /// Maximum number of concurrent clients. Default: 1,000.
    pub connections_max: u32,
    /// Number of newest posts of a source that are added to a new follower's timeline. Default: 800.
    pub backfill_posts_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { buffer_pool_bytes: 2 << 30, redo_log_bytes: 1 << 30, connections_max: 1_000, backfill_posts_max: 800 }
    }
}

/// The posts of both designs. The second key is an author's outbox in the order of feeds.
///
/// Bodies are read together with their row: InnoDB stores bodies of up to about 8,000 bytes in the page of the row.
const POSTS: &str = "CREATE TABLE posts (
    id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    author INT UNSIGNED NOT NULL,
    published_at BIGINT NOT NULL,
    body MEDIUMTEXT NOT NULL,
    KEY outbox (author, published_at DESC, id DESC)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin";

/// The edges, ordered by follower.
const FOLLOWS: &str = "CREATE TABLE follows (
    follower INT UNSIGNED NOT NULL,
    source INT UNSIGNED NOT NULL,
    PRIMARY KEY (follower, source)
) ENGINE = InnoDB";

const INSERT_EDGE: &str = "INSERT IGNORE INTO follows (follower, source) VALUES (?, ?)";

const DELETE_EDGE: &str = "DELETE FROM follows WHERE follower = ? AND source = ?";

/// Selects the newest posts of one author. Parameters: author, number of posts.
const OWN_PAGE: &str =
    "SELECT id, author, body FROM posts WHERE author = ? ORDER BY published_at DESC, id DESC LIMIT ?";

const INSERT_POST: &str = "INSERT INTO posts (id, author, published_at, body) VALUES (?, ?, ?, ?)";

const DELETE_POST: &str = "DELETE FROM posts WHERE id = ? AND author = ?";

/// Returns edges as table rows, in the order of the key, so that table pages are filled sequentially.
fn edge_rows(edges: impl Iterator<Item = (User, User)>) -> String {
    let mut edges: Vec<_> = edges.collect();
    edges.sort_unstable();
    edges.dedup();
    let mut rows = String::with_capacity(edges.len() * "1234567\t1234567\n".len());
    for (one, other) in edges {
        // Writing to a `String` cannot fail.
        let _ = writeln!(rows, "{one}\t{other}");
    }
    rows
}

fn not_a_page() -> Failure {
    Failure::Failed("the operation reads no page".to_owned())
}
