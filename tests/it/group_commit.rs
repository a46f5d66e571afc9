//! Which commands are journaled together: all but those that read what the group changes.
//!
//! Commits are counted, not timed: the journal holds the command processor until all commands of a case are queued.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use testkit::eventually_async;
use tidewire::clock::{Clock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::runtime::message::Published;
use tidewire::state::reader::PageRequest;
use tidewire::storage::journal::{Committed, Journal, JournalError, MemoryJournal};
use tidewire::storage::sequence::Sequence;
use tokio::task::JoinHandle;

use crate::concurrency::{HoldingClock, hold};
use testkit::world::{config, draft, edge, id};

/// Commands of one case, queued together.
const COMMANDS: usize = 300;

/// A journal that counts commits, each of which waits until the gate is open.
#[derive(Default)]
struct Gated {
    journal: MemoryJournal,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
    commits: AtomicUsize,
}

impl Gate {
    fn set_shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

impl Journal for Gated {
    type Received = Infallible;

    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError> {
        self.journal.append(event)
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    fn commit(&mut self) -> Result<Committed, JournalError> {
        self.gate.commits.fetch_add(1, Ordering::SeqCst);
        let is_shut = self.gate.is_shut.lock().unwrap();
        drop(self.gate.changed.wait_while(is_shut, |is_shut| *is_shut).unwrap());
        self.journal.commit()
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn last(&self) -> Sequence {
        self.journal.last()
    }

    fn close(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}

/// An engine whose command processor can be held in a commit.
struct Held {
    engine: Engine,
    gate: Arc<Gate>,
    before: usize,
    queued: usize,
}

impl Held {
    fn new(config: EngineConfig) -> Self {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    fn with_clock(config: EngineConfig, clock: Arc<dyn Clock>) -> Self {
        let journal = Gated::default();
        let gate = Arc::clone(&journal.gate);
        let engine = Engine::start_with(config, journal, clock);
        Self { engine, gate, before: 0, queued: 0 }
    }

    /// From now on the command processor takes nothing.
    async fn hold(&mut self) {
        self.gate.set_shut(true);
        self.before = self.gate.commits() + 1;
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.publish(draft("plug", "0"), false).await });
        eventually_async("a commit begins", async || self.gate.commits() == self.before).await;
        self.queued = 0;
    }

    /// Queues a command behind those that were queued before.
    async fn queue<T: Send + 'static>(&mut self, command: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let handle = tokio::spawn(command);
        self.queued += 1;
        eventually_async("all commands wait", async || self.engine.queues()[0].depth == self.queued).await;
        handle
    }

    async fn publish(&mut self, draft: Draft) -> JoinHandle<Result<Published, Error>> {
        let engine = self.engine.clone();
        self.queue(async move { engine.publish(draft, false).await }).await
    }

    /// Lets the command processor take what is queued, and returns how many commits that took, once all of it is answered.
    async fn release<T>(&mut self, answers: Vec<JoinHandle<T>>) -> (usize, Vec<T>) {
        self.gate.set_shut(false);
        let mut answered = Vec::new();
        for answer in answers {
            answered.push(answer.await.unwrap());
        }
        (self.gate.commits() - self.before, answered)
    }

    /// How many commits it takes to publish these, which must all be accepted.
    async fn commits_of(&mut self, drafts: impl Iterator<Item = Draft>) -> usize {
        self.hold().await;
        let mut answers = Vec::new();
        for draft in drafts {
            answers.push(self.publish(draft).await);
        }
        let (commits, answers) = self.release(answers).await;
        answers.into_iter().for_each(|answer| assert!(answer.unwrap().created));
        commits
    }
}

fn with_id(id: u64, draft: Draft) -> Draft {
    Draft { id: Some(PostId(id)), ..draft }
}

#[tokio::test]
async fn replies_to_and_reposts_of_one_post_are_journaled_together() {
    let mut held = Held::new(config(1, CelebrityPolicy::PushAll));
    held.engine.publish(with_id(7, draft("star", "0")), false).await.unwrap();
    let post = Some(PostId(7));
    let author = |nth: usize| format!("a{nth}");
    let reply = |nth| Draft { reply_to: post, ..draft(&author(nth), "1") };
    let repost = |nth| Draft { repost_of: post, ..draft(&author(nth), "1") };
    let both = |nth| Draft { reply_to: post, ..repost(nth) };
    let plain = |nth| draft(&author(nth), "1");
    let mix = |nth| if nth % 2 == 0 { plain(nth) } else { reply(nth) };
    let cases: [(&str, &dyn Fn(usize) -> Draft); 5] =
        [("plain", &plain), ("replies", &reply), ("reposts", &repost), ("both", &both), ("a mixture", &mix)];
    for (name, draft) in cases {
        assert_eq!(held.commits_of((0..COMMANDS).map(draft)).await, 1, "{name}");
    }
    held.engine.shutdown();
}

#[tokio::test]
async fn a_request_is_committed_once_unless_its_parts_depend_on_each_other() {
    let held = Held::new(config(1, CelebrityPolicy::PushAll));
    let (engine, plain) = (&held.engine, |nth: u64| with_id(nth, draft("ann", "1")));
    let again = |nth: u64| plain(if nth == 15 { 2_001 } else { nth + 2_000 });
    let answer = |nth: u64| Draft { reply_to: Some(PostId(3_999 + nth)), ..plain(4_000 + nth) };
    let drafts: [(&str, &dyn Fn(u64) -> Draft); 3] =
        [("plain", &plain), ("an id that comes twice", &again), ("each answers the one before", &answer)];
    for ((name, draft), (count, commits)) in drafts.into_iter().zip([(1_000, 1), (30, 2), (5, 5)]) {
        let before = held.gate.commits();
        let answers = engine.publish_many((0..count).map(draft).collect(), false).await;
        assert_eq!(held.gate.commits() - before, commits, "{name}");
        assert!(answers.iter().all(Result::is_ok), "{name}: {answers:?}");
    }
    let edges = |count: usize| (0..count).map(|nth| (id("bob"), id(&format!("s{nth}"))));
    engine.follow(edges(COMMANDS).map(|(from, to)| NewEdge::new(from, to)).collect()).await.unwrap();
    let before = held.gate.commits();
    let removed = |count: usize| edges(count).map(|(follower, source)| OldEdge { follower, source });
    let twice = removed(COMMANDS).chain(removed(COMMANDS + 1)).collect();
    assert_eq!((engine.unfollow_many(twice).await.unwrap(), held.gate.commits() - before), (COMMANDS, 1));
    assert_eq!(engine.following(&id("bob"), UnixMicros(i64::MAX), 10), []);
    // Edges that are created and removed in one request are there for the removal.
    let before = held.gate.commits();
    let created = edges(3).map(|(from, to)| NewEdge::new(from, to)).collect();
    let result = engine.change_edges(created, removed(2).chain(removed(9)).collect()).await.unwrap();
    assert_eq!((result.created, result.removed, held.gate.commits() - before), (3, 3, 1));
    assert_eq!(engine.following(&id("bob"), UnixMicros(i64::MAX), 10), []);
    engine.shutdown();
}

#[tokio::test]
async fn readers_who_follow_mute_or_block_the_same_source_are_journaled_together() {
    let mut held = Held::new(config(1, CelebrityPolicy::PushAll));
    held.engine.publish(draft("star", "0"), false).await.unwrap();
    for name in ["follow", "mute", "block", "list", "follow beside it"] {
        held.hold().await;
        let mut answers = Vec::new();
        for nth in 0..COMMANDS {
            let (engine, reader, star) = (held.engine.clone(), id(&format!("r{nth}")), id("star"));
            answers.push(
                held.queue(async move {
                    match name {
                        "follow" => engine.follow(vec![NewEdge::new(reader, star)]).await.map(drop),
                        "mute" => engine.silence(reader, star, MuteOrBlock::Mute, true).await.map(drop),
                        "block" => engine.silence(reader, star, MuteOrBlock::Block, true).await.map(drop),
                        "list" => engine.set_listed(reader, "tea".parse().unwrap(), star, true).await.map(drop),
                        _ => engine.follow(vec![NewEdge::new(reader, id("other"))]).await.map(drop),
                    }
                })
                .await,
            );
        }
        let (commits, answers) = held.release(answers).await;
        answers.into_iter().for_each(|answer| answer.unwrap());
        assert_eq!(commits, 1, "{name}");
    }
    held.engine.shutdown();
}

#[tokio::test]
async fn a_command_that_reads_pending_changes_is_judged_after_the_group() {
    let mut held = Held::new(config(1, CelebrityPolicy::PushAll));
    for post in [1, 2] {
        held.engine.publish(with_id(post, draft("star", "0")), false).await.unwrap();
    }
    held.hold().await;
    let of = |post: u64| Some(PostId(post));
    let repost = held.publish(with_id(11, Draft { repost_of: of(1), ..draft("ann", "1") })).await;
    let of_repost = held.publish(Draft { repost_of: of(11), ..draft("bob", "1") }).await;
    let of_own = held.publish(Draft { reply_to: of(11), ..draft("cas", "1") }).await;
    let before = held.publish(Draft { reply_to: of(2), ..draft("dan", "1") }).await;
    let engine = held.engine.clone();
    let deleted = held.queue(async move { engine.delete(PostId(2)).await }).await;
    let after = held.publish(Draft { reply_to: of(2), ..draft("eve", "1") }).await;
    let taken = held.publish(with_id(2, draft("star", "0"))).await;
    let taken_again = held.publish(with_id(11, draft("ann", "2"))).await;
    held.gate.set_shut(false);
    deleted.await.unwrap().unwrap();
    assert_eq!(repost.await.unwrap().unwrap().post.repost_of, of(1));
    assert_eq!(of_repost.await.unwrap().unwrap().post.repost_of, of(1), "a repost of a repost points at the origin");
    let answered = |published: Published| published.post.answered.as_ref().map(|source| source.id.clone());
    assert_eq!(answered(of_own.await.unwrap().unwrap()), Some(id("ann")));
    assert_eq!(answered(before.await.unwrap().unwrap()), Some(id("star")));
    assert_eq!(answered(after.await.unwrap().unwrap()), None);
    assert_eq!(taken.await.unwrap().unwrap_err().code(), "post_deleted");
    assert_eq!(taken_again.await.unwrap().unwrap_err().code(), "post_id_taken");
    // The repost; what reads it, with the delete; what reads that.
    assert_eq!(held.gate.commits() - held.before, 3);
    held.engine.shutdown();
}

#[tokio::test]
async fn a_command_is_judged_by_earlier_changes_of_its_reader_in_the_group() {
    let mut held = Held::new(EngineConfig { following_max: 2, ..config(1, CelebrityPolicy::PushAll) });
    held.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    held.hold().await;
    let follow = |held: &Held, follower: &str, source: &str| {
        let (engine, edges) = (held.engine.clone(), vec![edge(follower, source)]);
        async move { engine.follow(edges).await.map_err(|refused| refused.code()) }
    };
    let block = {
        let engine = held.engine.clone();
        async move { engine.silence(id("cas"), id("dan"), MuteOrBlock::Block, true).await }
    };
    let (second, third) = (follow(&held, "ann", "cas"), follow(&held, "ann", "dan"));
    let (blocked, blocks) = (follow(&held, "dan", "cas"), follow(&held, "cas", "dan"));
    let second = held.queue(second).await;
    let third = held.queue(third).await;
    let block = held.queue(block).await;
    let blocked = held.queue(blocked).await;
    let blocks = held.queue(blocks).await;
    held.gate.set_shut(false);
    second.await.unwrap().unwrap();
    assert_eq!(third.await.unwrap().unwrap_err(), "following_limit");
    assert!(block.await.unwrap().unwrap());
    assert_eq!(blocked.await.unwrap().unwrap_err(), "blocked");
    assert_eq!(blocks.await.unwrap().unwrap_err(), "blocked");
    held.engine.shutdown();
}

#[tokio::test]
async fn a_repost_is_resolved_with_the_blocks_of_its_group() {
    let mut held = Held::new(config(1, CelebrityPolicy::PushAll));
    held.engine.publish(with_id(7, draft("star", "0")), true).await.unwrap();
    let repost = |author: &str, of: u64| Draft { repost_of: Some(PostId(of)), ..draft(author, "1") };
    held.engine.publish(with_id(8, repost("cas", 7)), true).await.unwrap();
    held.hold().await;
    let engine = held.engine.clone();
    let block = held.queue(async move { engine.silence(id("cas"), id("ann"), MuteOrBlock::Block, true).await }).await;
    let answers = vec![held.publish(repost("ann", 8)).await, held.publish(repost("bob", 8)).await];
    let (commits, answers) = held.release(answers).await;
    assert!(block.await.unwrap().unwrap());
    let repeated: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().post.repost_of).collect();
    assert_eq!((repeated, commits), (vec![Some(PostId(8)), Some(PostId(7))], 2));
    held.engine.shutdown();
}

#[tokio::test]
async fn the_source_limit_counts_new_sources_of_the_group() {
    let mut held = Held::new(EngineConfig { sources_max: 20, ..config(1, CelebrityPolicy::PushAll) });
    held.hold().await;
    let mut answers = Vec::new();
    for nth in 0..COMMANDS {
        // Each of them twice, with a tag that they share.
        let tags = vec![SourceId::tag("tea").unwrap()];
        answers.push(held.publish(Draft { tags, ..draft(&format!("a{}", nth / 2), "1") }).await);
    }
    let (commits, answers) = held.release(answers).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    // The author of the post before, the tag, and others by two posts each.
    assert_eq!((held.engine.shared().world.sources.len(), accepted), (20, 2 * 18));
    assert!(answers.into_iter().filter_map(Result::err).all(|refused| refused.code() == "store_full"));
    assert_eq!(commits, 1);
    held.engine.shutdown();
}

#[tokio::test]
async fn limits_of_edges_and_reposts_count_those_of_the_group() {
    let limits = EngineConfig { edges_max: 20, reposts_max: 30, ..config(1, CelebrityPolicy::PushAll) };
    let mut held = Held::new(limits);
    held.engine.publish(with_id(7, draft("star", "0")), false).await.unwrap();
    held.hold().await;
    let (mut follows, mut reposts) = (Vec::new(), Vec::new());
    for nth in 0..50 {
        let (engine, follower) = (held.engine.clone(), format!("r{nth}"));
        follows.push(held.queue(async move { engine.follow(vec![edge(&follower, "star")]).await }).await);
        // Each counts for its author and its tag.
        let tags = vec![SourceId::tag("tea").unwrap()];
        let repost = Draft { repost_of: Some(PostId(7)), tags, ..draft(&format!("a{nth}"), "1") };
        reposts.push(held.publish(repost).await);
    }
    let (commits, follows) = held.release(follows).await;
    let (_, reposts) = held.release(reposts).await;
    let full = |what, limit| Some(Error::Full { what, limit });
    assert_eq!(follows.iter().filter(|answer| answer.is_ok()).count(), 20);
    assert_eq!(follows.into_iter().last().and_then(Result::err), full("follow edge", 20));
    assert_eq!(reposts.iter().filter(|answer| answer.is_ok()).count(), 15);
    assert_eq!(reposts.into_iter().last().and_then(Result::err), full("repost", 30));
    let world = &held.engine.shared().world;
    assert_eq!((world.edges(), world.reposts.len(), commits), (20, 30, 1));
    // What there is can be asked for again, and what goes makes room.
    held.engine.follow(vec![edge("r0", "star")]).await.unwrap();
    held.engine.publish(draft("ann", "1"), false).await.unwrap();
    held.engine.unfollow(id("r0"), id("star")).await.unwrap();
    held.engine.follow(vec![edge("r49", "star")]).await.unwrap();
    held.engine.delete(PostId(7)).await.unwrap();
    assert_eq!(held.engine.shared().world.reposts.len(), 0);
    held.engine.shutdown();
}

#[tokio::test]
async fn a_post_counts_followers_added_in_the_same_group() {
    let clock = Arc::new(HoldingClock::default());
    let mut held = Held::with_clock(config(1, CelebrityPolicy::PushAll), Arc::clone(&clock) as Arc<dyn Clock>);
    let engine = held.engine.clone();
    engine.follow(vec![edge("ann", "cas"), edge("dan", "cas")]).await.unwrap();
    for reader in ["ann", "dan"] {
        engine.feed(&id(reader), PageRequest::newest(9)).await.unwrap();
    }
    let shard = hold(&engine, &clock).await;
    held.hold().await;
    let following = engine.clone();
    let followed = async move { following.follow(vec![edge("ann", "bob"), edge("dan", "bob")]).await.is_ok() };
    let mut answers = vec![held.queue(followed).await];
    let publishing = engine.clone();
    answers.push(held.queue(async move { publishing.publish(draft("bob", "1"), false).await.is_ok() }).await);
    let (commits, answers) = held.release(answers).await;
    assert_eq!((commits, answers), (1, vec![true, true]));
    let backlog = engine.queues().into_iter().find(|queue| queue.name == "fanout_deliveries").unwrap().depth;
    assert_eq!(backlog, 2);
    clock.holding.store(false, Ordering::SeqCst);
    shard.await.unwrap().unwrap();
    engine.shutdown();
}

#[tokio::test]
async fn an_early_repost_may_change_before_or_after_its_target_in_the_same_group() {
    let reposts_of = |number, of, author| with_id(number, Draft { repost_of: Some(PostId(of)), ..draft(author, "1") });
    for is_before in [true, false] {
        for change in ["hide", "delete", "repost"] {
            let mut held = Held::new(config(1, CelebrityPolicy::PushAll));
            for post in [with_id(1, draft("zoe", "1")), reposts_of(3, 2, "cas")] {
                held.engine.publish(post, false).await.unwrap();
            }
            held.hold().await;
            let engine = held.engine.clone();
            let mut answers = Vec::new();
            if !is_before {
                answers.push(held.publish(reposts_of(2, 1, "bob")).await);
            }
            let changed = held
                .queue(async move {
                    match change {
                        "hide" => drop(engine.edit(PostId(3), None, Some(true)).await.unwrap()),
                        "delete" => engine.delete(PostId(3)).await.unwrap(),
                        _ => drop(engine.publish(reposts_of(4, 3, "dan"), false).await.unwrap()),
                    }
                })
                .await;
            if is_before {
                answers.push(held.publish(reposts_of(2, 1, "bob")).await);
            }
            let (_, answers) = held.release(answers).await;
            assert!(answers.iter().all(Result::is_ok));
            changed.await.unwrap();
            let world = &held.engine.shared().world;
            let reposts = world.reposts.of(PostId(1)).unwrap().read().clone();
            let mut ids: Vec<u64> = reposts.iter().map(|repost| repost.at.id.0).collect();
            ids.sort_unstable();
            let expected: &[u64] = match change {
                "hide" => &[2, 3],
                "delete" => &[2],
                _ => &[2, 3, 4],
            };
            assert_eq!(
                (ids.as_slice(), world.reposts.len()),
                (expected, expected.len()),
                "{change}, before: {is_before}"
            );
            let hidden = reposts.iter().filter(|repost| reposts.is_hidden(repost.at)).map(|repost| repost.at.id.0);
            assert_eq!(
                hidden.collect::<Vec<_>>(),
                if change == "hide" { vec![3] } else { vec![] },
                "before: {is_before}"
            );
            held.engine.shutdown();
        }
    }
}
