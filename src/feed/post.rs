//! Posts: the draft that an author submits, and the post that the engine stores.
//!
//! Responsible for:
//! - encoding a post to JSON once, so that pages and live events are assembled by copying;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::clock::UnixMicros;
pub use crate::feed::body::{Body, BodyError};
use crate::feed::kind::Kind;
use crate::feed::position::Position;
use crate::feed::record::PostRecord;
use crate::id::{ExternalId, PostId, SourceId, SourceSlot};
use crate::limits::POST_TAGS_MAX;

/// A post as its author submits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// The id that the author assigned. Publishing the same id and content again changes nothing. It is not stored here: a published post
    /// has a position.
    #[serde(skip)]
    pub id: Option<PostId>,
    /// The id of the post in another system, from which its id is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<ExternalId>,
    /// The publishing user.
    pub author: SourceId,
    /// The publish time, if it is not the present. It is not stored here either.
    #[serde(skip)]
    pub published_at: Option<UnixMicros>,
    /// The kind of the entry.
    #[serde(default, skip_serializing_if = "Kind::is_post")]
    pub kind: Kind,
    /// The content, as JSON.
    pub body: Body,
    /// The tags of the post, as sources, without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<SourceId>,
    /// The topic of the post, as a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<SourceId>,
    /// The reposted post, if this is a repost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_of: Option<PostId>,
    /// The original post, if the reposted one is itself a repost and the author may see it. It is determined when the post is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<PostId>,
    /// The post to which this one replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<PostId>,
    /// The author of that post, if it was known when this one was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<SourceId>,
    /// If this is a repost: the reposts of its id that were published before it. From now on they repeat the original post, as they would if
    /// they had been published later. They are determined when this post is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_reposts: Vec<EarlierRepost>,
}

/// A repost that was published before the post that it names, as it was when that post was published. A node may have it in the archive only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierRepost {
    /// Its position in feeds.
    pub at: Position,
    /// Its author, then its tags and its topic in any order.
    pub sources: Vec<SourceId>,
    /// True if it is hidden.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl Draft {
    /// Creates a draft by `author` with `body` and nothing else.
    pub fn new(author: SourceId, body: Body) -> Self {
        Self {
            id: None,
            external_id: None,
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
            earlier_reposts: Vec::new(),
        }
    }

    /// Returns the draft with the id that its external id determines, if it has one.
    #[must_use]
    pub fn identified(mut self) -> Self {
        self.id = self.id.or_else(|| self.external_id.as_ref().map(ExternalId::post_id));
        self
    }

    /// Validates the ids, the tags and the topic: the id is that of the external id, tags and topic have the right kind, there are no duplicate
    /// tags, and not too many.
    ///
    /// # Errors
    /// Returns a description of the first violation.
    pub fn check(&self) -> Result<(), String> {
        if self.tags.len() > POST_TAGS_MAX {
            return Err(format!("a post may have at most {POST_TAGS_MAX} tags, this one has {}", self.tags.len()));
        }
        for (nth, tag) in self.tags.iter().enumerate() {
            if tag.tag_name().is_none() || self.tags[..nth].contains(tag) {
                return Err(format!("{tag} is not a tag, or is a duplicate"));
            }
        }
        match &self.topic {
            Some(topic) if topic.topic_name().is_none() => Err(format!("{topic} is not a topic")),
            _ => self.check_ids(),
        }
    }

    /// Validates that a post with an external id has no other id than the one that is computed from it.
    ///
    /// # Errors
    /// Returns a message with the id that it must have.
    pub fn check_ids(&self) -> Result<(), String> {
        let (Some(id), Some(external_id)) = (self.id, &self.external_id) else { return Ok(()) };
        let computed = external_id.post_id();
        if id != computed {
            return Err(format!("a post with the external id {external_id} has the id {computed}, not {id}"));
        }
        Ok(())
    }

    /// Returns a hash that distinguishes contents, independent of id and time. It is part of the stored format: XXH3-64 over the fields,
    /// each preceded by its letter and its length.
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
        self.external_id.iter().for_each(|id| field(b'x', id.as_str().as_bytes()));
        hash.digest()
    }

    /// Returns the sources whose outboxes contain the post: its author, its tags, its topic, and the replies to the post that it answers.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + Clone {
        let replies = replies(self.reply_to, self.repost_of);
        self.named_sources().cloned().chain(replies)
    }

    /// Returns the sources that its author names: the author, the tags and the topic.
    pub fn named_sources(&self) -> impl Iterator<Item = &SourceId> + Clone {
        std::iter::once(&self.author).chain(&self.tags).chain(&self.topic)
    }
}

/// Returns the source of the replies to which a post belongs. A repost belongs to none, because it is shown only with its original.
pub fn replies(reply_to: Option<PostId>, repost_of: Option<PostId>) -> Option<SourceId> {
    reply_to.filter(|_| repost_of.is_none()).map(SourceId::replies_to)
}

/// The beginning of a post as JSON, up to its id.
const ID: &str = r#"{"id":""#;

/// The JSON between the id and the external id of a post that has one.
const EXTERNAL_ID: &str = r#","external_id":""#;

/// A source of a post, by its slot and its id.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The identifier inside this process.
    pub slot: SourceSlot,
    /// The id of the source.
    pub id: SourceId,
}

/// A post as the engine stores it. It is immutable: an edit creates another one.
#[derive(Clone, Debug)]
pub struct Post {
    /// The position of the post in feeds.
    pub position: Position,
    /// The time of acceptance. It increases from post to post, whatever their publish times are.
    pub accepted_at: UnixMicros,
    /// The kind of the entry.
    pub kind: Kind,
    /// True while the post is excluded from every feed; an edit can show it again.
    pub hidden: bool,
    /// The time of the last change of the body.
    pub edited_at: Option<UnixMicros>,
    /// The reposted post. If that one is a repost which the author may see, it is the original post instead.
    pub repost_of: Option<PostId>,
    /// The post to which this one replies.
    pub reply_to: Option<PostId>,
    /// The author of that post, if that post is known.
    pub answered: Option<Box<Membership>>,
    /// The [`Draft::fingerprint`] of the content as it was first published, whatever edits followed.
    pub fingerprint: u64,
    /// The author, the tags, the topic and the replies to the post that it answers, in this order.
    sources: Box<[Membership]>,
    /// The whole post, encoded as JSON.
    json: Box<str>,
    /// The byte range of the body in `json`.
    body: Range<u32>,
}

impl Post {
    /// Creates a post from a published draft. Its sources have no slots yet: [`Post::join`] assigns them.
    pub fn new(position: Position, draft: &Draft, accepted_at: UnixMicros) -> Self {
        let sources = draft.sources().map(|id| Membership { slot: SourceSlot::NONE, id }).collect();
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
        post.encode(draft.body.as_str(), draft.external_id.as_ref().map(ExternalId::as_str));
        post
    }

    /// Assigns slots to its sources, and to the author to whom it replies.
    pub fn join(&mut self, slot: impl Fn(&SourceId) -> SourceSlot) {
        for source in self.sources.iter_mut().chain(self.answered.as_deref_mut()) {
            source.slot = slot(&source.id);
        }
    }

    /// Restores a post from a stored `PostRecord`. `sources` are those of the record, in the same order.
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
        post.encode(record.body.as_str(), record.external_id.as_ref().map(ExternalId::as_str));
        post
    }

    /// Returns the same post after an edit.
    #[must_use]
    pub fn edited(&self, body: Option<&Body>, hidden: Option<bool>, at: UnixMicros) -> Self {
        let mut post = self.clone();
        post.hidden = hidden.unwrap_or(self.hidden);
        if body.is_some() {
            post.edited_at = Some(at);
        }
        post.encode(body.map_or(self.body(), Body::as_str), self.external_id());
        post
    }

    /// Returns the same post as a repost of `origin`.
    #[must_use]
    pub fn repeating(&self, origin: PostId) -> Self {
        let mut post = Self { repost_of: Some(origin), ..self.clone() };
        post.encode(self.body(), self.external_id());
        post
    }

    /// Returns the same post as a reply to a post of `author`.
    #[must_use]
    pub fn answering(&self, author: Membership) -> Self {
        Self { answered: Some(Box::new(author)), ..self.clone() }
    }

    /// Returns the id of the post.
    pub fn id(&self) -> PostId {
        self.position.id
    }

    /// Returns the id that another system gave to it. Only its JSON contains it, so that posts without one need no memory for it.
    pub fn external_id(&self) -> Option<&str> {
        let (_, rest) = self.json.strip_prefix(ID)?.split_once('"')?;
        rest.strip_prefix(EXTERNAL_ID)?.split_once('"').map(|(external, _)| external)
    }

    /// Returns the author of the post.
    pub fn author(&self) -> &Membership {
        &self.sources[0]
    }

    /// Returns the author, the tags, the topic and the replies to the post that it answers, in this order.
    pub fn sources(&self) -> &[Membership] {
        &self.sources
    }

    /// Returns the replies to the post that it answers, as a source. Posts that earlier versions archived have none.
    pub fn replies(&self) -> Option<&Membership> {
        self.sources.last().filter(|last| self.reply_to.is_some() && last.id.replied_post() == self.reply_to)
    }

    /// Returns the content, as JSON.
    pub fn body(&self) -> &str {
        &self.json[self.body.start as usize..self.body.end as usize]
    }

    /// Returns the whole post as JSON, which was encoded when the post was created.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the bytes that the post occupies, without the overhead of the allocator.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[Membership]>(&self.sources) + self.json.len()
    }

    fn encode(&mut self, body: &str, external_id: Option<&str>) {
        // Encodes into a scratch buffer first, so that the stored text is allocated with its exact size.
        thread_local!(static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) });
        SCRATCH.with_borrow_mut(|json| {
            json.clear();
            self.encode_head(json, external_id);
            let start = json.len();
            json.push_str(body);
            self.body = start as u32..json.len() as u32;
            self.encode_tail(json);
            self.json = json.as_str().into();
        });
    }

    // Ids and times contain no character that JSON escapes. Writing to a `String` cannot fail.
    fn encode_head(&self, json: &mut String, external_id: Option<&str>) {
        let Position { published_at, id } = self.position;
        let (author, kind) = (&self.author().id, self.kind.as_str());
        // Appends piece by piece: `write!` would take several times as long.
        json.push_str(ID);
        json.push_str(itoa::Buffer::new().format(id.0));
        if let Some(external_id) = external_id {
            json.push('"');
            json.push_str(EXTERNAL_ID);
            json.push_str(external_id);
        }
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
mod tests;
