//! Options that several commands share, and what they come to.
//!
//! Responsible for:
//! - the world, how it is loaded, and where the report goes.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tidewire_server::cli::terminal;

use crate::environment::Environment;
use crate::mint::{GAP_MIN, Ids};
use crate::operation::PAGE_POSTS;
use crate::prepare::{Load, Posts};
use crate::report::compare::ratios;
use crate::report::terminal::Look;
use crate::report::{Machine, Report, TargetReport, file, html, json, markdown, plot};
use crate::target::kind::Settings as TargetSettings;
use crate::warning::warnings;
use crate::workload::Mix;
use crate::world::generated::Recipe;
use crate::world::{World, files};

/// Users, and who follows whom.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "World")]
pub(super) struct WorldOptions {
    /// Users, 2 to 50,000,000
    #[arg(long, value_name = "USERS", value_parser = users)]
    pub(super) users: Option<NonZeroUsize>,

    /// Users who publish [default: a tenth]
    #[arg(long, value_name = "USERS")]
    authors: Option<NonZeroUsize>,

    /// Followers of an author on average
    #[arg(long, value_name = "USERS", default_value = "403")]
    mean_followers: NonZeroUsize,

    /// Followers of the author whom most follow [default: 22 % of the users]
    #[arg(long, value_name = "USERS")]
    most_followers: Option<NonZeroUsize>,

    /// Exponent of the power law by which authors have followers
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, value_parser = exponent)]
    followers_exponent: f64,

    /// Read who follows whom from a file instead: `follower source` in each line, `.gz` too
    #[arg(long, value_name = "FILE")]
    follows: Option<PathBuf>,

    /// Share of the users that are active: who is not is pushed nothing
    #[arg(long, value_name = "0..1", default_value_t = 1.0, value_parser = some_share)]
    active_share: f64,

    /// Share of the active users that are online: each has a live connection and reads what it is told. Of Tidewire as a server
    /// alone, since the others push to nobody
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = share)]
    online_share: f64,

    /// Exponent of the power law by which authors publish; 0: all alike
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = exponent)]
    publishing_exponent: f64,

    /// The same for readers who read
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = exponent)]
    reading_exponent: f64,

    /// Ids of posts, the same for all designs
    #[arg(long, value_enum, default_value_t = Ids::Snowflake)]
    ids: Ids,

    /// Time between two of the posts that are there before anything is measured, of all authors together: they are dated back
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = gap)]
    post_gap: Duration,

    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

/// What designs are set to.
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

/// What users do.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Work")]
pub(super) struct WorkOptions {
    /// `social`: 60 % feed pages, 30 % own pages, 10 % publishes; `pequod`: publish 1, read 100, follow 10, leave 5;
    /// `even`: half feed pages, half publishes; or `page`, `own_page`, `publish` alone
    #[arg(long, default_value = "social", value_parser = Mix::NAMES)]
    mix: String,

    /// Share of publishes and follows that are taken back soon after
    #[arg(long, value_name = "0..1", default_value_t = 0.1, value_parser = share)]
    undone: f64,

    /// Clients at once
    #[arg(long, default_value = "32")]
    pub(super) clients: NonZeroUsize,

    /// Threads that clients are spread over
    #[arg(long, default_value = "1")]
    pub(super) threads: NonZeroUsize,
}

/// Where the report goes besides the terminal.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportOptions {
    /// All figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// All figures and plots as one page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// The main figures as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// The main figures as a table in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl WorldOptions {
    /// The world, with `users` of them if nobody said how many. `activity` is what was recorded of those in a file.
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

    /// What designs are loaded with.
    pub(super) fn load(&self, world: World, inbox_posts: usize) -> Result<Load, String> {
        Ok(Load::new(world, inbox_posts, &self.posts())?.with_online(self.online_share, self.seed))
    }

    /// How posts are made.
    fn posts(&self) -> Posts {
        Posts { ids: self.ids, gap: self.post_gap, seed: self.seed }
    }

    /// How authors publish, and readers read.
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

    /// What is told of it.
    pub(super) fn told(&self) -> String {
        format!("{}, {} % of publishes and follows undone", self.mix, self.undone * 100.0)
    }
}

impl ReportOptions {
    /// Finds out whether all files can be written, before anything is measured for hours.
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

    /// Tells a report on the terminal and wherever else.
    pub(super) fn tell(&self, report: &Report) -> Result<(), Box<dyn Error>> {
        let look = Look { colour: std::io::stdout().is_terminal(), ..Look::default() };
        terminal::say(crate::report::terminal::text(report, look).trim_end());
        if let Some(path) = &self.json {
            json::write(report, path)?;
        }
        if let Some(path) = &self.html {
            html::write(report, path)?;
        }
        if let Some(path) = &self.svg {
            file::replace(path, &plot::headline(report))?;
        }
        if let Some(path) = &self.markdown {
            file::replace(path, &markdown::table(report))?;
        }
        Ok(())
    }
}

/// What is told of a world and how it is loaded.
pub(super) fn world_told(load: &Load, options: &WorldOptions) -> BTreeMap<String, String> {
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
        ("ids of posts", options.ids.told().to_owned()),
        (
            "publishing and reading exponents",
            format!("{} and {}", options.publishing_exponent, options.reading_exponent),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// A report of this run, of which nothing was measured yet.
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

/// Adds ratios, and what speaks against the figures. What went wrong is the first thing to know.
pub(super) fn judge(report: &mut Report, environment: &Environment) {
    report.ratios = ratios(&report.targets);
    let of_target = |target: &TargetReport| {
        let name = target.name.clone();
        target.failures.iter().map(move |failure| format!("{name}: {failure}")).collect::<Vec<_>>()
    };
    let failures: Vec<String> = report.targets.iter().flat_map(of_target).collect();
    report.warnings = [failures, warnings(report, environment)].concat();
}

/// The command line, to make a run again.
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

/// Longest time that may be asked for.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The smallest and the largest of other numbers: beyond them, times and counts have no meaning.
const NUMBERS: RangeInclusive<f64> = 1e-3..=1e7;

/// Reads `1.5` as seconds, `2m` and the like as what they say.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = seconds.map_or_else(|| humantime::parse_duration(text).map_err(|cause| cause.to_string()), Ok)?;
    match duration {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        longer if longer > DURATION_MAX => Err("must be at most 30 days".to_owned()),
        duration => Ok(duration),
    }
}

/// A duration that keeps times of posts apart.
fn gap(text: &str) -> Result<Duration, String> {
    let gap = duration(text)?;
    if gap >= GAP_MIN { Ok(gap) } else { Err(format!("must be at least {GAP_MIN:?}")) }
}

/// Users at most: as many as Tidewire knows by default.
const USERS_MAX: usize = 50_000_000;

fn users(text: &str) -> Result<NonZeroUsize, String> {
    let users: NonZeroUsize = text.parse().map_err(|_| "not a number above 0".to_owned())?;
    match users.get() {
        1 => Err("one user has nobody to follow".to_owned()),
        2..=USERS_MAX => Ok(users),
        _ => Err("more than 50,000,000".to_owned()),
    }
}

/// Posts that an inbox holds: no more than Tidewire's may. With less than two pages the feeds of its rivals, which end where the
/// inbox does, would lack posts on the first page as soon as some are deleted, and be told to be wrong.
const INBOX_POSTS: RangeInclusive<usize> = 2 * PAGE_POSTS..=100_000;

fn inbox_posts(text: &str) -> Result<usize, String> {
    let posts: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    if INBOX_POSTS.contains(&posts) {
        return Ok(posts);
    }
    Err(format!("not between {} and {}: a page has {PAGE_POSTS}", INBOX_POSTS.start(), INBOX_POSTS.end()))
}

/// Whether enough of an inbox is left for two pages where so large a share of what is published is deleted again.
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

fn exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=10.0).contains(&exponent) { Ok(exponent) } else { Err("not between 0 and 10".to_owned()) }
}

/// A number within [`NUMBERS`].
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if NUMBERS.contains(&number) { Ok(number) } else { Err("not between 0.001 and 10,000,000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_say_what_they_are() {
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
    fn worlds_and_inboxes_too_small_to_be_right_are_refused() {
        assert_eq!(users("1"), Err("one user has nobody to follow".to_owned()));
        assert!(users("2").is_ok() && users("0").is_err() && users("50000001").is_err());
        assert_eq!(inbox_posts("39"), Err("not between 40 and 100000: a page has 20".to_owned()));
        assert!(inbox_posts("40").is_ok() && inbox_posts("100001").is_err());
        assert!(check_inboxes(40, 0.0).is_ok() && check_inboxes(300, 0.5).is_ok());
        let refused = check_inboxes(40, 0.1).unwrap_err();
        assert!(refused.starts_with("--inbox-posts 40 with --undone 0.1: some 36 posts"), "{refused}");
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["/tmp/x", "live", "--server-flags=--shards 2", "it's"].map(str::to_owned);
        assert_eq!(
            command(arguments.into_iter()),
            r"cargo run --release -p tidewire-load -- live '--server-flags=--shards 2' 'it'\''s'"
        );
    }
}
