//! Room in an instance's arrays for rules that are added while it runs: two halves behind the plan's own rules, of which packets
//! read one while the other is written (docs/design/updates.md).

use weir_bpf::abi;
use weir_classify::{Classifier, Offsets};

use super::Lowered;

/// Elements of each array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) tables: u32,
    pub(super) shapes: u32,
    pub(super) cells: u32,
    pub(super) nodes: u32,
    pub(super) lists: u32,
    pub(super) rules: u32,
    pub(super) conds: u32,
    pub(super) intervals: u32,
    pub(super) ops: u32,
}

impl Sizes {
    /// What these rules take.
    pub(super) fn of(lowered: &Lowered<'_>, built: &Classifier) -> Sizes {
        Sizes {
            tables: built.tables.len() as u32,
            shapes: built.shapes.len() as u32,
            cells: built.cells.len() as u32,
            nodes: built.nodes.len() as u32,
            lists: built.lists.len() as u32,
            rules: lowered.rules.len() as u32,
            conds: lowered.lowering.conds().len() as u32,
            intervals: lowered.lowering.intervals().len() as u32,
            ops: lowered.ops.len() as u32,
        }
    }

    /// Whether all of it fits.
    pub(super) fn fits(&self, room: &Sizes) -> bool {
        self.tables <= room.tables
            && self.shapes <= room.shapes
            && self.cells <= room.cells
            && self.nodes <= room.nodes
            && self.lists <= room.lists
            && self.rules <= room.rules
            && self.conds <= room.conds
            && self.intervals <= room.intervals
            && self.ops <= room.ops
    }

    /// First elements of a half, 0 or 1, that lies behind these.
    pub(super) fn behind(&self, half: &Sizes, number: u32) -> First {
        let at = |own: u32, room: u32| own + room * number;
        First(Sizes {
            tables: at(self.tables, half.tables),
            shapes: at(self.shapes, half.shapes),
            cells: at(self.cells, half.cells),
            nodes: at(self.nodes, half.nodes),
            lists: at(self.lists, half.lists),
            rules: at(self.rules, half.rules),
            conds: at(self.conds, half.conds),
            intervals: at(self.intervals, half.intervals),
            ops: at(self.ops, half.ops),
        })
    }
}

/// First element of a half in each array.
#[derive(Clone, Copy, Debug)]
pub(super) struct First(pub(super) Sizes);

impl First {
    /// What packets read of a half with so many tables and cells (a power of two).
    pub(super) fn header(&self, tables: u32, cells: u32) -> abi::Half {
        abi::Half {
            table_first: self.0.tables,
            tables,
            cell_first: self.0.cells,
            cells_mask: cells - 1,
        }
    }

    pub(super) fn place(&self) -> Offsets {
        Offsets {
            shapes: self.0.shapes,
            nodes: self.0.nodes,
            lists: self.0.lists,
            rules: self.0.rules,
            conds: self.0.conds,
        }
    }
}

/// Room for added rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct EditCapacity {
    /// Of each half.
    pub(super) halves: Sizes,
}

impl EditCapacity {
    /// For instances whose rules never change.
    pub(super) const NONE: EditCapacity = EditCapacity {
        halves: Sizes {
            tables: 0,
            shapes: 0,
            cells: 0,
            nodes: 0,
            lists: 0,
            rules: 0,
            conds: 0,
            intervals: 0,
            ops: 0,
        },
    };

    /// Ids that connections can find rules beside the plan by. Every addition takes one and none comes back, so there are more of them than
    /// rules fit.
    pub(super) fn ids(&self) -> u32 {
        self.halves.rules * 16
    }

    /// Beside so many rules. The larger a set, the dearer it is to lay it out anew, so the more is added before that.
    pub(super) fn beside(rules: usize) -> EditCapacity {
        let n = (rules / 16).clamp(64, 1024).next_power_of_two() as u32;
        EditCapacity {
            halves: Sizes {
                tables: abi::LIVE_TABLES as u32,
                shapes: n / 4,
                cells: n,
                nodes: n * 4,
                lists: n * 8,
                rules: n,
                conds: n * 4,
                intervals: n * 4,
                ops: n * 4,
            },
        }
    }
}
