//! Places of connections: who gets one, and who ends for it.
#![cfg(test)]

use super::*;

fn connections(all: usize, per_address: usize) -> Arc<Connections> {
    let proxies = "192.0.2.99".parse().unwrap();
    Arc::new(Connections::new(ConnectionLimits { all, per_address, proxies }))
}

fn peer(host: u32) -> Option<SocketAddr> {
    Some(SocketAddr::from((0xc000_0200_u32.wrapping_add(host).to_be_bytes(), 1)))
}

/// Lets time pass by which one is idle longer than another.
fn later() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2) {
        std::thread::yield_now();
    }
}

#[test]
fn the_longest_idle_connection_ends_for_a_new_one_and_none_that_is_busy() {
    let connections = connections(3, 3);
    let places: Vec<_> = (0..3)
        .map(|host| {
            later();
            connections.enter(peer(host)).unwrap()
        })
        .collect();
    let busy = places[0].line().begin();
    let new = connections.enter(peer(9)).unwrap();
    let ended = || places.iter().map(|place| place.line().is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false], "the first is busy, the second idle for longer than the third");
    let busy_too = [new.line().begin(), places[2].line().begin()];
    assert!(connections.enter(peer(9)).is_none(), "none is idle");
    assert_eq!(connections.count(), 4, "the one that ends is there until its socket is closed");
    later();
    drop(busy);
    assert!(connections.enter(peer(9)).is_some());
    assert_eq!(ended(), [true, true, false]);
    drop((busy_too, new, places));
    assert_eq!(connections.count(), 0);
    assert_eq!(connections.table.lock().all.leaving, 0);
    assert!(connections.table.lock().by_address.is_empty(), "nothing is kept of those that have gone");
    assert_eq!(connections.ended(), [("refused", 1), ("refused_address", 0), ("made_room", 2), ("stayed_idle", 0)]);
}

#[test]
fn an_address_ends_its_own_connections_for_new_ones_and_a_proxy_has_all_there_are() {
    let connections = connections(10, 2);
    let other = connections.enter(peer(1)).unwrap();
    let two = [connections.enter(peer(2)).unwrap(), connections.enter(peer(2)).unwrap()];
    let busy: Vec<_> = two.iter().map(|place| place.line().begin()).collect();
    assert!(connections.enter(peer(2)).is_none());
    drop(busy);
    let third = connections.enter(peer(2)).unwrap();
    assert_eq!(two.iter().filter(|place| place.line().is_ended()).count(), 1);
    assert!(!other.line().is_ended(), "nobody else ends for it");
    let of_proxy: Vec<_> = (0..7).map(|_| connections.enter(peer(99)).unwrap()).collect();
    assert_eq!(connections.count(), 11);
    assert!(of_proxy.iter().all(|place| !place.line().is_ended()));
    drop(third);
}

#[test]
fn to_find_one_that_is_idle_few_are_looked_at_however_many_there_are() {
    const MANY: usize = 20_000;
    let connections = connections(MANY, MANY);
    let _places: Vec<_> = (0..MANY).map(|_| connections.enter(peer(1)).unwrap()).collect();
    let mut table = connections.table.lock();
    let mut hands = vec![table.all.hand];
    for _ in 0..3 {
        assert!(table.all.longest_idle().is_some());
        hands.push(table.all.hand);
    }
    assert!(hands.windows(2).all(|hands| hands[1] - hands[0] == CONNECTION_LOOKS_MIN), "{hands:?}");
    let _busy: Vec<_> = table.all.lines.iter().map(|(_, line)| line.begin()).collect();
    let before = table.all.hand;
    assert!(table.all.longest_idle().is_none());
    assert_eq!(table.all.hand - before, CONNECTION_LOOKS_MAX, "and not many more if none is");
}

#[test]
fn what_stays_idle_ends_and_what_is_under_way_does_not() {
    let connections = connections(10, 10);
    let places: Vec<_> = (0..3).map(|_| connections.enter(peer(1)).unwrap()).collect();
    let busy = places[1].line().begin();
    connections.sweep(Duration::from_secs(60));
    assert!(places.iter().all(|place| !place.line().is_ended()));
    later();
    connections.sweep(Duration::from_millis(1));
    assert_eq!(places.iter().map(|place| place.line().is_ended()).collect::<Vec<_>>(), [true, false, true]);
    drop(busy);
    connections.sweep(Duration::from_secs(60));
    assert!(!places[1].line().is_ended(), "it counts from when it became idle");
}

#[test]
fn live_connections_leave_places_to_others() {
    for (all, live) in [(864, 810), (16, 15), (15, 15), (1, 1)] {
        assert_eq!(ConnectionLimits::of(all).left_to_live(), live, "of {all}");
    }
}

#[test]
fn who_sent_only_what_everybody_may_goes_before_who_was_let_in() {
    let connections = connections(3, 3);
    let places: Vec<_> = (0..3)
        .map(|host| {
            later();
            connections.enter(peer(host)).unwrap()
        })
        .collect();
    places[0].line().know();
    let first = connections.enter(peer(9)).unwrap();
    let ended = || places.iter().map(|place| place.line().is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false]);
    let second = connections.enter(peer(9)).unwrap();
    assert_eq!(ended(), [false, true, true]);
    [&first, &second].into_iter().for_each(|place| place.line().know());
    later();
    let _third = connections.enter(peer(9)).unwrap();
    assert_eq!(ended(), [true, true, true], "if all were let in, the longest idle");
}

#[test]
fn who_was_let_in_stays_though_most_places_beside_it_are_empty() {
    const MANY: usize = 860;
    let connections = connections(MANY, MANY);
    let kept: Vec<_> = (0..4).map(|_| connections.enter(peer(1)).unwrap()).collect();
    kept.iter().for_each(|place| place.line().know());
    later();
    let mut others: Vec<_> = (4..MANY).map(|_| connections.enter(peer(2)).unwrap()).collect();
    assert!(connections.table.lock().all.lines.capacity() > MANY + 2 * CONNECTION_LOOKS_MIN, "some places are empty");
    for _ in 0..MANY {
        others.push(connections.enter(peer(2)).unwrap());
        others.retain(|place| !place.line().is_ended());
    }
    assert!(kept.iter().all(|place| !place.line().is_ended()));
}
