//! Tests of the verifier with a mock under load, correct and faulty.
#![cfg(test)]

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::runtime;

use super::*;
use crate::drive::pacer::Pacer;
use crate::drive::{self, Pace, Plan, Run};
use crate::initial_load::Posts;
use crate::mint::Ids;
use crate::operation::Post;
use crate::target::mock::{Fault, Mock};
use crate::workload::{Mix, Workload};
use crate::world::generated::Recipe;

/// Number of operations of a run.
const OPERATIONS: u64 = 400;

fn load(ids: Ids) -> Load {
    let recipe = Recipe {
        users: 60,
        authors: 6,
        mean_followers: 20,
        most_followers: 40,
        exponent: 0.5,
        active_share: 1.0,
        seed: 1,
    };
    Load::new(recipe.make(), 30, &Posts { ids, gap: Duration::from_secs(60), seed: 1 }).unwrap()
}

fn block_on<T>(later: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(later)
}

/// Returns a mock with the initial posts.
async fn loaded(load: &Load, fault: Option<Fault>) -> Mock {
    let mock = Mock::with_fault(fault);
    mock.load_follows(&load.world.edges()).await.unwrap();
    let mut client = mock.open().await.unwrap();
    for post in load.posts.values().flatten() {
        client.perform(&Operation::Publish(post.clone())).await.unwrap();
    }
    mock
}

/// Runs a mix that a verifier observes.
fn under_load(mock: &Mock, load: &Load, verifier: &Arc<Verifier>, mix: Mix) -> Run {
    let some = |count| NonZeroUsize::new(count).unwrap();
    let pace = Pace::open(Pacer::steady(OPERATIONS as f64 * 10.0, Duration::from_millis(100)), Duration::ZERO);
    let plan = Plan { clients: some(4), threads: some(1), pace, retry_refused: false, first_client: 0 };
    let (world, mint) = (Arc::clone(&load.world), Arc::clone(&load.mint));
    let workload = Workload::new(world, mix, (0.0, 0.0), mint, 1).observed_by(Some(Arc::clone(verifier)));
    let target: Arc<dyn Target> = Arc::new(mock.clone());
    drive::run(&target, &Arc::new(workload), &plan, &|_| {}).unwrap()
}

fn mix(name: &str) -> Mix {
    Mix::named(name).unwrap().undoing(0.2)
}

#[test]
fn a_correct_design_passes_after_every_mix() {
    for (ids, name) in [(Ids::Snowflake, "social"), (Ids::Random, "pequod"), (Ids::Minted, "publish")] {
        let load = load(ids);
        let mock = block_on(loaded(&load, None));
        let verifier = Arc::new(Verifier::new(&load));
        for _ in 0..2 {
            let ran = under_load(&mock, &load, &verifier, mix(name));
            assert_eq!((ran.record.operations(), ran.record.failed), (OPERATIONS, 0), "{name}");
            assert_eq!(block_on(verifier.check(&mock, Allowance::default())).unwrap(), READERS, "{name}");
        }
    }
}

#[test]
fn a_design_that_loses_one_push_in_a_hundred_is_detected() {
    for by_arrival in [false, true] {
        let load = load(Ids::Snowflake);
        let mock = block_on(loaded(&load, Some(Fault::DropsPushes)));
        let verifier = Arc::new(Verifier::new(&load));
        under_load(&mock, &load, &verifier, Mix::named("publish").unwrap());
        // Check all readers, so that the result does not depend on chance.
        let failure = block_on(verifier.check_pages(&mock, &load.world.active, by_arrival)).unwrap_err().to_string();
        assert!(failure.starts_with("wrong answer to Page { reader: "), "{failure}");
        assert!(failure.contains(" instead of ["), "{failure}");
    }
}

#[test]
fn wrong_counts_under_load_are_detected() {
    let load = load(Ids::Snowflake);
    let mock = block_on(loaded(&load, Some(Fault::CountsWrong)));
    let verifier = Arc::new(Verifier::new(&load));
    under_load(&mock, &load, &verifier, Mix::named("page").unwrap());
    let failure = block_on(verifier.check(&mock, Allowance::default())).unwrap_err().to_string();
    assert!(failure.contains("21 posts, not 20 to 20"), "{failure}");
    // Each error is reported only once.
    assert!(block_on(verifier.check(&mock, Allowance::default())).is_ok());
}

#[test]
fn a_publish_that_reaches_too_few_followers_is_detected() {
    let load = load(Ids::Snowflake);
    let verifier = Verifier::new(&load);
    let mock = block_on(loaded(&load, None));
    let post = load.mint.post(0);
    let publish = Operation::Publish(post.clone());
    block_on(async { mock.open().await.unwrap().perform(&publish).await }).unwrap();
    verifier.observe(&publish, &Ok(Answer { entries: 0, deliveries: Some(3) }), Some(4));
    let failure = block_on(verifier.check(&mock, Allowance::default())).unwrap_err().to_string();
    assert_eq!(failure, format!("wrong count of post {} by user 0: 3 feeds got it, not 4", post.id));
}

#[test]
fn a_design_that_delivers_less_than_it_reports_is_detected() {
    let load = load(Ids::Snowflake);
    let mock = block_on(loaded(&load, Some(Fault::DeliversLess)));
    let verifier = Arc::new(Verifier::new(&load));
    block_on(verifier.check_deliveries(&mock)).unwrap();
    let ran = under_load(&mock, &load, &verifier, Mix::named("publish").unwrap());
    let (expected, delivered) = (ran.record.deliveries, ran.record.deliveries - OPERATIONS);
    let failure = block_on(verifier.check(&mock, Allowance::default())).unwrap_err().to_string();
    assert_eq!(failure, format!("wrong count of deliveries: {delivered} by its own count, not {expected}"));
    // Each error is reported only once, and a publish with an unknown outcome is not counted.
    assert!(block_on(verifier.check(&mock, Allowance::default())).is_ok());
    under_load(&mock, &load, &verifier, Mix::named("publish").unwrap());
    verifier.observe(&Operation::Publish(load.mint.post(0)), &Err(Failure::Failed("gone".to_owned())), Some(3));
    assert!(block_on(verifier.check(&mock, Allowance::default())).is_ok());
}

#[test]
fn after_a_follow_only_unwatched_readers_may_have_short_pages() {
    let load = load(Ids::Snowflake);
    let verifier = Verifier::new(&load);
    let mock = block_on(loaded(&load, None));
    let short = |reader| {
        let answer = Ok(Answer { entries: 19, deliveries: None });
        verifier.observe(&Operation::Page { reader }, &answer, None);
        block_on(verifier.check(&mock, Allowance::default())).is_err()
    };
    let watched = verifier.readers[0];
    let other = (0..60).find(|user| !verifier.watches(*user)).unwrap();
    assert!(short(watched) && short(other));
    verifier.observe(&Operation::Follow { follower: other, source: 0 }, &Ok(Answer::default()), None);
    assert!(short(watched) && !short(other));
}

#[test]
fn a_failed_publish_may_show_or_not() {
    for shows in [false, true] {
        let load = load(Ids::Random);
        let verifier = Verifier::new(&load);
        let mock = block_on(loaded(&load, None));
        for author in [0, 1, 2] {
            let publish = Operation::Publish(load.mint.post(author));
            if shows {
                block_on(async { mock.open().await.unwrap().perform(&publish).await }).unwrap();
            }
            verifier.observe(&publish, &Err(Failure::Failed("gone".to_owned())), None);
        }
        for _ in 0..2 {
            assert!(block_on(verifier.check(&mock, Allowance::default())).is_ok(), "{shows}");
        }
    }
}

/// Returns a feed of 25 posts, a millisecond apart, newest first.
fn feed() -> Vec<(Position, User)> {
    (0..25i64).rev().map(|nth| ((nth * 1_000, 100 + nth.cast_unsigned()), 7)).collect()
}

fn allowed(order: impl IntoIterator<Item = usize>, slowest_us: i64) -> bool {
    let (feed, items): (_, Vec<Item>) = (feed(), feed().iter().map(item).collect());
    let page: Vec<&Item> = order.into_iter().map(|nth| &items[nth]).collect();
    is_by_arrival(&feed, &page, slowest_us)
}

#[test]
fn only_concurrent_posts_may_be_reordered() {
    assert!(allowed(0..20, 0));
    let swapped = || [1, 0].into_iter().chain(2..20);
    assert!(allowed(swapped(), 1_000) && !allowed(swapped(), 999));
    // One missing and one additional post at the end, where the next post takes the place.
    let cut = || (0..19).chain([20]);
    assert!(allowed(cut(), 1_000) && !allowed(cut(), 999));
    let lost = || (0..5).chain(6..21);
    assert!(!allowed(lost(), 2_000));
    assert!(!allowed([0, 0], 1_000_000));
}

#[test]
fn a_post_outside_the_feed_is_wrong_in_any_order() {
    let unknown = Item::of(&Post { id: 999, author: 7, published_at_us: 3_000, body: body(999) });
    assert!(!is_by_arrival(&feed(), &[&unknown], 1_000_000));
}
