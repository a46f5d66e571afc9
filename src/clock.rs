//! Instants and clocks: time as a value, and "now" as an argument.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant: microseconds since 1970-01-01T00:00:00Z, negative before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

/// A logical instant that was assigned to an event, and its drift: the time by which it is ahead of the displayed clock (see
/// `runtime::hybrid_logical_clock`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamp {
    /// The logical instant: unique, and later than all instants assigned before it.
    pub instant: UnixMicros,
    /// Microseconds by which the instant is ahead of the displayed time; negative if it is behind. 0 unless the clock has jumped.
    pub drift_us: i64,
}

impl From<UnixMicros> for Timestamp {
    /// Makes a logical instant that is equal to its displayed time.
    fn from(instant: UnixMicros) -> Self {
        Self { instant, drift_us: 0 }
    }
}

impl Timestamp {
    /// Lower than every assigned instant. Means that none was assigned yet.
    pub const NONE: Self = Self { instant: UnixMicros(i64::MIN), drift_us: 0 };

    /// Returns the time that is displayed to users.
    pub fn shown(self) -> UnixMicros {
        UnixMicros(self.instant.0.saturating_sub(self.drift_us))
    }
}

/// The text is not an instant in the format that the API accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a time must be RFC 3339 with an offset, at most nine digits of the second, and a year from 0000 to 9999 in UTC, for example \
     2026-11-20T10:00:00.123456Z or 2026-11-20t12:00:00+02:00"
)]
pub struct TimeError;

impl UnixMicros {
    /// Returns this instant moved later by a duration, or the last representable instant.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// Returns this instant moved earlier by a duration, or the first representable instant.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

/// Length of the date before the time, in bytes.
const DATE_BYTES: usize = "2026-11-20".len();

/// Maximum number of digits after the decimal point: nanoseconds.
const SECOND_DIGITS_MAX: usize = 9;

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl FromStr for UnixMicros {
    type Err = TimeError;

    /// Reads RFC 3339 with any offset. Digits of the second after the sixth are dropped, so that the instant is never later than the text.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        // The parser accepts any character between date and time, and any number of digits.
        let is_divided = matches!(text.as_bytes().get(DATE_BYTES), Some(b'T' | b't'));
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if !is_divided || digits > SECOND_DIGITS_MAX {
            return Err(TimeError);
        }
        // The date in UTC may fall into a year that cannot be written.
        let at = OffsetDateTime::parse(text, &Rfc3339).ok().and_then(|at| at.checked_to_utc()).ok_or(TimeError)?;
        if !(0..=9_999).contains(&at.year()) {
            return Err(TimeError);
        }
        i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000)).map(Self).map_err(|_| TimeError)
    }
}

impl fmt::Display for UnixMicros {
    /// Writes RFC 3339 in UTC, always with six fractional digits, so that the texts sort like their instants. Instants outside the years 0
    /// to 9999 are written as a number of microseconds; no request can contain one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000) {
            Ok(at) if (0..=9_999).contains(&at.year()) => {
                let (date, month) = (at.date(), u8::from(at.month()));
                let (hour, minute, second, micro) = at.to_hms_micro();
                write!(
                    f,
                    "{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z",
                    date.year(),
                    date.day()
                )
            }
            _ => self.0.fmt(f),
        }
    }
}

/// The source of "now".
pub trait Clock: Send + Sync + 'static {
    /// Returns the current instant. It may jump ahead and step back.
    fn now(&self) -> UnixMicros;

    /// Returns the time since a fixed instant in the life of this process. It never steps back, and corrections of [`Clock::now`] do not
    /// affect it.
    fn monotonic(&self) -> Duration;
}

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMicros {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => UnixMicros(micros(since)),
            Err(before) => UnixMicros(-micros(before.duration())),
        }
    }

    fn monotonic(&self) -> Duration {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed()
    }
}

/// A clock that changes only when it is set or advanced: for tests and replays.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    monotonic: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that shows `at`.
    pub fn new(at: UnixMicros) -> Self {
        Self { now: AtomicI64::new(at.0), monotonic: AtomicI64::new(0) }
    }

    /// Sets what [`Clock::now`] returns, earlier or later than before. No time passes: the monotonic clock does not change.
    pub fn set(&self, at: UnixMicros) {
        self.now.store(at.0, Ordering::SeqCst);
    }

    /// Advances both clocks by `by`.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(micros(by), Ordering::SeqCst);
        self.monotonic.fetch_add(micros(by), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic.load(Ordering::SeqCst).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_and_formatted_to_the_microsecond() {
        for (text, at) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("0000-01-01T00:00:00.000000Z", -62_167_219_200_000_000),
            ("1970-01-01T00:00:00.000001Z", 1),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2026-11-20T10:00:00.123456Z", 1_795_168_800_123_456),
        ] {
            assert_eq!(text.parse(), Ok(UnixMicros(at)));
            assert_eq!(UnixMicros(at).to_string(), text);
            assert_eq!(text.replace('Z', "+00:00").parse(), Ok(UnixMicros(at)));
        }
        assert_eq!("1970-01-01T00:00:00.1Z".parse(), Ok(UnixMicros(100_000)));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(UnixMicros(1_000_000)));
        for bad in [
            "",
            "now",
            "2026-11-20",
            "2026-11-20T10:00:00",
            "2026-11-20 10:00:00Z",
            "2026-11-20T10:00:00 02:00",
            "2026-11-20T10:00:00+0200",
            "2026-11-20T10:00:00+02",
            "2026-11-20T10:00:00+24:00",
            "2026-11-20T10:00:00+02:60",
            "2026-11-20T10:00:00.Z",
            "2026-11-20T10:00:00.1234567890Z",
            "2026-11-20T10:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T10:00:60Z",
            "2026-02-29T10:00:00Z",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "+10000-01-01T00:00:00Z",
            "２０26-11-20T10:00:00Z",
            "2026-13-20T10:00:00Z",
            "1795168800",
        ] {
            assert_eq!(bad.parse::<UnixMicros>(), Err(TimeError), "{bad:?}");
        }
    }

    #[test]
    fn times_of_any_offset_and_precision_are_parsed_to_utc_microseconds() {
        for (text, utc) in [
            ("2026-11-20T12:00:00+02:00", "2026-11-20T10:00:00.000000Z"),
            ("2026-11-20t12:00:00+02:00", "2026-11-20T10:00:00.000000Z"),
            ("2026-11-20t10:00:00z", "2026-11-20T10:00:00.000000Z"),
            ("2026-11-20T10:00:00-00:00", "2026-11-20T10:00:00.000000Z"),
            ("2026-11-20T00:30:00+05:45", "2026-11-19T18:45:00.000000Z"),
            ("2026-12-31T20:00:00.5-09:30", "2027-01-01T05:30:00.500000Z"),
            ("2026-11-20T10:00:00.123456789Z", "2026-11-20T10:00:00.123456Z"),
            ("2026-11-20T10:00:00.999999999+00:00", "2026-11-20T10:00:00.999999Z"),
            ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999Z"),
            ("1970-01-01T00:00:00.000000999Z", "1970-01-01T00:00:00.000000Z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999999Z"),
            ("0000-01-01T00:00:00-00:01", "0000-01-01T00:01:00.000000Z"),
            ("9999-12-31T23:59:59+23:59", "9999-12-31T00:00:59.000000Z"),
        ] {
            assert_eq!(text.parse::<UnixMicros>().map(|at| at.to_string()).as_deref(), Ok(utc), "{text}");
        }
    }

    #[test]
    fn times_outside_the_calendar_are_still_formatted() {
        assert_eq!(UnixMicros(i64::MAX).to_string(), i64::MAX.to_string());
        assert_eq!(UnixMicros(-62_167_219_200_000_001).to_string(), "-62167219200000001");
    }
}
