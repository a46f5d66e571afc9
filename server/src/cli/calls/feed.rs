//! `tidewire feed`: prints the newest entries of a feed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::calls::entry::Entry;
use crate::cli::calls::screen::Screen;
use crate::cli::calls::{Call, done, in_path, parsed, printed};
use crate::cli::client::Client;
use crate::cli::settings::whole_number;
use crate::cli::{Outcome, terminal};
use crate::one_line::on_one_line;
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::id::{ListName, SourceId};
use tidewire::limits::PAGE_POSTS_MAX;

/// Arguments of `tidewire feed`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tidewire feed ann --limit 50 --json | jq -r .post.author | sort | uniq -c")]
pub(crate) struct Feed {
    /// Reader whose feed is printed, newest entry first
    user: SourceId,

    /// Entries to print, read in pages of 100
    #[arg(long, short = 'n', value_name = "ENTRIES", default_value = "20", value_parser = whole_number)]
    limit: NonZeroUsize,

    /// Print only entries below this cursor, which --json prints with each entry
    #[arg(long, value_name = "CURSOR", value_parser = cursor, allow_hyphen_values = true)]
    before: Option<String>,

    /// Print the feed of this list of the reader
    #[arg(long, value_name = "NAME")]
    list: Option<ListName>,

    /// Print the user's own posts and reposts instead of the feed
    #[arg(long, conflicts_with = "list")]
    posts: bool,

    #[command(flatten)]
    call: Call,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    next: Option<String>,
    partial: Vec<String>,
}

/// Accepts only characters of cursors, because the cursor becomes part of a URL.
fn cursor(text: &str) -> Result<String, String> {
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte));
    if is_one { Ok(text.to_owned()) } else { Err("a cursor has letters, digits, - and _ only".to_owned()) }
}

impl Feed {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.print(client))
    }

    fn path(&self, limit: usize, before: Option<&str>) -> String {
        let mut path = match (&self.list, self.posts) {
            (Some(list), _) => format!("/v1/users/{}/lists/{}/feed?limit={limit}", in_path(&self.user), list.as_str()),
            (None, true) => format!("/v1/users/{}/posts?limit={limit}", in_path(&self.user)),
            (None, false) => format!("/v1/users/{}/feed?limit={limit}", in_path(&self.user)),
        };
        if let Some(before) = before {
            let _ = write!(path, "&before={before}");
        }
        path
    }

    /// Returns the reason why nothing was printed.
    fn nothing(&self) -> String {
        let user = &self.user;
        match (&self.list, self.posts, &self.before) {
            (.., Some(_)) => "nothing: no entry is below this cursor".to_owned(),
            (Some(list), ..) => format!(
                "nothing: no member of the list {} of {user} has published, or {user} has hidden all posts",
                list.as_str()
            ),
            (None, true, None) => format!("nothing: {user} has neither published nor reposted"),
            (None, false, None) => format!("nothing: {user} follows nobody who has published, or has hidden all posts"),
        }
    }

    fn print(&self, client: &Client) -> Outcome {
        let (mut left, mut before, mut is_empty) = (self.limit.get(), self.before.clone(), true);
        let (screen, now, mut out) = (Screen::of_stdout(), SystemClock.now(), terminal::output());
        loop {
            let (_, text) = done(client.get(&self.path(left.min(PAGE_POSTS_MAX), before.as_deref())))?;
            let Page { items, next, partial } = parsed(&text)?;
            for item in &items {
                let written = match self.call.json {
                    true => writeln!(out, "{}", on_one_line(item.get())),
                    false => {
                        let between = if is_empty { "" } else { "\n" };
                        writeln!(out, "{between}{}", parsed::<Entry>(item.get())?.text(screen, now))
                    }
                };
                is_empty = false;
                if written.is_err() {
                    return printed(written);
                }
            }
            if !partial.is_empty() {
                terminal::warn(&format!(
                    "note: some posts could not be read in time, entries may be missing: {}",
                    partial.join(", ")
                ));
            }
            left = left.saturating_sub(items.len());
            before = next;
            if left == 0 || before.is_none() {
                break;
            }
        }
        if is_empty && !self.call.json {
            terminal::warn(&self.nothing());
            return Ok(ExitCode::SUCCESS);
        }
        printed(out.flush())
    }
}
