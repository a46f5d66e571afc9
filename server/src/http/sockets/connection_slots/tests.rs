//! Tests of connection slots: which connections get a slot, and which ones are evicted.
#![cfg(test)]

use super::*;
use crate::http::sockets::connection_slots::connection_state::UnderWay;
use tidewire::clock::{ManualClock, UnixMicros};
use tidewire::limits::CONNECTIONS_UNKNOWN_SHARE;

fn connections_on(clock: &Arc<ManualClock>, all: usize, per_address: usize) -> Arc<Connections> {
    let proxies = "192.0.2.99".parse().unwrap();
    let limits = ConnectionLimits { all, per_address, proxies };
    Arc::new(Connections::with_clock(limits, Arc::clone(clock) as Arc<dyn Clock>))
}

fn connections(all: usize, per_address: usize) -> Arc<Connections> {
    connections_on(&clock(), all, per_address)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(UnixMicros(0)))
}

const MOMENT: Duration = Duration::from_millis(1);

fn peer(host: u32) -> Option<SocketAddr> {
    Some(SocketAddr::from((0xc000_0200_u32.wrapping_add(host).to_be_bytes(), 1)))
}

#[test]
fn a_new_connection_evicts_the_longest_idle_one_and_no_busy_one() {
    let clock = clock();
    let connections = connections_on(&clock, 3, 3);
    let slots: Vec<_> = (0..3)
        .map(|host| {
            clock.advance(MOMENT);
            connections.enter(peer(host)).unwrap()
        })
        .collect();
    let busy = slots[0].state().begin();
    let new = connections.enter(peer(9)).unwrap();
    let ended = || slots.iter().map(|slot| slot.state().is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false], "the first is busy, the second idle for longer than the third");
    let busy_too = [new.state().begin(), slots[2].state().begin()];
    assert!(connections.enter(peer(9)).is_none(), "none is idle");
    assert_eq!(connections.count(), 4, "the one that ends is there until its socket is closed");
    clock.advance(MOMENT);
    drop(busy);
    assert!(connections.enter(peer(9)).is_some());
    assert_eq!(ended(), [true, true, false]);
    drop((busy_too, new, slots));
    assert_eq!(connections.count(), 0);
    assert_eq!(connections.table.lock().all.staying(), 0);
    assert!(connections.table.lock().by_address.is_empty(), "nothing is kept of those that have gone");
    assert_eq!(connections.ended(), [("refused", 1), ("refused_address", 0), ("made_room", 2), ("stayed_idle", 0)]);
}

#[test]
fn an_address_evicts_its_own_connections_and_a_proxy_may_use_all_slots() {
    let connections = connections(10, 2);
    let other = connections.enter(peer(1)).unwrap();
    let two = [connections.enter(peer(2)).unwrap(), connections.enter(peer(2)).unwrap()];
    let busy: Vec<_> = two.iter().map(|slot| slot.state().begin()).collect();
    assert!(connections.enter(peer(2)).is_none());
    drop(busy);
    let third = connections.enter(peer(2)).unwrap();
    assert_eq!(two.iter().filter(|slot| slot.state().is_ended()).count(), 1);
    assert!(!other.state().is_ended(), "nobody else ends for it");
    let of_proxy: Vec<_> = (0..7).map(|_| connections.enter(peer(99)).unwrap()).collect();
    assert_eq!(connections.count(), 11);
    assert!(of_proxy.iter().all(|slot| !slot.state().is_ended()));
    drop(third);
}

#[test]
fn every_change_touches_few_entries_among_many() {
    const MANY: usize = 20_000;
    const TOUCHED_MAX: usize = 12;
    let (clock, idle_max) = (clock(), Duration::from_secs(60));
    let connections = connections_on(&clock, MANY, MANY);
    clock.advance(2 * idle_max);
    let slots: Vec<_> = (0..MANY).map(|_| connections.enter(peer(1)).unwrap()).collect();
    let touched = || std::mem::take(&mut connections.table.lock().all.touched);
    touched();
    for nth in [0, 1, MANY / 2, MANY - 1] {
        let busy = slots[nth].state().begin();
        assert!(touched() <= TOUCHED_MAX, "to begin");
        drop(busy);
        assert!(touched() <= TOUCHED_MAX, "to end");
        slots[nth].state().mark_authenticated();
        assert!(touched() <= TOUCHED_MAX, "to know");
    }
    for _ in 0..3 {
        let come = connections.enter(peer(2)).unwrap();
        assert!(touched() <= TOUCHED_MAX, "to enter");
        drop(come);
        assert!(touched() <= TOUCHED_MAX, "to go");
    }
    connections.sweep(idle_max);
    assert!((1..=TOUCHED_MAX).contains(&touched()), "to sweep if none is due");
    let _busy: Vec<_> = slots.iter().map(|slot| slot.state().begin()).collect();
    let others: Vec<_> = (0..3).map(|_| connections.enter(peer(3)).unwrap()).collect();
    let _busy_too: Vec<_> = others.iter().map(|slot| slot.state().begin()).collect();
    touched();
    assert!(connections.enter(peer(4)).is_none());
    assert!(touched() <= TOUCHED_MAX, "to find that none is idle");
}

#[test]
fn an_evicted_connection_does_not_begin_a_request() {
    let connections = connections(1, 1);
    let slot = connections.enter(peer(1)).unwrap();
    assert!(slot.state().begin().is_some());
    let _other = connections.enter(peer(2)).unwrap();
    assert!(slot.state().begin().is_none(), "it would be done, and its client would not get the answer");
    drop(slot);
    assert_eq!((connections.count(), connections.table.lock().all.staying()), (1, 1));
}

#[test]
fn new_connections_evict_each_other_before_most_authenticated_ones() {
    const MANY: usize = 320;
    let clock = clock();
    let connections = connections_on(&clock, MANY, MANY);
    clock.advance(MOMENT);
    let kept: Vec<_> = (0..MANY).map(|_| connections.enter(peer(1)).unwrap()).collect();
    kept.iter().for_each(|slot| slot.state().mark_authenticated());
    clock.advance(MOMENT);
    let new: Vec<_> = (0..MANY / CONNECTIONS_UNKNOWN_SHARE).map(|_| connections.enter(peer(2)).unwrap()).collect();
    assert!(new.iter().all(|slot| !slot.state().is_ended()));
    let more: Vec<_> = (0..MANY).map(|_| connections.enter(peer(2)).unwrap()).collect();
    let stay = kept.iter().filter(|slot| !slot.state().is_ended()).count();
    assert!(stay >= MANY - 2 * MANY / CONNECTIONS_UNKNOWN_SHARE, "{stay} of those that were let in stay");
    drop((new, more));
}

/// Compares random sequences of events with a plain list as the model.
#[test]
fn eviction_agrees_with_the_model() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let connections = connections(12, 6);
        let mut model: Vec<(ConnectionSlot, Vec<UnderWay>, bool)> = Vec::new();
        // The idle connections, in the order in which they became idle.
        let mut idle: Vec<usize> = Vec::new();
        let key = |slot: &ConnectionSlot| Arc::as_ptr(slot.state()) as usize;
        for _ in 0..300 {
            let nth = random.usize(..model.len().max(1));
            match (random.u8(..10), model.get_mut(nth)) {
                (0..3, _) => {
                    let slot = connections.enter(peer(random.u32(1..4)));
                    for (other, ..) in &model {
                        if other.state().is_ended() {
                            idle.retain(|idle| *idle != key(other));
                        }
                    }
                    idle.extend(slot.iter().map(key));
                    model.extend(slot.map(|slot| (slot, Vec::new(), false)));
                }
                (3..6, Some((slot, begun, _))) => {
                    begun.extend(slot.state().begin());
                    idle.retain(|idle| *idle != key(slot));
                }
                (6..8, Some((slot, begun, _))) => {
                    let had_any = begun.pop().is_some();
                    if had_any && begun.is_empty() && !slot.state().is_ended() {
                        idle.push(key(slot));
                    }
                }
                (8, Some((slot, _, is_authenticated))) => {
                    if !std::mem::replace(is_authenticated, true) && idle.contains(&key(slot)) {
                        idle.retain(|idle| *idle != key(slot));
                        idle.push(key(slot));
                    }
                    slot.state().mark_authenticated();
                }
                (9, Some(_)) => {
                    let (slot, begun, _) = model.swap_remove(nth);
                    idle.retain(|idle| *idle != key(&slot));
                    // Requests may be dropped before or after their connection.
                    if random.bool() {
                        drop((begun, slot));
                    } else {
                        drop((slot, begun));
                    }
                }
                _ => {}
            }
            let firsts = connections.table.lock().all.longest_idle();
            let is_authenticated =
                |idle: &usize| model.iter().any(|(slot, _, is_authenticated)| key(slot) == *idle && *is_authenticated);
            let expected = [false, true].map(|known| idle.iter().find(|idle| is_authenticated(idle) == known).copied());
            assert_eq!(
                firsts.map(|connection| connection.map(|connection| Arc::as_ptr(&connection) as usize)),
                expected,
                "seed {seed}"
            );
            let staying = model.iter().filter(|(slot, ..)| !slot.state().is_ended()).count();
            assert_eq!(connections.table.lock().all.staying(), staying);
            assert_eq!(connections.count(), model.len());
            assert!(staying <= 12);
        }
        drop(model);
        assert!(connections.table.lock().by_address.is_empty() && connections.count() == 0);
    }
}

#[test]
fn idle_connections_time_out_and_busy_ones_do_not() {
    let (clock, idle_max) = (clock(), Duration::from_secs(60));
    let connections = connections_on(&clock, 10, 10);
    clock.advance(2 * idle_max);
    let slots: Vec<_> = (0..3).map(|_| connections.enter(peer(1)).unwrap()).collect();
    let busy = slots[1].state().begin();
    clock.advance(idle_max);
    connections.sweep(idle_max);
    assert!(slots.iter().all(|slot| !slot.state().is_ended()));
    clock.advance(MOMENT);
    connections.sweep(idle_max);
    assert_eq!(slots.iter().map(|slot| slot.state().is_ended()).collect::<Vec<_>>(), [true, false, true]);
    drop(busy);
    clock.advance(idle_max);
    connections.sweep(idle_max);
    assert!(!slots[1].state().is_ended(), "it counts from when it became idle");
}

#[test]
fn live_connections_leave_slots_for_other_connections() {
    for (all, live) in [(864, 810), (16, 15), (15, 15), (1, 1)] {
        assert_eq!(ConnectionLimits::of(all).left_to_live(), live, "of {all}");
    }
}

#[test]
fn unauthenticated_connections_are_evicted_before_authenticated_ones() {
    let clock = clock();
    let connections = connections_on(&clock, 3, 3);
    let slots: Vec<_> = (0..3)
        .map(|host| {
            clock.advance(MOMENT);
            connections.enter(peer(host)).unwrap()
        })
        .collect();
    slots[0].state().mark_authenticated();
    let first = connections.enter(peer(9)).unwrap();
    let ended = || slots.iter().map(|slot| slot.state().is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false]);
    let second = connections.enter(peer(9)).unwrap();
    assert_eq!(ended(), [false, true, true]);
    [&first, &second].into_iter().for_each(|slot| slot.state().mark_authenticated());
    clock.advance(MOMENT);
    let _third = connections.enter(peer(9)).unwrap();
    assert_eq!(ended(), [true, true, true], "if all were let in, the longest idle");
}

#[test]
fn authenticated_connections_stay_while_many_unauthenticated_ones_come_and_go() {
    const MANY: usize = 860;
    let clock = clock();
    let connections = connections_on(&clock, MANY, MANY);
    let kept: Vec<_> = (0..4).map(|_| connections.enter(peer(1)).unwrap()).collect();
    kept.iter().for_each(|slot| slot.state().mark_authenticated());
    clock.advance(MOMENT);
    let mut others: Vec<_> = (4..MANY).map(|_| connections.enter(peer(2)).unwrap()).collect();
    for _ in 0..MANY {
        others.push(connections.enter(peer(2)).unwrap());
        others.retain(|slot| !slot.state().is_ended());
    }
    assert!(kept.iter().all(|slot| !slot.state().is_ended()));
}

#[test]
fn an_idle_connection_is_found_behind_any_number_of_live_ones() {
    const LIVE: usize = 3_000;
    const IDLE: usize = 5;
    let connections = connections(LIVE + IDLE, LIVE + IDLE);
    let live: Vec<_> = (0..LIVE).map(|_| connections.enter(peer(1)).unwrap()).collect();
    let _busy: Vec<_> = live.iter().map(|slot| slot.state().begin()).collect();
    let idle: Vec<_> = (0..IDLE).map(|_| connections.enter(peer(1)).unwrap()).collect();
    for nth in 0..IDLE {
        let come = connections.enter(peer(2)).unwrap_or_else(|| panic!("the {nth}th is refused beside idle ones"));
        std::mem::forget(come.state().begin());
        std::mem::forget(come);
        let ended: Vec<_> = idle.iter().map(|slot| slot.state().is_ended()).collect();
        assert_eq!(ended, (0..IDLE).map(|other| other <= nth).collect::<Vec<_>>(), "the longest idle ends first");
    }
    assert!(connections.enter(peer(2)).is_none(), "none is idle any more");
    assert!(live.iter().all(|slot| !slot.state().is_ended()));
}

#[cfg(feature = "cluster")]
#[test]
fn connections_of_another_node_do_not_count_against_its_address() {
    let connections = connections(10, 2);
    let of_node: Vec<_> = (0..5)
        .map(|_| {
            let slot = connections.enter(peer(2)).unwrap();
            let busy = slot.state().begin();
            slot.state().mark_of_node();
            (slot, busy)
        })
        .collect();
    let others = [(); 2].map(|()| connections.enter(peer(2)).unwrap());
    let busy = others.each_ref().map(|slot| slot.state().begin());
    assert!(connections.enter(peer(2)).is_none(), "others of the address do");
    drop(of_node);
    assert!(connections.enter(peer(2)).is_none());
    drop((busy, others));
    assert_eq!((connections.count(), connections.table.lock().by_address.len()), (0, 0));
}
