//! Authentication and authorization of requests.
//!
//! Responsible for:
//! - authenticating the caller of a request ([`keys`]), and checking its permission for the operation ([`caller`]);
//! - loading the access file again when it changes ([`access_file`]);
//! - the origins whose pages may read responses ([`cors`]), and protection against browser attacks if there are no keys ([`browser`]);
//! - limiting the cost of signature checks ([`signatures`], [`verified`]), the maximum lifetime of tokens, and revocations
//!   ([`validity`]);
//! - the request rate of each client ([`rate`]), the number of unauthenticated connections of each address ([`unauthenticated`]), and
//!   counting denials ([`denial_limits`]).

pub mod access_file;
pub mod browser;
pub(in crate::http) mod caller;
mod claims;
pub mod cors;
mod credentials;
mod denial;
mod denial_limits;
mod host;
pub mod key;
pub mod keys;
pub mod mint;
mod pem;
pub mod rate;
mod session_expiry;
mod signatures;
#[cfg(test)]
mod tests;
pub mod token_algorithms;
mod unauthenticated;
mod validity;
mod verified;

use std::borrow::Borrow;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::http::header::AUTHORIZATION;
use actix_web::rt::time::timeout;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::Notify;
use tracing::{error, info};

use crate::http::admission::Admission;
use crate::http::auth::access_file::AccessFileError;
use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::denial_limits::DenialLimits;
pub(in crate::http) use crate::http::auth::key::KeyFigures;
use crate::http::auth::key::{KeyHash, KeyId, KeyScope};
use crate::http::auth::keys::Keys;
use crate::http::auth::rate::{Counted, Rates, RequestsPerSecond};
use crate::http::auth::signatures::{Check, Signatures};
use crate::http::auth::unauthenticated::UnauthenticatedConnections;
use crate::http::engine_cell;
use crate::http::offered_upgrade::is_websocket;
use crate::http::operation::{Needs, Operation, Right, WorkKind, user_in_path};
use crate::http::problem::Problem;
use crate::http::proxies::Proxies;
use crate::http::watched_files::WatchedFiles;
use tidewire::clock::{Clock, SystemClock};
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire::limits::{
    LIVE_UNAUTHENTICATED_MAX, LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX, NEW_SOURCES_OF_USER_MAX, NEW_SOURCES_PERIOD,
};

pub(in crate::http) use crate::http::auth::caller::Caller;
pub(in crate::http) use crate::http::auth::credentials::{PROTOCOL, offers_protocol};
pub(in crate::http) use crate::http::auth::denial::Denial;
pub(in crate::http) use crate::http::auth::session_expiry::SessionExpiry;
pub(in crate::http) use crate::http::auth::unauthenticated::UnauthenticatedSlot;

/// Interval between checks for changes of the access file.
const ACCESS_FILE_LOOK: Duration = Duration::from_secs(1);

/// The settings of authentication and authorization.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The access file with the keys. Default none: every caller has all permissions.
    pub file: Option<PathBuf>,
    /// The origins whose pages may read responses, in addition to the server's own. Default none.
    pub origins: Origins,
    /// The host names of the server, used if there are no keys. Default none: IP addresses and `localhost` only.
    pub hosts: Hosts,
    /// The request rate of each client. Default unlimited.
    pub rate: Option<RequestsPerSecond>,
    /// Selects who chooses the ids of posts that are published with a user's token. Default: the server.
    pub token_post_ids: TokenPostIds,
    /// The maximum lifetime of a token. Default unlimited.
    pub token_lifetime_max: Option<Duration>,
    /// The addresses of proxies. They have no limits per address, because many clients share them. Default: loopback addresses.
    pub proxies: Proxies,
}

/// Selects who chooses the ids of posts that are published with a user's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenPostIds {
    /// The server chooses. Users can neither use the ids of other posts nor find out which ids exist.
    #[default]
    Server,
    /// The user may choose. A post that is sent twice with the same id is published once.
    User,
}

impl FromStr for TokenPostIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "server" => Ok(Self::Server),
            "user" => Ok(Self::User),
            _ => Err("either server or user".to_owned()),
        }
    }
}

/// The state of authentication and authorization.
pub struct Access {
    /// `None` if every caller has all permissions.
    keys: Option<RwLock<Arc<Keys>>>,
    file: Option<WatchedFiles<1>>,
    /// Notified to load the access file again at once.
    asked: Notify,
    /// The hash of the key that this process uses for requests to its own server. No file contains it.
    own_key: Option<KeyHash>,
    origins: Origins,
    hosts: Hosts,
    rates: Option<Rates>,
    token_post_ids: TokenPostIds,
    token_lifetime_max: Option<Duration>,
    denial_limits: DenialLimits,
    signatures: Signatures,
    proxies: Proxies,
    /// The rates at which users add new sources.
    new_sources: Rates,
    unauthenticated: Arc<UnauthenticatedConnections>,
    clock: Arc<dyn Clock>,
}

impl Default for Access {
    /// Every caller has all permissions.
    fn default() -> Self {
        Self {
            keys: None,
            file: None,
            asked: Notify::new(),
            own_key: None,
            origins: Origins::default(),
            hosts: Hosts::default(),
            rates: None,
            token_post_ids: TokenPostIds::default(),
            token_lifetime_max: None,
            denial_limits: DenialLimits::default(),
            signatures: Signatures::default(),
            proxies: Proxies::default(),
            new_sources: Rates::over(NEW_SOURCES_PERIOD, NEW_SOURCES_OF_USER_MAX),
            unauthenticated: UnauthenticatedConnections::new(
                LIVE_UNAUTHENTICATED_MAX,
                LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX,
            ),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Access {
    /// Creates the state from options.
    ///
    /// # Errors
    /// Fails if the access file cannot be read or is invalid.
    pub fn open(options: AccessOptions) -> Result<Self, AccessFileError> {
        let AccessOptions { file, origins, hosts, rate, token_post_ids, token_lifetime_max, proxies } = options;
        if file.is_some() {
            mint::self_test(SystemClock.now()).map_err(AccessFileError::Unusable)?;
        }
        let read = |file: PathBuf| {
            let watched = WatchedFiles::new([file.clone()]);
            access_file::read(&file).map(|keys| (keys, watched))
        };
        let (keys, file) = file.map(read).transpose()?.unzip();
        let rates = rate.map(|RequestsPerSecond(rate)| Rates::new(rate));
        let keys = keys.map(|keys| RwLock::new(Arc::new(keys)));
        Ok(Self { keys, file, origins, hosts, rates, token_post_ids, token_lifetime_max, proxies, ..Self::default() })
    }

    /// Creates the state from keys.
    pub fn by(keys: Keys) -> Self {
        Self { keys: Some(RwLock::new(Arc::new(keys))), ..Self::default() }
    }

    /// Admits the key that this process uses for requests to its own server, in addition to those of the access file. It remains valid
    /// when the file is loaded again. Does nothing if the server has no keys.
    #[must_use]
    pub fn with_own_key(self, key: &str) -> Self {
        let access = Self { own_key: Some(key::hash(key)), ..self };
        if let Some(known) = &access.keys {
            let known = std::mem::take(&mut *known.write());
            access.replace(Arc::into_inner(known).unwrap_or_default());
        }
        access
    }

    /// Selects who chooses the ids of posts.
    #[must_use]
    pub fn with_token_post_ids(self, token_post_ids: TokenPostIds) -> Self {
        Self { token_post_ids, ..self }
    }

    /// Sets the maximum lifetime of tokens.
    #[must_use]
    pub fn with_token_lifetime_max(self, longest: Duration) -> Self {
        Self { token_lifetime_max: Some(longest), ..self }
    }

    /// Sets the addresses of proxies.
    #[must_use]
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Replaces the keys. Does nothing if the server has no keys.
    pub fn replace(&self, mut keys: Keys) {
        if let Some(known) = &self.keys {
            let before = Arc::clone(&known.read());
            // Without this, all tokens would have to be verified again, which a flood of forged tokens could prevent.
            keys.keep_verified(&before);
            if let Some(own) = self.own_key {
                keys.add_server_named(Some("this server"), own, KeyScope::All);
            }
            keys.keep_use(&before);
            *known.write() = Arc::new(keys);
        }
    }

    /// Returns an error text if the server must not listen on the address of this `option` without keys.
    pub fn refusal_to_listen((option, listen): (&str, SocketAddr), file: Option<&Path>) -> Option<String> {
        let is_reachable = !listen.ip().to_canonical().is_loopback();
        (is_reachable && file.is_none()).then(|| {
            format!(
                "{option} {listen} can be reached from elsewhere, and anybody there could read and write everything: \
                 name a file with keys by --access FILE (`tidewire key NAME` makes one), or listen on 127.0.0.1"
            )
        })
    }

    /// Returns a warning if credentials would be sent to this address without TLS.
    pub fn warning_of_plaintext(listen: SocketAddr, file: Option<&Path>, has_certificate: bool) -> Option<String> {
        let is_reachable = !listen.ip().to_canonical().is_loopback();
        (is_reachable && file.is_some() && !has_certificate).then(|| {
            format!(
                "keys and tokens reach {listen} in plain text, readable for everyone on the network path: \
                 serve over TLS (--tls-cert, --tls-key), or listen on 127.0.0.1 behind a proxy that serves over TLS"
            )
        })
    }

    /// Loads the access file again when it changes, and removes old rate limit entries. Never returns.
    pub async fn keep(self: Arc<Self>) {
        let mut watched = self.file.clone();
        loop {
            if timeout(ACCESS_FILE_LOOK, self.asked.notified()).await.is_ok() {
                watched.iter_mut().for_each(WatchedFiles::ask);
            }
            self.rates.iter().for_each(Rates::sweep);
            self.new_sources.sweep();
            self.denial_limits.sweep();
            self.signatures.sweep(Instant::now());
            watched.iter_mut().for_each(|watched| self.load_again(watched));
        }
    }

    /// Makes [`Self::keep`] load the access file now, even if it has not changed. Returns false if there is none.
    pub fn ask(&self) -> bool {
        self.asked.notify_one();
        self.file.is_some()
    }

    /// Loads the access file again, if it has changed or could not be read before.
    fn load_again(&self, watched: &mut WatchedFiles<1>) {
        if !watched.is_read_due() {
            return;
        }
        let [file] = watched.files().clone();
        match access_file::read(&file) {
            Ok(_) if !watched.is_as_read() => {}
            Ok(keys) => {
                match (file.display(), watched.note_success()) {
                    (file, true) => info!("the access file {file} can be used again: loaded its keys"),
                    (file, false) => info!("loaded new keys from {file}"),
                }
                self.replace(keys);
            }
            Err(cause) => {
                if watched.note_failure(cause.to_string()) {
                    error!("{cause}; the previous keys remain valid");
                }
            }
        }
    }

    /// Authenticates and authorizes a request. Returns its caller, or `None` if the operation needs no credentials.
    pub(in crate::http) fn enter(
        &self,
        operation: &Operation,
        request: &ServiceRequest,
        engine: Option<&Engine>,
        counted: Counted,
    ) -> Result<Option<Caller>, Problem> {
        if operation.needs == Needs::Nothing {
            return Ok(None);
        }
        let caller = self.caller(operation, request, engine, counted).or_else(|denial| {
            let denial = self.count_denial(denial, request.peer_addr());
            let headers = request.headers();
            let names_none = matches!(credentials::of_header(headers), Ok(None));
            let is_page = is_socket(operation, request) && (names_none || credentials::of_protocols(headers).is_some());
            // In a browser, only a close code reports the reason of a refusal to the page.
            if is_page && denial.is_of_credentials() { Ok(Caller::Refused(denial)) } else { Err(denial) }
        })?;
        if engine.is_none() && matches!(caller, Caller::User(_)) {
            // Revocations are not known during recovery, and recovery may end before the handler runs.
            return Err(engine_cell::recovering());
        }
        Ok(Some(caller))
    }

    /// Admits one of the users whom the body of a request names, as if a separate request had this user in its path. `nth` counts the
    /// users from 0. The first user is not counted against the rate of the caller, because admitting the caller counted it.
    pub(in crate::http) fn enter_named(
        &self,
        caller: &Caller,
        (nth, user): (usize, &SourceId),
        peer: Option<SocketAddr>,
    ) -> Result<(), Denial> {
        let counted = self.rates.as_ref().filter(|_| nth > 0).map_or(Ok(()), |rates| rates.enter(caller, peer));
        let entered = counted.and_then(|()| caller.may(Needs::Own(Right::Read), Some(user.as_str())));
        entered.map_err(|denial| self.count_denial(denial, peer))
    }

    /// Returns the caller of a request if it has the permission the operation needs.
    fn caller(
        &self,
        operation: &Operation,
        request: &ServiceRequest,
        engine: Option<&Engine>,
        counted: Counted,
    ) -> Result<Caller, Denial> {
        let (headers, peer) = (request.headers(), request.peer_addr());
        let rates = self.rates.as_ref().filter(|_| counted == Counted::NotYet);
        let rated = |caller: Caller| rates.map_or(Ok(()), |rates| rates.enter(&caller, peer)).map(|()| caller);
        let Some(keys) = self.keys() else {
            let reads = operation.method == Method::GET && !operation.lasts;
            browser::check(&self.hosts, &self.origins, headers, reads)?;
            return rated(Caller::Anybody);
        };
        let is_socket = is_socket(operation, request);
        let by_protocol = if is_socket { credentials::of_protocols(headers) } else { None };
        let credential = match by_protocol {
            Some(credential) => Some(credential),
            None => credentials::of_header(headers)?,
        };
        let Some(credential) = credential else {
            return match headers.contains_key(AUTHORIZATION) {
                _ if is_socket => rated(Caller::Unauthenticated),
                true => Err(Denial::Unknown("Authorization is not Bearer followed by a key or token")),
                false => Err(Denial::Missing),
            };
        };
        let caller = rated(self.authenticate(&keys, credential, peer, engine, counted)?)?;
        caller.may(operation.needs, user_in_path(request.match_info().as_str()).map(|(user, _)| user))?;
        Ok(caller)
    }

    /// Authenticates a credential with these keys and checks lifetime and revocation.
    fn authenticate(
        &self,
        keys: &Keys,
        credential: &str,
        peer: Option<SocketAddr>,
        engine: Option<&Engine>,
        counted: Counted,
    ) -> Result<Caller, Denial> {
        let (now, address) = (self.clock.now(), self.proxies.counted(peer));
        let check = Check { signatures: &self.signatures, address, at: Instant::now() };
        let caller = keys.check(credential, now, check)?;
        if let Caller::User(user) = &caller {
            self.check_lifetime(user, now)?;
            engine.map_or(Ok(()), |engine| validity::check_revoked(user, engine))?;
        }
        if counted == Counted::NotYet {
            keys.note_use(&caller, now);
        }
        Ok(caller)
    }

    /// Returns the use of each key, or `None` if the server has no keys.
    pub(crate) fn key_figures(&self) -> Option<Vec<KeyFigures>> {
        self.keys().map(|keys| keys.figures())
    }

    /// Returns true if the server has no keys.
    pub(in crate::http) fn is_open(&self) -> bool {
        self.keys.is_none()
    }

    fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.as_ref().map(|keys| Arc::clone(&keys.read()))
    }

    /// Returns true if a key is still valid, or if the server has no keys.
    fn contains_key(&self, key: KeyId) -> bool {
        self.keys().is_none_or(|keys| keys.contains_key(key))
    }

    /// Authenticates the first message of a WebSocket from `peer` that asks to watch the feed of `user`.
    pub(in crate::http) fn identify(
        &self,
        credential: &str,
        needs: Needs,
        user: &str,
        peer: Option<SocketAddr>,
        engine: &Engine,
    ) -> Result<Caller, Denial> {
        let Some(keys) = self.keys() else { return Ok(Caller::Anybody) };
        let caller = self.authenticate(&keys, credential, peer, Some(engine), Counted::NotYet);
        let caller = caller.and_then(|caller| caller.may(needs, Some(user)).map(|()| caller));
        caller.map_err(|denial| self.count_denial(denial, peer))
    }

    /// Returns true if a caller that authenticated before, on the same connection, still has a permission, without a limit on its rate.
    pub(in crate::http) fn may_again(&self, caller: &Caller, needs: Needs, user: &str) -> bool {
        match (self.keys(), caller) {
            (None, Caller::Anybody) => self.rates.is_none(),
            (Some(keys), Caller::Server(key, _)) => keys.contains_key(*key) && caller.may(needs, Some(user)).is_ok(),
            _ => false,
        }
    }

    /// Counts a use of the caller's key.
    pub(in crate::http) fn note_use(&self, caller: &Caller) {
        self.keys().into_iter().for_each(|keys| keys.note_use(caller, self.clock.now()));
    }

    /// Admits an unauthenticated connection until the returned slot is dropped. It counts against the limit of the address of `peer`,
    /// unless that is a proxy.
    ///
    /// # Errors
    /// Fails if no permit is available.
    pub(in crate::http) fn admit_unauthenticated(
        &self,
        peer: Option<SocketAddr>,
        admission: &Arc<Admission>,
    ) -> Result<UnauthenticatedSlot, Problem> {
        self.unauthenticated.enter(self.proxies.counted(peer), || admission.enter(WorkKind::Unauthenticated))
    }

    /// Checks whether the caller may choose the id of a post.
    pub(in crate::http) fn may_choose_id(&self, caller: &Caller) -> Result<(), Denial> {
        let is_minted = caller.is_user() && self.token_post_ids == TokenPostIds::Server;
        if is_minted { Err(Denial::Forbidden(MINTED)) } else { Ok(()) }
    }

    /// Counts the new sources in a request against the user's limit. The sources are stored permanently, even if the request fails later.
    pub(in crate::http) fn count_new_sources<S: Borrow<SourceId>>(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        engine: &Engine,
        named: impl IntoIterator<Item = S>,
    ) -> Result<(), Denial> {
        let Caller::User(user) = caller else { return Ok(()) };
        let sources = &engine.shared().world.sources;
        let new = named.into_iter().filter(|source| sources.get(source.borrow()).is_none()).count();
        let Some(new) = u32::try_from(new).ok().and_then(NonZeroU32::new) else { return Ok(()) };
        let counted = self.new_sources.take(&user.id, new).map_err(Denial::TooManySources);
        counted.map_err(|denial| self.count_denial(denial, peer))
    }

    /// Counts a denial and returns the denial for the response.
    fn count_denial(&self, denial: Denial, peer: Option<SocketAddr>) -> Denial {
        self.denial_limits.note(denial, peer, self.proxies.counted(peer))
    }

    /// Returns the number of denied requests by code.
    pub(in crate::http) fn denied(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.denial_limits.by_code()
    }

    /// Returns the number of token signatures computed.
    pub(in crate::http) fn signatures_computed(&self) -> u64 {
        self.signatures.computed()
    }

    /// Returns the origins whose pages may read responses.
    pub(in crate::http) fn origins(&self) -> &Origins {
        &self.origins
    }
}

/// The detail of the refusal if a token's user chooses a post id.
const MINTED: &str = "the server chooses the ids of posts published with a token, unless it runs with --token-post-ids user: leave out id \
     and external_id";

/// Returns true if the request asks for a WebSocket at the path of the live operation.
fn is_socket(operation: &Operation, request: &ServiceRequest) -> bool {
    operation.name == "watch" && is_websocket(request.headers())
}
