//! `GET /v1/users/{user}/data`: a JSON object of all data that the engine stores about one user.
//!
//! Other requests may write while the server sends the object. Each part shows the state at the time when the server read that part.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::ready;
use std::io;

use actix_web::http::Method;
use actix_web::http::header::ContentType;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tracing::warn;

use crate::http::admission::Reservation;
use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, user};
use tidewire::clock::UnixMicros;
use tidewire::engine::{Account, Engine, KeptPosts, Listed};
use tidewire::error::Error;
use tidewire::feed::cursor;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::limits::LISTS_MAX;

/// Number of bytes at which a piece is sent.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum bytes of an answer in memory: a piece, with the page of posts that exceeds it and the last post of that page.
const ANSWER_BYTES: usize = 512 << 10;

/// Maximum number of sources that are read together.
const SOURCES_AT_ONCE: usize = 1_000;

/// Handles `GET /v1/users/{user}/data`.
pub(in crate::http) async fn read(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let user = user(&request)?;
    let account = engine.account(&user)?;
    // The walk holds the reservation until the client has the last piece.
    let reservation = Turn::of(&request)?.answer(ANSWER_BYTES)?;
    let mut walk = Walk {
        steps: steps(&engine, &user, &account),
        engine: engine.clone(),
        user,
        has_item: false,
        unreadable: Vec::new(),
        _reservation: reservation,
    };
    // A failure in the first piece is returned as a refusal.
    let first = walk.next().await?.unwrap_or_default();
    let mut response = HttpResponse::Ok();
    response.content_type(ContentType::json());
    if *request.method() == Method::HEAD {
        // A stream would be read completely without being sent. An empty stream leaves the length open, as in the answer to GET.
        return Ok(response.streaming(stream::empty::<io::Result<Bytes>>()));
    }
    let rest = stream::try_unfold(walk, async |mut walk| match walk.next().await {
        Ok(piece) => Ok(piece.map(|piece| (piece, walk))),
        Err(cause) => {
            // Closes the connection within the object, so that no client accepts an incomplete object.
            warn!(user = walk.user.as_str(), "cannot read all data of a user: {cause}");
            Err(io::Error::other(cause))
        }
    });
    let pieces = stream::once(ready(Ok(first))).chain(rest);
    Ok(response.streaming(pieces))
}

/// Reads a maximum number of sources of a list that were added before an instant, newest first.
type ReadSources = Box<dyn Fn(&Engine, &SourceId, UnixMicros, usize) -> Vec<Listed>>;

/// A part of the object.
enum Step {
    Text(String),
    /// The sources of a list from before an instant, without the enclosing brackets.
    Sources(ReadSources, UnixMicros),
    /// The posts below a position, without the enclosing brackets.
    Posts(Position),
    /// The posts that could not be read, and the end.
    End,
}

/// The object on its way to a client.
struct Walk {
    engine: Engine,
    user: SourceId,
    steps: VecDeque<Step>,
    /// True if the current array has an item, so that a comma comes before the next one.
    has_item: bool,
    unreadable: Vec<PostId>,
    _reservation: Option<Reservation>,
}

fn steps(engine: &Engine, user: &SourceId, account: &Account) -> VecDeque<Step> {
    let Account { last_seen, tokens_not_before, marker, kept } = account;
    let kept_posts = |KeptPosts { source, since, hidden, published_from, published_until }: &KeptPosts| {
        json!({
            "source": source.as_str(),
            "since": since.to_string(),
            "hidden": hidden,
            "published_from": published_from.map(|at| at.to_string()),
            "published_until": published_until.to_string(),
        })
    };
    let mut head = json!({
        "user": user.as_str(),
        "last_seen": last_seen.map(|at| at.to_string()),
        "tokens_not_before": tokens_not_before.map(|at| at.to_string()),
        "rules": answer::rules(&engine.rules(user)),
        "marker": marker.map(|marker| cursor::encode(marker.at)),
        "kept": kept.iter().map(kept_posts).collect::<Vec<_>>(),
    })
    .to_string();
    // Remove the end of the object, to append further fields.
    head.pop();
    let mut steps = VecDeque::from([Step::Text(head)]);
    let mut list = |name: &str, read: ReadSources| {
        steps.push_back(Step::Text(format!(r#","{name}":["#)));
        steps.push_back(Step::Sources(read, UnixMicros(i64::MAX)));
        steps.push_back(Step::Text("]".to_owned()));
    };
    list("following", Box::new(Engine::following));
    list("hidden_following", Box::new(Engine::hidden_following));
    list("followers", Box::new(Engine::followers));
    list("mutes", Box::new(|engine, user, before, max| engine.silenced(user, MuteOrBlock::Mute, before, max)));
    list("blocks", Box::new(|engine, user, before, max| engine.silenced(user, MuteOrBlock::Block, before, max)));
    steps.push_back(Step::Text(r#","lists":["#.to_owned()));
    for (nth, (name, _)) in engine.lists(user, None, LISTS_MAX).into_iter().enumerate() {
        let comma = if nth > 0 { "," } else { "" };
        steps.push_back(Step::Text(format!(r#"{comma}{{"name":"{}","members":["#, name.as_str())));
        // The list may have been deleted meanwhile.
        let members = move |engine: &Engine, user: &SourceId, before, max| {
            engine.members(user, &name, before, max).unwrap_or_default()
        };
        steps.push_back(Step::Sources(Box::new(members), UnixMicros(i64::MAX)));
        steps.push_back(Step::Text("]}".to_owned()));
    }
    steps.push_back(Step::Text(r#"],"posts":["#.to_owned()));
    steps.push_back(Step::Posts(Position::MAX));
    steps.push_back(Step::End);
    steps
}

impl Walk {
    /// Returns the next piece, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut json = String::new();
        while json.len() < PIECE_BYTES
            && let Some(step) = self.steps.pop_front()
        {
            self.push(&mut json, step).await?;
        }
        Ok(Some(json).filter(|json| !json.is_empty()).map(Bytes::from))
    }

    /// Returns the separator before the next item of the current array.
    fn comma(&mut self) -> &'static str {
        if std::mem::replace(&mut self.has_item, true) { "," } else { "" }
    }

    // Ids and times contain no character that JSON escapes. Writing to a `String` cannot fail.
    async fn push(&mut self, json: &mut String, step: Step) -> Result<(), Error> {
        match step {
            Step::Text(text) => {
                json.push_str(&text);
                self.has_item = false;
            }
            Step::Sources(read, before) => {
                let found = read(&self.engine, &self.user, before, SOURCES_AT_ONCE);
                for Listed { id, shown, .. } in &found {
                    let _ = write!(json, r#"{}{{"id":"{id}","since":"{shown}"}}"#, self.comma());
                }
                if let Some(last) = found.last().filter(|_| found.len() == SOURCES_AT_ONCE) {
                    self.steps.push_front(Step::Sources(read, last.since));
                }
            }
            Step::Posts(below) => {
                let page = self.engine.posts_of_author(&self.user, below).await?;
                for post in page.posts {
                    json.push_str(self.comma());
                    json.push_str(post.json());
                }
                self.unreadable.extend(page.unreadable);
                page.next.into_iter().for_each(|next| self.steps.push_front(Step::Posts(next)));
            }
            Step::End => {
                // After an erasure, all pages are empty. The object would then be incomplete, so this fails.
                self.engine.account(&self.user)?;
                json.push_str(r#"],"unreadable":"#);
                answer::push_ids(json, &self.unreadable);
                json.push('}');
            }
        }
        Ok(())
    }
}
