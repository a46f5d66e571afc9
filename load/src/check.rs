//! Whether a design answers right, before it is timed.
//!
//! Responsible for:
//! - a naive model of feeds;
//! - a random history whose pages must all equal the model's.
//!
//! Not responsible for:
//! - pages of a loaded world (`verifier`);
//! - what designs differ in by nature, such as feeds that end where an inbox does: histories stay above that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tidewire::clock::{Clock, SystemClock};

use crate::mint::{Ids, Mint, Service};
use crate::operation::{Item, Operation, PAGE_POSTS, Post, User};
use crate::target::{Client, Failure, Target};

/// Feeds computed in the plainest way.
#[derive(Clone, Debug, Default)]
pub struct Model {
    edges: BTreeSet<(User, User)>,
    posts: BTreeMap<u64, Post>,
}

impl Model {
    /// Does an operation; pages change nothing.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Follow { follower, source } => drop(self.edges.insert((*follower, *source))),
            Operation::Unfollow { follower, source } => drop(self.edges.remove(&(*follower, *source))),
            Operation::Publish(post) => drop(self.posts.insert(post.id, post.clone())),
            Operation::Delete { id, .. } => drop(self.posts.remove(id)),
            Operation::Page { .. } | Operation::OwnPage { .. } => {}
        }
    }

    /// The page that is asked for; none if that is no page.
    pub fn page(&self, operation: &Operation) -> Vec<Item> {
        self.page_of(operation, |_| true)
    }

    /// The same of only some posts.
    pub fn page_of(&self, operation: &Operation, some: impl Fn(&Post) -> bool) -> Vec<Item> {
        let shows = |post: &&Post| match operation {
            Operation::Page { reader } => post.author == *reader || self.edges.contains(&(*reader, post.author)),
            Operation::OwnPage { author } => post.author == *author,
            _ => false,
        };
        let mut posts: Vec<&Post> = self.posts.values().filter(|post| some(post)).filter(shows).collect();
        posts.sort_unstable_by_key(|post| Reverse(post.position()));
        posts.into_iter().take(PAGE_POSTS).map(Item::of).collect()
    }

    /// All edges, follower first.
    pub fn edges(&self) -> Vec<(User, User)> {
        self.edges.iter().copied().collect()
    }

    /// Who follows a user.
    pub fn followers(&self, user: User) -> Vec<User> {
        self.edges.iter().filter(|(_, source)| *source == user).map(|(follower, _)| *follower).collect()
    }
}

/// Users of a history.
pub const USERS: User = 12;

/// How many of them become active at the end.
const LATE: usize = 3;

/// Operations of a history at most: enough for full pages.
const OPERATIONS_MAX: usize = 400;

/// Time from one post of a history to the next, in microseconds, so that no two have the same.
const POST_GAP_US: i64 = 1_000_000;

/// A random history by [`USERS`] users whom nobody uses otherwise, some of them inactive until the end.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The first of them.
    pub first_user: User,
    /// The same seed makes the same history.
    pub seed: u64,
    /// Ids of its posts.
    pub ids: Ids,
    /// Posts that an inbox holds. There are fewer in the history, so that no feed ends before what is compared.
    pub inbox_posts: usize,
}

impl History {
    /// Makes it, and compares every page with the model's. Returns how many.
    ///
    /// # Errors
    /// When an operation fails, or a page is another: it says which and in what.
    pub async fn check(&self, target: &dyn Target) -> Result<usize, Failure> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let (mut model, mut pages) = (Model::default(), 0);
        let dates = Dates::new(self);
        let users: Vec<User> = (self.first_user..self.first_user + USERS).collect();
        // Some become active only at the end, and find then what was published before.
        let (late, early) = users.split_at(LATE);
        target.activate(early).await?;
        let mut client = target.open().await?;
        for nth in 0..self.operations() {
            let operation = any_operation(&mut rng, &users, &model, |author| dates.post(author, nth));
            if matches!(operation, Operation::Page { reader } if late.contains(&reader)) {
                continue;
            }
            pages += usize::from(compare(&mut *client, &model, &operation).await?);
            if !operation.is_page() {
                client.perform(&operation).await?;
            }
            model.apply(&operation);
        }
        target.activate(late).await?;
        for user in users {
            for operation in [Operation::Page { reader: user }, Operation::OwnPage { author: user }] {
                pages += usize::from(compare(&mut *client, &model, &operation).await?);
            }
        }
        Ok(pages)
    }

    /// Two in five of them publish.
    fn operations(&self) -> usize {
        OPERATIONS_MAX.min(self.inbox_posts.saturating_mul(2))
    }
}

/// When posts of a history are published: a while ago, one after the other.
struct Dates {
    mint: Mint,
    first_us: i64,
}

impl Dates {
    fn new(history: &History) -> Self {
        let mint = Mint::new(history.ids, Service::Check, history.seed);
        Self { mint, first_us: SystemClock.now().0 - OPERATIONS_MAX as i64 * POST_GAP_US }
    }

    fn post(&self, author: User, nth: usize) -> Post {
        self.mint.post_at(author, self.first_us + nth as i64 * POST_GAP_US)
    }
}

/// Compares an answer with the model's if the operation is a page; says whether it is.
async fn compare(client: &mut dyn Client, model: &Model, operation: &Operation) -> Result<bool, Failure> {
    if !operation.is_page() {
        return Ok(false);
    }
    let (page, right) = (client.read(operation).await?, model.page(operation));
    if page != right {
        return Err(differs(operation, &page, &right));
    }
    let counted = client.perform(operation).await?.entries;
    if counted != right.len() {
        let message = format!("wrong answer to {operation:?}: {counted} posts are counted, {} are there", right.len());
        return Err(Failure::Failed(message));
    }
    Ok(true)
}

/// Says in what a page is another than the right one.
pub(crate) fn differs(operation: &Operation, page: &[Item], right: &[Item]) -> Failure {
    let ids = |items: &[Item]| items.iter().map(|item| item.id).collect::<Vec<_>>();
    let what = match ids(page) == ids(right) {
        true => "the posts are right, but not what they say".to_owned(),
        false => format!("{:?} in place of {:?}", ids(page), ids(right)),
    };
    Failure::Failed(format!("wrong answer to {operation:?}: {what}"))
}

fn any_operation(rng: &mut fastrand::Rng, users: &[User], model: &Model, post: impl FnOnce(User) -> Post) -> Operation {
    let user = |rng: &mut fastrand::Rng| users[rng.usize(..users.len())];
    let (one, other) = (user(rng), user(rng));
    let follows = |edge: &(User, User)| model.edges.contains(edge);
    match rng.u32(..100) {
        0..15 if one != other => Operation::Follow { follower: one, source: other },
        15..22 if follows(&(one, other)) => Operation::Unfollow { follower: one, source: other },
        22..62 => Operation::Publish(post(one)),
        62..70 => match model.posts.values().nth(rng.usize(..model.posts.len().max(1))) {
            Some(post) => Operation::Delete { id: post.id, author: post.author },
            None => Operation::OwnPage { author: one },
        },
        70..80 => Operation::OwnPage { author: one },
        _ => Operation::Page { reader: one },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::mock::{Fault, Mock};
    use tokio::runtime;

    fn history(fault: Option<Fault>) -> Result<usize, Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let history = History { first_user: 1_000, seed: 1, ids: Ids::Random, inbox_posts: 300 };
        runtime.block_on(history.check(&Mock::with_fault(fault)))
    }

    #[test]
    fn a_right_design_passes() {
        assert!(history(None).unwrap() > 100);
    }

    #[test]
    fn every_kind_of_wrong_answer_is_noticed() {
        for (fault, told) in [
            (Fault::KeepsDeleted, "in place of"),
            (Fault::KeepsUnfollowed, "in place of"),
            (Fault::OldestFirst, "in place of"),
            (Fault::EmptyBodies, "not what they say"),
            (Fault::CountsWrong, "are counted"),
            (Fault::FailsNow, "broken"),
        ] {
            let message = history(Some(fault)).unwrap_err().to_string();
            assert!(message.contains(told), "{fault:?}: {message}");
        }
    }
}
