//! The records of a cluster's log.
//!
//! | bytes | content (numbers are little-endian) |
//! |---|---|
//! | 1 | version of the format, 1 |
//! | 8 | id of the cluster |
//! | 8 | epoch |
//! | 8 | number of the record: see [`Header::nth`] |
//! | 8 | run of the node: a random number for each start |
//! | 1 | length of the node's name |
//! | … | name of the node |
//! | … | content: MessagePack, maps with named fields |
//!
//! The header can be read without the content. So a record without effect needs no valid content. If a node cannot read
//! the content of a record that takes effect, it knows that it is too old to continue.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::feed::event::Event;
use crate::storage::frame::{pack, unpack};
use crate::storage::sequence::Sequence;

/// The version of the format that this program writes and reads.
const VERSION: u8 = 1;

/// Bytes of a header before the name of the node.
const FIXED_BYTES: usize = 34;

/// Maximum bytes of a node's name.
pub const NODE_NAME_BYTES_MAX: usize = 64;

/// The name of a node: 1–64 characters of `[A-Za-z0-9._-]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

/// The reason why a text is not a valid name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a node: 1 to {NODE_NAME_BYTES_MAX} letters, digits or characters . _ -")]
pub struct NodeNameError(String);

impl NodeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, NodeNameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_valid = (1..=NODE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_valid { Ok(Self(text.into())) } else { Err(NodeNameError(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for NodeName {
    type Error = NodeNameError;

    fn try_from(text: String) -> Result<Self, NodeNameError> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a cluster: a random number, chosen when its log is bootstrapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A number that increases with each sequencer. 0 is before the first one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One incarnation of a node: a process, from its start to its end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Incarnation {
    /// The name of the node, which is the same for all its processes.
    pub node: NodeName,
    /// A random number that differs for each start.
    pub run: u64,
}

/// The part of a record that decides if it takes effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The cluster that the log belongs to.
    pub cluster: ClusterId,
    /// The writer of the record.
    pub by: Incarnation,
    /// The epoch in which it was written, or which it claims.
    pub epoch: Epoch,
    /// For records of a sequencer, their number within the epoch; the claim has 0. For others, the number of the heartbeat within the run.
    pub nth: u64,
}

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// The first record of a log: the properties of the cluster that never change.
    Founded {
        /// The number of partitions of the readers.
        partitions: u32,
        /// True if all nodes share an archive. A program that does not know this field refuses the record.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        archive: bool,
    },
    /// The first record of a log that begins with a state, of a server on one machine or of a cluster whose log is gone.
    /// A program that does not know this record refuses it, so it does not begin with an empty state.
    FoundedFrom {
        /// The number of partitions of the readers.
        partitions: u32,
        /// The state with which the log begins.
        state: FirstState,
        /// True if all nodes share an archive.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        archive: bool,
    },
    /// The node claims to be the sequencer from here on.
    Claim,
    /// The sequencer has accepted this event.
    Event(Event),
    /// The sequencer changes the members.
    Members {
        /// All members after the change.
        members: Vec<Member>,
        /// The last record that the sequencer had read. A member that has written a heartbeat since then is not
        /// removed: the record then has no effect.
        as_of: Sequence,
    },
    /// The node is alive. Takes effect in any epoch.
    #[serde(rename = "beat")]
    Heartbeat(Heartbeat),
    /// The node is about to end, and has stopped judging commands.
    Leave,
}

/// The state with which a log begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstState {
    /// The cluster that the state is from, or none if it is from a server on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The last record of that cluster's log, or the last event of that server, that is in the state.
    pub sequence: Sequence,
    /// The digest of the state, as text.
    pub digest: String,
}

impl fmt::Display for FirstState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cluster {
            Some(cluster) => write!(f, "the state of cluster {cluster} after record {}", self.sequence),
            None => write!(f, "the state of a server after event {}", self.sequence),
        }
    }
}

/// A node's report of its own state.
///
/// Unknown fields are ignored here, and nowhere else: a node of a newer version must be able to report more without stopping the older ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The address at which other nodes reach it.
    pub address: String,
    /// True if it has read all records that were in the log when it started, and follows the log.
    pub is_ready: bool,
    /// Milliseconds since it sent the newest of its heartbeats that it has read back, or since its start. It is behind
    /// by at most this time.
    #[serde(default)]
    pub behind_ms: u64,
}

/// A node that owns readers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The process of the node.
    pub run: Incarnation,
    /// The address at which other nodes reach it.
    pub address: String,
}

/// The reason why bytes are not a record that this program can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A newer program wrote it.
    #[error("it has format {0}, and this program reads format {VERSION}: upgrade this node")]
    Newer(u8),
    /// The header is not complete or has an invalid name.
    #[error("its header is damaged: {0}")]
    Header(String),
    /// The content is not known to this program. The text names the unknown part.
    #[error(
        "its content cannot be read ({0}): it is damaged, or a newer version wrote it; in that case, upgrade this node"
    )]
    Content(String),
}

/// Encodes a record.
pub fn encode(header: &Header, content: &Content) -> Vec<u8> {
    let mut packed = Vec::new();
    pack(content, &mut packed);
    encode_packed(header, &packed)
}

/// Encodes a record with a content that is packed already.
pub fn encode_packed(header: &Header, content: &[u8]) -> Vec<u8> {
    let name = header.by.node.as_str();
    let mut bytes = Vec::with_capacity(FIXED_BYTES + name.len() + content.len());
    bytes.push(VERSION);
    for number in [header.cluster.0, header.epoch.0, header.nth, header.by.run] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(u8::try_from(name.len()).expect("the name of a node has at most 64 bytes"));
    bytes.extend(name.as_bytes());
    bytes.extend(content);
    bytes
}

/// Returns true if a packed content is an event.
pub(super) fn is_event(content: &[u8]) -> bool {
    // A map with one entry, whose name is a string of five bytes.
    content.starts_with(b"\x81\xa5event")
}

/// Decodes the header of a record, and returns it with the bytes of the content.
///
/// # Errors
/// Fails if a newer program wrote the record, or the header is damaged.
pub fn decode_header(bytes: &[u8]) -> Result<(Header, &[u8]), RecordError> {
    let version = *bytes.first().ok_or_else(|| RecordError::Header("it is empty".to_owned()))?;
    if version > VERSION {
        return Err(RecordError::Newer(version));
    }
    let cut_short = || RecordError::Header("it is cut short".to_owned());
    let fixed = bytes.get(..FIXED_BYTES).ok_or_else(cut_short)?;
    let number = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes were taken"));
    let end = FIXED_BYTES + usize::from(fixed[FIXED_BYTES - 1]);
    let name = bytes.get(FIXED_BYTES..end).ok_or_else(cut_short)?;
    let name = std::str::from_utf8(name).map_err(|cause| RecordError::Header(cause.to_string()))?;
    let node = name.parse().map_err(|cause: NodeNameError| RecordError::Header(cause.to_string()))?;
    let by = Incarnation { node, run: number(25) };
    let (cluster, epoch, nth) = (ClusterId(number(1)), Epoch(number(9)), number(17));
    Ok((Header { cluster, by, epoch, nth }, &bytes[end..]))
}

/// Decodes the content of a record.
///
/// # Errors
/// Fails if this program does not know the content.
pub fn decode_content(bytes: &[u8]) -> Result<Content, RecordError> {
    unpack(bytes).map_err(RecordError::Content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixMicros;
    use crate::feed::event::ChangedPost;
    use crate::feed::position::at;
    use crate::id::{PostId, SourceId};

    #[test]
    fn records_are_decoded_as_encoded_and_truncated_ones_are_refused() {
        let node: NodeName = "node-1.eu_west".parse().unwrap();
        let header = Header {
            cluster: ClusterId(1 << 63),
            by: Incarnation { node, run: u64::MAX },
            epoch: Epoch(7),
            nth: 1 << 40,
        };
        let member = Member { run: header.by.clone(), address: "http://127.0.0.1:7401".to_owned() };
        for content in [
            Content::Founded { partitions: 256, archive: false },
            Content::Founded { partitions: 256, archive: true },
            Content::FoundedFrom {
                partitions: 3,
                state: FirstState { cluster: Some(ClusterId(2)), sequence: Sequence(9), digest: "0f".repeat(16) },
                archive: true,
            },
            Content::Claim,
            Content::Event(Event::Deleted { id: crate::id::PostId(9), repost_of: None, post: None }),
            Content::Members { members: vec![member], as_of: Sequence(3) },
            Content::Heartbeat(Heartbeat { address: "http://[::1]:1".to_owned(), is_ready: true, behind_ms: 7 }),
            Content::Leave,
        ] {
            let bytes = encode(&header, &content);
            let (decoded, rest) = decode_header(&bytes).unwrap();
            assert_eq!((decoded, decode_content(rest)), (header.clone(), Ok(content)));
            let cut = |end: usize| decode_header(&bytes[..end]).and_then(|(_, rest)| decode_content(rest));
            (0..bytes.len()).for_each(|end| assert!(cut(end).is_err(), "cut at {end}"));
        }
    }

    /// One record of each kind, as the first version with this format wrote it: a name and the bytes in hexadecimal
    /// digits.
    const STORED: &str = include_str!("../../tests/fixtures/log-v1/records.txt");

    #[test]
    fn records_of_an_earlier_version_are_decoded_and_encoded_byte_for_byte() {
        let mut kinds = Vec::new();
        for line in STORED.lines() {
            let (kind, digits) = line.split_once(' ').unwrap();
            let byte = |nth: usize| u8::from_str_radix(&digits[2 * nth..2 * nth + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..digits.len() / 2).map(byte).collect();
            let (header, rest) = decode_header(&bytes).unwrap();
            let content = decode_content(rest).unwrap();
            assert_eq!((header.cluster, header.epoch, header.nth), (ClusterId(1 << 63), Epoch(7), 1 << 40), "{kind}");
            assert!(
                encode(&header, &content) == bytes,
                "{kind} is written in another way: give the format a new number"
            );
            kinds.push(kind);
        }
        assert_eq!(kinds, ["founded", "founded_from", "claim", "event", "members", "beat", "leave"]);
    }

    #[test]
    fn a_record_of_a_newer_version_is_reported_as_newer() {
        let header = Header {
            cluster: ClusterId(1),
            by: Incarnation { node: "a".parse().unwrap(), run: 1 },
            epoch: Epoch(1),
            nth: 1,
        };
        let mut newer = encode(&header, &Content::Claim);
        newer[0] = 2;
        assert_eq!(decode_header(&newer).unwrap_err(), RecordError::Newer(2));
        let mut unknown = Vec::new();
        pack(&std::collections::BTreeMap::from([("split", 1)]), &mut unknown);
        let refused = decode_content(&unknown).unwrap_err().to_string();
        assert!(refused.contains("split") && refused.contains("upgrade"), "{refused}");
    }

    #[test]
    fn only_heartbeats_may_have_unknown_fields() {
        fn packed(kind: &str, fields: serde_json::Value) -> Vec<u8> {
            let mut bytes = Vec::new();
            pack(&std::collections::BTreeMap::from([(kind, fields)]), &mut bytes);
            bytes
        }
        let heartbeat = Content::Heartbeat(Heartbeat { address: "http://a".to_owned(), is_ready: true, behind_ms: 7 });
        let mut encoded = Vec::new();
        pack(&heartbeat, &mut encoded);
        let stored = b"\x81\xa4beat\x83\xa7address\xa8http://a\xa8is_ready\xc3\xa9behind_ms\x07";
        assert_eq!(encoded, stored, "the stored form never changes");
        let more = serde_json::json!({"address": "http://a", "is_ready": true, "behind_ms": 7, "load": {"reads": [1]}});
        assert_eq!(decode_content(&packed("beat", more)), Ok(heartbeat));
        let refused = decode_content(&packed("founded", serde_json::json!({"partitions": 1, "load": 2}))).unwrap_err();
        assert!(refused.to_string().contains("load"), "{refused}");
    }

    #[test]
    fn the_first_record_of_a_log_with_initial_state_has_its_own_kind() {
        // So a program that does not know the record reports its kind, and does not begin with an empty state.
        let of_cluster = b"\x83\xa7cluster\x02\xa8sequence\x09\xa6digest\xa20f";
        let of_server = b"\x82\xa8sequence\x09\xa6digest\xa20f";
        for (cluster, stored) in [(Some(ClusterId(2)), &of_cluster[..]), (None, of_server)] {
            let state = FirstState { cluster, sequence: Sequence(9), digest: "0f".to_owned() };
            let content = Content::FoundedFrom { partitions: 3, state, archive: false };
            let mut encoded = Vec::new();
            pack(&content, &mut encoded);
            let stored = [b"\x81\xacfounded_from\x82\xaapartitions\x03\xa5state", stored].concat();
            assert_eq!(encoded, stored, "the stored form never changes");
            assert_eq!(decode_content(&stored), Ok(content));
        }
    }

    #[test]
    fn changes_of_archived_posts_include_the_post_and_others_keep_their_stored_form() {
        let known = |repost_of, hidden| {
            let sources = ["ann", "tag:tea"].map(|source| SourceId::new(source).unwrap()).to_vec();
            Some(Box::new(ChangedPost { at: at(3, 9), sources, repost_of, hidden }))
        };
        let (id, instant) = (PostId(9), UnixMicros(5));
        let edited = |post| Event::Edited { id, body: None, hidden: Some(true), at: instant, post };
        let deleted = |repost_of, post| Event::Deleted { id, repost_of, post };
        let post = r"\xa4post\x82\xa2at\x82\xacpublished_at\x03\xa2id\t\xa7sources\x92\xa3ann\xa7tag:tea";
        let more = post.replace(r"post\x82", r"post\x84") + r"\xa9repost_of\x07\xa6hidden\xc3";
        for (event, stored) in [
            (edited(None), r"edited\x83\xa2id\t\xa6hidden\xc3\xa2at\x05".to_owned()),
            (deleted(None, None), r"deleted\x81\xa2id\t".to_owned()),
            (edited(known(None, false)), format!(r"edited\x84\xa2id\t\xa6hidden\xc3\xa2at\x05{post}")),
            (
                deleted(Some(PostId(7)), known(Some(PostId(7)), true)),
                format!(r"deleted\x83\xa2id\t\xa9repost_of\x07{more}"),
            ),
        ] {
            let (mut packed, content) = (Vec::new(), Content::Event(event));
            pack(&content, &mut packed);
            let text = packed.escape_ascii().to_string();
            assert!(text.ends_with(&stored), "{text} must end with {stored}: the stored form never changes");
            assert_eq!(decode_content(&packed), Ok(content));
        }
    }

    #[test]
    fn names_of_nodes_are_short_and_plain() {
        for (name, is_valid) in
            [("a", true), ("node-1._X", true), ("", false), ("a b", false), ("ü", false), ("a/b", false)]
        {
            assert_eq!(name.parse::<NodeName>().is_ok(), is_valid, "{name:?}");
        }
        assert!("n".repeat(64).parse::<NodeName>().is_ok() && "n".repeat(65).parse::<NodeName>().is_err());
    }
}
