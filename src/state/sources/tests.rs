//! Tests of sources.

#![cfg(test)]

use super::*;
use crate::feed::followers::Sharding;
use crate::feed::outbox::Route;
use crate::feed::position::at;

fn follow(sources: &Sources, follower: &Source, source: &Source, since: i64) {
    let (since, sharding) = (UnixMicros(since), Sharding::new(2));
    let is_new = sources.change_edges(follower, |edges| edges.following_mut().insert(source.slot, since, false));
    if is_new {
        let insert = |edges: &mut Edges| edges.followers.insert(follower.slot, since, false, sharding);
        assert!(sources.change_edges(source, insert));
    }
}

fn interned(sources: &Sources, count: usize) -> Vec<Arc<Source>> {
    (0..count).map(|nth| sources.intern(&SourceId::new(&format!("user-{nth:07}")).unwrap())).collect()
}

#[test]
fn the_flow_key_of_a_reader_is_its_most_followed_source_until_its_follows_change() {
    let sources = Sources::default();
    let [ann, few, many, more] = ["ann", "few", "many", "more"].map(|id| sources.intern(&SourceId::new(id).unwrap()));
    assert_eq!(ann.flow_key(&sources), ann.slot, "of nobody's");
    let others = interned(&sources, 200);
    let crowd = |source: &Source, count: usize| {
        others[..count].iter().for_each(|follower| follow(&sources, follower, source, 0));
    };
    crowd(&few, 2);
    crowd(&many, 90);
    follow(&sources, &ann, &few, 0);
    follow(&sources, &ann, &many, 0);
    assert_eq!(ann.flow_key(&sources), many.slot);
    crowd(&more, 190);
    follow(&sources, &ann, &more, 1);
    assert_eq!(ann.flow_key(&sources), more.slot);
    crowd(&few, 200);
    assert_eq!(ann.flow_key(&sources), more.slot, "looked at only when it follows or leaves somebody");
}

#[test]
fn sources_are_found_by_id_until_they_are_erased() {
    let sources = Sources::default();
    let all = interned(&sources, 10_000);
    assert!(all.iter().all(|source| sources.get(&source.id).unwrap().slot == source.slot));
    all.iter().step_by(3).for_each(|source| sources.begin_erasure(source, UnixMicros(i64::from(source.slot.0))));
    for (nth, source) in all.iter().enumerate() {
        assert_eq!(sources.get(&source.id).is_none(), nth % 3 == 0, "{}", source.id);
    }
    assert!(sources.get(&SourceId::new("user-x").unwrap()).is_none());
}

#[test]
fn the_bytes_of_the_graph_are_those_of_all_sources_and_edges() {
    let sources = Sources::default();
    let all = interned(&sources, 3 * SOURCES_SAMPLE_MAX + 7);
    let sum = || all.iter().map(|source| source.bytes()).sum::<usize>();
    assert_eq!((sources.graph_bytes(), sources.bytes()), (sum(), sum()));
    assert_eq!(sources.graph_bytes(), all.len() * SOURCE_BYTES, "short ids have no memory of their own");
    for (nth, n) in (0..all.len()).flat_map(|nth| (1..20).map(move |n| (nth, n))) {
        follow(&sources, &all[nth], &all[(nth * n + 1) % all.len()], (nth * 20 + n) as i64);
    }
    assert_eq!(sources.graph_bytes(), sum());
    for source in &all {
        sources.change_edges(source, |edges| {
            let following: Vec<SourceSlot> = edges.following.followed().collect();
            following.into_iter().for_each(|slot| assert!(edges.following_mut().remove(slot).is_some()));
        });
    }
    assert_eq!(sources.graph_bytes(), sum());
}

#[test]
fn bytes_of_outboxes_and_preferences_are_estimated_by_a_sample() {
    let sources = Sources::default();
    let all = interned(&sources, 3 * SOURCES_SAMPLE_MAX + 7);
    all.iter()
        .step_by(2)
        .for_each(|source| source.change_outbox(|outbox| assert!(outbox.insert(at(1, 1), Route::Push))));
    let (estimate, sum) = (sources.bytes() as f64, all.iter().map(|source| source.bytes()).sum::<usize>() as f64);
    assert!(sum > sources.graph_bytes() as f64 && (estimate / sum - 1.0).abs() < 0.1, "{estimate} of {sum}");
}

#[test]
fn a_source_that_only_follows_uses_few_bytes() {
    assert!(size_of::<Source>() <= 80, "with the counts of its `Arc`, {} bytes take 96", size_of::<Source>());
    assert!(size_of::<Following>() <= 48, "with the counts of its `Arc`, {} bytes take 64", size_of::<Following>());
}
