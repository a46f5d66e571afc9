//! Clients in a closed loop, each over a connection of its own.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hdrhistogram::Histogram;

use crate::cluster::unexpected;
use crate::report::Latency;
use crate::target::tidewire::connection::Connection;

/// Longest time in the histogram. Longer times are recorded as this one.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The measurements of all clients together.
pub struct Measured {
    /// The time of each answered request.
    pub latency: Latency,
    /// The duration of the whole measurement.
    pub took: Duration,
}

impl Measured {
    /// Returns the answers per second.
    pub fn rate(&self) -> f64 {
        self.latency.count as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    /// Returns the rate and the times as text.
    pub fn text(&self) -> String {
        format!(
            "{}/s, p50 {}, p99 {}",
            thousands(self.rate()),
            milliseconds(self.latency.p50_us),
            milliseconds(self.latency.p99_us)
        )
    }
}

/// Returns a number as text: in thousands with three digits, or below 1,000 without decimals.
pub fn thousands(number: f64) -> String {
    match number / 1e3 {
        many if many >= 99.95 => format!("{many:.0} k"),
        many if many >= 9.995 => format!("{many:.1} k"),
        many if many >= 0.9995 => format!("{many:.2} k"),
        _ => format!("{number:.0}"),
    }
}

/// Returns microseconds as text.
pub fn milliseconds(microseconds: f64) -> String {
    format!("{:.2} ms", microseconds / 1e3)
}

/// The end of the work of each client.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Clients stop after this time.
    Elapsed(Duration),
    /// Clients stop after this total number of requests.
    Done(usize),
}

/// Sends requests with `clients` clients. `next` returns the address and the request of a client, by its number and the number of the
/// request. A client has one connection for each address.
///
/// # Errors
/// If a connection fails, or a request is refused.
pub async fn closed_loop(
    clients: usize,
    until: Until,
    next: impl Fn(usize, usize) -> (SocketAddr, String),
) -> io::Result<Measured> {
    let began = Instant::now();
    let each = |client: usize| {
        let next = &next;
        async move {
            let mut times = new_histogram()?;
            let mut connections: Vec<(SocketAddr, Connection)> = Vec::new();
            let mut nth = 0;
            loop {
                let is_over = match until {
                    Until::Elapsed(time) => began.elapsed() >= time,
                    Until::Done(count) => client + nth * clients >= count,
                };
                if is_over {
                    return io::Result::Ok(times);
                }
                let (address, request) = next(client, nth);
                let at = match connections.iter().position(|(open, _)| *open == address) {
                    Some(at) => at,
                    None => {
                        connections.push((address, Connection::open(address).await?));
                        connections.len() - 1
                    }
                };
                let sent = Instant::now();
                let (status, body) = connections[at].1.ask(request.as_bytes()).await?;
                if !(200..300).contains(&status) {
                    return Err(unexpected(request.lines().next().unwrap_or_default(), status, body));
                }
                times.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
                nth += 1;
            }
        }
    };
    let mut all = new_histogram()?;
    for times in join_all((0..clients).map(each)).await {
        all.add(times?).map_err(io::Error::other)?;
    }
    Ok(Measured { latency: Latency::of(&all), took: began.elapsed() })
}

/// Creates an empty histogram of nanoseconds, up to the longest recorded time.
pub fn new_histogram() -> io::Result<Histogram<u64>> {
    let most = u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, most, 3).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_records_nanoseconds_within_one_percent() {
        let mut times = new_histogram().unwrap();
        times.saturating_record(2_000_000);
        assert!((Latency::of(&times).p50_us / 2_000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [12.4, 999.4, 999.6, 1_234.0, 9_996.0, 12_345.0, 99_960.0, 123_456.0].map(thousands);
        assert_eq!(texts, ["12", "999", "1.00 k", "1.23 k", "10.0 k", "12.3 k", "100 k", "123 k"]);
        assert_eq!(milliseconds(1_234.0), "1.23 ms");
    }
}
