//! `kind = "object"`: an XDP program of anybody as one instance of a graph (docs/design/objects.md).
//!
//! Owns the keys and what they become: a joined file and its constants. Whether a port carries packets that the program cannot take is
//! known only where ports are, so it is asked for. Invariant: a plan was accepted by weir's verifier, or says that it was not asked.

use std::path::Path;
use std::sync::Arc;

use toml::Value as Toml;
use weir_object::{Chained, ObjectError, Value};
use weir_vm::verify::VerifyOptions;

use crate::plan::{InstancePlan, ObjectSource};
use crate::request::{FunctionError, Key, Kind, Planned, Request, suggest};

/// Keys of the kind.
const KEYS: &[Key] = &[
    Key::new(
        "file",
        "required",
        "ELF object; a relative path starts at the folder of the configuration",
    ),
    Key::new(
        "program",
        "the only one",
        "XDP program of the object; required where it has several",
    ),
    Key::new(
        "proceed",
        "`[\"pass\"]`",
        "return codes with which a packet goes on: `aborted`, `drop`, `pass`, `tx`, `redirect`, or numbers to 31",
    ),
    Key::new(
        "constants",
        "none",
        "values of `const volatile` globals; text `hex:...` is bytes",
    ),
    Key::new(
        "unverified",
        "`false`",
        "`true`: load without asking weir's verifier; the kernel's still decides",
    ),
];
/// Return codes by name; the place is the number.
const CODES: [&str; 5] = ["aborted", "drop", "pass", "tx", "redirect"];
/// Return codes that can be named, by number.
const MAX_CODE: i64 = 31;

/// The kind's row in `kind`.
pub const KIND: Kind = Kind::new("object", plan, &[("", KEYS)]);

/// Plans an instance. Keys: `file`; `program`, where the object has several; `proceed`, the codes with which a packet goes on
/// (default `pass`); `constants`, a table; `unverified`, to leave the judgement to the kernel alone.
///
/// # Errors
/// The object cannot be part of a chain, or a constant does not fit.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(KEYS)?;
    let Some(path) = request.text("file")? else {
        return Err(FunctionError::new("an object needs its file")
            .advice("add `file = \"FILE.o\"`, as clang wrote it"));
    };
    let object = request.file("file", Path::new(path))?;
    let program = request.text("program")?;
    let chain = |form| {
        let wrapper = weir_bpf::object(form)
            .ok_or_else(|| FunctionError::new("weir was built without its wrapper for objects"))?;
        weir_object::chain(&weir_object::Request {
            object: &object,
            program,
            wrapper,
        })
        .map_err(|error| refused(path, &error))
    };
    let chained = chain("object_graph")?;
    let watched = chain("object_watched")?;
    let mut constants = vec![
        (
            "weir_proceed".to_owned(),
            proceed(request)?.to_ne_bytes().to_vec(),
        ),
        (
            "weir_resizes".to_owned(),
            u32::from(chained.resizes).to_ne_bytes().to_vec(),
        ),
    ];
    constants.extend(own_constants(request, &object, &chained)?);
    let mut notes = Vec::new();
    if request.flag("unverified")? {
        notes.push(format!(
            "weir's verifier was not asked about {path}; the kernel has the only word"
        ));
    } else {
        verified(path, &chained, &constants)?;
    }
    for (old, new) in &chained.renamed {
        notes.push(format!(
            "`{old}` of {path} is a name of weir's: here it is `{new}`"
        ));
    }
    let instance = InstancePlan {
        object: ObjectSource::Linked {
            bytes: Arc::from(chained.elf),
            watched: Arc::from(watched.elf),
            from: path.into(),
        },
        program: weir_object::PROGRAM.into(),
        constants: constants.into_iter().map(|(n, v)| (n.into(), v)).collect(),
        maps: Vec::new(),
    };
    let mut planned = Planned::new(instance);
    planned.notes = notes;
    planned.asks.linear_frames = !chained.frags;
    Ok(planned)
}

/// The bitmap of codes with which a packet goes on.
fn proceed(request: &Request<'_>) -> Result<u32, FunctionError> {
    let wrong =
        |shown: String| FunctionError::key("proceed", format!("`proceed` has no code {shown}"));
    let Some(value) = request.keys.get("proceed") else {
        return Ok(1 << 2);
    };
    let list = match value {
        Toml::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut bits = 0;
    for code in list {
        let number = match code {
            Toml::String(name) => CODES
                .iter()
                .position(|c| c == name)
                .ok_or_else(|| wrong(format!("`{name}`")).advice(suggest(name, &CODES)))?
                as i64,
            Toml::Integer(number) if (0..=MAX_CODE).contains(number) => *number,
            other => {
                return Err(wrong(shown(other)).advice(
                    "codes are aborted, drop, pass, tx, redirect, or numbers from 0 to 31",
                ));
            }
        };
        bits |= 1u32 << number;
    }
    Ok(bits)
}

/// Constants of the object itself, under the names that they have in the joined file.
fn own_constants(
    request: &Request<'_>,
    object: &[u8],
    chained: &Chained,
) -> Result<Vec<(String, Vec<u8>)>, FunctionError> {
    let Some(table) = request.table("constants")? else {
        return Ok(Vec::new());
    };
    let parsed = weir_vm::Object::parse_without_maps(object)
        .map_err(|error| FunctionError::key("file", error.to_string()))?;
    let one = |(name, value): (&String, &Toml)| {
        let about = |message: String| FunctionError::key("constants", message);
        let value = written(value).ok_or_else(|| {
            about(format!("constant {name:?} cannot be {}", shown(value)))
                .advice("write a whole number, true, false, text, or a list of these")
        })?;
        let bytes = weir_object::encode(&parsed, name, &value).map_err(|e| about(e.to_string()))?;
        let name = chained.renamed.get(name).unwrap_or(name).clone();
        Ok((name, bytes))
    };
    table.iter().map(one).collect()
}

/// A value in an error.
fn shown(value: &Toml) -> String {
    match value {
        Toml::Integer(number) => number.to_string(),
        other => format!("of type {}", other.type_str()),
    }
}

fn written(value: &Toml) -> Option<Value> {
    Some(match value {
        Toml::Integer(number) => Value::Number(i128::from(*number)),
        Toml::Boolean(flag) => Value::Number(i128::from(*flag)),
        Toml::String(text) => match text.strip_prefix("hex:") {
            Some(_) => Value::read(text).ok()?,
            None => Value::Text(text.clone()),
        },
        Toml::Array(list) => Value::List(list.iter().map(written).collect::<Option<_>>()?),
        _ => return None,
    })
}

fn verified(
    path: &str,
    chained: &Chained,
    constants: &[(String, Vec<u8>)],
) -> Result<(), FunctionError> {
    let set = constants.iter().map(|(n, v)| (n.as_str(), v.as_slice()));
    let about = |message: String| FunctionError::key("file", message);
    let verdict =
        weir_object::check(&chained.elf, set, &VerifyOptions::default()).map_err(|error| {
            about(format!("`{path}` cannot be judged: {error}"))
                .advice("`unverified = true` leaves it to the kernel")
        })?;
    verdict.map(drop).map_err(|refused| {
        about(format!("`{path}`: {refused}")).advice(format!(
            "{}; `weir prog verify {path} --prog {}` explains it at length. \
             `unverified = true` leaves the judgement to the kernel",
            refused.0.missing.text, chained.program
        ))
    })
}

fn refused(path: &str, error: &ObjectError) -> FunctionError {
    let key = match error {
        ObjectError::NoProgram { .. }
        | ObjectError::Several { .. }
        | ObjectError::NotXdp { .. } => "program",
        _ => "file",
    };
    FunctionError::key(key, format!("`{path}`: {error}"))
}
