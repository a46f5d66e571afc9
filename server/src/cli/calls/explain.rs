//! `tidewire explain`: prints the reason why a post is, or is not, in a feed.

use std::process::ExitCode;

use serde::Deserialize;

use crate::cli::calls::screen::Screen;
use crate::cli::calls::{Call, done, in_path, parsed};
use crate::cli::client::Client;
use crate::cli::{Outcome, terminal};
use tidewire::id::{PostName, SourceId};

/// Arguments of `tidewire explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Reader of the feed
    user: SourceId,

    /// Id of the post, or ext: and its external id
    post: PostName,

    #[command(flatten)]
    call: Call,
}

#[derive(Deserialize)]
struct Explanation {
    shown: bool,
    reasons: Vec<Ground>,
    blockers: Vec<Ground>,
    route: Option<String>,
    cost: Option<Cost>,
}

/// A reason for or against an entry.
#[derive(Deserialize)]
struct Ground {
    kind: String,
    source: Option<String>,
    user: Option<String>,
    at: Option<String>,
}

#[derive(Deserialize)]
struct Cost {
    push_us_per_hour: f64,
    pull_us_per_hour: f64,
    decided_by: String,
}

impl Explain {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.explain(client))
    }

    fn explain(&self, client: &Client) -> Outcome {
        let (_, text) = done(client.get(&format!("/v1/users/{}/feed/explain/{}", in_path(&self.user), self.post)))?;
        if self.call.json {
            terminal::print_line(&text);
            return Ok(ExitCode::SUCCESS);
        }
        let (screen, explanation) = (Screen::of_stdout(), parsed::<Explanation>(&text)?);
        let (user, post) = (&self.user, &self.post);
        let is_or_not = if explanation.shown { screen.good("is in") } else { screen.bad("is not in") };
        terminal::print_line(&format!("post {post} {is_or_not} the feed of {user}"));
        let row = |name: &str, text: &str| {
            for (nth, line) in screen.lines(text, 10).into_iter().enumerate() {
                let name = if nth == 0 { name } else { "" };
                terminal::print_line(&format!("{name:<10}{}", &line[10..]));
            }
        };
        explanation.reasons.iter().for_each(|reason| row("because", &reason.for_it(user.as_str())));
        explanation.blockers.iter().for_each(|blocker| row("but", &blocker.against_it(user.as_str())));
        if explanation.reasons.is_empty() && explanation.blockers.is_empty() {
            row("because", "nothing brings this post into the feed");
        }
        if let Some(route) = &explanation.route {
            row("route", route);
        }
        if let Some(Cost { push_us_per_hour, pull_us_per_hour, decided_by }) = &explanation.cost {
            row(
                "cost",
                &format!("push {push_us_per_hour:.1} µs/h, pull {pull_us_per_hour:.1} µs/h; decided by {decided_by}"),
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Ground {
    fn source(&self) -> &str {
        self.source.as_deref().unwrap_or("somebody")
    }

    fn for_it(&self, reader: &str) -> String {
        let source = self.source();
        match self.kind.as_str() {
            "own" => format!("{reader} published it"),
            "follow" => format!("{reader} follows {source}"),
            "kept" => format!("{reader} kept the posts of {source} when unfollowing"),
            "virtual" => "of a hidden follow, which an operator has set".to_owned(),
            "repost" => {
                let (user, at) =
                    (self.user.as_deref().unwrap_or("somebody"), self.at.as_deref().unwrap_or("some time"));
                format!("{user} reposted it at {at}, and {reader} follows {source}")
            }
            other => other.to_owned(),
        }
    }

    fn against_it(&self, reader: &str) -> String {
        let source = self.source();
        match self.kind.as_str() {
            "unknown" => "no post has this id".to_owned(),
            "deleted" => "the post was deleted".to_owned(),
            "hidden" => "the post is hidden".to_owned(),
            "muted" => format!("{reader} mutes {source}"),
            "blocked" => format!("{reader} blocks {source}"),
            "blocked_by" => format!("{source} blocks {reader}"),
            "own_posts_off" => format!("{reader} excludes own posts (rule show_own)"),
            "reposts_off" => format!("{reader} excludes reposts (rule reposts)"),
            "reply" => match &self.source {
                Some(answered) => format!("it answers {answered}, whom {reader} does not follow (rule replies)"),
                None => "it answers a post whose author is not known (rule replies)".to_owned(),
            },
            other => other.to_owned(),
        }
    }
}
