//! How the model reads a message: every object into a map, every id into its plain spelling.
//! Slow, and nothing like the core's reader.

use std::collections::HashMap;

use serde_json::value::RawValue;

/// The members of a JSON object; of a repeated key the last one.
pub type Fields<'a> = HashMap<String, &'a RawValue>;

/// Reads an object, if it is one.
pub fn object(text: &str) -> Option<Fields<'_>> {
    serde_json::from_str(text).ok()
}

/// Reads the elements of an array, if it is one.
pub fn array(text: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text).ok()
}

/// Reads a string, if it is one.
pub fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// An id or progress token by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A string.
    Text(String),
    /// An integer: its sign and all its digits. Exponents are counted out.
    Integer(String),
}

/// What these bytes name, if they name anything. Exponents beyond four digits name nothing here.
pub fn key(raw: &str) -> Option<Key> {
    if raw.starts_with('"') {
        return string(raw).map(Key::Text);
    }
    if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let (sign, rest) = raw.strip_prefix('-').map_or(("", raw), |rest| ("-", rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(Key::Integer("0".into()));
    }
    let exponent: i64 = exponent.parse().ok().filter(|exponent: &i64| exponent.abs() < 10_000)?;
    let mut scale = exponent - i64::try_from(fraction.len()).ok()?;
    while scale > 0 {
        digits.push('0');
        scale -= 1;
    }
    while scale < 0 {
        // A digit that is not 0 behind the point: a fraction.
        if digits.pop().is_some_and(|digit| digit != '0') {
            return None;
        }
        scale += 1;
    }
    Some(Key::Integer(format!("{sign}{}", digits.trim_start_matches('0'))))
}

impl Key {
    /// The integer, if it is one of 64 bits.
    pub fn small(&self) -> Option<i64> {
        match self {
            Self::Integer(digits) => digits.parse().ok(),
            Self::Text(_) => None,
        }
    }

    /// The integer, if it is one that a request of ours could have.
    pub fn natural(&self) -> Option<u64> {
        self.small().and_then(|id| u64::try_from(id).ok())
    }

    /// It as JSON.
    pub fn spelled(&self) -> String {
        match self {
            Self::Integer(digits) => digits.clone(),
            Self::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        }
    }

    /// The id of the other type that a careless peer may have meant.
    pub fn other_type(&self) -> Option<Self> {
        match self {
            Self::Integer(_) => self.small().map(|number| Self::Text(number.to_string())),
            Self::Text(text) => {
                let number: i64 = text.parse().ok()?;
                (number.to_string() == *text).then(|| Self::Integer(text.clone()))
            }
        }
    }
}

/// `text` with these parts of it replaced.
pub fn replace(text: &str, parts: &[(&str, String)]) -> String {
    let start = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    let mut parts: Vec<_> = parts.iter().map(|(old, new)| (start(old), old.len(), new)).collect();
    parts.sort_unstable();
    let mut replaced = text.to_owned();
    for (at, len, new) in parts.into_iter().rev() {
        replaced.replace_range(at..at + len, new);
    }
    replaced
}
