//! Inboxes as lists of ids, newest first, stored as integers.
//!
//! The usual way to change the middle of a list is to read the list and to write it again. This loses posts that are pushed in between, and
//! writes 300 ids for the one or two posts that a source has among the newest 300. This design inserts these ids at their positions, which
//! loses no posts and costs Redis less.

use super::times::Times;
use crate::operation::{PAGE_POSTS, Post, User};
use crate::target::Failure;
use crate::target::resp::link::Link;
use crate::target::resp::protocol::Batch;

/// An id that no post has. It keeps Redis from removing the list of an active reader without posts, because no posts would be pushed to a
/// removed list.
pub(super) const NO_POST: u64 = 0;

/// Maximum attempts of a follow, if the ids next to which it inserts are removed in the meantime.
const TRIES: usize = 16;

/// Returns the notes on this design for the report.
pub(super) fn settings(times: &Times) -> Vec<String> {
    let kept = "publishing times, which random ids do not contain: kept by the fan-out worker in its own memory, which \
                favours Redis";
    let mut settings = vec![
        "pushed in the order of arrival, not by time of publishing: two concurrent posts may be swapped".to_owned(),
        "follow and unfollow: LINSERT and LREM of the few ids of the source that belong among the newest, instead of \
         rewriting the whole list: it costs Redis less, and loses no post that is pushed meanwhile"
            .to_owned(),
    ];
    settings.extend(times.are_kept().then(|| kept.to_owned()));
    settings
}

/// Requests as many ids as a page has.
pub(super) fn range(batch: &mut Batch, prefix: &str, user: User, offset: usize) {
    let last = offset + PAGE_POSTS - 1;
    batch.command("LRANGE", 4).key(prefix, user.into()).number(offset as u64).number(last as u64);
}

/// Adds a post to its author's outbox.
pub(super) fn add_own(batch: &mut Batch, post: &Post) {
    batch.command("LPUSH", 3).key("own:", post.author.into()).number(post.id);
}

/// Removes a post from its author's outbox.
pub(super) fn remove_own(batch: &mut Batch, id: u64, author: User) {
    batch.command("LREM", 4).key("own:", author.into()).number(1).number(id);
}

/// Returns the commands that push a post to an inbox, split at the key.
pub(super) fn push(post: &Post, posts_max: usize) -> [Vec<u8>; 3] {
    let mut pieces = [(); 3].map(|()| Batch::new(""));
    pieces[0].command("LPUSHX", 3);
    pieces[1].number(post.id).command("LTRIM", 4);
    cut_after_key(&mut pieces[2], posts_max);
    pieces.map(|piece| piece.bytes)
}

/// Creates an inbox. Before that nothing is pushed to it.
pub(super) fn make(batch: &mut Batch, reader: User) {
    batch.command("RPUSH", 3).key("in:", reader.into()).number(NO_POST);
}

/// Adds posts from outboxes to inboxes, except those that are older than all posts of a full inbox.
pub(super) async fn fill(
    link: &Link,
    times: &Times,
    fills: &[(User, Vec<User>)],
    posts_max: usize,
) -> Result<(), Failure> {
    for _ in 0..TRIES {
        if try_fill(link, times, fills, posts_max).await? {
            return Ok(());
        }
    }
    Err(Failure::Failed(format!("LINSERT to an inbox: its place was gone {TRIES} times")))
}

/// Returns false if an id next to which a post should be inserted no longer exists.
async fn try_fill(link: &Link, times: &Times, fills: &[(User, Vec<User>)], posts_max: usize) -> Result<bool, Failure> {
    let mut batch = Batch::new("LRANGE of outboxes");
    for (reader, sources) in fills {
        newest(&mut batch, "in:", *reader, posts_max);
        for source in sources {
            newest(&mut batch, "own:", *source, posts_max);
        }
    }
    let mut replies = link.ask(batch).await?;
    let mut batch = Batch::new("LINSERT to an inbox");
    for (reader, sources) in fills {
        let inbox = replies.numbers();
        let is_full = inbox.len() >= posts_max && !inbox.contains(&NO_POST);
        let inbox = times.positions(inbox);
        let floor = inbox.last().filter(|_| is_full).copied();
        let posts = times.positions(sources.iter().flat_map(|_| replies.numbers()).collect());
        let is_new = |post: &(i64, u64)| floor.is_none_or(|floor| *post > floor) && !inbox.contains(post);
        let mut posts: Vec<(i64, u64)> = posts.into_iter().filter(is_new).collect();
        posts.sort_unstable_by(|one, other| other.cmp(one));
        posts.dedup();
        posts.truncate(posts_max);
        insert(&mut batch, *reader, &inbox, &posts, posts_max);
    }
    let commands = batch.commands;
    let mut replies = link.ask(batch).await?;
    // All commands reply with a length or a count, except LTRIM, which replies with a text that is not parsed as a number.
    Ok((0..commands).all(|_| replies.signed() != -1))
}

/// Inserts `posts`, which are sorted and not in the inbox. Both lists contain positions and ids.
fn insert(batch: &mut Batch, reader: User, inbox: &[(i64, u64)], posts: &[(i64, u64)], posts_max: usize) {
    let key = u64::from(reader);
    let is_no_post = |(_, id): &(i64, u64)| *id == NO_POST;
    let mut last_part = posts;
    let mut places = inbox.iter().copied().filter(|place| !is_no_post(place)).peekable();
    while let Some((post, rest)) = last_part.split_first() {
        while places.next_if(|place| place > post).is_some() {}
        let Some((_, place)) = places.peek() else { break };
        batch.command("LINSERT", 5).key("in:", key).text(b"BEFORE").number(*place).number(post.1);
        last_part = rest;
    }
    if !last_part.is_empty() {
        batch.command("RPUSH", 2 + last_part.len()).key("in:", key);
        for (_, post) in last_part {
            batch.number(*post);
        }
        // Remove it only after the push, because Redis would remove the empty list.
        if inbox.iter().any(is_no_post) {
            batch.command("LREM", 4).key("in:", key).number(0).number(NO_POST);
        }
    }
    if !posts.is_empty() {
        cut_after_key(batch.command("LTRIM", 4).key("in:", key), posts_max);
    }
}

/// Removes the posts of a source from an inbox.
pub(super) async fn remove_source(link: &Link, reader: User, source: User, posts_max: usize) -> Result<(), Failure> {
    let mut batch = Batch::new("LRANGE of an inbox and an outbox");
    newest(&mut batch, "in:", reader, posts_max);
    newest(&mut batch, "own:", source, posts_max);
    let mut replies = link.ask(batch).await?;
    let inbox = replies.numbers();
    let mut outbox = replies.numbers();
    outbox.sort_unstable();
    let (gone, left): (Vec<u64>, Vec<u64>) = inbox.into_iter().partition(|id| outbox.binary_search(id).is_ok());
    let mut batch = Batch::new("LREM from an inbox");
    if left.is_empty() {
        make(&mut batch, reader);
    }
    for id in gone {
        batch.command("LREM", 4).key("in:", reader.into()).number(0).number(id);
    }
    link.ask(batch).await.map(drop)
}

/// Appends the arguments of an `LTRIM` that keeps the newest posts.
fn cut_after_key(batch: &mut Batch, posts_max: usize) {
    batch.number(0).number(posts_max.saturating_sub(1) as u64);
}

fn newest(batch: &mut Batch, prefix: &str, user: User, count: usize) {
    batch.command("LRANGE", 4).key(prefix, user.into()).number(0).number(count.saturating_sub(1) as u64);
}
