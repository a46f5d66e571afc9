//! Access: who asks, and whether they may.
//!
//! Responsible for:
//! - telling by its credentials who sent a request ([`keys`]), and whether that is enough for what it asks for ([`caller`]);
//! - the file that says which credentials there are, while it changes ([`file`]);
//! - which other origins' pages may read answers ([`cors`]), and how often one client may ask ([`rate`]).
//!
//! Not responsible for:
//! - what an operation needs (`api::operation`), whose post it is (handlers ask, and tell [`Caller`]).

pub(in crate::api) mod caller;
pub mod cors;
mod credentials;
mod denial;
pub mod file;
pub mod keys;
pub mod mint;
mod pem;
pub mod rate;
mod tenure;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use actix_web::HttpMessage as _;
use actix_web::dev::ServiceRequest;
use actix_web::rt::time::sleep;
use parking_lot::RwLock;
use tracing::{error, info};

use crate::api::access::cors::Origins;
use crate::api::access::file::{AccessFileError, Stamp};
use crate::api::access::keys::{KeyId, Keys};
use crate::api::access::rate::{Rates, RequestsPerSecond};
use crate::api::operation::{Needs, Operation};
use crate::api::problem::Problem;
use crate::clock::{Clock, SystemClock};
use crate::limits::ACCESS_FILE_LOOK;

pub(in crate::api) use crate::api::access::caller::Caller;
pub(in crate::api) use crate::api::access::credentials::{PROTOCOL, offers_protocol};
pub(in crate::api) use crate::api::access::denial::Denial;
pub(in crate::api) use crate::api::access::tenure::Tenure;

/// What a page of another origin is told that wants to watch where there are no keys.
const FOREIGN: &str = "pages of other origins may watch only if --cors-origins names them";

/// What decides who may do what.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The file with the keys. Default none: anybody may do everything.
    pub file: Option<PathBuf>,
    /// Origins whose pages may read answers, beside the server's own. Default none.
    pub origins: Origins,
    /// Requests per second of one client. Default as many as it likes.
    pub rate: Option<RequestsPerSecond>,
}

/// Who may do what.
pub struct Access {
    /// None: anybody may do everything.
    keys: Option<RwLock<Arc<Keys>>>,
    file: Option<(PathBuf, Stamp)>,
    origins: Origins,
    rates: Option<Rates>,
    clock: Arc<dyn Clock>,
}

impl Default for Access {
    /// Anybody may do everything.
    fn default() -> Self {
        Self { keys: None, file: None, origins: Origins::default(), rates: None, clock: Arc::new(SystemClock) }
    }
}

impl Access {
    /// Access by these options.
    ///
    /// # Errors
    /// When the file is not as it should be.
    pub fn open(options: AccessOptions) -> Result<Self, AccessFileError> {
        let AccessOptions { file, origins, rate } = options;
        if file.is_some() {
            mint::self_test(SystemClock.now()).map_err(AccessFileError::Unusable)?;
        }
        let read = |file: PathBuf| {
            // Before the file is read: whatever changes from then on is seen as a change.
            let stamp = Stamp::of(&file);
            file::read(&file).map(|keys| (keys, (file, stamp)))
        };
        let (keys, file) = file.map(read).transpose()?.unzip();
        let rates = rate.map(Rates::new);
        let keys = keys.map(|keys| RwLock::new(Arc::new(keys)));
        Ok(Self { keys, file, origins, rates, ..Self::default() })
    }

    /// Access by these keys.
    pub fn by(keys: Keys) -> Self {
        Self { keys: Some(RwLock::new(Arc::new(keys))), ..Self::default() }
    }

    /// Takes other keys in place of those there are. Nothing happens where anybody may do everything.
    pub fn replace(&self, keys: Keys) {
        if let Some(known) = &self.keys {
            *known.write() = Arc::new(keys);
        }
    }

    /// Whether requests need credentials.
    pub fn is_on(&self) -> bool {
        self.keys.is_some()
    }

    /// Why what listens there must not do so without keys, if that is so.
    pub fn refusal_to_listen(listen: SocketAddr, file: Option<&Path>) -> Option<String> {
        let is_reachable = !listen.ip().to_canonical().is_loopback();
        (is_reachable && file.is_none()).then(|| {
            format!(
                "--listen {listen} can be reached from elsewhere, and anybody there could read and write everything: \
                 name a file with keys by --access FILE (`tidewire key NAME` makes one), or listen on 127.0.0.1"
            )
        })
    }

    /// Reads the file again whenever it changes. Never ends if there is one.
    pub async fn follow_file(self: Arc<Self>) {
        let Some((file, mut known)) = self.file.clone() else { return };
        loop {
            sleep(ACCESS_FILE_LOOK).await;
            let stamp = Stamp::of(&file);
            if stamp == known {
                continue;
            }
            known = stamp;
            match file::read(&file) {
                Ok(keys) => {
                    info!("took new keys from {}", file.display());
                    self.replace(keys);
                }
                Err(cause) => error!("{cause}; the keys from before stay good"),
            }
        }
    }

    /// Whether a request may go on to its handler, which then finds the [`Caller`] in it.
    pub(in crate::api) fn enter(&self, operation: &Operation, request: &ServiceRequest) -> Result<(), Problem> {
        if operation.needs == Needs::Nothing {
            return Ok(());
        }
        let caller = self.caller(operation, request)?;
        if let Some(rates) = &self.rates {
            rates.enter(&caller, request.peer_addr())?;
        }
        if self.is_on() {
            request.extensions_mut().insert(caller);
        }
        Ok(())
    }

    /// Who sent a request, if they may ask for this.
    fn caller(&self, operation: &Operation, request: &ServiceRequest) -> Result<Caller, Denial> {
        let is_socket = operation.name == "watch" && credentials::is_websocket(request.headers());
        let Some(keys) = self.keys() else {
            // Browsers let any page open one, and leave it to the server to look where the page is from.
            let is_foreign = is_socket && self.origins.are_foreign_to(request.headers());
            return if is_foreign { Err(Denial::Forbidden(FOREIGN)) } else { Ok(Caller::Anybody) };
        };
        let by_protocol = if is_socket { credentials::of_protocols(request.headers()) } else { None };
        let by_header = credentials::of_header(request.headers())?;
        let Some(credential) = by_header.or(by_protocol) else {
            return if is_socket { Ok(Caller::Stranger) } else { Err(Denial::Missing) };
        };
        let user = request.match_info().get("user");
        let caller = keys.caller(credential, self.clock.now());
        match caller.and_then(|caller| caller.may(operation.needs, user).map(|()| caller)) {
            // A page in a browser learns of a refusal only by a close code.
            Err(_) if is_socket && by_header.is_none() => Ok(Caller::Refused),
            other => other,
        }
    }

    fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.as_ref().map(|keys| Arc::clone(&keys.read()))
    }

    /// Whether a key is still one of those there are.
    fn holds(&self, key: KeyId) -> bool {
        self.keys().is_none_or(|keys| keys.holds(key))
    }

    /// Who says by a message that it may watch the feed of `user`.
    pub(in crate::api) fn identify(&self, credential: &str, needs: Needs, user: &str) -> Result<Caller, Denial> {
        let Some(keys) = self.keys() else { return Ok(Caller::Anybody) };
        let caller = keys.caller(credential, self.clock.now())?;
        caller.may(needs, Some(user))?;
        Ok(caller)
    }

    /// The origins whose pages may read answers.
    pub(in crate::api) fn origins(&self) -> &Origins {
        &self.origins
    }
}
