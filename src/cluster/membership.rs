//! The interpretation of a log's records in their order: the events that take effect, the sequencer, and the owners of
//! readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cluster::record::{
    ClusterId, Content, Epoch, Header, Heartbeat, Incarnation, Member, NodeName, RecordError, decode_content,
};
use crate::feed::event::Event;
use crate::id::SourceId;
use crate::storage::sequence::Sequence;

/// Number of partitions of the readers, unless the cluster was bootstrapped with another number.
pub const PARTITIONS: u32 = 256;

/// The state of a cluster after a prefix of its log. Two nodes that have read the same prefix have equal states.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    cluster: ClusterId,
    partitions: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_archive: bool,
    epoch: Epoch,
    sequencer: Option<Incarnation>,
    /// The number that the next record of the sequencer must have.
    next_nth: u64,
    seats: BTreeMap<NodeName, MemberState>,
}

/// A member, and the state of its process according to the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberState {
    member: Member,
    /// Its last heartbeat that reported it as ready. Other heartbeats give no lease, so they do not keep it a member.
    last_beat: Sequence,
    has_left: bool,
}

/// The effect of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are events, and each is moved a few times only")]
pub enum RecordOutcome {
    /// It is an event, to be applied.
    Event(Event),
    /// It is the oldest event that this process wrote and waits for.
    OwnEvent,
    /// Its writer is the sequencer from here on. Later records of earlier epochs have no effect.
    Claimed,
    /// The members changed.
    Members,
    /// Its writer is alive, at this address.
    Heartbeat {
        /// The address at which other nodes reach it.
        address: String,
        /// True if the node has read the log.
        is_ready: bool,
        /// Maximum number of milliseconds by which the node is behind.
        behind_ms: u64,
    },
    /// Its writer is about to end.
    Left,
    /// It has no effect: it was written for another epoch, or after a record that is missing.
    Nothing,
}

/// The reason why a log cannot be followed any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// This program cannot read a record that takes effect, or may take effect.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The first record does not name the cluster to which the log belongs.
    #[error("it is not the first record of a cluster: create the log with `tidewire cluster init`")]
    NotFounded,
}

impl Membership {
    /// The state before any record was read.
    pub fn unknown() -> Self {
        Self {
            cluster: ClusterId(0),
            partitions: 1,
            has_archive: false,
            epoch: Epoch::default(),
            sequencer: None,
            next_nth: 0,
            seats: BTreeMap::new(),
        }
    }

    /// Reads the first record of a log.
    ///
    /// # Errors
    /// Fails if the log is not the log of a cluster.
    pub fn founded(header: &Header, content: &[u8]) -> Result<Self, ReadError> {
        let (Content::Founded { partitions, archive } | Content::FoundedFrom { partitions, archive, .. }) =
            decode_content(content)?
        else {
            return Err(ReadError::NotFounded);
        };
        Ok(Self { cluster: header.cluster, partitions: partitions.max(1), has_archive: archive, ..Self::unknown() })
    }

    /// Returns true if the cluster was bootstrapped with an archive, which all nodes share.
    pub fn has_archive(&self) -> bool {
        self.has_archive
    }

    /// Reads the record at `sequence`.
    ///
    /// # Errors
    /// Fails if the log cannot be followed any further. The state is then unchanged.
    pub fn read(
        &mut self,
        sequence: Sequence,
        header: &Header,
        content: Result<Content, RecordError>,
    ) -> Result<RecordOutcome, ReadError> {
        if header.cluster != self.cluster {
            // For example, a node of a cluster that used this topic before wrote it. It must not affect this cluster.
            return Ok(RecordOutcome::Nothing);
        }
        let is_next = self.is_next(header);
        let decoded = match content {
            // Records of an old sequencer have no effect, so this program need not be able to read them.
            Err(_) if !is_next && header.epoch < self.epoch => return Ok(RecordOutcome::Nothing),
            decoded => decoded?,
        };
        Ok(match decoded {
            Content::Claim if header.epoch == self.epoch.next() => {
                (self.epoch, self.sequencer, self.next_nth) = (header.epoch, Some(header.by.clone()), 1);
                RecordOutcome::Claimed
            }
            Content::Event(event) if is_next => {
                self.next_nth += 1;
                RecordOutcome::Event(event)
            }
            Content::Members { members, as_of } if is_next => {
                self.next_nth += 1;
                if self.seat(members, as_of, sequence) { RecordOutcome::Members } else { RecordOutcome::Nothing }
            }
            Content::Heartbeat(Heartbeat { address, is_ready, behind_ms }) => {
                if is_ready {
                    self.seat_of(&header.by).into_iter().for_each(|seat| seat.last_beat = sequence);
                }
                RecordOutcome::Heartbeat { address, is_ready, behind_ms }
            }
            Content::Leave => {
                self.seat_of(&header.by).into_iter().for_each(|seat| seat.has_left = true);
                RecordOutcome::Left
            }
            Content::Claim
            | Content::Event(_)
            | Content::Members { .. }
            | Content::Founded { .. }
            | Content::FoundedFrom { .. } => RecordOutcome::Nothing,
        })
    }

    /// Reads an event without its content. Returns true if it takes effect.
    pub fn read_event(&mut self, header: &Header) -> bool {
        let is_next = header.cluster == self.cluster && self.is_next(header);
        self.next_nth += u64::from(is_next);
        is_next
    }

    /// Returns true if a record is the next one of the sequencer.
    fn is_next(&self, header: &Header) -> bool {
        self.sequencer.as_ref() == Some(&header.by) && header.epoch == self.epoch && header.nth == self.next_nth
    }

    fn seat_of(&mut self, run: &Incarnation) -> Option<&mut MemberState> {
        self.seats.get_mut(&run.node).filter(|seat| seat.member.run == *run)
    }

    /// Replaces the members, unless a member to be removed has written a heartbeat after `as_of` that reports it as
    /// ready. Otherwise a sequencer that was paused would remove members because of its own silence.
    fn seat(&mut self, members: Vec<Member>, as_of: Sequence, now: Sequence) -> bool {
        let lives = |seat: &&MemberState| seat.last_beat > as_of && !seat.has_left;
        let stays = |seat: &MemberState| members.iter().any(|member| member.run == seat.member.run);
        if self.seats.values().filter(lives).any(|seat| !stays(seat)) {
            return false;
        }
        let mut before = std::mem::take(&mut self.seats);
        for member in members {
            let known = before.remove(&member.run.node).filter(|seat| seat.member.run == member.run);
            let (last_beat, has_left) = known.map_or((now, false), |seat| (seat.last_beat, seat.has_left));
            self.seats.insert(member.run.node.clone(), MemberState { member, last_beat, has_left });
        }
        true
    }

    /// Returns the id of the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the current epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the process that judges commands in this epoch.
    pub fn sequencer(&self) -> Option<&Incarnation> {
        self.sequencer.as_ref()
    }

    /// Returns the address of the sequencer, if it is a member.
    pub fn sequencer_address(&self) -> Option<&str> {
        let sequencer = self.sequencer.as_ref()?;
        self.members().find(|member| member.run == *sequencer).map(|member| &*member.address)
    }

    /// Returns the number that the sequencer's next record must have.
    pub fn next_nth(&self) -> u64 {
        self.next_nth
    }

    /// Returns the nodes that own readers, in the order of their names.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.seats.values().map(|seat| &seat.member)
    }

    /// Returns true if another state has the same sequencer and the same members. Heartbeats and events change neither.
    pub fn places_like(&self, other: &Self) -> bool {
        let same_seat = |(seat, of_other): (&MemberState, &MemberState)| {
            seat.member == of_other.member && seat.has_left == of_other.has_left
        };
        self.cluster == other.cluster
            && self.epoch == other.epoch
            && self.sequencer == other.sequencer
            && self.seats.len() == other.seats.len()
            && self.seats.values().zip(other.seats.values()).all(same_seat)
    }

    /// Returns the number of partitions whose owner was another one in an earlier state.
    pub fn moved_since(&self, before: &Self) -> u64 {
        let moved = |partition: &u32| self.owner(*partition) != before.owner(*partition);
        (0..self.partitions).filter(moved).count() as u64
    }

    /// Returns true if this process is a member and has written that it leaves.
    pub fn is_leaving(&self, run: &Incarnation) -> bool {
        self.seats.get(&run.node).is_some_and(|seat| seat.member.run == *run && seat.has_left)
    }

    /// Returns true if this process is a member.
    pub fn is_member(&self, run: &Incarnation) -> bool {
        self.seats.get(&run.node).is_some_and(|seat| seat.member.run == *run)
    }

    /// Returns the number of partitions of the readers.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Returns the partition of a reader: the XXH3 hash of the id, 64 bits, modulo the number of partitions.
    pub fn partition(&self, reader: &SourceId) -> u32 {
        (xxh3_64_with_seed(reader.as_str().as_bytes(), 0) % u64::from(self.partitions)) as u32
    }

    /// Returns the owner of a partition: the member with the greatest hash together with the partition (rendezvous hashing). So a member
    /// that joins or leaves moves only its own partitions.
    pub fn owner(&self, partition: u32) -> Option<&Member> {
        self.members().max_by_key(|member| (rank(&member.run.node, u64::from(partition)), &member.run.node))
    }

    /// Returns the owner of a reader.
    pub fn owner_of(&self, reader: &SourceId) -> Option<&Member> {
        self.owner(self.partition(reader))
    }
}

/// Returns the rank of a node for a task of one of several nodes: the node with the greatest rank comes first.
pub fn rank(node: &NodeName, what: u64) -> u64 {
    xxh3_64_with_seed(node.as_str().as_bytes(), what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::record::{decode_header, encode};
    use crate::id::PostId;

    const CLUSTER: ClusterId = ClusterId(7);

    fn run(node: &str, run: u64) -> Incarnation {
        Incarnation { node: node.parse().unwrap(), run }
    }

    fn header(by: &Incarnation, epoch: u64, nth: u64) -> Header {
        Header { cluster: CLUSTER, by: by.clone(), epoch: Epoch(epoch), nth }
    }

    fn event(id: u64) -> Content {
        Content::Event(Event::Deleted { id: PostId(id), repost_of: None, post: None })
    }

    fn read(membership: &mut Membership, header: &Header, content: &Content) -> Result<RecordOutcome, ReadError> {
        read_at(membership, 9, header, content)
    }

    fn read_at(
        membership: &mut Membership,
        at: u64,
        header: &Header,
        content: &Content,
    ) -> Result<RecordOutcome, ReadError> {
        let bytes = encode(header, content);
        let (header, content) = decode_header(&bytes).unwrap();
        membership.read(Sequence(at), &header, decode_content(content))
    }

    fn new(partitions: u32) -> Membership {
        let bytes = encode(&header(&run("a", 1), 0, 0), &Content::Founded { partitions, archive: false });
        let (header, content) = decode_header(&bytes).unwrap();
        Membership::founded(&header, content).unwrap()
    }

    #[test]
    fn only_gapless_records_of_the_sequencer_of_the_epoch_count() {
        let (a, b, again) = (run("a", 1), run("b", 1), run("a", 2));
        let mut membership = new(4);
        for (by, epoch, nth, content, counts) in [
            (&a, 0, 0, event(1), false),
            (&a, 2, 0, Content::Claim, false),
            (&a, 1, 0, Content::Claim, true),
            (&b, 1, 0, Content::Claim, false),
            (&a, 1, 1, event(2), true),
            (&b, 1, 2, event(3), false),
            (&again, 1, 2, event(4), false),
            (&a, 1, 2, event(5), true),
            (&a, 1, 2, event(6), false),
            (&b, 2, 0, Content::Claim, true),
            (&a, 1, 3, event(7), false),
            (&b, 2, 2, event(8), false),
            (&b, 2, 1, event(9), true),
            (&b, 2, 3, event(10), false),
            (&b, 2, 4, event(11), false),
            (&b, 3, 0, Content::Claim, true),
            (&b, 3, 1, event(12), true),
        ] {
            let counted = read(&mut membership, &header(by, epoch, nth), &content).unwrap();
            assert_eq!(counted != RecordOutcome::Nothing, counts, "{content:?} by {by:?} in {epoch}, {nth}");
        }
    }

    #[test]
    fn an_invalid_log_is_refused_and_records_of_other_clusters_are_ignored() {
        let a = run("a", 1);
        let mut membership = new(4);
        let foreign = Header { cluster: ClusterId(8), ..header(&a, 0, 0) };
        assert_eq!(read(&mut membership, &foreign, &Content::Claim), Ok(RecordOutcome::Nothing));
        read(&mut membership, &header(&a, 1, 0), &Content::Claim).unwrap();
        read(&mut membership, &header(&a, 2, 0), &Content::Claim).unwrap();
        let before = membership.clone();
        assert_eq!(
            membership.read(Sequence(9), &header(&a, 1, 1), decode_content(b"\xc1")),
            Ok(RecordOutcome::Nothing),
            "of an old epoch"
        );
        assert!(matches!(
            membership.read(Sequence(9), &header(&a, 2, 1), decode_content(b"\xc1")),
            Err(ReadError::Record(_))
        ));
        assert_eq!(membership, before);
        let bytes = encode(&header(&a, 1, 0), &Content::Claim);
        let (header, content) = decode_header(&bytes).unwrap();
        assert_eq!(Membership::founded(&header, content), Err(ReadError::NotFounded));
    }

    #[test]
    fn a_leaving_member_moves_only_its_own_partitions_and_shares_stay_balanced() {
        let members = |names: &[&str]| {
            let mut membership = new(PARTITIONS);
            let a = run("a", 1);
            let list = names.iter().map(|name| Member { run: run(name, 1), address: format!("http://{name}") });
            read(&mut membership, &header(&a, 1, 0), &Content::Claim).unwrap();
            read(&mut membership, &header(&a, 1, 1), &Content::Members { members: list.collect(), as_of: Sequence(0) })
                .unwrap();
            membership
        };
        let (three, two) = (members(&["a", "b", "c"]), members(&["a", "c"]));
        let mut owned = BTreeMap::<&str, u32>::new();
        for partition in 0..PARTITIONS {
            let (before, after) = (three.owner(partition).unwrap(), two.owner(partition).unwrap());
            assert!(before == after || before.run.node.as_str() == "b", "{partition}");
            *owned.entry(before.run.node.as_str()).or_default() += 1;
        }
        assert!(owned.values().all(|count| (60..110).contains(count)), "{owned:?}");
        assert_eq!(new(4).owner(0), None);
    }

    #[test]
    fn a_member_with_a_newer_heartbeat_than_the_sequencer_has_read_is_not_removed() {
        let (a, b) = (run("a", 1), run("b", 1));
        let member = |run: &Incarnation| Member { run: run.clone(), address: String::new() };
        let members = |list: &[&Incarnation], as_of| Content::Members {
            members: list.iter().map(|run| member(run)).collect(),
            as_of: Sequence(as_of),
        };
        let heartbeat = |is_ready| Content::Heartbeat(Heartbeat { address: String::new(), is_ready, behind_ms: 0 });
        let counted_beat = |is_ready| RecordOutcome::Heartbeat { address: String::new(), is_ready, behind_ms: 0 };
        let mut membership = new(4);
        for (at, by, epoch, nth, content, counted) in [
            (2, &a, 1, 0, Content::Claim, RecordOutcome::Claimed),
            (3, &a, 1, 1, members(&[&a, &b], 0), RecordOutcome::Members),
            (4, &b, 0, 7, heartbeat(true), counted_beat(true)),
            (5, &a, 1, 2, members(&[&a], 3), RecordOutcome::Nothing),
            (6, &a, 1, 3, members(&[&a], 4), RecordOutcome::Members),
            (7, &a, 1, 4, members(&[&a, &b], 4), RecordOutcome::Members),
            (8, &a, 1, 5, members(&[&a], 6), RecordOutcome::Nothing),
            (9, &b, 0, 0, Content::Leave, RecordOutcome::Left),
            (10, &a, 1, 6, members(&[&a], 6), RecordOutcome::Members),
            // A node that has given up its lease reports that in each heartbeat.
            (11, &a, 1, 7, members(&[&a, &b], 10), RecordOutcome::Members),
            (12, &b, 0, 8, heartbeat(false), counted_beat(false)),
            (13, &a, 1, 8, members(&[&a], 11), RecordOutcome::Members),
        ] {
            assert_eq!(read_at(&mut membership, at, &header(by, epoch, nth), &content), Ok(counted), "at {at}");
        }
        assert!(membership.is_member(&a) && !membership.is_member(&b));
    }

    #[test]
    fn the_partition_of_a_reader_never_changes() {
        let membership = new(PARTITIONS);
        let partitions = ["alice", "bob", "carol"].map(|id| membership.partition(&SourceId::new(id).unwrap()));
        assert_eq!(partitions, [176, 229, 164]);
    }
}
