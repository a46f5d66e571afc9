//! A design without a server: the naive model, optionally slow, overloaded or faulty.
//!
//! It is used to test this program, and to measure its maximum rate.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::check::Model;
use crate::operation::{Answer, Item, Operation, Post, User};
use crate::target::{Client, Failure, Later, Target};

/// A fault of the mock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Pages show deleted posts.
    KeepsDeleted,
    /// Pages show posts of sources that are no longer followed.
    KeepsUnfollowed,
    /// Pages are in reverse order.
    OldestFirst,
    /// Posts have empty bodies.
    EmptyBodies,
    /// One delivery in a hundred is lost.
    DropsPushes,
    /// The count of a page is one too high.
    CountsWrong,
    /// Every operation fails.
    FailsNow,
    /// Every operation fails as one without an answer, but without the wait.
    Silent,
    /// Every second operation is refused.
    RefusesHalf,
    /// The delivery counter is lower than the sum of the answers to publishes.
    DeliversLess,
}

/// A period, relative to the creation of the mock, in which it does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Start of the stall.
    pub from: Duration,
    /// End of the stall.
    pub until: Duration,
}

/// A design without a server.
#[derive(Clone, Debug)]
pub struct Mock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    model: Mutex<Model>,
    fault: Option<Fault>,
    /// Answers without using the model, to measure the maximum rate of this program.
    blind: bool,
    stall: Option<Stall>,
    made: Instant,
    asked: AtomicU64,
    delivered: AtomicU64,
    dropped: Mutex<Dropped>,
}

/// The deliveries that were dropped.
#[derive(Debug, Default)]
struct Dropped {
    pushes: u64,
    posts: HashSet<(User, u64)>,
}

impl Mock {
    /// Creates a mock that answers correctly except for the fault.
    pub fn with_fault(fault: Option<Fault>) -> Self {
        Self::new(fault, false, None)
    }

    /// Creates a mock that answers every operation at once, except during a stall.
    pub fn blind(stall: Option<Stall>) -> Self {
        Self::new(None, true, stall)
    }

    fn new(fault: Option<Fault>, blind: bool, stall: Option<Stall>) -> Self {
        let inner = Inner {
            model: Mutex::default(),
            fault,
            blind,
            stall,
            made: Instant::now(),
            asked: AtomicU64::default(),
            delivered: AtomicU64::default(),
            dropped: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the current follow edges, or an empty list if the mock crashed.
    pub fn edges(&self) -> Vec<(User, User)> {
        self.inner.model.lock().map(|model| model.edges()).unwrap_or_default()
    }

    /// Returns the number of operations up to now.
    pub fn asked(&self) -> u64 {
        self.inner.asked.load(Ordering::Relaxed)
    }
}

impl Target for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn settings(&self) -> Vec<String> {
        vec!["no server: the maximum rate of this program".to_owned()]
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        let client: Box<dyn Client> = Box::new(MockClient { inner: Arc::clone(&self.inner) });
        Box::pin(async { Ok(client) })
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async move {
            for &(follower, source) in edges {
                self.inner.apply(&Operation::Follow { follower, source })?;
            }
            Ok(())
        })
    }

    fn activate<'a>(&'a self, _: &'a [User]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        Box::pin(async { Ok((!self.inner.blind).then(|| self.inner.delivered.load(Ordering::Relaxed))) })
    }

    fn process(&self) -> Option<u32> {
        None
    }
}

impl Inner {
    fn apply(&self, operation: &Operation) -> Result<(), Failure> {
        let mut model = self.model.lock().map_err(|_| crashed())?;
        model.apply(operation);
        Ok(())
    }

    fn page(&self, operation: &Operation) -> Result<Vec<Item>, Failure> {
        let model = self.model.lock().map_err(|_| crashed())?;
        let dropped = self.dropped.lock().map_err(|_| crashed())?;
        let shows = |post: &Post| match operation {
            Operation::Page { reader } => !dropped.posts.contains(&(*reader, post.id)),
            _ => true,
        };
        let mut page = model.page_of(operation, shows);
        match self.fault {
            Some(Fault::OldestFirst) => page.reverse(),
            Some(Fault::EmptyBodies) => page.iter_mut().for_each(|item| item.body.clear()),
            _ => {}
        }
        Ok(page)
    }

    async fn perform(&self, operation: &Operation) -> Result<Answer, Failure> {
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(Stall { from, until }) = self.stall
            && (from..until).contains(&self.made.elapsed())
        {
            tokio::time::sleep(until - self.made.elapsed()).await;
        }
        match self.fault {
            Some(Fault::FailsNow) => return Err(Failure::Failed("the mock is broken".to_owned())),
            Some(Fault::Silent) => return Err(Failure::Silent("the mock".to_owned())),
            Some(Fault::RefusesHalf) if nth.is_multiple_of(2) => {
                return Err(Failure::Refused("the mock is busy".to_owned()));
            }
            _ => {}
        }
        if self.blind {
            // Yield, as waiting for an answer would, so that other clients can run.
            tokio::task::yield_now().await;
            return Ok(Answer::default());
        }
        if operation.is_page() {
            let entries = self.page(operation)?.len() + usize::from(self.fault == Some(Fault::CountsWrong));
            return Ok(Answer { entries, deliveries: None });
        }
        let ignored = match operation {
            Operation::Delete { .. } => self.fault == Some(Fault::KeepsDeleted),
            Operation::Unfollow { .. } => self.fault == Some(Fault::KeepsUnfollowed),
            _ => false,
        };
        let deliveries = self.deliver(operation)?;
        if !ignored {
            self.apply(operation)?;
        }
        Ok(Answer { entries: 0, deliveries })
    }

    /// Returns the number of feeds, besides the author's own, that the post should reach.
    fn deliver(&self, operation: &Operation) -> Result<Option<u64>, Failure> {
        let Operation::Publish(post) = operation else { return Ok(None) };
        let followers = self.model.lock().map_err(|_| crashed())?.followers(post.author);
        if self.fault == Some(Fault::DropsPushes) {
            let mut dropped = self.dropped.lock().map_err(|_| crashed())?;
            for follower in &followers {
                dropped.pushes += 1;
                if dropped.pushes.is_multiple_of(100) {
                    dropped.posts.insert((*follower, post.id));
                }
            }
        }
        let less = u64::from(self.fault == Some(Fault::DeliversLess));
        self.delivered.fetch_add((followers.len() as u64).saturating_sub(less), Ordering::Relaxed);
        // A design that loses deliveries counts them as done.
        Ok(Some(followers.len() as u64))
    }
}

fn crashed() -> Failure {
    Failure::Failed("the mock crashed".to_owned())
}

struct MockClient {
    inner: Arc<Inner>,
}

impl Client for MockClient {
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>> {
        Box::pin(self.inner.perform(operation))
    }

    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>> {
        Box::pin(async { self.inner.page(operation) })
    }
}
