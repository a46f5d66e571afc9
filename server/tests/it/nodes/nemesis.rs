//! Faults of all kinds, one or two at once, while clients write, read and watch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Nodes;
use super::faults::{FAULTS, Fault, Place, Round, rounds};
use super::oracle::{Sample, first_edges};
use super::watchers::Watchers;
use super::writers::{AUTHORS, Counts, READERS, WRITERS, Writer};
use testkit::{eventually, seed};

/// Number of writes that must be acknowledged before the faults of a round, and after they were healed: faults among none prove nothing.
const WRITES_MIN: u64 = 30;

/// Number of readers with a live client.
const WATCHED: usize = 12;

/// Number of readers whose feeds are checked after each round.
const CHECKED: usize = 6;

/// Number of posts, or a little more, that are read from each node in the end.
const POSTS_READ: usize = 10_000;

/// The time before a fault from which all acknowledged posts are read afterwards.
const IN_DANGER: Duration = Duration::from_secs(1);

/// The time in which a node handles what it received while it was paused, once it runs.
const REST: Duration = Duration::from_millis(500);

/// A round that is over.
struct Past {
    faults: Vec<(Fault, Place)>,
    began: Instant,
    healed: Instant,
    /// The time at which all nodes were members again.
    ended: Instant,
}

impl Past {
    /// Returns the posts to read: all that were in danger, and a sample of the others.
    fn sample(&self) -> Sample {
        Sample { all_of: Some((self.began - IN_DANGER, self.ended)), of_every: 10 }
    }

    /// Returns true if clients notice nothing but waiting: a node that joins or leaves in order moves its roles first.
    fn is_planned(&self) -> bool {
        self.faults.iter().all(|(fault, _)| matches!(fault, Fault::Leaves(_) | Fault::Joins))
    }
}

struct Clients {
    writers: Vec<Writer>,
    watchers: Watchers,
}

/// Stops the writers also if a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clients {
    fn start(cluster: &Nodes, seed: u64) -> Self {
        let balancer = &cluster.balancer;
        let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, seed, balancer)).collect();
        cluster.write(0, "POST", "/v1/follows", &first_edges(&mut writers));
        let watched = (0..WATCHED).map(|nth| nth * (READERS / WATCHED));
        Self { writers, watchers: Watchers::start(watched, balancer, seed) }
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for Counts { done, unreached, refused, open, pages } in self.writers.iter().map(|writer| writer.counts) {
            (sum.done, sum.unreached, sum.refused) =
                (sum.done + done, sum.unreached + unreached, sum.refused + refused);
            (sum.open, sum.pages) = (sum.open + open, sum.pages + pages);
        }
        sum
    }

    /// Inflicts the faults of a round among writes, heals them, and returns where and when they were.
    fn go_through(&mut self, cluster: &mut Nodes, round: &Round) -> Past {
        let (is_stopped, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _stop = Stop(&is_stopped);
            for writer in &mut self.writers {
                scope.spawn(|| writer.run(&is_stopped, &acknowledged));
            }
            let enough_more = || {
                let first = acknowledged.load(Ordering::Relaxed);
                eventually("writes are acknowledged", || acknowledged.load(Ordering::Relaxed) >= first + WRITES_MIN);
            };
            enough_more();
            let began = Instant::now();
            let epoch = cluster.latest().unwrap().epoch;
            let faults = cluster.inflict(round);
            thread::sleep(round.lasts);
            cluster.check_inflicted(&faults, epoch);
            let healed = Instant::now();
            cluster.heal(&faults);
            cluster.all_are_members();
            let ended = Instant::now();
            enough_more();
            Past { faults, began, healed, ended }
        })
    }
}

impl Nodes {
    /// Restarts at most this many nodes that run the earlier version, one after the other. From now on nodes start with the new one.
    fn upgrade(&mut self, nodes_max: usize) {
        self.program_before = None;
        let before: Vec<usize> = self.running().filter(|node| self.slots[*node].is_before).take(nodes_max).collect();
        for node in before {
            println!("upgrade of {}", self.slots[node].name);
            self.leave(node);
            self.start_node(node);
            self.all_are_members();
        }
    }
}

/// Starts three nodes and three brokers; with `TIDEWIRE_CLUSTER_ARCHIVE=cassandra` old posts are in a Cassandra that all nodes share.
fn started() -> Nodes {
    match std::env::var("TIDEWIRE_CLUSTER_ARCHIVE").as_deref() {
        Err(_) => Nodes::start(3),
        #[cfg(feature = "cassandra")]
        Ok("cassandra") => {
            use testkit::cassandra::Nodes as Store;
            let url = Store::shared().url(&Store::keyspace());
            let of_node = ["--archive", &url, "--outbox-posts", "10"];
            Nodes::start_with(3, &["--archive", &url, "--archive-replicas", "1"], &of_node)
        }
        Ok(other) => {
            panic!("TIDEWIRE_CLUSTER_ARCHIVE is {other:?}, and can only be cassandra, with the feature of that name")
        }
    }
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn faults_neither_lose_nor_repeat_acknowledged_writes_and_clients_miss_nothing() {
    let mut cluster = started();
    let variable = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = seed();
    let faults = variable("TIDEWIRE_CLUSTER_FAULTS").unwrap_or(FAULTS.len() as u64);
    println!("TIDEWIRE_SEED={seed} TIDEWIRE_CLUSTER_FAULTS={faults}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clients = Clients::start(&cluster, seed);
    let (began, mut inflicted) = (Instant::now(), 0);
    for round in rounds(&mut random, faults as usize) {
        match inflicted {
            inflicted if inflicted >= faults as usize * 3 / 4 => cluster.upgrade(usize::MAX),
            inflicted if inflicted >= faults as usize / 2 && cluster.program_before.is_some() => cluster.upgrade(1),
            _ => {}
        }
        let before = clients.counts();
        let past = clients.go_through(&mut cluster, &round);
        thread::sleep(REST);
        let end = cluster.mark_end();
        cluster.check_digests();
        cluster.settle(&mut clients.writers, end, &past.sample());
        let some = (0..CHECKED).map(|_| random.usize(..READERS)).collect::<Vec<_>>().into_iter();
        cluster.check_feeds(&clients.writers, some, end);
        cluster.check_watchers(&clients.writers, &clients.watchers);
        inflicted += past.faults.len();
        let Counts { done, unreached, refused, open, pages } = clients.counts();
        println!(
            "{inflicted} at {:.0?}: {:?} for {:.1?}, over after {:.1?}: {} acknowledged, {} without a node, {} refused, {} open, {} pages; {:?}",
            began.elapsed(),
            past.faults,
            past.healed - past.began,
            past.ended - past.healed,
            done - before.done,
            unreached - before.unreached,
            refused - before.refused,
            open - before.open,
            pages - before.pages,
            clients.watchers.counts(),
        );
        let refusals: Vec<&str> = clients.writers.iter().map(|writer| &writer.refusal[..]).collect();
        assert!(
            !past.is_planned() || refused == before.refused,
            "nothing is refused if nodes only join or leave, but the last refusals are: {refusals:#?} {}",
            cluster.logs()
        );
    }
    let end = cluster.mark_end();
    clients.writers.iter_mut().flat_map(|writer| writer.posts.values_mut()).for_each(|post| post.is_new = true);
    let posts: usize = clients.writers.iter().map(|writer| writer.posts.len()).sum();
    let sample = Sample { all_of: None, of_every: (posts / POSTS_READ).max(1) as u64 };
    cluster.settle(&mut clients.writers, end, &sample);
    cluster.check_unnamed(&mut clients.writers, end);
    cluster.check_feeds(&clients.writers, 0..READERS, end);
    #[cfg(feature = "cassandra")]
    if cluster.options.iter().any(|option| option == "--archive") {
        // Outboxes of authors grow to twice their limit, and changes of up to 128 posts wait for a round.
        let left_max = (AUTHORS + WRITERS + 1) * 20 + 128;
        assert!(posts > 2 * left_max, "{posts} posts are too few to see whether they leave memory");
        cluster.old_posts_leave_memory(left_max as u64);
    }
    let (counts, watched) = (clients.counts(), clients.watchers.counts());
    println!("{inflicted} faults: {counts:?}, {watched:?}");
    assert!(cluster.running().all(|node| !cluster.slots[node].is_before), "all nodes were upgraded");
    assert!(counts.pages > 0 && watched.recovered > 0, "pages were read, and live clients went on where they were");
}
