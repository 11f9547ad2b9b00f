//! The memory of frames (UMEM), and frames as tokens: whoever has a [`Frame`] may read and write its bytes, and nobody else has it.
//!
//! Invariant: there is exactly one token for each chunk of the area. It is in the hands of the program or, in spirit, inside a ring, where the kernel may write
//! to its chunk; it leaves a program only into a ring of its own UMEM and comes back only when the kernel returned it.

#![expect(unsafe_code, reason = "frames are memory shared with the kernel")]

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::XskError;

/// Bytes that the kernel leaves free in front of a received frame (`XDP_PACKET_HEADROOM`); metadata of XDP programs lies there.
pub const KERNEL_HEADROOM: u32 = 256;
/// The smallest chunk that the kernel takes.
const SMALLEST: u32 = 2048;

/// What frames should be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemConfig {
    /// Bytes of a chunk: 2048 or 4096 if aligned, from 2048 to a page if not.
    pub frame_size: u32,
    /// How many there are.
    pub frames: u32,
    /// Bytes that stay free in front of a received frame, beside [`KERNEL_HEADROOM`].
    pub headroom: u32,
    /// Chunks may begin anywhere, so that their size need not be a power of two.
    pub unaligned: bool,
    /// The area lies in huge pages, which must have been reserved.
    pub huge_pages: bool,
}

impl Default for UmemConfig {
    fn default() -> Self {
        UmemConfig {
            frame_size: 4096,
            frames: 4096,
            headroom: 0,
            unaligned: false,
            huge_pages: false,
        }
    }
}

/// One frame's chunk of the area, and the bytes of a packet in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    umem: u32,
    chunk: u32,
    offset: u32,
    len: u32,
    more: bool,
}

impl Frame {
    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the packet begins in its chunk.
    pub(crate) fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Whether the packet goes on in the next frame.
    pub fn continues(&self) -> bool {
        self.more
    }

    /// Says that the packet goes on in the frame that is sent next, or that it does not.
    pub fn set_continues(&mut self, more: bool) {
        self.more = more;
    }
}

/// An area of frames. Clones are the same area, which lives as long as the last of them and of its sockets.
#[derive(Clone, Debug)]
pub struct Umem {
    area: Arc<Area>,
}

#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    /// Bytes mapped.
    len: usize,
    id: u32,
    config: UmemConfig,
}

// SAFETY: the area is plain memory; which thread may touch which chunk is a matter of who has its token, and tokens are `Send`.
unsafe impl Send for Area {}
// SAFETY: as above: a shared area gives access to nothing without a token.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `Umem::new` with this length, and nobody borrows from it: borrows hold the area. The kernel has pages
        // pinned as long as a socket of its own needs them.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Umem {
    /// Maps an area, and makes the token of each of its frames.
    ///
    /// # Errors
    /// [`XskError`] when frames cannot be like that, or there is no memory for them.
    pub fn new(config: &UmemConfig) -> Result<(Umem, Vec<Frame>), XskError> {
        check(config)?;
        let bytes = u64::from(config.frame_size) * u64::from(config.frames);
        let page = if config.huge_pages {
            huge_page()
        } else {
            page_size()
        };
        let len =
            usize::try_from(bytes.next_multiple_of(page)).map_err(|_| XskError::UmemTooLarge {
                bytes,
                why: "beyond the address space".to_owned(),
            })?;
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if config.huge_pages {
            flags |= libc::MAP_HUGETLB;
        } else {
            // The kernel pins all of it anyway, and a page fault in the first packets would be measured.
            flags |= libc::MAP_POPULATE;
        }
        if !config.huge_pages {
            fits_memory(bytes)?;
        }
        // SAFETY: asks for new memory anywhere.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let e = io::Error::last_os_error();
            if config.huge_pages {
                return Err(XskError::NoHugePages {
                    needed: len as u64 / page,
                    free: meminfo("HugePages_Free:").unwrap_or(0),
                    page: page / 1024,
                });
            }
            return Err(too_large(bytes, &e));
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(XskError::sys(
                "map frames",
                io::Error::from(io::ErrorKind::OutOfMemory),
            ));
        };
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let umem = Umem {
            area: Arc::new(Area {
                base,
                len,
                id,
                config: *config,
            }),
        };
        let frames = (0..config.frames)
            .map(|chunk| Frame {
                umem: id,
                chunk,
                offset: 0,
                len: 0,
                more: false,
            })
            .collect();
        Ok((umem, frames))
    }

    /// What it was made of.
    pub fn config(&self) -> &UmemConfig {
        &self.area.config
    }

    /// The longest packet that fits one frame when it is sent. A received one has [`KERNEL_HEADROOM`] and the configured headroom less.
    pub fn frame_room(&self) -> usize {
        self.area.config.frame_size as usize
    }

    /// Whether a token is of this area.
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.umem == self.area.id
    }

    /// The bytes of the packet in a frame; none if the frame is of another area.
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let Some(at) = self.at(frame, frame.offset, frame.len) else {
            return &[];
        };
        // SAFETY: `at` lies inside the area, which `self` keeps mapped. The token is borrowed, so neither the kernel nor another token's
        // holder touches the chunk.
        unsafe { std::slice::from_raw_parts(self.area.base.as_ptr().add(at.start), at.len()) }
    }

    /// The bytes of the packet in a frame, to be changed.
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let Some(at) = self.at(frame, frame.offset, frame.len) else {
            return &mut [];
        };
        // SAFETY: as in `bytes`; the token is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.area.base.as_ptr().add(at.start), at.len()) }
    }

    /// The bytes in front of the packet, up to the start of its chunk, the nearest last: metadata of an XDP program ends where the packet begins.
    pub fn front_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let Some(at) = self.at(frame, 0, frame.offset) else {
            return &mut [];
        };
        // SAFETY: as in `bytes_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.area.base.as_ptr().add(at.start), at.len()) }
    }

    /// Makes the whole chunk behind `offset` the room of a new packet of `len` bytes, and lends it. None if they do not fit.
    pub fn prepare<'a>(
        &'a self,
        frame: &'a mut Frame,
        offset: usize,
        len: usize,
    ) -> Option<&'a mut [u8]> {
        let size = self.frame_room();
        if !self.owns(frame) || offset > size || len > size - offset {
            return None;
        }
        frame.offset = offset as u32;
        frame.len = len as u32;
        frame.more = false;
        Some(self.bytes_mut(frame))
    }

    /// Cuts the packet in a frame to its first `len` bytes.
    pub fn shorten(&self, frame: &mut Frame, len: usize) {
        frame.len = frame.len.min(len as u32);
    }

    fn at(&self, frame: &Frame, offset: u32, len: u32) -> Option<Range<usize>> {
        if !self.owns(frame) {
            return None;
        }
        // Tokens are made with these bounds; checked again because a mistake here would be a wild pointer.
        let config = &self.area.config;
        if frame.chunk >= config.frames || offset.checked_add(len)? > config.frame_size {
            return None;
        }
        let start = frame.chunk as usize * config.frame_size as usize + offset as usize;
        Some(start..start + len as usize)
    }

    /// Base address and bytes, for registration.
    pub(crate) fn registration(&self) -> (u64, u64) {
        let config = &self.area.config;
        let bytes = u64::from(config.frame_size) * u64::from(config.frames);
        let bytes = if config.huge_pages {
            self.area.len as u64
        } else {
            bytes
        };
        (self.area.base.as_ptr() as u64, bytes)
    }

    /// The start of a frame's chunk as the fill ring has it. Takes the token.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the token is given away: that is the point"
    )]
    pub(crate) fn give(&self, frame: Frame) -> u64 {
        u64::from(frame.chunk) * u64::from(self.area.config.frame_size)
    }

    /// A frame as the TX ring has it: address, length, options. Takes the token.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the token is given away: that is the point"
    )]
    pub(crate) fn give_packet(&self, frame: Frame) -> libc::xdp_desc {
        let base = u64::from(frame.chunk) * u64::from(self.area.config.frame_size);
        let addr = if self.area.config.unaligned {
            base | u64::from(frame.offset) << OFFSET_SHIFT
        } else {
            base + u64::from(frame.offset)
        };
        libc::xdp_desc {
            addr,
            len: frame.len,
            options: if frame.more { libc::XDP_PKT_CONTD } else { 0 },
        }
    }

    /// The token of what the kernel returned on a completion ring.
    pub(crate) fn returned(&self, addr: u64) -> Result<Frame, XskError> {
        let (chunk, _) = self.place(addr, 0)?;
        Ok(Frame {
            umem: self.area.id,
            chunk,
            offset: 0,
            len: 0,
            more: false,
        })
    }

    /// The token of what the kernel returned on an RX ring.
    pub(crate) fn received(&self, desc: libc::xdp_desc) -> Result<Frame, XskError> {
        let (chunk, offset) = self.place(desc.addr, desc.len)?;
        Ok(Frame {
            umem: self.area.id,
            chunk,
            offset,
            len: desc.len,
            more: desc.options & libc::XDP_PKT_CONTD != 0,
        })
    }

    /// Has the CPU fetch the first bytes of a received packet, which the kernel wrote on whatever CPU it was: they are on their way while packets before it are looked at.
    pub(crate) fn prefetch(&self, desc: &libc::xdp_desc) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.area.base.as_ptr();
            let at = at.wrapping_add(self.linear(desc.addr) as usize);
            // SAFETY: a hint, that faults at no address whatever; every x86-64 has the instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = desc;
    }

    /// Bytes from the area's beginning to what a descriptor's address stands for.
    fn linear(&self, addr: u64) -> u64 {
        if self.area.config.unaligned {
            (addr & ((1 << OFFSET_SHIFT) - 1)) + (addr >> OFFSET_SHIFT)
        } else {
            addr
        }
    }

    fn place(&self, addr: u64, len: u32) -> Result<(u32, u32), XskError> {
        let config = &self.area.config;
        let bad = || XskError::BadDescriptor { address: addr, len };
        let at = self.linear(addr);
        let size = u64::from(config.frame_size);
        // A division for each packet costs more than all the rest of its descriptor.
        let (chunk, offset) = if size.is_power_of_two() {
            (at >> size.trailing_zeros(), at & (size - 1))
        } else {
            (at / size, at % size)
        };
        let chunk = u32::try_from(chunk).map_err(|_| bad())?;
        let offset = offset as u32;
        if chunk >= config.frames || u64::from(offset) + u64::from(len) > size {
            return Err(bad());
        }
        Ok((chunk, offset))
    }
}

/// `XSK_UNALIGNED_BUF_OFFSET_SHIFT`: where the offset stands in an address of an unaligned area.
const OFFSET_SHIFT: u32 = 48;

fn check(config: &UmemConfig) -> Result<(), XskError> {
    let UmemConfig {
        frame_size: size,
        frames,
        headroom,
        unaligned,
        ..
    } = *config;
    let wrong = |why: String| Err(XskError::FrameSize { size, why });
    let page = page_size();
    if size < SMALLEST || u64::from(size) > page {
        return wrong(format!("they have {SMALLEST} to {page} (a page)"));
    }
    if !unaligned && !size.is_power_of_two() {
        return wrong("aligned frames have a power of two; unaligned ones need not".to_owned());
    }
    if u64::from(headroom) + u64::from(KERNEL_HEADROOM) >= u64::from(size) {
        return wrong(format!(
            "{headroom} of headroom and the kernel's {KERNEL_HEADROOM} leave no space for a packet"
        ));
    }
    if frames == 0 {
        return Err(XskError::FrameCount {
            frames,
            why: "at least one is needed",
        });
    }
    Ok(())
}

/// Refuses what would only end in the kernel's killing of processes: more than the machine has free.
fn fits_memory(bytes: u64) -> Result<(), XskError> {
    let Some(available) = meminfo("MemAvailable:").map(|kb| kb * 1024) else {
        return Ok(());
    };
    if bytes <= available {
        return Ok(());
    }
    Err(XskError::UmemTooLarge {
        bytes,
        why: format!("{available} bytes of memory are available"),
    })
}

/// The error of a refused area, with the limit on locked memory, which is what most often refuses.
pub(crate) fn too_large(bytes: u64, e: &io::Error) -> XskError {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is valid for the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let why = match (known, limit.rlim_cur) {
        (true, libc::RLIM_INFINITY) | (false, _) => e.to_string(),
        (true, bytes) => format!("{e}; this process may lock {bytes} bytes"),
    };
    XskError::UmemTooLarge { bytes, why }
}

pub(crate) fn page_size() -> u64 {
    // SAFETY: no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or(4096)
}

/// Bytes of a huge page.
fn huge_page() -> u64 {
    meminfo("Hugepagesize:").unwrap_or(2048) * 1024
}

/// A number of /proc/meminfo.
fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem(config: UmemConfig) -> (Umem, Vec<Frame>) {
        Umem::new(&config).expect("memory")
    }

    #[test]
    fn a_packet_goes_through_descriptors_and_back() {
        for unaligned in [false, true] {
            let frame_size = if unaligned { 3000 } else { 2048 };
            let (umem, mut frames) = umem(UmemConfig {
                frame_size,
                frames: 4,
                unaligned,
                ..UmemConfig::default()
            });
            let mut frame = frames.swap_remove(2);
            let room = umem.prepare(&mut frame, 100, 64).expect("fits");
            room.fill(7);
            frame.set_continues(true);
            let desc = umem.give_packet(frame);
            let at = if unaligned {
                (2 * 3000) | (100 << 48)
            } else {
                2 * 2048 + 100
            };
            assert_eq!((desc.addr, desc.len, desc.options), (at, 64, 1));
            let mut frame = umem.received(desc).expect("inside");
            assert!(frame.continues() && umem.bytes(&frame) == [7; 64]);
            assert_eq!(umem.front_mut(&mut frame).len(), 100);
            let frame = umem.returned(desc.addr).expect("inside");
            assert_eq!(umem.give(frame), 2 * u64::from(frame_size));
        }
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let (umem, mut frames) = umem(UmemConfig {
            frame_size: 2048,
            frames: 2,
            ..UmemConfig::default()
        });
        assert!(umem.returned(2 * 2048).is_err());
        assert!(umem.returned(u64::MAX).is_err());
        let crossing = libc::xdp_desc {
            addr: 2000,
            len: 100,
            options: 0,
        };
        assert!(umem.received(crossing).is_err());
        let frame = &mut frames[0];
        assert!(umem.prepare(frame, 0, 2049).is_none());
        assert!(umem.prepare(frame, 2049, 0).is_none());
        assert!(umem.prepare(frame, 2000, 48).is_some());
        let (other, _frames) = self::umem(UmemConfig::default());
        assert!(other.prepare(frame, 0, 10).is_none());
        assert!(other.bytes(frame).is_empty());
    }

    #[test]
    fn impossible_areas_are_told() {
        let with = |change: fn(&mut UmemConfig)| {
            let mut config = UmemConfig::default();
            change(&mut config);
            Umem::new(&config).expect_err("impossible").to_string()
        };
        assert!(with(|c| c.frame_size = 1024).contains("2048 to 4096"));
        assert!(with(|c| c.frame_size = 3000).contains("power of two"));
        assert!(with(|c| c.headroom = 4000).contains("no space for a packet"));
        assert!(with(|c| c.frames = 0).contains("at least one"));
        assert!(with(|c| c.frames = u32::MAX).contains("more than can be had"));
        assert!(
            with(|c| {
                c.huge_pages = true;
                c.frames = 1 << 30;
            })
            .contains("huge pages of 2048 kB are needed")
        );
    }
}
