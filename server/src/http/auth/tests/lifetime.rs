//! Tests of the maximum lifetime of tokens.
#![cfg(test)]

use super::*;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

#[test]
fn a_token_with_a_lifetime_above_the_limit_is_refused() {
    const HOUR: i64 = 3_600;
    let now = NOW.0 / 1_000_000;
    let limited = Access::by(keys()).with_token_lifetime_max(Duration::from_secs(3_600));
    let ahead = TOKEN_CLOCK_AHEAD_MAX.as_secs() as i64;
    for (claims, expected) in [
        (json!({"iat": now, "exp": now + HOUR}), "good"),
        (json!({"iat": now, "exp": now + HOUR + 1}), "token_lifetime_too_long"),
        (json!({"iat": now, "exp": now as f64 + 3_600.000_001}), "token_lifetime_too_long"),
        (json!({"iat": now - HOUR + 1, "exp": now + 1}), "good"),
        (json!({"iat": now - HOUR, "exp": now + 1}), "token_lifetime_too_long"),
        (json!({"iat": now + ahead, "exp": now + ahead + HOUR}), "good"),
        (json!({"iat": now + ahead + 1, "exp": now + ahead + 1 + HOUR}), "token_issued_in_future"),
        (json!({"iat": 1e300, "exp": 1e300}), "token_issued_in_future"),
        (json!({"iat": -1e300, "exp": now + 1}), "token_lifetime_too_long"),
        (json!({"iat": now, "exp": 1e300}), "token_lifetime_too_long"),
        (json!({"exp": now + 1}), "invalid_token"),
        (json!({"iat": null, "exp": now + 1}), "invalid_token"),
        (json!({"iat": "now", "exp": now + 1}), "invalid_token"),
        (json!({"iat": now - 2 * HOUR, "exp": now - HOUR}), "token_expired"),
    ] {
        let mut claims = claims;
        claims["sub"] = json!("ann");
        let caller = keys().caller(&token(&claims), NOW);
        let limited = caller.and_then(|caller| {
            let Caller::User(user) = &caller else { panic!("{caller:?}") };
            limited.check_lifetime(user, NOW).map(|()| caller)
        });
        assert_eq!(code(limited), expected, "{claims}");
    }
    let unlimited = keys().caller(&token(&json!({"sub": "ann", "exp": 1e300})), NOW);
    let Ok(Caller::User(user)) = unlimited else { panic!("{unlimited:?}") };
    assert_eq!(Access::by(keys()).check_lifetime(&user, NOW), Ok(()), "where none is set");
    for (issued_at, expected) in [(now + ahead, Ok(())), (now + ahead + 1, Err(Denial::IssuedInFuture))] {
        let user = User { issued_at: Some(UnixMicros(issued_at * 1_000_000)), ..user.clone() };
        assert_eq!(Access::by(keys()).check_lifetime(&user, NOW), expected, "where none is set, made at {issued_at}");
    }
}
