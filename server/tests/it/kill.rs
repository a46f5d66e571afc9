//! The real program, killed under load, and started twice on one directory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use testkit::{PageCount, cases, eventually, seed};

use crate::program::{EndsOnFailure, Program, serve};

const CLIENTS: u64 = 4;

/// Fewer answered writes before a kill prove nothing.
const WRITES_MIN: u64 = 20;

#[test]
fn acknowledged_writes_survive_kills_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--snapshot-journal-bytes", "20000", "--outbox-posts", "10"];
    // The next id of each client, and how many of the last ones were not acknowledged.
    let next: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let mut acknowledged = vec![0; CLIENTS as usize];
    let written = || next.iter().map(|next| next.load(Ordering::Relaxed)).sum::<u64>();
    let mut random = fastrand::Rng::with_seed(seed());
    for _ in 0..cases(2) {
        let program = Program::start(directory.path(), &flags);
        check(&program, &acknowledged, &next);
        let until = written() + random.u64(WRITES_MIN..10 * WRITES_MIN);
        thread::scope(|scope| {
            let _ends = EndsOnFailure(&program);
            let publish = |client: u64| {
                let (program, next) = (&program, &next[client as usize]);
                move || publish_until_refused(program, client, next)
            };
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(publish(client))).collect();
            eventually("posts are acknowledged", || written() >= until);
            program.signal("KILL");
            for (client, ended) in clients.into_iter().enumerate() {
                acknowledged[client] = acknowledged[client].max(ended.join().unwrap());
            }
        });
        program.kill();
    }
    let program = Program::start(directory.path(), &flags);
    check(&program, &acknowledged, &next);
    program.kill();
}

/// Publishes one post after the other until the server is gone. Returns how many of all were acknowledged, counted from 0.
pub fn publish_until_refused(program: &Program, client: u64, next: &AtomicU64) -> u64 {
    loop {
        let nth = next.load(Ordering::Relaxed);
        let post = json!({"id": (client * 1_000_000 + nth).to_string(), "author": format!("a{client}"), "body": nth});
        let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json");
        match sent.send(post.to_string()) {
            // Of the last one of a life nobody knows: publishing it again is fine either way.
            Ok(answer) => assert!([200, 201].contains(&answer.status().as_u16()), "{answer:?}"),
            Err(_) => return nth,
        }
        next.store(nth + 1, Ordering::Relaxed);
    }
}

/// All that was acknowledged is there: of each client the first so many, and nothing that it did not send.
pub fn check(program: &Program, acknowledged: &[u64], next: &[AtomicU64]) {
    for (client, acknowledged) in acknowledged.iter().enumerate() {
        let (mut shown, mut cursor) = (Vec::new(), String::new());
        let mut pages = PageCount::default();
        loop {
            pages.count();
            let (status, page) = program.get(&format!("/v1/users/a{client}/posts?limit=100{cursor}")).unwrap();
            assert_eq!(status, 200, "{page}");
            shown.extend(page["items"].as_array().unwrap().iter().map(|item| item["post"]["body"].as_u64().unwrap()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&before={next}");
        }
        shown.reverse();
        let most = next[client].load(Ordering::Relaxed) + 1;
        let complete = shown.iter().copied().eq(0..shown.len() as u64);
        assert!(complete, "client {client}: each post once, in order, none missing: {shown:?}");
        assert!(shown.len() as u64 >= *acknowledged && shown.len() as u64 <= most, "client {client}: {}", shown.len());
    }
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let second = testkit::output(&mut serve(directory.path(), &[]));
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    for expected in ["in use", &program.process().to_string(), "--data-dir", directory.path().to_str().unwrap()] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    program.kill();
}

#[test]
fn every_start_names_an_unusable_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    // Recovery fails while the server is still starting, sooner or later than that learns of it.
    for nth in 0..20 {
        let output = testkit::output(&mut serve(&file, &[]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "start {nth}: {said}");
        assert!(said.contains("cannot use the data directory") && said.contains(file.to_str().unwrap()), "{said}");
    }
}
