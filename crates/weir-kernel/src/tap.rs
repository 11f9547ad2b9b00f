//! The inside of a tap device: where a virtual machine would be. What is sent to the device is read here.
//!
//! For test beds, and for frames that go to the stack from user space. The device vanishes with the value, however the process ends, unless it was made persistent elsewhere.

#![expect(unsafe_code, reason = "opening a tap is an ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::{KernelError, iface};

/// `TUNSETIFF`: `_IOW('T', 202, int)`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
/// Whole Ethernet frames, without a header in front.
const IFF_TAP: i16 = 2;
const IFF_NO_PI: i16 = 0x1000;

/// An open tap device.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Opens the device of that name in the current namespace; makes it if there is none. Reading does not wait.
    pub fn open(name: &str) -> Result<Tap, KernelError> {
        open_tap(name, 0).map(|file| Tap { file })
    }

    /// Opens the device of that name for frames on their way to the stack: one that is there must be a tap and stays as it is; one that is made gets the hardware address and the MTU
    /// of `like`, and is set up. Returns it and whether it was made.
    ///
    /// # Errors
    /// The device is no tap, another process holds it, or the kernel makes none.
    pub fn beside(name: &str, like: &iface::Interface) -> Result<(Tap, bool), KernelError> {
        match iface::find(name) {
            Ok(found) if found.driver != "tun" => Err(KernelError::sys(
                format!("use {name} as a tap device"),
                io::Error::other(format!(
                    "it is a device of driver {}; name one that does not exist, or a tap",
                    found.driver
                )),
            )),
            Ok(_) => Ok((Tap::open(name)?, false)),
            Err(KernelError::NoSuchInterface { .. }) => {
                let tap = Tap::open(name)?;
                iface::dress(name, like.mac, like.mtu)?;
                Ok((tap, true))
            }
            Err(other) => Err(other),
        }
    }

    /// Sends a frame as if it came in by the device. The system's answer is the caller's to sort: `EIO` is a device that is down.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_frame(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }

    /// Reads the next frame that was sent to the device into `buffer`, which is to be longer than any. Returns its length; `None` if there is none now.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_frame(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends a frame as if it came in by the device.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), KernelError> {
        self.file
            .write_all(frame)
            .map_err(|e| KernelError::sys("write to a tap device", e))
    }

    /// The next frame that was sent to the device; `None` if there is none now.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, KernelError> {
        let mut frame = vec![0; 65_550];
        match self.file.read(&mut frame) {
            Ok(len) => {
                frame.truncate(len);
                Ok(Some(frame))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(KernelError::sys("read a tap device", e)),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the device of that name; makes it if there is none. `flags` are more of `TUNSETIFF`.
pub(crate) fn open_tap(name: &str, flags: i16) -> Result<File, KernelError> {
    let failed = |e| KernelError::sys(format!("open tap device {name}"), e);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(failed)?;
    // SAFETY: `ifreq` is plain data for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays NUL; the kernel refuses what is no name.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI | flags;
    // SAFETY: the command takes an `ifreq`, which is valid for the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) } {
        0.. => Ok(file),
        _ => Err(failed(io::Error::last_os_error())),
    }
}
