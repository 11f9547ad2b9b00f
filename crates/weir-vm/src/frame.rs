//! The frame an XDP program works on: one linear buffer with head room, metadata and tail room.
//!
//! Owns the geometry rules of `bpf_xdp_adjust_head`, `_tail` and `_meta` and their error numbers. Does not know
//! virtual addresses. Invariant: `meta <= data <= end <= buffer length`, and `meta` is at least [`RESERVED_HEAD`].

use crate::errno::{EACCES, EFAULT, EINVAL};
use crate::jit::Block;

/// Bytes in front of a frame in an XDP buffer (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;

/// The first bytes of the head room hold the kernel's own `struct xdp_frame` (40 bytes on Linux 6.18) and are never the program's.
pub const RESERVED_HEAD: usize = 40;

/// Largest frame of a one-page buffer: 4,096 less head room and the kernel's 320-byte trailer.
pub const LINEAR_MAX: usize = 3_520;

/// Tail room given to frames that would not fit one page.
pub const JUMBO_TAILROOM: usize = 256;

/// Head and tail adjustments keep at least an Ethernet header.
const ETH_HEADER: usize = 14;

/// `data_meta` reaches back at most this far: the length field is one byte, and lengths are multiples of four.
const META_MAX: usize = 255;

/// Largest offset and length of the byte helpers.
const BYTES_MAX: u32 = 0xffff;

/// A frame with room to grow at both ends.
#[derive(Debug)]
pub struct Frame {
    /// Memory of at least `size` bytes; nothing for the empty frame.
    block: Option<Block>,
    /// Bytes in use, head and tail room included.
    size: usize,
    meta: usize,
    data: usize,
    end: usize,
}

impl Frame {
    /// A frame holding `data`, with [`HEADROOM`] before it and the tail room the kernel would leave: up to
    /// [`LINEAR_MAX`] bytes in all, or [`JUMBO_TAILROOM`] for longer frames.
    pub fn new(data: &[u8]) -> Frame {
        let mut frame = Frame::nothing();
        frame.reset(data);
        frame
    }

    /// A frame with chosen head and tail room in bytes; [`RESERVED_HEAD`] of the head room stays out of reach.
    pub fn with_room(data: &[u8], headroom: usize, tailroom: usize) -> Frame {
        let mut frame = Frame::nothing();
        frame.fill(data, headroom.max(RESERVED_HEAD), tailroom);
        frame
    }

    /// Replaces the contents as [`Frame::new`] would, keeping the allocation.
    pub fn reset(&mut self, data: &[u8]) {
        let tailroom = LINEAR_MAX.checked_sub(data.len()).unwrap_or(JUMBO_TAILROOM);
        self.fill(data, HEADROOM, tailroom);
    }

    /// The frame's bytes.
    pub fn data(&self) -> &[u8] {
        self.buffer().get(self.data..self.end).unwrap_or_default()
    }

    /// The frame's bytes, to change in place.
    pub fn data_mut(&mut self) -> &mut [u8] {
        let data = self.data..self.end;
        self.buffer_mut().get_mut(data).unwrap_or_default()
    }

    /// The metadata area in front of the frame, empty unless a program made one.
    pub fn metadata(&self) -> &[u8] {
        self.buffer().get(self.meta..self.data).unwrap_or_default()
    }

    /// The bytes that `bpf_xdp_load_bytes` and `bpf_xdp_store_bytes` copy.
    ///
    /// # Errors
    /// `-EFAULT` for an offset or length above 65,535, `-EINVAL` outside the frame.
    pub(crate) fn part(&self, offset: u32, len: u32) -> Result<&[u8], i64> {
        if offset > BYTES_MAX || len > BYTES_MAX {
            return Err(EFAULT);
        }
        let start = offset as usize;
        self.data().get(start..start + len as usize).ok_or(EINVAL)
    }

    /// Length of the frame in bytes.
    pub fn len(&self) -> usize {
        self.end - self.data
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.end == self.data
    }

    /// Bytes before the frame, the reserved ones and the metadata included.
    pub fn headroom(&self) -> usize {
        self.data
    }

    /// Bytes behind the frame.
    pub fn tailroom(&self) -> usize {
        self.size - self.end
    }

    /// `bpf_xdp_adjust_head`: moves the start by `delta` bytes, metadata with it.
    ///
    /// # Errors
    /// `-EINVAL` when fewer than 14 bytes would remain or the start would enter the reserved head or push the metadata into it.
    pub fn adjust_head(&mut self, delta: i32) -> Result<(), i64> {
        let metalen = self.data - self.meta;
        let data = shift(self.data, delta).ok_or(EINVAL)?;
        if data < RESERVED_HEAD + metalen || data + ETH_HEADER > self.end {
            return Err(EINVAL);
        }
        let metadata = self.meta..self.data;
        self.buffer_mut().copy_within(metadata, data - metalen);
        self.meta = data - metalen;
        self.data = data;
        Ok(())
    }

    /// `bpf_xdp_adjust_tail`: moves the end by `delta` bytes; new bytes are zero.
    ///
    /// # Errors
    /// `-EINVAL` when fewer than 14 bytes would remain or the tail room is too small.
    pub fn adjust_tail(&mut self, delta: i32) -> Result<(), i64> {
        let end = shift(self.end, delta).ok_or(EINVAL)?;
        if end > self.size || end < self.data + ETH_HEADER {
            return Err(EINVAL);
        }
        let grown = self.end..end;
        if let Some(grown) = self.buffer_mut().get_mut(grown) {
            grown.fill(0);
        }
        self.end = end;
        Ok(())
    }

    /// `bpf_xdp_adjust_meta`: moves the start of the metadata by `delta` bytes.
    ///
    /// # Errors
    /// `-EINVAL` outside the head room or past the frame's start, `-EACCES` for a length that is no multiple of four or above 255.
    pub fn adjust_meta(&mut self, delta: i32) -> Result<(), i64> {
        let meta = shift(self.meta, delta).ok_or(EINVAL)?;
        if meta < RESERVED_HEAD || meta > self.data {
            return Err(EINVAL);
        }
        let length = self.data - meta;
        if !length.is_multiple_of(4) || length > META_MAX {
            return Err(EACCES);
        }
        self.meta = meta;
        Ok(())
    }

    #[inline]
    pub(crate) fn buffer(&self) -> &[u8] {
        let bytes = self.block.as_ref().map_or(&[][..], Block::bytes);
        bytes.get(..self.size).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8] {
        let bytes = self.block.as_mut().map(Block::bytes_mut);
        bytes
            .and_then(|b| b.get_mut(..self.size))
            .unwrap_or_default()
    }

    /// Whether an address range of the host lies in the frame or its metadata.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        let start = self.address() + self.meta as u64;
        let size = (self.end - self.meta) as u64;
        let offset = address.wrapping_sub(start);
        offset <= size && len as u64 <= size - offset
    }

    /// Where the buffer starts in the host's memory.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, Block::address)
    }

    /// (metadata, data, end) as offsets into the buffer.
    #[inline]
    pub(crate) fn bounds(&self) -> (usize, usize, usize) {
        (self.meta, self.data, self.end)
    }

    fn nothing() -> Frame {
        Frame {
            block: None,
            size: 0,
            meta: 0,
            data: 0,
            end: 0,
        }
    }

    fn fill(&mut self, data: &[u8], headroom: usize, tailroom: usize) {
        let size = headroom + data.len() + tailroom;
        if self.block.as_ref().is_none_or(|b| b.len() < size) {
            // Without memory even a frame of no bytes has none: it stays empty.
            self.block = Block::guarded(size);
        }
        if self.block.is_none() {
            *self = Frame::nothing();
            return;
        }
        self.size = size;
        self.data = headroom;
        self.meta = headroom;
        self.end = headroom + data.len();
        let end = self.end;
        let buffer = self.buffer_mut();
        if let Some((head, rest)) = buffer.split_at_mut_checked(headroom) {
            head.fill(0);
            if let Some(to) = rest.get_mut(..data.len()) {
                to.copy_from_slice(data);
            }
        }
        if let Some(tail) = buffer.get_mut(end..) {
            tail.fill(0);
        }
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        let mut frame = Frame::nothing();
        frame.fill(self.buffer(), 0, 0);
        let size = frame.size;
        if size == self.size {
            (frame.meta, frame.data, frame.end) = (self.meta, self.data, self.end);
        }
        frame
    }
}

fn shift(position: usize, delta: i32) -> Option<usize> {
    position.checked_add_signed(delta as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_moves_within_room_and_keeps_an_ethernet_header() {
        let mut f = Frame::new(&[7; 60]);
        assert_eq!(f.adjust_head(-(216 + 1)), Err(EINVAL));
        assert_eq!(f.adjust_head(-216), Ok(()));
        assert_eq!((f.len(), f.headroom()), (276, 40));
        assert_eq!(f.adjust_head(216 + 47), Err(EINVAL));
        assert_eq!(f.adjust_head(216 + 46), Ok(()));
        assert_eq!(f.data(), [7; 14]);
        assert_eq!(f.adjust_head(i32::MIN), Err(EINVAL));
    }

    #[test]
    fn tail_grows_with_zeros_and_keeps_an_ethernet_header() {
        let mut f = Frame::new(&[7; 60]);
        assert_eq!(f.adjust_tail(-46), Ok(()));
        assert_eq!(f.adjust_tail(-1), Err(EINVAL));
        assert_eq!(f.adjust_tail(2), Ok(()));
        assert_eq!(f.data()[12..], [7, 7, 0, 0]);
        assert_eq!(f.adjust_tail(LINEAR_MAX as i32 - 16), Ok(()));
        assert_eq!(f.adjust_tail(1), Err(EINVAL));
        let mut short = Frame::new(&[1; 4]);
        assert_eq!(short.adjust_tail(0), Err(EINVAL));
        assert_eq!(short.adjust_tail(i32::MAX), Err(EINVAL));
    }

    #[test]
    fn metadata_follows_the_head() {
        let mut f = Frame::new(&[7; 60]);
        assert_eq!(f.adjust_meta(-6), Err(EACCES));
        assert_eq!(f.adjust_meta(-256), Err(EINVAL));
        assert_eq!(f.adjust_meta(4), Err(EINVAL));
        assert_eq!(f.adjust_meta(-8), Ok(()));
        f.buffer_mut()[248..256].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(f.adjust_head(-20), Ok(()));
        assert_eq!(f.metadata(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(f.adjust_head(-(216 - 20 - 8)), Ok(()));
        assert_eq!(f.adjust_head(-1), Err(EINVAL));
        let mut long = Frame::with_room(&[0; 20], 512, 0);
        assert_eq!(long.adjust_meta(-256), Err(EACCES));
        assert_eq!(long.adjust_meta(-252), Ok(()));
    }

    #[test]
    fn reset_forgets_what_was_there() {
        let mut f = Frame::new(&[9; 2_000]);
        f.reset(&[1; 20]);
        assert_eq!(f.adjust_tail(100), Ok(()));
        assert_eq!(f.data()[20..], [0; 100]);
        f.reset(&[1; 65_549]);
        assert_eq!((f.len(), f.tailroom()), (65_549, JUMBO_TAILROOM));
    }
}
