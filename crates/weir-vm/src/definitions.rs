//! Map definitions of an object: BTF-defined ones, the retired `maps` section, data sections, and `.kconfig`.
//!
//! Owns what a definition says; creating maps is in `link`. Invariant: every definition names the place its references are
//! relocated against, and two definitions never name the same place.

use crate::btf::{Btf, BtfError, Shape};
use crate::elf::{File, Symbol};
use crate::maps::{BPF_F_RDONLY_PROG, MapDefinition, MapKind};
use crate::object::LoadError;

/// A map of the object and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredMap {
    pub(crate) definition: MapDefinition,
    pub(crate) source: MapSource,
}

impl DeclaredMap {
    /// Whether it is a data section or the kernel's configuration, not a map the object declares.
    pub(crate) fn is_data(&self) -> bool {
        !matches!(self.source, MapSource::Variable { .. })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum MapSource {
    /// A variable of a map section at this offset; initial references start at `values` bytes into it.
    Variable {
        section: usize,
        offset: u64,
        size: u64,
        values: Option<u32>,
    },
    /// A data section.
    Section(usize),
    /// Variables of the kernel's configuration: (name, offset), all zero.
    Configuration(Vec<(String, u32)>),
}

/// A map that this engine cannot have, and where references to it point.
#[derive(Clone, Debug)]
pub(crate) struct UnusableMap {
    pub(crate) name: String,
    pub(crate) section: usize,
    pub(crate) offset: u64,
    pub(crate) error: LoadError,
}

/// What an object declares.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) maps: Vec<DeclaredMap>,
    pub(crate) initial: Vec<InitialMap>,
    pub(crate) unusable: Vec<UnusableMap>,
}

/// An element of a map of maps that the object fills itself.
#[derive(Clone, Debug)]
pub(crate) struct InitialMap {
    pub(crate) outer: String,
    pub(crate) index: u32,
    pub(crate) inner: String,
}

/// `struct bpf_map_def` of libbpf before 1.0: type, key size, value size, entries, flags.
const LEGACY_BYTES: u64 = 20;
/// `struct bpf_elf_map` of iproute2 appends id, pinning, inner id, inner index.
const IPROUTE_BYTES: u64 = 36;

/// All maps of an object in the order libbpf would create them, and what iproute2 would put into maps of maps.
pub(crate) fn declared_maps(file: &File, btf: Option<&Btf>) -> Result<Declared, LoadError> {
    let (mut maps, initial) = legacy_maps(file)?;
    let mut unusable = Vec::new();
    maps.extend(btf_maps(file, btf, &mut unusable)?);
    maps.extend(data_maps(file, btf));
    maps.extend(configuration(file, btf));
    Ok(Declared {
        maps,
        initial,
        unusable,
    })
}

pub(crate) fn data_maps(file: &File, btf: Option<&Btf>) -> impl Iterator<Item = DeclaredMap> {
    let data = |name: &str| {
        [".rodata", ".data", ".bss"]
            .iter()
            .any(|p| name == *p || name.strip_prefix(p).is_some_and(|r| r.starts_with('.')))
    };
    file.sections
        .iter()
        .enumerate()
        .filter(move |(_, s)| s.allocated && !s.data.is_empty() && data(&s.name))
        .map(move |(index, s)| {
            let size = u32::try_from(s.data.len()).unwrap_or(u32::MAX);
            let mut definition = MapDefinition::new(&s.name, MapKind::Array, 4, size, 1);
            if s.name.starts_with(".rodata") {
                definition.flags = BPF_F_RDONLY_PROG;
            }
            definition.value_type = btf.and_then(|b| b.section_id(&s.name));
            DeclaredMap {
                definition,
                source: MapSource::Section(index),
            }
        })
}

/// Weak externals of `.kconfig` read as zero, as libbpf has it for settings a kernel does not know. Others stay external.
fn configuration(file: &File, btf: Option<&Btf>) -> Option<DeclaredMap> {
    let variables = btf?.section(".kconfig")?;
    let weak = |name: &str| {
        file.symbols
            .iter()
            .any(|s| s.name == name && s.weak && s.section.is_none())
    };
    let mut places = Vec::new();
    let mut at: u32 = 0;
    for (name, id, ..) in variables {
        if !weak(&name) {
            continue;
        }
        let size = btf?.size_of(id).ok()?;
        at = at.checked_next_multiple_of(8)?;
        places.push((name, at));
        at = at.checked_add(size)?;
    }
    if at == 0 {
        return None;
    }
    let mut definition = MapDefinition::new(".kconfig", MapKind::Array, 4, at, 1);
    definition.flags = BPF_F_RDONLY_PROG;
    Some(DeclaredMap {
        definition,
        source: MapSource::Configuration(places),
    })
}

fn legacy_maps(file: &File) -> Result<(Vec<DeclaredMap>, Vec<InitialMap>), LoadError> {
    let Some((index, section)) = file.section("maps") else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut symbols: Vec<&Symbol> = file
        .symbols
        .iter()
        .filter(|s| s.section == Some(index) && !s.name.is_empty() && !s.is_section)
        .collect();
    symbols.sort_by_key(|s| s.value);
    let bad = |map: &str, reason: String| LoadError::LegacyMap {
        map: map.to_owned(),
        reason,
    };
    let each = (section.data.len() as u64)
        .checked_div(symbols.len() as u64)
        .unwrap_or(0);
    let mut maps = Vec::new();
    let mut identities = Vec::new();
    for (number, symbol) in symbols.iter().enumerate() {
        let name = &symbol.name;
        // Definitions have no types, so their size is the section's over their number, as in old libbpf.
        if each < LEGACY_BYTES || symbol.value != number as u64 * each {
            return Err(bad(
                name,
                format!(
                    "definitions of section maps are not equally long structs of at least {LEGACY_BYTES} bytes"
                ),
            ));
        }
        let start = symbol.value as usize;
        let bytes = section.data.get(start..start + each as usize);
        let words: Vec<u32> = bytes
            .unwrap_or_default()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|w| u32::from_le_bytes(*w))
            .collect();
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        let iproute = each == IPROUTE_BYTES;
        let rest = if iproute { 9 } else { 5 };
        if words.iter().skip(rest).any(|w| *w != 0) {
            return Err(bad(
                name,
                format!(
                    "its definition of {each} bytes sets fields beyond map_flags that are not known"
                ),
            ));
        }
        let kind = kind(name, word(0))?;
        let mut definition = MapDefinition::new(name, kind, word(1), word(2), word(3));
        definition.flags = word(4);
        adjust(&mut definition);
        // Of the shorter struct all three are zero.
        identities.push((word(5), word(7), word(8)));
        maps.push(DeclaredMap {
            definition,
            source: MapSource::Variable {
                section: index,
                offset: symbol.value,
                size: each,
                values: None,
            },
        });
    }
    // iproute2's maps of maps name their inner definition by its id, and the inner map says at which index it stands.
    let definitions: Vec<MapDefinition> = maps.iter().map(|m| m.definition.clone()).collect();
    let mut initial = Vec::new();
    for (map, (_, wanted, _)) in maps.iter_mut().zip(&identities) {
        if !map.definition.kind.holds_maps() || *wanted == 0 {
            continue;
        }
        let mut candidates = definitions.iter().zip(&identities);
        let found = candidates.find(|(d, (id, ..))| id == wanted && !d.kind.holds_maps());
        let Some((inner, (.., at))) = found else {
            let reason = format!("no map of section maps has its inner id {wanted}");
            return Err(bad(&map.definition.name, reason));
        };
        map.definition.inner = Some(Box::new(inner.clone()));
        if *at != u32::MAX {
            initial.push(InitialMap {
                outer: map.definition.name.clone(),
                index: *at,
                inner: inner.name.clone(),
            });
        }
    }
    Ok((maps, initial))
}

fn btf_maps(
    file: &File,
    btf: Option<&Btf>,
    unusable: &mut Vec<UnusableMap>,
) -> Result<Vec<DeclaredMap>, LoadError> {
    let Some((maps_section, _)) = file.section(".maps") else {
        return Ok(Vec::new());
    };
    let btf = btf.ok_or(LoadError::MapsWithoutBtf)?;
    let variables = btf.section(".maps").ok_or(LoadError::MapsWithoutBtf)?;
    let mut maps = Vec::new();
    for (name, id, _, size) in variables {
        // The offsets in BTF are left to the loader: the symbol has the real one.
        let symbol = file
            .symbols
            .iter()
            .find(|s| s.section == Some(maps_section) && s.name == name)
            .ok_or(LoadError::MapsWithoutBtf)?;
        let (definition, values) = match definition(btf, &name, id, true) {
            Ok(read) => read,
            Err(error) => {
                unusable.push(UnusableMap {
                    name,
                    section: maps_section,
                    offset: symbol.value,
                    error,
                });
                continue;
            }
        };
        maps.push(DeclaredMap {
            definition,
            source: MapSource::Variable {
                section: maps_section,
                offset: symbol.value,
                size: u64::from(size).max(symbol.size),
                values,
            },
        });
    }
    Ok(maps)
}

/// Reads a map's definition from the struct type `id`; also the offset of its `values` member.
fn definition(
    btf: &Btf,
    name: &str,
    id: u32,
    outer: bool,
) -> Result<(MapDefinition, Option<u32>), LoadError> {
    let mut number = 0;
    let mut definition = MapDefinition::new(name, MapKind::Array, 0, 0, 0);
    let mut values = None;
    for member in btf.members(id)? {
        let bad = |_| LoadError::MapMember {
            map: name.to_owned(),
            member: member.name.clone(),
        };
        // __uint(name, n) declares `int (*name)[n]`.
        let count = || -> Result<u32, BtfError> { Ok(btf.array(btf.pointee(member.type_id)?)?.1) };
        match member.name.as_str() {
            "type" => number = count().map_err(bad)?,
            "key_size" => definition.key_size = count().map_err(bad)?,
            "value_size" => definition.value_size = count().map_err(bad)?,
            "max_entries" => definition.max_entries = count().map_err(bad)?,
            "map_flags" => definition.flags = count().map_err(bad)?,
            "map_extra" => definition.extra = extra(btf, member.type_id).map_err(bad)?,
            // Placement and pinning path: they say nothing about what a map does.
            "numa_node" | "pinning" => {}
            "key" => {
                let key = btf.pointee(member.type_id).map_err(bad)?;
                definition.key_size = btf.size_of(key).map_err(bad)?;
                definition.key_type = Some(key);
            }
            "value" => {
                let value = btf.pointee(member.type_id).map_err(bad)?;
                definition.value_size = btf.size_of(value).map_err(bad)?;
                definition.value_type = Some(value);
                let lock = spin_lock(btf, value);
                definition.has_spin_lock = lock.is_some();
                definition.lock_at = lock.unwrap_or(0);
                refuse_kernel_objects(btf, name, value)?;
            }
            "values" if outer => {
                values = Some(member.bit_offset / 8);
                let (element, _) = btf.array(member.type_id).map_err(bad)?;
                let inner = btf
                    .pointee(element)
                    .and_then(|t| btf.resolve(t))
                    .map_err(bad)?;
                if matches!(btf.shape(inner), Ok(Shape::Struct { .. })) {
                    let inner_name = format!("{name}.inner");
                    let (inner, _) = self::definition(btf, &inner_name, inner, false)?;
                    definition.inner = Some(Box::new(inner));
                }
            }
            _ => {
                return Err(LoadError::MapMember {
                    map: name.to_owned(),
                    member: member.name.clone(),
                });
            }
        }
    }
    definition.kind = kind(name, number)?;
    adjust(&mut definition);
    Ok((definition, values))
}

/// `__ulong(name, n)` declares an enumeration with the value, `__uint` an array as long.
fn extra(btf: &Btf, id: u32) -> Result<u64, BtfError> {
    if let Ok(pointed) = btf.pointee(id) {
        return Ok(u64::from(btf.array(pointed)?.1));
    }
    let value = btf.enumerators(id).first().map(|(_, v)| *v as u64);
    value.ok_or(BtfError::Type(id))
}

fn kind(map: &str, number: u32) -> Result<MapKind, LoadError> {
    MapKind::from_number(number).ok_or_else(|| LoadError::MapType {
        map: map.to_owned(),
        number,
    })
}

/// Fills in what libbpf does.
fn adjust(d: &mut MapDefinition) {
    match d.kind {
        MapKind::ArrayOfMaps | MapKind::HashOfMaps | MapKind::ProgArray if d.value_size == 0 => {
            d.value_size = 4;
        }
        // Without a size one entry for each CPU, whose number is set until the object is loaded.
        MapKind::PerfEventArray => {
            if d.key_size == 0 {
                d.key_size = 4;
            }
            if d.value_size == 0 {
                d.value_size = 4;
            }
        }
        MapKind::RingBuf | MapKind::UserRingBuf => {
            let pages = d.max_entries.max(4096).checked_next_power_of_two();
            d.max_entries = pages.unwrap_or(d.max_entries);
        }
        _ => {}
    }
}

/// Offset of the value's lock, if it has one.
fn spin_lock(btf: &Btf, value: u32) -> Option<u32> {
    let members = btf.members(value).ok()?;
    let lock = members.iter().find(|m| {
        btf.resolve(m.type_id)
            .is_ok_and(|id| btf.name(id) == "bpf_spin_lock")
    });
    lock.map(|m| m.bit_offset / 8)
}

/// Members that mean something to the kernel only, and would be plain bytes here.
fn refuse_kernel_objects(btf: &Btf, map: &str, value: u32) -> Result<(), LoadError> {
    const KINDS: [&str; 9] = [
        "bpf_timer",
        "bpf_wq",
        "bpf_list_head",
        "bpf_list_node",
        "bpf_rb_root",
        "bpf_rb_node",
        "bpf_refcount",
        "bpf_res_spin_lock",
        "bpf_task_work",
    ];
    let Ok(members) = btf.members(value) else {
        return Ok(());
    };
    for member in members {
        let Ok(id) = btf.resolve(member.type_id) else {
            continue;
        };
        if KINDS.contains(&btf.name(id)) {
            return Err(LoadError::KernelObject {
                map: map.to_owned(),
                member: member.name,
                kind: btf.name(id).to_owned(),
            });
        }
    }
    Ok(())
}
