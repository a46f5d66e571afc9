//! The reposts of a post, and the numbers of its replies and reposts.

use std::cmp::Reverse;

use super::{At, NaivePost, Of, Oracle};

impl Oracle {
    /// The reposts of a post, newest first, each with its author: as a reader sees them, or as everybody does.
    pub fn reposts_of(&self, post: u64, reader: Option<&str>) -> Vec<(String, At)> {
        let is_silenced =
            |repost: &NaivePost| reader.is_some_and(|reader| self.is_silenced(Of::Replies("", reader), repost));
        let of_post = |repost: &&NaivePost| {
            repost.repost_of == Some(post) && !repost.deleted && !repost.hidden && !is_silenced(repost)
        };
        let mut all: Vec<_> =
            self.posts.iter().filter(of_post).map(|repost| (repost.author.clone(), repost.at())).collect();
        all.sort_by_key(|(_, at)| Reverse(*at));
        all
    }

    /// Returns the numbers of replies and reposts of a post that everybody sees.
    pub fn counts(&self, post: u64) -> (usize, usize) {
        let replies = self.entries(Of::Page(&format!("replies:{post}"))).len();
        (replies, self.reposts_of(post, None).len())
    }
}
