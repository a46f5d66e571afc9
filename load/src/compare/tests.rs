//! Whole comparisons of the mock: nothing here waits for a server.
#![cfg(test)]

use super::*;

#[test]
fn each_time_another_design_begins_and_all_have_their_turn() {
    let orders: Vec<Vec<usize>> = (0..4).map(|time| turns(3, time).collect()).collect();
    assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
}
