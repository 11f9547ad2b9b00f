//! VLAN tags that rules put on and take off: docs/semantics.md section 4. The frame changes when all else is written.

use weir_packet::parse::{Layout, MAX_TAGS};

/// Bytes of both addresses.
const ADDRESSES: usize = 12;

/// EtherType of a tag that is put on.
const TAG: [u8; 2] = [0x81, 0x00];

/// What rules make of the tags of a frame.
pub(super) struct Tags {
    had: usize,
    /// Of those, how many came off.
    off: usize,
    /// Those put on, the innermost first.
    on: Vec<u16>,
}

impl Tags {
    pub(super) fn of(layout: &Layout) -> Tags {
        Tags {
            had: layout.tags.len(),
            off: 0,
            on: Vec::new(),
        }
    }

    /// Whether there was room for one more.
    pub(super) fn push(&mut self, tci: u16) -> bool {
        let has_room = self.had - self.off + self.on.len() < MAX_TAGS;
        if has_room {
            self.on.push(tci);
        }
        has_room
    }

    /// Whether there was one.
    pub(super) fn pop(&mut self) -> bool {
        if self.on.pop().is_some() {
            return true;
        }
        let has_more = self.off < self.had;
        self.off += usize::from(has_more);
        has_more
    }

    /// Writes them into the frame; whether all could be done. `of_kernel`: the kernel takes tags off, and knows no type but 0x8100 and 0x88a8.
    pub(super) fn write(&self, frame: &mut Vec<u8>, of_kernel: bool) -> bool {
        for _ in 0..self.off {
            let is_known = matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
            if of_kernel && !is_known {
                return false;
            }
            frame.drain(ADDRESSES..ADDRESSES + 4);
        }
        for tci in &self.on {
            let [high, low] = tci.to_be_bytes();
            let [first, second] = TAG;
            frame.splice(ADDRESSES..ADDRESSES, [first, second, high, low]);
        }
        true
    }
}
