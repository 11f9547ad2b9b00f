//! Kernel objects: what may be read through a pointer to one, and how far the pointers found there are trusted.
//!
//! Owns the walk through the kernel's structs by type information. Types are those that the object is relocated against;
//! without them nothing can be read. Invariant: a register of a kernel object holds the id of its struct (`map`) and its
//! trust (`frame`).

use super::rejection::{Birth, Rule, ValueKind};
use super::state::Reg;
use super::walk::{Step, Walk, stop_at};
use crate::btf::{Btf, Shape};
use crate::maps::MapKind;
use crate::signature::MEMBERS_MAX;

/// Structs in structs that are followed.
const NESTED_MAX: usize = 16;

/// How far a pointer to a kernel object is trusted, as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Trust {
    /// Found by walking: may be read, and handed to helpers of old.
    Plain = 0,
    /// May be read only; what is read may be anything.
    Untrusted = 1,
    /// Valid while its RCU section lasts.
    Rcu = 2,
    /// Valid.
    Trusted = 3,
}

/// The trust of a pointer to a kernel object.
pub(super) fn trust(reg: &Reg) -> Trust {
    match reg.frame {
        0 => Trust::Plain,
        2 => Trust::Rcu,
        3 => Trust::Trusted,
        _ => Trust::Untrusted,
    }
}

/// What lies at an offset of a struct.
enum Found {
    Number,
    /// A pointer to a struct.
    Pointer {
        id: u32,
        /// Name of the member.
        member: String,
        /// Struct that has the member.
        parent: u32,
        /// A type tag: `rcu`, `user`, `percpu`; else empty.
        tag: String,
        /// Behind a union of several members.
        ambiguous: bool,
    },
    Nothing,
}

impl<'m> Walk<'m> {
    /// A pointer to a kernel object of the struct `name`.
    pub(super) fn object(&mut self, name: &str, trust: Trust, birth: Birth) -> Reg {
        let mut reg = Reg::pointer(ValueKind::Object, birth, self.at);
        reg.map = self.struct_id(name).unwrap_or(0);
        reg.frame = trust as u8;
        reg
    }

    /// Id of the kernel's struct `name`.
    pub(super) fn struct_id(&mut self, name: &str) -> Option<u32> {
        if let Some((_, id)) = self.structs.iter().find(|(known, _)| known == name) {
            return *id;
        }
        let types = self.kernel_types();
        let id = types.and_then(|types| types.type_id(name).filter(|id| is_struct(types, *id)));
        self.structs.push((name.to_owned(), id));
        id
    }

    fn kernel_types(&self) -> Option<&'m Btf> {
        self.code.kernel_types(self.at as usize)
    }

    pub(super) fn is_struct(&self, id: u32) -> bool {
        self.kernel_types()
            .is_some_and(|types| is_struct(types, id))
    }

    /// The struct that a program names by its id, to read through a pointer of that type.
    pub(super) fn cast_target(&self, id: u32) -> Option<u32> {
        let types = self.kernel_types()?;
        matches!(types.shape(id), Ok(Shape::Struct { .. })).then_some(id)
    }

    /// Name of the struct that a register points to, for kernel objects and what stands for them.
    pub(super) fn object_name(&self, reg: &Reg) -> String {
        match reg.kind {
            ValueKind::Map => "bpf_map".to_owned(),
            ValueKind::Socket => super::socket::struct_name(reg.map).to_owned(),
            _ => {
                let types = self.kernel_types();
                types.map_or_else(String::new, |types| types.name(reg.map).to_owned())
            }
        }
    }

    /// Whether a struct is, or at an offset begins with, a struct `wanted`.
    pub(super) fn is_object(&self, (id, off): (u32, i32), wanted: &str, exact: bool) -> bool {
        let Some(types) = self.kernel_types() else {
            return false;
        };
        let name = types.name(id);
        if off == 0 && name == wanted {
            return true;
        }
        // What a program gets to see, and what the kernel has for it.
        if matches!(
            (name, wanted),
            ("sk_buff", "__sk_buff") | ("xdp_buff", "xdp_md")
        ) {
            return true;
        }
        // Types that differ in this ending only say how far an object has been set up.
        let init = |a: &str, b: &str| a.strip_suffix("___init") == Some(b);
        if exact || init(name, wanted) || init(wanted, name) {
            return false;
        }
        let (mut id, mut off) = (id, off);
        for _ in 0..NESTED_MAX {
            let Some(nested) = nested(types, id, off, 0, &mut 0) else {
                return false;
            };
            if types.name(nested) == wanted {
                return true;
            }
            (id, off) = (nested, 0);
        }
        false
    }

    /// A load through a pointer to a kernel object.
    pub(super) fn read_object(&mut self, register: u8, off: i32, bytes: u8) -> Step<Reg> {
        let base = *self.state.reg(register);
        if base.or_null {
            return stop_at(
                register,
                Rule::NullValue {
                    kind: base.kind,
                    map: None,
                },
            );
        }
        if base.num.value() != Some(0) {
            return stop_at(register, Rule::VariableOffset { kind: base.kind });
        }
        if self.code.is_restricted(self.at as usize) {
            return stop_at(
                register,
                Rule::License {
                    helper: "struct members",
                },
            );
        }
        let trust = if base.ref_id != 0 {
            Trust::Trusted
        } else {
            trust(&base)
        };
        let offset = i64::from(base.off) + i64::from(off);
        self.member(register, base.map, offset, bytes, trust)
    }

    /// A load through a pointer to a map.
    pub(super) fn read_map(&mut self, register: u8, off: i32, bytes: u8) -> Step<Reg> {
        let base = *self.state.reg(register);
        if base.or_null {
            let map = self.map_name_of(&base);
            return stop_at(
                register,
                Rule::NullValue {
                    kind: base.kind,
                    map,
                },
            );
        }
        let kind = self.map(base.map).map(|m| m.definition.kind);
        let id = kind.and_then(|kind| self.struct_id(map_struct(kind)));
        let offset = i64::from(base.off) + i64::from(off);
        self.member(register, id.unwrap_or(0), offset, bytes, Trust::Plain)
    }

    fn member(&mut self, register: u8, id: u32, offset: i64, bytes: u8, trust: Trust) -> Step<Reg> {
        let kind = self.state.reg(register).kind;
        let birth = Birth::Loaded(kind);
        let found = match (self.kernel_types(), u32::try_from(offset)) {
            (Some(types), Ok(offset)) => find(types, id, offset, u32::from(bytes)),
            _ => Found::Nothing,
        };
        let base = *self.state.reg(register);
        match found {
            Found::Number => {
                self.note_access(&base);
                Ok(Reg::unknown(birth, self.at))
            }
            Found::Pointer {
                id: target,
                member,
                parent,
                tag,
                ambiguous,
            } => {
                self.note_access(&base);
                if matches!(tag.as_str(), "user" | "percpu") {
                    return Ok(Reg::unknown(birth, self.at));
                }
                let (trust, or_null) = self.inherited(trust, parent, &member, &tag);
                let mut reg = Reg::pointer(ValueKind::Object, birth, self.at);
                reg.map = target;
                let trust = if ambiguous { Trust::Untrusted } else { trust };
                reg.frame = trust as u8;
                reg.or_null = or_null;
                if or_null {
                    reg.id = self.new_id();
                }
                Ok(reg)
            }
            Found::Nothing => {
                let name = self
                    .kernel_types()
                    .map_or_else(String::new, |types| types.name(id).to_owned());
                stop_at(
                    register,
                    Rule::ObjectField {
                        name,
                        offset,
                        size: i64::from(bytes),
                    },
                )
            }
        }
    }

    /// Trust of a pointer found in a member of a struct, and whether it may be null.
    fn inherited(&mut self, trust: Trust, parent: u32, member: &str, tag: &str) -> (Trust, bool) {
        if matches!(trust, Trust::Plain | Trust::Untrusted) {
            return (trust, false);
        }
        // XDP and tc programs run in an RCU section.
        for (ending, trust, or_null) in [
            ("safe_trusted", Trust::Trusted, false),
            ("safe_trusted_or_null", Trust::Trusted, true),
            ("safe_rcu", Trust::Rcu, false),
            ("safe_rcu_or_null", Trust::Rcu, true),
        ] {
            if self.is_listed(parent, member, ending) {
                return (trust, or_null);
            }
        }
        if tag == "rcu" {
            return (Trust::Rcu, true);
        }
        (Trust::Plain, false)
    }

    /// Whether the kernel lists a member among those that are trusted; the lists are structs of its types.
    fn is_listed(&mut self, parent: u32, member: &str, ending: &str) -> bool {
        let Some(types) = self.kernel_types() else {
            return false;
        };
        let list = format!("{}__{ending}", types.name(parent));
        let id = self.struct_id(&list);
        let members = id.and_then(|id| types.members(id).ok());
        members.is_some_and(|members| members.iter().any(|m| m.name == member))
    }

    /// A section that RCU protects ends: what it protected is not trusted any more.
    pub(super) fn forget_rcu(&mut self) {
        let distrust = |reg: &mut Reg| {
            reg.frame = Trust::Untrusted as u8;
            reg.or_null = false;
        };
        let wanted = |reg: &Reg| reg.kind == ValueKind::Object && trust(reg) == Trust::Rcu;
        self.state.change_all(wanted, distrust);
        for frame in 0..self.state.frames.len() {
            for slot in 0..self.state.frames[frame].stack.len() {
                let found = self.state.frames[frame].slot(slot);
                if found.is_iterator() && found.reg.frame == Trust::Rcu as u8 {
                    distrust(&mut self.state.slot_mut(frame, slot).reg);
                }
            }
        }
    }
}

/// The struct behind a map of this kind.
fn map_struct(kind: MapKind) -> &'static str {
    use MapKind::*;
    match kind {
        Array | PercpuArray | ProgArray | PerfEventArray | ArrayOfMaps => "bpf_array",
        Hash | PercpuHash | LruHash | LruPercpuHash | HashOfMaps => "bpf_htab",
        LpmTrie => "lpm_trie",
        DevMap | DevMapHash => "bpf_dtab",
        CpuMap => "bpf_cpu_map",
        XskMap => "xsk_map",
        Queue | Stack => "bpf_queue_stack",
        RingBuf => "bpf_ringbuf_map",
        BloomFilter => "bpf_bloom_filter",
        CgroupArray => "bpf_array",
        SockMap => "bpf_stab",
        SockHash => "bpf_shtab",
        SkStorage | TaskStorage | CgrpStorage => "bpf_local_storage_map",
        UserRingBuf => "bpf_ringbuf_map",
        StackTrace => "bpf_stack_map",
    }
}

fn is_struct(types: &Btf, id: u32) -> bool {
    let shape = types.resolve(id).and_then(|id| types.shape(id));
    matches!(shape, Ok(Shape::Struct { .. }))
}

/// The struct that begins at an offset of another one. `seen` counts members: unions that share types would be walked again and again.
fn nested(types: &Btf, id: u32, off: i32, depth: usize, seen: &mut usize) -> Option<u32> {
    if depth > NESTED_MAX {
        return None;
    }
    let members = types.members(id).ok()?;
    members.iter().find_map(|m| {
        *seen += 1;
        if *seen > MEMBERS_MAX {
            return None;
        }
        let start = i64::from(m.bit_offset / 8);
        let target = types.resolve(m.type_id).ok()?;
        let size = i64::from(types.size_of(target).ok()?);
        let inside = (start..start + size).contains(&i64::from(off));
        if !inside || !is_struct(types, target) {
            return None;
        }
        if start == i64::from(off) {
            return Some(target);
        }
        nested(types, target, off - start as i32, depth + 1, seen)
    })
}

/// What `size` bytes at `offset` of a struct are.
fn find(types: &Btf, id: u32, offset: u32, size: u32) -> Found {
    look(types, id, offset, size).unwrap_or(Found::Nothing)
}

fn look(types: &Btf, id: u32, offset: u32, size: u32) -> Option<Found> {
    let (mut id, mut offset, mut ambiguous) = (types.resolve(id).ok()?, offset, false);
    'structs: for _ in 0..NESTED_MAX {
        let Shape::Struct {
            size: whole,
            union,
            members,
        } = types.shape(id).ok()?
        else {
            return None;
        };
        // Members of a union of several may be anything.
        ambiguous |= *union && members.len() != 1;
        if offset.checked_add(size)? > *whole {
            // Behind the end lie the elements of an array without length only.
            let last = members.last()?;
            let (element, count) = types.array(last.type_id).ok()?;
            let start = last.bit_offset / 8;
            if count != 0 || offset < start {
                return None;
            }
            let element = types.resolve(element).ok()?;
            match types.shape(element).ok()? {
                Shape::Int { .. } => return Some(Found::Number),
                Shape::Struct { size: each, .. } => {
                    (id, offset) = (element, (offset - start).checked_rem(*each)?);
                    continue;
                }
                _ => return None,
            }
        }
        for member in members {
            let mut start = member.bit_offset / 8;
            if offset + size <= start {
                return None;
            }
            if member.bit_width != 0 {
                let end = member
                    .bit_offset
                    .saturating_add(member.bit_width)
                    .div_ceil(8);
                if offset <= start && end <= offset + size {
                    return Some(Found::Number);
                }
                continue;
            }
            if offset < start {
                return None;
            }
            let bytes = types.size_of(member.type_id).unwrap_or(0);
            let end = start.checked_add(bytes)?;
            if offset >= end {
                continue;
            }
            let mut inner = types.resolve(member.type_id).ok()?;
            let mut each = bytes;
            while let Ok((element, count)) = types.array(inner) {
                inner = types.resolve(element).ok()?;
                each = each.checked_div(count)?;
            }
            if each == 0 {
                continue;
            }
            start += (offset - start) / each * each;
            match types.shape(inner).ok()? {
                Shape::Struct { .. } => {
                    (id, offset) = (inner, offset - start);
                    continue 'structs;
                }
                Shape::Pointer(target) => {
                    if size != 8 || offset != start {
                        return None;
                    }
                    let tag = match types.shape(*target) {
                        Ok(Shape::Alias(_)) => types.name(*target).to_owned(),
                        _ => String::new(),
                    };
                    let target = types.resolve(*target).ok()?;
                    if is_struct(types, target) {
                        return Some(Found::Pointer {
                            id: target,
                            member: types.string(member.name).to_owned(),
                            parent: id,
                            tag,
                            ambiguous,
                        });
                    }
                    return Some(Found::Number);
                }
                _ => {}
            }
            if offset + size > end && !ambiguous {
                return None;
            }
            return Some(Found::Number);
        }
        return None;
    }
    None
}
