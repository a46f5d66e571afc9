//! Inboxes as lists of ids, the newest first, held as integers.
//!
//! Not responsible for:
//! - what the designs have in common (parent module).
//!
//! The usual way to change the middle of such a list is to read it, and to write all of it anew. What is pushed in between
//! would be lost, and 300 ids be written for the one or two that a source has among the newest 300. So those are inserted
//! where they belong, which loses nothing, and costs Redis less.

use super::link::Link;
use super::resp::Batch;
use super::times::Times;
use crate::operation::{PAGE_POSTS, Post, User};
use crate::target::Failure;

/// An id that no post has. It keeps the inbox of an active reader with nothing to show: an empty list is none, and would not
/// be pushed to.
pub(super) const NO_POST: u64 = 0;

/// How often a follow is begun again when the places of what it inserts have gone meanwhile.
const TRIES: usize = 16;

/// What is to be told of this design.
pub(super) fn settings(times: &Times) -> Vec<String> {
    let kept = "when posts were published, which random ids do not tell: kept by the fan-out worker in its own memory, which \
                favours Redis";
    let mut settings = vec![
        "pushed in the order posts come, not by when they were published: two at the same moment may be swapped"
            .to_owned(),
        "follow and unfollow: LINSERT and LREM of the few ids of the source that belong among the newest, in place of \
         writing the whole list anew: it costs Redis less, and loses nothing that is pushed meanwhile"
            .to_owned(),
    ];
    settings.extend(times.are_kept().then(|| kept.to_owned()));
    settings
}

/// Asks for as many ids as a page has.
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

/// The commands that push a post to an inbox, without its key.
pub(super) fn push(post: &Post, posts_max: usize) -> [Vec<u8>; 3] {
    let mut pieces = [(); 3].map(|()| Batch::new(""));
    pieces[0].command("LPUSHX", 3);
    pieces[1].number(post.id).command("LTRIM", 4);
    cut_after_key(&mut pieces[2], posts_max);
    pieces.map(|piece| piece.bytes)
}

/// Makes an inbox. Until then nothing is pushed to it.
pub(super) fn make(batch: &mut Batch, reader: User) {
    batch.command("RPUSH", 3).key("in:", reader.into()).number(NO_POST);
}

/// Adds to inboxes what is in outboxes, and is not older than all of a full inbox.
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

/// False if something was to be inserted before what is no more there.
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
    // All of them reply with a length or a count, but LTRIM with a text, of which no number is read.
    Ok((0..commands).all(|_| replies.signed() != -1))
}

/// Inserts `posts`, which are sorted and not in the inbox; both with where they stand.
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
        // Not before: the list would be gone for a moment.
        if inbox.iter().any(is_no_post) {
            batch.command("LREM", 4).key("in:", key).number(0).number(NO_POST);
        }
    }
    if !posts.is_empty() {
        cut_after_key(batch.command("LTRIM", 4).key("in:", key), posts_max);
    }
}

/// Removes from an inbox what a source published.
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

/// The rest of an `LTRIM` that leaves the newest.
fn cut_after_key(batch: &mut Batch, posts_max: usize) {
    batch.number(0).number(posts_max.saturating_sub(1) as u64);
}

fn newest(batch: &mut Batch, prefix: &str, user: User, count: usize) {
    batch.command("LRANGE", 4).key(prefix, user.into()).number(0).number(count.saturating_sub(1) as u64);
}
