//! Measures messages per second, and checks that none is lost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use crate::live::api::{Api, Publish, body};
use crate::live::audience::Audience;
use crate::live::machine::{Cores, Watched};
use crate::live::wire::Tidewire;
use crate::live::{Error, Run};
use crate::measure::middle;
use crate::operation::User;
use crate::report::{Case, figure};
use crate::target::Failure;

/// Name of the case.
const NAME: &str = "live_messages";

/// Pause of a publisher after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// The common parameters of all publishers.
pub(super) struct Plan {
    author: User,
    body: String,
    /// Maximum number of posts ahead of the slowest follower.
    window: Option<usize>,
    audience: Rc<Audience>,
    published: Cell<usize>,
    refused: Cell<u64>,
}

/// The results of a round.
pub(super) struct Round {
    pub(super) per_second: f64,
    pub(super) cores: Cores,
    pub(super) all_heard: bool,
}

impl Plan {
    pub(super) fn new(author: User, body: String, window: Option<usize>, audience: Rc<Audience>) -> Self {
        // An audience may have received posts before.
        let published = Cell::new(audience.complete());
        Self { author, body, window, audience, published, refused: Cell::new(0) }
    }

    /// Returns the number of posts that not all followers received.
    pub(super) fn unheard(&self) -> u64 {
        self.published.get().saturating_sub(self.audience.complete()) as u64
    }

    /// Returns the number of refused publishes.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }
}

/// Publishes as fast as the server accepts posts, but at most a window ahead of the slowest follower: without the window, clients on the
/// same machine as the server would fall behind and be cut off.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    run.step(NAME, &format!("{} connections", run.settings.audience));
    let (author, readers) = server.author_of(run.settings.audience).await?;
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address(), readers, Tidewire::boxed).await?;
    let body = body(run.settings.body_bytes);
    let plan = Rc::new(Plan::new(author, body, run.settings.window, Rc::clone(&audience)));
    let mut rounds = Vec::new();
    for round in 0..run.settings.rounds {
        run.step_of_round(NAME, round);
        let mut apis = Vec::new();
        for _ in 0..run.settings.publishers {
            apis.push(Api::open(server.address()).await?);
        }
        let watched = Watched::start(server.process());
        let mut round = one_round(apis, run.settings.lasts, &plan).await?;
        round.cores = run.stretch(watched, NAME);
        run.done(&format!("{} messages", figure::rate(round.per_second)));
        let all_heard = round.all_heard;
        rounds.push(round);
        if !all_heard {
            // Missing posts would be counted as missing again in every later round.
            break;
        }
    }
    let (unheard, refused) = (plan.unheard(), plan.refused());
    let failed = run.report_troubles(NAME, &audience, unheard) + unheard + refused;
    if refused > 0 {
        run.failure(NAME, &format!("{refused} publishes were refused, and retried"));
    }
    run.case(NAME, case(&rounds, failed));
    Ok(())
}

/// Publishes until the time is over, then waits until all posts are received. The caller adds the cores.
pub(super) async fn one_round<P: Publish + 'static>(
    publishers: Vec<P>,
    lasts: Duration,
    plan: &Rc<Plan>,
) -> Result<Round, Error> {
    let messages_before = plan.audience.messages();
    let began = Instant::now();
    let mut publishing = JoinSet::new();
    for publisher in publishers {
        publishing.spawn_local(publish(publisher, began + lasts, Rc::clone(plan)));
    }
    while let Some(ended) = publishing.join_next().await {
        ended.map_err(|_| Error::Crashed)??;
    }
    let all_heard = plan.audience.wait_until_complete(plan.published.get()).await;
    let per_second = (plan.audience.messages() - messages_before) as f64 / began.elapsed().as_secs_f64();
    Ok(Round { per_second, cores: Cores::default(), all_heard })
}

async fn publish(mut publisher: impl Publish, until: Instant, plan: Rc<Plan>) -> Result<(), Failure> {
    while Instant::now() < until {
        if plan.window.is_some_and(|window| plan.published.get() >= plan.audience.complete() + window) {
            // No notification is missed: all tasks are on one thread. A follower that disconnects also ends the wait.
            let _ = timeout_at(until.into(), plan.audience.wait_for_progress()).await;
            continue;
        }
        // Count before sending, so that all publishers together stay within the window.
        plan.published.set(plan.published.get() + 1);
        match publisher.publish(plan.author, &plan.body).await {
            Ok(()) => {}
            Err(Failure::Refused(_)) => {
                plan.published.set(plan.published.get() - 1);
                plan.refused.set(plan.refused.get() + 1);
                sleep(REFUSED_PAUSE).await;
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(())
}

/// Returns the case of messages per second.
pub(super) fn case(rounds: &[Round], failed: u64) -> Case {
    let figures: Vec<f64> = rounds.iter().map(|round| round.per_second).collect();
    let Some(round) = middle(&figures).and_then(|nth| rounds.get(nth)) else { return Case::default() };
    Case {
        unit: "messages/s".to_owned(),
        median: round.per_second,
        failed,
        server_cores: round.cores.server,
        client_cores: round.cores.client,
        rounds: figures,
        ..Case::default()
    }
}
