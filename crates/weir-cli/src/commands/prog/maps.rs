//! `weir prog maps`: what maps an object declares, with their types.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use weir_vm::{MapDefinition, MapKind, Object};

use super::{declare, object};
use crate::args::prog::MapsArgs;
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

/// Names of map flags, by bit.
const FLAGS: [(u32, &str); 6] = [
    (0, "no_prealloc"),
    (1, "no_common_lru"),
    (2, "numa_node"),
    (7, "rdonly_prog"),
    (8, "wronly_prog"),
    (10, "mmapable"),
];

#[derive(Serialize)]
struct Listing {
    maps: Vec<Listed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable: Vec<Unusable>,
}

/// A map that the user engine does not have.
#[derive(Serialize)]
struct Unusable {
    name: String,
    reason: String,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<ListedVariable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner: Option<Box<Listed>>,
}

#[derive(Serialize)]
struct ListedVariable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    offset: u32,
    size: u32,
}

pub(crate) fn run(args: &MapsArgs) -> Result<ExitCode, Failure> {
    let object = object::open(&args.object, &[])?.object;
    let names: Vec<String> = object.map_names().map(str::to_owned).collect();
    let definitions = names.iter().filter_map(|n| object.map_definition(n));
    if args.json {
        output::json(&Listing {
            maps: definitions.map(|d| listed(&object, d)).collect(),
            unusable: object
                .unusable_maps()
                .map(|(name, error)| Unusable {
                    name: name.to_owned(),
                    reason: error.to_string(),
                })
                .collect(),
        })?;
    } else if names.is_empty() && object.unusable_maps().next().is_none() {
        output::out("no maps\n")?;
    } else {
        let mut texts: Vec<String> = definitions.map(|d| text(&object, d)).collect();
        let unusable = object.unusable_maps();
        texts.extend(unusable.map(|(_, error)| format!("not available: {error}\n")));
        output::out(&texts.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The kernel's name of a kind.
pub(super) fn kind_name(kind: MapKind) -> String {
    let mut name = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    for (spelt, kernel) in [
        ("ring_buf", "ringbuf"),
        ("dev_map", "devmap"),
        ("cpu_map", "cpumap"),
        ("xsk_map", "xskmap"),
    ] {
        name = name.replace(spelt, kernel);
    }
    name
}

fn listed(object: &Object, d: &MapDefinition) -> Listed {
    let name = |id: Option<u32>| Some(declare::name(object.btf()?, id?));
    let variables = object.variables(&d.name);
    Listed {
        name: d.name.clone(),
        kind: kind_name(d.kind),
        key_size: d.key_size,
        value_size: d.value_size,
        max_entries: d.max_entries,
        flags: d.flags,
        key: name(d.key_type),
        value: name(d.value_type).filter(|_| variables.is_empty()),
        variables: variables
            .into_iter()
            .map(|v| ListedVariable {
                kind: name(Some(v.type_id)).unwrap_or_default(),
                name: v.name,
                offset: v.offset,
                size: v.size,
            })
            .collect(),
        inner: d.inner.as_deref().map(|d| Box::new(listed(object, d))),
    }
}

fn text(object: &Object, d: &MapDefinition) -> String {
    let mut text = String::new();
    let variables = object.variables(&d.name);
    let data = d.name.starts_with('.');
    let unit = match d.kind {
        _ if data => format!("{} bytes", grouped(d.value_size.into())),
        MapKind::RingBuf => format!("{} bytes", grouped(d.max_entries.into())),
        _ => format!("{} entries", grouped(d.max_entries.into())),
    };
    let kind = if data {
        "data".to_owned()
    } else {
        kind_name(d.kind)
    };
    let _ = writeln!(text, "{}: {kind}, {unit}{}", d.name, flags(d.flags));
    for (what, id, size) in [
        ("key", d.key_type, d.key_size),
        ("value", d.value_type, d.value_size),
    ] {
        if data || size == 0 {
            continue;
        }
        let known = object.btf().zip(id);
        let declared = known.map_or_else(|| "no type".to_owned(), |(b, id)| declare::name(b, id));
        let _ = writeln!(text, "  {what:5}  {declared}, {size} bytes");
        if let Some((btf, id)) = known {
            text.push_str(&declare::members(btf, id, 9));
        }
    }
    if let Some(inner) = &d.inner {
        let _ = writeln!(
            text,
            "  inner  {}, {} entries, key {} bytes, value {} bytes",
            kind_name(inner.kind),
            grouped(inner.max_entries.into()),
            inner.key_size,
            inner.value_size
        );
    }
    for v in variables {
        let declared = object
            .btf()
            .map_or_else(String::new, |b| declare::variable(b, v.type_id, &v.name));
        let _ = writeln!(text, "  {:>5}  {declared}", v.offset);
    }
    text
}

fn flags(bits: u32) -> String {
    if bits == 0 {
        return String::new();
    }
    let mut names: Vec<String> = Vec::new();
    let mut rest = bits;
    for (bit, name) in FLAGS {
        if rest >> bit & 1 == 1 {
            names.push(name.to_owned());
            rest &= !(1 << bit);
        }
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    format!(", flags {}", names.join(" "))
}
