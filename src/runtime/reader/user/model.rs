//! A model check of shared inboxes: a model checker decides which thread runs next at each lock and unlock of a stripe.
//!
//! Direct reads run beside deliveries, evictions, removals, sleep, waking and crashes. A direct page has every post
//! that was delivered before the request, in order and without a gap, and none that was deleted before. Concurrent
//! changes cost at most a retry.
#![cfg(test)]

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::config::EngineConfig;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::{Event, NewEdge};
use crate::feed::followers::Sharding;
use crate::feed::page::Range;
use crate::feed::position::{Position, at};
use crate::feed::post::{Body, Draft};
use crate::id::{PostId, SourceId};
use crate::runtime::background::archiver::ArchiveReaders;
use crate::runtime::change_consumers::ChangeConsumers;
use crate::runtime::reader::direct;
use crate::runtime::reader::lock::modelled::in_model;
use crate::runtime::shared::Shared;
use crate::state::world::{StateMachine, World};

const SECOND: i64 = 1_000_000;

/// Maximum number of posts in the inbox: fewer than are published, so that each delivery evicts one.
const INBOX_POSTS: usize = 7;

/// Age of the oldest post in the inbox, in seconds. There is one post a second.
const INBOX_AGE: u64 = 6;

/// Posts that were published before the threads start, and after them.
const POSTS: [u64; 2] = [9, 14];

/// Maximum number of entries of a page. A page of one is built from a copy of the newest half of the inbox.
const LIMIT_MAX: usize = 2;

/// Number of times that the shard's thread does something other than deliver.
const DISTURBANCES: usize = 6;

/// Number of pages that each reading thread reads.
const READS: usize = 8;

/// Counters over all executions of the model.
#[derive(Debug, Default)]
struct Seen {
    direct: AtomicU64,
    retried: AtomicU64,
    pages_of_actor: AtomicU64,
    wakes: AtomicU64,
    crashes: AtomicU64,
}

struct Model {
    shared: Arc<Shared>,
    clock: Arc<ManualClock>,
    reader: Arc<Source>,
    /// Posts that the shard's thread has to deliver, oldest first; true if the reader is a recipient.
    slices: Mutex<VecDeque<(u64, bool)>>,
    published: AtomicU64,
    /// The newest post that was delivered; all posts before it were.
    delivered: AtomicU64,
    /// Posts whose deletion has begun, and posts whose deletion has ended.
    deleted: [Mutex<BTreeSet<u64>>; 2],
    seen: Arc<Seen>,
}

fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

fn position(number: u64) -> Position {
    at(number.cast_signed() * SECOND, number)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Model {
    fn new(seen: Arc<Seen>) -> (Arc<Self>, StateMachine) {
        let (world, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        let config = EngineConfig {
            shards: NonZeroUsize::MIN,
            inbox_posts: NonZeroUsize::new(INBOX_POSTS).unwrap(),
            inbox_age: Some(Duration::from_secs(INBOX_AGE)),
            ..EngineConfig::default()
        };
        let clock = Arc::new(ManualClock::new(position(0).published_at));
        let core = Core::new(
            Arc::new(config),
            world,
            Arc::clone(&clock) as Arc<dyn Clock>,
            ArchiveReaders::none(),
            ChangeConsumers::default(),
        );
        let edges = vec![NewEdge::new(id("ann"), id("bob"))];
        machine.apply(&Event::Followed { edges, since: position(0).published_at });
        let reader = core.world.sources.get(&id("ann")).unwrap();
        let model = Arc::new(Self {
            shared: Arc::new(Shared::new(core)),
            clock,
            reader,
            slices: Mutex::default(),
            published: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            deleted: Default::default(),
            seen,
        });
        (1..=POSTS[0]).for_each(|number| model.publish(&mut machine, number));
        (model, machine)
    }

    /// The command processor applies a post; then the supervisor checks whether the reader is awake.
    fn publish(&self, machine: &mut StateMachine, number: u64) {
        let (position, draft) = (position(number), Draft::new(id("bob"), Body::new(&number.to_string()).unwrap()));
        self.clock.set(position.published_at);
        machine.apply(&Event::Published { position, draft, accepted_at: position.published_at });
        self.published.store(number, Ordering::SeqCst);
        thread::yield_now();
        let is_awake = self.shared.directory.is_active(self.reader.slot);
        self.slices.lock().push_back((number, is_awake));
    }

    fn publish_all(&self, mut machine: StateMachine) {
        for number in POSTS[0] + 1..=POSTS[0] + POSTS[1] {
            self.publish(&mut machine, number);
            if thread_rng().gen_range(0..4) == 0 {
                let deleted = number - thread_rng().gen_range(0..4);
                self.deleted[0].lock().insert(deleted);
                machine.apply(&Event::Deleted { id: PostId(deleted), repost_of: None, post: None });
                self.deleted[1].lock().insert(deleted);
            }
            thread::yield_now();
        }
    }

    /// Delivers all posts. In between the reader wakes, reads through its actor, falls asleep, and crashes.
    fn run_shard(&self) {
        let inbox_store = Rc::new(RefCell::new(InboxStore::new(Arc::clone(&self.shared.inboxes[0]))));
        let mut actor = None;
        let mut disturbances = 0;
        while self.delivered.load(Ordering::SeqCst) < POSTS[0] + POSTS[1] {
            let is_disturbed = disturbances < DISTURBANCES && thread_rng().gen_range(0..4) == 0;
            if is_disturbed {
                disturbances += 1;
                actor = self.disturb(actor, &inbox_store);
            } else {
                self.deliver_next(&inbox_store);
            }
            thread::yield_now();
        }
    }

    fn deliver_next(&self, inbox_store: &Rc<RefCell<InboxStore>>) {
        let Some((number, is_recipient)) = self.slices.lock().pop_front() else { return };
        if is_recipient {
            let local = self.shared.world.sharding.local(self.reader.slot);
            inbox_store.borrow_mut().deliver(position(number), None, &[local]);
        }
        self.delivered.store(number, Ordering::SeqCst);
    }

    fn disturb(&self, actor: Option<UserActor>, inbox_store: &Rc<RefCell<InboxStore>>) -> Option<UserActor> {
        let Some(mut actor) = actor else {
            let (core, directory) = (Arc::clone(&self.shared.core), Arc::clone(&self.shared.directory));
            let mut actor = UserActor::new(Arc::clone(&self.reader), None, Rc::clone(inbox_store), core, directory);
            // Posts may arrive between the start of an actor and its first message.
            for _ in 0..thread_rng().gen_range(0..3) {
                self.deliver_next(inbox_store);
            }
            actor.fill();
            count(&self.seen.wakes);
            return Some(actor);
        };
        match thread_rng().gen_range(0..4) {
            0 => {
                actor.leave();
                None
            }
            1 => {
                let crash = || {
                    let actor = actor;
                    actor.inbox_handle.as_ref().unwrap().with(|inbox| {
                        // In the middle of a change.
                        inbox.raise_floor(position(self.published.load(Ordering::SeqCst)));
                        panic!("poisoned");
                    })
                };
                catch_unwind(AssertUnwindSafe(crash)).unwrap_err();
                count(&self.seen.crashes);
                None
            }
            _ => {
                self.check(|request| match actor.page(request) {
                    Some(Built::Page(page)) => Some(page),
                    _ => unreachable!("an awake reader's page needs no other thread"),
                });
                count(&self.seen.pages_of_actor);
                Some(actor)
            }
        }
    }

    fn read(&self) {
        for _ in 0..READS {
            let is_read = self.check(|request| direct::read(&self.shared, &self.reader, request));
            count(if is_read { &self.seen.direct } else { &self.seen.retried });
            thread::yield_now();
        }
    }

    /// Reads the newest page, or the entries above a recent post. Returns false if there was no page.
    fn check(&self, read: impl FnOnce(PageRequest) -> Option<Page<Entry>>) -> bool {
        let at_least = self.delivered.load(Ordering::SeqCst);
        let gone = self.deleted[1].lock().clone();
        let above = thread_rng().gen_bool(0.5).then(|| at_least.saturating_sub(thread_rng().gen_range(0..INBOX_AGE)));
        let range = above.map_or(Range::Newest, |above| Range::After(position(above)));
        let limit = thread_rng().gen_range(1..=LIMIT_MAX);
        let Some(page) = read(PageRequest { range, limit }) else { return false };
        let may_be_gone = self.deleted[0].lock().clone();
        let shown: Vec<u64> = page.items.iter().map(|(_, entry)| entry.post.id().0).collect();
        // The exact page is known, except for posts that were published or deleted while the page was built.
        let is_full = shown.len() == limit;
        let newest =
            if above.is_some() && is_full { shown[0] } else { shown[..].first().copied().max(Some(at_least)).unwrap() };
        let oldest = match above {
            Some(above) => above + 1,
            None => shown.last().copied().filter(|_| is_full).unwrap_or(1),
        };
        let missing: Vec<u64> =
            (oldest..=newest).filter(|number| !shown.contains(number) && !may_be_gone.contains(number)).collect();
        let wrong: Vec<&u64> = shown.iter().filter(|number| **number < oldest || gone.contains(number)).collect();
        assert!(
            shown.is_sorted_by(|newer, older| newer > older) && missing.is_empty() && wrong.is_empty(),
            "{range:?} shows {shown:?}: without {missing:?}, and not to have {wrong:?}; at least up to {at_least}"
        );
        true
    }
}

fn run(scheduler: impl Scheduler + 'static, seen: &Arc<Seen>) {
    let seen = Arc::clone(seen);
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = shuttle::FailurePersistence::None;
    Runner::new(scheduler, config).run(move || {
        in_model(|| {
            let (model, machine) = Model::new(Arc::clone(&seen));
            let spawn = |work: Box<dyn FnOnce(&Model) + Send>| {
                let model = Arc::clone(&model);
                thread::spawn(move || work(&model))
            };
            let threads = [
                spawn(Box::new(move |model| model.publish_all(machine))),
                spawn(Box::new(Model::run_shard)),
                spawn(Box::new(Model::read)),
                spawn(Box::new(Model::read)),
            ];
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    });
}

#[test]
fn direct_reads_concurrent_with_deliveries_sleep_and_crashes_are_exact_or_refused() {
    let seen = Arc::<Seen>::default();
    run(RandomScheduler::new_from_seed(1, 300), &seen);
    run(PctScheduler::new_from_seed(1, 3, 300), &seen);
    let Seen { direct, retried, pages_of_actor, wakes, crashes } = &*seen;
    for happened in [direct, retried, pages_of_actor, wakes, crashes] {
        assert!(happened.load(Ordering::Relaxed) > 50, "{seen:?}");
    }
}
