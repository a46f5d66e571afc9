//! Publishing at a steady rate, and timing each post.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::time::sleep_until;

use crate::audience::{Audience, Hearing};
use crate::common::histogram;
use crate::figures::millis;
use crate::http::Http;

/// What it came to, in nanoseconds from just before the request is written.
pub struct Pace {
    /// Until the first follower has read all of the message.
    first: Histogram<u64>,
    /// Until the last one has.
    last: Histogram<u64>,
    /// Posts that were published later than planned, since the one before was still being heard.
    late: usize,
    /// Posts that not all have heard.
    unheard: usize,
}

impl Pace {
    /// The columns of [`Pace::cells`].
    pub const COLUMNS: &str =
        "posts | first follower has it p50 | p99 | last follower has it p50 | p99 | max | late | unheard";

    pub fn new() -> Self {
        Self { first: histogram(), last: histogram(), late: 0, unheard: 0 }
    }

    /// Publishes at an interval that lets an audience of this size hear each post before the next, as far as can be foreseen.
    pub async fn publish(&mut self, http: &mut Http, author: &str, text: &str, posts: usize, audience: &Audience) {
        let interval = Duration::from_millis(20) + Duration::from_micros(30) * audience.size() as u32;
        let mut due = Instant::now();
        for nth in 0..posts {
            if nth > 0 && Instant::now() > due {
                self.late += 1;
                due = Instant::now();
            }
            sleep_until(due.into()).await;
            due += interval;
            let heard_before = audience.complete();
            let sent = Instant::now();
            assert!(http.publish(author, text).await, "there is room for one post at a time");
            if !audience.hears(heard_before + 1).await {
                self.unheard += 1;
                return;
            }
            let Hearing { first, last, .. } = audience.hearing(heard_before);
            self.first.record((first - sent).as_nanos() as u64).unwrap();
            self.last.record((last - sent).as_nanos() as u64).unwrap();
        }
    }

    /// The figures, as cells of a Markdown table.
    pub fn cells(&self) -> String {
        let quantile = |latencies: &Histogram<u64>, quantile| millis(latencies.value_at_quantile(quantile));
        format!(
            "{} | {} | {} | {} | {} | {} | {} | {}",
            self.last.len(),
            quantile(&self.first, 0.5),
            quantile(&self.first, 0.99),
            quantile(&self.last, 0.5),
            quantile(&self.last, 0.99),
            millis(self.last.max()),
            self.late,
            self.unheard,
        )
    }
}
