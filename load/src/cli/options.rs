//! Options that several commands share, and the settings made from them.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tidewire_server::cli::terminal;

use crate::environment::Environment;
use crate::initial_load::{Load, Posts};
use crate::mint::{GAP_MIN, Ids};
use crate::operation::PAGE_POSTS;
use crate::report::compare::ratios;
use crate::report::terminal::Look;
use crate::report::{Machine, Report, TargetReport, file, headline, html, json, markdown};
use crate::target::kind::Settings as TargetSettings;
use crate::warning::warnings;
use crate::workload::Mix;
use crate::world::generated::Recipe;
use crate::world::{World, files};

/// The users and their follow edges.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "World")]
pub(super) struct WorldOptions {
    /// Users, 2 to 50,000,000
    #[arg(long, value_name = "USERS", value_parser = users)]
    pub(super) users: Option<NonZeroUsize>,

    /// Users who publish [default: a tenth]
    #[arg(long, value_name = "USERS")]
    authors: Option<NonZeroUsize>,

    /// Average number of followers of an author
    #[arg(long, value_name = "USERS", default_value = "403")]
    mean_followers: NonZeroUsize,

    /// Maximum number of followers of an author [default: 22 % of the users]
    #[arg(long, value_name = "USERS")]
    most_followers: Option<NonZeroUsize>,

    /// Exponent of the power law of the follower counts
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, value_parser = exponent)]
    followers_exponent: f64,

    /// Read the follow edges from a file instead: `follower source` in each line, `.gz` too
    #[arg(long, value_name = "FILE")]
    follows: Option<PathBuf>,

    /// Share of the users that are active; nothing is pushed to the others
    #[arg(long, value_name = "0..1", default_value_t = 1.0, value_parser = some_share)]
    active_share: f64,

    /// Share of the active users that are online: each has a live connection and reads all messages. Only for Tidewire as a server,
    /// because the other designs have no live connections
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = share)]
    online_share: f64,

    /// Exponent of the power law by which authors publish; 0: all with the same rate
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = exponent)]
    publishing_exponent: f64,

    /// Exponent of the power law by which readers read; 0: all with the same rate
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = exponent)]
    reading_exponent: f64,

    /// Ids of posts, the same for all designs
    #[arg(long, value_enum, default_value_t = Ids::Snowflake)]
    ids: Ids,

    /// Average time between two posts of the initial load, over all authors: they are backdated
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = gap)]
    post_gap: Duration,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

/// The settings of the designs.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Designs")]
pub(super) struct DesignOptions {
    /// Posts that an inbox holds, 40 to 100,000
    #[arg(long, value_name = "POSTS", default_value_t = 300, value_parser = inbox_posts)]
    inbox_posts: usize,

    /// Followers above which Tidewire pulls the posts of an author; the others push all [default: Tidewire pushes all too]
    #[arg(long, value_name = "FOLLOWERS")]
    celebrity_followers: Option<u64>,
}

/// The operations of the users.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Work")]
pub(super) struct WorkOptions {
    /// `social`: 60 % feed pages, 30 % own pages, 10 % publishes; `pequod`: publish 1, read 100, follow 10, unfollow 5; `even`: half feed
    /// pages, half publishes; or `page`, `own_page`, `publish` alone
    #[arg(long, default_value = "social", value_parser = Mix::NAMES)]
    mix: String,

    /// Share of publishes and follows that are undone soon after
    #[arg(long, value_name = "0..1", default_value_t = 0.1, value_parser = share)]
    undone: f64,

    /// Number of concurrent clients
    #[arg(long, default_value = "32")]
    pub(super) clients: NonZeroUsize,

    /// Threads that clients are spread over
    #[arg(long, default_value = "1")]
    pub(super) threads: NonZeroUsize,
}

/// The outputs of the report besides the terminal.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportOptions {
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write all results and plots as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the main results as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the main results as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl WorldOptions {
    /// Creates the world, with `users` users unless the option is set. `activity` is a file with recorded activity.
    pub(super) fn world(&self, users: NonZeroUsize, activity: Option<&PathBuf>) -> Result<World, files::FileError> {
        let users = self.users.unwrap_or(users).get();
        if let Some(follows) = &self.follows {
            let mut rng = fastrand::Rng::with_seed(self.seed);
            return files::read(follows, activity.map(PathBuf::as_path), self.active_share, &mut rng);
        }
        let recipe = Recipe {
            users,
            authors: self.authors.map_or(users.div_ceil(10), NonZeroUsize::get),
            mean_followers: self.mean_followers.get(),
            most_followers: self.most_followers.map_or(users * 22 / 100, NonZeroUsize::get),
            exponent: self.followers_exponent,
            active_share: self.active_share,
            seed: self.seed,
        };
        Ok(recipe.make())
    }

    /// Creates the initial load of the designs.
    pub(super) fn load(&self, world: World, inbox_posts: usize) -> Result<Load, String> {
        Ok(Load::new(world, inbox_posts, &self.posts())?.with_online(self.online_share, self.seed))
    }

    /// Returns how posts are created.
    fn posts(&self) -> Posts {
        Posts { ids: self.ids, gap: self.post_gap, seed: self.seed }
    }

    /// Returns the exponents for authors and readers.
    pub(super) fn exponents(&self) -> (f64, f64) {
        (self.publishing_exponent, self.reading_exponent)
    }
}

impl DesignOptions {
    pub(super) fn settings(self) -> TargetSettings {
        let (inbox_posts, celebrity_followers) = (self.inbox_posts, self.celebrity_followers);
        TargetSettings { inbox_posts, celebrity_followers, ..TargetSettings::default() }
    }
}

impl WorkOptions {
    pub(super) fn mix(&self) -> Result<Mix, String> {
        let mix = Mix::named(&self.mix).ok_or_else(|| format!("there is no mix `{}`", self.mix))?;
        Ok(mix.undoing(self.undone))
    }

    /// Returns a description for the report.
    pub(super) fn describe(&self) -> String {
        format!("{}, {} % of publishes and follows undone", self.mix, self.undone * 100.0)
    }
}

impl ReportOptions {
    /// Checks that all files can be written, before a measurement that may take hours.
    pub(super) fn check(&self) -> Result<(), Box<dyn Error>> {
        for path in [&self.json, &self.html, &self.svg, &self.markdown].into_iter().flatten() {
            if path.is_dir() {
                return Err(format!("cannot write {}: it is a directory", path.display()).into());
            }
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let written = tempfile::tempfile_in(parent);
            written.map_err(|cause| format!("cannot write {}: {cause}", path.display()))?;
        }
        Ok(())
    }

    /// Prints the report on the terminal and writes the other outputs.
    pub(super) fn write(&self, report: &Report) -> Result<(), Box<dyn Error>> {
        let look = Look { colour: std::io::stdout().is_terminal(), ..Look::default() };
        terminal::print_line(crate::report::terminal::text(report, look).trim_end());
        if let Some(path) = &self.json {
            json::write(report, path)?;
        }
        if let Some(path) = &self.html {
            html::write(report, path)?;
        }
        if let Some(path) = &self.svg {
            file::replace(path, &headline::headline(report))?;
        }
        if let Some(path) = &self.markdown {
            file::replace(path, &markdown::table(report))?;
        }
        Ok(())
    }
}

/// Returns the settings of a world and its initial load, for the report.
pub(super) fn world_settings(load: &Load, options: &WorldOptions) -> BTreeMap<String, String> {
    let world = &load.world;
    let from = match &options.follows {
        Some(file) => format!("read from {}", file.display()),
        None => format!("generated, exponent {}", options.followers_exponent),
    };
    let posts = load.posts.values().map(Vec::len).sum::<usize>();
    let followed = format!("{:.0} on average, {} at most", world.mean_followers(), world.most_followers());
    [
        ("seed", options.seed.to_string()),
        ("world", from),
        (
            "users",
            format!("{}, of whom {} are active, {} online", world.users(), world.active.len(), load.online.len()),
        ),
        ("authors", world.authors.len().to_string()),
        ("followers of an author", followed),
        ("posts before", format!("{posts}, one each {}", humantime::format_duration(options.post_gap))),
        ("ids of posts", options.ids.describe().to_owned()),
        (
            "publishing and reading exponents",
            format!("{} and {}", options.publishing_exponent, options.reading_exponent),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Creates a report of this run without results.
pub(super) fn report(title: &str, settings: BTreeMap<String, String>) -> Report {
    Report {
        title: title.to_owned(),
        when: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: command(std::env::args()),
        machine: Machine::read(),
        settings,
        targets: Vec::new(),
        ratios: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

/// Adds ratios and warnings. Failures are the first warnings.
pub(super) fn judge(report: &mut Report, environment: &Environment) {
    report.ratios = ratios(&report.targets);
    let of_target = |target: &TargetReport| {
        let name = target.name.clone();
        target.failures.iter().map(move |failure| format!("{name}: {failure}")).collect::<Vec<_>>()
    };
    let failures: Vec<String> = report.targets.iter().flat_map(of_target).collect();
    report.warnings = [failures, warnings(report, environment)].concat();
}

/// Returns the command line that repeats the run.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let quoted = |argument: String| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=,./:".contains(letter);
        if !argument.is_empty() && argument.chars().all(plain) {
            return argument;
        }
        format!("'{}'", argument.replace('\'', r"'\''"))
    };
    let words: Vec<String> = arguments.skip(1).map(quoted).collect();
    format!("cargo run --release -p tidewire-load -- {}", words.join(" "))
}

/// Maximum duration of an option.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Range of other numbers: outside of it, times and counts have no meaning.
const NUMBERS: RangeInclusive<f64> = 1e-3..=1e7;

/// Parses `1.5` as seconds, and texts such as `2m` with their unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = seconds.map_or_else(|| humantime::parse_duration(text).map_err(|cause| cause.to_string()), Ok)?;
    match duration {
        Duration::ZERO => Err("must be more than zero".to_owned()),
        longer if longer > DURATION_MAX => Err("must be at most 30 days".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a duration that is long enough to keep the times of posts distinct.
fn gap(text: &str) -> Result<Duration, String> {
    let gap = duration(text)?;
    if gap >= GAP_MIN { Ok(gap) } else { Err(format!("must be at least {GAP_MIN:?}")) }
}

/// Maximum number of users: the default limit of Tidewire.
const USERS_MAX: usize = 50_000_000;

fn users(text: &str) -> Result<NonZeroUsize, String> {
    let users: NonZeroUsize = text.parse().map_err(|_| "not a number above 0".to_owned())?;
    match users.get() {
        1 => Err("one user has nobody to follow".to_owned()),
        2..=USERS_MAX => Ok(users),
        _ => Err("more than 50,000,000".to_owned()),
    }
}

/// Range of the inbox size. The maximum is that of Tidewire. With less than two pages, the feeds of other designs, which end with the
/// inbox, would lack posts on the first page as soon as some are deleted, and the check would fail.
const INBOX_POSTS: RangeInclusive<usize> = 2 * PAGE_POSTS..=100_000;

fn inbox_posts(text: &str) -> Result<usize, String> {
    let posts: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    if INBOX_POSTS.contains(&posts) {
        return Ok(posts);
    }
    Err(format!("not between {} and {}: a page has {PAGE_POSTS}", INBOX_POSTS.start(), INBOX_POSTS.end()))
}

/// Checks that two pages of an inbox remain when this share of the published posts is deleted again.
pub(super) fn check_inboxes(inbox_posts: usize, undone: f64) -> Result<(), String> {
    let left = inbox_posts as f64 * (1.0 - undone);
    if left >= *INBOX_POSTS.start() as f64 || undone == 0.0 {
        return Ok(());
    }
    Err(format!(
        "--inbox-posts {inbox_posts} with --undone {undone}: some {left:.0} posts of an inbox would be left, too few for \
         designs whose feeds end there"
    ))
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("not between 0 and 1".to_owned()) }
}

pub(super) fn some_share(text: &str) -> Result<f64, String> {
    share(text).and_then(|share| if share > 0.0 { Ok(share) } else { Err("not more than 0".to_owned()) })
}

pub(super) fn exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=10.0).contains(&exponent) { Ok(exponent) } else { Err("not between 0 and 10".to_owned()) }
}

/// Parses a number within [`NUMBERS`].
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if NUMBERS.contains(&number) { Ok(number) } else { Err("not between 0.001 and 10,000,000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!((gap("0.01"), gap("9ms")), (Ok(GAP_MIN), Err("must be at least 10ms".to_owned())));
        assert!(["0", "-1", "soon", "inf", "", "31d", "1e19"].iter().all(|text| duration(text).is_err()));
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!((share("0"), share("1")), (Ok(0.0), Ok(1.0)));
        assert!(["-0.1", "1.1", "NaN", "all"].iter().all(|text| share(text).is_err()));
        assert!(["-1", "11", "NaN"].iter().all(|text| exponent(text).is_err()));
        assert!(["0", "-1", "0.0009", "10000001", "inf", "NaN"].iter().all(|text| positive(text).is_err()));
    }

    #[test]
    fn worlds_and_inboxes_too_small_to_verify_are_refused() {
        assert_eq!(users("1"), Err("one user has nobody to follow".to_owned()));
        assert!(users("2").is_ok() && users("0").is_err() && users("50000001").is_err());
        assert_eq!(inbox_posts("39"), Err("not between 40 and 100000: a page has 20".to_owned()));
        assert!(inbox_posts("40").is_ok() && inbox_posts("100001").is_err());
        assert!(check_inboxes(40, 0.0).is_ok() && check_inboxes(300, 0.5).is_ok());
        let refused = check_inboxes(40, 0.1).unwrap_err();
        assert!(refused.starts_with("--inbox-posts 40 with --undone 0.1: some 36 posts"), "{refused}");
    }

    #[test]
    fn a_recorded_command_can_be_run_again() {
        let arguments = ["/tmp/x", "live", "--server-flags=--shards 2", "it's"].map(str::to_owned);
        assert_eq!(
            command(arguments.into_iter()),
            r"cargo run --release -p tidewire-load -- live '--server-flags=--shards 2' 'it'\''s'"
        );
    }
}
