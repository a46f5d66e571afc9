//! The names of the settings, and examples of their values.

use std::env;
use std::path::Path;

use clap::{Arg, Args as _, Command};

use super::{Settings, SettingsError};

/// Minimum similarity of two names, from 0 to 1, to suggest one instead of the other.
const LIKENESS_MIN: f64 = 0.8;

/// Minimum similarity of two variables. It is higher, because other variables, such as those of clients, have the same prefix.
const VARIABLE_LIKENESS_MIN: f64 = 0.92;

/// The prefix of the variables of Tidewire.
const VARIABLES: &str = "TIDEWIRE_";

/// Former names of settings with their variables, and the current names. They are accepted for one release.
const RENAMED: [(&str, &str, &str); 4] = [
    ("cluster-session", "TIDEWIRE_CLUSTER_SESSION", "member-timeout"),
    ("compress-from", "TIDEWIRE_COMPRESS_FROM", "compress-min-bytes"),
    ("hosts", "TIDEWIRE_HOSTS", "allowed-hosts"),
    ("live-linger", "TIDEWIRE_LIVE_LINGER", "live-history-ttl"),
];

/// The variable with the password of an archive in Cassandra. It is not a setting, because the list of processes would show a flag.
pub(super) const ARCHIVE_PASSWORD: &str = "TIDEWIRE_ARCHIVE_PASSWORD";

/// Makes a command accept the former names of settings, too. The variable of the current name takes precedence over the former one.
pub(crate) fn with_earlier_names(command: Command) -> Command {
    command.mut_args(with_earlier_name).mut_subcommands(with_earlier_names)
}

fn with_earlier_name(argument: Arg) -> Arg {
    let Some((earlier, earlier_variable, present)) = RENAMED.iter().find(|renamed| renamed.2 == name(&argument)) else {
        return argument;
    };
    let argument = argument.alias(*earlier);
    let is_set_only_by_it = env::var_os(earlier_variable).is_some() && env::var_os(variable_of(present)).is_none();
    if is_set_only_by_it { argument.env(*earlier_variable) } else { argument }
}

/// Returns the former name of a setting, if it has one.
pub(crate) fn earlier_name(name: &str) -> Option<&'static str> {
    RENAMED.iter().find_map(|(earlier, _, present)| (*present == name).then_some(*earlier))
}

/// Returns the variable that sets a setting.
fn variable_of(name: &str) -> String {
    format!("{VARIABLES}{}", name.replace('-', "_").to_uppercase())
}

/// Returns the current name of a setting if `name` is a former one, or its variable if `name` is a former variable.
pub(crate) fn present_name(name: &str) -> Option<String> {
    RENAMED.iter().find_map(|(earlier, variable, present)| match name {
        _ if name == *earlier => Some((*present).to_owned()),
        _ if name == *variable => Some(variable_of(present)),
        _ => None,
    })
}

/// Returns the settings of `tidewire serve` as arguments, in the order of the reference.
pub(crate) fn arguments() -> Vec<Arg> {
    with_earlier_names(Settings::augment_args(Command::new("serve"))).get_arguments().cloned().collect()
}

/// Returns the settings that a file may contain.
pub(crate) fn of_file() -> impl Iterator<Item = Arg> {
    arguments().into_iter().filter(|argument| argument.get_action().takes_values())
}

/// Returns the error for a key that is not a setting, if `cause` is about one.
pub(super) fn unknown_key(file: &Path, text: &str, cause: &toml::de::Error) -> Option<SettingsError> {
    let key = cause.message().strip_prefix("unknown field `")?.split('`').next()?.to_owned();
    let before = text.get(..cause.span()?.start)?;
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let nearest = nearest(&key).map(|argument| example(&argument));
    Some(SettingsError::Unknown { file: file.to_owned(), line, key, nearest })
}

fn nearest(key: &str) -> Option<Arg> {
    let key = key.replace('_', "-").to_lowercase();
    let alike = of_file().map(|argument| (strsim::jaro_winkler(&key, name(&argument)), argument));
    let (likeness, argument) = alike.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= LIKENESS_MIN).then_some(argument)
}

/// Returns the variable of the setting with the most similar name, if `variable` is not used by any program and probably misspelt.
pub(crate) fn misspelt_variable(variable: &str) -> Option<String> {
    let rest = variable
        .strip_prefix(VARIABLES)
        .filter(|_| variable != ARCHIVE_PASSWORD && present_name(variable).is_none())?;
    let of_settings = arguments().into_iter().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
    let alike = of_settings.map(|name| {
        let likeness = strsim::jaro_winkler(rest, name.strip_prefix(VARIABLES).unwrap_or(&name));
        (likeness, name)
    });
    let (likeness, name) = alike.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= VARIABLE_LIKENESS_MIN && name != variable).then_some(name)
}

/// Returns the name of a setting.
pub(crate) fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or_default()
}

/// Returns the default of a setting from its help text.
pub(crate) fn default_of(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let default = help.rsplit_once("default: ").map(|(_, default)| default.trim_end_matches(']').to_owned());
    default.unwrap_or_else(|| "none".to_owned())
}

/// Returns a line of a settings file with this setting.
pub(super) fn example(argument: &Arg) -> String {
    let name = name(argument);
    let value_name = argument.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()).unwrap_or_default();
    let value = match (name, value_name) {
        ("backup-to", _) => "\"file:///srv/backups\"",
        ("archive", _) => "\"cassandra://127.0.0.1:9042/feeds\"",
        ("cors-origins", _) => "\"https://example.org\"",
        ("allowed-hosts", _) => "\"feeds.example.org\"",
        ("archive-user", _) => "\"tidewire\"",
        ("archive-datacenter", _) => "\"dc1\"",
        (_, "ADDRESS:PORT") => "\":8080\"",
        (_, "DURATION") => "\"90s\"",
        (_, "SIZE") => "\"4GiB\"",
        (_, "DIR") => "\"/var/lib/tidewire\"",
        (_, "FILE") => return format!("{name} = \"/etc/tidewire/{name}\""),
        (_, "ADDRESSES|loopback|none") => "\"loopback\"",
        (_, choices) if choices.contains('|') => {
            return format!("{name} = \"{}\"", choices.split('|').next().unwrap_or_default());
        }
        _ => "200",
    };
    format!("{name} = {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_an_example_that_is_accepted() {
        for argument in of_file() {
            let example = example(&argument);
            let read: Result<Settings, _> = toml::from_str(&example);
            assert!(read.is_ok(), "{example}: {read:?}");
        }
    }

    #[test]
    fn a_misspelled_variable_suggests_the_nearest_setting() {
        for (variable, expected) in [
            ("TIDEWIRE_LISTN", Some("TIDEWIRE_LISTEN")),
            ("TIDEWIRE_LISTEN", None),
            ("TIDEWIRE_DATADIR", Some("TIDEWIRE_DATA_DIR")),
            ("TIDEWIRE_TLS_CERTS", Some("TIDEWIRE_TLS_CERT")),
            // Not a setting, so it is not in files, but its name is similar to one.
            ("TIDEWIRE_ARCHIVE_PASSWORD", None),
            // A former name, which is still accepted.
            ("TIDEWIRE_HOSTS", None),
            // Variables of clients.
            ("TIDEWIRE_KEY", None),
            ("TIDEWIRE_KEY_FILE", None),
            ("TIDEWIRE_SERVER", None),
            ("TIDEWIRE_CA_FILE", None),
            ("TIDEWIRE_CONFIG", None),
            ("LISTN", None),
        ] {
            assert_eq!(misspelt_variable(variable).as_deref(), expected, "{variable}");
        }
    }

    #[test]
    fn an_unknown_key_suggests_the_nearest_setting_with_an_example() {
        let file = Path::new("t.toml");
        for (text, line, nearest) in [
            ("inbox-post = 3", 1, Some("inbox-posts = 200")),
            ("\ninbox_posts = 3", 2, Some("inbox-posts = 200")),
            ("# a\n\nInbox-Age = 3", 3, Some("inbox-age = \"90s\"")),
            ("datadir = \"d\"", 1, Some("data-dir = \"/var/lib/tidewire\"")),
            ("store-byte-max = 1", 1, Some("store-bytes-max = \"4GiB\"")),
            ("shards = 1\ncolour = 1", 2, None),
        ] {
            let cause = toml::from_str::<Settings>(text).unwrap_err();
            let Some(SettingsError::Unknown { line: at, nearest: found, .. }) = unknown_key(file, text, &cause) else {
                panic!("{text:?}: {cause}")
            };
            assert_eq!((at, found.as_deref()), (line, nearest), "{text:?}");
        }
        let cause = toml::from_str::<Settings>("inbox-posts = 0").unwrap_err();
        assert!(unknown_key(file, "inbox-posts = 0", &cause).is_none());
    }
}
