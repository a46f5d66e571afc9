//! Tests of both sides of edges together, against a map.
#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::clock::UnixMicros;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::{Event, NewEdge};
use crate::feed::followers::Sharding;
use crate::id::{SourceId, SourceSlot};
use crate::state::records::RecordTraversal;
use crate::state::world::{StateMachine, World};

const STAR: SourceSlot = SourceSlot(0);

/// The edges to the star by their followers: the instant, and true if it is hidden.
type Edges = BTreeMap<SourceSlot, (i64, bool)>;

#[derive(Clone, Debug)]
enum Op {
    /// Some users follow in one request, in the order of their names or the other way round.
    Follow {
        first: u32,
        count: u32,
        hidden: bool,
        backwards: bool,
    },
    Unfollow {
        first: u32,
        count: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let users = || (0..900u32, prop_oneof![1..4u32, 100..500u32]);
    prop_oneof![
        3 => (users(), prop::bool::weighted(0.3), any::<bool>())
            .prop_map(|((first, count), hidden, backwards)| Op::Follow { first, count, hidden, backwards }),
        1 => users().prop_map(|(first, count)| Op::Unfollow { first, count }),
    ]
}

fn user(nth: u32) -> SourceId {
    SourceId::new(&format!("user-{nth}")).unwrap()
}

fn star() -> SourceId {
    SourceId::new("star").unwrap()
}

/// Applies an operation to a world and to the map, and advances the clock.
fn apply(machine: &mut StateMachine, edges: &mut Edges, now: &mut i64, op: &Op) {
    match *op {
        Op::Follow { first, count, hidden, backwards } => {
            let mut followers: Vec<u32> = (first..first + count).collect();
            if backwards {
                followers.reverse();
            }
            let requested = followers.iter().map(|nth| NewEdge { hidden, ..NewEdge::new(user(*nth), star()) });
            machine.apply(&Event::Followed { edges: requested.collect(), since: UnixMicros(*now) });
            for (nth, follower) in followers.into_iter().enumerate() {
                let slot = machine.world().sources.get(&user(follower)).unwrap().slot;
                let since = *now + nth as i64;
                if edges.get(&slot).is_none_or(|before| before.1 != hidden) {
                    edges.insert(slot, (since, hidden));
                }
            }
            *now += i64::from(count);
        }
        Op::Unfollow { first, count } => {
            for follower in (first..first + count).map(user) {
                if let Some(source) = machine.world().sources.get(&follower) {
                    edges.remove(&source.slot);
                }
                machine.apply(&Event::Unfollowed { follower, source: star(), keep_until: None });
            }
        }
    }
}

fn check(world: &World, edges: &Edges, before: i64, max: usize) -> Result<(), TestCaseError> {
    let source = world.sources.at(STAR);
    let mut visible: Vec<(UnixMicros, SourceSlot)> =
        edges.iter().filter(|edge| !edge.1.1).map(|(slot, edge)| (UnixMicros(edge.0), *slot)).collect();
    visible.sort_unstable_by(|a, b| b.cmp(a));
    prop_assert_eq!((world.edges(), source.followers().len()), (edges.len(), edges.len() as u64));
    prop_assert_eq!(source.followers().visible_len(), visible.len());
    prop_assert_eq!(&world.followers_before(source, UnixMicros(i64::MAX), usize::MAX), &visible);
    let page: Vec<_> = visible.into_iter().filter(|edge| edge.0.0 < before).take(max).collect();
    prop_assert_eq!(world.followers_before(source, UnixMicros(before), max), page);
    for (slot, edge) in edges {
        let found = world.sources.at(*slot).following().get(STAR).map(|edge| (edge.since.0, edge.hidden));
        prop_assert_eq!(found, Some(*edge));
    }
    let all: usize = world.sources.iter().map(|source| source.bytes()).sum();
    prop_assert_eq!(world.sources.graph_bytes(), all);
    Ok(())
}

fn restored(world: &World) -> Arc<World> {
    let (restored, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(2));
    let walk = RecordTraversal { world, sources: world.sources.len() };
    walk.sources().for_each(|record| machine.restore_source(&record).unwrap());
    walk.edges().for_each(|record| machine.restore_edges(&record).unwrap());
    restored
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_of_follows_agree_with_a_map_of_edges_even_after_a_restart(
        ops in prop::collection::vec(op(), 1..14),
        before in 0..4_000i64,
        max in 0..600usize,
    ) {
        let (world, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(2));
        machine.intern(&star());
        let (mut edges, mut now) = (Edges::new(), 1);
        for (nth, op) in ops.iter().enumerate() {
            apply(&mut machine, &mut edges, &mut now, op);
            if nth % 4 == 3 || nth == ops.len() - 1 {
                check(&world, &edges, before, max)?;
                check(&restored(&world), &edges, before, max)?;
            }
        }
    }
}
