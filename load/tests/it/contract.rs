//! Tests that every design answers like the naive model: random histories on the real servers.

use rustix::process::{Pid, Signal, kill_process};
use testkit::eventually;
use tidewire_load::check::{History, USERS};
use tidewire_load::mint::Ids;
use tidewire_load::operation::Operation;
use tidewire_load::target::kind::{Kind, Settings};
use tidewire_load::target::{Failure, Target};

use crate::harnessed;

fn check(kind: Kind) {
    harnessed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // The design is configured for random ids, so that it does not rely on their order.
        let settings = Settings { ids: Ids::Random, ..Settings::default() };
        let target = kind.start(&settings).await.unwrap();
        assert_eq!(target.name(), kind.name());
        assert!(!target.settings().is_empty());
        // Each history has separate users on the same server.
        for (nth, ids) in (0..).zip(Ids::ALL) {
            let inbox_posts = settings.inbox_posts;
            let history = History { first_user: nth * USERS, seed: nth.into(), ids, inbox_posts };
            assert!(history.check(&*target).await.unwrap() > 100);
        }
        check_pages_of_several_readers(kind, &*target).await;
    });
}

/// Checks that a design that reads the pages of several readers at once counts as many posts as on their single pages.
async fn check_pages_of_several_readers(kind: Kind, target: &dyn Target) {
    let mut client = target.open().await.unwrap();
    let mut entries = 0;
    for reader in 0..USERS {
        entries += client.perform(&Operation::Page { reader }).await.unwrap().entries;
    }
    for (pipelined, is_supported) in [(false, kind.reads_pages_together()), (true, kind.pipelines())] {
        let pages = Operation::Pages { readers: (0..USERS).collect(), pipelined };
        let counted = client.perform(&pages).await.ok().map(|answer| answer.entries);
        assert_eq!(counted, is_supported.then_some(entries), "pipelined: {pipelined}");
    }
}

#[test]
fn tidewire_over_http_matches_the_model() {
    check(Kind::TidewireHttp);
}

#[test]
fn tidewire_over_the_redis_protocol_matches_the_model() {
    check(Kind::TidewireResp);
}

#[test]
fn tidewire_in_process_matches_the_model() {
    check(Kind::TidewireInProcess);
}

#[test]
#[ignore = "needs redis-server"]
fn redis_lists_match_the_model() {
    check(Kind::RedisList);
}

#[test]
#[ignore = "needs redis-server"]
fn redis_sorted_sets_match_the_model() {
    check(Kind::RedisZset);
}

#[test]
#[ignore = "needs redis-server"]
fn compact_redis_sorted_sets_match_the_model() {
    check(Kind::RedisZsetCompact);
}

#[test]
#[ignore = "needs mariadbd"]
fn mariadb_with_timelines_matches_the_model() {
    check(Kind::MariadbPush);
}

#[test]
#[ignore = "needs mariadbd"]
fn mariadb_without_timelines_matches_the_model() {
    check(Kind::MariadbPull);
}

/// Stops a server, and waits until all its threads are stopped: `kill` returns before the signal has taken effect.
fn stop(server: Pid) {
    kill_process(server, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", server.as_raw_nonzero());
    // The state follows the program name, which can contain any character.
    let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
    let all_are = || {
        let mut stats = std::fs::read_dir(&tasks)
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.all(is_stopped)
    };
    eventually("the server has stopped", all_are);
}

/// The paused clock of the runtime advances when all tasks wait, so the timeout of half a minute takes no real time.
fn check_that_a_stopped_server_is_told(kind: Kind, asked: &str) {
    harnessed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let target = kind.start(&Settings::default()).await.unwrap();
        let mut client = target.open().await.unwrap();
        let page = Operation::OwnPage { author: 1 };
        client.perform(&page).await.unwrap();
        let server = Pid::from_raw(i32::try_from(target.process().unwrap()).unwrap()).unwrap();
        stop(server);
        tokio::time::pause();
        let failure = client.perform(&page).await.unwrap_err();
        assert!(matches!(failure, Failure::Silent(_)), "{failure}");
        assert_eq!(failure.to_string(), format!("{asked}: no answer within 30s"));
        tokio::time::resume();
        // Otherwise clients would wait for the server when they close their connections.
        kill_process(server, Signal::KILL).unwrap();
    });
}

#[test]
fn a_stopped_tidewire_server_is_reported() {
    check_that_a_stopped_server_is_told(Kind::TidewireHttp, "GET /v1/users/u1/posts?limit=20 HTTP/1.1");
}

#[test]
fn a_stopped_tidewire_server_is_reported_over_the_redis_protocol() {
    check_that_a_stopped_server_is_told(Kind::TidewireResp, "own page");
}

#[test]
#[ignore = "needs redis-server"]
fn a_stopped_redis_is_reported() {
    check_that_a_stopped_server_is_told(Kind::RedisList, "ids of a page");
}

#[test]
#[ignore = "needs mariadbd"]
fn a_stopped_mariadb_is_reported() {
    check_that_a_stopped_server_is_told(Kind::MariadbPull, "own page");
}
