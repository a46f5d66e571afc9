//! Every design answers as the naive model does: random histories on the real servers.

use tidewire_load::check::{USERS, random_history};
use tidewire_load::target::kind::{Kind, Settings};

use crate::servers::{absent, harnessed};

/// Histories of each design, each of users of its own on the same server.
const HISTORIES: u64 = 3;

fn check(kind: Kind) {
    harnessed();
    if kind.server().is_some_and(absent) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = kind.start(&Settings { inbox_posts: 300, celebrity_followers: None }).await.unwrap();
        assert_eq!(target.name(), kind.name());
        assert!(!target.settings().is_empty());
        for seed in 0..HISTORIES {
            let pages = random_history(&*target, seed as u32 * USERS, seed).await;
            assert!(pages.unwrap() > 100);
        }
    });
}

#[test]
fn tidewire_over_http_answers_as_the_model() {
    check(Kind::TidewireHttp);
}

#[test]
fn tidewire_in_process_answers_as_the_model() {
    check(Kind::TidewireInProcess);
}

#[test]
fn redis_lists_answer_as_the_model() {
    check(Kind::RedisList);
}

#[test]
fn redis_sorted_sets_answer_as_the_model() {
    check(Kind::RedisZset);
}

#[test]
fn redis_sorted_sets_in_one_piece_answer_as_the_model() {
    check(Kind::RedisZsetCompact);
}

#[test]
fn mariadb_with_timelines_answers_as_the_model() {
    check(Kind::MariadbPush);
}

#[test]
fn mariadb_without_timelines_answers_as_the_model() {
    check(Kind::MariadbPull);
}
