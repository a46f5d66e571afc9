//! The naive oracle: posts in a vector, edges in a set; every read filters everything and sorts.

use std::collections::{BTreeMap, BTreeSet};

use tidewire::id::PostId;

#[derive(Clone, Debug)]
pub struct NaivePost {
    pub id: u64,
    pub published_at: i64,
    pub author: String,
    /// The author, then tags and topic, as sources.
    pub sources: Vec<String>,
    pub body: String,
    pub hidden: bool,
    pub deleted: bool,
}

#[derive(Default, Debug)]
pub struct Oracle {
    pub posts: Vec<NaivePost>,
    pub edges: BTreeSet<(String, String)>,
    pub celebrity: BTreeMap<String, bool>,
}

/// An entry as the oracle expects it: the post and the followed sources that brought it.
pub type Expected = (PostId, String, Vec<String>);

impl Oracle {
    fn entries(&self, shows: impl Fn(&NaivePost) -> Option<Vec<String>>) -> Vec<Expected> {
        let mut posts: Vec<&NaivePost> = self.posts.iter().filter(|post| !post.deleted && !post.hidden).collect();
        posts.sort_by_key(|post| (post.published_at, post.id));
        let entry = |post: &NaivePost| shows(post).map(|via| (PostId(post.id), post.body.clone(), via));
        posts.into_iter().rev().filter_map(entry).collect()
    }

    /// A reader's whole feed, newest first.
    pub fn feed(&self, reader: &str) -> Vec<Expected> {
        self.entries(|post| {
            let followed = |source: &&String| self.edges.contains(&(reader.to_owned(), (*source).clone()));
            let via: Vec<String> = post.sources.iter().filter(followed).cloned().collect();
            (post.author == reader || !via.is_empty()).then_some(via)
        })
    }

    /// A source's own page, newest first.
    pub fn own_page(&self, source: &str) -> Vec<Expected> {
        self.entries(|post| post.sources.iter().any(|of| of == source).then(Vec::new))
    }

    pub fn followers(&self, source: &str) -> usize {
        self.edges.iter().filter(|(_, followed)| followed == source).count()
    }
}
