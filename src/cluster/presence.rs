//! What a node has to append to the log so that the cluster goes on, and how long it may answer for its readers.
//!
//! Responsible for:
//! - beats, by which others see that a node lives; claims, when the sequencer is silent; changes of the members, if this node is the sequencer;
//! - the lease: until when this node may answer for the readers that it owns.
//!
//! Not responsible for:
//! - which records count (`cluster::membership`), reading a clock: callers pass the time since the start of the process.
//!
//! A member is removed when the sequencer has read no beat of it for a session. A node may answer for its readers until nine tenths of a
//! session have passed since it sent the last beat that it has read back. The sequencer read that beat later than it was sent, and the
//! removal has no effect if the log has a newer one. So the lease of a node that is cut off ends before its readers have another owner, if
//! the clocks of both run at the same rate, to a tenth. A node that is alive loses readers to one that joins when it reads this in the log,
//! and until then answers from a state that is older by just that.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::cluster::membership::{Counted, Membership, rank};
use crate::cluster::record::{Content, Header, Member, NodeRun};
use crate::storage::journal::Sequence;

/// Number of beats in a session.
const BEATS_PER_SESSION: u32 = 12;

/// Maximum number of beats whose time is remembered until they are read back. While the log does not answer, the oldest are forgotten.
const BEATS_UNDER_WAY_MAX: usize = 64;

/// What this node knows about the life of the others and of itself.
#[derive(Debug)]
pub struct Presence {
    me: NodeRun,
    address: String,
    /// Time after which a silent node counts as dead.
    session: Duration,
    started: Duration,
    heard: BTreeMap<NodeRun, Heard>,
    /// The number and the time of each own beat that was not read back yet.
    under_way: VecDeque<(u64, Duration)>,
    next_beat: u64,
    last_beat: Option<Duration>,
    /// The time at which the last own beat that was read back was sent.
    confirmed: Option<Duration>,
    last_claim: Option<Duration>,
    /// Another process with the same name, and the time at which a beat of it was last read, behind a beat of this one.
    namesake: Option<(NodeRun, Duration)>,
    is_ready: bool,
}

#[derive(Debug)]
struct Heard {
    at: Duration,
    address: String,
    is_ready: bool,
    has_left: bool,
}

/// Something to append to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Duty {
    /// A record without a place in an epoch, with this number.
    Beat(u64, Content),
    /// A claim of the epoch after the current one.
    Claim,
    /// A record of the sequencer.
    AsSequencer(Content),
}

impl Presence {
    /// Creates the presence of a process that starts `now`.
    pub fn new(me: NodeRun, address: String, session: Duration, now: Duration) -> Self {
        Self {
            me,
            address,
            session,
            started: now,
            heard: BTreeMap::new(),
            under_way: VecDeque::new(),
            next_beat: 0,
            last_beat: None,
            confirmed: None,
            last_claim: None,
            namesake: None,
            is_ready: false,
        }
    }

    /// Records that this node has read all records that were in the log when it started.
    pub fn set_ready(&mut self) {
        self.is_ready = true;
    }

    /// Takes note of a record that was read `now`.
    pub fn note(&mut self, now: Duration, header: &Header, counted: &Counted) {
        match counted {
            Counted::Beat { address, is_ready } => {
                if header.by == self.me {
                    self.confirm(header.nth);
                } else if header.by.node == self.me.node && self.confirmed.is_some() {
                    self.namesake = Some((header.by.clone(), now));
                }
                let heard = Heard { at: now, address: address.clone(), is_ready: *is_ready, has_left: false };
                self.heard.insert(header.by.clone(), heard);
                self.heard.retain(|_, heard| now.saturating_sub(heard.at) <= 2 * self.session);
            }
            Counted::Left => {
                self.heard.entry(header.by.clone()).and_modify(|heard| heard.has_left = true);
            }
            Counted::Claimed => self.last_claim = None,
            Counted::Event(_) | Counted::Members | Counted::Nothing => {}
        }
    }

    fn confirm(&mut self, beat: u64) {
        while let Some((nth, sent)) = self.under_way.front().copied()
            && nth <= beat
        {
            self.under_way.pop_front();
            self.confirmed = Some(sent);
        }
    }

    /// Returns what to append now, after the records up to `as_of` were read.
    pub fn duties(&mut self, now: Duration, membership: &Membership, as_of: Sequence) -> Vec<Duty> {
        let mut duties = Vec::new();
        let is_due = self.last_beat.is_none_or(|last| now.saturating_sub(last) >= self.session / BEATS_PER_SESSION);
        if is_due {
            if self.under_way.len() == BEATS_UNDER_WAY_MAX {
                self.under_way.pop_front();
            }
            duties.push(Duty::Beat(
                self.next_beat,
                Content::Beat { address: self.address.clone(), is_ready: self.is_ready },
            ));
            self.under_way.push_back((self.next_beat, now));
            (self.next_beat, self.last_beat) = (self.next_beat + 1, Some(now));
        }
        if membership.sequencer() == Some(&self.me) {
            // Without a lease this node cannot know who is silent: it may be itself that does not hear.
            let may_change = is_due && self.lease_until().is_some_and(|until| now < until);
            let changed = may_change.then(|| self.changed_members(now, membership)).flatten();
            duties.extend(changed.map(|members| Duty::AsSequencer(Content::Members { members, as_of })));
        } else if self.may_claim(now, membership) {
            self.last_claim = Some(now);
            duties.push(Duty::Claim);
        }
        duties
    }

    /// Returns the members if they must change: those that were heard within the session, and have read the log. A name belongs to the
    /// process that has it until that one is silent.
    fn changed_members(&self, now: Duration, membership: &Membership) -> Option<Vec<Member>> {
        let mut members = BTreeMap::new();
        for member in membership.members().filter(|member| self.lives(now, &member.run)) {
            members.insert(member.run.node.clone(), member.clone());
        }
        for (run, heard) in &self.heard {
            if heard.is_ready && self.lives(now, run) {
                let member = || Member { run: run.clone(), address: heard.address.clone() };
                members.entry(run.node.clone()).or_insert_with(member);
            }
        }
        let members: Vec<Member> = members.into_values().collect();
        if members.iter().eq(membership.members()) { None } else { Some(members) }
    }

    /// Returns true if a process was heard within the session. Before a session has passed since the start, all count as heard.
    fn lives(&self, now: Duration, run: &NodeRun) -> bool {
        match self.heard.get(run) {
            Some(heard) => !heard.has_left && now.saturating_sub(heard.at) <= self.session,
            None => now.saturating_sub(self.started) <= self.session,
        }
    }

    /// Returns true if this node should become the sequencer: there is none, or it is silent, while the log answers. The first in an order
    /// that changes with each epoch goes ahead; the others follow if it does not.
    fn may_claim(&self, now: Duration, membership: &Membership) -> bool {
        let is_heard = self.confirmed.is_some_and(|sent| now.saturating_sub(sent) <= self.session / 2);
        let waits = self.last_claim.is_some_and(|at| now.saturating_sub(at) <= self.session / 2);
        let is_needed = membership.sequencer().is_none_or(|sequencer| !self.lives(now, sequencer));
        if !self.is_ready || !is_heard || waits || !is_needed {
            return false;
        }
        let epoch = membership.epoch().next().0;
        let candidates = self.heard.iter().filter(|(run, heard)| heard.is_ready && self.lives(now, run));
        let first = candidates.map(|(run, _)| run).max_by_key(|run| (rank(&run.node, epoch), *run));
        let silent_since =
            membership.sequencer().and_then(|run| self.heard.get(run)).map_or(self.started, |heard| heard.at);
        first == Some(&self.me) || now.saturating_sub(silent_since) > 2 * self.session
    }

    /// Returns true if this process must give up its name: another one with this name has written a beat after this one's, is not silent,
    /// and is a member. If neither is, one of the two gives up.
    pub fn must_give_up_name(&self, now: Duration, membership: &Membership) -> bool {
        let Some((namesake, at)) = &self.namesake else { return false };
        let lives = now.saturating_sub(*at) <= self.session;
        lives && !membership.is_member(&self.me) && (membership.is_member(namesake) || self.me.run < namesake.run)
    }

    /// Returns the time until which this node may answer for the readers that it owns: none before the log has confirmed a beat.
    pub fn lease_until(&self) -> Option<Duration> {
        self.confirmed.map(|sent| sent + self.session / 10 * 9)
    }
}

#[cfg(test)]
mod tests;
