//! Names of tags and topics: their validation and their normalized form.
//!
//! | | normalized form |
//! |---|---|
//! | tag | `toNFKC_Casefold(NFD(name))`, the identifier caseless match of Unicode (chapter 3.13, D147): upper and lower case, composed and decomposed, full and half width are one tag |
//! | topic | NFC: upper and lower case are two topics |
//!
//! Both forms omit joiners and variation selectors, which only change the appearance of emoji and of some scripts.

use std::borrow::Cow;

use icu_casemap::{CaseMapper, CaseMapperBorrowed};
use icu_normalizer::{
    ComposingNormalizer, ComposingNormalizerBorrowed, DecomposingNormalizer, DecomposingNormalizerBorrowed,
};
use icu_properties::props::{
    DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup, JoinControl, VariationSelector,
};
use icu_properties::{CodePointMapData, CodePointSetData};

use crate::limits::NAME_BYTES_MAX;

const NFC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfc();
const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfkc();
const NFD: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizer::new_nfd();
const CASES: CaseMapperBorrowed<'static> = CaseMapper::new();

/// The reason why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The normalized name is empty.
    #[error("a name must have at least 1 character")]
    Empty,
    /// The normalized name is longer than the limit.
    #[error("a name may have at most {NAME_BYTES_MAX} bytes of UTF-8, this one has {length}")]
    TooLong {
        /// The length of the normalized name in bytes.
        length: usize,
    },
    /// The name or its normalized form has a character that no name may have.
    #[error("a name may not contain {found:?}, which is {what}")]
    BadCharacter {
        /// The first such character.
        found: char,
        /// A description of the character.
        what: &'static str,
    },
    /// The name has a space at its beginning or end, or two in a row.
    #[error("a name may have only single spaces, between other characters")]
    Space,
    /// The name begins with a combining mark, which would combine with the text before it.
    #[error("a name may not begin with the combining mark {0:?}")]
    Mark(char),
}

/// Returns the normalized form of a tag's name. Two names are the same tag if their normalized forms are equal.
///
/// # Errors
/// Returns the reason why the name is invalid.
pub(super) fn tag(name: &str) -> Result<Cow<'_, str>, NameError> {
    let is_folded = |byte: u8| is_plain(byte) && !byte.is_ascii_uppercase();
    form(name, is_folded, |name| {
        // Decompose before folding: folding turns the iota below a Greek letter into a separate letter, behind all other marks.
        let folded: String = NFD.normalize(&name).chars().map(folded).collect();
        NFC.normalize(&folded).into_owned()
    })
}

/// Returns the property `NFKC_Casefold` of a character, except that ignorable characters are not removed.
fn folded(character: char) -> String {
    let mut text = character.to_string();
    // Folding can enable further composition, and composition further folding. The loop ends: no character of Unicode changes in a third
    // round.
    loop {
        let next = NFKC.normalize(&CASES.fold_string(&NFKC.normalize(&text))).into_owned();
        if next == text {
            return text;
        }
        text = next;
    }
}

/// Returns the normalized form of a topic's name. Two names are the same topic if their normalized forms are equal.
///
/// # Errors
/// Returns the reason why the name is invalid.
pub(super) fn topic(name: &str) -> Result<Cow<'_, str>, NameError> {
    form(name, is_plain, |name| NFC.normalize(&name).into_owned())
}

/// Returns true for a byte that is a character which no normalization changes, except for its case.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:@~-".contains(&byte)
}

fn form(
    name: &str,
    is_formed: impl Fn(u8) -> bool,
    normalized: impl FnOnce(String) -> String,
) -> Result<Cow<'_, str>, NameError> {
    let formed = if name.bytes().all(is_formed) {
        Cow::Borrowed(name)
    } else {
        check(name)?;
        let formed = normalized(name.chars().filter(|c| !is_for_looks(*c)).collect());
        // Some characters become several, and each of these has to be allowed.
        check(&formed)?;
        Cow::Owned(formed)
    };
    match formed.len() {
        0 => Err(NameError::Empty),
        length if length > NAME_BYTES_MAX => Err(NameError::TooLong { length }),
        _ => Ok(formed),
    }
}

/// Returns true for joiners and variation selectors.
fn is_for_looks(c: char) -> bool {
    CodePointSetData::new::<JoinControl>().contains(c) || CodePointSetData::new::<VariationSelector>().contains(c)
}

fn check(name: &str) -> Result<(), NameError> {
    let has_bad_spaces = name.starts_with(' ') || name.ends_with(' ') || name.contains("  ");
    if let Some((found, what)) = name.chars().find_map(|c| Some((c, bad(c)?))) {
        Err(NameError::BadCharacter { found, what })
    } else if has_bad_spaces {
        Err(NameError::Space)
    } else {
        let first = name.chars().find(|c| !is_for_looks(*c));
        let category = |c: &char| CodePointMapData::<GeneralCategory>::new().get(*c);
        first
            .filter(|c| GeneralCategoryGroup::Mark.contains(category(c)))
            .map_or(Ok(()), |mark| Err(NameError::Mark(mark)))
    }
}

/// Returns a description of a character that no name may have, and `None` for other characters.
fn bad(c: char) -> Option<&'static str> {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Unassigned};
    if is_for_looks(c) {
        return None;
    }
    Some(match (c, CodePointMapData::<GeneralCategory>::new().get(c)) {
        ('/' | '\\' | '"', _) => "syntax of paths or JSON",
        ('\u{fffd}', _) => "a placeholder for damaged text",
        (_, Control) => "a control character",
        (' ', _) => return None,
        (_, SpaceSeparator | LineSeparator | ParagraphSeparator) => "white space other than a space",
        (_, PrivateUse) => "for private use",
        (_, Unassigned) => "not assigned in Unicode",
        // The blank of Braille is a symbol of Unicode, but shows nothing.
        (_, Format) | ('\u{2800}', _) => "invisible",
        _ if CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c) => "invisible",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Names, and their expected forms as tags and as topics. `=` is the name itself.
    const FORMS: [(&str, &str, &str); 35] = [
        ("rust", "=", "="),
        ("Rust", "rust", "="),
        ("C++", "c++", "="),
        ("#1", "=", "="),
        ("50%", "=", "="),
        ("R&D?", "r&d?", "="),
        ("machine learning", "=", "="),
        ("Größe", "grösse", "="),
        ("GRÖSSE", "grösse", "="),
        // Composed, and decomposed.
        ("caf\u{e9}", "=", "="),
        ("cafe\u{301}", "caf\u{e9}", "caf\u{e9}"),
        ("\u{212b}", "\u{e5}", "\u{c5}"),
        ("q\u{323}\u{307}", "=", "="),
        ("q\u{307}\u{323}", "q\u{323}\u{307}", "q\u{323}\u{307}"),
        // Other forms of the same letters.
        ("ＲＵＳＴ", "rust", "="),
        ("ﬁn", "fin", "="),
        ("𝓡𝓾𝓼𝓽", "rust", "="),
        ("①", "1", "="),
        ("ｶﾞ", "ガ", "="),
        ("\u{1112}\u{1161}\u{11ab}", "한", "한"),
        // Other scripts.
        ("東京", "=", "="),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ", "="),
        ("\u{1f80}\u{302}", "\u{1f00}\u{302}\u{3b9}", "="),
        ("σίσυφος", "σίσυφοσ", "="),
        ("Москва", "москва", "="),
        ("ᏣᎳᎩ", "=", "="),
        ("İzmir", "i\u{307}zmir", "="),
        ("ışık", "=", "="),
        ("שלום", "=", "="),
        ("العربية", "=", "="),
        ("हिन्दी", "=", "="),
        // Joiners and variation selectors are removed.
        ("می\u{200c}خواهم", "میخواهم", "میخواهم"),
        ("👩\u{200d}💻", "👩💻", "👩💻"),
        ("❤\u{fe0f}", "❤", "❤"),
        ("🇩🇪", "=", "="),
    ];

    #[test]
    fn names_have_one_canonical_form() {
        for (name, as_tag, as_topic) in FORMS {
            let expected = |form: &str| Ok(Cow::Owned(if form == "=" { name.to_owned() } else { form.to_owned() }));
            assert_eq!((tag(name), topic(name)), (expected(as_tag), expected(as_topic)), "{name:?}");
        }
    }

    #[test]
    fn invalid_names_are_refused_with_the_cause() {
        let bad = |found, what| NameError::BadCharacter { found, what };
        for (name, why) in [
            ("", NameError::Empty),
            ("\u{200d}", NameError::Empty),
            ("a/b", bad('/', "syntax of paths or JSON")),
            // A single character that becomes `a/c`.
            ("\u{2100}", bad('/', "syntax of paths or JSON")),
            ("a\"b", bad('"', "syntax of paths or JSON")),
            ("a\\b", bad('\\', "syntax of paths or JSON")),
            ("a\0", bad('\0', "a control character")),
            ("a\nb", bad('\n', "a control character")),
            ("a\u{85}b", bad('\u{85}', "a control character")),
            ("a\u{2028}b", bad('\u{2028}', "white space other than a space")),
            ("a\u{a0}b", bad('\u{a0}', "white space other than a space")),
            ("東\u{3000}京", bad('\u{3000}', "white space other than a space")),
            (" a", NameError::Space),
            ("a ", NameError::Space),
            ("a  b", NameError::Space),
            ("a\u{202e}b", bad('\u{202e}', "invisible")),
            ("a\u{2067}b", bad('\u{2067}', "invisible")),
            ("a\u{200b}b", bad('\u{200b}', "invisible")),
            ("a\u{ad}b", bad('\u{ad}', "invisible")),
            ("a\u{feff}b", bad('\u{feff}', "invisible")),
            ("\u{3164}", bad('\u{3164}', "invisible")),
            ("\u{2800}", bad('\u{2800}', "invisible")),
            ("a\u{34f}b", bad('\u{34f}', "invisible")),
            ("a\u{e0067}", bad('\u{e0067}', "invisible")),
            ("a\u{e000}", bad('\u{e000}', "for private use")),
            ("a\u{378}", bad('\u{378}', "not assigned in Unicode")),
            ("a\u{fffe}", bad('\u{fffe}', "not assigned in Unicode")),
            ("a\u{fffd}", bad('\u{fffd}', "a placeholder for damaged text")),
            ("\u{301}a", NameError::Mark('\u{301}')),
            ("\u{200d}\u{301}a", NameError::Mark('\u{301}')),
        ] {
            assert_eq!(tag(name).unwrap_err(), why, "{name:?}");
        }
        assert_eq!(topic("\u{2100}").unwrap(), "\u{2100}");
    }

    #[test]
    fn the_length_limit_applies_to_the_canonical_form_in_bytes() {
        let (most, too_many) = ("é".repeat(NAME_BYTES_MAX / 2), "é".repeat(NAME_BYTES_MAX / 2 + 1));
        let too_long = Err(NameError::TooLong { length: NAME_BYTES_MAX + 2 });
        for form in [tag, topic] {
            assert_eq!(form(&most).as_deref(), Ok(&*most));
            assert_eq!(form(&too_many), too_long);
            assert_eq!(form(&"e\u{301}".repeat(NAME_BYTES_MAX / 2)).as_deref(), Ok(&*most), "shorter than the text");
            assert_eq!(form(&"x".repeat(NAME_BYTES_MAX + 1)), Err(NameError::TooLong { length: NAME_BYTES_MAX + 1 }));
        }
        assert_eq!(tag(&"\u{fdfa}".repeat(8)), Err(NameError::TooLong { length: 264 }), "longer than the text");
    }

    #[test]
    fn each_character_has_an_idempotent_case_insensitive_form() {
        // Skips ideographs and Hangul, which have no cases, and all characters above them.
        let others =
            |code: &u32| *code < 0x3400 || (0xa000..0xac00).contains(code) || (0xf900..0x2_0000).contains(code);
        for character in (0..0x2_0000).filter(others).filter_map(char::from_u32) {
            let name = format!("a{character}");
            for form in [tag, topic] {
                if let Ok(formed) = form(&name) {
                    assert_eq!(form(&formed).as_deref(), Ok(&*formed), "{character:?}");
                    assert!(!formed.contains(['/', '\\', '"']) && !formed.contains(is_for_looks), "{character:?}");
                }
            }
            // Unicode folds the dotless i to itself, although it has the same upper case as the dotted i.
            let Some(formed) = tag(&name).ok().filter(|_| character != 'ı') else { continue };
            for other in [name.to_uppercase(), name.to_lowercase()] {
                assert_eq!(tag(&other).as_deref(), Ok(&*formed), "{character:?}");
            }
        }
    }

    /// Text with many marks and ligatures, and in both cases.
    fn text() -> impl Strategy<Value = String> {
        let letter = prop_oneof![
            any::<char>(),
            prop::char::range('\u{300}', '\u{36f}'),
            prop::char::range('A', 'z'),
            prop::char::range('\u{370}', '\u{3ff}'),
            prop::char::range('\u{1f00}', '\u{1fff}'),
            prop::char::range('\u{ac00}', '\u{d7a3}'),
            prop::char::range('\u{1100}', '\u{11ff}'),
            prop::char::range('\u{ff00}', '\u{ffef}'),
        ];
        prop::collection::vec(letter, 1..12).prop_map(|letters| letters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn canonical_forms_are_idempotent(text in text()) {
            for form in [tag, topic] {
                if let Ok(formed) = form(&text) {
                    prop_assert_eq!(form(&formed), Ok(Cow::Borrowed(&*formed)));
                }
            }
        }

        #[test]
        fn canonically_equivalent_texts_have_the_same_form(text in text()) {
            // A leading combining mark is refused, and so is a character that becomes one.
            let text = format!("a{text}");
            if let Ok(formed) = topic(&text) {
                for other in [NFD.normalize(&text), NFC.normalize(&text)] {
                    prop_assert_eq!(topic(&other), Ok(Cow::Borrowed(&*formed)));
                }
            }
            if let Ok(formed) = tag(&text) {
                let folded: String = CASES.fold_string(&NFD.normalize(&text)).into_owned();
                for other in [NFD.normalize(&text), NFC.normalize(&text), folded.into()] {
                    prop_assert_eq!(tag(&other), Ok(Cow::Borrowed(&*formed)));
                }
            }
        }
    }
}
