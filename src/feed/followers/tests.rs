//! Tests of the followers of a source against a map of their edges, and of slices against sets.
#![cfg(test)]

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use testkit::cases;

/// Edges of one source by follower: the instant, and true if the edge is hidden. This is the followers' side of the
/// world.
type Edges = BTreeMap<SourceSlot, (i64, bool)>;

fn insert(followers: &mut Followers, edges: &Edges, slot: u32, since: i64, hidden: bool, sharding: Sharding) -> bool {
    if let Some(run) = followers.must_split(UnixMicros(since), sharding) {
        let visible = run.iter().filter(|slot| !edges[slot].1).map(|slot| (UnixMicros(edges[slot].0), *slot));
        followers.split(UnixMicros(since), visible.collect());
    }
    followers.insert(SourceSlot(slot), UnixMicros(since), hidden, sharding)
}

fn followers_of(slots: &BTreeSet<u32>, sharding: Sharding) -> Followers {
    let (mut followers, mut edges) = (Followers::default(), Edges::new());
    for slot in slots {
        let (since, hidden) = (i64::from(*slot), slot % 7 == 0);
        assert!(insert(&mut followers, &edges, *slot, since, hidden, sharding));
        edges.insert(SourceSlot(*slot), (since, hidden));
    }
    followers
}

/// Returns all visible followers, youngest edge first.
fn listed(followers: &Followers, edges: &Edges, sharding: Sharding) -> Vec<(i64, u32)> {
    let (mut listed, mut until) = (Vec::new(), UnixMicros(i64::MAX));
    while let Some((from, slots)) = followers.before(until, sharding) {
        let visible = slots.into_iter().filter(|slot| !edges[slot].1).map(|slot| (edges[&slot].0, slot.0));
        let mut visible: Vec<_> = visible.filter(|(since, _)| (from.0..until.0).contains(since)).collect();
        visible.sort_unstable_by(|a, b| b.cmp(a));
        listed.append(&mut visible);
        until = from;
    }
    listed
}

/// Returns all slices of all shards, as slots.
fn sliced(
    followers: &Followers,
    active: &[RoaringBitmap],
    sharding: Sharding,
    max: usize,
    scan_max: usize,
) -> Vec<u32> {
    let mut found = Vec::new();
    for (shard, active) in active.iter().enumerate() {
        let mut from = 0;
        loop {
            let mut slice = Vec::new();
            let of = Slice { sharding, shard, from, active, max, scan_max };
            let end = followers.slice(of, &mut slice);
            found.extend(slice.into_iter().map(|local| sharding.source(shard, local).0));
            match end {
                SliceEnd::Done => break,
                SliceEnd::Resume(next) => from = next,
            }
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_follower_uses_four_bytes_for_its_place_and_four_for_its_age() {
    let sharding = Sharding::new(2);
    for (count, step, most) in [(200, 1, 4.5), (200, 131_072, 4.5), (6_000, 1, 8.5), (6_000, 100_003, 8.5)] {
        let slots: BTreeSet<u32> = (0..count).map(|nth| nth * step).collect();
        let each = followers_of(&slots, sharding).heap_bytes() as f64 / f64::from(count);
        assert!(each <= most, "{each:.1} bytes for each of {count} by {step}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Follow(u32, bool),
    /// Follows by an edge that is older than others, as a restart does.
    FollowLate(u32, i64),
    FollowMany(u32, u32),
    Unfollow(u32),
    UnfollowMany(u32, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2_000u32, any::<bool>()).prop_map(|(slot, hidden)| Op::Follow(slot, hidden)),
        4 => (0..2_000u32, 0..1_000_000i64).prop_map(|(slot, since)| Op::FollowLate(slot, since)),
        4 => (0..2_000u32, 0..500u32).prop_map(|(slot, count)| Op::FollowMany(slot, count)),
        4 => (0..2_000u32).prop_map(Op::Unfollow),
        2 => (0..2_000u32, 0..600u32).prop_map(|(slot, count)| Op::UnfollowMany(slot, count)),
    ]
}

#[test]
fn followers_of_one_instant_stay_in_one_run() {
    let (sharding, mut followers, mut edges) = (Sharding::new(2), Followers::default(), Edges::new());
    for slot in 0..3_000 {
        assert!(insert(&mut followers, &edges, slot, 7, false, sharding));
        edges.insert(SourceSlot(slot), (7, false));
    }
    assert_eq!(listed(&followers, &edges, sharding).len(), 3_000);
}

#[test]
fn a_sample_is_spread_over_all_followers_and_stays_the_same() {
    let sharding = Sharding::new(3);
    for (followers, max) in [(0, 64), (5, 64), (64, 64), (65, 64), (50, 8), (10_000, 64)] {
        let all = followers_of(&(0..followers).map(|nth| nth * 7).collect(), sharding);
        let mut sample = all.sample(max, sharding);
        assert_eq!(sample, all.sample(max, sharding));
        sample.sort_unstable();
        sample.dedup();
        let least = (followers as usize).min(max) / 2;
        assert!((least..=max + sharding.shards()).contains(&sample.len()), "{} of {followers}", sample.len());
        let is_follower = |slot: &SourceSlot| slot.0.is_multiple_of(7) && slot.0 < followers * 7;
        assert!(sample.iter().all(is_follower));
        let in_lower_half = sample.iter().filter(|slot| slot.0 < followers * 7 / 2).count();
        assert!(in_lower_half.abs_diff(sample.len() / 2) <= sharding.shards(), "{in_lower_half}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64) as u32))]

    #[test]
    fn slices_include_every_active_follower_once(
        followers in prop::collection::btree_set(0..500u32, 0..300),
        active in prop::collection::btree_set(0..500u32, 0..300),
        shards in 1..5usize,
        max in 1..70usize,
        scan_max in 2..100usize,
    ) {
        let sharding = Sharding::new(shards);
        let mut by_shard = vec![RoaringBitmap::new(); shards];
        for slot in &active {
            by_shard[sharding.shard_of(SourceSlot(*slot))].insert(sharding.local(SourceSlot(*slot)));
        }
        let found = sliced(&followers_of(&followers, sharding), &by_shard, sharding, max, scan_max);
        prop_assert!(found.iter().eq(followers.intersection(&active)));
    }

    #[test]
    fn followers_agree_with_a_map_of_edges(
        ops in prop::collection::vec(op(), 0..40),
        shards in 1..4usize,
    ) {
        let sharding = Sharding::new(shards);
        let (mut followers, mut edges, mut now) = (Followers::default(), Edges::new(), 1_000_000);
        for op in ops {
            let (slots, late, hidden) = match op {
                Op::Follow(slot, hidden) => (slot..slot + 1, None, hidden),
                Op::FollowLate(slot, since) => (slot..slot + 1, Some(since), false),
                Op::FollowMany(slot, count) => (slot..slot + count, None, false),
                Op::Unfollow(slot) => (slot..slot + 1, Some(-1), false),
                Op::UnfollowMany(slot, count) => (slot..slot + count, Some(-1), false),
            };
            for slot in slots {
                now += 1;
                let (follower, since) = (SourceSlot(slot), late.unwrap_or(now));
                if since < 0 {
                    let (since, hidden) = edges.get(&follower).copied().unwrap_or((0, false));
                    let removed = followers.remove(follower, UnixMicros(since), hidden, sharding);
                    prop_assert_eq!(removed, edges.remove(&follower).is_some());
                } else if late.is_none() || edges.values().all(|edge| edge.0 != since) {
                    let is_new = insert(&mut followers, &edges, slot, since, hidden, sharding);
                    prop_assert_eq!(is_new, !edges.contains_key(&follower));
                    edges.entry(follower).or_insert((since, hidden));
                }
            }
            let mut visible: Vec<(i64, u32)> =
                edges.iter().filter(|edge| !edge.1.1).map(|(slot, edge)| (edge.0, slot.0)).collect();
            visible.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!((followers.len(), followers.visible_len()), (edges.len() as u64, visible.len()));
            if let Form::Many(many) = &followers.0 {
                many.by_age.check();
            }
            prop_assert_eq!(listed(&followers, &edges, sharding), visible);
            for shard in 0..shards {
                let has_any = edges.keys().any(|slot| sharding.shard_of(*slot) == shard);
                prop_assert_eq!(followers.reaches(shard, sharding), has_any);
            }
        }
        let everyone: Vec<RoaringBitmap> = (0..shards).map(|_| (0..4_000).collect()).collect();
        let all: Vec<u32> = edges.keys().map(|slot| slot.0).collect();
        prop_assert_eq!(sliced(&followers, &everyone, sharding, 70, 1_000), all);
    }
}
