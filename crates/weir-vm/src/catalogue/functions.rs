//! Kernel functions that programs may call: the open-coded iterators.
//!
//! Owns their names and the numbers that stand for them in linked code, beside those of helpers. Invariant: a number with
//! [`KERNEL_FUNCTION`] is in the table, because decoding makes it from there only.

use super::Kernel;

/// Marks the number of a kernel function among those of helpers.
pub(crate) const KERNEL_FUNCTION: u32 = 1 << 30;

/// What is iterated over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IteratorKind {
    /// Numbers from one up to another (`bpf_for`).
    Num,
    /// Bits that are set in memory.
    Bits,
}

impl IteratorKind {
    /// Eight-byte slots of its state on the stack.
    pub(crate) fn slots(self) -> usize {
        match self {
            IteratorKind::Num => 1,
            IteratorKind::Bits => 2,
        }
    }
}

/// Which step of an iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IteratorStep {
    New,
    Next,
    Destroy,
}

/// A kernel function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFunction {
    /// Without `bpf_`.
    pub(crate) name: &'static str,
    pub(crate) since: Kernel,
    pub(crate) kind: IteratorKind,
    pub(crate) step: IteratorStep,
}

const fn iterator(
    name: &'static str,
    since: Kernel,
    kind: IteratorKind,
    step: IteratorStep,
) -> KernelFunction {
    KernelFunction {
        name,
        since,
        kind,
        step,
    }
}

#[rustfmt::skip]
const FUNCTIONS: [KernelFunction; 6] = [
    iterator("iter_num_new", Kernel(6, 4), IteratorKind::Num, IteratorStep::New),
    iterator("iter_num_next", Kernel(6, 4), IteratorKind::Num, IteratorStep::Next),
    iterator("iter_num_destroy", Kernel(6, 4), IteratorKind::Num, IteratorStep::Destroy),
    iterator("iter_bits_new", Kernel(6, 11), IteratorKind::Bits, IteratorStep::New),
    iterator("iter_bits_next", Kernel(6, 11), IteratorKind::Bits, IteratorStep::Next),
    iterator("iter_bits_destroy", Kernel(6, 11), IteratorKind::Bits, IteratorStep::Destroy),
];

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
