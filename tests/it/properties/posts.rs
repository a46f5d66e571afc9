//! Publishing, editing and deleting posts in the engine and the oracle.

use std::time::Duration;

use tidewire::clock::UnixMicros;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};

use crate::properties::ops::{PEOPLE, Published, TAGS};
use crate::properties::{Run, START};
use testkit::oracle::NaivePost;
use testkit::world::id;

impl Run {
    fn draft(&self, post: &Published, body: &str) -> Draft {
        let tags = (0..TAGS.len()).filter(|nth| post.tags & (1 << nth) != 0);
        // What repeats or answers itself is refused, and what repeats a repost of itself.
        let repeats = |id: u64| self.oracle.repeated_by(PEOPLE[post.author], id);
        let is_other = |id: &PostId| post.own_id.is_none_or(|own_id| id.0 != own_id && repeats(id.0) != Some(own_id));
        Draft {
            id: post.own_id.map(PostId),
            // Whole seconds: many posts share their time.
            published_at: post.ago.map(|ago| UnixMicros(START - ago * 1_000_000)),
            tags: tags.map(|nth| SourceId::tag(TAGS[nth]).unwrap()).collect(),
            topic: post.topic.then(|| SourceId::topic("42").unwrap()),
            repost_of: post.repost_of.and_then(|target| self.target(target)).filter(is_other),
            reply_to: post.reply_to.and_then(|target| self.target(target)).filter(is_other),
            ..Draft::new(id(PEOPLE[post.author]), Body::new(body).unwrap())
        }
    }

    pub async fn publish(&mut self, post: Published) {
        self.clock.advance(Duration::from_micros(1));
        let body = self.oracle.posts.len().to_string();
        let draft = self.draft(&post, &body);
        let taken = draft.id.and_then(|own_id| self.oracle.posts.iter().find(|post| post.id == own_id.0));
        if let Some(taken) = taken {
            let code = if taken.deleted { "post_deleted" } else { "post_id_taken" };
            assert_eq!(self.engine.publish(draft, true).await.unwrap_err().code(), code);
            return;
        }
        let wait = post.wait;
        let published = self.engine.publish(draft.clone(), wait).await.unwrap();
        assert!(published.created);
        let post = published.post;
        if draft.id.is_none() && draft.published_at.is_none() {
            let last = std::mem::replace(&mut self.last_minted, post.position);
            // The clock is off by less than what is waited for.
            assert!(post.position.published_at > last.published_at, "{:?} after {last:?}", post.position);
            assert!(post.id() > last.id, "whatever the clock does");
        }
        let repeated = draft.repost_of.and_then(|id| self.oracle.repeated_by(draft.author.as_str(), id.0));
        let answered = draft.reply_to.and_then(|id| self.oracle.post(id.0)).map(|post| post.author.clone());
        let arrived = self.oracle.arrives();
        // Whether an answer shows may depend on who published what it answers.
        let answers = |other: &&mut NaivePost| other.reply_to == Some(post.id().0) && other.answered.is_none();
        for answer in self.oracle.posts.iter_mut().filter(answers) {
            answer.arrived = arrived;
            answer.answered = Some(post.author().id.to_string());
        }
        if let Some(origin) = repeated.or(draft.repost_of.map(|id| id.0)) {
            self.oracle.redirect(draft.author.as_str(), post.id().0, origin, arrived);
        }
        self.oracle.posts.push(NaivePost {
            arrived,
            id: post.id().0,
            published_at: post.position.published_at.0,
            author: draft.author.to_string(),
            sources: draft.sources().map(|source| source.to_string()).collect(),
            body,
            repost_of: repeated.or(draft.repost_of.map(|id| id.0)),
            reply_to: draft.reply_to.map(|id| id.0),
            answered,
            ..NaivePost::default()
        });
        let again = Draft { id: Some(post.id()), ..draft };
        assert!(!self.engine.publish(again, wait).await.unwrap().created);
    }

    pub async fn edit(&mut self, post: usize, body: Option<&str>, hidden: Option<bool>) {
        let arrives = self.oracle.arrives();
        let Some(post) = self.oracle.posts.get_mut(post) else { return };
        let edited = self.engine.edit(PostId(post.id), body.map(|body| Body::new(body).unwrap()), hidden).await;
        assert_eq!(edited.is_err(), post.deleted);
        if post.hidden && hidden == Some(false) && !post.deleted {
            post.arrived = arrives;
        }
        post.hidden = hidden.unwrap_or(post.hidden);
        if let Some(body) = body {
            body.clone_into(&mut post.body);
        }
    }

    pub async fn delete(&mut self, nth: usize) {
        let Some((post, earlier)) = self.oracle.posts.get_mut(..=nth).and_then(<[_]>::split_last_mut) else { return };
        // An archived reply that came before its parent has that one's author only as long as that one exists.
        let has_earlier_reply = earlier.iter().any(|reply| reply.reply_to == Some(post.id));
        if self.archive.is_none() || !has_earlier_reply {
            self.engine.delete(PostId(post.id)).await.unwrap();
            post.deleted = true;
        }
    }
}
