//! The inside of a tap device: where a virtual machine would be. What is sent to the device is read here.
//!
//! For test beds. The device vanishes with the value, unless it was made persistent elsewhere.

#![expect(unsafe_code, reason = "opening a tap is an ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::KernelError;

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
        request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
        // SAFETY: the command takes an `ifreq`, which is valid for the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) } {
            0.. => Ok(Tap { file }),
            _ => Err(failed(io::Error::last_os_error())),
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
