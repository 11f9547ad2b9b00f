//! The words in which the data plane looks an address up (bpf/include/routes.h), and how one prefix is put in or taken out of them
//! while packets read.
//!
//! A table is a root of 2^16 or 2^24 words and nodes of 256 words for 8 more bits each. A word names what the longest prefix leads to, or
//! a node. Beside its number it has the *depth* of the prefix that owns it: its length beyond where the table or node begins, 0 for
//! prefixes that end there or before. Depths make an edit local: a prefix takes the words whose owner is not longer, and gives
//! back those whose owner it is.
//! Invariants: at any moment every word is the answer of the prefixes before the edit or after it; a node that was let go is not written
//! again until [`Nodes::settle`] says that no packet is in it any more.

use std::collections::VecDeque;

use weir_bpf::abi::router::{NODE, word};
use weir_value::Prefix;

/// Memory that packets read: words by place.
pub trait Words {
    /// The word at a place of a table.
    fn word(&self, table: Table, at: usize) -> u32;
    /// Writes it, at once as a whole.
    fn set_word(&mut self, table: Table, at: usize, word: u32);
    /// Words there are.
    fn len(&self, table: Table) -> usize;
}

/// A map of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Root of IPv4.
    Root4,
    /// Root of IPv6.
    Root6,
    /// Nodes of both.
    Nodes,
    /// Where routes are counted: what each leads to.
    Targets,
}

/// First bit of the depth in a word: 5 bits.
const DEPTH: u32 = 24;
const DEPTHS: u32 = 31 << DEPTH;
/// What a word says of where packets go.
const TO: u32 = word::GROUP | word::NUMBER;
/// Bits that a node decides by.
const STRIDE: u32 = NODE.ilog2();

fn depth_of(word: u32) -> u32 {
    (word & DEPTHS) >> DEPTH
}

fn is_deeper(word: u32) -> bool {
    word & word::DEEPER != 0
}

/// The nodes that are free, and how many prefixes need each.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// Prefixes that end below the first bit of the node.
    needed: Vec<u32>,
    free: Vec<u32>,
    /// Let go, but maybe still read.
    leaving: VecDeque<u32>,
}

/// No node is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Some are only waiting for [`Nodes::settle`].
    pub waiting: bool,
}

impl Nodes {
    /// As many nodes as there are words for; none is in use.
    pub fn new(words: usize) -> Nodes {
        let nodes = (words / NODE) as u32;
        Nodes {
            needed: vec![0; nodes as usize],
            // The first to be taken is the first of them; 0 is one like any other.
            free: (0..nodes).rev().collect(),
            leaving: VecDeque::new(),
        }
    }

    /// Nodes in use.
    pub fn used(&self) -> usize {
        self.needed.len() - self.free.len() - self.leaving.len()
    }

    /// Whether nodes wait for [`Nodes::settle`].
    pub fn waits(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// To be called when no packet is under way any more that was when the last node was let go.
    pub fn settle(&mut self) {
        self.free.extend(self.leaving.drain(..));
    }

    fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }
}

/// One family's table.
#[derive(Clone, Copy, Debug)]
pub struct Trie {
    root: Table,
    /// Bits that the root decides by.
    bits: u32,
}

/// A prefix: its bits from the highest on, and how many of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Address, its first bit the highest; the rest is 0.
    pub bits: u128,
    /// Length.
    pub len: u8,
}

impl Key {
    /// Of a prefix.
    pub fn of(prefix: &Prefix) -> Key {
        Key {
            bits: match prefix.is_ip6 {
                true => prefix.first,
                false => prefix.first << 96,
            },
            len: prefix.len,
        }
    }

    /// The bits of an address that a prefix of `len` bits has.
    pub fn cut(bits: u128, len: u8) -> Key {
        let keep = match len {
            0 => 0,
            len => u128::MAX << (128 - u32::from(len.min(128))),
        };
        Key {
            bits: bits & keep,
            len,
        }
    }

    /// `count` bits from `from` on.
    fn part(self, from: u32, count: u32) -> usize {
        (self.bits << from >> (128 - count)) as usize
    }
}

/// Where in the words a prefix ends.
struct End {
    table: Table,
    /// First word of the root or node.
    base: usize,
    /// First bit it decides by.
    start: u32,
    /// Bits it decides by.
    bits: u32,
}

impl End {
    fn words(&self, key: Key) -> (usize, usize) {
        let count = 1usize << (self.start + self.bits - u32::from(key.len));
        (self.base + key.part(self.start, self.bits), count)
    }

    fn depth(&self, len: u8) -> u32 {
        u32::from(len).saturating_sub(self.start)
    }
}

impl Trie {
    /// The table below this root; `words` of it.
    pub fn new(root: Table, words: usize) -> Trie {
        Trie {
            root,
            bits: words.max(2).ilog2(),
        }
    }

    /// What an address leads to: [`word::GROUP`] and a number, 0 for no route.
    pub fn find(&self, words: &impl Words, address: u128) -> u32 {
        let key = Key {
            bits: address,
            len: 128,
        };
        let mut word = words.word(self.root, key.part(0, self.bits));
        let mut start = self.bits;
        while is_deeper(word) && start < 128 {
            let base = (word & word::NUMBER) as usize * NODE;
            word = words.word(Table::Nodes, base + key.part(start, STRIDE));
            start += STRIDE;
        }
        word & TO
    }

    /// Lets a prefix lead to `to`; `new`: it was not in the table.
    ///
    /// # Errors
    /// [`Full`]; packets get the answers they got before.
    pub fn put(
        &self,
        words: &mut impl Words,
        nodes: &mut Nodes,
        key: Key,
        to: u32,
        new: bool,
    ) -> Result<(), Full> {
        let depth = self.missing(words, key);
        if depth > nodes.free.len() {
            return Err(Full {
                waiting: depth <= nodes.free.len() + nodes.leaving.len(),
            });
        }
        let mut end = self.top();
        while u32::from(key.len) > end.start + end.bits {
            let at = end.base + key.part(end.start, end.bits);
            let here = words.word(end.table, at);
            let node = if is_deeper(here) {
                here & word::NUMBER
            } else {
                // Counted above: there is one.
                let Some(node) = nodes.take() else {
                    return Err(Full { waiting: false });
                };
                let base = node as usize * NODE;
                for slot in base..base + NODE {
                    words.set_word(Table::Nodes, slot, here & TO);
                }
                words.set_word(end.table, at, word::DEEPER | here & DEPTHS | node);
                node
            };
            if new && let Some(needed) = nodes.needed.get_mut(node as usize) {
                *needed += 1;
            }
            end = below(&end, node);
        }
        let depth = end.depth(key.len);
        let (first, count) = end.words(key);
        for at in first..first + count {
            let here = words.word(end.table, at);
            if depth_of(here) <= depth {
                own(words, end.table, at, here, to, depth);
            }
        }
        Ok(())
    }

    /// Takes a prefix out. `instead`: what the longest prefix that holds it leads to, and its length; `None`: there is none.
    pub fn remove(
        &self,
        words: &mut impl Words,
        nodes: &mut Nodes,
        key: Key,
        instead: Option<(u32, u8)>,
    ) {
        let (to, len) = instead.unwrap_or((0, 0));
        let mut way = Vec::new();
        let mut end = self.top();
        while u32::from(key.len) > end.start + end.bits {
            let at = end.base + key.part(end.start, end.bits);
            let here = words.word(end.table, at);
            if !is_deeper(here) {
                return;
            }
            let node = here & word::NUMBER;
            way.push((end.table, at, node));
            end = below(&end, node);
        }
        let depth = end.depth(key.len);
        let (first, count) = end.words(key);
        for at in first..first + count {
            let here = words.word(end.table, at);
            if depth_of(here) == depth {
                own(words, end.table, at, here, to, end.depth(len));
            }
        }
        // From the lowest on: nodes that no prefix needs any more.
        for (table, at, node) in way.into_iter().rev() {
            let Some(needed) = nodes.needed.get_mut(node as usize) else {
                continue;
            };
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                let here = words.word(table, at);
                let inherited = words.word(Table::Nodes, node as usize * NODE) & TO;
                words.set_word(table, at, here & DEPTHS | inherited);
                nodes.leaving.push_back(node);
            }
        }
    }

    /// Takes note of a prefix that is in the table already.
    pub fn adopt(&self, words: &impl Words, nodes: &mut Nodes, key: Key) {
        let mut end = self.top();
        while u32::from(key.len) > end.start + end.bits {
            let here = words.word(end.table, end.base + key.part(end.start, end.bits));
            if !is_deeper(here) {
                return;
            }
            let node = here & word::NUMBER;
            if let Some(needed) = nodes.needed.get_mut(node as usize) {
                *needed += 1;
            }
            end = below(&end, node);
        }
    }

    fn top(&self) -> End {
        End {
            table: self.root,
            base: 0,
            start: 0,
            bits: self.bits,
        }
    }

    /// Nodes that a prefix needs and that are not there.
    fn missing(&self, words: &impl Words, key: Key) -> usize {
        let mut end = self.top();
        while u32::from(key.len) > end.start + end.bits {
            let here = words.word(end.table, end.base + key.part(end.start, end.bits));
            if !is_deeper(here) {
                let bits = u32::from(key.len) - end.start - end.bits;
                return bits.div_ceil(STRIDE) as usize;
            }
            end = below(&end, here & word::NUMBER);
        }
        0
    }
}

impl Nodes {
    /// Once all prefixes of tables that were found are adopted: what none of them needs is free.
    pub fn adopted(&mut self) {
        let free = (0u32..)
            .zip(&self.needed)
            .filter(|(_, needed)| **needed == 0);
        self.free = free.map(|(node, _)| node).collect();
        self.free.reverse();
        self.leaving.clear();
    }
}

fn below(end: &End, node: u32) -> End {
    End {
        table: Table::Nodes,
        base: node as usize * NODE,
        start: end.start + end.bits,
        bits: STRIDE,
    }
}

/// Gives a word, or what is inherited in the node it names, to a prefix.
fn own(words: &mut impl Words, table: Table, at: usize, here: u32, to: u32, depth: u32) {
    if is_deeper(here) {
        let node = here & word::NUMBER;
        inherit(words, node, to);
        words.set_word(table, at, word::DEEPER | depth << DEPTH | node);
    } else {
        words.set_word(table, at, depth << DEPTH | to & TO);
    }
}

/// Lets what belongs to no prefix that ends in a node lead to `to`.
fn inherit(words: &mut impl Words, node: u32, to: u32) {
    let base = node as usize * NODE;
    for at in base..base + NODE {
        let here = words.word(Table::Nodes, at);
        if depth_of(here) == 0 {
            own(words, Table::Nodes, at, here, to, 0);
        }
    }
}
