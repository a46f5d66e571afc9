//! Tests of both MariaDB designs: small scripts, and the expected pages.

use std::collections::HashMap;

use tidewire_load::operation::{Answer, Item, Operation, PAGE_POSTS, Post, User};
use tidewire_load::target::mariadb::{MariaDbPull, MariaDbPush, Options};
use tidewire_load::target::{Client, Failure, Target};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::harnessed;
use Step::{Active, Delete, Edges, Follow, Own, Page, Publish, Unfollow};

/// More connections than the tests open, except in the test of the limit.
const CONNECTIONS_MAX: u32 = 12;

const OPTIONS: Options = Options {
    buffer_pool_bytes: 64 << 20,
    redo_log_bytes: 16 << 20,
    connections_max: CONNECTIONS_MAX,
    backfill_posts_max: 30,
};

/// A step of a script. Users and posts are numbered from 0 in each script.
enum Step {
    Edges(Vec<(User, User)>),
    Active(Vec<User>),
    /// The author, the number and the time of a post.
    Publish(User, u64, i64),
    Delete(User, u64),
    Follow(User, User),
    Unfollow(User, User),
    /// Expects these posts on the page of a reader.
    Page(User, Vec<u64>),
    /// Expects these posts on the own page of an author.
    Own(User, Vec<u64>),
}

/// Returns publishes of one author. The number of a post is also its time.
fn publish(author: User, numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Step> {
    numbers.into_iter().map(move |number| Publish(author, number, number as i64))
}

fn down(from: u64, to: u64) -> Vec<u64> {
    (to..=from).rev().collect()
}

fn script(parts: impl IntoIterator<Item = Vec<Step>>) -> Vec<Step> {
    parts.into_iter().flatten().collect()
}

/// Returns the scripts that both designs must pass.
fn scripts() -> impl Iterator<Item = (&'static str, Vec<Step>)> {
    scripts_that_only_publish().into_iter().chain(scripts_that_change())
}

fn scripts_that_only_publish() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        ("a feed of nobody is empty", vec![Active(vec![1]), Page(1, vec![]), Own(1, vec![])]),
        (
            "a page is the newest of all who are followed, and of no other",
            script([
                vec![Edges(vec![(1, 2), (1, 3), (4, 5)]), Active(vec![1, 4])],
                vec![Publish(2, 1, 10), Publish(3, 2, 30), Publish(5, 3, 40), Publish(2, 4, 20)],
                vec![Page(1, vec![2, 4, 1]), Page(4, vec![3]), Own(2, vec![4, 1])],
            ]),
        ),
        (
            "posts of the same time are ordered by number",
            script([
                vec![Edges(vec![(1, 2), (1, 3)]), Active(vec![1])],
                vec![Publish(2, 1, 7), Publish(3, 2, 7), Publish(2, 3, 7), Page(1, vec![3, 2, 1])],
            ]),
        ),
        (
            "many authors with posts of the same time fill a page with the highest numbers",
            script([
                vec![Edges((1..=30).map(|source| (0, source)).collect()), Active(vec![0])],
                (1..=30).map(|source| Publish(source, u64::from(source), 7)).collect(),
                vec![Page(0, down(30, 11)), Delete(30, 30), Page(0, down(29, 10))],
            ]),
        ),
        (
            "a page of many authors has several posts of those who publish much",
            script([
                vec![Edges((1..=40).map(|source| (0, source)).collect()), Active(vec![0])],
                publish(1, 1..=5).collect(),
                (2..=40).map(|source| Publish(source, u64::from(source) + 10, i64::from(source) + 10)).collect(),
                publish(1, 60..=72).collect(),
                vec![Page(0, [down(72, 60), down(50, 44)].concat())],
            ]),
        ),
    ]
}

fn scripts_that_change() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "deleted posts are gone, and older ones fill the page",
            script([
                vec![Edges(vec![(1, 2)]), Active(vec![1])],
                publish(2, 1..=25).collect(),
                vec![Page(1, down(25, 6)), Delete(2, 25), Delete(2, 10), Own(2, [down(24, 11), down(9, 4)].concat())],
                vec![Page(1, [down(24, 11), down(9, 4)].concat())],
                (11..=24).map(|number| Delete(2, number)).collect(),
                vec![Page(1, down(9, 1))],
                (1..=9).map(|number| Delete(2, number)).collect(),
                vec![Page(1, vec![]), Publish(2, 26, 26), Page(1, vec![26])],
            ]),
        ),
        (
            "only the author deletes a post",
            script([
                vec![Edges(vec![(1, 2)]), Active(vec![1])],
                vec![Publish(2, 1, 1), Delete(3, 1), Page(1, vec![1])],
            ]),
        ),
        (
            "a new follower has the earlier posts, and a former one has none",
            script([
                vec![Active(vec![1]), Edges(vec![(1, 3)])],
                publish(2, 1..=22).collect(),
                vec![Publish(3, 30, 0), Page(1, vec![30]), Follow(1, 2), Page(1, down(22, 3))],
                vec![Follow(1, 2), Publish(2, 31, 31), Page(1, [vec![31], down(22, 4)].concat())],
                vec![Unfollow(1, 2), Page(1, vec![30]), Publish(2, 32, 32), Page(1, vec![30])],
                vec![Unfollow(1, 2), Follow(1, 2), Page(1, [vec![32, 31], down(22, 5)].concat())],
            ]),
        ),
        (
            "own posts are in the feed, whomever one follows",
            script([
                vec![Edges(vec![(1, 2)]), Active(vec![1, 2])],
                vec![Publish(1, 1, 1), Publish(2, 2, 2), Page(1, vec![2, 1]), Page(2, vec![2])],
                vec![Follow(1, 1), Publish(1, 3, 3), Page(1, vec![3, 2, 1])],
                vec![Unfollow(1, 1), Publish(1, 4, 4), Page(1, vec![4, 3, 2, 1])],
                vec![Unfollow(1, 2), Page(1, vec![4, 3, 1])],
            ]),
        ),
    ]
}

/// Runs a script. Its users and posts are offset to numbers that no other script uses.
async fn play(target: &dyn Target, client: &mut dyn Client, nth: u32, (sentence, steps): (&str, Vec<Step>)) {
    let user = |user: User| nth * 1_000 + user;
    let id = |number: u64| u64::from(nth) * 1_000_000 + number;
    let mut published = HashMap::new();
    for step in steps {
        let operation = match step {
            Edges(edges) => {
                let edges: Vec<_> = edges.into_iter().map(|(one, other)| (user(one), user(other))).collect();
                target.load_follows(&edges).await.unwrap();
                continue;
            }
            Active(readers) => {
                target.activate(&readers.into_iter().map(user).collect::<Vec<_>>()).await.unwrap();
                continue;
            }
            Page(reader, ref posts) | Own(reader, ref posts) => {
                let operation = match step {
                    Page(..) => Operation::Page { reader: user(reader) },
                    _ => Operation::OwnPage { author: user(reader) },
                };
                let expected: Vec<Item> = posts.iter().map(|&number| item(&published[&id(number)])).collect();
                let found = client.read(&operation).await.unwrap();
                assert_eq!(ids(&found), ids(&expected), "{sentence}: {operation:?}");
                assert_eq!(found, expected, "{sentence}: {operation:?}");
                let answer = Answer { entries: expected.len(), deliveries: None };
                assert_eq!(client.perform(&operation).await.unwrap(), answer, "{sentence}: {operation:?}");
                continue;
            }
            Publish(author, number, at) => {
                let post = post(id(number), user(author), at);
                published.insert(post.id, post.clone());
                Operation::Publish(post)
            }
            Delete(author, number) => Operation::Delete { id: id(number), author: user(author) },
            Follow(follower, source) => Operation::Follow { follower: user(follower), source: user(source) },
            Unfollow(follower, source) => Operation::Unfollow { follower: user(follower), source: user(source) },
        };
        let answer = client.perform(&operation).await;
        assert!(answer.is_ok_and(|answer| answer.entries == 0), "{sentence}: {operation:?}");
    }
}

fn post(id: u64, author: User, published_at_us: i64) -> Post {
    Post { id, author, published_at_us, body: format!(r#"{{"text":"post {id}: ‘tide’ 🌊 \\ \u0041 '?"}}"#) }
}

fn ids(items: &[Item]) -> Vec<u64> {
    items.iter().map(|item| item.id).collect()
}

fn item(post: &Post) -> Item {
    Item { id: post.id, author: post.author, body: post.body.clone() }
}

/// Runs a test on one thread, because clients cannot be moved to another.
fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// Eight clients publish while two others follow and read. At the end all feeds must be complete.
async fn check_concurrent_publishes(target: &dyn Target, base: u32) {
    let (readers, authors) = (base..base + 50, base + 100..base + 108);
    let edges: Vec<_> =
        readers.clone().flat_map(|reader| authors.clone().map(move |author| (reader, author))).collect();
    target.load_follows(&edges).await.unwrap();
    target.activate(&readers.clone().collect::<Vec<_>>()).await.unwrap();

    let mut tasks = Vec::new();
    for author in authors.clone() {
        let mut client = target.open().await.unwrap();
        tasks.push(tokio::task::spawn_local(async move {
            for nth in 0..20 {
                let id = u64::from(base) * 1_000 + nth * 8 + u64::from(author % 8);
                client.perform(&Operation::Publish(post(id, author, nth as i64))).await.unwrap();
            }
        }));
    }
    for follower in readers.clone().take(2) {
        let mut client = target.open().await.unwrap();
        let source = authors.start + 7;
        tasks.push(tokio::task::spawn_local(async move {
            for _ in 0..20 {
                client.perform(&Operation::Unfollow { follower, source: source + 1_000 }).await.unwrap();
                client.perform(&Operation::Follow { follower, source: source + 1_000 }).await.unwrap();
                client.perform(&Operation::Page { reader: follower }).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }

    let mut client = target.open().await.unwrap();
    let newest: Vec<u64> = (0..160).rev().take(PAGE_POSTS).map(|number| u64::from(base) * 1_000 + number).collect();
    for reader in readers {
        let page = client.read(&Operation::Page { reader }).await.unwrap();
        assert_eq!(ids(&page), newest, "reader {reader}");
    }
}

async fn check_that_one_client_too_many_is_refused(target: &dyn Target) {
    let mut clients = Vec::new();
    // The server admits one administrator above the limit, and these users are administrators.
    for _ in 0..CONNECTIONS_MAX + 2 {
        clients.push(target.open().await);
    }
    let refused = clients.iter().filter(|client| matches!(client, Err(Failure::Refused(_)))).count();
    assert!(refused > 0 && clients.iter().filter(|client| client.is_err()).count() == refused);
}

#[test]
#[ignore = "needs mariadbd"]
fn feeds_written_on_publish_are_correct() {
    harnessed();
    on_one_thread(async {
        let target = MariaDbPush::start(&OPTIONS).await.unwrap();
        let mut client = target.open().await.unwrap();
        let mut played = 0;
        for script in scripts() {
            played += 1;
            play(&target, client.as_mut(), played, script).await;
        }
        let inactive =
            vec![Edges(vec![(1, 2), (3, 2)]), Active(vec![3]), Publish(2, 1, 1), Page(1, vec![]), Page(3, vec![1])];
        play(&target, client.as_mut(), 100, ("inactive readers are passed over", inactive)).await;

        let source = 100_002;
        let delivered = client.perform(&Operation::Publish(post(9, source, 9))).await.unwrap();
        assert_eq!(delivered, Answer { entries: 0, deliveries: Some(1) }, "the active one of two followers got it");
        backfills_at_most_what_was_said(&target, client.as_mut()).await;
        drop(client);
        check_concurrent_publishes(&target, 200_000).await;
        check_that_one_client_too_many_is_refused(&target).await;
    });
}

/// Deletes the posts that a follow added, to show that it did not add the older ones.
async fn backfills_at_most_what_was_said(target: &dyn Target, client: &mut dyn Client) {
    let most = u64::from(OPTIONS.backfill_posts_max);
    let steps = script([
        vec![Active(vec![1])],
        publish(2, 1..=most + 5).collect(),
        vec![Follow(1, 2)],
        (8..=most + 5).map(|number| Delete(2, number)).collect(),
        vec![Page(1, vec![7, 6])],
    ]);
    play(target, client, 101, ("a follow brings no more posts than was said", steps)).await;
}

#[test]
#[ignore = "needs mariadbd"]
fn feeds_merged_on_read_are_correct() {
    harnessed();
    on_one_thread(async {
        let target = MariaDbPull::start(&OPTIONS).await.unwrap();
        let mut client = target.open().await.unwrap();
        let mut played = 0;
        for script in scripts() {
            played += 1;
            play(&target, client.as_mut(), played, script).await;
        }
        let inactive = vec![Edges(vec![(1, 2)]), Publish(2, 1, 1), Page(1, vec![1])];
        play(&target, client.as_mut(), 100, ("nobody needs to be active", inactive)).await;

        let delivered = client.perform(&Operation::Publish(post(9, 100_002, 9))).await.unwrap();
        assert_eq!(delivered, Answer::default(), "who gets it is not known before it is read");
        drop(client);
        check_concurrent_publishes(&target, 200_000).await;
        check_that_one_client_too_many_is_refused(&target).await;
        let settings = target.settings();
        assert!(settings[0].starts_with("MariaDB 1") && settings.iter().any(|line| line.contains("READ-COMMITTED")));
    });
}
