//! JSON-RPC ids (and progress tokens, which follow the same rules) as table keys.
//!
//! An id is a string or an integer. Strings compare by their decoded value, numbers by their
//! exact mathematical value at any size: `3`, `3.0` and `30e-1` are one id, `"3"` is another.
//! What is neither (null, a boolean, a fraction, an array, an object) is not an id.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

use serde::Deserializer as _;
use serde::de::Visitor;

/// An owned id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// An integer that fits.
    Int(i64),
    /// An integer that does not: sign, digits without trailing zeros, `e`, power of ten.
    Big(Box<str>),
    /// A string, decoded; bytes, since JSON strings can hold lone surrogates (kept as WTF-8).
    Str(Box<[u8]>),
}

/// An id as parsed from a message, borrowed where that is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdRef<'a> {
    /// As [`Id::Int`].
    Int(i64),
    /// As [`Id::Big`].
    Big(Box<str>),
    /// As [`Id::Str`].
    Str(Cow<'a, [u8]>),
}

impl<'a> IdRef<'a> {
    /// Reads the JSON text of one value; `None` if it is not an id.
    pub fn parse(json: &'a str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'"' => {
                let inner = json.get(1..json.len() - 1)?;
                if inner.contains('\\') {
                    decode(json).map(|text| Self::Str(Cow::Owned(text)))
                } else {
                    Some(Self::Str(Cow::Borrowed(inner.as_bytes())))
                }
            }
            b'-' | b'0'..=b'9' => integer(json),
            _ => None,
        }
    }

    /// The owned form.
    pub fn to_id(&self) -> Id {
        match self {
            Self::Int(value) => Id::Int(*value),
            Self::Big(text) => Id::Big(text.clone()),
            Self::Str(text) => Id::Str(text.as_ref().into()),
        }
    }

    /// Makes `id` this one, in the room that it has if that fits.
    #[inline(always)]
    pub(crate) fn write_to(&self, id: &mut Id) {
        match (self, &mut *id) {
            (Self::Str(new), Id::Str(old)) if new.len() == old.len() => old.copy_from_slice(new),
            _ => *id = self.to_id(),
        }
    }

    /// Whether it is the same id as `id`.
    #[inline]
    pub fn matches(&self, id: &Id) -> bool {
        match (self, id) {
            (Self::Int(a), Id::Int(b)) => a == b,
            (Self::Big(a), Id::Big(b)) => a == b,
            (Self::Str(a), Id::Str(b)) => a.as_ref() == b.as_ref(),
            _ => false,
        }
    }

    /// The id of the other type that a careless peer may have meant: `7` for `"7"` and back.
    pub(crate) fn other_type(&self) -> Option<Self> {
        match self {
            Self::Int(value) => Some(Self::Str(Cow::Owned(value.to_string().into_bytes()))),
            Self::Big(_) => None,
            Self::Str(text) => {
                let text = std::str::from_utf8(text).ok()?;
                let value: i64 = text.parse().ok()?;
                // Only the canonical spelling: " 7", "+7" and "07" are no numbers.
                (value.to_string() == text).then_some(Self::Int(value))
            }
        }
    }

    #[inline(always)]
    pub(crate) fn hash_with(&self, hasher: &impl BuildHasher) -> u64 {
        match self {
            Self::Int(value) => hash_int(*value, hasher),
            Self::Big(text) => hash_bytes(text.as_bytes(), hasher),
            Self::Str(text) => hash_bytes(text, hasher),
        }
    }
}

/// Room for a string id that is kept for the next one: most clients' ids are all of one length.
const KEPT_ROOM: usize = 64;

impl Id {
    /// Lets go of its memory, but for what [`IdRef::write_to`] may well use again.
    #[inline(always)]
    pub(crate) fn keep_room(&mut self) {
        if !matches!(self, Self::Int(_))
            && !matches!(self, Self::Str(text) if text.len() <= KEPT_ROOM)
        {
            *self = Self::Int(0);
        }
    }

    #[inline(always)]
    pub(crate) fn hash_with(&self, hasher: &impl BuildHasher) -> u64 {
        match self {
            Self::Int(value) => hash_int(*value, hasher),
            Self::Big(text) => hash_bytes(text.as_bytes(), hasher),
            Self::Str(text) => hash_bytes(text, hasher),
        }
    }

    /// It as JSON text. Lone surrogates, which Rust's strings cannot hold, come out as U+FFFD.
    pub fn to_json(&self) -> String {
        match self {
            Self::Int(value) => value.to_string(),
            Self::Big(text) => text.to_string(),
            Self::Str(text) => serde_json::Value::from(String::from_utf8_lossy(text)).to_string(),
        }
    }

    /// The borrowed form.
    pub fn as_ref(&self) -> IdRef<'_> {
        match self {
            Self::Int(value) => IdRef::Int(*value),
            Self::Big(text) => IdRef::Big(text.clone()),
            Self::Str(text) => IdRef::Str(Cow::Borrowed(text)),
        }
    }
}

fn hash_int(value: i64, hasher: &impl BuildHasher) -> u64 {
    hasher.hash_one(value)
}

/// Without a mark of the kind: ids of two kinds may share a hash, since they never compare equal.
#[inline]
fn hash_bytes(bytes: &[u8], hasher: &impl BuildHasher) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(bytes);
    state.finish()
}

/// Decodes a JSON string that holds escapes. Lone surrogates, which `str` cannot hold and which
/// Python and JavaScript accept, come out as WTF-8.
pub(crate) fn decode(json: &str) -> Option<Vec<u8>> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_bytes(Bytes).ok()
}

fn integer(json: &str) -> Option<IdRef<'static>> {
    // The common case first: up to 18 digits cannot overflow.
    if json.len() <= 18 && !json.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return json.parse().ok().map(IdRef::Int);
    }
    let (sign, rest) = json.strip_prefix('-').map_or(("", json), |rest| ("-", rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let leading = digits.trim_start_matches('0');
    if leading.is_empty() {
        return Some(IdRef::Int(0));
    }
    let significant = leading.trim_end_matches('0');
    let dropped = i64::try_from(leading.len() - significant.len()).ok()?;
    let scale = i64::try_from(fraction.len()).ok()?;
    // An exponent that does not fit in 64 bits names no id that anybody could have counted to.
    let exponent: i64 = exponent.parse().ok()?;
    let exponent = exponent.checked_sub(scale)?.checked_add(dropped)?;
    let zeros = usize::try_from(exponent).ok()?;
    if significant.len().saturating_add(zeros) <= 19 {
        let plain = format!("{sign}{significant}{}", "0".repeat(zeros));
        if let Ok(value) = plain.parse() {
            return Some(IdRef::Int(value));
        }
    }
    Some(IdRef::Big(format!("{sign}{significant}e{exponent}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k12_numbers_compare_by_value_and_strings_by_what_they_spell() {
        let same = [
            ("3", "3.0"),
            ("3", "30e-1"),
            ("-0", "0"),
            ("0", "0.000e99999999999999999999"),
            ("9007199254740993", "9007199254740993.0"),
            ("123456789012345678901234567890", "1.2345678901234567890123456789e29"),
            ("100000000000000000000", "1e20"),
            ("9223372036854775807", "9223372036854775807.0"),
            (r#""a""#, r#""\u0061""#),
            (r#""\ud800""#, r#""\uD800""#),
            (r#""😀""#, r#""\ud83d\ude00""#),
        ];
        for (a, b) in same {
            assert_eq!(IdRef::parse(a).unwrap(), IdRef::parse(b).unwrap(), "{a} and {b}");
        }
        let different = [
            ("7", r#""7""#),
            ("9007199254740993", "9007199254740992"),
            ("1e20", "100000000000000000001"),
            ("9223372036854775808", "-9223372036854775808"),
            (r#""""#, "0"),
        ];
        for (a, b) in different {
            assert_ne!(IdRef::parse(a).unwrap(), IdRef::parse(b).unwrap(), "{a} and {b}");
        }
    }

    #[test]
    fn k12_what_is_no_string_and_no_integer_is_no_id() {
        for json in ["null", "true", "1.5", "1e-1", "{}", "[1]", "1e99999999999999999999"] {
            assert_eq!(IdRef::parse(json), None, "{json}");
        }
    }

    #[test]
    fn k12_zero_and_the_empty_string_are_ids() {
        assert_eq!(IdRef::parse("0"), Some(IdRef::Int(0)));
        assert_eq!(IdRef::parse(r#""""#), Some(IdRef::Str(Cow::Borrowed(b""))));
    }
}
