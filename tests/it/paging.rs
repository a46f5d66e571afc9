//! Paging while the world moves, and among equal timestamps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewire::clock::UnixMicros;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::page::Range;
use tidewire::feed::post::Draft;
use tidewire::id::PostId;
use tidewire::state::reader::PageRequest;

use testkit::PageCount;
use testkit::world::{NEWEST, above, config, draft, edge, flapping, id, ids, some, whole_feed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paging_during_publishes_and_deletes_has_no_gap_and_no_repeat() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(1), flapping()] {
        let engine = Engine::start(EngineConfig { inbox_posts: some(40), ..config(2, policy) });
        let authors: Vec<String> = (0..8).map(|n| format!("a{n}")).collect();
        let mut edges: Vec<_> = authors.iter().map(|author| edge("ann", author)).collect();
        // Half of the authors have two followers: celebrities under the threshold of one.
        edges.extend(authors.iter().take(4).map(|author| edge("bob", author)));
        engine.follow(edges).await.unwrap();
        engine.feed(&id("ann"), NEWEST).await.unwrap();
        let (mut kept, mut doomed) = (BTreeSet::new(), Vec::new());
        for nth in 0..240usize {
            let post = engine.publish(draft(&authors[nth % 8], "1"), true).await.unwrap().post.id();
            if nth % 3 == 0 {
                doomed.push(post);
            } else {
                kept.insert(post);
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let noise = tokio::spawn(make_noise(engine.clone(), authors.clone(), doomed.clone(), Arc::clone(&stop)));
        let mut rounds = 0;
        while !noise.is_finished() || rounds < 10 {
            let (mut seen, mut range) = (Vec::new(), Range::Newest);
            let mut pages = PageCount::default();
            loop {
                pages.count();
                let page = engine.feed(&id("ann"), PageRequest { range, limit: 7 }).await.unwrap();
                seen.extend(ids(&page));
                let Some(next) = page.page.next else { break };
                range = Range::Before(next);
            }
            let distinct: BTreeSet<PostId> = seen.iter().copied().collect();
            assert_eq!(distinct.len(), seen.len(), "no entry repeats");
            assert!(kept.is_subset(&distinct), "{} missing", kept.difference(&distinct).count());
            rounds += 1;
            if rounds == 10 {
                stop.store(true, Ordering::SeqCst);
            }
        }
        noise.await.unwrap();
        let after: BTreeSet<PostId> =
            whole_feed(&engine, "ann", 50).await.into_iter().map(|entry| entry.post).collect();
        assert!(doomed.iter().all(|post| !after.contains(post)));
        engine.shutdown();
    }
}

/// Publishes and deletes until told to stop, and until everything doomed is deleted.
async fn make_noise(engine: Engine, authors: Vec<String>, doomed: Vec<PostId>, stop: Arc<AtomicBool>) {
    let mut doomed = doomed.into_iter();
    for nth in 0.. {
        let next = doomed.next();
        if let Some(post) = next {
            engine.delete(post).await.unwrap();
        }
        // Never more than a bounded amount, even if the reader is slow to say stop.
        if nth < 20_000 {
            engine.publish(draft(&authors[nth % 8], "2"), false).await.unwrap();
        }
        if next.is_none() && stop.load(Ordering::SeqCst) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn twenty_posts_with_one_timestamp_are_paged_by_three() {
    let engine = Engine::start(config(2, above(1)));
    let authors: Vec<String> = (0..20).map(|n| format!("a{n}")).collect();
    let mut edges: Vec<_> = authors.iter().map(|author| edge("ann", author)).collect();
    edges.extend(authors.iter().take(10).map(|author| edge("bob", author)));
    engine.follow(edges).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    for (nth, author) in authors.iter().enumerate() {
        let dated = Draft {
            // Ids in no order, so that ties are broken by them and not by arrival.
            id: Some(PostId((nth as u64 * 7) % 20)),
            published_at: Some(UnixMicros(1_000)),
            ..draft(author, "1")
        };
        engine.publish(dated, true).await.unwrap();
    }
    assert_eq!(engine.shared().counters.deliveries.get(), 10, "half of the authors are celebrities");
    let (mut seen, mut sizes, mut range) = (Vec::new(), Vec::new(), Range::Newest);
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = engine.feed(&id("ann"), PageRequest { range, limit: 3 }).await.unwrap();
        sizes.push(page.page.items.len());
        seen.extend(ids(&page));
        let Some(next) = page.page.next else { break };
        range = Range::Before(next);
    }
    assert!(seen.into_iter().eq((0..20).rev().map(PostId)));
    assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 2]);
    engine.shutdown();
}
