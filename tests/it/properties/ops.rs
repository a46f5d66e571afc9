//! What happens in a random history.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::rules::{Replies, RulesPatch};

use crate::properties::live::LiveOp;
use testkit::world::{above, flapping};

pub const PEOPLE: [&str; 7] = ["ann", "bob", "cas", "dan", "eve", "fay", "gus"];
pub const TAGS: [&str; 2] = ["rust", "tea"];
/// Posts whose replies can be followed.
pub const REPLIED: [u64; 3] = [0, 1, 2];
pub const SOURCES: usize = PEOPLE.len() + TAGS.len() + 1 + REPLIED.len();
pub const LISTS: [&str; 2] = ["near", "far"];

/// A post that another one names.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// One of those published so far, deleted or not.
    Known(usize),
    /// An id, which may be published later, or never.
    Id(u64),
}

/// A post to publish.
#[derive(Clone, Debug, Default)]
pub struct Published {
    pub author: usize,
    /// How long ago; nothing: now.
    pub ago: Option<i64>,
    /// Which tags, a bit each.
    pub tags: u8,
    pub topic: bool,
    pub own_id: Option<u64>,
    pub repost_of: Option<Target>,
    pub reply_to: Option<Target>,
    /// Whether its author waits until it is delivered.
    pub wait: bool,
}

#[derive(Clone, Debug)]
pub enum Op {
    Publish(Published),
    Delete(usize),
    Hide(usize, bool),
    Edit(usize),
    Follow {
        reader: usize,
        source: usize,
        hidden: bool,
        backfill: Option<usize>,
    },
    FollowAll(usize),
    Unfollow {
        reader: usize,
        source: usize,
        keep: bool,
    },
    Silence {
        reader: usize,
        source: usize,
        how: MuteOrBlock,
        on: bool,
    },
    Rules(usize, RulesPatch),
    List {
        reader: usize,
        list: usize,
        source: usize,
        on: bool,
    },
    DropList(usize, usize),
    Mark(usize, usize),
    Erase(usize),
    /// One page of a feed: from a post's place on, or the newest.
    Page {
        feed: Feed,
        limit: usize,
        from: Option<usize>,
        upward: bool,
    },
    Whole {
        feed: Feed,
        limit: usize,
        upward: bool,
    },
    Explain(usize, usize),
    /// The list of a post's reposts, for a reader if there is one, in pages of so many; and its counts.
    Reposts {
        post: usize,
        reader: Option<usize>,
        limit: usize,
    },
    Unread(usize),
    /// What one of the live clients does.
    Live(usize, LiveOp),
    /// One of the clients that poll does so, for so many entries.
    Poll(usize, usize),
    SleepAll,
    Snapshot,
    Restart {
        how: Restart,
        /// By how much the clock is off afterwards, in seconds.
        clock: i64,
        /// Other settings from then on.
        change: Option<Settings>,
    },
}

/// Which feed.
#[derive(Clone, Copy, Debug)]
pub enum Feed {
    Home(usize),
    List(usize, usize),
    Page(usize),
    /// Whose replies, and who reads them.
    Replies(usize, usize),
}

/// Settings that may be others after a restart.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub policy: CelebrityPolicy,
    pub shards: usize,
    pub inbox_posts: usize,
    /// If most posts are in an archive.
    pub outbox_posts: usize,
    /// How long a reader stays awake, in milliseconds.
    pub window_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Restart {
    InOrder,
    ProcessKilled,
    PowerLost(u64),
}

fn person() -> std::ops::Range<usize> {
    0..PEOPLE.len()
}

fn source() -> std::ops::Range<usize> {
    0..SOURCES
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![6 => (0..60usize).prop_map(Target::Known), 1 => (0..40u64).prop_map(Target::Id)]
}

fn replied() -> impl Strategy<Value = u64> {
    prop::sample::select(&REPLIED[..])
}

fn publish() -> impl Strategy<Value = Op> {
    let place = (prop::option::of(0..6i64), prop::option::weighted(0.3, prop_oneof![4 => 0..40u64, 1 => replied()]));
    let answered = prop_oneof![3 => target(), 2 => replied().prop_map(Target::Id)];
    let names = (prop::option::weighted(0.45, target()), prop::option::weighted(0.3, answered));
    (person(), place, (0..4u8, any::<bool>()), prop::bool::weighted(0.2), names).prop_map(
        |(author, (ago, own_id), (tags, wait), topic, (repost_of, reply_to))| {
            Op::Publish(Published { author, ago, tags, topic, own_id, repost_of, reply_to, wait })
        },
    )
}

fn edges() -> impl Strategy<Value = Op> {
    let backfill = prop::option::weighted(0.3, 0..4usize);
    let follow = (person(), source(), prop::bool::weighted(0.2), backfill);
    let how = prop_oneof![2 => Just(MuteOrBlock::Mute), 1 => Just(MuteOrBlock::Block)];
    prop_oneof![
        10 => follow.prop_map(|(reader, source, hidden, backfill)| Op::Follow { reader, source, hidden, backfill }),
        3 => person().prop_map(Op::FollowAll),
        6 => (person(), source(), any::<bool>()).prop_map(|(reader, source, keep)| Op::Unfollow { reader, source, keep }),
        5 => (person(), source(), how, prop::bool::weighted(0.6))
            .prop_map(|(reader, source, how, on)| Op::Silence { reader, source, how, on }),
    ]
}

fn rules() -> impl Strategy<Value = RulesPatch> {
    let replies = prop_oneof![Just(Replies::Followed), Just(Replies::All), Just(Replies::None)];
    let most = prop_oneof![Just(None), (1..4usize).prop_map(NonZeroUsize::new)];
    (
        prop::option::of(any::<bool>()),
        prop::option::of(replies),
        prop::option::of(prop::bool::weighted(0.7)),
        prop::option::weighted(0.3, most),
        prop::option::weighted(0.2, any::<bool>()),
    )
        .prop_map(|(show_own, replies, reposts, per_source_max, notify)| RulesPatch {
            show_own,
            replies,
            reposts,
            per_source_max,
            notify,
        })
}

fn preferences() -> impl Strategy<Value = Op> {
    let list = 0..LISTS.len();
    prop_oneof![
        4 => (person(), rules()).prop_map(|(reader, patch)| Op::Rules(reader, patch)),
        5 => (person(), list.clone(), source(), prop::bool::weighted(0.8))
            .prop_map(|(reader, list, source, on)| Op::List { reader, list, source, on }),
        1 => (person(), list).prop_map(|(reader, list)| Op::DropList(reader, list)),
        3 => (person(), 0..60usize).prop_map(|(reader, post)| Op::Mark(reader, post)),
    ]
}

fn feed() -> impl Strategy<Value = Feed> {
    prop_oneof![
        6 => person().prop_map(Feed::Home),
        2 => (person(), 0..LISTS.len()).prop_map(|(reader, list)| Feed::List(reader, list)),
        1 => source().prop_map(Feed::Page),
        1 => (0..REPLIED.len(), person()).prop_map(|(nth, reader)| Feed::Replies(nth, reader)),
    ]
}

fn limit() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 1..4usize, 1 => 1..=25usize]
}

fn reads() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (feed(), limit(), prop::option::of(0..60usize), any::<bool>())
            .prop_map(|(feed, limit, from, upward)| Op::Page { feed, limit, from, upward }),
        6 => (feed(), limit(), any::<bool>()).prop_map(|(feed, limit, upward)| Op::Whole { feed, limit, upward }),
        4 => (person(), 0..60usize).prop_map(|(reader, post)| Op::Explain(reader, post)),
        2 => person().prop_map(Op::Unread),
        4 => (0..60usize, prop::option::of(person()), limit())
            .prop_map(|(post, reader, limit)| Op::Reposts { post, reader, limit }),
    ]
}

fn live() -> impl Strategy<Value = Op> {
    let op = prop_oneof![
        5 => Just(LiveOp::Connect),
        2 => Just(LiveOp::Drop),
        2 => (1..25usize).prop_map(LiveOp::Read),
        4 => (1..12usize).prop_map(LiveOp::Older),
        6 => Just(LiveOp::Check),
    ];
    (any::<usize>(), op).prop_map(|(client, op)| Op::Live(client, op))
}

pub fn op() -> impl Strategy<Value = Op> {
    let restart =
        prop_oneof![Just(Restart::InOrder), Just(Restart::ProcessKilled), any::<u64>().prop_map(Restart::PowerLost)];
    prop_oneof![
        36 => publish(),
        4 => (0..60usize).prop_map(Op::Delete),
        4 => (0..60usize, any::<bool>()).prop_map(|(post, hidden)| Op::Hide(post, hidden)),
        2 => (0..60usize).prop_map(Op::Edit),
        24 => edges(),
        10 => preferences(),
        2 => person().prop_map(Op::Erase),
        20 => reads(),
        20 => live(),
        12 => (any::<usize>(), limit()).prop_map(|(poller, limit)| Op::Poll(poller, limit)),
        1 => Just(Op::SleepAll),
        2 => Just(Op::Snapshot),
        3 => (restart, -100..100i64, prop::option::of(settings()))
            .prop_map(|(how, clock, change)| Op::Restart { how, clock, change }),
    ]
}

pub fn settings() -> impl Strategy<Value = Settings> {
    (policy(), 1..=4usize, 1..20usize, 1..6usize, 20..=80u64).prop_map(
        |(policy, shards, inbox_posts, outbox_posts, window_ms)| Settings {
            policy,
            shards,
            inbox_posts,
            outbox_posts,
            window_ms,
        },
    )
}

pub fn policy() -> impl Strategy<Value = CelebrityPolicy> {
    prop_oneof![
        1 => Just(CelebrityPolicy::PushAll),
        1 => Just(CelebrityPolicy::PullAll),
        4 => (1..6u64).prop_map(above),
        4 => Just(flapping()),
    ]
}

pub fn source_name(source: usize) -> String {
    match source.checked_sub(PEOPLE.len()) {
        None => PEOPLE[source].to_owned(),
        Some(tag) if tag < TAGS.len() => format!("tag:{}", TAGS[tag]),
        Some(tag) if tag == TAGS.len() => "topic:42".to_owned(),
        Some(other) => format!("replies:{}", REPLIED[other - TAGS.len() - 1]),
    }
}
