//! Access: who asks, and whether they may.
//!
//! Responsible for:
//! - telling by its credentials who sent a request ([`keys`]), and whether that is enough for what it asks for ([`caller`]);
//! - the file that says which credentials there are, while it changes ([`file`]);
//! - which other origins' pages may read answers ([`cors`]), and what pages may make browsers do where there are no keys
//!   ([`browser`]);
//! - what checking signatures may cost ([`signatures`], [`verified`]), how long a token may be good, and whether it was
//!   revoked ([`validity`]);
//! - how often one client may ask ([`rate`]), how many of an address may have yet to say who they are ([`crowd`]), and what was
//!   denied ([`denials`]).
//!
//! Not responsible for:
//! - what an operation needs (`http::operation`), whose post it is (handlers ask, and tell [`Caller`]).

pub mod browser;
pub(in crate::http) mod caller;
pub mod cors;
mod credentials;
mod denial;
mod denials;
pub mod file;
pub mod keys;
pub mod mint;
mod pem;
pub mod rate;
mod session_expiry;
mod signatures;
#[cfg(test)]
mod tests;
mod unauthenticated;
mod validity;
mod verified;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::http::header::AUTHORIZATION;
use actix_web::rt::time::sleep;
use actix_web::{HttpMessage as _, HttpRequest};
use parking_lot::RwLock;
use serde::Deserialize;
use tracing::{error, info};

use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::denials::Denials;
use crate::http::auth::file::{AccessFileError, Stamp, Watched};
use crate::http::auth::keys::{KeyId, Keys};
use crate::http::auth::rate::{Rates, RequestsPerSecond};
use crate::http::auth::signatures::{Check, Signatures};
use crate::http::auth::unauthenticated::Crowd;
use crate::http::middleware::admission::Permit;
use crate::http::operation::{Needs, Operation, Work};
use crate::http::problem::Problem;
use crate::http::slot;
use crate::http::sockets::proxies::Proxies;
use tidewire::clock::{Clock, SystemClock};
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire::limits::{
    ACCESS_FILE_LOOK, LIVE_UNAUTHENTICATED_MAX, LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX, NEW_SOURCES_OF_USER_MAX,
    NEW_SOURCES_PERIOD,
};

pub(in crate::http) use crate::http::auth::caller::Caller;
pub(in crate::http) use crate::http::auth::credentials::{PROTOCOL, offers_protocol};
pub(in crate::http) use crate::http::auth::denial::Denial;
pub(in crate::http) use crate::http::auth::session_expiry::SessionExpiry;
pub(in crate::http) use crate::http::auth::unauthenticated::Place;

/// What decides who may do what.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The file with the keys. Default none: anybody may do everything.
    pub file: Option<PathBuf>,
    /// Origins whose pages may read answers, beside the server's own. Default none.
    pub origins: Origins,
    /// Names that the server goes by where there are no keys. Default none: addresses and `localhost` alone.
    pub hosts: Hosts,
    /// Requests per second of one client. Default as many as it likes.
    pub rate: Option<RequestsPerSecond>,
    /// Who chooses the ids of posts that are published by a user's token. Default the server.
    pub token_post_ids: TokenPostIds,
    /// How long a token may be good. Default as long as it says.
    pub token_lifetime_max: Option<Duration>,
    /// Addresses by which many clients come, so that they have no share of a single address. Default those of this machine.
    pub proxies: Proxies,
}

/// Who chooses the ids of posts that are published by a user's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenPostIds {
    /// The server: users can neither take ids that others would get, nor find out by trying which ones there are.
    #[default]
    Server,
    /// The user, if they like: the same post sent twice is published once.
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

/// Who may do what.
pub struct Access {
    /// None: anybody may do everything.
    keys: Option<RwLock<Arc<Keys>>>,
    file: Option<(PathBuf, Stamp)>,
    origins: Origins,
    hosts: Hosts,
    rates: Option<Rates>,
    token_post_ids: TokenPostIds,
    token_lifetime_max: Option<Duration>,
    denials: Denials,
    signatures: Signatures,
    proxies: Proxies,
    /// Sources that users made known.
    brought: Rates,
    strangers: Arc<Crowd>,
    clock: Arc<dyn Clock>,
}

impl Default for Access {
    /// Anybody may do everything.
    fn default() -> Self {
        Self {
            keys: None,
            file: None,
            origins: Origins::default(),
            hosts: Hosts::default(),
            rates: None,
            token_post_ids: TokenPostIds::default(),
            token_lifetime_max: None,
            denials: Denials::default(),
            signatures: Signatures::default(),
            proxies: Proxies::default(),
            brought: Rates::over(NEW_SOURCES_PERIOD, NEW_SOURCES_OF_USER_MAX),
            strangers: Crowd::new(LIVE_UNAUTHENTICATED_MAX, LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Access {
    /// Access by these options.
    ///
    /// # Errors
    /// When the file is not as it should be.
    pub fn open(options: AccessOptions) -> Result<Self, AccessFileError> {
        let AccessOptions { file, origins, hosts, rate, token_post_ids, token_lifetime_max, proxies } = options;
        if file.is_some() {
            mint::self_test(SystemClock.now()).map_err(AccessFileError::Unusable)?;
        }
        let read = |file: PathBuf| {
            // Before the file is read: whatever changes from then on is seen as a change.
            let stamp = Stamp::of(&file);
            file::read(&file).map(|keys| (keys, (file, stamp)))
        };
        let (keys, file) = file.map(read).transpose()?.unzip();
        let rates = rate.map(|RequestsPerSecond(rate)| Rates::new(rate));
        let keys = keys.map(|keys| RwLock::new(Arc::new(keys)));
        Ok(Self { keys, file, origins, hosts, rates, token_post_ids, token_lifetime_max, proxies, ..Self::default() })
    }

    /// Access by these keys.
    pub fn by(keys: Keys) -> Self {
        Self { keys: Some(RwLock::new(Arc::new(keys))), ..Self::default() }
    }

    /// The same with another answer to who chooses ids.
    #[must_use]
    pub fn with_token_post_ids(self, token_post_ids: TokenPostIds) -> Self {
        Self { token_post_ids, ..self }
    }

    /// The same, with tokens that are good for no longer than this.
    #[must_use]
    pub fn with_token_lifetime_max(self, longest: Duration) -> Self {
        Self { token_lifetime_max: Some(longest), ..self }
    }

    /// The same, with these addresses as those of proxies.
    #[must_use]
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Takes other keys in place of those there are. Nothing happens where anybody may do everything.
    pub fn replace(&self, mut keys: Keys) {
        if let Some(known) = &self.keys {
            let before = Arc::clone(&known.read());
            // Otherwise all tokens would have to be verified again, which a flood of forged ones could keep from happening.
            keys.keep_verified(&before);
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

    /// What an operator should know of who listens there with keys and without TLS, if it is so.
    pub fn warning_of_plaintext(listen: SocketAddr, file: Option<&Path>, has_certificate: bool) -> Option<String> {
        let is_reachable = !listen.ip().to_canonical().is_loopback();
        (is_reachable && file.is_some() && !has_certificate).then(|| {
            format!(
                "keys and tokens come to {listen} in plain text, for all to read who are on the way: \
                 serve over TLS (--tls-cert, --tls-key), or put something in front that does, and listen on 127.0.0.1"
            )
        })
    }

    /// Reads the file again whenever it changes, and forgets clients that come no more. Never ends.
    pub async fn keep(self: Arc<Self>) {
        let mut watched = self.file.clone().map(|(file, stamp)| Watched::new(file, stamp));
        loop {
            sleep(ACCESS_FILE_LOOK).await;
            self.rates.iter().for_each(Rates::sweep);
            self.brought.sweep();
            self.denials.sweep();
            self.signatures.sweep(Instant::now());
            let Some(watched) = &mut watched else { continue };
            if !watched.has_changed() {
                continue;
            }
            match file::read(watched.file()) {
                Ok(_) if !watched.is_as_read() => {}
                Ok(keys) => {
                    info!("took new keys from {}", watched.file().display());
                    self.replace(keys);
                }
                Err(cause) => error!("{cause}; the keys from before stay good"),
            }
        }
    }

    /// Whether a request may go on to its handler, which then finds the [`Caller`] in it.
    pub(in crate::http) fn enter(
        &self,
        operation: &Operation,
        request: &ServiceRequest,
        engine: Option<&Engine>,
    ) -> Result<(), Problem> {
        if operation.needs == Needs::Nothing {
            return Ok(());
        }
        let caller = self.caller(operation, request, engine).or_else(|denial| {
            let denial = self.noted(denial, request.peer_addr());
            let is_page = is_socket(operation, request) && !request.headers().contains_key(AUTHORIZATION);
            // A page in a browser learns of a refusal only by a close code.
            if is_page && denial.is_of_credentials() { Ok(Caller::Refused) } else { Err(denial) }
        })?;
        if engine.is_none() && matches!(caller, Caller::User(_)) {
            // Whether the token was revoked is not known yet, and by the time the handler runs there may be an engine.
            return Err(slot::recovering());
        }
        if self.is_on() {
            request.extensions_mut().insert(caller);
        }
        Ok(())
    }

    /// Who sent a request, if they may ask for this.
    fn caller(
        &self,
        operation: &Operation,
        request: &ServiceRequest,
        engine: Option<&Engine>,
    ) -> Result<Caller, Denial> {
        let (headers, peer) = (request.headers(), request.peer_addr());
        let rated =
            |caller: Caller| self.rates.as_ref().map_or(Ok(()), |rates| rates.enter(&caller, peer)).map(|()| caller);
        let Some(keys) = self.keys() else {
            let reads = operation.method == Method::GET && operation.work != Work::Live;
            browser::check(&self.hosts, &self.origins, headers, reads)?;
            return rated(Caller::Anybody);
        };
        let is_socket = is_socket(operation, request);
        let by_protocol = if is_socket { credentials::of_protocols(headers) } else { None };
        let Some(credential) = credentials::of_header(headers)?.or(by_protocol) else {
            return if is_socket { rated(Caller::Unauthenticated) } else { Err(Denial::Missing) };
        };
        let caller = rated(self.vouched(&keys, credential, peer, engine)?)?;
        caller.may(operation.needs, request.match_info().get("user"))?;
        Ok(caller)
    }

    /// Who a credential stands for by these keys, if it is good by now.
    fn vouched(
        &self,
        keys: &Keys,
        credential: &str,
        peer: Option<SocketAddr>,
        engine: Option<&Engine>,
    ) -> Result<Caller, Denial> {
        let (now, address) = (self.clock.now(), self.proxies.counted(peer));
        let check = Check { signatures: &self.signatures, address, at: Instant::now() };
        let caller = keys.check(credential, now, check)?;
        if let Caller::User(user) = &caller {
            self.check_lifetime(user, now)?;
            engine.map_or(Ok(()), |engine| validity::check_revoked(user, engine))?;
        }
        Ok(caller)
    }

    fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.as_ref().map(|keys| Arc::clone(&keys.read()))
    }

    /// Whether a key is still one of those there are.
    fn holds(&self, key: KeyId) -> bool {
        self.keys().is_none_or(|keys| keys.holds(key))
    }

    /// Who says by a message from `peer` that it may watch the feed of `user`.
    pub(in crate::http) fn identify(
        &self,
        credential: &str,
        needs: Needs,
        user: &str,
        peer: Option<SocketAddr>,
        engine: &Engine,
    ) -> Result<Caller, Denial> {
        let Some(keys) = self.keys() else { return Ok(Caller::Anybody) };
        let caller = self.vouched(&keys, credential, peer, Some(engine));
        let caller = caller.and_then(|caller| caller.may(needs, Some(user)).map(|()| caller));
        caller.map_err(|denial| self.noted(denial, peer))
    }

    /// Lets a connection in that has yet to say who it is, until what is returned is dropped. It counts for `address`, if for any.
    pub(in crate::http) fn meet(
        &self,
        address: Option<IpAddr>,
        permit: impl FnOnce() -> Result<Permit, Problem>,
    ) -> Result<Place, Problem> {
        self.strangers.enter(address, permit)
    }

    /// Whether who sent a request may publish under an id of their own.
    pub(in crate::http) fn may_choose_id(&self, caller: &Caller) -> Result<(), Denial> {
        let is_minted = caller.is_user() && self.token_post_ids == TokenPostIds::Server;
        if is_minted { Err(Denial::Forbidden(MINTED)) } else { Ok(()) }
    }

    /// Counts the sources that nobody knows of those a request names, unless they are too many for the user who names them. They
    /// stay known for good, whatever becomes of what they were named for.
    pub(in crate::http) fn bring<'a>(
        &self,
        request: &HttpRequest,
        engine: &Engine,
        named: impl IntoIterator<Item = &'a SourceId>,
    ) -> Result<(), Denial> {
        let Caller::User(user) = Caller::of(request)? else { return Ok(()) };
        let sources = &engine.shared().world.sources;
        let new = named.into_iter().filter(|source| sources.get(source).is_none()).count();
        let Some(new) = u32::try_from(new).ok().and_then(NonZeroU32::new) else { return Ok(()) };
        let counted = self.brought.take(&user.id, new).map_err(Denial::TooManySources);
        counted.map_err(|denial| self.noted(denial, request.peer_addr()))
    }

    /// Takes note of a denial, and returns what to answer.
    fn noted(&self, denial: Denial, peer: Option<SocketAddr>) -> Denial {
        self.denials.note(denial, peer, self.proxies.counted(peer))
    }

    /// How many requests were denied, by the code they were answered with.
    pub(in crate::http) fn denied(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.denials.by_code()
    }

    /// How many signatures of tokens were computed.
    pub(in crate::http) fn signatures_computed(&self) -> u64 {
        self.signatures.computed()
    }

    /// Whether who sent a request may be told what the server is like inside.
    pub(in crate::http) fn is_trusted(&self, operation: &Operation, request: &HttpRequest) -> bool {
        let is_server = matches!(request.extensions().get(), Some(Caller::Server(..)));
        is_server || (!self.is_on() && operation.needs != Needs::Nothing)
    }

    /// The origins whose pages may read answers.
    pub(in crate::http) fn origins(&self) -> &Origins {
        &self.origins
    }
}

/// Why a token does not publish under an id of its own.
const MINTED: &str =
    "by a token posts get their ids from the server, unless it runs with --token-post-ids user: leave out id";

/// Whether a request asks for a WebSocket where there is one.
fn is_socket(operation: &Operation, request: &ServiceRequest) -> bool {
    operation.name == "watch" && credentials::is_websocket(request.headers())
}
