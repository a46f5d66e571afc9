//! The failure detector of a cluster: determines the records that a node has to append so that the cluster continues to
//! work, and the time for which the node may answer for its readers.
//!
//! Responsible for:
//! - heartbeats, which show other nodes that a node is alive; claims, when the sequencer is silent; changes of the
//!   members, if this node is the sequencer;
//! - the lease: the time until which this node may answer for the readers that it owns.
//!
//! The sequencer removes a member if it has read no heartbeat of it for a session (the member timeout). A node may
//! answer for its readers for nine tenths of a session after it sent the last heartbeat that it has read back. The
//! sequencer read that heartbeat later than it was sent, and the removal has no effect if the log has a newer one. So
//! the lease of a node that is cut off ends before its readers have another owner, if the clocks of both run at the
//! same rate, to a tenth.
//!
//! A living node loses readers to a joining one when it reads this in the log, and until then answers from an older
//! state. A client with a live connection to the new owner must not get such a page. So it requests a page after a
//! record that the new owner had begun to apply, which is not before the one that moved the reader.
//!
//! Each heartbeat reports how far its node is behind. While a member is behind the sequencer by more than a third of a
//! session, publishing waits. A member that is behind by more than a session gives up its lease, reports that, and is
//! removed, so that publishing does not wait for it for long. It becomes a member again when it has caught up.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::cluster::membership::{Membership, RecordOutcome, rank};
use crate::cluster::record::{Content, Header, Heartbeat, Incarnation, Member};
use crate::storage::sequence::Sequence;

/// Part of a session (one in this many) by which a member may be behind the sequencer. Beyond it, publishing must wait.
const BEHIND_MAX: u32 = 3;

/// Number of heartbeats in a session.
pub(super) const BEATS_PER_SESSION: u32 = 12;

/// Maximum number of sent heartbeats that are remembered until they are read back. While the log does not answer, the
/// oldest are dropped.
const BEATS_UNDER_WAY_MAX: usize = 64;

/// The state of the other nodes and of this node, according to the log.
#[derive(Debug)]
pub struct FailureDetector {
    me: Incarnation,
    address: String,
    /// Time after which a silent node counts as dead.
    session: Duration,
    started: Duration,
    heard: BTreeMap<Incarnation, Heard>,
    /// The own heartbeats that were not read back yet.
    under_way: VecDeque<UnderWay>,
    next_beat: u64,
    last_beat: Option<Duration>,
    /// The time at which this node sent the newest of its heartbeats that it has read back.
    heard_at: Option<Duration>,
    /// The same for the newest heartbeat that gives this node a lease.
    confirmed: Option<Duration>,
    last_claim: Option<Duration>,
    /// Another process with the same name, and the time at which its last heartbeat was read. That heartbeat came after
    /// one of this process.
    namesake: Option<(Incarnation, Duration)>,
    is_ready: bool,
    has_left: bool,
    /// True once this node has written the removal of a leaving member. If the removal had no effect, it is written
    /// again with a heartbeat.
    removes_one: bool,
}

/// An own heartbeat that was sent.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    nth: u64,
    sent: Duration,
    /// True if this node may answer for its readers after it has read the heartbeat back.
    confirms: bool,
}

#[derive(Debug)]
struct Heard {
    at: Duration,
    address: String,
    is_ready: bool,
    has_left: bool,
    /// Upper bounds of the time by which it was behind, according to its last heartbeat and the one before.
    behind: [Duration; 2],
}

/// A record to append to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A heartbeat, which belongs to no epoch, with this number.
    Heartbeat(u64, Content),
    /// A claim of the epoch after the current one.
    Claim,
    /// A record of the sequencer.
    AsSequencer(Content),
}

impl FailureDetector {
    /// Creates the failure detector of a process that starts `now`.
    pub fn new(me: Incarnation, address: String, session: Duration, now: Duration) -> Self {
        Self {
            me,
            address,
            session,
            started: now,
            heard: BTreeMap::new(),
            under_way: VecDeque::new(),
            next_beat: 0,
            last_beat: None,
            heard_at: None,
            confirmed: None,
            last_claim: None,
            namesake: None,
            is_ready: false,
            has_left: false,
            removes_one: false,
        }
    }

    /// Records that this node has read all records that were in the log when it started.
    pub fn set_ready(&mut self) {
        self.is_ready = true;
    }

    /// Ends all actions of this node: a heartbeat after it has left would make it count as alive again.
    pub fn leave(&mut self) {
        self.has_left = true;
    }

    /// Returns true if another node is alive and could take over from this one.
    pub fn has_company(&self, now: Duration) -> bool {
        self.heard.iter().any(|(run, heard)| *run != self.me && heard.is_ready && self.lives(now, run))
    }

    /// Returns true if this node has left.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Processes a record that was read `now`.
    pub fn note(&mut self, now: Duration, header: &Header, counted: &RecordOutcome, membership: &Membership) {
        match counted {
            RecordOutcome::Heartbeat { address, is_ready, behind_ms } => {
                if header.by == self.me {
                    self.confirm(header.nth);
                } else if header.by.node == self.me.node && self.heard_at.is_some() {
                    self.namesake = Some((header.by.clone(), now));
                }
                // Heartbeats that arrive together were delayed: the node sent them before it could catch up.
                let apart = self.session / BEATS_PER_SESSION / 2;
                let before = self
                    .heard
                    .get(&header.by)
                    .map_or(Duration::ZERO, |heard| heard.behind[usize::from(now.saturating_sub(heard.at) < apart)]);
                let behind = [Duration::from_millis(*behind_ms), before];
                let heard = Heard { at: now, address: address.clone(), is_ready: *is_ready, has_left: false, behind };
                self.heard.insert(header.by.clone(), heard);
                self.heard.retain(|_, heard| now.saturating_sub(heard.at) <= 2 * self.session);
            }
            RecordOutcome::Left => {
                self.heard.entry(header.by.clone()).and_modify(|heard| heard.has_left = true);
            }
            RecordOutcome::Claimed => {
                self.last_claim = None;
                for (run, heard) in &mut self.heard {
                    // Without a sequencer or a log, all nodes were behind. So members start afresh. Any other node must
                    // have reported in both of its last heartbeats that it has caught up, or reports it in the next
                    // one.
                    let is_excused = membership.is_member(run) || *run == self.me;
                    heard.behind = [if is_excused { Duration::ZERO } else { heard.behind[0].max(heard.behind[1]) }; 2];
                }
            }
            RecordOutcome::Event(_) | RecordOutcome::OwnEvent | RecordOutcome::Members | RecordOutcome::Nothing => {}
        }
    }

    fn confirm(&mut self, heartbeat: u64) {
        while let Some(UnderWay { nth, sent, confirms }) = self.under_way.front().copied()
            && nth <= heartbeat
        {
            self.under_way.pop_front();
            self.heard_at = Some(sent);
            self.confirmed = if confirms { Some(sent) } else { self.confirmed };
        }
    }

    /// Returns the next heartbeat. If this node is more than a session behind, the heartbeat reports that it is not
    /// ready, so that it may be removed. From then on, only a later heartbeat that reports it as ready gives it a
    /// lease: if the node was removed, it reads the removal before it reads that heartbeat.
    fn heartbeat(&mut self, now: Duration) -> Action {
        if self.under_way.len() == BEATS_UNDER_WAY_MAX {
            self.under_way.pop_front();
        }
        let behind = now.saturating_sub(self.heard_at.unwrap_or(self.started));
        let is_ready = self.is_ready && behind <= self.session;
        if !is_ready {
            self.under_way.iter_mut().for_each(|under_way| under_way.confirms = false);
        }
        let nth = self.next_beat;
        self.under_way.push_back(UnderWay { nth, sent: now, confirms: is_ready });
        (self.next_beat, self.last_beat) = (nth + 1, Some(now));
        let behind_ms = u64::try_from(behind.as_millis()).unwrap_or(u64::MAX);
        Action::Heartbeat(nth, Content::Heartbeat(Heartbeat { address: self.address.clone(), is_ready, behind_ms }))
    }

    /// Returns the records to append now, after the records up to `as_of` were read.
    pub fn actions(&mut self, now: Duration, membership: &Membership, as_of: Sequence) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.has_left {
            return actions;
        }
        let is_due = self.last_beat.is_none_or(|last| now.saturating_sub(last) >= self.session / BEATS_PER_SESSION);
        if is_due {
            actions.push(self.heartbeat(now));
        }
        if membership.sequencer() == Some(&self.me) {
            // Without a lease this node cannot know which nodes are silent: it may itself be cut off.
            let has_lease = self.lease_until().is_some_and(|until| now < until);
            // Readers of a node that leaves in order get their new owners at once.
            let one_leaves = membership.members().any(|member| membership.is_leaving(&member.run));
            let may_change = has_lease && (is_due || (one_leaves && !self.removes_one));
            let changed = may_change.then(|| self.changed_members(now, membership)).flatten();
            self.removes_one = one_leaves && (self.removes_one || changed.is_some());
            actions.extend(changed.map(|members| Action::AsSequencer(Content::Members { members, as_of })));
        } else if self.may_claim(now, membership) {
            self.last_claim = Some(now);
            actions.push(Action::Claim);
        }
        actions
    }

    /// Returns the members if they must change: the processes that are alive, have read the log and follow it. A name
    /// belongs to its process until that process is silent.
    fn changed_members(&self, now: Duration, membership: &Membership) -> Option<Vec<Member>> {
        let mut members = BTreeMap::new();
        let stays = |member: &&Member| {
            !membership.is_leaving(&member.run) && self.lives(now, &member.run) && !self.has_given_up(&member.run)
        };
        for member in membership.members().filter(stays) {
            members.insert(member.run.node.clone(), member.clone());
        }
        for (run, heard) in &self.heard {
            if heard.is_ready && self.lives(now, run) && self.lag(run) <= self.session / BEHIND_MAX {
                let member = || Member { run: run.clone(), address: heard.address.clone() };
                members.entry(run.node.clone()).or_insert_with(member);
            }
        }
        let members: Vec<Member> = members.into_values().collect();
        if members.iter().eq(membership.members()) { None } else { Some(members) }
    }

    /// Returns the time by which a node is further behind than this one, according to both of its last heartbeats: a
    /// single one may follow a pause.
    fn lag(&self, run: &Incarnation) -> Duration {
        let behind = |run| self.heard.get(run).map_or(Duration::ZERO, |heard| heard.behind[0].min(heard.behind[1]));
        behind(run).saturating_sub(behind(&self.me))
    }

    /// Returns true if a node is so far behind that it does not answer its readers.
    fn has_given_up(&self, run: &Incarnation) -> bool {
        self.heard.get(run).is_some_and(|heard| !heard.is_ready) && self.lag(run) > self.session
    }

    /// Returns true if a member is so far behind that it would fall back further if more were published.
    pub fn outruns_members(&self, membership: &Membership) -> bool {
        membership.members().any(|member| self.lag(&member.run) > self.session / BEHIND_MAX)
    }

    /// Returns true if a heartbeat of a process was read within the session. During the first session after the start,
    /// processes without a heartbeat count as alive.
    fn lives(&self, now: Duration, run: &Incarnation) -> bool {
        match self.heard.get(run) {
            Some(heard) => !heard.has_left && now.saturating_sub(heard.at) <= self.session,
            None => now.saturating_sub(self.started) <= self.session,
        }
    }

    /// Returns true if this node should become the sequencer: the log answers, and there is no sequencer, or it is
    /// silent or has given up. The first node in an order that changes with each epoch claims first; the others follow
    /// if it does not.
    fn may_claim(&self, now: Duration, membership: &Membership) -> bool {
        let is_heard = self.heard_at.is_some_and(|sent| now.saturating_sub(sent) <= self.session / 2);
        let waits = self.last_claim.is_some_and(|at| now.saturating_sub(at) <= self.session / 2);
        // From the membership, since this process may have started after the sequencer left.
        let has_left = |run: &Incarnation| membership.is_leaving(run);
        let is_lost = |run: &Incarnation| has_left(run) || !self.lives(now, run) || self.has_given_up(run);
        let is_needed = membership.sequencer().is_none_or(is_lost);
        if !self.is_ready || !is_heard || waits || !is_needed {
            return false;
        }
        let epoch = membership.epoch().next().0;
        let candidates = self.heard.iter().filter(|(run, heard)| heard.is_ready && self.lives(now, run));
        // Members first: other nodes become members only after the claim.
        let key = |run: &&Incarnation| (membership.is_member(run), rank(&run.node, epoch), (*run).clone());
        let first = candidates.map(|(run, _)| run).max_by_key(key);
        let silent_since =
            membership.sequencer().and_then(|run| self.heard.get(run)).map_or(self.started, |heard| heard.at);
        first == Some(&self.me) || now.saturating_sub(silent_since) > 2 * self.session
    }

    /// Returns true if this process must give up its name: another process with this name has written a heartbeat after
    /// one of this process, is not silent, and is a member. If neither is a member, one of the two gives up.
    pub fn must_give_up_name(&self, now: Duration, membership: &Membership) -> bool {
        let Some((namesake, at)) = &self.namesake else { return false };
        let lives = now.saturating_sub(*at) <= self.session;
        lives && !membership.is_member(&self.me) && (membership.is_member(namesake) || self.me.run < namesake.run)
    }

    /// Returns the processes whose heartbeats were read lately, each with the time of the last one, in the order of the
    /// processes.
    pub fn heard(&self) -> impl Iterator<Item = (&Incarnation, Duration)> {
        self.heard.iter().map(|(run, heard)| (run, heard.at))
    }

    /// Returns the time at which this node sent the newest of its heartbeats that it has read back.
    pub fn heard_at(&self) -> Option<Duration> {
        self.heard_at
    }

    /// Returns the time until which this node may answer for the readers that it owns. None before the log has
    /// confirmed a heartbeat.
    pub fn lease_until(&self) -> Option<Duration> {
        self.confirmed.map(|sent| sent + self.session / 10 * 9)
    }
}

#[cfg(test)]
mod tests;
