//! Kernel functions (kfuncs) that XDP and tc programs may call: names, flags, first releases.
//!
//! Owns the flags with which the kernel registers them, which its type information does not tell, and the numbers that stand
//! for them in linked code, beside those of helpers. What they take and return is their BTF prototype (`signature`).
//! Invariant: a number with [`KERNEL_FUNCTION`] is in the table, because decoding makes it from there only.

use super::Kernel;
use flags::*;

/// Marks the number of a kernel function among those of helpers.
pub(crate) const KERNEL_FUNCTION: u32 = 1 << 30;

/// How the kernel registers a function.
pub(crate) mod flags {
    /// The call yields a reference that must be released.
    pub(crate) const ACQUIRE: u16 = 1 << 0;
    /// The call releases the reference that it is given.
    pub(crate) const RELEASE: u16 = 1 << 1;
    /// The result may be null.
    pub(crate) const RET_NULL: u16 = 1 << 2;
    /// Pointers to kernel objects must be trusted.
    pub(crate) const TRUSTED: u16 = 1 << 3;
    /// Pointers to kernel objects must be trusted or protected by RCU.
    pub(crate) const RCU: u16 = 1 << 4;
    /// Only programs that may sleep call it, which no XDP or tc program may.
    pub(crate) const SLEEPABLE: u16 = 1 << 5;
    /// Begins an open-coded iterator.
    pub(crate) const ITER_NEW: u16 = 1 << 6;
    /// Asks an iterator for the next.
    pub(crate) const ITER_NEXT: u16 = 1 << 7;
    /// Ends an iterator.
    pub(crate) const ITER_DESTROY: u16 = 1 << 8;
    /// Packet pointers are stale afterwards.
    pub(crate) const MOVES_PACKET: u16 = 1 << 9;

    /// The iterator is good for as long as the RCU section in which it begins.
    pub(crate) const RCU_PROTECTED: u16 = 1 << 10;
}

/// What a dynptr describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DynptrKind {
    /// Memory of a map value.
    Local = 1,
    /// A record of a ring buffer.
    Record = 2,
    /// The packet of a tc program.
    Skb = 3,
    /// The packet of an XDP program.
    Xdp = 4,
    /// The metadata of a tc program's packet.
    SkbMeta = 5,
}

impl DynptrKind {
    pub(crate) fn from_number(number: u32) -> Option<DynptrKind> {
        use DynptrKind::*;
        [Local, Record, Skb, Xdp, SkbMeta]
            .into_iter()
            .find(|k| *k as u32 == number)
    }

    /// Whether its bytes are stale once the packet's are.
    pub(crate) fn is_packet(self) -> bool {
        !matches!(self, DynptrKind::Local | DynptrKind::Record)
    }
}

/// What the verifier must know beyond flags and prototype: the result depends on the arguments, or the state changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The kernel's own context of the program.
    KernelContext,
    /// A pointer of a type that the caller names, for reading.
    ReadOnlyCast,
    /// Begins a section that RCU protects.
    RcuLock,
    RcuUnlock,
    /// Begins a section without preemption.
    PreemptDisable,
    PreemptEnable,
    /// Makes a dynptr of this kind.
    Dynptr(DynptrKind),
    /// A pointer into the memory of a dynptr.
    Slice {
        /// Whether it may be written.
        writable: bool,
    },
    /// Ends the program.
    Throw,
    /// Works on memory that this engine does not describe (objects of the program, lists, trees, locks, callbacks of the
    /// kernel): calls are refused by name.
    Undescribed,
    /// As [`Effect::None`], for programs bound to a device only, which those here are not.
    DeviceBound,
}

/// A kernel function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFunction {
    /// Without `bpf_`.
    pub(crate) name: &'static str,
    /// First release that has it for XDP or tc programs.
    pub(crate) since: Kernel,
    pub(crate) xdp: bool,
    pub(crate) tc: bool,
    pub(crate) flags: u16,
    pub(crate) effect: Effect,
}

impl KernelFunction {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Number of its iterator among the iterators, which is that of the function that begins it.
    pub(crate) fn iterator(&self) -> Option<u32> {
        let kind = iterator_name(self.name)?;
        let begins = |f: &KernelFunction| f.has(ITER_NEW) && iterator_name(f.name) == Some(kind);
        let number = FUNCTIONS.iter().position(begins)?;
        Some(number as u32)
    }
}

/// `num` of `iter_num_next`.
fn iterator_name(name: &'static str) -> Option<&'static str> {
    let rest = name.strip_prefix("iter_")?;
    ["_new", "_next", "_destroy"]
        .iter()
        .find_map(|step| rest.strip_suffix(step))
}

const fn row(
    name: &'static str,
    (major, minor): (u8, u8),
    (xdp, tc): (bool, bool),
    flags: u16,
    effect: Effect,
) -> KernelFunction {
    KernelFunction {
        name,
        since: Kernel(major, minor),
        xdp,
        tc,
        flags,
        effect,
    }
}

const BOTH: (bool, bool) = (true, true);
const XDP: (bool, bool) = (true, false);
const TC: (bool, bool) = (false, true);

use Effect::{
    DeviceBound, Dynptr, KernelContext, None as Plain, PreemptDisable, PreemptEnable, RcuLock,
    RcuUnlock, ReadOnlyCast, Slice, Throw, Undescribed,
};

/// By kind. Who may call what is what Linux 6.18 answers to root; a test reads every prototype from the running kernel.
#[rustfmt::skip]
const FUNCTIONS: &[KernelFunction] = &[
    // Open-coded iterators.
    row("iter_num_new", (6, 4), BOTH, ITER_NEW, Plain),
    row("iter_num_next", (6, 4), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_num_destroy", (6, 4), BOTH, ITER_DESTROY, Plain),
    row("iter_bits_new", (6, 11), BOTH, ITER_NEW, Plain),
    row("iter_bits_next", (6, 11), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_bits_destroy", (6, 11), BOTH, ITER_DESTROY, Plain),
    row("iter_task_new", (6, 7), BOTH, ITER_NEW | TRUSTED | RCU_PROTECTED, Plain),
    row("iter_task_next", (6, 7), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_task_destroy", (6, 7), BOTH, ITER_DESTROY, Plain),
    row("iter_css_new", (6, 7), BOTH, ITER_NEW | TRUSTED | RCU_PROTECTED, Plain),
    row("iter_css_next", (6, 7), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_css_destroy", (6, 7), BOTH, ITER_DESTROY, Plain),
    row("iter_task_vma_new", (6, 7), BOTH, ITER_NEW | RCU, Plain),
    row("iter_task_vma_next", (6, 7), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_task_vma_destroy", (6, 7), BOTH, ITER_DESTROY, Plain),
    row("iter_css_task_new", (6, 7), BOTH, ITER_NEW | TRUSTED | SLEEPABLE, Plain),
    row("iter_css_task_next", (6, 7), BOTH, ITER_NEXT | RET_NULL, Plain),
    row("iter_css_task_destroy", (6, 7), BOTH, ITER_DESTROY, Plain),

    // Dynptrs.
    row("dynptr_from_skb", (6, 4), TC, TRUSTED, Dynptr(DynptrKind::Skb)),
    row("dynptr_from_skb_meta", (6, 18), TC, TRUSTED, Dynptr(DynptrKind::SkbMeta)),
    row("dynptr_from_xdp", (6, 4), XDP, 0, Dynptr(DynptrKind::Xdp)),
    row("dynptr_slice", (6, 4), BOTH, RET_NULL, Slice { writable: false }),
    row("dynptr_slice_rdwr", (6, 4), BOTH, RET_NULL, Slice { writable: true }),
    row("dynptr_adjust", (6, 5), BOTH, 0, Plain),
    row("dynptr_is_null", (6, 5), BOTH, 0, Plain),
    row("dynptr_is_rdonly", (6, 5), BOTH, 0, Plain),
    row("dynptr_size", (6, 5), BOTH, 0, Plain),
    row("dynptr_clone", (6, 5), BOTH, 0, Plain),
    row("dynptr_copy", (6, 16), BOTH, 0, Plain),
    row("dynptr_memset", (6, 17), BOTH, 0, Plain),
    row("probe_read_kernel_dynptr", (6, 16), BOTH, 0, Plain),
    row("probe_read_kernel_str_dynptr", (6, 16), BOTH, 0, Plain),
    row("probe_read_user_dynptr", (6, 16), BOTH, 0, Plain),
    row("probe_read_user_str_dynptr", (6, 16), BOTH, 0, Plain),

    // Types.
    row("cast_to_kern_ctx", (6, 2), BOTH, 0, KernelContext),
    row("rdonly_cast", (6, 2), BOTH, 0, ReadOnlyCast),

    // Sections.
    row("rcu_read_lock", (6, 2), BOTH, 0, RcuLock),
    row("rcu_read_unlock", (6, 2), BOTH, 0, RcuUnlock),
    row("preempt_disable", (6, 10), BOTH, 0, PreemptDisable),
    row("preempt_enable", (6, 10), BOTH, 0, PreemptEnable),
    row("throw", (6, 7), BOTH, 0, Throw),

    // Tasks, control groups, keys.
    row("task_acquire", (6, 2), BOTH, ACQUIRE | RCU | RET_NULL, Plain),
    row("task_release", (6, 2), BOTH, RELEASE, Plain),
    row("task_from_pid", (6, 2), BOTH, ACQUIRE | RET_NULL, Plain),
    row("task_from_vpid", (6, 15), BOTH, ACQUIRE | RET_NULL, Plain),
    row("task_under_cgroup", (6, 5), BOTH, RCU, Plain),
    row("task_get_cgroup1", (6, 8), BOTH, ACQUIRE | RCU | RET_NULL, Plain),
    row("cgroup_acquire", (6, 2), BOTH, ACQUIRE | RCU | RET_NULL, Plain),
    row("cgroup_release", (6, 2), BOTH, RELEASE, Plain),
    row("cgroup_ancestor", (6, 2), BOTH, ACQUIRE | RCU | RET_NULL, Plain),
    row("cgroup_from_id", (6, 3), BOTH, ACQUIRE | RET_NULL, Plain),
    row("send_signal_task", (6, 13), BOTH, TRUSTED, Plain),
    row("lookup_system_key", (6, 16), BOTH, ACQUIRE | RET_NULL, Plain),
    row("lookup_user_key", (6, 16), BOTH, ACQUIRE | RET_NULL | SLEEPABLE, Plain),
    row("key_put", (6, 16), BOTH, RELEASE, Plain),
    row("map_sum_elem_count", (6, 6), BOTH, TRUSTED, Plain),

    // Packets and connections.
    row("xdp_metadata_rx_hash", (6, 3), XDP, TRUSTED, DeviceBound),
    row("xdp_metadata_rx_timestamp", (6, 3), XDP, TRUSTED, DeviceBound),
    row("xdp_metadata_rx_vlan_tag", (6, 8), XDP, TRUSTED, DeviceBound),
    row("xdp_pull_data", (6, 18), XDP, MOVES_PACKET, Plain),
    row("xdp_ct_alloc", (6, 0), BOTH, ACQUIRE | RET_NULL, Plain),
    row("xdp_ct_lookup", (5, 18), BOTH, ACQUIRE | RET_NULL, Plain),
    row("skb_ct_alloc", (6, 0), BOTH, ACQUIRE | RET_NULL, Plain),
    row("skb_ct_lookup", (5, 18), BOTH, ACQUIRE | RET_NULL, Plain),
    row("ct_insert_entry", (6, 0), BOTH, ACQUIRE | RET_NULL | RELEASE, Plain),
    row("ct_release", (5, 18), BOTH, RELEASE, Plain),
    row("ct_set_nat_info", (6, 1), BOTH, TRUSTED, Plain),
    row("ct_set_timeout", (6, 0), BOTH, TRUSTED, Plain),
    row("ct_change_timeout", (6, 0), BOTH, TRUSTED, Plain),
    row("ct_set_status", (6, 0), BOTH, TRUSTED, Plain),
    row("ct_change_status", (6, 0), BOTH, TRUSTED, Plain),
    row("xdp_get_xfrm_state", (6, 8), XDP, ACQUIRE | RET_NULL, Plain),
    row("xdp_xfrm_state_release", (6, 8), XDP, RELEASE, Plain),
    row("sk_assign_tcp_reqsk", (6, 9), TC, TRUSTED, Plain),

    // Strings.
    row("strcmp", (6, 17), BOTH, 0, Plain),
    row("strcasecmp", (6, 18), BOTH, 0, Plain),
    row("strchr", (6, 17), BOTH, 0, Plain),
    row("strchrnul", (6, 17), BOTH, 0, Plain),
    row("strnchr", (6, 17), BOTH, 0, Plain),
    row("strrchr", (6, 17), BOTH, 0, Plain),
    row("strlen", (6, 17), BOTH, 0, Plain),
    row("strnlen", (6, 17), BOTH, 0, Plain),
    row("strspn", (6, 17), BOTH, 0, Plain),
    row("strcspn", (6, 17), BOTH, 0, Plain),
    row("strstr", (6, 17), BOTH, 0, Plain),
    row("strnstr", (6, 17), BOTH, 0, Plain),

    // Known by name, so that a refusal can say what they are.
    row("obj_new_impl", (6, 2), BOTH, ACQUIRE | RET_NULL, Undescribed),
    row("obj_drop_impl", (6, 2), BOTH, RELEASE, Undescribed),
    row("percpu_obj_new_impl", (6, 7), BOTH, ACQUIRE | RET_NULL, Undescribed),
    row("percpu_obj_drop_impl", (6, 7), BOTH, RELEASE, Undescribed),
    row("refcount_acquire_impl", (6, 4), BOTH, ACQUIRE | RET_NULL | RCU, Undescribed),
    row("list_push_front_impl", (6, 2), BOTH, 0, Undescribed),
    row("list_push_back_impl", (6, 2), BOTH, 0, Undescribed),
    row("list_pop_front", (6, 2), BOTH, ACQUIRE | RET_NULL, Undescribed),
    row("list_pop_back", (6, 2), BOTH, ACQUIRE | RET_NULL, Undescribed),
    row("list_front", (6, 16), BOTH, RET_NULL, Undescribed),
    row("list_back", (6, 16), BOTH, RET_NULL, Undescribed),
    row("rbtree_add_impl", (6, 3), BOTH, 0, Undescribed),
    row("rbtree_remove", (6, 3), BOTH, ACQUIRE | RET_NULL, Undescribed),
    row("rbtree_first", (6, 3), BOTH, RET_NULL, Undescribed),
    row("rbtree_root", (6, 16), BOTH, RET_NULL, Undescribed),
    row("rbtree_left", (6, 16), BOTH, RET_NULL, Undescribed),
    row("rbtree_right", (6, 16), BOTH, RET_NULL, Undescribed),
    row("wq_init", (6, 10), BOTH, 0, Undescribed),
    row("wq_set_callback_impl", (6, 10), BOTH, 0, Undescribed),
    row("wq_start", (6, 10), BOTH, 0, Undescribed),
    row("local_irq_save", (6, 14), BOTH, 0, Undescribed),
    row("local_irq_restore", (6, 14), BOTH, 0, Undescribed),
    row("res_spin_lock", (6, 15), BOTH, RET_NULL, Undescribed),
    row("res_spin_unlock", (6, 15), BOTH, 0, Undescribed),
    row("res_spin_lock_irqsave", (6, 15), BOTH, RET_NULL, Undescribed),
    row("res_spin_unlock_irqrestore", (6, 15), BOTH, 0, Undescribed),
    row("arena_alloc_pages", (6, 9), BOTH, TRUSTED | SLEEPABLE, Undescribed),
    row("arena_free_pages", (6, 9), BOTH, TRUSTED | SLEEPABLE, Undescribed),
];

/// Names of a function's parameters, where an ending says something. Compilers leave the names out of declarations, so that an object
/// without the kernel's types does not have them.
#[rustfmt::skip]
const PARAMETERS: &[(&str, &[&str])] = &[
    ("iter_bits_new", &["it", "unsafe_ptr__ign", "nr_words"]),
    ("iter_task_new", &["it", "task__nullable", "flags"]),
    ("dynptr_from_skb", &["s", "flags", "ptr__uninit"]),
    ("dynptr_from_skb_meta", &["skb_", "flags", "ptr__uninit"]),
    ("dynptr_from_xdp", &["x", "flags", "ptr__uninit"]),
    ("dynptr_slice", &["p", "offset", "buffer__opt", "buffer__szk"]),
    ("dynptr_slice_rdwr", &["p", "offset", "buffer__opt", "buffer__szk"]),
    ("dynptr_clone", &["p", "clone__uninit"]),
    ("probe_read_kernel_dynptr", &["dptr", "off", "size", "unsafe_ptr__ign"]),
    ("probe_read_kernel_str_dynptr", &["dptr", "off", "size", "unsafe_ptr__ign"]),
    ("probe_read_user_dynptr", &["dptr", "off", "size", "unsafe_ptr__ign"]),
    ("probe_read_user_str_dynptr", &["dptr", "off", "size", "unsafe_ptr__ign"]),
    ("rdonly_cast", &["obj__ign", "btf_id__k"]),
    ("xdp_ct_alloc", &["xdp_ctx", "bpf_tuple", "tuple__sz", "opts", "opts__sz"]),
    ("xdp_ct_lookup", &["xdp_ctx", "bpf_tuple", "tuple__sz", "opts", "opts__sz"]),
    ("skb_ct_alloc", &["skb_ctx", "bpf_tuple", "tuple__sz", "opts", "opts__sz"]),
    ("skb_ct_lookup", &["skb_ctx", "bpf_tuple", "tuple__sz", "opts", "opts__sz"]),
    ("xdp_get_xfrm_state", &["ctx", "opts", "opts__sz"]),
    ("sk_assign_tcp_reqsk", &["s", "sk", "attrs", "attrs__sz"]),
    ("strcmp", &["s1__ign", "s2__ign"]),
    ("strcasecmp", &["s1__ign", "s2__ign"]),
    ("strchr", &["s__ign", "c"]),
    ("strchrnul", &["s__ign", "c"]),
    ("strnchr", &["s__ign", "count", "c"]),
    ("strrchr", &["s__ign", "c"]),
    ("strlen", &["s__ign"]),
    ("strnlen", &["s__ign", "count"]),
    ("strspn", &["s__ign", "accept__ign"]),
    ("strcspn", &["s__ign", "reject__ign"]),
    ("strstr", &["s1__ign", "s2__ign"]),
    ("strnstr", &["s1__ign", "s2__ign", "len"]),
];

/// Name of parameter `index` of a function, where its ending says something.
pub(crate) fn parameter_name(function: &str, index: usize) -> Option<&'static str> {
    let function = function.strip_prefix("bpf_")?;
    let (_, names) = PARAMETERS.iter().find(|(name, _)| *name == function)?;
    names.get(index).copied()
}

/// All kernel functions.
#[cfg(test)]
pub(crate) fn all_kernel_functions() -> &'static [KernelFunction] {
    FUNCTIONS
}

/// The number that stands for the kernel function of this name.
pub(crate) fn kernel_function_number(name: &str) -> Option<u32> {
    let name = name.strip_prefix("bpf_")?;
    let index = FUNCTIONS.iter().position(|f| f.name == name)?;
    Some(KERNEL_FUNCTION | index as u32)
}

/// The kernel function that a number stands for.
pub(crate) fn kernel_function(number: u32) -> Option<&'static KernelFunction> {
    let index = number.checked_sub(KERNEL_FUNCTION)?;
    FUNCTIONS.get(index as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Btf;
    use crate::signature::{Signature, Target, Value};

    #[test]
    fn prototypes_of_the_running_kernel_can_be_read() {
        let Ok(types) = Btf::of_running_kernel() else {
            return;
        };
        let mut read = 0;
        for function in all_kernel_functions() {
            let name = format!("bpf_{}", function.name);
            // A kernel that is older, or built without it, lacks the function.
            if types.prototype_of(&name).is_none() {
                continue;
            }
            read += 1;
            let signature = Signature::of(&types, &name);
            let signature = signature.unwrap_or_else(|| panic!("{name} has a readable prototype"));
            for (index, parameter) in signature.parameters.iter().enumerate() {
                let known = parameter_name(&name, index);
                let says = parameter.name.contains("__") && function.effect != Undescribed;
                assert!(
                    known == Some(parameter.name.as_str()) || (known.is_none() && !says),
                    "{name}: {} is {known:?} here",
                    parameter.name
                );
            }
            if function.iterator().is_some() {
                let first = signature.parameters.first().map(|p| &p.value);
                let slots = matches!(first, Some(Value::Pointer(Target::Plain { size, .. }))
                    if *size > 0 && size.is_multiple_of(8));
                assert!(slots, "{name}: {first:?}");
            }
            if function.has(ACQUIRE) {
                let pointer = matches!(signature.result, Value::Pointer(_));
                assert!(pointer, "{name} yields a pointer: {:?}", signature.result);
            }
        }
        assert!(read == 0 || read > 20, "{read}");
    }

    #[test]
    fn numbers_name_their_functions() {
        for (index, function) in all_kernel_functions().iter().enumerate() {
            let number = kernel_function_number(&format!("bpf_{}", function.name));
            assert_eq!(number, Some(KERNEL_FUNCTION | index as u32), "{function:?}");
            assert!(function.xdp || function.tc, "{function:?}");
            let steps = ITER_NEW | ITER_NEXT | ITER_DESTROY;
            assert_eq!(
                function.has(steps),
                function.iterator().is_some(),
                "{function:?}"
            );
        }
        assert_eq!(kernel_function_number("bpf_nothing"), None);
        assert_eq!(kernel_function_number("iter_num_new"), None);
    }
}
