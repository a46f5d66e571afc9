//! Hosts, compared independently of the spellings of browsers, proxies and settings.

/// The name or address of a host, and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// In lower case, without a trailing dot and without the brackets of an IPv6 address.
    pub(super) name: String,
    /// The port, if the text contains it.
    pub(super) port: Option<u16>,
}

impl Host {
    /// Parses `name`, `name:port`, `[address]` or `[address]:port`. Returns `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(|(_, port)| port.is_empty() || port.starts_with(':'))?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            None | Some("") => None,
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => Some(digits.parse().ok()?),
            Some(_) => return None,
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        (!name.is_empty()).then_some(Self { name, port })
    }

    /// Returns true if both are the same host and port. `default` replaces a missing port.
    pub(super) fn is_same(&self, other: &Self, default: u16) -> bool {
        self.name == other.name && self.port.unwrap_or(default) == other.port.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_compare_equal_in_every_spelling() {
        for (one, other, default, same) in [
            ("feeds.example", "feeds.example:443", 443, true),
            ("feeds.example.", "FEEDS.example", 443, true),
            ("feeds.example", "feeds.example:", 80, true),
            ("feeds.example:80", "feeds.example", 443, false),
            ("feeds.example:8443", "feeds.example", 443, false),
            ("feeds.example", "evil.feeds.example", 443, false),
            ("[::1]:443", "[::1]", 443, true),
            ("127.0.0.1:8080", "127.0.0.1", 80, false),
        ] {
            let [one, other] = [one, other].map(|text| Host::parse(text).unwrap());
            assert_eq!(one.is_same(&other, default), same, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for text in ["", ".", ":80", "a:b", "a:80:80", "a:65536", "a:+1", "[::1", "[::1]x", "[]"] {
            assert_eq!(Host::parse(text), None, "{text}");
        }
    }
}
