//! JSON values for which serde's default deserialization accepts too little or too much.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, IntoDeserializer as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// The largest bound up to which a 64-bit floating point number represents every whole number: 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A whole number that is not negative, in any JSON notation: `10.0` is accepted, because some clients write all numbers like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole(pub usize);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                let too_large = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                usize::try_from(number).map(Whole).map_err(too_large)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
                if number.fract() != 0.0 || !(0.0..=EXACT_MAX).contains(&number) {
                    return Err(E::invalid_value(Unexpected::Float(number), &self));
                }
                self.visit_u64(number as u64)
            }
        }

        from.deserialize_any(Number)
    }
}

/// One of a fixed set of names, as a JSON string. By default serde also accepts `{"name":null}` for it.
pub struct Name<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Text<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
                T::deserialize(name.to_owned().into_deserializer())
            }
        }

        from.deserialize_str(Text(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_be_a_string() {
        use crate::feed::kind::Kind;

        assert_eq!(serde_json::from_str::<Name<Kind>>(r#""ad""#).unwrap().0, Kind::Ad);
        for bad in [r#"{"ad":null}"#, r#""song""#, "7", "null", r#"["ad"]"#] {
            assert!(serde_json::from_str::<Name<Kind>>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_an_integer_by_value_not_by_notation() {
        for (text, number) in [("0", 0), ("0.0", 0), ("-0.0", 0), ("7", 7), ("7.0", 7), ("1e3", 1_000)] {
            assert_eq!(serde_json::from_str::<Whole>(text).unwrap(), Whole(number), "{text}");
        }
        for bad in ["7.5", "-1", "-1.0", "1e300", "\"7\"", "null", "true", "[7]"] {
            assert!(serde_json::from_str::<Whole>(bad).is_err(), "{bad}");
        }
    }
}
