//! `tidewire publish`: publishes a post.

use std::io::{Read as _, stdin};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::calls::{Call, done, parsed};
use crate::cli::client::Client;
use crate::cli::{Outcome, terminal};
use crate::one_line::on_one_line;
use tidewire::clock::UnixMicros;
use tidewire::id::{ExternalId, PostId, PostName, SourceId};
use tidewire::limits::REQUEST_BYTES_MAX;

/// Arguments of `tidewire publish`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidewire publish bob 'hello' --tag rust\n  date | tidewire publish clock -\n  tidewire publish bob --body '{\"text\":\"hello\",\"picture\":\"7.jpg\"}'"
)]
pub(crate) struct Publish {
    /// User who publishes
    author: SourceId,

    /// Text of the post, stored as {"text": …}; - reads it from standard input
    #[arg(required_unless_present_any = ["body", "repost_of"])]
    text: Option<String>,

    /// Body of the post as JSON, instead of a text; - reads it from standard input
    #[arg(long, value_name = "JSON", conflicts_with = "text")]
    body: Option<String>,

    /// Id of the post; a repeated publish with the same id and content has no effect [default: the server chooses one]
    #[arg(long, value_name = "ID")]
    id: Option<PostId>,

    /// Id of the post in another system, such as a UUID: `ext:` and this id name the post from then on
    #[arg(long, value_name = "ID")]
    external_id: Option<ExternalId>,

    /// Tag of the post; may be repeated
    #[arg(long = "tag", value_name = "NAME")]
    tags: Vec<String>,

    /// Topic of the post
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,

    /// Post that this one reposts: its id, or ext: and its external id
    #[arg(long, value_name = "POST")]
    repost_of: Option<PostName>,

    /// Post that this one answers: its id, or ext: and its external id
    #[arg(long, value_name = "POST")]
    reply_to: Option<PostName>,

    /// Publishing time, in UTC as 2026-11-20T10:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    published_at: Option<UnixMicros>,

    /// Return after the post is in the inboxes of all active followers
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    call: Call,
}

#[derive(Serialize)]
struct Draft<'a> {
    author: &'a str,
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repost_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<String>,
}

#[derive(Deserialize)]
struct Published {
    id: String,
    author: String,
}

impl Publish {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.publish(client))
    }

    fn publish(&self, client: &Client) -> Outcome {
        let Some(body) = self.body()? else {
            let why = "--body: not JSON; for a text, leave out --body";
            if self.call.json {
                terminal::warn(&json!({"error": why, "code": null, "status": null}).to_string());
                return Ok(ExitCode::from(2));
            }
            return Ok(terminal::refuse(why));
        };
        let draft = Draft {
            author: self.author.as_str(),
            body,
            id: self.id.map(|id| id.to_string()),
            external_id: self.external_id.as_ref().map(ExternalId::as_str),
            tags: &self.tags,
            topic: self.topic.as_deref(),
            repost_of: self.repost_of.as_ref().map(PostName::to_string),
            reply_to: self.reply_to.as_ref().map(PostName::to_string),
            published_at: self.published_at.map(|at| at.to_string()),
        };
        let (path, json) =
            (if self.wait { "/v1/posts?wait=delivered" } else { "/v1/posts" }, serde_json::to_string(&draft)?);
        // Without an id, a post that is sent twice is published twice.
        let is_repeatable = self.id.is_some() || self.external_id.is_some();
        let response = if is_repeatable { client.post(path, &json) } else { client.post_once(path, &json) };
        let (status, text) = done(response)?;
        if self.call.json {
            terminal::print_line(&on_one_line(&text));
        } else {
            let Published { id, author } = parsed(&text)?;
            let how = if status == 201 { "published" } else { "published before" };
            terminal::print_line(&format!("{how}: post {id} of {author}"));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the body as JSON, or none if the argument is not JSON.
    fn body(&self) -> Result<Option<Box<RawValue>>, Box<dyn std::error::Error>> {
        let read = |text: &str| if text == "-" { of_stdin() } else { Ok(text.to_owned()) };
        let json = match (&self.body, &self.text) {
            (Some(body), _) => read(body)?,
            (None, Some(text)) => json!({"text": read(text)?.trim_end_matches(['\n', '\r'])}).to_string(),
            (None, None) => "{}".to_owned(),
        };
        Ok(RawValue::from_string(json.trim().to_owned()).ok())
    }
}

fn of_stdin() -> Result<String, String> {
    let (mut text, most) = (String::new(), REQUEST_BYTES_MAX as u64 + 1);
    let read = stdin().take(most).read_to_string(&mut text);
    read.map_err(|cause| format!("cannot read the standard input: {cause}"))?;
    Ok(text)
}
