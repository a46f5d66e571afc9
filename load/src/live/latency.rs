//! Measures the time from a publish until the first and the last follower have received all of it.

use std::rc::Rc;

use tokio::task::JoinSet;

use crate::live::api::{Api, body};
use crate::live::audience::Audience;
use crate::live::machine::Watched;
use crate::live::pace::{self, Posts, Rounds};
use crate::live::wire::Tidewire;
use crate::live::{Error, Run};
use crate::operation::User;

struct Group {
    name: String,
    author: User,
    audience: Rc<Audience>,
    rounds: Rounds,
    /// The listening tasks, which end when this is dropped.
    _listening: JoinSet<()>,
}

/// Measures all authors. Each has its own followers, and all are connected during the whole measurement. The authors take turns.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    let mut groups = Vec::new();
    for followers in &run.settings.followers {
        let name = format!("live_{followers}_followers");
        run.step(&name, &format!("{followers} connections"));
        let (author, readers) = server.author_of(*followers).await?;
        let audience = Rc::new(Audience::default());
        let listening = audience.connect(server.address(), readers, Tidewire::boxed).await?;
        groups.push(Group { name, author, audience, rounds: Rounds::default(), _listening: listening });
    }
    let mut api = Api::open(server.address()).await?;
    let body = body(run.settings.body_bytes);
    for round in 0..run.settings.rounds {
        for group in &mut groups {
            run.step_of_round(&group.name, round);
            let posts = Posts { author: group.author, body: &body, count: run.settings.posts };
            let watched = Watched::start(server.process());
            let mut timed = pace::publish(&mut api, posts, &group.audience, |at| run.tick(at)).await?;
            timed.cores = run.stretch(watched, &group.name);
            run.done(&timed.describe());
            group.rounds.push(timed);
        }
    }
    for group in groups {
        let failed = run.report_troubles(&group.name, &group.audience, group.rounds.unheard());
        run.timed(&group.name, &group.rounds, failed);
    }
    Ok(())
}
