//! AF_XDP sockets on the kernel's own interface, and packet sockets with mapped rings behind the same trait.
//!
//! [`umem`] owns frames and their tokens, [`socket`] a socket and its rings, [`ring`] their arithmetic by itself, [`steer`] the XDP program that hands packets to sockets,
//! [`port`] the trait that programs are written against, [`packet`] the fallback, [`bypass`] flows that the kernel keeps away from it, [`Fanout`] its sockets for several workers. Why it is so: docs/design/xsk.md. Nothing here
//! outlives its value: no pins, no settings of interfaces.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod bypass;
mod cluster;
mod error;
mod fanout;
mod mapped;
pub mod packet;
pub mod port;
pub mod ring;
pub mod socket;
pub mod steer;
pub mod umem;
pub mod wire;

use weir_kernel::iface::LinkWatch;

pub use bypass::{Bypass, BypassConfig, BypassFlow, BypassTotal, Bypassed, Shed};
pub use error::XskError;
pub use fanout::Fanout;
pub use packet::{Checksum, PacketConfig, PacketPort, Seen};
pub use port::{Bounced, Lent, Losses, Packet, Port, Wait, XskPort};
pub use socket::{BusyPoll, Effective, Kick, Mode, Socket, SocketConfig, Statistics};
pub use steer::{Match, Steer, Steered};
pub use umem::{Frame, Umem, UmemConfig};
pub use weir_kernel::{VNET_HEADER, VnetHeader, monotonic_ns};
pub use wire::{Wire, WireConfig, WireCounts};

/// Whether an interface is still there, up and with a carrier.
fn check_link(watch: &LinkWatch) -> Result<(), XskError> {
    let iface = watch.name().to_owned();
    match watch.state()? {
        None => Err(XskError::Gone { iface }),
        Some(state) if !state.up => Err(XskError::LinkDown { iface }),
        Some(state) if !state.carrier => Err(XskError::NoCarrier { iface }),
        Some(_) => Ok(()),
    }
}
