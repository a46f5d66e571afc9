//! `tidewire follow` and `tidewire unfollow`: change the sources that a user follows.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use crate::cli::calls::{Call, done, in_path, parsed};
use crate::cli::client::Client;
use crate::cli::{Outcome, terminal};
use tidewire::id::SourceId;

/// Arguments of `tidewire follow`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tidewire follow ann bob tag:rust topic:42")]
pub(crate) struct Follow {
    /// User who follows
    user: SourceId,

    /// Users, tags (tag:NAME), topics (topic:NAME) and replies to posts (replies:POST) to follow
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<SourceId>,

    /// Number of earlier posts to bring into the feed, the newest ones [default: all]
    #[arg(long, value_name = "POSTS")]
    backfill: Option<u32>,

    /// Leave the edge out of all lists and counts; needs a server key
    #[arg(long)]
    hidden: bool,

    #[command(flatten)]
    call: Call,
}

/// Arguments of `tidewire unfollow`.
#[derive(Debug, clap::Args)]
pub(crate) struct Unfollow {
    /// User who follows
    user: SourceId,

    /// Users, tags (tag:NAME), topics (topic:NAME) and replies to posts (replies:POST) to unfollow
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<SourceId>,

    /// Keep the source's posts that are already in the feed
    #[arg(long)]
    keep: bool,

    #[command(flatten)]
    call: Call,
}

#[derive(Deserialize)]
struct Followed {
    created: bool,
}

impl Follow {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.follow(client))
    }

    /// Follows one source after the other, and stops at the first one that is refused.
    fn follow(&self, client: &Client) -> Outcome {
        let mut options = json!({"hidden": self.hidden});
        if let Some(posts) = self.backfill {
            options["backfill"] = json!(posts);
        }
        for source in &self.sources {
            let path = format!("/v1/users/{}/following/{}", in_path(&self.user), in_path(source));
            let (_, text) = done(client.put(&path, &options.to_string()))?;
            let Followed { created } = parsed(&text)?;
            match (self.call.json, created) {
                (true, _) => {
                    terminal::print_json(
                        &json!({"user": self.user.as_str(), "source": source.as_str(), "created": created}),
                    );
                }
                (false, true) => terminal::print_line(&format!("{} follows {source}", self.user)),
                (false, false) => terminal::print_line(&format!("{} follows {source} already", self.user)),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Unfollow {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.unfollow(client))
    }

    fn unfollow(&self, client: &Client) -> Outcome {
        let keep = if self.keep { "?keep=true" } else { "" };
        for source in &self.sources {
            done(client.delete(&format!("/v1/users/{}/following/{}{keep}", in_path(&self.user), in_path(source))))?;
            match self.call.json {
                true => terminal::print_json(&json!({"user": self.user.as_str(), "source": source.as_str()})),
                false => terminal::print_line(&format!("{} does not follow {source} any more", self.user)),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
