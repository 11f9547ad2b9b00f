//! Where in larger arrays a classifier lies: all indexes it holds are moved there, and nothing else about it changes.
//!
//! For rules added while running, which lie behind those of the plan in the same maps. Tables are not moved here: their number is
//! part of the hash, so the classifier was built for it ([`crate::build_from`]).

use weir_bpf::abi::slot_bits;

use crate::Classifier;

/// First index of each array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Of the masks of whole rules.
    pub shapes: u32,
    /// Of the nodes; 0 is none, so that node 0 of the classifier lies here, too, and is never met.
    pub nodes: u32,
    /// Of the lists.
    pub lists: u32,
    /// Of the rule array.
    pub rules: u32,
    /// Of the conditions.
    pub conds: u32,
}

impl Classifier {
    /// The classifier for arrays that begin there. `order` keeps positions in the input; its element `i` belongs at `rules + i`.
    #[must_use]
    pub fn moved_to(mut self, place: &Offsets) -> Classifier {
        for slot in self.cells.iter_mut().flat_map(|cell| &mut cell.slot) {
            if slot.what == 0 {
                continue;
            }
            slot.first += match slot.what >> slot_bits::TREE {
                0 => place.rules,
                _ => place.nodes,
            };
        }
        for node in &mut self.nodes {
            for child in [&mut node.left, &mut node.right] {
                if *child != 0 {
                    *child += place.nodes;
                }
            }
            node.first += place.lists;
            node.field += place.conds;
        }
        self.lists.iter_mut().for_each(|at| *at += place.rules);
        self.shape_of.iter_mut().for_each(|at| *at += place.shapes);
        self
    }
}
