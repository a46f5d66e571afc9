//! The fan-out schedule: the order in which the slices of fan-out jobs are processed.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::feed::slice_queue::{BySize, JobSize};
use crate::id::SourceSlot;

/// The id of a job: a post or an invalidation that is being fanned out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct JobId(u64);

/// The recipients of a part of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FanoutRoute {
    /// The awake followers of a source: the post is added to their inboxes.
    Inboxes(SourceSlot),
    /// The watched readers that follow a source or have retained posts of it, and the source itself if watched.
    Watched(SourceSlot),
    /// The source itself and the readers that have retained posts of it, if watched.
    Affected(SourceSlot),
    /// One reader, if it is watched.
    Reader(SourceSlot),
    /// All watched readers.
    AllWatched,
}

impl FanoutRoute {
    /// Returns the source of the route; [`SourceSlot::NONE`] for [`Self::AllWatched`].
    pub fn source(self) -> SourceSlot {
        match self {
            Self::Inboxes(source) | Self::Watched(source) | Self::Affected(source) | Self::Reader(source) => source,
            Self::AllWatched => SourceSlot::NONE,
        }
    }

    /// Returns the source if the post is added to the inboxes of its followers.
    pub fn into_inboxes(self) -> Option<SourceSlot> {
        if let Self::Inboxes(source) = self { Some(source) } else { None }
    }
}

#[derive(Debug)]
struct Job<M, T> {
    payload: M,
    fanout_routes: Box<[FanoutRoute]>,
    size: JobSize,
    /// The number of shards that have not received all of it.
    shards_left: usize,
    /// Returned to the caller when everything is delivered.
    token: T,
}

/// The progress of a job in one shard. It is copied into every slice, and updated when the slice is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The id of the job.
    pub job: JobId,
    /// The index of the current route.
    nth_route: usize,
    /// The number within the shard of the reader to continue with.
    pub from: u32,
}

/// The next slice to cut for a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextSlice<M> {
    /// The progress of the job.
    pub progress: Progress,
    /// The post or invalidation that is fanned out.
    pub payload: M,
    /// The size of the job.
    pub size: JobSize,
    /// The recipients of the slice.
    pub fanout_route: FanoutRoute,
}

/// The place at which a slice of a job was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All readers of this route in this shard were scanned.
    RouteDone,
    /// Continue with this reader.
    Resume(u32),
}

/// The unfinished part of one job in one shard.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// The number of slices that are cut and not yet confirmed.
    in_flight: u32,
    /// True if no more slices will be cut.
    all_cut: bool,
}

/// Returns the source in whose lane a job is scheduled: that of its first route, which is a post's author unless the author is pulled.
fn lane_of(fanout_routes: &[FanoutRoute]) -> SourceSlot {
    fanout_routes[0].source()
}

#[derive(Debug, Default)]
struct Shard {
    /// The sources with slices left to cut, by the size of the job that is being cut. The first one is next; after its slice it moves to
    /// the end.
    order: BySize<VecDeque<SourceSlot>>,
    /// The jobs of each of these sources, the one being cut first.
    lanes: FxHashMap<SourceSlot, VecDeque<Progress>>,
    open: FxHashMap<JobId, Open>,
    in_flight: BySize<InFlight>,
}

/// The slices of jobs of one size that a shard has received and not yet confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InFlight {
    /// The number of slices.
    pub slices: usize,
    /// The total number of their recipients.
    pub recipients: usize,
}

/// A schedule of jobs with payload `M`. `T` is a token of each job that is returned when the job is delivered.
#[derive(Debug)]
pub struct Schedule<M, T> {
    jobs: FxHashMap<JobId, Job<M, T>>,
    shards: Vec<Shard>,
    in_flight_max: InFlight,
    next_id: u64,
}

impl<M: Copy, T> Schedule<M, T> {
    /// Creates a schedule for `shards` shards. A shard gets slices of small jobs until it has `in_flight_max` of these slices or of their
    /// recipients in flight, and as many of large jobs.
    pub fn new(shards: usize, in_flight_max: InFlight) -> Self {
        let shards = (0..shards).map(|_| Shard::default()).collect();
        Self { jobs: FxHashMap::default(), shards, in_flight_max, next_id: 0 }
    }

    /// Returns the number of unfinished jobs.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the slices and recipients of jobs of this size that `shard` has in flight.
    pub fn in_flight(&self, shard: usize, size: JobSize) -> InFlight {
        self.shards[shard].in_flight[size]
    }

    /// Adds a job in each shard for which `reaches` returns true, that is, where its routes have any recipient. Returns the token at once
    /// if there is no such shard.
    pub fn add(
        &mut self,
        payload: M,
        fanout_routes: Box<[FanoutRoute]>,
        size: JobSize,
        token: T,
        reaches: impl Fn(usize) -> bool,
    ) -> Option<T> {
        let job = JobId(self.next_id);
        self.next_id += 1;
        let mut shards_left = 0;
        for (_, shard) in self.shards.iter_mut().enumerate().filter(|(nth, _)| reaches(*nth)) {
            let lane = lane_of(&fanout_routes);
            let jobs = shard.lanes.entry(lane).or_default();
            if jobs.is_empty() {
                shard.order[size].push_back(lane);
            }
            jobs.push_back(Progress { job, nth_route: 0, from: 0 });
            shard.open.insert(job, Open::default());
            shards_left += 1;
        }
        if shards_left == 0 {
            return Some(token);
        }
        self.jobs.insert(job, Job { payload, fanout_routes, size, shards_left, token });
        None
    }

    /// Returns the next slice to cut for `shard`, if it may receive another one: of a small job, if there is any and small jobs have credit. The
    /// caller cuts the slice and calls [`Schedule::cut`] before it calls this again.
    pub fn next_slice(&mut self, shard: usize) -> Option<NextSlice<M>> {
        let (of, max) = (&mut self.shards[shard], self.in_flight_max);
        let lane = JobSize::ALL.into_iter().find_map(|size| {
            let in_flight = of.in_flight[size];
            let has_credit = in_flight.slices < max.slices && in_flight.recipients < max.recipients;
            if has_credit { of.order[size].pop_front() } else { None }
        })?;
        let progress = of.lanes.get_mut(&lane)?.pop_front()?;
        let job = &self.jobs[&progress.job];
        let fanout_route = job.fanout_routes[progress.nth_route];
        Some(NextSlice { progress, payload: job.payload, size: job.size, fanout_route })
    }

    /// Records the place where the slice was cut, and its number of recipients, which [`Schedule::delivered`] must then confirm. Returns
    /// the token if the job is complete.
    pub fn cut(&mut self, shard: usize, progress: Progress, cut: Cut, recipients: usize) -> Option<T> {
        let next = match cut {
            Cut::Resume(from) => Progress { from, ..progress },
            Cut::RouteDone => Progress { nth_route: progress.nth_route + 1, from: 0, ..progress },
        };
        let Job { fanout_routes, size, .. } = &self.jobs[&progress.job];
        let (lane, all_cut) = (lane_of(fanout_routes), next.nth_route == fanout_routes.len());
        let of = &mut self.shards[shard];
        let jobs = of.lanes.get_mut(&lane)?;
        if !all_cut {
            jobs.push_front(next);
        }
        match jobs.front() {
            Some(first) => of.order[self.jobs[&first.job].size].push_back(lane),
            None => drop(of.lanes.remove(&lane)),
        }
        let open = of.open.get_mut(&progress.job)?;
        open.all_cut = all_cut;
        if recipients > 0 {
            open.in_flight += 1;
            of.in_flight[*size].slices += 1;
            of.in_flight[*size].recipients += recipients;
        }
        self.close_if_done(shard, progress.job)
    }

    /// Returns the token of a job that is not complete.
    pub fn token_mut(&mut self, job: JobId) -> Option<&mut T> {
        self.jobs.get_mut(&job).map(|job| &mut job.token)
    }

    /// Records that the recipients of a slice have received it. Returns the token if the job is complete.
    pub fn delivered(&mut self, shard: usize, job: JobId, recipients: usize) -> Option<T> {
        let (of, size) = (&mut self.shards[shard], self.jobs.get(&job)?.size);
        of.open.get_mut(&job)?.in_flight -= 1;
        of.in_flight[size].slices -= 1;
        of.in_flight[size].recipients -= recipients;
        self.close_if_done(shard, job)
    }

    fn close_if_done(&mut self, shard: usize, job: JobId) -> Option<T> {
        let of = &mut self.shards[shard];
        let open = of.open.get(&job)?;
        if !open.all_cut || open.in_flight > 0 {
            return None;
        }
        of.open.remove(&job);
        let shards_left = &mut self.jobs.get_mut(&job)?.shards_left;
        *shards_left -= 1;
        if *shards_left > 0 {
            return None;
        }
        self.jobs.remove(&job).map(|job| job.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;

    fn slices(slices: usize) -> InFlight {
        InFlight { slices, recipients: usize::MAX }
    }

    fn followers_of(slot: u32) -> Box<[FanoutRoute]> {
        [FanoutRoute::Inboxes(SourceSlot(slot))].into()
    }

    #[test]
    fn a_huge_author_alternates_with_other_large_ones() {
        let mut schedule = Schedule::new(1, slices(100));
        schedule.add(at(1, 1), followers_of(1), JobSize::Large, "huge", |_| true);
        let mut served = Vec::new();
        for round in 0..6 {
            if round == 2 {
                schedule.add(at(2, 2), followers_of(2), JobSize::Large, "large", |_| true);
            }
            let turn = schedule.next_slice(0).unwrap();
            served.push(turn.fanout_route.source().0);
            let cut =
                if turn.fanout_route.source().0 == 1 { Cut::Resume(turn.progress.from + 1) } else { Cut::RouteDone };
            schedule.cut(0, turn.progress, cut, 9);
        }
        assert_eq!(served, [1, 1, 1, 2, 1, 1]);
    }

    #[test]
    fn many_posts_of_one_author_share_the_turns_of_one_source() {
        let mut schedule = Schedule::new(1, slices(100));
        for id in 0..50 {
            schedule.add(at(1, id), followers_of(1), JobSize::Large, "huge", |_| true);
        }
        schedule.add(at(2, 99), followers_of(2), JobSize::Large, "large", |_| true);
        let mut served = Vec::new();
        for _ in 0..5 {
            let turn = schedule.next_slice(0).unwrap();
            served.push(turn.payload.id.0);
            let cut =
                if turn.fanout_route.source().0 == 1 && served.len() < 4 { Cut::Resume(1) } else { Cut::RouteDone };
            schedule.cut(0, turn.progress, cut, 9);
        }
        assert_eq!(served, [0, 99, 0, 0, 1], "its posts in their order, and the other after one slice of them");
    }

    #[test]
    fn small_jobs_have_their_own_credit_and_run_first() {
        let mut schedule = Schedule::new(1, InFlight { slices: 9, recipients: 1_000 });
        let serve = |schedule: &mut Schedule<_, _>, recipients| {
            let turn = schedule.next_slice(0)?;
            schedule.cut(0, turn.progress, Cut::Resume(1), recipients);
            Some(turn.fanout_route.source().0)
        };
        schedule.add(at(1, 1), followers_of(1), JobSize::Large, (), |_| true);
        let without_small = [500, 500, 500].map(|recipients| serve(&mut schedule, recipients));
        assert_eq!(without_small, [Some(1), Some(1), None], "a large job uses up its credit");
        schedule.add(at(2, 2), followers_of(2), JobSize::Small, (), |_| true);
        schedule.add(at(3, 3), followers_of(3), JobSize::Small, (), |_| true);
        let beside = [400, 400, 400, 400].map(|recipients| serve(&mut schedule, recipients));
        assert_eq!(
            beside,
            [Some(2), Some(3), Some(2), None],
            "small jobs take turns and have no more credit than large ones"
        );
        schedule.delivered(0, JobId(0), 500);
        assert_eq!(serve(&mut schedule, 500), Some(1), "small jobs without credit do not hold up a large one");
        schedule.delivered(0, JobId(0), 500);
        schedule.delivered(0, JobId(1), 400);
        assert_eq!(serve(&mut schedule, 50), Some(3), "a small job goes first");
        assert_eq!(schedule.in_flight(0, JobSize::Large), InFlight { slices: 1, recipients: 500 });
        assert_eq!(schedule.in_flight(0, JobSize::Small), InFlight { slices: 3, recipients: 850 });
    }

    #[test]
    fn a_source_with_jobs_of_both_sizes_keeps_their_order() {
        let mut schedule = Schedule::new(1, slices(100));
        for (id, size) in [(0, JobSize::Large), (1, JobSize::Small), (2, JobSize::Large), (3, JobSize::Small)] {
            schedule.add(at(1, id), followers_of(1), size, (), |_| true);
        }
        let mut order = Vec::new();
        while let Some(turn) = schedule.next_slice(0) {
            schedule.cut(0, turn.progress, Cut::RouteDone, 9);
            order.push(turn.payload.id.0);
        }
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn a_shard_receives_at_most_its_limit_of_slices() {
        let mut schedule = Schedule::new(2, slices(1));
        schedule.add(at(1, 1), followers_of(1), JobSize::Small, (), |_| true);
        let turn = schedule.next_slice(0).unwrap();
        schedule.cut(0, turn.progress, Cut::Resume(9), 5);
        assert_eq!(schedule.next_slice(0), None);
        assert!(schedule.next_slice(1).is_some());
        schedule.delivered(0, turn.progress.job, 5);
        assert_eq!(schedule.next_slice(0).unwrap().progress.from, 9);
    }

    #[test]
    fn a_shard_receives_many_small_slices_or_few_large_ones() {
        let mut schedule = Schedule::new(1, InFlight { slices: 10, recipients: 100 });
        for recipients in [1, 50] {
            let mut taken = Vec::new();
            for id in 0..20 {
                schedule.add(at(0, id), followers_of(1), JobSize::Small, (), |_| true);
            }
            while let Some(turn) = schedule.next_slice(0) {
                schedule.cut(0, turn.progress, Cut::RouteDone, recipients);
                taken.push(turn.progress.job);
            }
            assert_eq!(taken.len(), (100 / recipients).min(10));
            let ended = taken.into_iter().filter_map(|job| schedule.delivered(0, job, recipients)).count();
            assert!(ended > 0);
        }
    }

    #[test]
    fn a_post_without_recipients_is_delivered_at_once() {
        let mut schedule = Schedule::new(2, slices(1));
        assert_eq!(schedule.add(at(1, 1), followers_of(1), JobSize::Small, "token", |_| false), Some("token"));
        assert_eq!(schedule.jobs(), 0);
    }

    proptest! {
        /// Jobs of `slices` slices per route and shard, some of them empty, are confirmed in any order.
        #[test]
        fn every_job_ends_once_and_only_when_all_of_it_is_confirmed(
            jobs in prop::collection::vec((1..4usize, prop::collection::vec(0..4u32, 2)), 1..12),
            preferences in prop::collection::vec((0..3u8, any::<bool>()), 400),
        ) {
            let mut schedule = Schedule::new(2, slices(3));
            let mut ended = Vec::new();
            for (token, (fanout_routes, slices)) in jobs.iter().enumerate() {
                let fanout_routes = (0..*fanout_routes as u32).map(|slot| FanoutRoute::Inboxes(SourceSlot(slot))).collect();
                ended.extend(schedule.add(at(0, token as u64), fanout_routes, JobSize::Small, token, |shard| slices[shard] > 0));
            }
            let mut in_flight: Vec<(usize, JobId, usize)> = Vec::new();
            let drain = (0..2_000).map(|n| ((n % 3) as u8, true));
            for (choice, has_recipients) in preferences.into_iter().chain(drain) {
                let done = if choice < 2 {
                    let shard = usize::from(choice);
                    let Some(turn) = schedule.next_slice(shard) else { continue };
                    let token = turn.payload.id.0 as usize;
                    let last = turn.progress.from + 1 >= jobs[token].1[shard];
                    let cut = if last { Cut::RouteDone } else { Cut::Resume(turn.progress.from + 1) };
                    if has_recipients {
                        in_flight.push((shard, turn.progress.job, token));
                    }
                    schedule.cut(shard, turn.progress, cut, usize::from(has_recipients))
                } else {
                    let Some((shard, job, _)) = in_flight.pop() else { continue };
                    schedule.delivered(shard, job, 1)
                };
                if let Some(token) = done {
                    prop_assert!(in_flight.iter().all(|(_, _, other)| *other != token));
                    ended.push(token);
                }
            }
            ended.sort_unstable();
            prop_assert!(ended.into_iter().eq(0..jobs.len()));
            prop_assert_eq!(schedule.jobs(), 0);
            for (shard, size) in [0, 1].into_iter().flat_map(|shard| JobSize::ALL.map(|size| (shard, size))) {
                prop_assert_eq!(schedule.in_flight(shard, size), InFlight::default());
            }
        }
    }
}
