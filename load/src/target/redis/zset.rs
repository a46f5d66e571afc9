//! Inboxes as sorted sets: the score is the time of publishing in microseconds, the member is the id.
//!
//! Ids of the same microsecond have the same number of digits, so Redis, which sorts members as strings, sorts them as numbers.

use super::Encoding;
use crate::operation::{PAGE_POSTS, Post, User};
use crate::target::Failure;
use crate::target::resp::link::Link;
use crate::target::resp::protocol::{Batch, Replies};

/// Maximum number of entries of a listpack. For a moment after a follow an inbox has twice its maximum size, and a set that was converted
/// to a skip list is never converted back.
fn listpack_entries_max(posts_max: usize) -> usize {
    2 * posts_max
}

/// Returns the arguments of the server for this design.
pub(super) fn arguments(encoding: Encoding, posts_max: usize) -> Vec<String> {
    match encoding {
        Encoding::SkipList => Vec::new(),
        Encoding::Listpack => {
            vec!["--zset-max-listpack-entries".to_owned(), listpack_entries_max(posts_max).to_string()]
        }
    }
}

/// Returns the notes on this design for the report.
pub(super) fn settings(encoding: Encoding, posts_max: usize) -> Vec<String> {
    vec![match encoding {
        Encoding::SkipList => {
            "zset-max-listpack-entries 128 (the default): full inboxes are skip lists, so that a push takes half the time \
             that it takes to a listpack; a page takes twice the time, and an inbox six times the memory"
                .to_owned()
        }
        Encoding::Listpack => format!(
            "zset-max-listpack-entries {}: full inboxes are listpacks, which take a sixth of the memory of skip lists, and \
             half the time for a page; a push takes twice the time",
            listpack_entries_max(posts_max)
        ),
    }]
}

/// Requests as many ids as a page has.
pub(super) fn range(batch: &mut Batch, prefix: &str, user: User, offset: usize) {
    batch.command("ZREVRANGEBYSCORE", 7).key(prefix, user.into()).text(b"+inf").text(b"-inf");
    batch.text(b"LIMIT").number(offset as u64).number(PAGE_POSTS as u64);
}

/// Adds a post to its author's outbox.
pub(super) fn add_own(batch: &mut Batch, post: &Post) {
    batch.command("ZADD", 4).key("own:", post.author.into()).number(score(post)).number(post.id);
}

/// Removes a post from its author's outbox.
pub(super) fn remove_own(batch: &mut Batch, id: u64, author: User) {
    batch.command("ZREM", 3).key("own:", author.into()).number(id);
}

/// Returns the commands that push a post to an inbox, split at the key.
pub(super) fn push(post: &Post, posts_max: usize) -> [Vec<u8>; 3] {
    let mut pieces = [(); 3].map(|()| Batch::new(""));
    pieces[0].command("ZADD", 4);
    pieces[1].number(score(post)).number(post.id).command("ZREMRANGEBYRANK", 4);
    cut_after_key(&mut pieces[2], posts_max);
    pieces.map(|piece| piece.bytes)
}

/// Adds posts from outboxes to inboxes, except those that are older than all posts of a full inbox.
pub(super) async fn fill(link: &Link, fills: &[(User, Vec<User>)], posts_max: usize) -> Result<(), Failure> {
    let mut batch = Batch::new("ZREVRANGE of outboxes");
    for (reader, sources) in fills {
        inbox_floor(&mut batch, *reader);
        for source in sources {
            outbox(&mut batch, *source, posts_max);
        }
    }
    let mut replies = link.ask(batch).await?;
    let mut batch = Batch::new("ZADD to an inbox");
    for (reader, sources) in fills {
        let floor = floor(&mut replies, posts_max);
        let mut posts: Vec<(u64, u64)> = Vec::new();
        for _ in sources {
            posts.extend(scored(&mut replies).into_iter().filter(|(score, _)| *score >= floor));
        }
        posts.sort_unstable_by(|one, other| other.cmp(one));
        posts.truncate(posts_max);
        if posts.is_empty() {
            continue;
        }
        batch.command("ZADD", 2 + 2 * posts.len()).key("in:", (*reader).into());
        for (score, id) in posts {
            batch.number(score).number(id);
        }
        cut_after_key(batch.command("ZREMRANGEBYRANK", 4).key("in:", (*reader).into()), posts_max);
    }
    link.ask(batch).await.map(drop)
}

/// Removes the posts of a source from an inbox.
pub(super) async fn remove_source(link: &Link, reader: User, source: User, posts_max: usize) -> Result<(), Failure> {
    let mut batch = Batch::new("ZREVRANGE of an outbox");
    inbox_floor(&mut batch, reader);
    outbox(&mut batch, source, posts_max);
    let mut replies = link.ask(batch).await?;
    let floor = floor(&mut replies, posts_max);
    let posts: Vec<(u64, u64)> = scored(&mut replies).into_iter().filter(|(score, _)| *score >= floor).collect();
    let mut batch = Batch::new("ZREM from an inbox");
    if !posts.is_empty() {
        batch.command("ZREM", 2 + posts.len()).key("in:", reader.into());
        for (_, id) in posts {
            batch.number(id);
        }
    }
    link.ask(batch).await.map(drop)
}

fn score(post: &Post) -> u64 {
    // No post has a time before 1970.
    post.published_at_us.max(0).cast_unsigned()
}

/// Appends the arguments of a `ZREMRANGEBYRANK` that keeps the newest posts.
fn cut_after_key(batch: &mut Batch, posts_max: usize) {
    batch.number(0).text(format!("-{}", posts_max + 1).as_bytes());
}

/// Requests the data that [`floor`] parses.
fn inbox_floor(batch: &mut Batch, reader: User) {
    batch.command("ZCARD", 2).key("in:", reader.into());
    batch.command("ZRANGE", 5).key("in:", reader.into()).number(0).number(0).text(b"WITHSCORES");
}

/// Parses the time of the oldest post of a full inbox; 0 if the inbox is not full.
fn floor(replies: &mut Replies, posts_max: usize) -> u64 {
    let is_full = replies.count() >= posts_max;
    let oldest = scored(replies).first().map_or(0, |(score, _)| *score);
    if is_full { oldest } else { 0 }
}

/// Requests the newest posts of an outbox, which [`scored`] parses.
fn outbox(batch: &mut Batch, source: User, posts_max: usize) {
    let last = posts_max.saturating_sub(1) as u64;
    batch.command("ZREVRANGE", 5).key("own:", source.into()).number(0).number(last).text(b"WITHSCORES");
}

/// Parses scores and ids.
fn scored(replies: &mut Replies) -> Vec<(u64, u64)> {
    let ids_and_scores = replies.numbers();
    ids_and_scores.chunks_exact(2).map(|pair| (pair[1], pair[0])).collect()
}
