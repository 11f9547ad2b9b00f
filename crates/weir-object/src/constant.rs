//! Values of load-time constants (`const volatile` globals): from what a user writes to the bytes of the variable.
//!
//! Owns sizes and ranges, by the object's own type information. Invariant: what is returned has exactly the variable's size.

use thiserror::Error;
use weir_vm::Object;
use weir_vm::btf::Shape;

/// A value as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, `true` or `false`; for integers, enumerations and the like.
    Number(i128),
    /// Text for arrays of characters, padded with zeros.
    Text(String),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// Elements of an array from its first on; the rest is zero.
    List(Vec<Value>),
}

/// Why a constant cannot have a value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConstantError {
    /// No such variable.
    #[error("the object has no constant {name:?}; {}", if known.is_empty() { "it has none at all".to_owned() } else { format!("it has {known}") })]
    Missing {
        /// The name asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It does not fit the variable.
    #[error("constant {name} has {size} bytes: {why}")]
    Unfit {
        /// Constant.
        name: String,
        /// Its size.
        size: u32,
        /// What is wrong.
        why: String,
    },
    /// Text that is no value.
    #[error(
        "{0:?} is not a value: write a number (7, 0x1f, -1), true, false, hex:00ff, or text:words"
    )]
    Text(String),
}

impl Value {
    /// Reads a value as the command line has it: a number, `true`, `false`, `hex:00ff` or `text:words`.
    ///
    /// # Errors
    /// [`ConstantError::Text`].
    pub fn read(text: &str) -> Result<Value, ConstantError> {
        let wrong = || ConstantError::Text(text.to_owned());
        if let Some(digits) = text.strip_prefix("hex:") {
            let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
            let byte = |pair: &[u8; 2]| {
                let pair = std::str::from_utf8(pair).ok()?;
                u8::from_str_radix(pair, 16).ok()
            };
            let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
            return bytes
                .filter(|_| rest.is_empty())
                .map(Value::Bytes)
                .ok_or_else(wrong);
        }
        if let Some(words) = text.strip_prefix("text:") {
            return Ok(Value::Text(words.to_owned()));
        }
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text),
        };
        let number = match (digits, digits.strip_prefix("0x")) {
            ("true", _) => Some(1),
            ("false", _) => Some(0),
            (_, Some(hex)) => i128::from_str_radix(hex, 16).ok(),
            _ => digits.parse().ok(),
        };
        number
            .map(|n: i128| Value::Number(sign * n))
            .ok_or_else(wrong)
    }
}

/// Names of an object's constants, sorted.
pub fn constants(object: &Object) -> Vec<String> {
    let mut names: Vec<String> = sections(object)
        .flat_map(|section| object.variables(section))
        .map(|variable| variable.name)
        .collect();
    names.sort_unstable();
    names
}

/// The bytes of constant `name` for a value.
///
/// # Errors
/// [`ConstantError`]: there is no such constant, or the value does not fit.
pub fn encode(object: &Object, name: &str, value: &Value) -> Result<Vec<u8>, ConstantError> {
    let found = sections(object)
        .flat_map(|section| object.variables(section))
        .find(|variable| variable.name == name);
    let Some(variable) = found else {
        return Err(ConstantError::Missing {
            name: name.to_owned(),
            known: constants(object).join(", "),
        });
    };
    let mut bytes = vec![0; variable.size as usize];
    let unfit = |why: String| ConstantError::Unfit {
        name: name.to_owned(),
        size: variable.size,
        why,
    };
    write(object, variable.type_id, value, &mut bytes).map_err(unfit)?;
    Ok(bytes)
}

/// Writes a value of a type, whose size `to` has.
fn write(object: &Object, type_id: u32, value: &Value, to: &mut [u8]) -> Result<(), String> {
    let room = to.len();
    let copy = |from: &[u8], to: &mut [u8]| match to.get_mut(..from.len()) {
        Some(start) => {
            start.copy_from_slice(from);
            Ok(())
        }
        None => Err(format!("{} bytes are too many", from.len())),
    };
    match value {
        Value::Bytes(bytes) if bytes.len() == room => copy(bytes, to),
        Value::Bytes(bytes) => Err(format!("{} bytes were given", bytes.len())),
        // The last byte stays zero, as programs expect of text.
        Value::Text(text) if text.len() >= room => Err(format!(
            "text of {} bytes and its end do not fit",
            text.len()
        )),
        Value::Text(text) => copy(text.as_bytes(), to),
        Value::Number(number) => {
            if !matches!(room, 1 | 2 | 4 | 8) {
                return Err("it is not a number; give it with hex:".to_owned());
            }
            let bits = 8 * room as u32;
            let (least, most) = (-(1i128 << (bits - 1)), (1i128 << bits) - 1);
            if !(least..=most).contains(number) {
                return Err(format!("{number} is not between {least} and {most}"));
            }
            copy(&number.to_le_bytes()[..room], to)
        }
        Value::List(values) => {
            let btf = object.btf().ok_or("the object has no type information")?;
            let resolved = btf.resolve(type_id).map_err(|e| e.to_string())?;
            let Ok(Shape::Array { element, .. }) = btf.shape(resolved) else {
                return Err("it is not an array".to_owned());
            };
            let size = btf.size_of(*element).map_err(|e| e.to_string())? as usize;
            if size == 0 || values.len() * size > room {
                return Err(format!("{} elements are too many", values.len()));
            }
            let parts = to.chunks_exact_mut(size).zip(values);
            parts
                .into_iter()
                .try_for_each(|(part, value)| write(object, *element, value, part))
        }
    }
}

fn sections(object: &Object) -> impl Iterator<Item = &str> {
    object
        .map_names()
        .filter(|name| name.starts_with(".rodata"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        assert_eq!(Value::read("7"), Ok(Value::Number(7)));
        assert_eq!(Value::read("-0x10"), Ok(Value::Number(-16)));
        assert_eq!(Value::read("true"), Ok(Value::Number(1)));
        assert_eq!(Value::read("hex:00ff"), Ok(Value::Bytes(vec![0, 255])));
        assert_eq!(Value::read("text:a b"), Ok(Value::Text("a b".to_owned())));
        for wrong in ["", "hex:0", "hex:zz", "seven", "1.5"] {
            assert!(Value::read(wrong).is_err(), "{wrong}");
        }
    }
}
