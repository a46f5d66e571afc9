//! Tests of the Redis designs: small scripts of operations, and the expected pages.

use std::fmt::Write as _;

use tidewire_load::mint::Ids;
use tidewire_load::operation::{Answer, Operation, PAGE_POSTS, Post, User};
use tidewire_load::target::redis::{Design, Encoding, Redis};
use tidewire_load::target::{Client, Target};
use tokio::runtime::Builder;

use crate::harnessed;

const MICROSECONDS: u64 = 1_760_000_000_000_000;

/// Returns the id of a post. Posts are named by a small number, which is also their time.
fn id(number: u64) -> u64 {
    (MICROSECONDS + number) << 12
}

fn post(author: User, number: u64) -> Post {
    let published_at_us = i64::try_from(MICROSECONDS + number).unwrap();
    Post { id: id(number), author, published_at_us, body: format!(r#"{{"text": "number {number} \u00fc"}}"#) }
}

struct Running {
    redis: Redis,
    client: Box<dyn Client>,
}

impl Running {
    async fn perform(&mut self, operation: Operation) -> Answer {
        self.client.perform(&operation).await.unwrap()
    }

    async fn publish(&mut self, author: User, number: u64) -> u64 {
        self.perform(Operation::Publish(post(author, number))).await.deliveries.unwrap()
    }

    async fn publish_all(&mut self, author: User, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.publish(author, number).await;
        }
    }

    async fn delete(&mut self, author: User, number: u64) {
        self.perform(Operation::Delete { id: id(number), author }).await;
    }

    async fn follow(&mut self, follower: User, source: User) {
        self.perform(Operation::Follow { follower, source }).await;
    }

    async fn unfollow(&mut self, follower: User, source: User) {
        self.perform(Operation::Unfollow { follower, source }).await;
    }

    async fn activate(&self, readers: &[User]) {
        self.redis.activate(readers).await.unwrap();
    }

    /// Returns a page as `author.number` of its posts.
    async fn shown(&mut self, operation: Operation) -> String {
        let items = self.client.read(&operation).await.unwrap();
        assert_eq!(self.perform(operation).await, Answer { entries: items.len(), deliveries: None });
        let mut shown = String::new();
        for item in items {
            let number = (item.id >> 12) - MICROSECONDS;
            assert_eq!(item.body, post(item.author, number).body);
            write!(shown, "{}.{number} ", item.author).unwrap();
        }
        shown.trim_end().to_owned()
    }

    async fn page(&mut self, reader: User) -> String {
        self.shown(Operation::Page { reader }).await
    }

    async fn own_page(&mut self, author: User) -> String {
        self.shown(Operation::OwnPage { author }).await
    }
}

/// Runs a script on each design.
fn check(posts_max: usize, script: &impl AsyncFn(&mut Running)) {
    harnessed();
    for design in [Design::SortedSets(Encoding::SkipList), Design::SortedSets(Encoding::Listpack), Design::Lists] {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let redis = Redis::start(design, posts_max, Ids::Minted).await.unwrap();
            let client = redis.open().await.unwrap();
            script(&mut Running { redis, client }).await;
        });
    }
}

/// Returns `author.number` of many posts of one author.
fn posts(author: User, numbers: impl IntoIterator<Item = u64>) -> String {
    let shown: Vec<String> = numbers.into_iter().map(|number| format!("{author}.{number}")).collect();
    shown.join(" ")
}

#[test]
#[ignore = "needs redis-server"]
fn a_post_is_on_the_pages_of_active_followers_and_of_its_author() {
    check(300, &async |running| {
        running.redis.load_follows(&[(1, 9), (2, 9), (3, 9), (1, 8), (9, 1)]).await.unwrap();
        running.activate(&[1, 2, 9]).await;
        assert_eq!(running.publish(9, 1).await, 2);
        assert_eq!(running.publish(8, 2).await, 1);
        assert_eq!(running.page(1).await, "8.2 9.1");
        assert_eq!(running.page(2).await, "9.1");
        assert_eq!(running.page(9).await, "9.1");
        assert_eq!(running.own_page(8).await, "8.2");
        assert_eq!(running.own_page(1).await, "");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn inactive_readers_receive_no_pushes_and_get_their_feed_on_return() {
    check(300, &async |running| {
        running.redis.load_follows(&[(1, 9), (2, 9), (1, 8)]).await.unwrap();
        assert_eq!(running.publish(9, 1).await, 0);
        assert_eq!(running.publish(8, 2).await, 0);
        running.activate(&[1]).await;
        assert_eq!(running.publish(9, 3).await, 1);
        assert_eq!(running.page(1).await, "9.3 8.2 9.1");
        assert_eq!(running.page(2).await, "9.3 9.1");
        assert_eq!(running.page(8).await, "8.2");
        assert_eq!(running.publish(9, 4).await, 2);
        assert_eq!(running.page(2).await, "9.4 9.3 9.1");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn a_page_is_filled_with_older_posts_where_newer_ones_are_deleted() {
    check(300, &async |running| {
        running.activate(&[1]).await;
        running.follow(1, 9).await;
        running.publish_all(9, 1..=70).await;
        for number in (30..=70).filter(|number| number % 10 != 0) {
            running.delete(9, number).await;
        }
        let left = [70, 60, 50, 40, 30].into_iter().chain((15..=29).rev());
        assert_eq!(running.page(1).await, posts(9, left.clone()));
        assert_eq!(running.own_page(9).await, posts(9, left));
        for number in 1..=28 {
            running.delete(9, number).await;
        }
        assert_eq!(running.page(1).await, "9.70 9.60 9.50 9.40 9.30 9.29");
        for number in [29, 30, 40, 50, 60, 70] {
            running.delete(9, number).await;
        }
        assert_eq!(running.page(1).await, "");
        assert_eq!(running.publish(9, 71).await, 1);
        assert_eq!(running.page(1).await, "9.71");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn earlier_posts_of_a_new_source_are_sorted_into_the_feed() {
    check(300, &async |running| {
        running.activate(&[1, 2, 3]).await;
        running.follow(1, 9).await;
        running.publish_all(8, [1, 2, 5, 9]).await;
        running.publish_all(9, [3, 4, 6]).await;
        running.follow(1, 8).await;
        assert_eq!(running.page(1).await, "8.9 9.6 8.5 9.4 9.3 8.2 8.1");
        running.follow(1, 8).await;
        running.publish(8, 10).await;
        assert_eq!(running.page(1).await, "8.10 8.9 9.6 8.5 9.4 9.3 8.2 8.1");
        running.follow(2, 8).await;
        running.follow(2, 9).await;
        assert_eq!(running.page(2).await, "8.10 8.9 9.6 8.5 9.4 9.3 8.2 8.1");
        running.delete(8, 9).await;
        running.follow(3, 8).await;
        assert_eq!(running.page(3).await, "8.10 8.5 8.2 8.1");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn an_unfollow_removes_the_posts_of_its_source_and_no_others() {
    check(300, &async |running| {
        running.redis.load_follows(&[(1, 9), (1, 8)]).await.unwrap();
        running.activate(&[1]).await;
        running.publish_all(9, [1, 3]).await;
        running.publish_all(8, [2, 4]).await;
        running.publish(1, 5).await;
        running.unfollow(1, 9).await;
        assert_eq!(running.page(1).await, "1.5 8.4 8.2");
        assert_eq!(running.publish(9, 6).await, 0);
        running.unfollow(1, 8).await;
        running.unfollow(1, 1).await;
        running.unfollow(1, 7).await;
        assert_eq!(running.page(1).await, "1.5");
        running.delete(1, 5).await;
        assert_eq!(running.page(1).await, "");
        running.follow(1, 9).await;
        assert_eq!(running.page(1).await, "9.6 9.3 9.1");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn an_inbox_that_an_unfollow_leaves_empty_is_still_pushed_to() {
    check(300, &async |running| {
        running.redis.load_follows(&[(1, 9), (1, 8)]).await.unwrap();
        running.activate(&[1]).await;
        running.publish_all(9, 1..=30).await;
        running.unfollow(1, 9).await;
        assert_eq!(running.page(1).await, "");
        assert_eq!(running.publish(8, 31).await, 1);
        assert_eq!(running.page(1).await, "8.31");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn an_inbox_keeps_the_newest_posts_up_to_its_limit() {
    check(5, &async |running| {
        running.redis.load_follows(&[(1, 9)]).await.unwrap();
        running.activate(&[1]).await;
        running.publish_all(8, [1, 2, 12, 14, 16]).await;
        running.publish_all(9, [10, 11, 13, 15, 17, 18]).await;
        assert_eq!(running.page(1).await, "9.18 9.17 9.15 9.13 9.11");
        running.follow(1, 8).await;
        assert_eq!(running.page(1).await, "9.18 9.17 8.16 9.15 8.14");
        running.unfollow(1, 9).await;
        assert_eq!(running.page(1).await, "8.16 8.14");
        assert_eq!(running.own_page(9).await, "9.18 9.17 9.15 9.13 9.11 9.10");
        assert_eq!(running.page(2).await, "");
        running.follow(2, 9).await;
        assert_eq!(running.page(2).await, "9.18 9.17 9.15 9.13 9.11");
        running.publish(2, 19).await;
        assert_eq!(running.page(2).await, "2.19 9.18 9.17 9.15 9.13");
    });
}

#[test]
#[ignore = "needs redis-server"]
fn a_large_fan_out_reaches_all_followers_and_pages_have_the_limited_length() {
    check(300, &async |running| {
        let readers: Vec<User> = (100..1_300).collect();
        let edges: Vec<(User, User)> = readers.iter().map(|reader| (*reader, 9)).collect();
        running.redis.load_follows(&edges).await.unwrap();
        running.activate(&readers).await;
        for number in 1..=30 {
            assert_eq!(running.publish(9, number).await, 1_200);
        }
        let newest = posts(9, (1..=30).rev().take(PAGE_POSTS));
        for reader in [100, 700, 1_299] {
            assert_eq!(running.page(reader).await, newest);
        }
    });
}

#[test]
#[ignore = "needs redis-server"]
fn concurrent_clients_get_their_own_answers() {
    check(300, &async |running| {
        let sources = 10..20;
        running.activate(&(20..30).collect::<Vec<User>>()).await;
        let tasks = tokio::task::LocalSet::new();
        for source in sources.clone() {
            let mut client = running.redis.open().await.unwrap();
            tasks.spawn_local(async move {
                for number in 0..40 {
                    let edge = Operation::Follow { follower: source + 10, source };
                    client.perform(&edge).await.unwrap();
                    let number = u64::from(source) * 100 + number;
                    assert_eq!(
                        client.perform(&Operation::Publish(post(source, number))).await.unwrap().deliveries,
                        Some(1)
                    );
                    let page = client.read(&Operation::Page { reader: source + 10 }).await.unwrap();
                    assert_eq!(page[0].id, id(number));
                }
            });
        }
        tasks.await;
        for source in sources {
            let first = u64::from(source) * 100;
            assert_eq!(running.page(source + 10).await, posts(source, (first + 20..first + 40).rev()));
        }
    });
}

#[test]
#[ignore = "needs redis-server"]
fn settings_include_the_version_and_values_that_differ_from_defaults() {
    check(300, &async |running| {
        let settings = running.redis.settings();
        assert!(settings[0].starts_with("redis-server ") && settings[0].contains(char::is_numeric), "{settings:?}");
        for named in [
            "appendonly yes",
            "save \"\"",
            "auto-aof-rewrite-percentage 100",
            "auto-aof-rewrite-min-size 1gb",
            "set-max-intset-entries",
        ] {
            assert!(settings.iter().any(|setting| setting.starts_with(named)), "{named} is not in {settings:?}");
        }
        assert!(running.redis.process().is_some());
    });
}

#[test]
#[ignore = "needs redis-server"]
fn requests_to_an_ended_server_fail() {
    check(300, &async |running| {
        let process = rustix::process::Pid::from_raw(i32::try_from(running.redis.process().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        let failure = running.client.perform(&Operation::OwnPage { author: 1 }).await.unwrap_err();
        assert!(failure.to_string().starts_with("ids of a page: "), "{failure}");
    });
}
