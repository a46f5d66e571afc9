//! Tidewire in its own process, over the Redis protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewire::clock::UnixMicros;

use crate::operation::{Answer, Item, Operation, PAGE_POSTS, User};
use crate::target::process::free_address;
use crate::target::resp::link::Link;
use crate::target::resp::pool::{Pool, SharedLink};
use crate::target::resp::protocol::{Batch, Replies};
use crate::target::tidewire::http::Http;
use crate::target::tidewire::{Settings, page};
use crate::target::{Client, Failure, Later, Target};

/// Prefix of the ids of users.
const USER: &str = "u";

/// A running Tidewire server whose clients use the Redis protocol. Follows are loaded, and readers activated, over HTTP.
#[derive(Debug)]
pub struct Resp {
    http: Http,
    address: SocketAddr,
    pool: Pool,
}

impl Resp {
    /// Starts a server on free ports.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(settings: &Settings) -> Result<Self, Failure> {
        let address = free_address().map_err(|cause| Failure::of(&cause))?;
        let mut settings = settings.clone();
        settings.more_flags.push(format!("--resp {address}"));
        Ok(Self { http: Http::start_server(&settings).await?, address, pool: Pool::new(address) })
    }
}

impl Target for Resp {
    fn name(&self) -> &'static str {
        "tidewire_resp"
    }

    fn settings(&self) -> Vec<String> {
        let notes = [
            "a separate process, over the Redis protocol".to_owned(),
            Pool::describe(),
            "writes: on a connection for each client, because reads would wait for the delivery of a post".to_owned(),
        ];
        self.http.settings().into_iter().chain(notes).collect()
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        Box::pin(async {
            let (reads, waits) = (self.pool.link().await?, Arc::clone(&self.http.waits));
            let writes = Link::open(self.address).await?;
            Ok(Box::new(RespClient { reads, writes, waits }) as Box<dyn Client>)
        })
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        self.http.load_follows(edges)
    }

    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>> {
        self.http.activate(readers)
    }

    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        self.http.delivered()
    }

    fn wait_for_delivery(&self, waits: bool) {
        self.http.wait_for_delivery(waits);
    }

    fn live_address(&self) -> Option<SocketAddr> {
        self.http.live_address()
    }

    fn process(&self) -> Option<u32> {
        self.http.process()
    }
}

struct RespClient {
    /// Shared with other clients.
    reads: SharedLink,
    writes: Link,
    waits: Arc<AtomicBool>,
}

impl Client for RespClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(async {
            let mut replies = self.ask(operation).await?;
            let mut count = || page::count(replies.text().unwrap_or_default());
            let entries = match operation {
                Operation::Page { .. } | Operation::OwnPage { .. } => count(),
                Operation::Pages { readers, pipelined: true } => readers.iter().map(|_| count()).sum(),
                Operation::Pages { pipelined: false, .. } => page::count_together(replies.text().unwrap_or_default())?,
                _ => 0,
            };
            Ok(Answer { entries, deliveries: None })
        })
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(async { page::items(self.ask(operation).await?.text().unwrap_or_default()) })
    }
}

impl RespClient {
    async fn ask(&self, operation: &Operation) -> Result<Replies, Failure> {
        let is_read = operation.is_page() || matches!(operation, Operation::Pages { .. });
        let link = if is_read { &*self.reads } else { &self.writes };
        link.ask(commands(operation, self.waits.load(Ordering::Relaxed))).await
    }
}

/// Returns the commands of an operation. `waits` is true if a publish waits until the post is delivered.
fn commands(operation: &Operation, waits: bool) -> Batch {
    let mut batch = Batch::new(operation.kind().label());
    match operation {
        Operation::Page { reader } => page_of(&mut batch, "FEED.GET", *reader),
        Operation::OwnPage { author } => page_of(&mut batch, "FEED.OWN", *author),
        Operation::Pages { readers, pipelined: true } => {
            readers.iter().for_each(|reader| page_of(&mut batch, "FEED.GET", *reader));
        }
        Operation::Pages { readers, pipelined: false } => {
            batch.command("FEED.MGET", 4 + readers.len()).number(readers.len() as u64);
            for reader in readers {
                batch.key(USER, (*reader).into());
            }
            batch.text(b"COUNT").number(PAGE_POSTS as u64);
        }
        Operation::Follow { follower, source } => {
            batch.command("FEED.FOLLOW", 3).key(USER, (*follower).into()).key(USER, (*source).into());
        }
        Operation::Unfollow { follower, source } => {
            batch.command("FEED.UNFOLLOW", 3).key(USER, (*follower).into()).key(USER, (*source).into());
        }
        Operation::Delete { id, .. } => {
            batch.command("FEED.DEL", 2).number(*id);
        }
        Operation::Publish(post) => {
            batch.command("FEED.POST", 7 + usize::from(waits)).key(USER, post.author.into());
            batch.text(post.body.as_bytes()).text(b"ID").number(post.id);
            batch.text(b"AT").text(UnixMicros(post.published_at_us).to_string().as_bytes());
            if waits {
                batch.text(b"WAIT");
            }
        }
    }
    batch
}

fn page_of(batch: &mut Batch, command: &str, user: User) {
    batch.command(command, 4).key(USER, user.into()).text(b"COUNT").number(PAGE_POSTS as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Post;

    /// Returns the words of all commands of an operation. No word contains a line break.
    fn words(operation: &Operation, waits: bool) -> String {
        let batch = commands(operation, waits);
        let text = String::from_utf8(batch.bytes).unwrap();
        let heads = text.lines().filter(|line| line.starts_with('*')).count();
        assert_eq!(heads, batch.commands, "{text}");
        text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pages_of_several_readers_are_one_command_or_one_for_each_in_a_pipeline() {
        let pages = |pipelined| words(&Operation::Pages { readers: vec![7, 8], pipelined }, true);
        assert_eq!(pages(false), "FEED.MGET 2 u7 u8 COUNT 20");
        assert_eq!(pages(true), "FEED.GET u7 COUNT 20 FEED.GET u8 COUNT 20");
    }

    #[test]
    fn a_publish_has_its_id_and_time_and_may_wait_for_delivery() {
        let publish = Operation::Publish(Post { id: 5, author: 3, published_at_us: 1_000_000, body: "{}".to_owned() });
        assert_eq!(words(&publish, false), "FEED.POST u3 {} ID 5 AT 1970-01-01T00:00:01.000000Z");
        assert_eq!(words(&publish, true), "FEED.POST u3 {} ID 5 AT 1970-01-01T00:00:01.000000Z WAIT");
    }
}
