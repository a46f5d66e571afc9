//! `tidewire-load compare`: the same work on several designs in turns.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::options::{
    DesignOptions, ReportOptions, WorkOptions, WorldOptions, check_inboxes, duration, judge, report, world_settings,
};
use crate::compare::{self, Settings};
use crate::drive::pacer::Pacer;
use crate::report::progress::Progress;
use crate::target::kind::Kind;

/// The title of the report.
const TITLE: &str = "Tidewire and the designs that people use in its place";

/// Arguments of `tidewire-load compare`.
#[derive(Debug, clap::Args)]
pub(super) struct Compare {
    /// Fewer users, shorter rounds: an answer in less than three minutes
    #[arg(long)]
    quick: bool,

    /// Designs, separated by commas [default: all but `mock`]
    #[arg(long, value_delimiter = ',', value_name = "DESIGN")]
    targets: Vec<Kind>,

    /// Rounds of each case [default: 5, or 3 if quick]
    #[arg(long)]
    rounds: Option<NonZeroUsize>,

    /// Time for which a case is measured on a design in each round [default: 5s, or 1s if quick]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lasts: Option<Duration>,

    /// Peak rate of a burst as a multiple of the average
    #[arg(long, value_name = "TIMES", default_value_t = 26.0, value_parser = crate::cli::options::positive)]
    burst: f64,

    /// Also replay a recorded activity, once on each design: `author other unix_seconds …` in each line; needs --follows of the same
    /// users. The other operations of the mix run in between
    #[arg(long, value_name = "FILE", requires = "follows")]
    activity: Option<PathBuf>,

    /// Speed of the replay of a recorded activity
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = crate::cli::options::positive)]
    speed: f64,

    #[command(flatten)]
    world: WorldOptions,

    #[command(flatten)]
    work: WorkOptions,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    report: ReportOptions,
}

/// The parameters that depend on `--quick`.
struct Size {
    users: NonZeroUsize,
    rounds: NonZeroUsize,
    lasts: Duration,
    /// Durations before, during and after the burst.
    burst: [Duration; 3],
}

impl Size {
    const FULL: Self = Self {
        users: NonZeroUsize::new(20_000).expect("not zero"),
        rounds: NonZeroUsize::new(5).expect("not zero"),
        lasts: Duration::from_secs(5),
        burst: [Duration::from_secs(10), Duration::from_secs(10), Duration::from_secs(20)],
    };

    const QUICK: Self = Self {
        users: NonZeroUsize::new(5_000).expect("not zero"),
        rounds: NonZeroUsize::new(3).expect("not zero"),
        lasts: Duration::from_secs(1),
        burst: [Duration::from_secs(2), Duration::from_secs(2), Duration::from_secs(3)],
    };
}

/// Maximum duration of the warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

impl Compare {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let size = if self.quick { Size::QUICK } else { Size::FULL };
        let mut settings = self.settings(&size)?;
        let world = self.world.world(size.users, self.activity.as_ref())?;
        let recorded = || Pacer::recorded(&world.activity, self.speed, settings.mix.between_publishes());
        settings.recorded = self.activity.is_some().then(recorded);
        let load = self.world.load(world, settings.target.inbox_posts)?;
        if !load.online.is_empty() && !settings.kinds.iter().any(|kind| kind.pushes_live()) {
            return Err("--online-share: none of these designs pushes messages".into());
        }
        let mut report = report(TITLE, world_settings(&load, &self.world));
        let values = [
            ("clients", format!("{} on {} threads", settings.clients, settings.threads)),
            ("rounds", format!("{} of {:?} each, after {:?}", settings.rounds, settings.lasts, settings.warm_up)),
            ("mix", self.work.describe()),
            ("burst", format!("{} times the average, at 120 % of the maximum rate of publishes", self.burst)),
        ];
        let recorded = self.activity.iter().map(|file| {
            let posts = load.world.activity.len();
            ("activity".to_owned(), format!("{posts} posts from {}, at {} times the speed", file.display(), self.speed))
        });
        report.settings.extend(recorded);
        report.settings.extend(values.map(|(name, value)| (name.to_owned(), value)));
        let progress = Progress::new();
        let (targets, environment) = compare::compare(&settings, &load, &progress)?;
        drop(progress);
        report.targets = targets;
        judge(&mut report, &environment);
        self.report.write(&report)?;
        let failed = report.targets.iter().filter(|target| !target.failures.is_empty());
        match failed.map(|target| target.name.as_str()).collect::<Vec<_>>()[..] {
            [] => Ok(()),
            ref these => Err(format!("there were failures on {}: see the report", these.join(", ")).into()),
        }
    }

    fn settings(&self, size: &Size) -> Result<Settings, String> {
        let (lasts, mix, target) = (self.lasts.unwrap_or(size.lasts), self.work.mix()?, self.designs.settings());
        check_inboxes(target.inbox_posts, mix.undone)?;
        Ok(Settings {
            kinds: if self.targets.is_empty() { Kind::COMPARED.to_vec() } else { self.targets.clone() },
            target,
            rounds: self.rounds.unwrap_or(size.rounds).get(),
            lasts,
            warm_up: (lasts / 4).min(WARM_UP_MAX),
            clients: self.work.clients,
            threads: self.work.threads,
            mix,
            exponents: self.world.exponents(),
            burst: (self.burst, size.burst),
            recorded: None,
            seed: self.world.seed,
        })
    }
}
