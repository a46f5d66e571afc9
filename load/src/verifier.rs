//! Verifies the answers of a design after it was under load.
//!
//! Responsible for:
//! - recording published and deleted posts, in addition to the posts of the initial load;
//! - comparing the pages of some readers with a naive computation, and the counts under load with the expected counts.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewire::clock::{Clock, SystemClock};

use crate::check::differs;
use crate::initial_load::Load;
use crate::mint::body;
use crate::operation::{Answer, Item, Operation, PAGE_POSTS, User};
use crate::target::{Failure, Target};
use crate::world::World;

/// Number of readers whose pages are compared.
const READERS: usize = 20;

/// Maximum number of recorded posts of one run. Each uses three words.
const POSTS_MAX: usize = 10_000_000;

/// Number of newest posts of an author that the verifier retains from one run to the next: those of a page, plus those that may be swapped
/// with them.
const KEPT: usize = 300;

/// Number of consecutive readings without a new delivery after which all deliveries count as done.
const READINGS: usize = 8;

/// Time between two readings.
const READ_EVERY: Duration = Duration::from_millis(250);

/// The position of a post in feeds: the time of publishing, then the id. The greater position is listed first.
type Position = (i64, u64);

/// Observes all operations on one design.
#[derive(Debug)]
pub struct Verifier {
    world: Arc<World>,
    /// Readers whose pages are compared, sorted.
    readers: Vec<User>,
    /// Minimum number of posts on the feed page and the own page of each user: posts of the initial load are never deleted.
    least: Vec<[u8; 2]>,
    /// True after a follow. In designs whose feeds end with the inbox, following and unfollowing a source can leave fewer posts than
    /// before.
    is_changed: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Positions of the published posts, by author.
    posts: Vec<Vec<Position>>,
    /// Number of posts since the last comparison.
    new: usize,
    /// Posts deleted since the last comparison.
    deleted: HashSet<u64>,
    /// Posts that may or may not exist, because publishing or deleting them failed.
    unclear: HashSet<u64>,
    /// Longest time from the creation of a post until it was in all feeds, in microseconds.
    slowest_us: i64,
    /// Number of pages with too few or too many posts since the last comparison.
    odd_pages: u64,
    first_odd_page: Option<String>,
    /// The first publish that reached more or fewer feeds than it should.
    first_odd_publish: Option<String>,
    deliveries: Deliveries,
}

/// The expected deliveries since the last query, and the count of the design at that time.
#[derive(Debug, Default)]
struct Deliveries {
    expected: u64,
    /// True if the followers at the moment of a publish, or its outcome, are not known.
    is_unclear: bool,
    before: Option<u64>,
}

/// Deviations that are allowed for a design or a mix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    /// The design orders posts by arrival: posts that were published concurrently may be swapped.
    pub by_arrival: bool,
    /// Number of pages that may lack a post that was deleted between two statements.
    pub odd_pages: u64,
}

impl Verifier {
    /// Creates a verifier of a design that has the posts of the initial load.
    pub fn new(load: &Load) -> Self {
        let world = Arc::clone(&load.world);
        let mut posts = vec![Vec::new(); world.users()];
        for (author, theirs) in &*load.posts {
            posts[*author as usize].extend(theirs.iter().map(|post| post.position()));
        }
        // Take the last active readers: the first ones read most, and must be free to follow.
        let count = READERS.min(world.active.len().div_ceil(2));
        let mut readers: Vec<User> = world.active.iter().rev().copied().take(count).collect();
        readers.sort_unstable();
        let own = |user: User| posts[user as usize].len();
        let feed = |user: User| own(user) + world.following.of(user).iter().map(|source| own(*source)).sum::<usize>();
        let least = |user: User| [feed(user), own(user)].map(|posts| posts.min(PAGE_POSTS) as u8);
        let least = (0..world.users() as User).map(least).collect();
        Self {
            world,
            readers,
            least,
            is_changed: AtomicBool::new(false),
            seen: Mutex::new(Seen { posts, ..Seen::default() }),
        }
    }

    /// Returns true if the pages of this reader are compared.
    pub fn watches(&self, reader: User) -> bool {
        self.readers.binary_search(&reader).is_ok()
    }

    /// Observes the result of an operation. `deliveries` is the number of feeds that it must reach, if that is known.
    pub fn observe(&self, operation: &Operation, answer: &Result<Answer, Failure>, deliveries: Option<u64>) {
        match (operation, answer) {
            (Operation::Page { reader: user } | Operation::OwnPage { author: user }, Ok(answer)) => {
                let counts = usize::from(self.least(operation, *user))..=PAGE_POSTS;
                if !counts.contains(&answer.entries) {
                    self.seen().odd_page(operation, answer.entries, counts);
                }
            }
            (Operation::Pages { readers, .. }, Ok(answer)) => {
                let least = |reader: &User| usize::from(self.least(&Operation::Page { reader: *reader }, *reader));
                let counts = readers.iter().map(least).sum::<usize>()..=readers.len() * PAGE_POSTS;
                if !counts.contains(&answer.entries) {
                    self.seen().odd_page(operation, answer.entries, counts);
                }
            }
            (Operation::Publish(post), Ok(answer)) => {
                let mut seen = self.seen();
                seen.slowest_us = seen.slowest_us.max(SystemClock.now().0 - post.published_at_us);
                seen.published(post.author, post.position());
                seen.deliveries.expect(deliveries);
                if let (Some(expected), Some(reached)) = (deliveries, answer.deliveries)
                    && expected != reached
                {
                    let wrong =
                        || format!("post {} by user {}: {reached} feeds got it, not {expected}", post.id, post.author);
                    seen.first_odd_publish.get_or_insert_with(wrong);
                }
            }
            (Operation::Delete { id, .. }, Ok(_)) => drop(self.seen().deleted.insert(*id)),
            (Operation::Follow { .. }, _) => self.is_changed.store(true, Ordering::Relaxed),
            // A refused operation was not done. After any other error it may have been done or not.
            (_, Err(Failure::Refused(_))) => {}
            (Operation::Publish(post), Err(_)) => {
                self.seen().deliveries.expect(None);
                self.seen().unclear(post.id);
            }
            (Operation::Delete { id, .. }, Err(_)) => self.seen().unclear(*id),
            _ => {}
        }
    }

    /// Returns the minimum number of posts of a page.
    fn least(&self, operation: &Operation, user: User) -> u8 {
        let [feed, own] = self.least.get(user as usize).copied().unwrap_or_default();
        match operation {
            Operation::OwnPage { .. } => own,
            _ if self.is_changed.load(Ordering::Relaxed) && !self.watches(user) => 0,
            _ => feed,
        }
    }

    /// Compares the counts since the last check, and the pages. Returns the number of correct pages.
    ///
    /// # Errors
    /// If something is wrong: the message has the expected and the actual result.
    pub async fn check(&self, target: &dyn Target, allowance: Allowance) -> Result<usize, Failure> {
        let counted = self.seen().take_odd(allowance.odd_pages);
        let delivered = self.check_deliveries(target).await;
        let pages = self.check_pages(target, &self.readers, allowance.by_arrival).await;
        self.seen().tidy();
        counted?;
        delivered?;
        pages
    }

    /// Compares the number of deliveries that the design reports since the last query with the expected one. The first call only stores
    /// the count.
    ///
    /// # Errors
    /// If the numbers differ.
    pub async fn check_deliveries(&self, target: &dyn Target) -> Result<(), Failure> {
        let Deliveries { expected, is_unclear, before } = std::mem::take(&mut self.seen().deliveries);
        let mut now = target.delivered().await?;
        let delivered = |now: Option<u64>| now.zip(before).map(|(now, before)| now.saturating_sub(before));
        // Deliveries that no client waited for can still be in progress.
        let mut still = 0;
        while still < READINGS && delivered(now).is_some_and(|delivered| is_unclear || delivered < expected) {
            tokio::time::sleep(READ_EVERY).await;
            let earlier = std::mem::replace(&mut now, target.delivered().await?);
            still = if now == earlier { still + 1 } else { 0 };
        }
        self.seen().deliveries.before = now;
        match delivered(now) {
            Some(delivered) if delivered != expected && !is_unclear => {
                Err(Failure::Failed(format!("wrong count of deliveries: {delivered} by its own count, not {expected}")))
            }
            _ => Ok(()),
        }
    }

    /// Compares the pages of these readers.
    ///
    /// # Errors
    /// If a page differs from the naive computation.
    pub async fn check_pages(&self, target: &dyn Target, readers: &[User], by_arrival: bool) -> Result<usize, Failure> {
        if self.seen().new > POSTS_MAX {
            return Err(Failure::Failed(format!("pages were not checked: more than {POSTS_MAX} posts in one run")));
        }
        let mut client = target.open().await?;
        for reader in readers {
            let operation = Operation::Page { reader: *reader };
            let page = client.read(&operation).await?;
            self.compare(*reader, &page, by_arrival).map_err(|right| differs(&operation, &page, &right))?;
        }
        Ok(readers.len())
    }

    /// Checks the page of a reader. The error has the correct page.
    fn compare(&self, reader: User, page: &[Item], by_arrival: bool) -> Result<(), Vec<Item>> {
        let seen = self.seen();
        let feed = self.feed(&seen, reader);
        let full = feed.len().min(PAGE_POSTS);
        let known: Vec<&Item> = page.iter().filter(|item| !seen.unclear.contains(&item.id)).collect();
        let right = || feed.iter().take(PAGE_POSTS).map(item).collect::<Vec<_>>();
        let is_right = if by_arrival {
            is_by_arrival(&feed, &known, seen.slowest_us)
        } else {
            known.iter().zip(&feed).all(|(found, place)| **found == item(place))
        };
        // Posts with an unknown state can take the place of others.
        if is_right && page.len() >= full && known.len() <= feed.len() { Ok(()) } else { Err(right()) }
    }

    /// Computes the feed of a reader, newest first, without posts whose state is unknown.
    fn feed(&self, seen: &Seen, reader: User) -> Vec<(Position, User)> {
        let sources = self.world.following.of(reader).iter().chain([&reader]);
        let of = |source: &User| {
            let posts = seen.posts.get(*source as usize).map_or(&[][..], Vec::as_slice);
            let shows = |(_, id): &&Position| !seen.deleted.contains(id) && !seen.unclear.contains(id);
            let source = *source;
            posts.iter().filter(shows).map(move |position| (*position, source)).collect::<Vec<_>>()
        };
        let mut feed: Vec<(Position, User)> = sources.flat_map(of).collect();
        feed.sort_unstable_by_key(|place| Reverse(*place));
        feed
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // No code panics while it holds the lock, so a poisoned lock can be used.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliveries {
    /// Adds the number of inboxes that a publish must reach, or marks the count as unclear.
    fn expect(&mut self, deliveries: Option<u64>) {
        match deliveries {
            Some(deliveries) => self.expected += deliveries,
            None => self.is_unclear = true,
        }
    }
}

impl Seen {
    fn published(&mut self, author: User, position: Position) {
        self.new += 1;
        if self.new <= POSTS_MAX
            && let Some(posts) = self.posts.get_mut(author as usize)
        {
            posts.push(position);
        }
    }

    fn unclear(&mut self, id: u64) {
        self.new += 1;
        if self.new <= POSTS_MAX {
            self.unclear.insert(id);
        }
    }

    fn odd_page(&mut self, operation: &Operation, entries: usize, counts: RangeInclusive<usize>) {
        self.odd_pages += 1;
        let wrong = || format!("{operation:?}: {entries} posts, not {} to {}", counts.start(), counts.end());
        self.first_odd_page.get_or_insert_with(wrong);
    }

    /// Takes the wrong counts since the last call.
    fn take_odd(&mut self, pages_allowed: u64) -> Result<(), Failure> {
        let (pages, page) = (std::mem::take(&mut self.odd_pages), self.first_odd_page.take());
        if let Some(wrong) = self.first_odd_publish.take() {
            return Err(Failure::Failed(format!("wrong count of {wrong}")));
        }
        match page {
            Some(page) if pages > pages_allowed => {
                Err(Failure::Failed(format!("wrong count of {page}; {} other pages have wrong counts", pages - 1)))
            }
            _ => Ok(()),
        }
    }

    /// Removes the posts that no page can show any more.
    fn tidy(&mut self) {
        let (deleted, unclear) = (std::mem::take(&mut self.deleted), &self.unclear);
        for posts in &mut self.posts {
            posts.retain(|(_, id)| !deleted.contains(id) && !unclear.contains(id));
            posts.sort_unstable();
            posts.drain(..posts.len().saturating_sub(KEPT));
        }
        self.new = 0;
    }
}

fn item(&((_, id), author): &(Position, User)) -> Item {
    Item { id, author, body: body(id) }
}

/// Returns true if a page is valid for a feed in order of arrival, where a post arrives at most `slowest_us` after its time.
fn is_by_arrival(feed: &[(Position, User)], page: &[&Item], slowest_us: i64) -> bool {
    let place_of = |found: &&Item| feed.iter().find(|place| item(place) == **found).map(|((at_us, _), _)| *at_us);
    let Some(times) = page.iter().map(place_of).collect::<Option<Vec<i64>>>() else { return false };
    let on_page: HashSet<u64> = page.iter().map(|found| found.id).collect();
    let oldest = times.iter().min().copied().unwrap_or(i64::MAX);
    let missing = feed.iter().filter(|((_, id), _)| !on_page.contains(id));
    on_page.len() == page.len()
        && times.windows(2).all(|pair| pair[1] <= pair[0].saturating_add(slowest_us))
        && missing.map(|((at_us, _), _)| *at_us).all(|at_us| at_us <= oldest.saturating_add(slowest_us))
}

#[cfg(test)]
mod tests;
