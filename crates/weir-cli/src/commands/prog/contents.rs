//! What is in the maps of a loaded program, as JSON by their types: dumped, and set up from the same form.
//!
//! Elements of arrays that are all zero are left out of a dump, and so is `.rodata`. Records in ring buffers are part of a dump, but
//! cannot be set up: they are what a program said. Invariant: a dump set up into a fresh program dumps the same, records aside.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_vm::{BPF_ANY, Btf, Machine, MapKind, Object, Variable};

use super::engine::Engine;
use super::maps::kind_name;
use super::typed::{Type, hex};
use crate::failure::Failure;

/// Most elements of one map that are dumped.
const ELEMENTS_MAX: usize = 1 << 20;

/// Contents of maps, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    maps: BTreeMap<String, MapContents>,
    /// What programs sent, by ring buffer and (interpreter only) perf event array; in dumps only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    records: BTreeMap<String, Vec<String>>,
}

/// Contents of one map.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapContents {
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    elements: Vec<Element>,
    /// Variables of a data section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variables: Option<Map<String, Value>>,
}

/// A key and its value, or its values on each CPU.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Element {
    key: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Value>>,
}

/// The types of an object's maps, kept when the object is loaded.
pub(super) struct Types {
    btf: Option<Btf>,
    maps: BTreeMap<String, MapTypes>,
}

struct MapTypes {
    kind: MapKind,
    key: (Option<u32>, usize),
    value: (Option<u32>, usize),
    variables: Vec<Variable>,
}

impl Types {
    pub(super) fn of(object: &Object) -> Types {
        let names = object.map_names().filter_map(|n| object.map_definition(n));
        let maps = names.map(|d| {
            let types = MapTypes {
                kind: d.kind,
                key: (d.key_type, d.key_size as usize),
                value: (d.value_type, d.value_size as usize),
                variables: object.variables(&d.name),
            };
            (d.name.clone(), types)
        });
        Types {
            maps: maps.collect(),
            btf: object.btf().cloned(),
        }
    }

    fn key(&self, map: &MapTypes) -> Type<'_> {
        Type::new(self.btf.as_ref(), map.key.0)
    }

    fn value(&self, map: &MapTypes) -> Type<'_> {
        Type::new(self.btf.as_ref(), map.value.0)
    }

    fn variable(&self, v: &Variable) -> Type<'_> {
        Type::new(self.btf.as_ref(), Some(v.type_id))
    }
}

/// Sets maps up from a file.
pub(super) fn set_from(engine: &mut Engine, types: &Types, path: &Path) -> Result<(), Failure> {
    let failed = |e: String| Failure::usage(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let contents = parse(&text).map_err(failed)?;
    set(engine, types, &contents).map_err(failed)
}

/// Writes a dump to a file.
pub(super) fn write(contents: &Contents, path: &Path) -> Result<(), Failure> {
    let file = std::fs::File::create(path);
    file.and_then(|f| serde_json::to_writer_pretty(f, contents).map_err(Into::into))
        .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
}

/// Reads what `--maps` names.
fn parse(text: &str) -> Result<Contents, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// Puts contents into the maps of a loaded program.
fn set(engine: &mut Engine, types: &Types, contents: &Contents) -> Result<(), String> {
    for (name, map) in &contents.maps {
        let known = types.maps.keys().cloned().collect::<Vec<_>>().join(", ");
        let declared = types
            .maps
            .get(name)
            .ok_or_else(|| format!("the object has no map {name:?}; it has {known}"))?;
        let failed = |e: String| format!("map {name}: {e}");
        set_map(engine, types, (name, declared), map).map_err(failed)?;
    }
    Ok(())
}

fn set_map(
    engine: &mut Engine,
    types: &Types,
    (name, declared): (&str, &MapTypes),
    map: &MapContents,
) -> Result<(), String> {
    let kind = kind_name(declared.kind);
    if let Some(given) = map.kind.as_ref().filter(|given| **given != kind) {
        return Err(format!("it is a {kind} in the object, and a {given} here"));
    }
    if let Some(variables) = &map.variables {
        let mut bytes = engine
            .values(name, &[0; 4])?
            .into_iter()
            .next()
            .unwrap_or_default();
        for (variable, value) in variables {
            let found = declared.variables.iter().find(|v| v.name == *variable);
            let found = found.ok_or_else(|| format!("no variable {variable:?}"))?;
            let start = found.offset as usize;
            let part = bytes
                .get_mut(start..start + found.size as usize)
                .ok_or_else(|| format!("variable {variable:?} lies outside its section"))?;
            types
                .variable(found)
                .encode_into(part, value)
                .map_err(|e| format!("{variable}: {e}"))?;
        }
        engine.update(name, &[0; 4], &[bytes])?;
    }
    for element in &map.elements {
        let failed = |e: String| format!("key {}: {e}", element.key);
        let key = types
            .key(declared)
            .encode(declared.key.1, &element.key)
            .map_err(failed)?;
        if let Some(Value::String(target)) =
            element.value.as_ref().filter(|_| refers(declared.kind))
        {
            engine.refer(name, &key, target).map_err(failed)?;
            continue;
        }
        let values = match (&element.value, &element.values) {
            (Some(value), None) => std::slice::from_ref(value),
            (None, Some(values)) => values.as_slice(),
            _ => return Err(failed("give one of value and values".to_owned())),
        };
        let encode = |v: &Value| types.value(declared).encode(declared.value.1, v);
        let values: Vec<Vec<u8>> = values
            .iter()
            .map(encode)
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        engine.update(name, &key, &values).map_err(failed)?;
    }
    Ok(())
}

/// What is in the maps of a loaded program.
pub(super) fn dump(engine: &mut Engine, types: &Types) -> Result<Contents, String> {
    let mut contents = Contents::default();
    for (name, declared) in &types.maps {
        if name.starts_with(".rodata") {
            continue;
        }
        if matches!(declared.kind, MapKind::RingBuf | MapKind::PerfEventArray) {
            let records = engine.records(name, declared.kind)?;
            if !records.is_empty() {
                let records = records.iter().map(|r| hex(r)).collect();
                contents.records.insert(name.clone(), records);
            }
            continue;
        }
        let failed = |e: String| format!("map {name}: {e}");
        let map = dump_map(engine, types, (name, declared)).map_err(failed)?;
        contents.maps.insert(name.clone(), map);
    }
    Ok(contents)
}

fn dump_map(
    engine: &mut Engine,
    types: &Types,
    (name, declared): (&str, &MapTypes),
) -> Result<MapContents, String> {
    let mut map = MapContents {
        kind: Some(kind_name(declared.kind)),
        ..MapContents::default()
    };
    if !declared.variables.is_empty() {
        let bytes = engine.values(name, &[0; 4])?.concat();
        let shown = declared.variables.iter().filter_map(|v| {
            let start = v.offset as usize;
            let part = bytes.get(start..start + v.size as usize)?;
            Some((v.name.clone(), types.variable(v).decode(part)))
        });
        map.variables = Some(shown.collect());
        return Ok(map);
    }
    let mut keys = engine.keys(name)?;
    if keys.len() > ELEMENTS_MAX {
        return Err(format!("{} elements are too many to dump", keys.len()));
    }
    let array = matches!(declared.kind, MapKind::Array | MapKind::PercpuArray);
    if !array {
        keys.sort();
    }
    for key in keys {
        let shown = types.key(declared).decode(&key);
        if refers(declared.kind) {
            // Slots without a target are keys all the same in the kernel.
            if let Some(target) = engine.reference(name, &key) {
                map.elements.push(Element {
                    key: shown,
                    value: Some(Value::String(target)),
                    values: None,
                });
            }
            continue;
        }
        let values = engine.values(name, &key)?;
        if values.is_empty() {
            continue;
        }
        if array && values.iter().flatten().all(|b| *b == 0) {
            continue;
        }
        let mut values: Vec<Value> = values
            .iter()
            .map(|v| types.value(declared).decode(v))
            .collect();
        let (value, values) = if declared.kind.is_percpu() {
            (None, Some(values))
        } else {
            (values.pop(), None)
        };
        map.elements.push(Element {
            key: shown,
            value,
            values,
        });
    }
    Ok(map)
}

/// Whether values are names of programs or maps.
fn refers(kind: MapKind) -> bool {
    kind == MapKind::ProgArray || kind.holds_maps()
}

/// Map access, the same for all engines. A value for each CPU of a per-CPU map, else one.
impl Engine {
    fn keys(&self, map: &str) -> Result<Vec<Vec<u8>>, String> {
        match self {
            Engine::Machine(engine) => Ok(found(&engine.machine, map)?.keys().collect()),
            Engine::Kernel(program) => program.keys(map).map_err(|e| e.to_string()),
        }
    }

    fn values(&self, map: &str, key: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        match self {
            Engine::Machine(engine) => {
                let map = found(&engine.machine, map)?;
                let cpus = 0..map.values_per_element();
                let values = cpus.filter_map(|cpu| map.value_on(key, cpu));
                Ok(values.map(<[u8]>::to_vec).collect())
            }
            Engine::Kernel(program) => program.lookup_percpu(map, key).map_err(|e| e.to_string()),
        }
    }

    /// One value stands for all CPUs.
    fn update(&mut self, map: &str, key: &[u8], values: &[Vec<u8>]) -> Result<(), String> {
        match self {
            Engine::Machine(engine) => {
                let map = engine
                    .machine
                    .map_mut(map)
                    .ok_or_else(|| format!("no map {map}"))?;
                if !map.kind().is_percpu() {
                    let value = only(values)?;
                    if map.name().starts_with('.') {
                        // A data section: `.rodata` cannot be updated, but it can be set before the first packet.
                        let place = map.value_mut(key).ok_or("no such key")?;
                        place.copy_from_slice(value);
                        return Ok(());
                    }
                    return map.update(key, value, BPF_ANY).map_err(|e| e.to_string());
                }
                let block = block(values, map.values_per_element() as usize)?;
                map.update(key, &block, BPF_ANY).map_err(|e| e.to_string())
            }
            Engine::Kernel(program) => {
                let value = match values {
                    [one] => one.clone(),
                    several => block(several, program.cpus())?,
                };
                program
                    .update(map, key, &value, BPF_ANY)
                    .map_err(|e| e.to_string())
            }
        }
    }

    fn refer(&mut self, map: &str, key: &[u8], target: &str) -> Result<(), String> {
        match self {
            Engine::Machine(engine) => {
                let machine = &mut engine.machine;
                if found(machine, map)?.kind() == MapKind::ProgArray {
                    let index = key.try_into().map(u32::from_le_bytes);
                    let index = index.map_err(|_| "a program array's key has 4 bytes")?;
                    return machine
                        .set_tail_call(map, index, target)
                        .map_err(|e| e.to_string());
                }
                machine
                    .set_inner_map(map, key, target)
                    .map_err(|e| e.to_string())
            }
            Engine::Kernel(_) => Err(
                "the kernel engine loads one program, and cannot set references to others"
                    .to_owned(),
            ),
        }
    }

    fn reference(&self, map: &str, key: &[u8]) -> Option<String> {
        match self {
            Engine::Machine(engine) => engine.machine.reference(map, key).map(str::to_owned),
            Engine::Kernel(_) => None,
        }
    }

    fn records(&mut self, map: &str, kind: MapKind) -> Result<Vec<Vec<u8>>, String> {
        match self {
            Engine::Machine(engine) => {
                let machine = &mut engine.machine;
                if found(machine, map)?.kind() == MapKind::PerfEventArray {
                    let records = machine.drain_perf(map).into_iter();
                    return Ok(records.map(|(_, record)| record).collect());
                }
                Ok(machine.drain_ringbuf(map))
            }
            // Nobody listens to a perf event array of a test run here.
            Engine::Kernel(_) if kind == MapKind::PerfEventArray => Ok(Vec::new()),
            Engine::Kernel(program) => {
                let mut records = Vec::new();
                program
                    .drain(map, std::time::Duration::ZERO, |r| records.push(r.to_vec()))
                    .map_err(|e| e.to_string())?;
                Ok(records)
            }
        }
    }
}

fn found<'m>(machine: &'m Machine, map: &str) -> Result<&'m weir_vm::Map, String> {
    machine.map(map).ok_or_else(|| format!("no map {map}"))
}

fn only(values: &[Vec<u8>]) -> Result<&[u8], String> {
    match values {
        [one] => Ok(one),
        _ => Err(format!(
            "{} values, but the map is not per-CPU: give one as value",
            values.len()
        )),
    }
}

/// Values of all CPUs as the system call takes them: each padded to 8 bytes.
fn block(values: &[Vec<u8>], cpus: usize) -> Result<Vec<u8>, String> {
    let mut block = Vec::new();
    let all: Vec<&Vec<u8>> = match values {
        [one] => vec![one; cpus],
        several if several.len() == cpus => several.iter().collect(),
        several => {
            return Err(format!(
                "{} values, but there are {cpus} CPUs here",
                several.len()
            ));
        }
    };
    for value in all {
        block.extend_from_slice(value);
        block.resize(block.len().next_multiple_of(8), 0);
    }
    Ok(block)
}
