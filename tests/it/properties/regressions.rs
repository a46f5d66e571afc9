//! What random histories once found, as plain ones.

use testkit::eventually_async;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::rules::RulesPatch;
use tidewire::feed::stream::StreamLimits;
use tidewire::id::PostId;

use crate::properties::Run;
use crate::properties::ops::{Op, Published, Restart, Settings, Target};
use testkit::world::{above, edge, id, some};

const LIVE: StreamLimits = StreamLimits { window_entries: 3, history_changes: 3 };

fn post(author: usize) -> Op {
    Op::Publish(Published { author, wait: true, ..Published::default() })
}

fn dated(author: usize, ago: i64) -> Op {
    Op::Publish(Published { author, ago: Some(ago), wait: true, ..Published::default() })
}

fn repost(author: usize, of: usize) -> Op {
    Op::Publish(Published { author, repost_of: Some(Target::Known(of)), wait: true, ..Published::default() })
}

fn follow(reader: usize, source: usize, hidden: bool, backfill: Option<usize>) -> Op {
    Op::Follow { reader, source, hidden, backfill }
}

async fn check(mut run: Run, ops: Vec<Op>) {
    for op in ops {
        run.apply(op).await;
    }
    run.everything().await;
    run.engine.shutdown();
}

#[tokio::test]
async fn posts_backdated_before_a_keeping_unfollow_show_to_awake_and_sleeping_readers() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(1)] {
        let run = Run::new(policy, 1, 4, false, None, LIVE);
        let read = Op::Unread(3);
        let keep = Op::Unfollow { reader: 3, source: 1, keep: true };
        let ops = vec![Op::FollowAll(3), post(0), post(1), read, keep, dated(1, 0), post(0), post(1), post(0)];
        check(run, ops).await;
    }
}

#[tokio::test]
async fn an_inbox_is_correct_after_a_keeping_unfollow() {
    let mut run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let keep = Op::Unfollow { reader: 3, source: 1, keep: true };
    for op in [Op::FollowAll(3), post(0), post(1), Op::Unread(3), keep, dated(1, 0), post(1)] {
        run.apply(op).await;
    }
    let verdict = run.engine.verify_feed(&id("dan"), false).await.unwrap();
    assert!(verdict.is_good(), "{verdict:?}");
    run.engine.shutdown();
}

#[tokio::test]
async fn a_hidden_edge_that_becomes_visible_changes_neither_kept_posts_nor_the_route() {
    let run = Run::new(above(5), 1, 9, false, None, LIVE);
    let mut ops = vec![post(0), post(0)];
    ops.extend((1..=6).map(|reader| follow(reader, 0, false, None)));
    ops.extend([Op::Unfollow { reader: 1, source: 0, keep: true }, follow(1, 0, true, Some(0)), post(0)]);
    ops.extend([Op::Unfollow { reader: 2, source: 0, keep: false }, follow(1, 0, false, None)]);
    check(run, ops).await;
}

#[tokio::test]
async fn an_archived_repost_stays_deleted_after_a_restart() {
    for how in [Restart::ProcessKilled, Restart::PowerLost(3)] {
        let run = Run::new(CelebrityPolicy::PushAll, 1, 1, false, Some(1), LIVE);
        let mut ops = vec![post(0), repost(4, 0)];
        ops.extend((0..200).map(|nth| post(if nth % 2 == 0 { 0 } else { 4 })));
        ops.extend([Op::Snapshot, Op::Delete(1)]);
        ops.extend((0..200).map(|nth| post(if nth % 2 == 0 { 0 } else { 4 })));
        ops.push(Op::Restart { how, clock: 0, change: None });
        check(run, ops).await;
    }
}

#[tokio::test]
async fn an_early_repost_of_a_repost_has_the_original() {
    let early = Published { author: 0, repost_of: Some(Target::Id(33)), ..Published::default() };
    let late = Published { author: 0, own_id: Some(33), repost_of: Some(Target::Known(1)), ..Published::default() };
    let ops = || [Op::Publish(early.clone()), post(0), post(0), Op::Publish(late.clone()), post(0)];
    let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    check(run, ops().to_vec()).await;
    // The earlier one is hidden, and comes to be shown.
    let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let [early, original, other, late, last] = ops();
    check(run, vec![early, original, other, Op::Hide(0, true), late, last, Op::Hide(0, false), Op::Delete(3)]).await;
    // By when the later one comes, the archive has the earlier one.
    for how in [Restart::InOrder, Restart::ProcessKilled, Restart::PowerLost(3)] {
        for has_snapshot in [false, true] {
            let run = Run::new(CelebrityPolicy::PushAll, 1, 1, false, Some(1), LIVE);
            let [early, original, other, late, last] = ops();
            let mut ops = vec![early, original, other];
            ops.extend((0..200).map(|_| post(0)));
            ops.extend([Op::Snapshot, late, last]);
            ops.extend(has_snapshot.then_some(Op::Snapshot));
            let restart = || Op::Restart { how, clock: 0, change: None };
            ops.extend([restart(), Op::Hide(0, true), restart(), Op::Hide(0, false), Op::Delete(1)]);
            check(run, ops).await;
        }
    }
}

#[tokio::test]
async fn a_repost_of_an_invisible_post_is_a_repost_of_an_unknown_post() {
    let block = |reader, source, on| Op::Silence { reader, source, how: MuteOrBlock::Block, on };
    for (before, after) in [
        (Op::Hide(1, true), Op::Hide(1, false)),
        (block(1, 2, true), block(1, 2, false)),
        (block(2, 1, true), block(2, 1, false)),
    ] {
        let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
        check(run, vec![post(0), repost(1, 0), before, repost(2, 1), after, repost(2, 2), repost(1, 1)]).await;
    }
    // Both repeat each other then, which is refused where both are seen.
    let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let first = Published { author: 1, repost_of: Some(Target::Id(33)), ..Published::default() };
    let second = Published { author: 2, own_id: Some(33), repost_of: Some(Target::Known(0)), ..Published::default() };
    let ops = vec![Op::Publish(first), Op::Hide(0, true), Op::Publish(second), Op::Hide(0, false), Op::FollowAll(3)];
    check(run, ops).await;
}

#[tokio::test]
async fn the_page_limit_per_source_does_not_limit_the_unread_count() {
    let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let patch = RulesPatch { per_source_max: Some(Some(some(1))), ..RulesPatch::default() };
    check(run, vec![Op::Rules(0, patch), post(0), post(0), follow(0, 1, false, None), post(1)]).await;
}

#[tokio::test]
async fn a_reader_on_an_own_list_is_named_for_reposts_too() {
    let run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let list = Op::List { reader: 3, list: 0, source: 3, on: true };
    check(run, vec![post(0), list, post(3), repost(3, 0)]).await;
}

#[tokio::test]
async fn a_source_just_above_the_threshold_stays_pulled_after_restarts() {
    let run = Run::new(above(2), 1, 1, false, None, LIVE);
    let other = Settings { policy: above(1), shards: 1, inbox_posts: 1, outbox_posts: 1, window_ms: 20 };
    let restart = |change| Op::Restart { how: Restart::InOrder, clock: 0, change };
    let leave = |reader| Op::Unfollow { reader, source: 1, keep: false };
    let ops =
        vec![Op::FollowAll(2), Op::FollowAll(6), Op::Snapshot, restart(Some(other)), leave(6), restart(None), leave(0)];
    check(run, ops).await;
}

#[tokio::test]
async fn a_bulk_request_may_name_an_edge_twice() {
    let mut run = Run::new(CelebrityPolicy::PushAll, 1, 9, false, None, LIVE);
    let hidden = NewEdge { hidden: true, ..edge("ann", "cas") };
    run.follow(vec![edge("ann", "bob"), edge("ann", "bob"), hidden]).await;
    check(run, vec![post(1), post(2)]).await;
}

/// A reply to a post that is not there yet, which ann's feed would show, and which only the archive has.
async fn with_archived_reply() -> Run {
    let mut run = Run::new(CelebrityPolicy::PushAll, 1, 4, false, Some(1), LIVE);
    let reply = Published { author: 1, reply_to: Some(Target::Id(9)), wait: true, ..Published::default() };
    let mut ops = vec![follow(0, 1, false, None), follow(0, 2, false, None), Op::Publish(reply)];
    ops.extend((0..4).map(|_| post(1)));
    for op in ops {
        run.apply(op).await;
    }
    until_archived(&run, PostId(run.oracle.posts[0].id)).await;
    run
}

async fn until_archived(run: &Run, post: PostId) {
    let is_archived = async || run.engine.shared().world.posts.stored(post).is_none();
    eventually_async("the post is in the archive alone", is_archived).await;
}

#[tokio::test]
async fn an_early_reply_reaches_polling_clients_even_if_both_posts_are_archived() {
    let mut run = with_archived_reply().await;
    let read = (0..run.pollers.len()).map(|poller| Op::Poll(poller, 9));
    for op in read.chain([answered()]).chain((0..4).map(|_| post(2))) {
        run.apply(op).await;
    }
    until_archived(&run, PostId(9)).await;
    run.apply(Op::Restart { how: Restart::InOrder, clock: 0, change: None }).await;
    for poller in &mut run.pollers {
        poller.check(&run.engine, &run.oracle, 9).await;
    }
    check(run, Vec::new()).await;
}

fn answered() -> Op {
    Op::Publish(Published { author: 2, own_id: Some(9), wait: true, ..Published::default() })
}

#[tokio::test]
async fn a_reply_archived_before_its_parent_does_not_change_unread_counts_of_others() {
    let mut run = with_archived_reply().await;
    run.apply(Op::Mark(0, 4)).await;
    check(run, vec![answered()]).await;
}

#[tokio::test]
async fn a_reply_archived_before_its_parent_reaches_polling_clients_after_a_restart() {
    let restart = || Op::Restart { how: Restart::InOrder, clock: 0, change: None };
    for before in [vec![Op::Snapshot], vec![Op::Snapshot, restart()]] {
        let mut run = with_archived_reply().await;
        let read = (0..run.pollers.len()).map(|poller| Op::Poll(poller, 9));
        for op in before.into_iter().chain(read).chain([answered(), restart()]) {
            run.apply(op).await;
        }
        for poller in &mut run.pollers {
            poller.check(&run.engine, &run.oracle, 9).await;
        }
        check(run, Vec::new()).await;
    }
}
