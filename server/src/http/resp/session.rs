//! The state of a connection, and its handshake and introspection commands.

use crate::build_info::VERSION;
use crate::http::auth::Caller;
use crate::http::resp::commands::{COMMANDS, FeedCommand};
use crate::http::resp::replies::{Replies, Version};

/// The version of Redis whose protocol and connection commands this server has. Some clients compare it.
const REDIS_VERSION: &str = "7.0.0";

/// Maximum bytes of the name of a connection.
const NAME_BYTES_MAX: usize = 128;

const NOT_A_NAME: &str = "the name of a connection has at most 128 visible characters of ASCII";

/// The commands of Redis that a client may expect, and why they are not there.
const NOT_SUPPORTED: &[(&[&str], &str)] = &[
    (
        &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"],
        "transactions are not supported: a command takes effect as a whole",
    ),
    (
        &["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "FUNCTION", "FCALL", "FCALL_RO"],
        "scripts are not supported",
    ),
    (
        &["PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE", "PUBSUB"],
        "only SUBSCRIBE and UNSUBSCRIBE are supported, with channels that are named feed:USER",
    ),
    (&["PUBLISH", "SPUBLISH"], "FEED.POST publishes a post"),
    (
        &["GET", "SET", "DEL", "LPUSH", "RPUSH", "LRANGE", "ZADD", "ZRANGE", "HSET", "HGET", "INCR", "KEYS", "SCAN"],
        "this server has feeds in place of keys: see FEED.GET",
    ),
];

/// What a connection has said about itself.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The number of the connection.
    number: u64,
    name: String,
    /// The server key, once it was found to be valid.
    pub(super) login: Option<Login>,
}

/// A valid server key, and its caller.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) key: String,
    pub(super) caller: Caller,
}

/// The choices of a client in `HELLO`. They take effect together with its key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Hello {
    version: Option<Version>,
    name: Option<String>,
}

/// The effect of a command on its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// The reply is written.
    Replied,
    /// The client sent this key, by `AUTH` or with this `HELLO`.
    Authenticates(String, Option<Hello>),
    /// The client gives up its key.
    Reset,
    /// The connection ends after the reply.
    Ends,
    /// It is not a command of a connection.
    Other,
}

impl Session {
    /// Creates the state of the connection with this number.
    pub(super) fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Answers a command of a connection, with `words` behind its `name`.
    pub(super) fn answer(&mut self, name: &str, words: &[&str], is_ready: bool, replies: &mut Replies) -> Effect {
        match (name, words) {
            ("PING", []) => replies.status("PONG"),
            ("QUIT", _) => {
                replies.status("OK");
                return Effect::Ends;
            }
            ("AUTH", [key] | [_, key]) => return Effect::Authenticates((*key).to_owned(), None),
            ("HELLO", words) => return self.hello(words, replies),
            ("RESET", []) => {
                (replies.version, self.name) = (Version::Two, String::new());
                replies.status("RESET");
                return Effect::Reset;
            }
            ("SELECT", ["0"]) => replies.status("OK"),
            ("SELECT", _) => replies.error("ERR", "there is only database 0"),
            ("CLIENT", [subcommand, words @ ..]) => self.client(&subcommand.to_ascii_uppercase(), words, replies),
            ("COMMAND", words) => describe(words, replies),
            ("INFO", _) => replies.bulk(info(is_ready)),
            ("PING" | "ECHO" | "AUTH" | "RESET" | "CLIENT" | "SUBSCRIBE", _) => {
                replies.error(
                    "ERR",
                    format_args!("wrong number of arguments for '{}' command", name.to_ascii_lowercase()),
                );
            }
            _ => match NOT_SUPPORTED.iter().find(|(names, _)| names.contains(&name)) {
                Some((_, why)) => replies.error("ERR", format_args!("unknown command '{name}': {why}")),
                None => return Effect::Other,
            },
        }
        Effect::Replied
    }

    fn hello(&mut self, words: &[&str], replies: &mut Replies) -> Effect {
        let mut words = words.iter();
        let mut hello = Hello::default();
        match words.next() {
            None => {}
            Some(&"2") => hello.version = Some(Version::Two),
            Some(&"3") => hello.version = Some(Version::Three),
            Some(_) => {
                replies.error("NOPROTO", "unsupported protocol version");
                return Effect::Replied;
            }
        }
        let mut key = None;
        while let Some(option) = words.next() {
            match (&*option.to_ascii_uppercase(), words.len()) {
                ("AUTH", 2..) => key = words.nth(1),
                ("SETNAME", 1..) => {
                    hello.name = words.next().filter(|name| is_name(name)).map(|name| (*name).to_owned());
                    if hello.name.is_none() {
                        replies.error("ERR", NOT_A_NAME);
                        return Effect::Replied;
                    }
                }
                _ => {
                    replies.error("ERR", format_args!("syntax error in HELLO option '{option}'"));
                    return Effect::Replied;
                }
            }
        }
        if let Some(key) = key {
            return Effect::Authenticates((*key).to_owned(), Some(hello));
        }
        self.greet(hello, replies);
        Effect::Replied
    }

    /// Applies a `HELLO`, and writes its reply.
    pub(super) fn greet(&mut self, Hello { version, name }: Hello, replies: &mut Replies) {
        replies.version = version.unwrap_or(replies.version);
        self.name = name.unwrap_or_else(|| std::mem::take(&mut self.name));
        let protocol = if replies.version == Version::Three { 3 } else { 2 };
        replies.map(7);
        for (name, value) in [("server", "tidewire"), ("version", REDIS_VERSION)] {
            replies.bulk(name);
            replies.bulk(value);
        }
        replies.bulk("proto");
        replies.integer(protocol);
        replies.bulk("id");
        replies.integer(self.number.cast_signed());
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(name);
            replies.bulk(value);
        }
        replies.bulk("modules");
        replies.array(0);
    }

    fn client(&mut self, subcommand: &str, words: &[&str], replies: &mut Replies) {
        match (subcommand, words) {
            ("SETNAME", [name]) if is_name(name) => {
                (*name).clone_into(&mut self.name);
                replies.status("OK");
            }
            ("SETNAME", [_]) => replies.error("ERR", NOT_A_NAME),
            ("GETNAME", []) if self.name.is_empty() => replies.null(),
            ("GETNAME", []) => replies.bulk(&self.name),
            ("ID", []) => replies.integer(self.number.cast_signed()),
            ("INFO", []) => replies.bulk(format!("id={} name={} db=0", self.number, self.name)),
            // The names and versions of client libraries are not stored.
            ("SETINFO", [_, _]) | ("NO-EVICT" | "NO-TOUCH", [_]) => replies.status("OK"),
            _ => replies.error("ERR", format_args!("CLIENT {subcommand} is not supported")),
        }
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Answers `COMMAND`, which clients use to find the keys of a command. No feed command has any.
fn describe(words: &[&str], replies: &mut Replies) {
    match words {
        [] => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| command_info(command, replies));
        }
        [word] if word.eq_ignore_ascii_case("COUNT") => replies.integer(COMMANDS.len() as i64),
        [word] if word.eq_ignore_ascii_case("INFO") => describe(&[], replies),
        [word, names @ ..] if word.eq_ignore_ascii_case("INFO") => {
            replies.array(names.len());
            for name in names {
                match FeedCommand::find(name.as_bytes()) {
                    Some(command) => command_info(command, replies),
                    None => replies.null(),
                }
            }
        }
        [word, names @ ..] if word.eq_ignore_ascii_case("DOCS") => {
            let is_wanted = |command: &&FeedCommand| {
                names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case(command.name))
            };
            let wanted: Vec<_> = COMMANDS.iter().filter(is_wanted).collect();
            replies.map(wanted.len());
            for command in wanted {
                replies.bulk(command.name.to_ascii_lowercase());
                // redis-cli expects all three.
                replies.map(3);
                let summary = format!("{} {}", command.name, command.syntax);
                for (name, value) in [("summary", &*summary), ("since", REDIS_VERSION), ("group", "feed")] {
                    replies.bulk(name);
                    replies.bulk(value);
                }
            }
        }
        [word, ..] => replies.error("ERR", format_args!("COMMAND {word} is not supported")),
    }
}

fn command_info(command: &FeedCommand, replies: &mut Replies) {
    replies.array(6);
    replies.bulk(command.name.to_ascii_lowercase());
    replies.integer(command.arity);
    replies.array(1);
    replies.status(if command.writes { "write" } else { "readonly" });
    // The first key, the last key and the step between keys.
    [0, 0, 0].into_iter().for_each(|place| replies.integer(place));
}

/// Returns the reply of `INFO`. Some clients wait until the server is not loading any more.
fn info(is_ready: bool) -> String {
    let loading = u8::from(!is_ready);
    format!(
        "# Server\r\nserver_name:tidewire\r\ntidewire_version:{VERSION}\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n\r\n\
         # Persistence\r\nloading:{loading}\r\n\r\n# Replication\r\nrole:master\r\n"
    )
}
