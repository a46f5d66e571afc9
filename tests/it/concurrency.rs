//! Races: what must hold whoever comes first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::eventually_async;
use tidewire::clock::{Clock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, FeedPage};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::limits::{COMMAND_QUEUE_MAX, USER_MAILBOX_MAX};
use tidewire::storage::journal::MemoryJournal;
use tidewire::{PageRequest, Position};

use testkit::world::{NEWEST, config, draft, edge, id, ids, insist, some, whole_feed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waking_during_publishes_loses_nothing() {
    for round in 0..15 {
        let engine = Engine::start(config(1 + round % 3, CelebrityPolicy::PushAll));
        let readers: Vec<String> = (0..30).map(|n| format!("r{n}")).collect();
        let edges = readers.iter().flat_map(|reader| ["x", "y", "z"].map(|author| edge(reader, author)));
        engine.follow(edges.collect()).await.unwrap();
        let publishers = ["x", "y", "z"].map(|author| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for nth in 0..60 {
                    engine.publish(draft(author, &nth.to_string()), nth % 10 == 9).await.unwrap();
                }
            })
        });
        let waking = readers.clone().into_iter().map(|reader| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.feed(&id(&reader), NEWEST).await.map(drop) })
        });
        for waking in waking.collect::<Vec<_>>() {
            waking.await.unwrap().unwrap();
        }
        for publisher in publishers {
            publisher.await.unwrap();
        }
        // All that is still on its way is ahead of these in the queue.
        engine.publish(draft("x", "\"last\""), true).await.unwrap();
        for reader in &readers {
            assert_eq!(whole_feed(&engine, reader, 100).await.len(), 181, "{reader} in round {round}");
        }
        assert_eq!(engine.inbox_totals().await.entries, 30 * 181, "all of it was in inboxes");
        engine.shutdown();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fanout_reaches_all_remaining_followers_while_the_list_changes() {
    let engine = Engine::start(config(2, CelebrityPolicy::PushAll));
    let names = |from: usize, to: usize| (from..to).map(|n| format!("r{n}")).collect::<Vec<_>>();
    let (stay, churn) = (names(0, 4_000), names(4_000, 6_000));
    // Those who come and go lie between those who stay, by slot.
    let mixed = stay.chunks(2).zip(churn.chunks(1)).flat_map(|(stay, churn)| stay.iter().chain(churn));
    engine.follow(mixed.map(|reader| edge(reader, "star")).collect()).await.unwrap();
    engine.publish(draft("star", "0"), true).await.unwrap();
    for reader in &stay {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
    let churning = {
        let (engine, churn) = (engine.clone(), churn.clone());
        tokio::spawn(async move {
            for _ in 0..3 {
                for reader in &churn {
                    engine.unfollow(id(reader), id("star")).await.unwrap();
                }
                engine.follow(churn.iter().map(|reader| edge(reader, "star")).collect()).await.unwrap();
            }
        })
    };
    let mut published = BTreeSet::new();
    while !churning.is_finished() && published.len() < 100 {
        published.insert(engine.publish(draft("star", "1"), true).await.unwrap().post.id());
    }
    churning.await.unwrap();
    let entries = engine.inbox_totals().await.entries;
    assert_eq!(entries, stay.len() * (published.len() + 1), "by push, before any read could bring them in");
    for reader in stay.iter().step_by(97) {
        let feed: BTreeSet<PostId> =
            whole_feed(&engine, reader, 100).await.into_iter().map(|entry| entry.post).collect();
        assert!(published.is_subset(&feed));
    }
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_succeed_while_readers_fall_asleep() {
    let config = EngineConfig { active_readers_max: some(2), ..config(1, CelebrityPolicy::PushAll) };
    let engine = Engine::start(EngineConfig { active_window: Duration::from_millis(1), ..config });
    let readers: Vec<String> = (0..12).map(|n| format!("r{n}")).collect();
    engine.follow(readers.iter().map(|reader| edge(reader, "bob")).collect()).await.unwrap();
    engine.publish(draft("bob", "1"), true).await.unwrap();
    let reading = readers.into_iter().map(|reader| {
        let engine = engine.clone();
        tokio::spawn(async move {
            // How often readers fall asleep depends on what else the machine does, so they read until it was often enough.
            let has_slept = || engine.shared().counters.sleeps.get() > 100;
            for nth in 0..100_000 {
                if nth >= 300 && has_slept() {
                    return;
                }
                let page = engine.feed(&id(&reader), NEWEST).await.unwrap();
                assert_eq!(page.page.items.len(), 1);
                // A page of an awake reader is built without waiting, so the others would not get their turn.
                tokio::task::yield_now().await;
            }
        })
    });
    for reading in reading.collect::<Vec<_>>() {
        reading.await.unwrap();
    }
    assert!(engine.shared().counters.sleeps.get() > 100, "readers fell asleep");
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_publishes_of_the_same_post_create_one_post() {
    let engine = Engine::start(config(2, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    for nth in 0..50 {
        let sending = (0..8).map(|_| {
            let (engine, post) = (engine.clone(), Draft { id: Some(PostId(nth)), ..draft("bob", "1") });
            tokio::spawn(async move { engine.publish(post, true).await.unwrap().created })
        });
        let mut created = 0;
        for sent in sending.collect::<Vec<_>>() {
            created += usize::from(sent.await.unwrap());
        }
        assert_eq!(created, 1);
    }
    let page = whole_feed(&engine, "ann", 100).await;
    assert_eq!((page.len(), engine.shared().counters.deliveries.get()), (50, 50));
    engine.shutdown();
}

#[tokio::test]
async fn a_full_queue_refuses_commands_and_executes_accepted_ones() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    // Polled once each, all are handed over before any answer is looked at.
    let sent: Vec<_> = (0..4 * COMMAND_QUEUE_MAX).map(|_| Box::pin(engine.publish(draft("bob", "1"), false))).collect();
    let mut pending = Vec::new();
    let (mut taken, mut refused) = (Vec::new(), 0);
    let mut note = |answer: Result<tidewire::runtime::message::Published, Error>| match answer {
        Ok(published) => taken.push(published.post.id()),
        Err(Error::Overloaded { .. }) => refused += 1,
        Err(other) => panic!("{other}"),
    };
    for mut publish in sent {
        let polled = std::future::poll_fn(|task| std::task::Poll::Ready(publish.as_mut().poll(task))).await;
        match polled {
            std::task::Poll::Ready(answer) => note(answer),
            std::task::Poll::Pending => pending.push(publish),
        }
    }
    for publish in pending {
        note(publish.await);
    }
    assert_eq!(taken.len() + refused, 4 * COMMAND_QUEUE_MAX);
    insist(async || engine.publish(draft("bob", "2"), true).await).await.unwrap();
    let page = engine.own_page(&id("bob"), NEWEST).await.unwrap();
    taken.sort_unstable();
    assert_eq!(ids(&page)[1..], taken.iter().rev().take(19).copied().collect::<Vec<_>>());
    assert_eq!(engine.source(&id("bob")).unwrap().posts, taken.len() + 1);
    assert_eq!(engine.shared().counters.deliveries.get(), taken.len() as u64 + 1);
    engine.shutdown();
}

/// A clock that holds the threads of actors, and no others, while it is told to: a shard that hangs.
#[derive(Default)]
pub(crate) struct HoldingClock {
    pub(crate) holding: AtomicBool,
    held: AtomicBool,
}

impl Clock for HoldingClock {
    fn now(&self) -> UnixMicros {
        let of_an_actor = std::thread::current().name().is_some_and(|name| name.contains("arbiter"));
        while of_an_actor && self.holding.load(Ordering::SeqCst) {
            self.held.store(true, Ordering::SeqCst);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        UnixMicros(1_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// Makes the shard hang in a read of ann's feed, until the clock no longer holds it. The actor builds the page, since it begins at a cursor.
pub(crate) async fn hold(engine: &Engine, clock: &HoldingClock) -> tokio::task::JoinHandle<Result<FeedPage, Error>> {
    let request = PageRequest::before(Position::MAX, 9);
    clock.holding.store(true, Ordering::SeqCst);
    let engine = engine.clone();
    let held = tokio::spawn(async move { engine.feed(&id("ann"), request).await });
    eventually_async("the shard hangs", async || clock.held.load(Ordering::SeqCst)).await;
    held
}

#[tokio::test]
async fn a_post_is_in_the_backlog_until_its_deliveries_are_done() {
    let clock = Arc::new(HoldingClock::default());
    let settings = config(1, CelebrityPolicy::PushAll);
    let engine = Engine::start_with(settings, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    engine.follow(vec![edge("ann", "bob"), edge("cas", "bob"), edge("dan", "bob")]).await.unwrap();
    for reader in ["ann", "cas"] {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
    let held = hold(&engine, &clock).await;
    let backlog = || engine.queues().into_iter().find(|queue| queue.name == "fanout_deliveries").unwrap().depth;
    let published = engine.publish(Draft { id: Some(PostId(7)), ..draft("bob", "1") }, false).await.unwrap();
    assert!(published.created);
    assert_eq!(backlog(), 2, "dan is asleep");
    // The same post again, for a caller who waits for its delivery.
    let again = tokio::spawn({
        let engine = engine.clone();
        async move { engine.publish(Draft { id: Some(PostId(7)), ..draft("bob", "1") }, true).await }
    });
    eventually_async("the post waits again", async || backlog() >= 4).await;
    clock.holding.store(false, Ordering::SeqCst);
    assert!(!again.await.unwrap().unwrap().created);
    held.await.unwrap().unwrap();
    eventually_async("all is delivered", async || backlog() == 0).await;
    engine.shutdown();
}

#[tokio::test]
async fn messages_above_the_mailbox_limit_are_refused() {
    let clock = Arc::new(HoldingClock::default());
    let settings = config(1, CelebrityPolicy::PushAll);
    let engine = Engine::start_with(settings, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.publish(draft("bob", "1"), true).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    let ann = id("ann");
    let held = hold(&engine, &clock).await;
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for _ in 0..3 * USER_MAILBOX_MAX {
        let mut question = Box::pin(engine.verify_feed(&ann, false));
        match std::future::poll_fn(|task| std::task::Poll::Ready(question.as_mut().poll(task))).await {
            std::task::Poll::Pending => waiting.push(question),
            std::task::Poll::Ready(answer) => {
                assert_eq!(answer.unwrap_err().code(), "overloaded");
                refused += 1;
            }
        }
    }
    // The sender itself has room for one beyond the mailbox.
    assert!((USER_MAILBOX_MAX..=USER_MAILBOX_MAX + 2).contains(&waiting.len()), "{} waiting", waiting.len());
    assert_eq!(engine.shared().counters.shed.get(), refused);
    clock.holding.store(false, Ordering::SeqCst);
    assert_eq!(held.await.unwrap().unwrap().page.items.len(), 1);
    for question in waiting {
        assert!(question.await.unwrap().is_good());
    }
    engine.shutdown();
}

/// An engine that is soon behind, and these authors with so many followers each, who are all awake.
async fn soon_behind(backlog_max: usize, authors: &[(&str, usize)]) -> Engine {
    let config = EngineConfig { fanout_backlog_max: Some(some(backlog_max)), ..config(2, CelebrityPolicy::PushAll) };
    let engine = Engine::start(config);
    let followers = authors.iter().map(|(_, followers)| *followers).max().unwrap_or(0);
    let edges = |(author, followers): &(&str, usize)| {
        (0..*followers).map(|nth| edge(&format!("r{nth}"), author)).collect::<Vec<_>>()
    };
    engine.follow(authors.iter().flat_map(edges).collect()).await.unwrap();
    for nth in 0..followers {
        engine.feed(&id(&format!("r{nth}")), NEWEST).await.unwrap();
    }
    engine
}

/// Publishes at once by all of them, until somebody is refused. Returns the refusals, by whom, and how many posts were taken.
async fn publish_until_refused(engine: &Engine, authors: &[&str]) -> (Vec<(String, Error)>, usize) {
    let mut taken = 0;
    for _ in 0..1_000 {
        let publish = |author: &str| {
            let (engine, author) = (engine.clone(), author.to_owned());
            tokio::spawn(
                async move { engine.publish(draft(&author, "1"), false).await.map_err(|cause| (author, cause)) },
            )
        };
        let all: Vec<_> = (0..32).flat_map(|_| authors.iter().map(|author| publish(author))).collect();
        let mut refused = Vec::new();
        for published in all {
            match published.await.unwrap() {
                Ok(_) => taken += 1,
                Err(refusal) => refused.push(refusal),
            }
        }
        if !refused.is_empty() {
            return (refused, taken);
        }
    }
    panic!("nobody was refused");
}

#[tokio::test]
async fn posts_of_a_batch_behind_a_temporarily_refused_one_are_refused_too() {
    let engine = soon_behind(4_000, &[("hot", 600), ("calm", 5)]).await;
    // The third finds 1,200 deliveries of the first two. The last could be accepted, but would come before the third when that is sent again.
    let batch = ["hot", "hot", "hot", "calm"].map(|author| draft(author, "1"));
    let published = engine.publish_many(batch.to_vec(), false).await;
    let codes: Vec<_> = published.iter().map(|post| post.as_ref().map_or_else(|cause| cause.code(), |_| "")).collect();
    assert_eq!(codes, ["", "", "overloaded", "overloaded"]);
    // One that is refused for good keeps nobody waiting.
    let mut invalid = draft("calm", "1");
    invalid.author = SourceId::tag("tea").unwrap();
    let published = engine.publish_many(vec![invalid, draft("calm", "2")], false).await;
    assert!(published[0].is_err() && published[1].is_ok());
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authors_with_many_pending_deliveries_are_refused_before_others() {
    let engine = soon_behind(4_000, &[("hot", 600), ("calm", 5)]).await;
    let (refused, _) = publish_until_refused(&engine, &["hot", "calm"]).await;
    for (author, cause) in refused {
        let expected = Error::Overloaded { queue: "author_fanout_deliveries", limit: 1_000 };
        assert_eq!((author.as_str(), cause.to_string()), ("hot", expected.to_string()));
    }
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_are_refused_while_delivery_lags_and_accepted_posts_are_delivered() {
    let authors = ["a", "b", "c", "d", "e", "f"];
    let engine = soon_behind(1_000, &authors.map(|author| (author, 240))).await;
    let (refused, taken) = publish_until_refused(&engine, &authors).await;
    let behind = Error::Overloaded { queue: "fanout_deliveries", limit: 1_000 }.to_string();
    assert!(refused.iter().any(|(_, cause)| cause.to_string() == behind), "{refused:?}");
    let queue = || engine.queues().into_iter().find(|queue| queue.name == "fanout_deliveries").unwrap();
    assert_eq!(queue().limit, 1_000);
    // Once all is delivered there is room again.
    eventually_async("all is delivered", async || queue().depth == 0).await;
    engine.publish(draft("a", "2"), true).await.unwrap();
    for reader in ["r0", "r239"] {
        assert_eq!(whole_feed(&engine, reader, 100).await.len(), taken + 1, "{reader}");
    }
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_publishes_of_an_existing_post_are_limited_like_new_ones() {
    let engine = soon_behind(4_000, &[("hot", 600)]).await;
    let once = Draft { id: Some(PostId(7)), ..draft("hot", "1") };
    engine.publish(once.clone(), true).await.unwrap();
    for _ in 0..1_000 {
        let again = (0..64).map(|_| {
            let (engine, draft) = (engine.clone(), once.clone());
            tokio::spawn(async move { engine.publish(draft, true).await })
        });
        for again in again.collect::<Vec<_>>() {
            if let Err(cause) = again.await.unwrap() {
                let expected = Error::Overloaded { queue: "author_fanout_deliveries", limit: 1_000 };
                assert_eq!(cause.to_string(), expected.to_string());
                return engine.shutdown();
            }
        }
    }
    panic!("nobody was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_limit_of_one_delivery_accepts_posts_one_by_one() {
    let engine = soon_behind(1, &[("bob", 3)]).await;
    for _ in 0..3 {
        engine.publish(draft("bob", "1"), true).await.unwrap();
    }
    assert_eq!(whole_feed(&engine, "r2", 100).await.len(), 3);
    engine.shutdown();
}
