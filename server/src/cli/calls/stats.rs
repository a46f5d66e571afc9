//! `tidewire stats`: prints the figures of a server.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;

use crate::cli::calls::screen::Screen;
use crate::cli::calls::{Call, done, parsed};
use crate::cli::client::Client;
use crate::cli::{Outcome, terminal};

/// Arguments of `tidewire stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    call: Call,
}

/// The figures of one topic, each with its name and its JSON pointer in the answer.
type Topic = (&'static str, &'static [(&'static str, &'static str, Unit)]);

#[derive(Clone, Copy)]
enum Unit {
    Count,
    Bytes,
    Seconds,
}

const TOPICS: &[Topic] = &[
    (
        "server",
        &[
            ("up for", "/uptime_seconds", Unit::Seconds),
            ("memory", "/memory/resident_bytes", Unit::Bytes),
            ("journal at event", "/journal/sequence", Unit::Count),
            ("last snapshot, age", "/snapshots/0/age_seconds", Unit::Seconds),
        ],
    ),
    (
        "content",
        &[
            ("users, tags, topics", "/users", Unit::Count),
            ("active readers", "/active", Unit::Count),
            ("follow edges", "/edges", Unit::Count),
            ("posts in memory", "/posts", Unit::Count),
            ("live connections", "/live/connections", Unit::Count),
        ],
    ),
    (
        "since the start",
        &[
            ("published", "/published", Unit::Count),
            ("deliveries", "/deliveries", Unit::Count),
            ("pages", "/pages", Unit::Count),
            ("live messages", "/live/messages", Unit::Count),
            ("refused for load", "/shed", Unit::Count),
        ],
    ),
];

impl Stats {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.print(client))
    }

    fn print(&self, client: &Client) -> Outcome {
        let (_, text) = done(client.get("/v1/stats"))?;
        if self.call.json {
            terminal::print_line(&text);
            return Ok(ExitCode::SUCCESS);
        }
        let (screen, stats) = (Screen::of_stdout(), parsed::<Value>(&text)?);
        for (topic, figures) in TOPICS {
            terminal::print_line(&screen.bold(topic));
            for (name, pointer, unit) in *figures {
                if let Some(figure) = stats.pointer(pointer).and_then(Value::as_u64) {
                    terminal::print_line(&format!("  {name:<20} {:>16}", shown(figure, *unit)));
                }
            }
        }
        let latencies: Vec<_> = rows(&stats, "/fanout_latency").collect();
        if !latencies.is_empty() {
            terminal::print_line(&screen.bold("fan-out in the last seconds, by followers"));
            latencies.iter().for_each(|row| terminal::print_line(row));
        }
        let queues: Vec<_> = full_queues(&stats).collect();
        queues.iter().for_each(|queue| terminal::print_line(&screen.bad(queue)));
        Ok(ExitCode::SUCCESS)
    }
}

fn shown(figure: u64, unit: Unit) -> String {
    match unit {
        Unit::Count => HumanCount(figure).to_string(),
        Unit::Bytes => HumanBytes(figure).to_string(),
        Unit::Seconds => humantime::format_duration(Duration::from_secs(figure)).to_string(),
    }
}

fn rows<'a>(stats: &'a Value, pointer: &str) -> impl Iterator<Item = String> + 'a {
    stats.pointer(pointer).and_then(Value::as_array).into_iter().flatten().map(|row| {
        let ms = |name: &str| row[name].as_f64().unwrap_or_default() / 1_000.0;
        let followers = row["followers"].as_str().unwrap_or_default();
        let count = HumanCount(row["count"].as_u64().unwrap_or_default());
        format!("  {followers:<20} {count:>8} posts, p50 {:.1} ms, p99 {:.1} ms", ms("p50_us"), ms("p99_us"))
    })
}

/// Returns the names of queues that are at least half full.
fn full_queues(stats: &Value) -> impl Iterator<Item = String> + '_ {
    stats["queues"].as_object().into_iter().flatten().filter_map(|(name, queue)| {
        let (depth, limit) = (queue["depth"].as_u64()?, queue["limit"].as_u64()?);
        let is_full = limit > 0 && depth.saturating_mul(2) >= limit;
        is_full.then(|| format!("queue {name}: {} of {}", HumanCount(depth), HumanCount(limit)))
    })
}
