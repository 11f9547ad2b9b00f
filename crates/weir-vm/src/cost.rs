//! What a run touches, counted in the interpreter: instructions, calls, look-ups and cache lines, the same on every machine.
//!
//! Owns [`Cost`] of one run and [`Budget`] of several. A line is 64 bytes. Lines of maps are counted by element and offset, so
//! elements are taken to start at a line of their own, except those of arrays, which lie side by side. A hash adds a line for the bucket and those of the key.
//! The stack and the context are not counted: every packet has them in the first-level cache.
//! Invariant: counting changes nothing that a run does.

use std::collections::{BTreeMap, BTreeSet};

use crate::insn::{Kind, Op};
use crate::interp::Registers;
use crate::machine::Machine;
use crate::maps::{Map, MapKind};
use crate::memory::{Memory, Spot, handle_map};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

/// What the kernel stores in front of the key of a hash's element (`struct htab_elem`, kernel/bpf/hashtab.c).
const HASH_HEADER: u64 = 48;

/// What the kernel stores in front of the values of an array that is not mapped memory (`struct bpf_array`, 312 bytes in Linux 6.18).
const ARRAY_HEADER: u64 = 312;

/// Creation flag of arrays that are mapped memory, which begins at a page.
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Stands for the pointers of a per-CPU array in place of an element.
const POINTERS: u32 = u32::MAX;

/// One cache line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Of the packet, counted from its first byte.
    Packet(u64),
    /// Of a map: its number, the element (of arrays the CPU, since elements lie side by side), and the line in it.
    Map(usize, u32, u64),
    /// The bucket of a hash that a key falls into, by the key.
    Bucket(usize, Vec<u8>),
}

/// What one run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Instructions executed.
    pub instructions: u64,
    /// Calls of the program's own functions.
    pub calls: u64,
    /// Calls of helpers that are not look-ups, by number.
    pub helpers: BTreeMap<u32, u64>,
    /// Look-ups in arrays, which the kernel compiles in line.
    pub array_lookups: u64,
    /// Look-ups in all other maps, each a call.
    pub lookups: u64,
    /// Lines of maps and of the packet.
    pub lines: BTreeSet<Line>,
}

/// What a packet costs at most, over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Instructions.
    pub instructions: u64,
    /// Calls of functions.
    pub calls: u64,
    /// Calls of helpers, tail calls included, look-ups in arrays excluded.
    pub helpers: u64,
    /// Lines of maps that most packets share, and that stay in the cache.
    pub shared_lines: u64,
    /// Lines of maps that few other packets touch: misses, once there are enough flows or rules.
    pub own_lines: u64,
}

impl Budget {
    /// The budget of packets that went through the same program.
    ///
    /// A line is shared if more than half of the packets touch it; of one packet alone, all are.
    pub fn of(costs: &[Cost]) -> Budget {
        let mut users: BTreeMap<&Line, usize> = BTreeMap::new();
        for line in costs.iter().flat_map(|c| &c.lines) {
            *users.entry(line).or_default() += 1;
        }
        let is_map = |line: &&Line| !matches!(line, Line::Packet(_));
        let is_shared = |line: &Line| users.get(line).is_some_and(|n| 2 * n > costs.len());
        let most = |of: &dyn Fn(&Cost) -> u64| costs.iter().map(of).max().unwrap_or(0);
        Budget {
            instructions: most(&|c| c.instructions),
            calls: most(&|c| c.calls),
            helpers: most(&|c| c.lookups + c.helpers.values().sum::<u64>()),
            shared_lines: most(&|c| {
                let lines = c.lines.iter().filter(is_map);
                lines.filter(|l| is_shared(l)).count() as u64
            }),
            own_lines: most(&|c| {
                let lines = c.lines.iter().filter(is_map);
                lines.filter(|l| !is_shared(l)).count() as u64
            }),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} instructions, {} calls, {} helpers, {} shared lines, {} own lines",
            self.instructions, self.calls, self.helpers, self.shared_lines, self.own_lines
        )
    }
}

impl Machine {
    /// Begins to count what interpreted runs cost. Native code cannot be counted: this machine interprets from now on.
    pub fn count_costs(&mut self) {
        self.set_cost(Some(Box::default()));
    }

    /// What was counted since [`Machine::count_costs`] or the last call; nothing if counting was not begun.
    pub fn take_cost(&mut self) -> Option<Cost> {
        self.cost().map(std::mem::take)
    }
}

impl Cost {
    /// Counts the operation that is about to be executed.
    pub(crate) fn look(&mut self, op: &Op, regs: &Registers, memory: &Memory<'_>) {
        use Kind::*;
        self.instructions += 1;
        let register = |number: u8| regs[(number & 15) as usize];
        let at = |number: u8| register(number).wrapping_add(op.off as i64 as u64);
        match op.kind {
            Ldx8 | Ldxs8 => self.touch(at(op.src), 1, memory),
            Ldx16 | Ldxs16 => self.touch(at(op.src), 2, memory),
            Ldx32 | Ldxs32 => self.touch(at(op.src), 4, memory),
            Ldx64 => self.touch(at(op.src), 8, memory),
            St8 | Stx8 => self.touch(at(op.dst), 1, memory),
            St16 | Stx16 => self.touch(at(op.dst), 2, memory),
            St32 | Stx32 | Atomic32 => self.touch(at(op.dst), 4, memory),
            St64 | Stx64 | Atomic64 => self.touch(at(op.dst), 8, memory),
            Call => self.calls += 1,
            Helper => self.helper(op.imm as u32, regs, memory),
            _ => {}
        }
    }

    fn helper(&mut self, number: u32, regs: &Registers, memory: &Memory<'_>) {
        const LOOKUP: u32 = 1;
        const LOOKUP_PERCPU: u32 = 195;
        let map = handle_map(regs[1]).and_then(|n| Some((n, memory.maps.get(n)?)));
        let Some((number_of_map, map)) = map else {
            *self.helpers.entry(number).or_default() += 1;
            return;
        };
        let is_lookup = matches!(number, LOOKUP | LOOKUP_PERCPU);
        if !is_lookup {
            *self.helpers.entry(number).or_default() += 1;
        }
        // What a hash touches before the program sees a value: the bucket, and the key of the element.
        if has_buckets(map) && number <= 3 {
            let size = map.definition().key_size as usize;
            let key = memory.bytes(regs[2], size).map(<[u8]>::to_vec);
            let key = key.unwrap_or_default();
            if let Some(element) = map.find(&key) {
                let end = (HASH_HEADER + size as u64 - 1) / LINE_BYTES;
                let lines = (0..=end).map(|line| Line::Map(number_of_map, element, line));
                self.lines.extend(lines);
            }
            self.lines.insert(Line::Bucket(number_of_map, key));
        }
        if map.kind() == MapKind::PercpuArray && is_lookup {
            // The kernel keeps a pointer for each element.
            let index = memory.load::<4>(regs[2]).map_or(0, u32::from_le_bytes);
            let line = u64::from(index) * 8 / LINE_BYTES;
            self.lines.insert(Line::Map(number_of_map, POINTERS, line));
        }
        if is_lookup {
            match map.kind() {
                MapKind::Array | MapKind::PercpuArray | MapKind::ArrayOfMaps => {
                    self.array_lookups += 1;
                }
                _ => self.lookups += 1,
            }
        }
    }

    fn touch(&mut self, address: u64, width: u64, memory: &Memory<'_>) {
        match memory.spot(address) {
            Spot::Packet { data, .. } => {
                let first = data.max(0) as u64;
                let lines = first / LINE_BYTES..=(first + width - 1) / LINE_BYTES;
                self.lines.extend(lines.map(Line::Packet));
            }
            Spot::Value(map, offset) => {
                let Some((slot, found)) = memory.slot_at(address) else {
                    return;
                };
                let offset = offset.max(0) as u64;
                let definition = found.definition();
                let stride = u64::from(definition.value_size.next_multiple_of(8));
                let cpus = found.values_per_element();
                let (element, first) = if has_elements_apart(found) && cpus == 1 {
                    let key = u64::from(definition.key_size.next_multiple_of(8));
                    (slot, offset + HASH_HEADER + key)
                } else {
                    // Values of one CPU lie side by side.
                    let has_header =
                        !found.kind().is_percpu() && definition.flags & BPF_F_MMAPABLE == 0;
                    let start = if has_header { ARRAY_HEADER } else { 0 };
                    let at = start + u64::from(slot / cpus) * stride + offset;
                    (slot % cpus, at)
                };
                let lines = first / LINE_BYTES..=(first + width - 1) / LINE_BYTES;
                self.lines
                    .extend(lines.map(|line| Line::Map(map, element, line)));
            }
            _ => {}
        }
    }
}

/// Whether the kernel finds elements by hash.
fn has_buckets(map: &Map) -> bool {
    use MapKind::*;
    matches!(
        map.kind(),
        Hash | PercpuHash | LruHash | LruPercpuHash | HashOfMaps | DevMapHash
    )
}

/// Whether each element is an allocation of its own.
fn has_elements_apart(map: &Map) -> bool {
    has_buckets(map) || map.kind() == MapKind::LpmTrie
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(lines: &[Line]) -> Cost {
        Cost {
            lines: lines.iter().cloned().collect(),
            ..Cost::default()
        }
    }

    /// Reads the first and the last word of a value of 64 bytes; the instructions are those of RFC 9669.
    #[test]
    fn a_value_lies_across_two_lines_unless_it_is_mapped_memory() {
        let code: [u64; 6] = [
            0x0000_0000_0000_2118,
            0x0000_0000_0000_0000,
            0x0000_0000_0000_1079,
            0x0000_0000_0038_1279,
            0x0000_0000_0000_00b7,
            0x0000_0000_0000_0095,
        ];
        let code: Vec<u8> = code.iter().flat_map(|insn| insn.to_le_bytes()).collect();
        for (flags, lines) in [(0, vec![4, 5]), (BPF_F_MMAPABLE, vec![0])] {
            let mut map = crate::MapDefinition::new("values", MapKind::Array, 4, 64, 1);
            map.flags = flags;
            let machine = Machine::from_program(&code, vec![map], 2);
            let mut machine = machine.expect("a program");
            assert_eq!(machine.take_cost(), None);
            machine.count_costs();
            assert_eq!(machine.run_raw(&mut []), Ok(0));
            let cost = machine.take_cost().expect("counted");
            let lines = lines.into_iter().map(|line| Line::Map(0, 0, line));
            assert_eq!(cost.lines, lines.collect());
            assert_eq!((cost.instructions, cost.calls), (5, 0));
            assert_eq!(machine.take_cost(), Some(Cost::default()));
        }
    }

    #[test]
    fn what_most_packets_touch_is_shared() {
        let own = |n: u32| Line::Map(1, n, 0);
        let costs: Vec<Cost> = (0..4)
            .map(|n| cost(&[Line::Packet(0), Line::Map(0, 0, 0), own(n)]))
            .collect();
        let budget = Budget::of(&costs);
        assert_eq!((budget.shared_lines, budget.own_lines), (1, 1));
        let one = Budget::of(&costs[..1]);
        assert_eq!((one.shared_lines, one.own_lines), (2, 0));
        assert_eq!(Budget::of(&[]), Budget::default());
    }
}
