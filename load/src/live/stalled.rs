//! Measures the effect of clients that stop reading on the others.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::live::api::{Api, body};
use crate::live::audience::{Audience, open_all};
use crate::live::machine::Watched;
use crate::live::pace::{self, Posts, Rounds};
use crate::live::socket::{Reads, Socket};
use crate::live::wire::Tidewire;
use crate::live::{Error, Run, Server};
use crate::operation::User;
use crate::report::{Case, figure};
use crate::target::process::{peak_bytes, resident_bytes};

/// Names of the cases.
const ALONE: &str = "live_alone";
const BESIDE: &str = "live_beside_stalled";
const MEMORY: &str = "live_stalled_memory";

/// Maximum time until the server notices that clients have disconnected.
const LEAVING_MAX: Duration = Duration::from_secs(5);

/// Measures rounds without and with stalled clients alternately, because the speed of the machine varies over time.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    let mut api = Api::open(server.address()).await?;
    run.step(ALONE, &format!("{} connections", run.settings.audience));
    let (author, users) = server.author_of(run.settings.audience + run.settings.stalled).await?;
    let (healthy, stalled) = split(users, run.settings.audience);
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address(), healthy, Tidewire::boxed).await?;

    let before_bytes = resident_bytes(server.process());
    let body = body(run.settings.stalled_body_bytes);
    let posts = Posts { author, body: &body, count: run.settings.posts };
    let (mut alone, mut beside) = (Rounds::default(), Rounds::default());
    for round in 0..run.settings.rounds {
        wait_until_left(&mut api, &audience).await?;
        publish(run, &server, &mut api, (posts, &audience), (ALONE, round), &mut alone).await?;
        let silent = stall(&server, stalled.clone()).await?;
        let known = api.live_figures().await?.cut_off;
        publish(run, &server, &mut api, (posts, &audience), (BESIDE, round), &mut beside).await?;
        if round + 1 == run.settings.rounds && !run.settings.cut_off.is_zero() {
            cut_off(run, &mut api, (Posts { count: 1, ..posts }, &audience), known + silent.len()).await?;
        }
    }

    let unheard = alone.unheard() + beside.unheard();
    let failed = run.report_troubles(BESIDE, &audience, unheard);
    run.timed(ALONE, &alone, 0);
    run.timed(BESIDE, &beside, failed);
    let more = peak_bytes(server.process()).saturating_sub(before_bytes) as f64;
    let bytes = more / run.settings.stalled as f64;
    run.case(MEMORY, Case { unit: "bytes/client".to_owned(), median: bytes, rounds: vec![bytes], ..Case::default() });
    Ok(())
}

fn split(users: Range<User>, first: usize) -> (Range<User>, Range<User>) {
    let middle = users.start + first as User;
    (users.start..middle, middle..users.end)
}

async fn publish(
    run: &mut Run<'_>,
    server: &Server,
    api: &mut Api,
    (posts, audience): (Posts<'_>, &Audience),
    (name, round): (&str, usize),
    into: &mut Rounds,
) -> Result<(), Error> {
    run.step_of_round(name, round);
    let watched = Watched::start(server.process());
    let mut timed = pace::publish(api, posts, audience, |at| run.tick(at)).await?;
    timed.cores = run.stretch(watched, name);
    run.done(&timed.describe());
    into.push(timed);
    Ok(())
}

/// Connects clients that read `hello` and then stop reading while they are held.
async fn stall(server: &Server, users: Range<User>) -> Result<Vec<Socket>, Error> {
    let nobody = Rc::new(Audience::default());
    let mut silent = Vec::new();
    open_all(server.address(), users, Tidewire::boxed, Reads::NoMore, &nobody, |socket| silent.push(socket)).await?;
    Ok(silent)
}

/// Continues to publish until the server has cut off the stalled clients. Clients that stay connected are a failure.
async fn cut_off(
    run: &mut Run<'_>,
    api: &mut Api,
    (posts, audience): (Posts<'_>, &Audience),
    expected: usize,
) -> Result<(), Error> {
    run.step(BESIDE, "until the server disconnects the stalled clients");
    let began = Instant::now();
    let missing = loop {
        let missing = expected.saturating_sub(api.live_figures().await?.cut_off);
        let took = began.elapsed();
        run.tick(1.0 - missing as f64 / run.settings.stalled as f64);
        if missing == 0 || took >= run.settings.cut_off {
            break missing;
        }
        pace::publish(api, posts, audience, |_| ()).await?;
    };
    let took = figure::time_us(began.elapsed().as_secs_f64() * 1e6);
    run.done(&format!("{} of {} disconnected after {took}", run.settings.stalled - missing, run.settings.stalled));
    if missing > 0 {
        run.failure(BESIDE, &format!("{missing} stalled clients were not cut off after {took}"));
    }
    Ok(())
}

/// Waits until the server has only the connections of the audience, because it would deliver posts to other connections as well.
async fn wait_until_left(api: &mut Api, audience: &Audience) -> Result<(), Error> {
    let until = Instant::now() + LEAVING_MAX;
    while api.live_figures().await?.connections > audience.size() && Instant::now() < until {
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_split_without_a_gap() {
        assert_eq!(split(3..10, 4), (3..7, 7..10));
        assert_eq!(split(3..10, 0), (3..3, 3..10));
    }
}
