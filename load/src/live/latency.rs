//! From a publish to the first and to the last follower's last byte.

use std::rc::Rc;

use tokio::task::JoinSet;

use crate::live::api::{Api, body};
use crate::live::audience::Audience;
use crate::live::machine::Watched;
use crate::live::pace::{self, Posts, Rounds};
use crate::live::{Error, Run};
use crate::operation::User;

struct Group {
    name: String,
    author: User,
    audience: Rc<Audience>,
    rounds: Rounds,
    /// Ends when this does.
    _listening: JoinSet<()>,
}

/// Each author's followers are readers of its own, and all are connected all the time. Authors take turns.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    let mut groups = Vec::new();
    for followers in &run.settings.followers {
        let name = format!("live_{followers}_followers");
        run.step(&name, &format!("{followers} connections"));
        let (author, readers) = server.author_of(*followers).await?;
        let audience = Rc::new(Audience::default());
        let listening = audience.connect(server.address(), readers).await?;
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
            run.done(&timed.told());
            group.rounds.push(timed);
        }
    }
    for group in groups {
        let failed = run.told_of(&group.name, &group.audience, group.rounds.unheard());
        run.timed(&group.name, &group.rounds, failed);
    }
    Ok(())
}
