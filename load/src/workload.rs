//! The operations of users, and the choice of the next one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::mint::Mint;
use crate::operation::{Answer, Kind, Operation, PAGES_PIPELINED, PAGES_TOGETHER, User};
use crate::target::Failure;
use crate::verifier::Verifier;
use crate::world::World;

/// The frequency of each kind of operation, as weights.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mix {
    /// Weight of each kind. Deletes come only from `undone`.
    pub weights: Vec<(Kind, u32)>,
    /// Share of publishes and follows that are undone soon after, 0 to 1.
    pub undone: f64,
}

impl Mix {
    /// Returns a mix by its name.
    ///
    /// `social`: 60 % feed pages, 30 % own pages, 10 % publishes, as in the social network of DeathStarBench. `pequod`: of 116 operations
    /// 1 publishes, 100 read, 10 follow and 5 unfollow, as in the experiments of Pequod (NSDI 2014). `even`: half feed pages, half
    /// publishes. The name of a kind: only that kind.
    pub fn named(name: &str) -> Option<Self> {
        let weights = match name {
            "social" => vec![(Kind::Page, 60), (Kind::OwnPage, 30), (Kind::Publish, 10)],
            "pequod" => vec![(Kind::Publish, 1), (Kind::Page, 100), (Kind::Follow, 10), (Kind::Unfollow, 5)],
            "even" => vec![(Kind::Page, 1), (Kind::Publish, 1)],
            "page" => vec![(Kind::Page, 1)],
            "own_page" => vec![(Kind::OwnPage, 1)],
            "publish" => vec![(Kind::Publish, 1)],
            "pages" => vec![(Kind::Pages, 1)],
            "pages_pipelined" => vec![(Kind::PagesPipelined, 1)],
            _ => return None,
        };
        Some(Self { weights, undone: 0.0 })
    }

    /// The names that [`Mix::named`] accepts.
    pub const NAMES: [&str; 8] =
        ["social", "pequod", "even", "page", "own_page", "publish", "pages", "pages_pipelined"];

    /// Returns the number of other operations for each publish.
    pub fn between_publishes(&self) -> u64 {
        let of = |wanted: bool| {
            let counted = self.weights.iter().filter(|(kind, _)| (*kind == Kind::Publish) == wanted);
            counted.map(|(_, weight)| u64::from(*weight)).sum::<u64>()
        };
        of(false) / of(true).max(1)
    }

    /// Returns true if the mix changes follow edges.
    pub fn follows(&self) -> bool {
        self.weights.iter().any(|(kind, _)| matches!(kind, Kind::Follow | Kind::Unfollow))
    }

    /// Returns true if the mix deletes posts.
    pub fn deletes(&self) -> bool {
        self.undone > 0.0
    }

    /// Returns the same mix with a share of its publishes and follows undone.
    #[must_use]
    pub fn undoing(self, undone: f64) -> Self {
        Self { undone, ..self }
    }
}

/// Chooses numbers from 0 on by Zipf's law: the n-th number has the weight n^(-exponent). An exponent of 0 gives a uniform choice.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative weights, or the count of numbers if all have the same weight.
    sums: Result<Vec<f64>, usize>,
}

impl Zipf {
    /// Creates a choice among `count` numbers.
    pub fn new(count: usize, exponent: f64) -> Self {
        if exponent == 0.0 {
            return Self { sums: Err(count) };
        }
        let mut sum = 0.0;
        let mut up_to = |nth: usize| {
            sum += ((nth + 1) as f64).powf(-exponent);
            sum
        };
        Self { sums: Ok((0..count).map(&mut up_to).collect()) }
    }

    /// Chooses one of the numbers at random.
    pub fn choose(&self, rng: &mut fastrand::Rng) -> usize {
        match &self.sums {
            Err(count) => rng.usize(..(*count).max(1)),
            Ok(sums) => {
                let at = rng.f64() * sums.last().copied().unwrap_or(0.0);
                sums.partition_point(|sum| *sum <= at).min(sums.len().saturating_sub(1))
            }
        }
    }
}

/// The operations of all clients of a run.
#[derive(Debug)]
pub struct Workload {
    world: Arc<World>,
    mix: Mix,
    authors: Zipf,
    readers: Zipf,
    mint: Arc<Mint>,
    seed: u64,
    verifier: Option<Arc<Verifier>>,
    /// Edges that clients created and did not remove.
    left: Mutex<BTreeSet<(User, User)>>,
}

impl Workload {
    /// Creates a workload whose authors and readers are chosen by Zipf's law with these exponents.
    pub fn new(world: Arc<World>, mix: Mix, (publishing, reading): (f64, f64), mint: Arc<Mint>, seed: u64) -> Self {
        let authors = Zipf::new(world.authors.len(), publishing);
        let readers = Zipf::new(world.active.len(), reading);
        Self { world, mix, authors, readers, mint, seed, verifier: None, left: Mutex::default() }
    }

    /// Returns the world whose users act.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the same workload, with a verifier that observes all results.
    #[must_use]
    pub fn observed_by(self, verifier: Option<Arc<Verifier>>) -> Self {
        Self { verifier, ..self }
    }

    /// Passes the result of an operation to the verifier, and records a failed unfollow for the cleanup.
    pub fn record_outcome(&self, operation: &Operation, answer: &Result<Answer, Failure>) {
        if let (Operation::Unfollow { follower, source }, Err(_)) = (operation, answer) {
            self.leave([(*follower, *source)]);
        }
        if let Some(verifier) = &self.verifier {
            // If the mix changes edges, the followers at the moment of a publish are not known.
            let deliveries = (!self.mix.follows()).then(|| self.deliveries(operation));
            verifier.observe(operation, answer, deliveries);
        }
    }

    /// Takes the edges that clients created and did not remove. Called after all clients have ended.
    pub fn take_left(&self) -> BTreeSet<(User, User)> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn leave(&self, edges: impl IntoIterator<Item = (User, User)>) {
        // No code panics while it holds the lock, so a poisoned lock can be used.
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(edges);
    }

    /// Returns the number of feeds, besides the author's own, that a publish must reach: those of active followers.
    pub fn deliveries(&self, operation: &Operation) -> u64 {
        match operation {
            Operation::Publish(post) => u64::from(self.world.audience.get(post.author as usize).copied().unwrap_or(0)),
            _ => 0,
        }
    }

    /// Returns the operations of one client. Each client has its own number.
    pub fn client(self: &Arc<Self>, number: u64) -> Operations {
        let rng = fastrand::Rng::with_seed(self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        Operations { workload: Arc::clone(self), rng, done: 0, to_undo: VecDeque::new(), followed: VecDeque::new() }
    }
}

/// The sequence of operations of one client.
#[derive(Debug)]
pub struct Operations {
    workload: Arc<Workload>,
    rng: fastrand::Rng,
    done: u64,
    /// Operations that undo earlier ones, and the number of the operation at which each is due.
    to_undo: VecDeque<(u64, Operation)>,
    /// Edges that this client created and may remove later.
    followed: VecDeque<(User, User)>,
}

/// Number of operations between an operation and its undo.
const UNDONE_AFTER: u64 = 10;

/// Maximum number of edges that one client creates and does not remove yet.
const FOLLOWED_MAX: usize = 10_000;

impl Operations {
    /// Returns the next operation.
    pub fn next_operation(&mut self) -> Operation {
        self.done += 1;
        if self.to_undo.front().is_some_and(|(at, _)| *at <= self.done)
            && let Some((_, undo)) = self.to_undo.pop_front()
        {
            return undo;
        }
        let kind = self.kind();
        let operation = self.operation(kind);
        let undo = match &operation {
            Operation::Publish(post) => Operation::Delete { id: post.id, author: post.author },
            Operation::Follow { follower, source } => Operation::Unfollow { follower: *follower, source: *source },
            _ => return operation,
        };
        if self.rng.f64() < self.workload.mix.undone {
            self.to_undo.push_back((self.done + UNDONE_AFTER, undo));
        } else if let Operation::Follow { follower, source } = operation {
            self.followed.push_front((follower, source));
        }
        operation
    }

    /// Ends the client. The edges that it created and did not remove are left for the cleanup.
    pub fn end(self) {
        let undone = self.to_undo.into_iter().filter_map(|(_, undo)| match undo {
            Operation::Unfollow { follower, source } => Some((follower, source)),
            _ => None,
        });
        self.workload.leave(self.followed.into_iter().chain(undone));
    }

    /// Returns a publish by this author, regardless of the mix.
    pub fn publish_by(&mut self, author: User) -> Operation {
        Operation::Publish(self.workload.mint.post(author))
    }

    fn kind(&mut self) -> Kind {
        let weights = &self.workload.mix.weights;
        let mut at = self.rng.u32(..weights.iter().map(|(_, weight)| weight).sum::<u32>().max(1));
        for (kind, weight) in weights {
            match at.checked_sub(*weight) {
                None => return *kind,
                Some(left) => at = left,
            }
        }
        Kind::Page
    }

    fn operation(&mut self, kind: Kind) -> Operation {
        match kind {
            Kind::Page => Operation::Page { reader: self.reader() },
            Kind::Pages => Operation::Pages { readers: self.readers(PAGES_TOGETHER), pipelined: false },
            Kind::PagesPipelined => Operation::Pages { readers: self.readers(PAGES_PIPELINED), pipelined: true },
            Kind::OwnPage => Operation::OwnPage { author: self.author() },
            Kind::Publish | Kind::Delete => {
                let author = self.author();
                self.publish_by(author)
            }
            // Only an existing edge can be removed.
            Kind::Unfollow => match self.followed.pop_back() {
                Some((follower, source)) => Operation::Unfollow { follower, source },
                None => self.operation(Kind::Follow),
            },
            // Remove an edge instead, so that the graph does not become complete in a long run.
            Kind::Follow if self.followed.len() >= FOLLOWED_MAX => self.operation(Kind::Unfollow),
            Kind::Follow => {
                let (follower, source) = (self.reader(), self.author());
                let watched = self.workload.verifier.as_ref().is_some_and(|verifier| verifier.watches(follower));
                match watched || follower == source || self.workload.world.following.of(follower).contains(&source) {
                    false => Operation::Follow { follower, source },
                    // Edges of the world are never changed, so that the fan-out of its posts stays the same.
                    true => Operation::Page { reader: follower },
                }
            }
        }
    }

    fn reader(&mut self) -> User {
        let nth = self.workload.readers.choose(&mut self.rng);
        self.workload.world.active.get(nth).copied().unwrap_or(0)
    }

    fn readers(&mut self, count: usize) -> Vec<User> {
        (0..count).map(|_| self.reader()).collect()
    }

    fn author(&mut self) -> User {
        let nth = self.workload.authors.choose(&mut self.rng);
        self.workload.world.authors.get(nth).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::generated::Recipe;
    use std::collections::HashMap;

    fn operations(mix: Mix) -> Operations {
        let recipe = Recipe {
            users: 200,
            authors: 50,
            mean_followers: 10,
            most_followers: 40,
            exponent: 0.8,
            active_share: 1.0,
            seed: 1,
        };
        Arc::new(Workload::new(Arc::new(recipe.make()), mix, (0.0, 0.0), Arc::default(), 1)).client(0)
    }

    fn counts(mix: Mix) -> HashMap<Kind, usize> {
        let mut operations = operations(mix);
        let mut counts = HashMap::new();
        (0..11_600).for_each(|_| *counts.entry(operations.next_operation().kind()).or_default() += 1);
        counts
    }

    #[test]
    fn each_mix_has_its_shares() {
        let social = counts(Mix::named("social").unwrap());
        assert!(
            social[&Kind::Page].abs_diff(6_960) < 200 && social[&Kind::Publish].abs_diff(1_160) < 100,
            "{social:?}"
        );
        let pequod = counts(Mix::named("pequod").unwrap());
        assert!(pequod[&Kind::Publish].abs_diff(100) < 40, "{pequod:?}");
        assert!(pequod[&Kind::Unfollow].abs_diff(pequod[&Kind::Follow] / 2) < 150, "{pequod:?}");
        assert_eq!(Mix::named("antisocial"), None);
        assert!(Mix::NAMES.iter().all(|name| Mix::named(name).is_some()));
    }

    #[test]
    fn a_share_of_posts_is_deleted_later_by_their_authors() {
        let mut operations = operations(Mix::named("publish").unwrap().undoing(0.1));
        let all: Vec<Operation> = (0..5_000).map(|_| operations.next_operation()).collect();
        let deleted: Vec<_> = all.iter().enumerate().filter(|(_, done)| done.kind() == Kind::Delete).collect();
        assert!(deleted.len().abs_diff(455) < 100, "{}", deleted.len());
        for (at, delete) in deleted {
            let Operation::Delete { id, author } = delete else { unreachable!() };
            let published =
                |done: &Operation| matches!(done, Operation::Publish(post) if (post.id, post.author) == (*id, *author));
            assert!(all[..at].iter().any(published));
        }
    }

    #[test]
    fn zipf_prefers_the_first_users() {
        let mut rng = fastrand::Rng::with_seed(3);
        let zipf = Zipf::new(100, 1.0);
        let firsts = (0..10_000).filter(|_| zipf.choose(&mut rng) == 0).count();
        // The expected share is 1 divided by the sum of 1/1 to 1/100.
        assert!(firsts.abs_diff(1_928) < 200, "{firsts}");
        let alike = Zipf::new(100, 0.0);
        assert!((0..10_000).filter(|_| alike.choose(&mut rng) == 0).count() < 200);
        assert_eq!(Zipf::new(1, 2.0).choose(&mut rng), 0);
    }

    #[test]
    fn seed_and_client_determine_the_operations() {
        let of = |number| {
            let mut operations = operations(Mix::named("page").unwrap()).workload.client(number);
            (0..20).map(|_| operations.next_operation()).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
