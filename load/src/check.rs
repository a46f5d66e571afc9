//! Checks that a design answers correctly before it is measured.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tidewire::clock::{Clock, SystemClock};

use crate::mint::{Ids, Mint, Service};
use crate::operation::{Item, Operation, PAGE_POSTS, Post, User};
use crate::target::{Client, Failure, Target};

/// A naive model that computes feeds from all posts.
#[derive(Clone, Debug, Default)]
pub struct Model {
    edges: BTreeSet<(User, User)>,
    posts: BTreeMap<u64, Post>,
}

impl Model {
    /// Applies an operation. Pages change nothing.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Follow { follower, source } => drop(self.edges.insert((*follower, *source))),
            Operation::Unfollow { follower, source } => drop(self.edges.remove(&(*follower, *source))),
            Operation::Publish(post) => drop(self.posts.insert(post.id, post.clone())),
            Operation::Delete { id, .. } => drop(self.posts.remove(id)),
            Operation::Page { .. } | Operation::OwnPage { .. } | Operation::Pages { .. } => {}
        }
    }

    /// Returns the requested page, or an empty one if the operation reads no page.
    pub fn page(&self, operation: &Operation) -> Vec<Item> {
        self.page_of(operation, |_| true)
    }

    /// Returns the page of only those posts for which `some` returns true.
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

    /// Returns all edges, follower first.
    pub fn edges(&self) -> Vec<(User, User)> {
        self.edges.iter().copied().collect()
    }

    /// Returns the followers of a user.
    pub fn followers(&self, user: User) -> Vec<User> {
        self.edges.iter().filter(|(_, source)| *source == user).map(|(follower, _)| *follower).collect()
    }
}

/// Number of users of a history.
pub const USERS: User = 12;

/// Number of users that become active only at the end.
const LATE: usize = 3;

/// Maximum number of operations of a history: enough for full pages.
const OPERATIONS_MAX: usize = 400;

/// Time between two posts of a history in microseconds, so that no two have the same time.
const POST_GAP_US: i64 = 1_000_000;

/// A random history of [`USERS`] users that nothing else uses. Some of them are inactive until the end.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The number of the first user.
    pub first_user: User,
    /// The random seed. The same seed gives the same history.
    pub seed: u64,
    /// The kind of ids of the posts.
    pub ids: Ids,
    /// Number of posts of an inbox. The history has fewer posts, so that no feed ends before the compared part.
    pub inbox_posts: usize,
}

impl History {
    /// Runs the history and compares every page with that of the model. Returns the number of pages.
    ///
    /// # Errors
    /// If an operation fails or a page differs. The message has the operation and the difference.
    pub async fn check(&self, target: &dyn Target) -> Result<usize, Failure> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let (mut model, mut pages) = (Model::default(), 0);
        let dates = Dates::new(self);
        let users: Vec<User> = (self.first_user..self.first_user + USERS).collect();
        // Some users become active only at the end, and must find the earlier posts.
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

    /// Two of five operations are publishes.
    fn operations(&self) -> usize {
        OPERATIONS_MAX.min(self.inbox_posts.saturating_mul(2))
    }
}

/// The times of the posts of a history: increasing times in the past.
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

/// Compares the answer with the model if the operation reads a page. Returns true if it does.
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
        let message = format!("wrong answer to {operation:?}: {counted} posts are counted, {} exist", right.len());
        return Err(Failure::Failed(message));
    }
    Ok(true)
}

/// Describes how a page differs from the correct one.
pub(crate) fn differs(operation: &Operation, page: &[Item], right: &[Item]) -> Failure {
    let ids = |items: &[Item]| items.iter().map(|item| item.id).collect::<Vec<_>>();
    let what = match ids(page) == ids(right) {
        true => "the posts are right, but not their content".to_owned(),
        false => format!("{:?} instead of {:?}", ids(page), ids(right)),
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
    fn a_correct_design_passes() {
        assert!(history(None).unwrap() > 100);
    }

    #[test]
    fn every_kind_of_wrong_answer_is_detected() {
        for (fault, reported) in [
            (Fault::KeepsDeleted, "instead of"),
            (Fault::KeepsUnfollowed, "instead of"),
            (Fault::OldestFirst, "instead of"),
            (Fault::EmptyBodies, "not their content"),
            (Fault::CountsWrong, "are counted"),
            (Fault::FailsNow, "broken"),
        ] {
            let message = history(Some(fault)).unwrap_err().to_string();
            assert!(message.contains(reported), "{fault:?}: {message}");
        }
    }
}
