//! A place in the stream of changes, from which a client resumes it.

use std::fmt;

use crate::http::problem::Problem;
use crate::http::request::{Parameters, invalid_parameter, whole_number};
use tidewire::id::SourceId;
use tidewire::storage::sequence::Sequence;

/// The parameter with a reader within a post.
const AFTER_READER: &str = "after_reader";

/// A place in the stream: after an event, or between the readers of the post that follows this event.
///
/// These readers are ordered by id, so a place is valid after a restart and on every node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// All events up to this one were sent or left out.
    pub(super) after: Sequence,
    /// The last processed reader of the next post: all missed posts of readers up to this one were sent or left out.
    pub(super) reader: Option<SourceId>,
}

impl Place {
    /// Returns the place after an event.
    pub(super) fn after(after: Sequence) -> Self {
        Self { after, reader: None }
    }

    /// Parses the `id` of a server-sent event, as `Display` writes it.
    fn parse(id: &str) -> Option<Self> {
        let (after, reader) = id.split_once('-').map_or((id, None), |(after, reader)| (after, Some(reader)));
        let reader = reader.map(SourceId::new).transpose().ok()?;
        Some(Self { after: Sequence(whole_number(after)?), reader })
    }

    /// Returns the place that a client requests. It is the `id` of its last event, which comes with the name of its header or parameter,
    /// or else that of the parameters. `None` is the end of the journal.
    pub(super) fn requested(
        parameters: &Parameters<'_>,
        last_event_id: Option<(&str, &[u8])>,
        names_readers: bool,
    ) -> Result<Option<Self>, Problem> {
        let no_readers = "a reader may be named only if \"types\" has \"missed\"";
        if let Some((name, id)) = last_event_id {
            let place = str::from_utf8(id).ok().and_then(Self::parse);
            let place = place.ok_or_else(|| {
                invalid_parameter(name, "neither a sequence nor a sequence, a hyphen and the id of a reader")
            })?;
            if place.reader.is_some() && !names_readers {
                return Err(invalid_parameter(name, no_readers));
            }
            return Ok(Some(place));
        }
        let (after, reader) = (parameters.number("after")?, parameters.parsed::<SourceId>(AFTER_READER)?);
        match (after, &reader) {
            (None, Some(_)) => Err(invalid_parameter(AFTER_READER, "only together with \"after\"")),
            (_, Some(_)) if !names_readers => Err(invalid_parameter(AFTER_READER, no_readers)),
            (after, _) => Ok(after.map(|after| Self { after: Sequence(after), reader })),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.after)?;
        self.reader.as_ref().map_or(Ok(()), |reader| write!(f, "-{reader}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_parsed_as_it_is_written_and_invalid_places_are_refused() {
        for (id, after, reader) in [
            ("0", 0, None),
            ("18446744073709551615", u64::MAX, None),
            ("40-ann", 40, Some("ann")),
            ("40--", 40, Some("-")),
            ("40-7-a:b@c~d.e_f", 40, Some("7-a:b@c~d.e_f")),
        ] {
            let place = Place::parse(id).unwrap();
            assert_eq!((place.after, place.reader.as_ref().map(SourceId::as_str)), (Sequence(after), reader), "{id}");
            assert_eq!(place.to_string(), id);
        }
        let long = format!("40-{}", "a".repeat(129));
        for id in [
            "", "-", "x", "-1", "-ann", "40-", "40-a b", "40-a\n", "40-ä", "40-.", "4 0", "40 ", "+40", "040", "x-ann",
            &long,
        ] {
            assert_eq!(Place::parse(id), None, "{id:?}");
        }
    }
}
