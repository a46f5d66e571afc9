//! Comparing what the engine shows with what the oracle says.

use std::collections::BTreeSet;

use tidewire::clock::UnixMicros;
use tidewire::engine::FeedPage;
use tidewire::error::Error;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::state::explain::{Blocker, Explanation, Reason};
use tidewire::state::reader::PageRequest;
use tidewire::state::world::PostCounts;

use crate::properties::Run;
use crate::properties::ops::{LISTS, PEOPLE, REPLIED, SOURCES, source_name};
use testkit::PageCount;
use testkit::oracle::{Asked, At, ExpectedPage, Explained, Of};
use testkit::world::{entries, id};

pub fn position((time, id): At) -> Position {
    Position { published_at: UnixMicros(time), id: PostId(id) }
}

fn at(position: Position) -> At {
    (position.published_at.0, position.id.0)
}

impl Run {
    async fn fetch(&self, of: Of<'_>, asked: Asked, limit: usize) -> Result<FeedPage, Error> {
        let range = match asked {
            Asked::Newest => Range::Newest,
            Asked::Before(at) => Range::Before(position(at)),
            Asked::After(at) => Range::After(position(at)),
        };
        let request = PageRequest { range, limit };
        match of {
            Of::Home(reader) => self.engine.feed(&id(reader), request).await,
            Of::List(reader, list) => self.engine.list_feed(&id(reader), &list.parse().unwrap(), request).await,
            Of::Page(source) => self.engine.own_page(&id(source), request).await,
            Of::Mine(source) => self.engine.own_page_for_owner(&id(source), request).await,
            Of::Replies(replies, reader) => {
                let post = id(replies).replied_post().unwrap();
                self.engine.replies(post, Some(&id(reader)), request).await
            }
        }
    }

    /// Compares a page, and returns it.
    pub async fn page(&self, of: Of<'_>, asked: Asked, limit: usize) -> ExpectedPage {
        let expected = self.oracle.page(of, asked, limit);
        let fetched = self.fetch(of, asked, limit).await;
        if let (Of::List(reader, list), false) = (of, self.has_list(of)) {
            assert_eq!(fetched.unwrap_err().code(), "unknown_list", "{reader} {list}");
            return expected;
        }
        if let Of::Replies(replies, reader) = of
            && !self.is_there(replies, reader)
        {
            assert_eq!(fetched.unwrap_err().code(), "unknown_post", "{replies} {reader}");
            return ExpectedPage { items: Vec::new(), has_next: false, newest: None };
        }
        let fetched = fetched.unwrap();
        assert!(fetched.partial.is_empty());
        let (next, newest) = (fetched.page.next, fetched.page.newest.map(at));
        let page = ExpectedPage { items: entries(&fetched), has_next: next.is_some(), newest };
        assert_eq!(page, expected, "{of:?} {asked:?} {limit}");
        // Otherwise it would be the cursor itself.
        if let (Some(next), Some(last)) = (next, page.items.last()) {
            assert_eq!(at(next), last.at, "the next page begins right below the last entry");
        }
        page
    }

    /// Whether a reader may see the post whose replies these are.
    fn is_there(&self, replies: &str, reader: &str) -> bool {
        self.oracle.is_shown_to(reader, id(replies).replied_post().unwrap().0)
    }

    fn has_list(&self, of: Of<'_>) -> bool {
        let Of::List(reader, list) = of else { return false };
        self.oracle.lists.contains_key(&(reader.to_owned(), list.to_owned()))
    }

    /// Pages a feed down to its end, or up from there.
    pub async fn whole(&self, of: Of<'_>, limit: usize, upward: bool) {
        let mut asked = if upward { Asked::After((i64::MIN, 0)) } else { Asked::Newest };
        let mut met = BTreeSet::new();
        loop {
            let page = self.page(of, asked, limit).await;
            for entry in &page.items {
                assert!(met.insert(entry.post), "{of:?}: post {} twice", entry.post);
            }
            asked = match (page.items.first(), page.items.last()) {
                (Some(first), _) if upward => Asked::After(first.at),
                (_, Some(last)) if page.has_next => Asked::Before(last.at),
                _ => break,
            };
        }
        if matches!(of, Of::Replies(replies, reader) if !self.is_there(replies, reader)) {
            return;
        }
        let all = self.oracle.entries(of);
        let is_capped = self.is_capped(of);
        assert!(is_capped || met.len() == all.len(), "every entry is met");
    }

    /// Whether pages pass over entries.
    fn is_capped(&self, of: Of<'_>) -> bool {
        match of {
            Of::Home(reader) | Of::List(reader, _) => self.oracle.rules_of(reader).per_source_max.is_some(),
            Of::Page(_) | Of::Mine(_) | Of::Replies(..) => false,
        }
    }

    pub async fn explain(&self, reader: &str, post: u64) {
        let explanation = self.engine.explain(&id(reader), PostId(post)).await.unwrap();
        let expected = self.oracle.explain(reader, post);
        let reasons = explanation.reasons.iter().map(reason_text).collect();
        let (shown, is_blocked) = (explanation.shown, !explanation.blockers.is_empty());
        assert_eq!(Explained { shown, reasons, is_blocked }, expected, "{reader} {post}: {explanation:?}");
        assert_eq!(explanation.route.is_some(), shown);
        let for_reader = explanation.clone().for_reader(PostId(post));
        match self.oracle.is_there_for(reader, post) {
            true => {
                assert_eq!((for_reader.shown, &for_reader.reasons), (shown, &explanation.reasons), "{reader} {post}");
            }
            false => {
                let unknown = self.engine.explain(&id(reader), PostId(u64::MAX)).await.unwrap();
                let unknown = Explanation { blockers: vec![Blocker::Unknown(PostId(post))], ..unknown };
                assert_eq!(for_reader, unknown, "{reader} {post} as one that never was");
            }
        }
        // The promise, word by word.
        match shown {
            true => assert!(!explanation.reasons.is_empty() && !is_blocked, "{explanation:?}"),
            false => assert!(explanation.reasons.is_empty() || is_blocked, "{explanation:?}"),
        }
    }

    /// Explanations of all posts, beside the feed as the engine shows it.
    async fn explain_all(&self, reader: &str) {
        let all = self.oracle.feed(reader);
        for post in &self.oracle.posts {
            self.explain(reader, post.id).await;
            let shown = self.oracle.explain(reader, post.id).shown;
            let is_entry = all.iter().any(|entry| entry.post.0 == post.id);
            let is_listed = all.iter().any(|entry| entry.reposts.iter().any(|(_, repost)| *repost == post.id));
            let places = all.iter().any(|entry| entry.at == post.at());
            match post.repost_of {
                None => assert_eq!(shown, is_entry, "{reader} {post:?}"),
                Some(_) => assert!(shown || !(is_listed || places), "{reader} {post:?}"),
            }
        }
    }

    /// Pages the list of a post's reposts down to its end.
    pub async fn reposts(&self, post: u64, reader: Option<&str>, limit: usize) {
        let named = reader.map(id);
        let is_there = match reader {
            Some(reader) => self.oracle.is_shown_to(reader, post),
            None => self.oracle.post(post).is_some(),
        };
        let (mut met, mut before) = (Vec::new(), None);
        loop {
            let page = self.engine.reposts(PostId(post), named.as_ref(), before, limit).await;
            if !is_there {
                return assert_eq!(page.unwrap_err().code(), "unknown_post", "{post} {reader:?}");
            }
            let page = page.unwrap();
            assert!(page.items.len() == limit || page.next.is_none(), "a page is full while anything is left");
            met.extend(page.items.iter().map(|repost| (repost.user.to_string(), at(repost.at))));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(met, self.oracle.reposts_of(post, reader), "reposts of {post} for {reader:?}");
    }

    pub fn counts(&self, post: u64) {
        if self.oracle.post(post).is_some() {
            let PostCounts { replies, reposts } = self.engine.counts(PostId(post));
            assert_eq!((replies, reposts), self.oracle.counts(post), "replies and reposts of {post}");
        }
    }

    /// All posts of a source, hidden ones and reposts too, in pages of so many.
    fn all_of(&self, of: &str, limit: usize) {
        let world = &self.engine.shared().world;
        let Some(source) = world.sources.get(&id(of)) else { return };
        let (mut met, mut below, mut pages) = (Vec::new(), Position::MAX, PageCount::default());
        loop {
            pages.count();
            let page = world.posts_of_author(source.slot, below, limit, usize::MAX).unwrap();
            assert_eq!(page.unreadable, []);
            met.extend(page.posts.iter().map(|post| (at(post.position), post.body().to_owned(), post.hidden)));
            match page.next {
                Some(next) => below = next,
                None => break,
            }
        }
        let mine =
            self.oracle.posts.iter().filter(|post| post.sources.iter().any(|source| source == of) && !post.deleted);
        let mut expected: Vec<_> = mine.map(|post| (post.at(), post.body.clone(), post.hidden)).collect();
        expected.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(met, expected, "all posts of {of}");
    }

    pub async fn unread(&self, reader: &str) {
        let unread = self.engine.unread(&id(reader)).await.unwrap();
        assert_eq!((unread.entries, unread.capped), self.oracle.unread(reader), "unread of {reader}");
        assert_eq!(unread.marker.map(at), self.oracle.markers.get(reader).map(|(at, _)| *at));
    }

    /// What readers decided, as it is read back.
    fn decided(&self, reader: &str) {
        let newest = UnixMicros(i64::MAX);
        assert_eq!(self.engine.rules(&id(reader)), self.oracle.rules_of(reader));
        let names = |listed: Vec<tidewire::engine::Listed>| -> BTreeSet<String> {
            listed.into_iter().map(|listed| listed.id.to_string()).collect()
        };
        for (how, all) in [(MuteOrBlock::Mute, &self.oracle.mutes), (MuteOrBlock::Block, &self.oracle.blocks)] {
            let expected = all.iter().filter(|(by, _)| by == reader).map(|(_, source)| source.clone()).collect();
            assert_eq!(names(self.engine.silenced(&id(reader), how, newest, 100)), expected, "{how:?} of {reader}");
        }
        let mine = self.oracle.lists.iter().filter(|((of, _), _)| of == reader);
        let expected: Vec<(String, usize)> = mine.clone().map(|((_, name), all)| (name.clone(), all.len())).collect();
        let lists = self.engine.lists(&id(reader), None, 100).into_iter();
        assert_eq!(lists.map(|(name, members)| (name.as_str().to_owned(), members)).collect::<Vec<_>>(), expected);
        for ((_, name), members) in mine {
            let listed = self.engine.members(&id(reader), &name.parse().unwrap(), newest, 100).unwrap();
            assert_eq!(&names(listed), members, "{name} of {reader}");
        }
        let edges = self.oracle.edges.iter().filter(|(_, edge)| !edge.hidden).map(|(pair, _)| pair);
        let followed = edges.clone().filter(|(by, _)| by == reader).map(|(_, source)| source.clone()).collect();
        assert_eq!(names(self.engine.following(&id(reader), newest, 100)), followed);
        let followers = edges.filter(|(_, source)| source == reader).map(|(by, _)| by.clone()).collect();
        assert_eq!(names(self.engine.followers(&id(reader), newest, 100)), followers);
    }

    /// Everything there is to see.
    pub async fn everything(&self) {
        for reader in PEOPLE {
            for (limit, upward) in [(7, false), (2, false), (3, true)] {
                self.whole(Of::Home(reader), limit, upward).await;
                self.whole(Of::Mine(reader), limit, upward).await;
            }
            for list in LISTS {
                self.whole(Of::List(reader, list), 4, false).await;
                self.whole(Of::List(reader, list), 2, true).await;
            }
            self.unread(reader).await;
            self.decided(reader);
            self.explain_all(reader).await;
        }
        for source in 0..SOURCES {
            self.whole(Of::Page(&source_name(source)), 5, false).await;
            self.all_of(&source_name(source), 3);
        }
        for (nth, post) in self.oracle.posts.iter().enumerate() {
            self.counts(post.id);
            self.reposts(post.id, None, 4).await;
            self.reposts(post.id, Some(PEOPLE[nth % PEOPLE.len()]), 2).await;
        }
        for (post, reader) in REPLIED.iter().zip(PEOPLE) {
            self.whole(Of::Replies(&format!("replies:{post}"), reader), 3, false).await;
        }
    }
}

/// A reason, as the oracle writes it.
fn reason_text(reason: &Reason) -> String {
    let source = |source: &SourceId| source.to_string();
    match reason {
        Reason::Own => "own".to_owned(),
        Reason::Virtual => "virtual".to_owned(),
        Reason::Follows(of) => format!("follows {}", source(of)),
        Reason::Kept(of) => format!("kept {}", source(of)),
        Reason::Repost { at, source: of, .. } => format!("repost {} via {}", at.id, source(of)),
    }
}
