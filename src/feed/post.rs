//! Posts: as an author hands them in, and as the engine keeps them.
//!
//! Responsible for:
//! - encoding a post to JSON once, so that pages and live events are assembled by copying.
//!
//! Not responsible for:
//! - what a body may be (`feed::body`), ids and times of posts that come without (`runtime::monotonic_clock`), storing posts (`state::posts`).

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::clock::UnixMicros;
pub use crate::feed::body::{Body, BodyError};
use crate::feed::position::Position;
use crate::feed::record::PostRecord;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::POST_TAGS_MAX;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something an author published.
    #[default]
    Post,
    /// A recommended user.
    User,
    /// An advertisement.
    Ad,
}

impl Kind {
    /// Whether this is the usual kind.
    pub fn is_post(&self) -> bool {
        *self == Self::Post
    }

    /// As written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::User => "user",
            Self::Ad => "ad",
        }
    }
}

/// A post as its author hands it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// The author's own id for it. Publishing the same id and content again changes nothing. Not stored: a published post has
    /// a position.
    #[serde(skip)]
    pub id: Option<PostId>,
    /// Who publishes.
    pub author: SourceId,
    /// When it was published, if not now. Not stored either.
    #[serde(skip)]
    pub published_at: Option<UnixMicros>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Kind::is_post")]
    pub kind: Kind,
    /// Its content.
    pub body: Body,
    /// The tags it joins, as sources, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<SourceId>,
    /// The topic it joins, as a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<SourceId>,
    /// The post it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_of: Option<PostId>,
    /// The post that the repeated one repeats itself, if it does, and the author may see the repeated one. Found out when it is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<PostId>,
    /// The post it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<PostId>,
    /// Who published that, if it was known when this one was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<SourceId>,
}

impl Draft {
    /// A post of `author` with `body` and nothing else.
    pub fn new(author: SourceId, body: Body) -> Self {
        Self {
            id: None,
            author,
            published_at: None,
            kind: Kind::Post,
            body,
            tags: Vec::new(),
            topic: None,
            repost_of: None,
            origin: None,
            reply_to: None,
            answered: None,
        }
    }

    /// Checks what is said of tags and topic: that they are such, each once, and not too many.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.tags.len() > POST_TAGS_MAX {
            return Err(format!("{} tags are more than the {POST_TAGS_MAX} a post may have", self.tags.len()));
        }
        for (nth, tag) in self.tags.iter().enumerate() {
            if tag.tag_name().is_none() || self.tags[..nth].contains(tag) {
                return Err(format!("{tag} is no tag, or stands twice"));
            }
        }
        match &self.topic {
            Some(topic) if topic.topic_name().is_none() => Err(format!("{topic} is no topic")),
            _ => Ok(()),
        }
    }

    /// A number that tells contents apart, whatever the id and time. Part of the stored format: XXH3-64 over the fields,
    /// each under its letter and length.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        let mut field = |letter: u8, bytes: &[u8]| {
            hash.update(&[letter]);
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(b'a', self.author.as_str().as_bytes());
        field(b'k', self.kind.as_str().as_bytes());
        field(b'b', self.body.as_str().as_bytes());
        self.tags.iter().for_each(|tag| field(b't', tag.as_str().as_bytes()));
        self.topic.iter().for_each(|topic| field(b'o', topic.as_str().as_bytes()));
        self.repost_of.iter().for_each(|id| field(b'r', &id.0.to_le_bytes()));
        self.reply_to.iter().for_each(|id| field(b'y', &id.0.to_le_bytes()));
        hash.digest()
    }

    /// The sources whose outboxes the post joins: its author, its tags, its topic.
    pub fn sources(&self) -> impl Iterator<Item = &SourceId> + Clone {
        std::iter::once(&self.author).chain(&self.tags).chain(&self.topic)
    }
}

/// A source a post belongs to, under both its names.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Inside this process.
    pub slot: SourceSlot,
    /// Outside.
    pub id: SourceId,
}

/// A post as the engine keeps it. Never changed: an edit makes another one.
#[derive(Clone, Debug)]
pub struct Post {
    /// Where it stands in feeds.
    pub position: Position,
    /// When it was accepted: increases from post to post, whatever times they carry.
    pub accepted_at: UnixMicros,
    /// What it is.
    pub kind: Kind,
    /// Kept out of every feed until it is shown again.
    pub hidden: bool,
    /// When its body was last changed.
    pub edited_at: Option<UnixMicros>,
    /// The post it repeats, which repeats none.
    pub repost_of: Option<PostId>,
    /// The post it answers.
    pub reply_to: Option<PostId>,
    /// Who published that, if it is known.
    pub answered: Option<Box<Membership>>,
    /// [`Draft::fingerprint`] of what was first published, whatever was edited since.
    pub fingerprint: u64,
    /// Its author, its tags, its topic, in this order.
    sources: Box<[Membership]>,
    /// The whole post as JSON.
    json: Box<str>,
    /// Where in `json` the body stands.
    body: Range<u32>,
}

impl Post {
    /// A post from what was published. Its sources have no slots yet: [`Post::join`] gives them.
    pub fn new(position: Position, draft: &Draft, accepted_at: UnixMicros) -> Self {
        let sources = draft.sources().map(|id| Membership { slot: SourceSlot::NONE, id: id.clone() }).collect();
        let mut post = Self {
            position,
            accepted_at,
            kind: draft.kind,
            hidden: false,
            edited_at: None,
            repost_of: draft.origin.or(draft.repost_of),
            reply_to: draft.reply_to,
            answered: draft.answered.clone().map(|id| Box::new(Membership { slot: SourceSlot::NONE, id })),
            fingerprint: draft.fingerprint(),
            sources,
            json: Box::default(),
            body: 0..0,
        };
        post.encode(draft.body.as_str());
        post
    }

    /// Gives its sources, and the author it answers, their slots.
    pub fn join(&mut self, slot: impl Fn(&SourceId) -> SourceSlot) {
        for source in self.sources.iter_mut().chain(self.answered.as_deref_mut()) {
            source.slot = slot(&source.id);
        }
    }

    /// A post that was kept somewhere, as of [`PostRecord`]. `sources` are those of the record, in that order.
    pub fn restored<S>(record: &PostRecord<S>, sources: Box<[Membership]>, answered: Option<Membership>) -> Self {
        let mut post = Self {
            position: record.at,
            accepted_at: record.accepted_at.unwrap_or(record.at.published_at),
            kind: record.kind,
            hidden: record.hidden,
            edited_at: record.edited_at,
            repost_of: record.repost_of,
            reply_to: record.reply_to,
            answered: answered.map(Box::new),
            fingerprint: record.fingerprint,
            sources,
            json: Box::default(),
            body: 0..0,
        };
        post.encode(record.body.as_str());
        post
    }

    /// The same post after an edit.
    #[must_use]
    pub fn edited(&self, body: Option<&Body>, hidden: Option<bool>, at: UnixMicros) -> Self {
        let mut post = self.clone();
        post.hidden = hidden.unwrap_or(self.hidden);
        if body.is_some() {
            post.edited_at = Some(at);
        }
        post.encode(body.map_or(self.body(), Body::as_str));
        post
    }

    /// Its id.
    pub fn id(&self) -> PostId {
        self.position.id
    }

    /// Who published it.
    pub fn author(&self) -> &Membership {
        &self.sources[0]
    }

    /// Its author, its tags, its topic.
    pub fn sources(&self) -> &[Membership] {
        &self.sources
    }

    /// Its content, as JSON.
    pub fn body(&self) -> &str {
        &self.json[self.body.start as usize..self.body.end as usize]
    }

    /// The whole post as JSON, encoded when it was made.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Bytes it takes, without the allocator's own.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[Membership]>(&self.sources) + self.json.len()
    }

    fn encode(&mut self, body: &str) {
        // Written aside, to be kept in just as many bytes as it has.
        thread_local!(static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) });
        SCRATCH.with_borrow_mut(|json| {
            json.clear();
            self.encode_head(json);
            let start = json.len();
            json.push_str(body);
            self.body = start as u32..json.len() as u32;
            self.encode_tail(json);
            self.json = json.as_str().into();
        });
    }

    // Ids and times hold no character that JSON escapes. Writing to a `String` cannot fail.
    fn encode_head(&self, json: &mut String) {
        let Position { published_at, id } = self.position;
        let (author, kind) = (&self.author().id, self.kind.as_str());
        // Piece by piece: `write!` would take several times as long.
        json.push_str(r#"{"id":""#);
        json.push_str(itoa::Buffer::new().format(id.0));
        json.push_str(r#"","author":""#);
        json.push_str(author.as_str());
        json.push_str(r#"","published_at":""#);
        let _ = write!(json, "{published_at}");
        json.push_str(r#"","kind":""#);
        json.push_str(kind);
        json.push_str(r#"","body":"#);
    }

    fn encode_tail(&self, json: &mut String) {
        let mut separator = r#","tags":["#;
        for tag in self.sources[1..].iter().filter_map(|source| source.id.tag_name()) {
            let _ = write!(json, r#"{separator}"{tag}""#);
            separator = ",";
        }
        if separator == "," {
            json.push(']');
        }
        if let Some(topic) = self.sources[1..].iter().find_map(|source| source.id.topic_name()) {
            let _ = write!(json, r#","topic":"{topic}""#);
        }
        if let Some(id) = self.repost_of {
            json.push_str(r#","repost_of":""#);
            json.push_str(itoa::Buffer::new().format(id.0));
            json.push('"');
        }
        if let Some(id) = self.reply_to {
            json.push_str(r#","reply_to":""#);
            json.push_str(itoa::Buffer::new().format(id.0));
            json.push('"');
        }
        json.push_str(if self.hidden { r#","hidden":true"# } else { r#","hidden":false"# });
        if let Some(at) = self.edited_at {
            let _ = write!(json, r#","edited_at":"{at}""#);
        }
        json.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    fn draft(body: &str) -> Draft {
        Draft::new(SourceId::new("ann").unwrap(), Body::new(body).unwrap())
    }

    fn post(draft: &Draft) -> Post {
        Post::new(at(1_000_000, 7), draft, UnixMicros(1_000_000))
    }

    #[test]
    fn a_post_is_encoded_with_its_body_as_it_came() {
        let mut draft = draft(r#" {"b": 1.0,"a":"\u00e9"} "#);
        assert_eq!(
            post(&draft).json(),
            r#"{"id":"7","author":"ann","published_at":"1970-01-01T00:00:01Z","kind":"post","body":{"b": 1.0,"a":"\u00e9"},"hidden":false}"#
        );
        draft.tags = ["rust", "news"].map(|tag| SourceId::tag(tag).unwrap()).into();
        draft.topic = Some(SourceId::topic("42").unwrap());
        draft.repost_of = Some(PostId(3));
        draft.reply_to = Some(PostId(4));
        let post = post(&draft).edited(Some(&Body::new("[]").unwrap()), Some(true), UnixMicros(2_000_000));
        assert_eq!(
            post.json(),
            r#"{"id":"7","author":"ann","published_at":"1970-01-01T00:00:01Z","kind":"post","body":[],"tags":["rust","news"],"topic":"42","repost_of":"3","reply_to":"4","hidden":true,"edited_at":"1970-01-01T00:00:02Z"}"#
        );
        assert_eq!(post.body(), "[]");
        assert_eq!(post.fingerprint, draft.fingerprint());
    }

    #[test]
    fn hiding_is_no_edit() {
        let post = post(&draft("1")).edited(None, Some(true), UnixMicros(5));
        assert_eq!((post.hidden, post.edited_at, post.body()), (true, None, "1"));
    }

    #[test]
    fn an_author_called_like_a_tag_prefix_gets_no_tags() {
        assert!(!post(&draft("1")).json().contains("tags"));
    }

    #[test]
    fn fingerprints_tell_fields_apart() {
        let plain = draft("1");
        let mut variants = vec![plain.clone(), draft("2")];
        variants.push(Draft { kind: Kind::Ad, ..plain.clone() });
        variants.push(Draft { tags: vec![SourceId::tag("x").unwrap()], ..plain.clone() });
        variants.push(Draft { topic: Some(SourceId::topic("x").unwrap()), ..plain.clone() });
        variants.push(Draft { repost_of: Some(PostId(1)), ..plain.clone() });
        variants.push(Draft { reply_to: Some(PostId(1)), ..plain.clone() });
        let distinct: std::collections::BTreeSet<u64> = variants.iter().map(Draft::fingerprint).collect();
        assert_eq!(distinct.len(), variants.len());
        let dated = Draft { id: Some(PostId(9)), published_at: Some(UnixMicros(1)), ..plain.clone() };
        assert_eq!(dated.fingerprint(), plain.fingerprint());
    }
}
