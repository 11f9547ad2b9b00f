//! What tests of networks share: a host whose devices have numbers made of their names, and documents that are read and checked.
use std::io;
use std::path::Path;

use weir_functions::kind::Files;
use weir_network::{Device, Host, Networks, check, parse};

/// A host with every device there may be.
pub(crate) struct Numbered;

impl Numbered {
    /// The index of a device.
    pub(crate) fn index(name: &str) -> u32 {
        (weir_network::values::hash(name) >> 33) as u32
    }
}

impl Host for Numbered {
    fn device(&self, name: &str) -> Option<Device> {
        Some(Device {
            index: Numbered::index(name),
            peer: false,
        })
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        Some(1)
    }
}

/// No files at all.
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A document that must be right.
pub(crate) fn networks(text: &str) -> Networks {
    let document = parse(text, "net.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let (networks, _) = check(document, &NoFiles).unwrap_or_else(|errors| panic!("{errors}"));
    networks
}
