//! What is collected with the first page of a list of everything, for all its pages.
//!
//! Responsible for:
//! - collecting it once for all requests of a minute, and forgetting it afterwards.
//!
//! Not responsible for:
//! - what it is, and which part of it a page has (`http::handlers`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::rt;
use actix_web::rt::time::sleep;
use tokio::sync::Mutex;

use tidewire::error::Error;

/// Time for which it is used, and after which it is forgotten. For posts, the journal must reach back so far and as long as the pages take.
const KEPT: Duration = Duration::from_secs(60);

/// Time between two collections, so that many first pages do not keep the server busy: a first page waits so long.
const PAUSE: Duration = Duration::from_secs(1);

/// What was collected, while somebody reads pages of it.
pub struct Collected<T>(Mutex<Option<Kept<T>>>);

struct Kept<T> {
    all: Arc<T>,
    at: Instant,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: 'static> Collected<T> {
    /// Returns what was collected since this request came, or for a page after the first one what the first one has collected. Requests wait for each other meanwhile, so that one
    /// collection serves all that wait.
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
        while let Some(Kept { all, at }) = &*collected {
            if *at >= came || (!is_first_page && at.elapsed() < KEPT) {
                return Ok(Arc::clone(all));
            }
            let rest = PAUSE.saturating_sub(at.elapsed());
            if rest.is_zero() {
                break;
            }
            // Further pages need it meanwhile.
            drop(collected);
            sleep(rest).await;
            collected = shared.0.lock().await;
        }
        let at = Instant::now();
        let all = Arc::new(collect.await?);
        *collected = Some(Kept { all: Arc::clone(&all), at });
        drop(collected);
        rt::spawn(Self::forget(Arc::clone(&shared)));
        Ok(all)
    }

    async fn forget(shared: Arc<Self>) {
        sleep(KEPT).await;
        let mut collected = shared.0.lock().await;
        // It may have been collected anew.
        if collected.as_ref().is_some_and(|collected| collected.at.elapsed() >= KEPT) {
            *collected = None;
        }
    }
}
