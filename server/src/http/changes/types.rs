//! The types of events in the stream of changes: their names, and a set of them.

use crate::http::problem::Problem;
use crate::http::request::invalid_parameter;
use tidewire::feed::event::{Event, MuteOrBlock};

/// All types of accepted events. The last one is the type of posts that sleeping readers have missed.
pub(in crate::http) const NAMES: [&str; 18] = [
    "published",
    "edited",
    "deleted",
    "followed",
    "unfollowed",
    FOLLOWS_CHANGED,
    "muted",
    "unmuted",
    "blocked",
    "unblocked",
    "rules_changed",
    "marked",
    "member_added",
    "member_removed",
    "list_deleted",
    "tokens_revoked",
    "erased",
    MISSED,
];

/// The type of posts that sleeping readers have missed. They are not accepted events, so the client must request this type.
pub(super) const MISSED: &str = "missed";

/// The type of a request that both added and removed follows. A stream with either of these types includes it.
const FOLLOWS_CHANGED: &str = "follows_changed";

/// Returns the type of an event, or `None` for internal events of the server.
pub(super) fn name(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::Published { .. } => "published",
        Event::Edited { .. } => "edited",
        Event::Deleted { .. } => "deleted",
        Event::Followed { .. } => "followed",
        Event::Unfollowed { .. } => "unfollowed",
        Event::FollowsChanged { .. } => FOLLOWS_CHANGED,
        Event::MuteChanged { how: MuteOrBlock::Mute, since: Some(_), .. } => "muted",
        Event::MuteChanged { how: MuteOrBlock::Mute, since: None, .. } => "unmuted",
        Event::MuteChanged { how: MuteOrBlock::Block, since: Some(_), .. } => "blocked",
        Event::MuteChanged { how: MuteOrBlock::Block, since: None, .. } => "unblocked",
        Event::RulesChanged { .. } => "rules_changed",
        Event::MarkerMoved { .. } => "marked",
        Event::ListMemberChanged { since: Some(_), .. } => "member_added",
        Event::ListMemberChanged { since: None, .. } => "member_removed",
        Event::ListDeleted { .. } => "list_deleted",
        Event::Revoked { .. } => "tokens_revoked",
        Event::Erased { .. } => "erased",
        Event::ErasureScrubbed { .. } | Event::ErasureEnded { .. } | Event::ClockJumped { .. } => return None,
    })
}

/// A set of types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Types(u32);

impl Types {
    /// All types of accepted events.
    pub(super) const ALL: Self = Self((1 << (NAMES.len() - 1)) - 1);

    /// Parses names separated by commas.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let mut types = Self(0);
        for name in text.split(',') {
            let Some(nth) = NAMES.iter().position(|known| *known == name) else {
                let what = format!("{name:?} is not a type of event; the types are {}", NAMES.join(", "));
                return Err(invalid_parameter("types", &what));
            };
            types.0 |= 1 << nth;
        }
        if types.has("followed") || types.has("unfollowed") {
            types.0 |= NAMES.iter().position(|name| *name == FOLLOWS_CHANGED).map_or(0, |nth| 1 << nth);
        }
        Ok(types)
    }

    /// Returns true if a stored event of this kind may have a type in the set.
    pub(super) fn may_have(self, kind: &str) -> bool {
        let names: &[&str] = match kind {
            "silenced" => &["muted", "unmuted", "blocked", "unblocked"],
            "ruled" => &["rules_changed"],
            "listed" => &["member_added", "member_removed"],
            "unlisted" => &["list_deleted"],
            "revoked" => &["tokens_revoked"],
            // An event that cannot be read ends the stream.
            "" => return true,
            same => &[same],
        };
        names.iter().any(|name| self.has(name))
    }

    /// Returns true if the set contains this type.
    pub(super) fn has(self, name: &str) -> bool {
        NAMES.iter().position(|known| *known == name).is_some_and(|nth| self.0 & (1 << nth) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_types_are_parsed_as_a_list_and_unknown_types_are_refused() {
        for name in NAMES {
            let only = Types::parse(name).unwrap();
            let implies = |other| other == FOLLOWS_CHANGED && ["followed", "unfollowed"].contains(&name);
            assert!(NAMES.iter().all(|other| only.has(other) == (*other == name || implies(*other))), "{name}");
            assert_eq!(Types::ALL.has(name), name != MISSED, "{name}");
        }
        assert_eq!(Types::parse(&NAMES[..17].join(",")).unwrap(), Types::ALL);
        assert_eq!(Types::parse("deleted,deleted").unwrap(), Types::parse("deleted").unwrap());
        for unknown in ["", "Published", "published,", "published, deleted", "clock_jumped"] {
            assert!(
                Types::parse(unknown).unwrap_err().to_string().starts_with("400 invalid_parameter: types: "),
                "{unknown}"
            );
        }
    }
}
