//! One turn of a design: a server of its own, the same followers online, and all measurements one after the other.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::design::{Design, Publisher, Running};
use super::posts::Stamps;
use super::{AWAY, IDLE, MESSAGES, Settings, followers_case};
use crate::environment::Stretch;
use crate::live::Error;
use crate::live::api::{Publish as _, body};
use crate::live::audience::Audience;
use crate::live::machine::{Cores, Watched};
use crate::live::pace::{self, Posts};
use crate::live::socket::{Reads, Socket};
use crate::live::throughput::{self, Plan};
use crate::operation::User;
use crate::report::figure;
use crate::report::progress::Progress;
use crate::target::Failure;
use crate::target::process::{processor_time, resident_bytes};

/// Time without a message after which a reconnected client stops waiting.
const SILENCE: Duration = Duration::from_secs(2);

/// Timeout for a post that must arrive.
const RECEIVE_MAX: Duration = Duration::from_secs(30);

/// Number of posts that are published while a client is away.
const POSTS_WHILE_AWAY: u32 = 20;

/// The results of a turn.
#[derive(Default)]
pub(super) struct Results {
    /// Version and settings of the server.
    pub(super) settings: Vec<String>,
    /// Bytes of an idle connection.
    pub(super) idle_bytes: f64,
    /// The times of each author's posts, in the order of the settings.
    pub(super) latencies: Vec<pace::Round>,
    /// Processor time of the server for each message to the followers of the last author, in microseconds.
    pub(super) paced_us: f64,
    /// Messages per second.
    pub(super) messages: Option<throughput::Round>,
    /// Number of posts that a client received after it reconnected, of those published while it was away.
    pub(super) back: Option<f64>,
    /// The load of the machine.
    pub(super) stretches: Vec<Stretch>,
    /// Descriptions of errors in messages and connections.
    pub(super) troubles: Vec<String>,
    /// Number of errors.
    pub(super) failed: u64,
}

/// A running turn.
pub(super) struct Turn<'a> {
    pub(super) design: Design,
    pub(super) settings: &'a Settings,
    /// True if the client goes away in this turn.
    pub(super) goes_away: bool,
    pub(super) progress: &'a Progress,
    /// The number of the round, for people.
    pub(super) round: String,
}

/// An author and all its followers, who are online.
struct Group {
    author: User,
    audience: Rc<Audience>,
    /// The listening tasks, which end when this is dropped.
    _listening: JoinSet<()>,
}

impl Turn<'_> {
    /// Starts a server and measures everything.
    pub(super) async fn take(&self) -> Result<Results, Error> {
        let Settings { followers, audience, .. } = self.settings;
        let mut results = Results::default();
        self.step(IDLE);
        let running = self.design.start(self.settings.connections()).await?;
        results.settings = running.settings();
        let mut users = Vec::new();
        for followers in followers.iter().chain([audience]) {
            users.push(running.author_of(*followers).await?);
        }
        let before_bytes = resident_bytes(running.process());
        let mut groups = Vec::new();
        for (author, readers) in users {
            let audience = Rc::new(Audience::default());
            let wire = |reader| running.wire(reader, author);
            let listening = audience.connect(running.address(), readers, wire).await?;
            groups.push(Group { author, audience, _listening: listening });
        }
        sleep(self.settings.settle).await;
        let more_bytes = resident_bytes(running.process()).saturating_sub(before_bytes);
        results.idle_bytes = more_bytes as f64 / self.settings.connections() as f64;
        self.progress.done(&format!("{} each", figure::bytes(results.idle_bytes)));

        let stamps = Rc::default();
        let mut publisher = running.publisher(&stamps).await?;
        for (group, followers) in groups.iter().zip(followers) {
            let round = self.latency(&running, &mut publisher, group, *followers, &mut results).await?;
            results.latencies.push(round);
        }
        if let Some(group) = groups.last() {
            let round = self.messages(&running, &stamps, group, &mut results).await?;
            results.messages = Some(round);
        }
        for group in &groups {
            let (troubles, count) = group.audience.troubles();
            results.troubles.extend(troubles);
            results.failed += count;
        }
        if self.goes_away {
            results.back = Some(self.away(&running, &mut publisher).await?);
        }
        Ok(results)
    }

    fn step(&self, case: &str) {
        self.progress.step(self.design.name(), &format!("{case}, {}", self.round));
    }

    async fn latency(
        &self,
        running: &Running,
        publisher: &mut Publisher,
        group: &Group,
        followers: usize,
        results: &mut Results,
    ) -> Result<pace::Round, Error> {
        let name = followers_case(followers);
        self.step(&name);
        let count = self.settings.timed.div_duration_f64(pace::interval(followers)).ceil() as usize;
        let body = body(self.settings.body_bytes);
        let posts = Posts { author: group.author, body: &body, count };
        let (before, messages) = (processor_time(running.process()), group.audience.messages());
        let watched = Watched::start(running.process());
        let mut round = pace::publish(publisher, posts, &group.audience, |at| self.progress.tick(at, "")).await?;
        round.cores = self.stop(watched, &name, results);
        let (took, messages) =
            (processor_time(running.process()).saturating_sub(before), group.audience.messages() - messages);
        results.paced_us = took.as_secs_f64() * 1e6 / messages.max(1) as f64;
        if round.unheard > 0 {
            results.troubles.push(format!("{name}: {} posts were not received by all", round.unheard));
        }
        self.progress.done(&round.describe());
        Ok(round)
    }

    async fn messages(
        &self,
        running: &Running,
        stamps: &Rc<Stamps>,
        group: &Group,
        results: &mut Results,
    ) -> Result<throughput::Round, Error> {
        self.step(MESSAGES);
        let mut publishers = Vec::new();
        for _ in 0..running.publishers(self.settings.publishers) {
            publishers.push(running.publisher(stamps).await?);
        }
        let body = body(self.settings.body_bytes);
        let plan = Rc::new(Plan::new(group.author, body, Some(self.settings.window), Rc::clone(&group.audience)));
        let watched = Watched::start(running.process());
        let mut round = throughput::one_round(publishers, self.settings.lasts, &plan).await?;
        round.cores = self.stop(watched, MESSAGES, results);
        let (unheard, refused) = (plan.unheard(), plan.refused());
        if unheard + refused > 0 {
            results.troubles.push(format!("{unheard} posts were not received by all, {refused} were refused"));
            results.failed += unheard + refused;
        }
        self.progress.done(&format!("{} messages", figure::rate(round.per_second)));
        Ok(round)
    }

    /// Ends a period of a measurement.
    fn stop(&self, watched: Watched, case: &str, results: &mut Results) -> Cores {
        let (cores, stretch) = watched.stop(&format!("{case} of {}", self.design.name()));
        results.stretches.push(stretch);
        cores
    }

    /// Returns the number of posts that a client receives after it has reconnected, of those published while it was away.
    async fn away(&self, running: &Running, publisher: &mut Publisher) -> Result<f64, Error> {
        self.step(AWAY);
        let (author, readers) = running.author_of(2).await?;
        let (reader, address) = (readers.start, running.address());
        // Once the connected client has all posts, the server has no undelivered posts left. So the other client can receive only stored
        // ones.
        let stays = Rc::new(Audience::default());
        let wire = |reader| running.wire(reader, author);
        let _listening = stays.connect(address, reader + 1..readers.end, wire).await?;
        let body = body(self.settings.body_bytes);
        let (before, after) = (Rc::new(Audience::default()), Rc::new(Audience::default()));
        let mut socket = Socket::open(address, reader, wire(reader), Reads::Always, Rc::clone(&before) as _).await?;
        publisher.publish(author, &body).await?;
        hear(&mut socket, &before, 1, RECEIVE_MAX).await;
        let wire = socket.leave();
        for _ in 0..POSTS_WHILE_AWAY {
            sleep(self.settings.away / POSTS_WHILE_AWAY).await;
            publisher.publish(author, &body).await?;
        }
        if !stays.wait_until_complete(1 + POSTS_WHILE_AWAY as usize).await {
            return Err(
                Failure::Failed("a connected client did not receive the posts published meanwhile".to_owned()).into()
            );
        }
        let mut socket = Socket::open(address, reader, wire, Reads::Always, Rc::clone(&after) as _).await?;
        hear(&mut socket, &after, u64::MAX, SILENCE).await;
        self.progress.done(&format!("{} of {POSTS_WHILE_AWAY} posts", after.messages()));
        Ok(after.messages() as f64)
    }
}

/// Reads until `messages` messages have arrived, or until there is no message for the time `silence`.
async fn hear(socket: &mut Socket, audience: &Audience, messages: u64, silence: Duration) {
    while audience.messages() < messages {
        let Ok(Ok(())) = timeout(silence, socket.read_once()).await else { return };
    }
}
