//! `tidewire-load compare`
use crate::compare::{self, Load, Settings, Watch};
use crate::target::kind::{Kind, Settings as TargetSettings};
use crate::workload::Mix;
use crate::world::generated::Recipe;
use std::error::Error;
use std::num::NonZeroUsize;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Compare {
    #[arg(long, value_delimiter = ',')]
    targets: Vec<Kind>,
    #[arg(long, default_value_t = 5000)]
    users: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 32)]
    clients: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1)]
    threads: usize,
}
struct Told;
impl Watch for Told {
    fn step(&self, target: &str, what: &str) {
        tidewire::cli::terminal::warn(&format!("{target}: {what}"));
    }
}
impl Compare {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let some = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        let recipe = Recipe {
            users: self.users,
            authors: self.users / 10,
            mean_followers: 403,
            most_followers: self.users * 22 / 100,
            exponent: 0.8,
            active_share: 1.0,
            seed: 1,
        };
        let load = Load::new(recipe.make(), 300);
        let s = Duration::from_secs;
        let settings = Settings {
            kinds: if self.targets.is_empty() { Kind::COMPARED.to_vec() } else { self.targets },
            target: TargetSettings { inbox_posts: 300, celebrity_followers: None },
            rounds: self.rounds,
            lasts: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_millis(300),
            clients: some(self.clients),
            threads: some(self.threads),
            mix: Mix::named("social").ok_or("x")?.undoing(0.1),
            exponents: (0.0, 0.0),
            burst: (26.0, [s(2), s(3), s(5)]),
            seed: 1,
        };
        let reports = compare::compare(&settings, &load, &Told)?;
        for r in reports {
            tidewire::cli::terminal::say(&format!(
                "{} checked {} left out {:?} failures {:?}",
                r.name, r.pages_checked, r.left_out, r.failures
            ));
            for (name, c) in r.cases {
                tidewire::cli::terminal::say(&format!(
                    "  {name}: {:.0} {} {:.0?} failed {} server {:.2} client {:.2} late {:?}",
                    c.median, c.unit, c.rounds, c.failed, c.server_cores, c.client_cores, c.late_p99_us
                ));
                for (k, l) in c.latencies {
                    tidewire::cli::terminal::say(&format!(
                        "     {k:?} n {} p50 {:.0} p99 {:.0} max {:.0}",
                        l.count, l.p50_us, l.p99_us, l.max_us
                    ));
                }
            }
        }
        Ok(())
    }
}
