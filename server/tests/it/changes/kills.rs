//! The real program and its consumer, killed in a loop: every acknowledged event is seen at least once and in order, or the consumer is told
//! that it is gone.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use testkit::{OnDrop, cases, eventually, seed};

use fastrand::Rng;
use serde_json::{Value, json};

use super::consumer::Consumer;
use crate::program::{EndsOnFailure, Program};
use crate::server::agent;

const CLIENTS: usize = 4;

/// Maximum number of messages until the consumer is killed.
const LIFE_MAX: u64 = 1_000;

/// Minimum and maximum number of writes until the server is killed.
const WRITES: std::ops::Range<u64> = 100..500;

/// What the `nth` write of a client is: a post, the deletion of the post before, or a follow.
fn write(program: &Program, client: u64, nth: u64) -> Result<u16, ureq::Error> {
    let (agent, url) = (&program.agent, &program.url);
    let answer = match nth % 4 {
        2 => agent.delete(format!("{url}/v1/posts/{}", client * 1_000_000 + nth - 1)).call(),
        3 => {
            let edge = format!("{url}/v1/users/a{client}/following/s{nth}");
            agent.put(edge).content_type("application/json").send("{}")
        }
        _ => {
            let id = (client * 1_000_000 + nth).to_string();
            let post = json!({"id": id, "author": format!("a{client}"), "body": nth}).to_string();
            agent.post(format!("{url}/v1/posts")).content_type("application/json").send(post)
        }
    };
    Ok(answer?.status().as_u16())
}

/// Writes until the server is gone. Returns how many writes of all were acknowledged, counted from 0.
fn write_until_refused(program: &Program, client: u64, next: &AtomicU64) -> u64 {
    loop {
        let nth = next.load(Ordering::Relaxed);
        match write(program, client, nth) {
            // Of the last one of a life nobody knows: doing it again is fine either way, and has no second event.
            Ok(status) => assert!([200, 201, 204, 404].contains(&status), "{client} {nth}: {status}"),
            Err(_) => return nth,
        }
        next.store(nth + 1, Ordering::Relaxed);
    }
}

/// Returns the client of a write and its number, from its event.
fn writer(event: &Value) -> (usize, u64) {
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let after_letter =
        |value: &Value, letter: char| value.as_str().and_then(|text| text.strip_prefix(letter)?.parse().ok());
    let of_post = |id: u64| ((id / 1_000_000) as usize, id % 1_000_000);
    match event["type"].as_str().unwrap() {
        "published" => of_post(number(&event["post"]["id"])),
        "deleted" => of_post(number(&event["id"]) + 1),
        "followed" => {
            let edge = &event["follows"][0];
            let client = after_letter(&edge["follower"], 'a').unwrap_or(u64::MAX);
            (client as usize, after_letter(&edge["source"], 's').unwrap_or(u64::MAX))
        }
        other => panic!("{other} was not asked for"),
    }
}

/// A consumer that writes down its place after some events. When it is killed, it loses what it has not written down.
struct Killed<'a> {
    /// The place that was written down.
    after: u64,
    /// The number of the next write of each client, from all events that were seen.
    next: &'a [AtomicU64; CLIENTS],
    /// True for clients of whom writes may be left out, since the server has said that events are gone.
    may_skip: [bool; CLIENTS],
    random: Rng,
    /// Events that were seen more than once, and how often events were gone.
    again: u64,
    gone: &'a AtomicU64,
}

impl Killed<'_> {
    fn take(&mut self, event: &Value) {
        let (client, nth) = writer(event);
        if client >= CLIENTS {
            // A post by the user who is erased.
            return;
        }
        let next = self.next[client].load(Ordering::Relaxed);
        let may_skip = std::mem::replace(&mut self.may_skip[client], false);
        assert!(nth <= next || may_skip, "client {client}: write {nth} came, and not {next}: {event}");
        self.again += u64::from(nth < next);
        self.next[client].fetch_max(nth + 1, Ordering::Relaxed);
    }

    /// Reads a stream until it ends, breaks off, or the consumer is killed. Returns false if there is none.
    fn live(&mut self, address: SocketAddr) -> bool {
        let path = format!("/v1/changes?after={}&types=published,deleted,followed", self.after);
        let Ok(mut stream) = Consumer::try_open(address, &path, None) else { return false };
        if stream.head.starts_with("http/1.1 410") {
            self.skip(address, &path);
            return true;
        }
        if !stream.head.starts_with("http/1.1 200") {
            // The server does not have its state yet.
            return false;
        }
        let mut last = self.after;
        for nth in 1..=self.random.u64(1..LIFE_MAX) {
            let Ok(Some(message)) = stream.try_next() else { break };
            if nth % 20 == 0 {
                // The place before this event: this one is lost at least when it is killed.
                self.after = last;
            }
            let sequence = message["sequence"].as_u64().unwrap();
            match message["type"].as_str().unwrap() {
                "reached" => assert!(sequence >= last, "{sequence} was reached after {last}"),
                _ => {
                    assert!(sequence > last, "{sequence} came after {last}");
                    self.take(&message);
                }
            }
            last = sequence;
        }
        true
    }

    fn skip(&mut self, address: SocketAddr, path: &str) {
        let request = agent().get(format!("http://{address}{path}"));
        let Some(text) = request.call().ok().and_then(|mut answer| answer.body_mut().read_to_string().ok()) else {
            return;
        };
        let problem: Value = serde_json::from_str(&text).unwrap();
        // It may be another life of the server, which has no state yet.
        let Some(oldest) = problem["oldest"].as_u64() else { return };
        assert!(oldest > self.after, "{} is not gone: {problem}", self.after);
        (self.after, self.may_skip) = (oldest, [true; CLIENTS]);
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// Erases a user, and waits until this has removed the journal from before it.
fn erase(program: &Program) {
    let post = json!({"author": "zoe", "body": 0}).to_string();
    let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json").send(post);
    assert_eq!(sent.unwrap().status(), 201);
    let delete = || program.agent.delete(format!("{}/v1/users/zoe", program.url)).call().unwrap();
    eventually("the erasure ends", || delete().status() == 204);
}

/// Runs writers, a consumer and kills. With `prunes`, erasures remove the journal while the consumer is away. Returns how many events it has seen
/// more than once, and how often events were gone.
fn kill_in_a_loop(prunes: bool) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let next: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let seen: [AtomicU64; CLIENTS] = Default::default();
    let (address, is_over, is_away) = (Mutex::new(None), AtomicBool::new(false), AtomicBool::new(false));
    let gone = AtomicU64::new(0);
    let consume = || {
        let (may_skip, random) = ([false; CLIENTS], Rng::with_seed(seed()));
        let mut consumer = Killed { after: 0, next: &seen, may_skip, random, again: 0, gone: &gone };
        while !is_over.load(Ordering::Relaxed) {
            eventually("the server gives the consumer a stream", || {
                let now: Option<SocketAddr> = *address.lock().unwrap();
                let comes = now.filter(|_| !is_away.load(Ordering::Relaxed));
                comes.is_some_and(|now| consumer.live(now)) || is_over.load(Ordering::Relaxed)
            });
        }
        consumer.again
    };
    let start = || {
        // Erasures wait for no consumer, so that one that is away finds its place gone.
        let program = Program::start(directory.path(), &["--erasure-grace", "0s"]);
        *address.lock().unwrap() = Some(program.address);
        program
    };
    let mut acknowledged = [0; CLIENTS];
    let sum = |of: &[AtomicU64]| of.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u64>();
    let mut random = Rng::with_seed(seed());
    thread::scope(|scope| {
        let _ends = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        let consumer = scope.spawn(consume);
        for round in 0..cases(3) {
            is_away.store(prunes && round % 2 == 1, Ordering::Relaxed);
            let program = start();
            let (until, before) = (sum(&next) + random.u64(WRITES), sum(&seen));
            thread::scope(|scope| {
                let _ends = EndsOnFailure(&program);
                let write = |client: usize| {
                    let (program, next) = (&program, &next[client]);
                    move || write_until_refused(program, client as u64, next)
                };
                let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(write(client))).collect();
                eventually("writes are acknowledged", || sum(&next) >= until);
                if prunes && round % 2 == 1 {
                    erase(&program);
                    let told = gone.load(Ordering::Relaxed);
                    is_away.store(false, Ordering::Relaxed);
                    eventually("the consumer is told that events are gone", || gone.load(Ordering::Relaxed) > told);
                }
                eventually("the consumer sees events", || sum(&seen) > before);
                // Another program may soon be there.
                *address.lock().unwrap() = None;
                program.signal("KILL");
                for (client, ended) in clients.into_iter().enumerate() {
                    acknowledged[client] = acknowledged[client].max(ended.join().unwrap());
                }
            });
            program.kill();
        }
        let program = start();
        let has_seen = |(seen, acknowledged): (&AtomicU64, &u64)| seen.load(Ordering::Relaxed) >= *acknowledged;
        eventually("all that was acknowledged is seen", || match seen.iter().zip(&acknowledged).all(has_seen) {
            true => Ok(()),
            false => Err(format!("{seen:?} of {acknowledged:?} were seen")),
        });
        is_over.store(true, Ordering::Relaxed);
        // It ends the stream too.
        program.kill();
        (consumer.join().unwrap(), gone.load(Ordering::Relaxed))
    })
}

#[test]
fn every_acknowledged_event_is_seen_in_order_despite_kills() {
    let (again, gone) = kill_in_a_loop(false);
    assert!(again > 0, "a consumer that was never set back proves nothing");
    assert_eq!(gone, 0, "the journal has everything");
}

#[test]
fn a_consumer_misses_only_events_that_were_reported_as_gone() {
    let (_, gone) = kill_in_a_loop(true);
    assert!(gone > 0, "a consumer that was always fast enough proves nothing");
}
