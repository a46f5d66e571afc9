//! Edits of archived posts that the archive of a cluster does not have yet.

use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::post::{Body, Post};
use crate::id::PostId;
use crate::storage::sequence::Sequence;

/// Bytes counted for an edit besides its body.
const EDIT_BYTES: usize = 128;

/// The merged edits of one post. It has no body of its own if this node has the post in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingEdit {
    /// The last body, and the time of that edit.
    pub(super) body: Option<(Body, UnixMicros)>,
    pub(super) hidden: Option<bool>,
    /// The record of the last edit. None while it is being applied.
    pub(super) at: Option<Sequence>,
    /// The bytes of the last body, which a node without the post retains.
    pub(super) body_bytes: usize,
}

impl PendingEdit {
    /// Returns the post after these edits.
    pub fn applied_to(&self, post: &Post) -> Post {
        let (body, at) = self.body.as_ref().map_or((None, post.accepted_at), |(body, at)| (Some(body), *at));
        post.edited(body, self.hidden, at)
    }

    fn bytes(&self) -> usize {
        EDIT_BYTES + self.body_bytes
    }
}

/// The edits of all posts.
#[derive(Default)]
pub(super) struct PendingEdits {
    by_post: FxHashMap<PostId, PendingEdit>,
    bytes: usize,
}

impl PendingEdits {
    pub(super) fn get(&self, id: PostId) -> Option<&PendingEdit> {
        self.by_post.get(&id)
    }

    /// Returns the posts whose edits are retained here, not only counted.
    pub(super) fn kept(&self) -> impl Iterator<Item = PostId> {
        let kept = self.by_post.iter().filter(|(_, edit)| edit.body.is_some() || edit.hidden.is_some());
        kept.map(|(id, _)| *id)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of all edits including this one.
    pub(super) fn bytes_with(&self, id: PostId, body: Option<&Body>) -> usize {
        let before = self.by_post.get(&id);
        let body_bytes = body.map_or(before.map_or(0, |before| before.body_bytes), |body| body.as_str().len());
        self.bytes - before.map_or(0, PendingEdit::bytes) + EDIT_BYTES + body_bytes
    }

    /// Counts an edit of a post that this node has in memory.
    pub(super) fn count(&mut self, id: PostId, body: Option<&Body>) {
        self.bytes = self.bytes_with(id, body);
        let edit = self.by_post.entry(id).or_default();
        if let Some(body) = body {
            edit.body_bytes = body.as_str().len();
        }
        edit.at = None;
    }

    /// Retains an edit of a post that this node does not have in memory.
    pub(super) fn keep(&mut self, id: PostId, body: Option<&Body>, hidden: Option<bool>, at: UnixMicros) {
        self.count(id, body);
        let edit = self.by_post.entry(id).or_default();
        if let Some(body) = body {
            edit.body = Some((body.clone(), at));
        }
        edit.hidden = hidden.or(edit.hidden);
    }

    /// Notes the record of the last edit of a post, if there is an edit.
    pub(super) fn set_record(&mut self, id: PostId, at: Sequence) {
        if let Some(edit) = self.by_post.get_mut(&id) {
            edit.at = Some(at);
        }
    }

    pub(super) fn remove(&mut self, id: PostId) {
        self.bytes -= self.by_post.remove(&id).map_or(0, |edit| edit.bytes());
    }

    /// Returns the posts whose last edit is by a record up to this one.
    pub(super) fn up_to(&self, through: Sequence) -> Vec<PostId> {
        let is_passed = |edit: &PendingEdit| edit.at.is_some_and(|at| at <= through);
        self.by_post.iter().filter(|(_, edit)| is_passed(edit)).map(|(id, _)| *id).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
