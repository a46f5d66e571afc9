//! What is measured, and how much of it: by default all, in full under `cargo bench` and tiny under `cargo test`.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::size;

/// Descriptors that a process needs beside its connections.
const OTHER_DESCRIPTORS: usize = 100;

pub struct Settings {
    /// `PROGRAM`: the server; that of this build.
    pub program: PathBuf,
    /// `FLAGS`: further flags of the server.
    pub flags: Vec<String>,
    /// `ONLY`: the measures, with commas between.
    only: Option<String>,
    /// `FOLLOWERS`: online followers of the authors, with commas between.
    pub followers: Vec<usize>,
    /// `POSTS`: of each author.
    pub posts: usize,
    /// `SECONDS` of publishing at full speed.
    pub seconds: usize,
    /// `AUDIENCE`: online followers then.
    pub audience: usize,
    /// `PUBLISHERS` at the same time then.
    pub publishers: usize,
    /// `WINDOW`: posts ahead of the slowest follower then. 0: no limit, and clients that fall behind are cut off.
    pub window: usize,
    /// `IDLE` connections.
    pub idle: usize,
    /// `HOLD_SECONDS`: for so long. After 60 s one that does not answer its ping would be closed.
    pub hold: Duration,
    /// `HEALTHY` clients beside the stalled ones.
    pub healthy: usize,
    /// `STALLED` clients.
    pub stalled: usize,
    /// `BODY_BYTES` of the posts they do not read.
    pub body_bytes: usize,
    /// `ROUNDS`: of so many posts each, without and with them.
    pub rounds: usize,
    /// `ROUND_POSTS`: posts of a round.
    pub round_posts: usize,
    /// `CUT_OFF_SECONDS`: how long they may take to be cut off after that.
    pub cut_off_patience: Duration,
}

impl Settings {
    /// The defaults, changed by the environment.
    pub fn read() -> Self {
        let followers = text("FOLLOWERS").unwrap_or_else(|| size_text("10,1000,10000", "2,20"));
        Self {
            program: text("PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidewire").to_owned()).into(),
            flags: text("FLAGS").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            only: text("ONLY"),
            followers: followers.split(',').map(|count| count.trim().parse().expect("FOLLOWERS are numbers")).collect(),
            posts: number("POSTS", 200, 5),
            seconds: number("SECONDS", 5, 1),
            audience: number("AUDIENCE", 1_000, 10),
            publishers: number("PUBLISHERS", 16, 2),
            window: number("WINDOW", 256, 16),
            idle: number("IDLE", 20_000, 20),
            hold: Duration::from_secs(number("HOLD_SECONDS", 70, 0) as u64),
            healthy: number("HEALTHY", 10_000, 20),
            stalled: number("STALLED", 1_000, 3),
            body_bytes: number("BODY_BYTES", 8 * 1024, 1024),
            rounds: number("ROUNDS", 3, 1),
            round_posts: number("ROUND_POSTS", 40, 3),
            cut_off_patience: Duration::from_secs(number("CUT_OFF_SECONDS", 60, 0) as u64),
        }
    }

    /// Whether this measure is asked for.
    pub fn wants(&self, measure: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|name| name.trim() == measure))
    }

    /// The descriptors a process needs for what is asked for.
    pub fn descriptors(&self) -> usize {
        let connections = [
            ("latency", self.followers.iter().sum()),
            ("throughput", self.audience),
            ("memory", self.idle),
            ("stalled", self.healthy + self.stalled),
        ];
        let wanted = connections.into_iter().filter(|(measure, _)| self.wants(measure));
        wanted.map(|(_, count)| count).max().unwrap_or(0) + OTHER_DESCRIPTORS
    }

    /// Makes do with so many descriptors.
    pub fn fit(&mut self, descriptors: usize) {
        let room = descriptors.saturating_sub(OTHER_DESCRIPTORS);
        if self.descriptors() > descriptors {
            println!("The system allows {descriptors} open files: no more than {room} connections at a time.");
        }
        while self.followers.iter().sum::<usize>() > room && self.followers.len() > 1 {
            self.followers.pop();
        }
        self.audience = self.audience.min(room);
        self.idle = self.idle.min(room);
        self.healthy = self.healthy.min(room.saturating_sub(self.stalled));
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(format!("TIDEWIRE_LIVE_{name}")).ok()
}

fn size_text(measured: &str, tested: &str) -> String {
    if crate::common::measuring() { measured } else { tested }.to_owned()
}

fn number(name: &str, measured: usize, tested: usize) -> usize {
    text(name).map_or(size(measured, tested), |text| {
        text.replace('_', "").parse().unwrap_or_else(|_| panic!("TIDEWIRE_LIVE_{name} is a number"))
    })
}
