//! Measures messages per second, and checks that none is lost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use crate::live::api::{Api, body};
use crate::live::audience::Audience;
use crate::live::machine::{Cores, Watched};
use crate::live::wire::Tidewire;
use crate::live::{Error, Run, Server};
use crate::measure::middle;
use crate::operation::User;
use crate::report::{Case, figure};
use crate::target::Failure;

/// Name of the case.
const NAME: &str = "live_messages";

/// Pause of a publisher after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// The common parameters of all publishers.
struct Plan {
    author: User,
    body: String,
    /// Maximum number of posts ahead of the slowest follower.
    window: Option<usize>,
    audience: Rc<Audience>,
    published: Cell<usize>,
    refused: Cell<u64>,
}

/// The results of a round.
struct Round {
    per_second: f64,
    cores: Cores,
    all_heard: bool,
}

/// Publishes as fast as the server accepts posts, but at most a window ahead of the slowest follower: without the window, clients on the
/// same machine as the server would fall behind and be cut off.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    run.step(NAME, &format!("{} connections", run.settings.audience));
    let (author, readers) = server.author_of(run.settings.audience).await?;
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address(), readers, Tidewire::boxed).await?;
    let plan = Rc::new(Plan {
        author,
        body: body(run.settings.body_bytes),
        window: run.settings.window,
        audience: Rc::clone(&audience),
        published: Cell::new(0),
        refused: Cell::new(0),
    });
    let mut rounds = Vec::new();
    for round in 0..run.settings.rounds {
        run.step_of_round(NAME, round);
        let round = one_round(run, &server, &plan).await?;
        run.done(&format!("{} messages", figure::rate(round.per_second)));
        let all_heard = round.all_heard;
        rounds.push(round);
        if !all_heard {
            // Missing posts would be counted as missing again in every later round.
            break;
        }
    }
    let unheard = plan.published.get().saturating_sub(audience.complete()) as u64;
    let failed = run.report_troubles(NAME, &audience, unheard) + unheard + plan.refused.get();
    if plan.refused.get() > 0 {
        run.failure(NAME, &format!("{} publishes were refused, and tried again", plan.refused.get()));
    }
    run.case(NAME, case(&rounds, failed));
    Ok(())
}

async fn one_round(run: &mut Run<'_>, server: &Server, plan: &Rc<Plan>) -> Result<Round, Error> {
    let mut apis = Vec::new();
    for _ in 0..run.settings.publishers {
        apis.push(Api::open(server.address()).await?);
    }
    let messages_before = plan.audience.messages();
    let watched = Watched::start(server.process());
    let began = Instant::now();
    let mut publishers = JoinSet::new();
    for api in apis {
        publishers.spawn_local(publish(api, began + run.settings.lasts, Rc::clone(plan)));
    }
    while let Some(ended) = publishers.join_next().await {
        ended.map_err(|_| Error::Crashed)??;
    }
    let all_heard = plan.audience.wait_until_complete(plan.published.get()).await;
    let per_second = (plan.audience.messages() - messages_before) as f64 / began.elapsed().as_secs_f64();
    Ok(Round { per_second, cores: run.stretch(watched, NAME), all_heard })
}

async fn publish(mut api: Api, until: Instant, plan: Rc<Plan>) -> Result<(), Failure> {
    while Instant::now() < until {
        if plan.window.is_some_and(|window| plan.published.get() >= plan.audience.complete() + window) {
            // No notification is missed: all tasks are on one thread. A follower that disconnects also ends the wait.
            let _ = timeout_at(until.into(), plan.audience.wait_for_progress()).await;
            continue;
        }
        // Count before sending, so that all publishers together stay within the window.
        plan.published.set(plan.published.get() + 1);
        match api.publish(plan.author, &plan.body).await {
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

fn case(rounds: &[Round], failed: u64) -> Case {
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
