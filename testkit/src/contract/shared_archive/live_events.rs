//! The feeds and live events of all nodes after one node has judged a change of a post that only the archive has.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::eventually_async;
use tidewire::engine::Watcher;
use tidewire::feed::post::Draft;
use tidewire::live::event::EventKind;

use super::*;

/// Waits until a live connection gets an event.
async fn told(watcher: &mut Watcher, what: &str, is_meant: impl Fn(&EventKind) -> bool) {
    let mut others = Vec::new();
    let search = async {
        loop {
            let event = watcher.next().await.expect("the connection lives").kind;
            if is_meant(&event) {
                return;
            }
            others.push(format!("{event:?}"));
        }
    };
    let found = tokio::time::timeout(DEADLINE, search).await;
    assert!(found.is_ok(), "nobody told of {what}, only of {others:?}");
}

fn updates(event: &EventKind, number: u64, body: &str) -> bool {
    matches!(event, EventKind::Update(post) if post.id() == PostId(number) && post.body() == body)
}

fn removes(event: &EventKind, number: u64) -> bool {
    matches!(event, EventKind::Remove(post) if *post == PostId(number))
}

fn adds(event: &EventKind, number: u64) -> bool {
    matches!(event, EventKind::Post(item) if item.entry.post.id() == PostId(number))
}

impl TestCluster {
    async fn hide(&mut self, number: u64, hidden: bool) {
        self.done(async |engine| engine.edit(PostId(number), None, Some(hidden)).await).await;
    }

    /// Compares the digests of all nodes.
    async fn have_one_digest(&self) {
        self.in_step().await;
        let mut digests = BTreeSet::new();
        for Member { node, .. } in &self.members {
            let mut computed = None;
            eventually_async("a digest is computed", async || {
                computed = node.engine.digest(&*node.state);
                computed.is_some()
            })
            .await;
            digests.extend(computed.map(|(_, digest)| digest.to_string()));
        }
        assert_eq!(digests.len(), 1, "the worlds of nodes differ: {digests:?}");
    }

    async fn watched(&self) -> Vec<Watcher> {
        let mut watchers = Vec::new();
        for member in &self.members {
            watchers.push(member.node.engine.watch(&id("ann"), None).await.unwrap());
        }
        watchers
    }
}

pub async fn live_readers_on_all_nodes_receive_changes_of_archived_posts(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(40).await;
    cluster.settle().await;
    let mut watchers = cluster.watched().await;
    cluster.edit(5, "[5]").await;
    for watcher in &mut watchers {
        told(watcher, "an edit", |event| updates(event, 5, "[5]")).await;
    }
    cluster.hide(6, true).await;
    let shown = cluster.expected.insert(6, None);
    for watcher in &mut watchers {
        told(watcher, "a post that is hidden", |event| removes(event, 6)).await;
    }
    for member in &cluster.members {
        assert_eq!(read_down(&member.node, None).await, cluster.live(), "on node {}", member.node.state.me());
    }
    cluster.hide(6, false).await;
    cluster.expected.insert(6, shown.flatten());
    for watcher in &mut watchers {
        told(watcher, "a post that is shown again", |event| adds(event, 6)).await;
    }
    cluster.delete(7).await;
    for watcher in &mut watchers {
        told(watcher, "a deletion", |event| removes(event, 7)).await;
    }
    cluster.check().await;
    cluster.have_one_digest().await;
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    cluster.check().await;
    cluster.have_one_digest().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

pub async fn archived_reposts_are_hidden_shown_and_deleted_on_all_nodes(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(20).await;
    for (number, origin) in [(21, 3), (22, 3), (23, 4), (24, 99)] {
        let repost = Draft { repost_of: Some(PostId(origin)), ..post(&author(number), number) };
        cluster.done(async |engine| engine.publish(repost.clone(), false).await).await;
    }
    let filler = |cluster: &TestCluster| cluster.expected.len() as u64 + 100;
    for _ in 0..40 {
        let number = filler(&cluster);
        cluster.publish(number).await;
    }
    cluster.settle().await;
    cluster.have_one_digest().await;
    let mut watchers = cluster.watched().await;
    // The entry of the original is at the position of its newest visible repost.
    let place = |at: u64| move |event: &EventKind| matches!(event, EventKind::Post(item) if item.entry.post.id() == PostId(3) && item.at.id == PostId(at));
    cluster.hide(22, true).await;
    for watcher in &mut watchers {
        told(watcher, "an entry that moves, since a repost is hidden", place(21)).await;
    }
    cluster.have_one_digest().await;
    cluster.hide(22, false).await;
    for watcher in &mut watchers {
        told(watcher, "an entry that moves back", place(22)).await;
    }
    cluster.have_one_digest().await;
    cluster.hide(23, true).await;
    cluster.done(async |engine| engine.delete(PostId(22)).await).await;
    for watcher in &mut watchers {
        told(watcher, "an entry that moves, since a repost is deleted", place(21)).await;
    }
    cluster.have_one_digest().await;
    // Repost 24 names post 99, which turns out to be a repost of an author whom nobody follows.
    let late = Draft { repost_of: Some(PostId(5)), ..post("stranger", 99) };
    cluster.done(async |engine| engine.publish(late.clone(), false).await).await;
    for watcher in &mut watchers {
        let moved = |event: &EventKind| matches!(event, EventKind::Post(item) if item.entry.post.id() == PostId(5) && item.at.id == PostId(24));
        told(watcher, "an entry that moves to a repost of a repost", moved).await;
    }
    cluster.have_one_digest().await;
    for nth in 0..3 {
        cluster.restart(nth);
        cluster.all_are_members().await;
        cluster.have_one_digest().await;
        let node = &cluster.members[nth].node;
        assert_eq!(node.engine.post(PostId(24)).await.unwrap().repost_of, Some(PostId(5)));
    }
    cluster.shutdown();
}

pub async fn a_reused_name_of_an_erased_user_is_not_the_parent_of_old_replies(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(19).await;
    let reply = Draft { reply_to: Some(PostId(19)), ..post(&author(20), 20) };
    cluster.done(async |engine| engine.publish(reply.clone(), false).await).await;
    cluster.expected.insert(20, Some("{}".to_owned()));
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    // Now all nodes have read and cached the reply.
    cluster.check().await;
    let erased = id(&author(19));
    cluster.done(async |engine| engine.erase(erased.clone()).await).await;
    let is_done = |member: &Member| member.node.engine.erasures().count == 0;
    eventually_async("the erasure ends", async || cluster.members.iter().all(is_done)).await;
    cluster.follow_all().await;
    cluster.in_step().await;
    for Member { node, .. } in &cluster.members {
        let feed = read_down(node, None).await;
        assert!(feed.iter().any(|(number, _)| *number == 23), "{feed:?}");
        assert!(feed.iter().all(|(number, _)| *number != 20), "on node {}: {feed:?}", node.state.me());
    }
    cluster.shutdown();
}

pub async fn old_posts_are_archived_while_an_erasure_rewrites_the_archive(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::LateRewrites));
    cluster.done(async |engine| engine.erase(id(&author(1))).await).await;
    let gone = |(number, _): &(&u64, &mut Option<String>)| **number % AUTHORS == 1;
    cluster.expected.iter_mut().filter(gone).for_each(|(_, body)| *body = None);
    eventually_async("the rewrite has begun", async || cluster.total(|connection| &connection.rewrites_begun) > 0)
        .await;
    for number in [62, 63, 65, 66] {
        cluster.publish(number).await;
    }
    cluster.edit(20, "[20]").await;
    let last = cluster.log.range().unwrap().last;
    eventually_async("the archive goes on", async || cluster.archive.through().unwrap() >= last).await;
    assert!(cluster.members.iter().all(|member| member.node.engine.erasures().count == 1), "the erasure waits");
    cluster.members.iter().for_each(|member| member.connection.set(Answers::Always));
    eventually_async("the erasure ends", async || {
        cluster.members.iter().all(|member| member.node.engine.erasures().count == 0)
    })
    .await;
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

pub async fn edits_of_a_partly_written_batch_survive_a_concurrent_erasure(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(19).await;
    // All replies are by another author, and change when the author of 19 is erased.
    for number in [20, 23, 26, 29] {
        let reply = Draft { reply_to: Some(PostId(19)), ..post(&author(20), number) };
        cluster.done(async |engine| engine.publish(reply.clone(), false).await).await;
        cluster.expected.insert(number, Some("{}".to_owned()));
    }
    cluster.publish_up_to(80).await;
    cluster.settle().await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::LateRewrites));
    cluster.done(async |engine| engine.erase(id(&author(19))).await).await;
    let gone = |(number, _): &(&u64, &mut Option<String>)| **number % AUTHORS == 1;
    cluster.expected.iter_mut().filter(gone).for_each(|(_, body)| *body = None);
    eventually_async("the rewrite has begun", async || cluster.total(|connection| &connection.rewrites_begun) > 0)
        .await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::LateBoth));
    let before = cluster.total(|connection| &connection.halves);
    for number in [20, 26, 29] {
        cluster.edit(number, &format!("[{number}]")).await;
    }
    cluster.delete(23).await;
    eventually_async("a part of a batch is written", async || cluster.total(|connection| &connection.halves) > before)
        .await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::LateBatches));
    eventually_async("all of the archive is rewritten", async || cluster.total(|connection| &connection.rewrites) > 0)
        .await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::Always));
    eventually_async("the erasure ends", async || {
        cluster.members.iter().all(|member| member.node.engine.erasures().count == 0)
    })
    .await;
    // Pages show none of these replies, because nobody follows the author of 19.
    cluster.check_archive().await;
    cluster.shutdown();
}

impl TestCluster {
    /// Returns the sum of a count over the connections of all nodes.
    fn total(&self, count: impl Fn(&StoreConnection) -> &AtomicU64) -> u64 {
        self.members.iter().map(|member| count(&member.connection).load(Ordering::Relaxed)).sum()
    }
}
