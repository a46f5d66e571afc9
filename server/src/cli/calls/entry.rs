//! An entry of a feed, as text for people.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::calls::screen::{Screen, clean};
use tidewire::clock::UnixMicros;

/// Maximum lines of one post. The rest of a longer post is left out.
const LINES_MAX: usize = 12;

/// An entry of a page or of a live message.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    post: Post,
    #[serde(default)]
    via: Vec<String>,
    #[serde(default)]
    reposts: Vec<Repost>,
}

/// The displayed fields of a post.
#[derive(Debug, Deserialize)]
pub(crate) struct Post {
    id: String,
    author: String,
    published_at: String,
    body: Value,
    #[serde(default)]
    tags: Vec<String>,
    topic: Option<String>,
    reply_to: Option<String>,
    #[serde(default)]
    hidden: bool,
}

#[derive(Debug, Deserialize)]
struct Repost {
    user: String,
}

impl Entry {
    /// Returns the text of the entry, without a line end.
    pub(super) fn text(&self, screen: Screen, now: UnixMicros) -> String {
        let mut about = Vec::new();
        if !self.reposts.is_empty() {
            let users: Vec<&str> = self.reposts.iter().map(|repost| repost.user.as_str()).collect();
            about.push(format!("reposted by {}", listed(&users)));
        }
        // Do not print the author as the only source, because this is the normal case.
        if self.via.iter().any(|source| *source != self.post.author) {
            about.push(format!("via {}", listed(&self.via.iter().map(String::as_str).collect::<Vec<_>>())));
        }
        self.post.text(screen, now, &about)
    }
}

impl Post {
    /// Returns the text of the post below a line that also contains `about`.
    pub(super) fn text(&self, screen: Screen, now: UnixMicros, about: &[String]) -> String {
        let mut about = about.to_vec();
        about.extend(self.reply_to.as_ref().map(|post| format!("answers {post}")));
        about.extend(self.hidden.then(|| "hidden".to_owned()));
        let names = self
            .tags
            .iter()
            .map(|tag| format!("#{tag}"))
            .chain(self.topic.iter().map(|topic| format!("topic:{topic}")));
        about.extend(names);
        let about: String = about.iter().map(|part| format!(" · {}", clean(part))).collect();
        let left = format!(
            "{}{}",
            screen.bold(&clean(&self.author)),
            screen.dim(&format!(" · {}{about}", age(&self.published_at, now)))
        );
        let mut lines = vec![screen.edges(&left, &screen.dim(&self.id))];
        let mut body = screen.lines(&self.content(), 2);
        if body.len() > LINES_MAX {
            body.truncate(LINES_MAX);
            body.push("  …".to_owned());
        }
        lines.append(&mut body);
        lines.join("\n")
    }

    /// Returns the text in the body, or the body as JSON if it has none.
    fn content(&self) -> String {
        match &self.body {
            Value::String(text) => text.clone(),
            body => match body.get("text") {
                Some(Value::String(text)) => text.clone(),
                _ => body.to_string(),
            },
        }
    }
}

/// Returns the first names of a list, and the number of the others.
fn listed(names: &[&str]) -> String {
    const NAMED_MAX: usize = 3;
    match names.len().checked_sub(NAMED_MAX) {
        Some(others @ 1..) => format!("{} and {others} others", names[..NAMED_MAX].join(", ")),
        _ => names.join(", "),
    }
}

/// Returns the time since the publish: in one unit, or the date after a month.
fn age(published_at: &str, now: UnixMicros) -> String {
    const DAY: i64 = 86_400;
    let Ok(UnixMicros(at)) = published_at.parse() else { return clean(published_at) };
    match now.0.saturating_sub(at) / 1_000_000 {
        seconds @ ..-60 => format!("in {}", in_one_unit(-seconds)),
        ..1 => "now".to_owned(),
        seconds if seconds < 30 * DAY => format!("{} ago", in_one_unit(seconds)),
        _ => published_at.chars().take(10).collect(),
    }
}

fn in_one_unit(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit_and_old_posts_a_date() {
        let now: UnixMicros = "2026-03-31T12:00:00Z".parse().unwrap();
        for (at, expected) in [
            ("2026-03-31T12:00:00Z", "now"),
            ("2026-03-31T12:00:30Z", "now"),
            ("2026-03-31T13:00:00Z", "in 1h"),
            ("2026-03-31T11:59:59Z", "1s ago"),
            ("2026-03-31T11:01:00Z", "59m ago"),
            ("2026-03-30T12:00:01Z", "23h ago"),
            ("2026-03-02T12:00:00Z", "29d ago"),
            ("2026-03-01T12:00:00Z", "2026-03-01"),
        ] {
            assert_eq!(age(at, now), expected, "{at}");
        }
    }
}
