//! Records of the log, decoded on the thread that reads the log.

use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::record::{Content, Header, Incarnation, RecordError, decode_content, decode_header, is_event};
use crate::storage::log::LogRecord;
use crate::storage::sequence::Sequence;

/// A record of the log, decoded as far as its reader needs it.
#[derive(Debug)]
pub struct ReceivedRecord {
    pub(super) sequence: Sequence,
    pub(super) bytes: u64,
    /// The XXH3 hash of the record.
    pub(super) fingerprint: u64,
    pub(super) decoded: Result<(Header, ReceivedContent), RecordError>,
}

/// The content of a received record.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are events, and each is moved a few times only")]
pub(super) enum ReceivedContent {
    /// The content, or the reason why this program cannot read it.
    Decoded(Result<Content, RecordError>),
    /// An event that this process wrote, still encoded: as a rule, this process still has the event.
    OwnEvent(Vec<u8>),
}

impl ReceivedRecord {
    /// Decodes a record for the process `me`.
    pub(super) fn decode(record: &LogRecord, me: &Incarnation) -> Self {
        let decoded = decode_header(&record.bytes).map(|(header, content)| {
            let is_own_event = header.by == *me && is_event(content);
            let content = match is_own_event {
                true => ReceivedContent::OwnEvent(content.to_vec()),
                false => ReceivedContent::Decoded(decode_content(content)),
            };
            (header, content)
        });
        let (bytes, fingerprint) = (record.bytes.len() as u64, xxh3_64(&record.bytes));
        Self { sequence: record.sequence, bytes, fingerprint, decoded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::record::{ClusterId, Epoch, encode, encode_packed};
    use crate::feed::event::Event;
    use crate::id::PostId;

    #[test]
    fn only_own_events_stay_encoded() {
        let run = |run| Incarnation { node: "a".parse().unwrap(), run };
        let header = |by: &Incarnation| Header { cluster: ClusterId(1), by: by.clone(), epoch: Epoch(2), nth: 3 };
        let event = || Content::Event(Event::Deleted { id: PostId(9), repost_of: None, post: None });
        let (me, earlier) = (run(1), run(2));
        for (by, content, is_encoded) in [
            (&me, event(), true),
            (&earlier, event(), false),
            (&me, Content::Claim, false),
            (&me, Content::Leave, false),
        ] {
            let bytes = encode(&header(by), &content);
            let received = ReceivedRecord::decode(&LogRecord { sequence: Sequence(7), bytes: bytes.clone() }, &me);
            assert_eq!((received.sequence, received.fingerprint), (Sequence(7), xxh3_64(&bytes)));
            let (decoded_header, decoded) = received.decoded.unwrap();
            assert_eq!(decoded_header, header(by));
            let decoded = match decoded {
                ReceivedContent::OwnEvent(packed) if is_encoded => decode_content(&packed),
                ReceivedContent::Decoded(decoded) if !is_encoded => decoded,
                other => panic!("{content:?}: {other:?}"),
            };
            assert_eq!(decoded, Ok(content));
        }
        let unknown = encode_packed(&header(&earlier), b"\x81\xa5event\x81\xa5split\x01");
        let received = ReceivedRecord::decode(&LogRecord { sequence: Sequence(8), bytes: unknown }, &me);
        assert!(matches!(received.decoded, Ok((_, ReceivedContent::Decoded(Err(RecordError::Content(_)))))));
        let received = ReceivedRecord::decode(&LogRecord { sequence: Sequence(9), bytes: vec![9] }, &me);
        assert_eq!(received.decoded.unwrap_err(), RecordError::Newer(9));
    }
}
