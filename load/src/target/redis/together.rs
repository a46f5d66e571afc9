//! Pages of many readers together: the commands of single pages, in two pipelines.

use super::resp::Batch;
use super::{Design, RedisClient, list, zset};
use crate::operation::{Operation, PAGE_POSTS, User};
use crate::target::Failure;

impl RedisClient {
    /// Reads the pages of several readers: one pipeline for all ids, and one for all posts. Returns the number of posts.
    pub(super) async fn pages(&self, readers: &[User]) -> Result<usize, Failure> {
        let is_asleep = |reader: &User| !self.worker.graph().is_active(*reader);
        let asleep: Vec<User> = readers.iter().copied().filter(is_asleep).collect();
        self.activate(&asleep).await?;
        let mut batch = Batch::new("ids of pages");
        for reader in readers {
            match self.worker.design {
                Design::SortedSets(_) => zset::range(&mut batch, "in:", *reader, 0),
                Design::Lists => list::range(&mut batch, "in:", *reader, 0),
            }
        }
        let mut replies = self.link.ask(batch).await?;
        let pages: Vec<Vec<u64>> = readers.iter().map(|_| replies.numbers()).collect();
        let mut batch = Batch::new("MGET of pages");
        let is_post = |id: &&u64| **id != list::NO_POST;
        for ids in pages.iter().filter(|ids| ids.iter().any(|id| is_post(&id))) {
            batch.command("MGET", 1 + ids.iter().filter(is_post).count());
            for id in ids.iter().filter(is_post) {
                batch.key("post:", *id);
            }
        }
        let mut replies = self.link.ask(batch).await?;
        let mut entries = 0;
        for (reader, ids) in readers.iter().zip(&pages) {
            let mut found = 0;
            if ids.iter().any(|id| is_post(&id)) {
                let fetched = replies.count();
                found = (0..fetched).filter(|_| replies.text().is_some()).count();
            }
            if found < PAGE_POSTS && ids.len() == PAGE_POSTS {
                // Some of the posts are deleted, so the page continues below them.
                found = 0;
                self.page(&Operation::Page { reader: *reader }, |_| {
                    found += 1;
                    Ok(())
                })
                .await?;
            }
            entries += found;
        }
        Ok(entries)
    }
}
