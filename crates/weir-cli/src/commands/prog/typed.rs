//! Bytes of maps as JSON by their BTF types, and back.
//!
//! Integers are numbers in host order (those of type `__be16`, `__be32` and `__be64` too: 80 is port 80), `bool` is true or false, enumerations are
//! names, pointers and floating-point numbers hexadecimal strings, `char` arrays text, structs and unions objects by member.
//! Without a type, bytes are a string of hexadecimal digits. What a type cannot hold (padding that is not zero) goes beside the members, as `@bytes`.
//! Invariant: `encode(decode(bytes)) == bytes`, whatever the bytes and the types.

use serde_json::{Map, Value, json};
use weir_vm::Btf;
use weir_vm::btf::{Member, Shape};

/// Deepest nesting of structs and arrays that is followed.
const DEPTH: usize = 16;
/// Member that holds all bytes.
const BYTES: &str = "@bytes";

/// A type, if there is one.
#[derive(Clone, Copy)]
pub(super) struct Type<'b> {
    btf: Option<&'b Btf>,
    id: Option<u32>,
}

impl<'b> Type<'b> {
    pub(super) fn new(btf: Option<&'b Btf>, id: Option<u32>) -> Type<'b> {
        Type { btf, id }
    }

    /// The JSON of `bytes`.
    pub(super) fn decode(self, bytes: &[u8]) -> Value {
        let Some((btf, id)) = self.known(bytes.len()) else {
            return Value::String(hex(bytes));
        };
        let Some(mut value) = decode(btf, id, bytes, 0) else {
            return json!({ BYTES: hex(bytes) });
        };
        if self.encode(bytes.len(), &value).as_deref() == Ok(bytes) {
            return value;
        }
        if let Value::Object(members) = &mut value {
            members.insert(BYTES.to_owned(), Value::String(hex(bytes)));
            if self.encode(bytes.len(), &value).as_deref() == Ok(bytes) {
                return value;
            }
        }
        json!({ BYTES: hex(bytes) })
    }

    /// The `size` bytes of a JSON value. Members that are left out are zero.
    pub(super) fn encode(self, size: usize, value: &Value) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; size];
        self.encode_into(&mut bytes, value)?;
        Ok(bytes)
    }

    /// As [`Type::encode`] over what is there: members that are left out stay.
    pub(super) fn encode_into(self, bytes: &mut [u8], value: &Value) -> Result<(), String> {
        match self.known(bytes.len()) {
            Some((btf, id)) => encode(btf, id, bytes, value, 0),
            None => from_hex(value, bytes),
        }
    }

    /// The type, unless its size is another one.
    fn known(self, size: usize) -> Option<(&'b Btf, u32)> {
        let (btf, id) = (self.btf?, self.id?);
        (btf.size_of(id).ok()? as usize == size).then_some((btf, id))
    }
}

/// Two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn decode(btf: &Btf, id: u32, bytes: &[u8], depth: usize) -> Option<Value> {
    if depth > DEPTH {
        return None;
    }
    let target = btf.resolve(id).ok()?;
    Some(match btf.shape(target).ok()? {
        Shape::Int {
            size: 1 | 2 | 4 | 8,
            signed,
            boolean,
            ..
        } => {
            let value = number(bytes, is_network_order(btf, id))?;
            match (boolean, value) {
                (true, 0 | 1) => Value::Bool(value == 1),
                _ if *signed => json!(sign_extend(value, bytes.len() * 8)),
                _ => json!(value),
            }
        }
        Shape::Enum { signed, .. } => {
            let value = number(bytes, false)?;
            let signed_value = if *signed {
                sign_extend(value, bytes.len() * 8)
            } else {
                value as i64
            };
            let names = btf.enumerators(target);
            match names.iter().find(|(_, v)| *v == signed_value) {
                Some((name, _)) => json!(name),
                None if *signed => json!(signed_value),
                None => json!(value),
            }
        }
        Shape::Pointer(_) | Shape::Float { .. } | Shape::Int { .. } => {
            let digits: Vec<u8> = bytes.iter().rev().copied().collect();
            json!(format!("0x{}", hex(&digits)))
        }
        Shape::Array { element, .. } => {
            if is_character(btf, *element)
                && let Some(text) = text(bytes)
            {
                return Some(Value::String(text));
            }
            let size = btf.size_of(*element).ok().filter(|s| *s > 0)? as usize;
            let elements = bytes.chunks_exact(size);
            Value::Array(
                elements
                    .map(|e| decode(btf, *element, e, depth + 1))
                    .collect::<Option<_>>()?,
            )
        }
        Shape::Struct { .. } => {
            let mut object = Map::new();
            members_into(btf, target, bytes, depth, &mut object)?;
            Value::Object(object)
        }
        _ => return None,
    })
}

/// Members of anonymous structs and unions stand among those of the struct they are in, as in C.
fn members_into(
    btf: &Btf,
    id: u32,
    bytes: &[u8],
    depth: usize,
    object: &mut Map<String, Value>,
) -> Option<()> {
    if depth > DEPTH {
        return None;
    }
    for member in btf.members(id).ok()? {
        if let Some((position, width)) = bit_field(btf, &member) {
            if !member.name.is_empty() {
                let raw = read_bits(bytes, position, width)?;
                let value = if is_signed(btf, member.type_id) {
                    json!(sign_extend(raw, width as usize))
                } else {
                    json!(raw)
                };
                object.insert(member.name, value);
            }
            continue;
        }
        let part = bytes.get(range(btf, &member)?)?;
        if member.name.is_empty() {
            members_into(
                btf,
                btf.resolve(member.type_id).ok()?,
                part,
                depth + 1,
                object,
            )?;
        } else if !part.is_empty() {
            let value = decode(btf, member.type_id, part, depth + 1)?;
            object.insert(member.name, value);
        }
    }
    Some(())
}

fn encode(btf: &Btf, id: u32, bytes: &mut [u8], value: &Value, depth: usize) -> Result<(), String> {
    let cannot = || {
        format!(
            "{value} does not fit type {}",
            super::declare::name(btf, id)
        )
    };
    if depth > DEPTH {
        return Err("the type is nested too deeply".to_owned());
    }
    let target = btf.resolve(id).map_err(|e| e.to_string())?;
    let shape = btf.shape(target).map_err(|e| e.to_string())?;
    if let Value::Object(object) = value {
        return encode_object(btf, target, bytes, object, depth);
    }
    match (shape, value) {
        (Shape::Int { .. }, Value::Bool(flag)) => put(bytes, u64::from(*flag), false),
        (Shape::Enum { .. }, Value::String(name)) => {
            let names = btf.enumerators(target);
            let (_, found) = names
                .iter()
                .find(|(n, _)| n == name)
                .ok_or_else(|| format!("{name:?} is not an enumerator of this type"))?;
            put(bytes, *found as u64, false);
        }
        (Shape::Int { .. } | Shape::Enum { .. }, Value::Number(_)) => {
            let bits = bytes.len() * 8;
            let raw = match (value.as_u64(), value.as_i64()) {
                (Some(n), _) if bits >= 64 || n >> bits == 0 => n,
                (_, Some(n)) if n < 0 && sign_extend(n as u64, bits) == n => n as u64,
                _ => return Err(cannot()),
            };
            put(bytes, raw, is_network_order(btf, id));
        }
        (Shape::Int { .. } | Shape::Pointer(_) | Shape::Float { .. }, Value::String(digits)) => {
            let digits = digits.strip_prefix("0x").ok_or_else(cannot)?;
            if digits.len() != bytes.len() * 2 {
                return Err(cannot());
            }
            from_digits(digits, bytes)?;
            bytes.reverse();
        }
        (Shape::Array { element, .. }, Value::String(text)) if is_character(btf, *element) => {
            if text.len() > bytes.len() {
                return Err(cannot());
            }
            let (head, tail) = bytes.split_at_mut(text.len());
            head.copy_from_slice(text.as_bytes());
            tail.fill(0);
        }
        (Shape::Array { element, .. }, Value::Array(values)) => {
            let size = btf.size_of(*element).map_err(|e| e.to_string())? as usize;
            if size == 0 || values.len() > bytes.len() / size {
                return Err(format!(
                    "{} elements are more than the array of type {} has",
                    values.len(),
                    super::declare::name(btf, id)
                ));
            }
            for (part, value) in bytes.chunks_exact_mut(size).zip(values) {
                encode(btf, *element, part, value, depth + 1)?;
            }
        }
        _ => return Err(cannot()),
    }
    Ok(())
}

fn encode_object(
    btf: &Btf,
    id: u32,
    bytes: &mut [u8],
    object: &Map<String, Value>,
    depth: usize,
) -> Result<(), String> {
    if let Some(all) = object.get(BYTES) {
        from_hex(all, bytes)?;
    }
    for (name, value) in object.iter().filter(|(name, _)| *name != BYTES) {
        let known = member_into(btf, id, bytes, (name, value), depth)?;
        if !known {
            return Err(format!(
                "{} has no member {name:?}",
                super::declare::name(btf, id)
            ));
        }
    }
    Ok(())
}

/// Writes one member, also of anonymous structs and unions. Whether there is one of that name.
fn member_into(
    btf: &Btf,
    id: u32,
    bytes: &mut [u8],
    (name, value): (&str, &Value),
    depth: usize,
) -> Result<bool, String> {
    let outside = || format!("member {name:?} lies outside its struct");
    if depth > DEPTH {
        return Err("the type is nested too deeply".to_owned());
    }
    let Ok(members) = btf.members(id) else {
        return Ok(false);
    };
    for member in members {
        if member.name != name && !member.name.is_empty() {
            continue;
        }
        if let Some((position, width)) = bit_field(btf, &member) {
            if member.name.is_empty() {
                continue;
            }
            let raw = value.as_u64().or(value.as_i64().map(|n| n as u64));
            let raw = raw
                .filter(|n| {
                    width >= 64 || n >> width == 0 || sign_extend(*n, width as usize) == *n as i64
                })
                .ok_or_else(|| format!("{value} does not fit {width} bits of {name:?}"))?;
            write_bits(bytes, position, width, raw).ok_or_else(outside)?;
            return Ok(true);
        }
        let range = range(btf, &member).ok_or_else(outside)?;
        let part = bytes.get_mut(range).ok_or_else(outside)?;
        if member.name.is_empty() {
            let inner = btf.resolve(member.type_id).map_err(|e| e.to_string())?;
            if member_into(btf, inner, part, (name, value), depth + 1)? {
                return Ok(true);
            }
        } else {
            encode(btf, member.type_id, part, value, depth + 1)
                .map_err(|e| format!("{name}: {e}"))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of an ordinary member in its struct.
fn range(btf: &Btf, member: &Member) -> Option<std::ops::Range<usize>> {
    let start = (member.bit_offset / 8) as usize;
    let size = btf.size_of(member.type_id).ok()? as usize;
    Some(start..start.checked_add(size)?)
}

/// Position and width in bits of a bit field. Those without the flag of newer compilers have the width in their type.
fn bit_field(btf: &Btf, member: &Member) -> Option<(u32, u32)> {
    if member.bit_width > 0 {
        return Some((member.bit_offset, member.bit_width));
    }
    let target = btf.resolve(member.type_id).ok()?;
    match btf.shape(target).ok()? {
        Shape::Int { size, bits, .. } if *bits != 0 && *bits < size * 8 => {
            Some((member.bit_offset, *bits))
        }
        _ => None,
    }
}

fn read_bits(bytes: &[u8], position: u32, width: u32) -> Option<u64> {
    let mut value = 0;
    for bit in 0..width.min(64) {
        let at = position + bit;
        let byte = bytes.get((at / 8) as usize)?;
        value |= u64::from(byte >> (at % 8) & 1) << bit;
    }
    Some(value)
}

fn write_bits(bytes: &mut [u8], position: u32, width: u32, value: u64) -> Option<()> {
    for bit in 0..width.min(64) {
        let at = position + bit;
        let byte = bytes.get_mut((at / 8) as usize)?;
        let mask = 1 << (at % 8);
        if value >> bit & 1 == 1 {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
    }
    Some(())
}

fn is_signed(btf: &Btf, id: u32) -> bool {
    let shape = btf.resolve(id).and_then(|id| btf.shape(id));
    matches!(
        shape,
        Ok(Shape::Int { signed: true, .. } | Shape::Enum { signed: true, .. })
    )
}

/// Whether the type is one of the kernel's names for numbers in network byte order.
fn is_network_order(btf: &Btf, id: u32) -> bool {
    let mut at = id;
    for _ in 0..DEPTH {
        match btf.shape(at) {
            Ok(Shape::Typedef(target)) => {
                if matches!(btf.name(at), "__be16" | "__be32" | "__be64") {
                    return true;
                }
                at = *target;
            }
            Ok(Shape::Alias(target) | Shape::Variable { target, .. }) => at = *target,
            _ => return false,
        }
    }
    false
}

fn is_character(btf: &Btf, id: u32) -> bool {
    let Ok(id) = btf.resolve(id) else {
        return false;
    };
    let named = btf.name(id) == "char";
    matches!(btf.shape(id), Ok(Shape::Int { size: 1, character, .. }) if named || *character)
}

/// The text in a `char` array: printable, and zero to the end behind it.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    let printable = text.iter().all(|b| (0x20..0x7f).contains(b));
    (printable && rest.iter().all(|b| *b == 0)).then(|| String::from_utf8_lossy(text).into_owned())
}

fn number(bytes: &[u8], network_order: bool) -> Option<u64> {
    let mut wide = [0; 8];
    let part = wide.get_mut(..bytes.len())?;
    part.copy_from_slice(bytes);
    if network_order {
        part.reverse();
    }
    Some(u64::from_le_bytes(wide))
}

fn put(bytes: &mut [u8], value: u64, network_order: bool) {
    let n = bytes.len().min(8);
    let (low, high) = bytes.split_at_mut(n);
    low.copy_from_slice(&value.to_le_bytes()[..n]);
    high.fill(0);
    if network_order {
        low.reverse();
    }
}

fn sign_extend(value: u64, bits: usize) -> i64 {
    let unused = 64usize.saturating_sub(bits.max(1)) as u32;
    ((value << unused) as i64) >> unused
}

fn from_hex(value: &Value, bytes: &mut [u8]) -> Result<(), String> {
    let text = value.as_str().ok_or_else(|| {
        format!("{value} has no type to be read by: give bytes as a string of hexadecimal digits")
    })?;
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if digits.len() != bytes.len() * 2 {
        return Err(format!(
            "{} hexadecimal digits are not {} bytes",
            digits.len(),
            bytes.len()
        ));
    }
    from_digits(&digits, bytes)
}

fn from_digits(digits: &str, bytes: &mut [u8]) -> Result<(), String> {
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok();
        *byte = pair
            .and_then(|p| u8::from_str_radix(p, 16).ok())
            .ok_or_else(|| format!("{digits:?} are not hexadecimal digits"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_vm::Object;

    /// tests/objects/types.c, compiled.
    fn object() -> Object {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/types.c");
        let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
        let output = std::process::Command::new(clang)
            .args([
                "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", source, "-o", "-",
            ])
            .output()
            .expect("clang runs: `make setup` installs it");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        Object::parse(&output.stdout).expect("the object parses")
    }

    fn with_types(check: impl Fn(Type<'_>, usize)) {
        let object = object();
        let btf = object.btf();
        let flows = object.map_definition("flows").expect("the map is declared");
        check(Type::new(btf, flows.value_type), flows.value_size as usize);
        check(Type::new(btf, flows.key_type), flows.key_size as usize);
        check(Type::new(btf, None), 7);
        // A type of another size is as good as none.
        check(Type::new(btf, flows.key_type), 3);
    }

    #[test]
    fn every_pattern_of_bytes_comes_back() {
        with_types(|kind, size| {
            let mut runner = proptest::test_runner::TestRunner::default();
            let byte = prop_oneof![2 => Just(0u8), 1 => any::<u8>(), 1 => 0x20u8..0x7f];
            let bytes = prop::collection::vec(byte, size);
            runner
                .run(&bytes, |bytes| {
                    let text = kind.decode(&bytes).to_string();
                    let value: Value = serde_json::from_str(&text).expect("it is JSON");
                    prop_assert_eq!(kind.encode(size, &value), Ok(bytes), "{}", text);
                    Ok(())
                })
                .expect("every pattern comes back");
        });
    }

    #[test]
    fn members_are_readable() {
        let object = object();
        let flows = object.map_definition("flows").expect("the map is declared");
        let kind = Type::new(object.btf(), flows.value_type);
        let size = flows.value_size as usize;
        let given = json!({
            "byte": 255, "small": -3, "flag": true, "name": "eth0", "negative": -7, "port": 80, "color": "BLUE",
            "mid": 70_000, "signed_field": -1, "inners": [{"a": 1}, {"b": 2}], "word": 0x0403_0201, "grid": [[1, 2, 3], [4]],
            "pointer": "0x00000000deadbeef",
        });
        let bytes = kind.encode(size, &given).expect("all members are known");
        let back = kind.decode(&bytes);
        for (name, value) in [
            ("byte", json!(255)),
            ("small", json!(-3)),
            ("flag", json!(true)),
            ("name", json!("eth0")),
            ("negative", json!(-7)),
            ("port", json!(80)),
            ("color", json!("BLUE")),
            ("mid", json!(70_000)),
            ("high", json!(0)),
            ("signed_field", json!(-1)),
            ("inners", json!([{"a": 1, "b": 0}, {"a": 0, "b": 2}])),
            ("bytes", json!([1, 2, 3, 4])),
            ("grid", json!([[1, 2, 3], [4, 0, 0]])),
            ("pointer", json!("0x00000000deadbeef")),
        ] {
            assert_eq!(back[name], value, "{back}");
        }
        assert_eq!(back.get(BYTES), None, "{back}");
        let port = bytes.windows(2).filter(|w| *w == [0, 80]).count();
        assert_eq!(port, 1, "port 80 lies in network order");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let object = object();
        let flows = object.map_definition("flows").expect("the map is declared");
        let kind = Type::new(object.btf(), flows.value_type);
        let refused = |value: Value| {
            kind.encode(flows.value_size as usize, &value)
                .expect_err("it does not fit")
        };
        assert!(refused(json!({"bite": 1})).contains("no member \"bite\""));
        assert!(refused(json!({"byte": 256})).contains("byte: 256 does not fit"));
        assert!(refused(json!({"byte": -129})).contains("does not fit"));
        assert!(refused(json!({"low": 8})).contains("3 bits"));
        assert!(refused(json!({"color": "PINK"})).contains("not an enumerator"));
        assert!(refused(json!({"name": "longer than thirteen"})).contains("char[13]"));
        assert!(refused(json!({"inners": [{}, {}, {}]})).contains("3 elements"));
        assert!(refused(json!(5)).contains("struct everything"));
        assert!(refused(json!({"@bytes": "00"})).contains("2 hexadecimal digits"));
    }
}
