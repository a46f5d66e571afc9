//! The queues in which work waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in simulated time, in nanoseconds since the start.
pub type Time = u64;

/// Converts microseconds to simulated time.
pub fn micros(us: f64) -> Time {
    (us * 1e3).round().max(0.0) as Time
}

/// Cores that do work in the order of its arrival.
#[derive(Debug)]
pub struct Cores {
    free_at: BinaryHeap<Reverse<Time>>,
}

impl Cores {
    /// Creates free cores.
    pub fn new(count: usize) -> Self {
        Self { free_at: vec![Reverse(0); count.max(1)].into() }
    }

    /// Does work that lasts `service`, and returns the time of its end. Calls must be in the order of time.
    pub fn work(&mut self, now: Time, service: Time) -> Time {
        let Reverse(free_at) = self.free_at.pop().expect("there is at least one core");
        let done = free_at.max(now) + service;
        self.free_at.push(Reverse(done));
        done
    }
}

/// The sending side of a network.
#[derive(Debug)]
pub struct Link {
    bytes_per_second: f64,
    free_at: Time,
}

impl Link {
    /// Creates an idle network. Without a rate, sending takes no time.
    pub fn new(bytes_per_second: Option<f64>) -> Self {
        Self { bytes_per_second: bytes_per_second.unwrap_or(f64::INFINITY), free_at: 0 }
    }

    /// Sends bytes after all earlier ones, and returns the time at which the last byte has left.
    pub fn send(&mut self, now: Time, bytes: f64) -> Time {
        self.free_at = self.free_at.max(now) + micros(bytes / self.bytes_per_second * 1e6);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_for_the_first_free_core() {
        let mut cores = Cores::new(2);
        let done = [(0, 10), (0, 4), (1, 3), (2, 1), (30, 5)].map(|(now, service)| cores.work(now, service));
        assert_eq!(done, [10, 4, 7, 8, 35]);
    }

    #[test]
    fn bytes_are_sent_sequentially() {
        let mut link = Link::new(Some(1e6));
        assert_eq!([link.send(0, 1.0), link.send(0, 2.0), link.send(9_000, 1.0)], [1_000, 3_000, 10_000]);
        assert_eq!(Link::new(None).send(5, 1e12), 5);
    }
}
