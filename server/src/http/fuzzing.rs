//! The fuzz targets of the HTTP API: request bodies, credentials, and access files.

use std::sync::OnceLock;

use actix_web::ResponseError as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::http::auth::access_file;
use crate::http::auth::caller::Caller;
use crate::http::auth::key::{self, KeyScope};
use crate::http::auth::keys::{Keys, TokenKey};
use crate::http::auth::token_algorithms;
use crate::http::handlers::{bulk_posts, follows, posts, preferences, users};
use crate::http::problem::Problem;
use crate::http::request;
use tidewire::clock::UnixMicros;
use tidewire::feed::cursor;
use tidewire::feed::event::{Event, NewEdge, OldEdge};
use tidewire::feed::position::Position;
use tidewire::feed::post::{Draft, Post};
use tidewire::feed::rules::{Rules, RulesPatch};
use tidewire::id::PostId;
use tidewire::storage::frame::{pack, unpack};

pub use crate::http::live::fuzzing::frames;
pub use crate::http::resp::fuzzing::commands;

/// Parses `data` as the body of every operation that has a body.
///
/// # Panics
/// Panics if a body is accepted that is not an object, if a refusal is reported as a server error, or if an accepted value changes when it
/// is written as JSON or as a journal entry and read again.
pub fn bodies(data: &[u8]) {
    if let Some(draft) = taken(data, posts::new_post) {
        assert_eq!(draft.check(), Ok(()));
        let again = posts::new_post(json_of(&draft).as_bytes());
        assert_eq!(again.expect("an accepted value is accepted again"), draft);
        published(draft);
    }
    if let Some((body, hidden)) = taken(data, posts::change) {
        let fields = [
            body.as_ref().map(|body| format!("\"body\":{}", body.as_str())),
            hidden.map(|hidden| format!("\"hidden\":{hidden}")),
        ];
        let text = format!("{{{}}}", fields.into_iter().flatten().collect::<Vec<_>>().join(","));
        assert_eq!(posts::change(text.as_bytes()).expect("an accepted value is accepted again"), (body, hidden));
    }
    if let Some(edges) = taken(data, follows::edges) {
        let follows: Vec<Value> = edges.follows.iter().map(edge).collect();
        let unfollow = |edge: &OldEdge| json!({"follower": edge.follower, "source": edge.source});
        let unfollows = edges.unfollows.as_ref().map(|edges| edges.iter().map(unfollow).collect::<Vec<_>>());
        let mut body = json!({ "follows": follows });
        unfollows.into_iter().for_each(|edges| body["unfollows"] = json!(edges));
        let again = follows::edges(body.to_string().as_bytes());
        assert_eq!(again.expect("an accepted value is accepted again"), edges);
    }
    if let Some(drafts) = taken(data, bulk_posts::drafts) {
        for draft in drafts.into_iter().flatten() {
            assert_eq!(draft.check(), Ok(()));
        }
    }
    taken(data, request::json::<follows::FollowOptions>);
    if let Some(patch) = taken(data, request::json::<RulesPatch>) {
        let rules = Rules::default().patched(patch);
        let patch = request::json::<RulesPatch>(json!(rules).to_string().as_bytes());
        assert_eq!(Rules::default().patched(patch.expect("rules are accepted as a patch")), rules);
    }
    let now = UnixMicros(1_700_000_000_000_000);
    if let Some(at) = taken(data, |data| users::not_before(Some(data), now)) {
        let again = users::not_before(Some(json!({"not_before": at.to_string()}).to_string().as_bytes()), now);
        assert_eq!(again.expect("an accepted value is accepted again"), at);
    }
    if let Some(at) = taken(data, preferences::new_marker) {
        let again = preferences::new_marker(json!({"cursor": cursor::encode_resume(at)}).to_string().as_bytes());
        assert_eq!(again.expect("an accepted value is accepted again"), at);
    }
}

/// Returns the parsed body, or `None` if it was refused. Checks that every refusal is a client error.
fn taken<'a, T>(data: &'a [u8], read: impl FnOnce(&'a [u8]) -> Result<T, Problem>) -> Option<T> {
    match read(data) {
        Ok(value) => {
            assert!(serde_json::from_slice::<IgnoredAny>(data).is_ok(), "this is no JSON");
            let start = data.iter().find(|byte| !byte.is_ascii_whitespace());
            assert_eq!(start, Some(&b'{'), "this is no object");
            Some(value)
        }
        Err(problem) => {
            assert!(problem.status_code().is_client_error(), "{problem}");
            None
        }
    }
}

fn json_of(draft: &Draft) -> String {
    let mut fields = Map::from_iter([
        ("author".to_owned(), json!(draft.author.as_str())),
        ("kind".to_owned(), json!(draft.kind.as_str())),
        ("tags".to_owned(), draft.tags.iter().map(|tag| tag.tag_name()).collect()),
    ]);
    let texts = [
        ("id", draft.id.map(|id| id.to_string())),
        ("external_id", draft.external_id.as_ref().map(ToString::to_string)),
        ("published_at", draft.published_at.map(|at| at.to_string())),
        ("topic", draft.topic.as_ref().and_then(|topic| topic.topic_name()).map(str::to_owned)),
        ("repost_of", draft.repost_of.map(|id| id.to_string())),
        ("reply_to", draft.reply_to.map(|id| id.to_string())),
    ];
    fields.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?)))));
    let mut text = Value::Object(fields).to_string();
    // The body is copied as text, because a JSON value does not preserve every number exactly.
    text.truncate(text.len() - 1);
    format!("{text},\"body\":{}}}", draft.body.as_str())
}

fn edge(edge: &NewEdge) -> Value {
    let mut fields = json!({"follower": edge.follower.as_str(), "source": edge.source.as_str(), "hidden": edge.hidden});
    if let Some(backfill) = edge.backfill {
        fields["backfill"] = json!(backfill);
    }
    fields
}

/// Checks that an accepted post is served with an unchanged body, and that it is unchanged after a round trip through the journal format.
fn published(draft: Draft) {
    #[derive(Deserialize)]
    struct Answered<'a> {
        author: String,
        #[serde(borrow)]
        body: &'a RawValue,
    }

    let position =
        Position { published_at: draft.published_at.unwrap_or(UnixMicros(0)), id: draft.id.unwrap_or(PostId(1)) };
    let post = Post::new(position, &draft, position.published_at);
    let answered: Answered<'_> = serde_json::from_str(post.json()).expect("answers are JSON");
    assert_eq!((answered.author.as_str(), answered.body.get()), (draft.author.as_str(), draft.body.as_str()));
    let draft = Draft { id: None, published_at: None, ..draft };
    let (event, mut packed) = (Event::Published { position, draft, accepted_at: position.published_at }, Vec::new());
    pack(&event, &mut packed);
    assert_eq!(unpack::<Event>(&packed), Ok(event));
}

const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);
const SERVER_KEY: &str = "tidewire_a-key-of-the-server";
const SECRET: [u8; 32] = [1; 32];
const AUDIENCE: &str = "tidewire";

/// An Ed25519 key pair; the private key is in PKCS #8 format.
const PUBLIC: [u8; 32] = [
    0x96, 0xfc, 0xaa, 0x31, 0x76, 0xdd, 0x0b, 0xd0, 0x62, 0xe4, 0x74, 0xab, 0x44, 0xc9, 0x18, 0x42, 0x20, 0x4c, 0x05,
    0x1a, 0x30, 0xcb, 0x2c, 0x9e, 0x4f, 0xe9, 0xf3, 0xa5, 0xb0, 0x53, 0xd8, 0x29,
];
const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEII9CeSZFHoYZZdPZ8ri1Zlar+2Gk2SHX9QA9Efz1Ysdy";

/// Uses `data` as a credential, and as the claims of a token with a valid signature.
///
/// # Panics
/// Panics if a credential is accepted that no key signed, or if claims are accepted that do not name a user, an expiry time in the future
/// and, where it is required, the audience.
pub fn tokens(data: &[u8]) {
    if let Ok(credential) = str::from_utf8(data) {
        match known_keys().caller(credential, NOW) {
            Ok(Caller::Server(..)) => assert_eq!(credential, SERVER_KEY),
            Ok(Caller::User(_)) => {
                let (message, _) = credential.rsplit_once('.').expect("a token has three parts");
                let is_signed =
                    |(algorithm, key): &(Algorithm, EncodingKey)| signed(message, key, *algorithm) == credential;
                assert!(signers().iter().any(is_signed), "a token that nobody signed is taken");
            }
            Ok(other) => panic!("a credential stands for {other:?}"),
            Err(_) => {}
        }
    }
    for (algorithm, key) in signers() {
        let header = json!({"alg": algorithm, "typ": "JWT"}).to_string();
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(data));
        if let Ok(caller) = known_keys().caller(&signed(&message, key, *algorithm), NOW) {
            let Caller::User(user) = caller else { panic!("claims stand for {caller:?}") };
            // The server does not validate the text and numbers of claims that it does not use.
            let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(data) else { continue };
            assert_eq!(claims["sub"], user.id.as_str());
            assert!(user.id.is_user() && user.until > NOW);
            assert!(claims["exp"].as_f64().is_some_and(|exp| exp * 1e6 > NOW.0 as f64), "this token has ended");
            assert!(claims.get("nbf").is_none_or(|nbf| nbf.as_f64().is_some_and(|nbf| nbf * 1e6 < NOW.0 as f64 + 1.0)));
            assert_eq!(user.may_write, claims.get("scope").is_none_or(|scope| scope == "write"));
            if *algorithm == Algorithm::EdDSA {
                let named = claims["aud"].as_array().map_or_else(|| vec![&claims["aud"]], |all| all.iter().collect());
                assert!(named.contains(&&json!(AUDIENCE)), "this token is for others");
            }
        }
    }
}

fn known_keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut keys = Keys::default();
        keys.add_server(key::hash(SERVER_KEY), KeyScope::All);
        keys.add_token(TokenKey::hs256(&SECRET, None));
        keys.add_token(TokenKey::ed_dsa(&PUBLIC, Some(AUDIENCE)));
        keys
    })
}

fn signers() -> &'static [(Algorithm, EncodingKey); 2] {
    static SIGNERS: OnceLock<[(Algorithm, EncodingKey); 2]> = OnceLock::new();
    SIGNERS.get_or_init(|| {
        let private = base64::engine::general_purpose::STANDARD.decode(PRIVATE).expect("this is base64");
        [(Algorithm::HS256, EncodingKey::from_secret(&SECRET)), (Algorithm::EdDSA, EncodingKey::from_ed_der(&private))]
    })
}

fn signed(message: &str, key: &EncodingKey, algorithm: Algorithm) -> String {
    let signature = token_algorithms::sign(message.as_bytes(), key, algorithm).expect("these keys sign");
    format!("{message}.{signature}")
}

/// Parses `data` as an access file.
///
/// # Panics
/// Panics if an error message contains a secret, or if the number of keys differs from the number of entries.
pub fn access_file(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let table = text.parse::<toml::Table>();
    match access_file::keys(text) {
        Ok(keys) => {
            let table = table.expect("an accepted file is TOML");
            let count = |kind| table.get(kind).and_then(toml::Value::as_array).map_or(0, Vec::len);
            let message = format!("Keys({} of the server, {} for tokens)", count("server-key"), count("token-key"));
            assert_eq!(format!("{keys:?}"), message);
        }
        Err(message) => {
            let Ok(table) = table else { return };
            let (mut names, mut values) = (Vec::new(), Vec::new());
            table.iter().for_each(|(name, value)| add_values(name, value, &mut names, &mut values));
            // An error message may quote unknown names, and such a name may contain the text of a value.
            let is_name = |value: &String| names.iter().any(|name| name.contains(value));
            let secret = values.iter().find(|value| message.contains(*value) && !is_name(value));
            assert_eq!(secret, None, "an error message contains a secret: {message}");
        }
    }
}

/// Collects the strings and numbers of a value, except the names of entries, because each may be a secret in the wrong place. Skips short
/// values, which may be words of the error message. Collects the names of all fields in `names`.
fn add_values(name: &str, value: &toml::Value, names: &mut Vec<String>, values: &mut Vec<String>) {
    names.push(name.to_owned());
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| add_values(name, value, names, values)),
        toml::Value::Array(array) => array.iter().for_each(|value| add_values(name, value, names, values)),
        toml::Value::String(text) if name != "name" && text.len() >= 24 => values.push(text.clone()),
        toml::Value::Integer(number) if number.unsigned_abs() >= 100_000_000_000 => values.push(number.to_string()),
        _ => {}
    }
}
