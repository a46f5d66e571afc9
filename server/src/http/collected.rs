//! Collects the items of a list of everything for its first page, and caches them for all its pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::rt;
use actix_web::rt::time::sleep;
use tokio::sync::Mutex;

use tidewire::error::Error;

/// Time after which the items are evicted. For posts, the journal must reach back this time plus the time that the pages take.
const KEPT: Duration = Duration::from_secs(60);

/// Maximum pause between two collections. A first page waits for its end.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause after a collection, as a multiple of the collection's duration. It prevents many first pages from keeping the server busy.
const PAUSE_SHARE: u32 = 9;

/// The items of the last collection, cached while clients read pages of them.
pub struct Collected<T>(Mutex<Option<Kept<T>>>);

struct Kept<T> {
    all: Arc<T>,
    at: Instant,
    /// The end of the pause.
    paused_until: Instant,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: 'static> Collected<T> {
    /// Returns items that were collected after this request arrived or, for a page after the first one, the cached items. Concurrent
    /// requests wait for each other, so that one collection serves all of them.
    ///
    /// # Errors
    /// Fails if `collect` does.
    pub(in crate::http) async fn get(
        shared: Arc<Self>,
        is_first_page: bool,
        collect: impl Future<Output = Result<T, Error>>,
    ) -> Result<Arc<T>, Error> {
        let came = Instant::now();
        let mut collected = shared.0.lock().await;
        while let Some(Kept { all, at, paused_until }) = &*collected {
            if *at >= came || (!is_first_page && at.elapsed() < KEPT) {
                return Ok(Arc::clone(all));
            }
            let rest = paused_until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            // Requests for further pages need the lock meanwhile.
            drop(collected);
            sleep(rest).await;
            collected = shared.0.lock().await;
        }
        let at = Instant::now();
        let all = Arc::new(collect.await?);
        let paused_until = at + PAUSE_MAX.min(PAUSE_SHARE * at.elapsed());
        *collected = Some(Kept { all: Arc::clone(&all), at, paused_until });
        drop(collected);
        rt::spawn(Self::forget(Arc::clone(&shared)));
        Ok(all)
    }

    async fn forget(shared: Arc<Self>) {
        sleep(KEPT).await;
        let mut collected = shared.0.lock().await;
        // A later request may have collected the items again.
        if collected.as_ref().is_some_and(|collected| collected.at.elapsed() >= KEPT) {
            *collected = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use actix_web::rt::System;

    #[test]
    fn a_first_page_collects_again_and_further_pages_reuse_the_last_collection() {
        System::new().block_on(async {
            let (shared, count) = (Arc::<Collected<u32>>::default(), Cell::new(0));
            let collect = async || {
                actix_web::rt::task::yield_now().await;
                count.set(count.get() + 1);
                Ok(count.get())
            };
            let get = async |is_first| *Collected::get(Arc::clone(&shared), is_first, collect()).await.unwrap();
            assert_eq!(
                [get(false).await, get(false).await],
                [1, 1],
                "a page whose first one is forgotten collects as well"
            );
            assert_eq!([get(true).await, get(true).await, get(false).await], [2, 3, 3]);
            let failing = async { Err(Error::ShuttingDown) };
            assert!(Collected::get(Arc::clone(&shared), true, failing).await.is_err());
            assert_eq!([get(false).await, get(true).await], [3, 4]);
        });
    }
}
