//! Load-time constants: where each `const volatile` global lies, by the
//! object's own type information (BTF), so that no symbol table is needed.
//!
//! Reads only; writing the bytes is [`crate::KernelObject::set_rodata`].
//! Relies on libbpf having checked the BTF when it opened the object.

#![expect(unsafe_code, reason = "BTF is walked through pointers")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr;

use libbpf_rs::{AsRawLibbpf, OpenObject};

/// Where a constant lies: its section's map, offset and size in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) section: String,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// All variables of the object's `.rodata*` sections, from its BTF.
pub(crate) fn constants(open: &OpenObject) -> BTreeMap<String, Constant> {
    let mut found = BTreeMap::new();
    // SAFETY: the object is open; its BTF lives as long and is only read here.
    let btf = unsafe { libbpf_sys::bpf_object__btf(open.as_libbpf_object().as_ptr()) };
    if btf.is_null() {
        return found;
    }
    // SAFETY: `btf` is valid as above.
    let count = unsafe { libbpf_sys::btf__type_cnt(btf) };
    let type_at = |id: u32| -> Option<&libbpf_sys::btf_type> {
        // SAFETY: libbpf returns null or a type that lives as long as the BTF.
        unsafe { libbpf_sys::btf__type_by_id(btf, id).as_ref() }
    };
    let name_of = |offset: u32| -> Option<String> {
        // SAFETY: libbpf returns null or a C string that lives as long as the BTF.
        let text = unsafe { libbpf_sys::btf__name_by_offset(btf, offset) };
        if text.is_null() {
            return None;
        }
        // SAFETY: not null (checked), NUL-terminated by the BTF format.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    };
    for id in 1..count {
        let Some(section) = type_at(id) else { continue };
        let (kind, vlen) = ((section.info >> 24) & 0x1f, section.info & 0xffff);
        if kind != libbpf_sys::BTF_KIND_DATASEC {
            continue;
        }
        let Some(section_name) = name_of(section.name_off).filter(|n| n.starts_with(".rodata"))
        else {
            continue;
        };
        let first = ptr::from_ref(section).wrapping_add(1);
        // SAFETY: a DATASEC type is followed by `vlen` entries of this layout; libbpf checked
        // the bounds when it parsed the BTF.
        let entries = unsafe {
            std::slice::from_raw_parts(first.cast::<libbpf_sys::btf_var_secinfo>(), vlen as usize)
        };
        for entry in entries {
            let name = type_at(entry.type_).and_then(|var| name_of(var.name_off));
            if let Some(name) = name {
                let constant = Constant {
                    section: section_name.clone(),
                    offset: entry.offset as usize,
                    size: entry.size as usize,
                };
                found.insert(name, constant);
            }
        }
    }
    found
}
