//! Clients that poll in random histories: each is given every entry that comes into its feed, or has to read it again.

use std::collections::BTreeSet;

use tidewire::engine::{Engine, FeedPage};
use tidewire::feed::page::Range;
use tidewire::feed::resume::Resume;
use tidewire::id::PostId;
use tidewire::state::reader::PageRequest;

use testkit::oracle::{Of, Oracle};
use testkit::world::id;

/// A client that polls one feed.
#[derive(Debug)]
pub struct Poller {
    of: Of<'static>,
    token: Option<Resume>,
    /// Every post it was ever given since it last read the whole feed.
    given: BTreeSet<PostId>,
}

/// Some of a reader who is also watched, one of another, of a list and of a source's own page.
pub fn pollers() -> Vec<Poller> {
    let feeds = [
        Of::Home("ann"),
        Of::Home("bob"),
        Of::List("ann", "near"),
        Of::Page("cas"),
        Of::Page("tag:rust"),
        Of::Mine("bob"),
        Of::Replies("replies:1", "ann"),
    ];
    feeds.into_iter().map(|of| Poller { of, token: None, given: BTreeSet::new() }).collect()
}

impl Poller {
    /// Asks once for what came, or reads the whole feed if it has no token.
    pub async fn poll(&mut self, engine: &Engine, limit: usize) -> bool {
        let Some(token) = self.token else {
            self.read(engine).await;
            return false;
        };
        let Some(page) = self.fetch(engine, Range::Resume(token), limit).await else { return false };
        if page.page.gap {
            self.read(engine).await;
            return false;
        }
        self.take(&page);
        self.token = page.page.resume;
        page.page.is_cut
    }

    /// Asks until nothing is left, and compares with what the feed has.
    pub async fn check(&mut self, engine: &Engine, oracle: &Oracle, limit: usize) {
        for round in 0.. {
            if !self.poll(engine, limit).await {
                break;
            }
            assert!(round < oracle.posts.len() + 5, "{self:?} is given the same again and again");
        }
        let is_capped = match self.of {
            Of::Home(reader) | Of::List(reader, _) => oracle.rules_of(reader).per_source_max.is_some(),
            Of::Page(_) | Of::Mine(_) | Of::Replies(..) => false,
        };
        if let Of::Replies(replies, reader) = self.of
            && !oracle.is_shown_to(reader, id(replies).replied_post().unwrap().0)
        {
            return;
        }
        let entries = oracle.entries(self.of);
        let missing: Vec<_> = entries.iter().filter(|entry| !self.given.contains(&entry.post)).collect();
        // Under a cap a page passes entries over for good.
        assert!(is_capped || missing.is_empty(), "{self:?} was never given {missing:?}");
    }

    /// Reads the whole feed, from the newest entry down.
    async fn read(&mut self, engine: &Engine) {
        self.given.clear();
        self.token = None;
        let (mut range, mut pages) = (Range::Newest, 0);
        while let Some(page) = self.fetch(engine, range, 9).await {
            self.take(&page);
            self.token = self.token.or(page.page.resume);
            let Some(next) = page.page.next else { break };
            pages += 1;
            assert!(pages < 200, "{self:?} reads on without end");
            range = Range::Before(next);
        }
    }

    fn take(&mut self, page: &FeedPage) {
        assert!(page.partial.is_empty());
        self.given.extend(page.page.items.iter().map(|(_, entry)| entry.post.id()));
    }

    async fn fetch(&self, engine: &Engine, range: Range, limit: usize) -> Option<FeedPage> {
        let request = PageRequest { range, limit };
        match self.of {
            Of::Home(reader) => engine.feed(&id(reader), request).await.ok(),
            Of::List(reader, list) => engine.list_feed(&id(reader), &list.parse().unwrap(), request).await.ok(),
            Of::Page(source) => engine.own_page(&id(source), request).await.ok(),
            Of::Mine(source) => engine.own_page_for_owner(&id(source), request).await.ok(),
            Of::Replies(replies, reader) => {
                engine.replies(id(replies).replied_post()?, Some(&id(reader)), request).await.ok()
            }
        }
    }
}
