//! The fuzz target of the Redis protocol.

use actix_web::http::Uri;
use serde::de::IgnoredAny;

use crate::http::resp::commands::FeedCommand;
use crate::http::resp::protocol::{Limits, Parser, ProtocolError};
use crate::http::resp::subscriptions;

/// Parses `data` as a pipeline of commands, at once and in small pieces, and makes their requests.
///
/// # Panics
/// Panics if the commands depend on the pieces, or if a request has a path that is not a path or a body that is not a JSON object.
pub fn commands(data: &[u8]) {
    let whole = parse(data, data.len().max(1));
    for piece_bytes in [1, 7] {
        assert_eq!(parse(data, piece_bytes), whole, "in pieces of {piece_bytes}");
    }
    for words in &whole.0 {
        let mut words = words.iter().map(Vec::as_slice);
        let Some(name) = words.next() else { continue };
        let Some(command) = FeedCommand::find(name) else {
            let channels = words.filter_map(|word| str::from_utf8(word).ok());
            channels.filter_map(subscriptions::target).for_each(|target| check_target(&target));
            continue;
        };
        let Ok(request) = command.request(&mut words) else { continue };
        check_target(&request.target.into_path());
        if !request.body.is_empty() {
            assert!(request.body.starts_with('{'), "{}", request.body);
            serde_json::from_str::<IgnoredAny>(&request.body).expect("the body is JSON");
        }
    }
}

fn check_target(target: &str) {
    let uri = Uri::try_from(target).expect("the path is encoded");
    assert!(uri.path().starts_with("/v1/") && uri.authority().is_none(), "{target}");
}

/// Returns the words of all commands, and the error at their end.
fn parse(data: &[u8], piece_bytes: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut parser, mut input, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    for piece in data.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&input, Limits::FULL) {
                Ok(Some(length)) => {
                    commands.push(parser.words(&input).map(<[u8]>::to_vec).collect());
                    input.drain(..length);
                }
                Ok(None) => break,
                Err(cause) => return (commands, Some(cause)),
            }
        }
    }
    (commands, None)
}
