//! Probes of the tunnels to other edges: a small frame with an identifier of its own, sent as tunnels are sent, that the far edge's data plane turns
//! round. What is known of a remote lies in the array `net_heard`; this writes which answer is waited for and whether the remote is down.
//!
//! Who calls decides how often. Nothing of networks is touched: a probe crosses what their packets cross and reaches none of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, bind, ipproto, sendto, socket};
use rustix::time::{ClockId, clock_gettime};
use weir_bpf::abi::{self, NetHeard, NetProbe, NetRemote, tunnel_kind};
use weir_kernel::KernelError;
use zerocopy::{FromBytes, IntoBytes};

use super::{NetworkError, Set};

/// Bytes of a frame of Ethernet, its check sequence apart.
const FRAME_LEAST: usize = 60;
/// Stations of a probe's frame: nobody's.
const STATIONS: [u8; 12] = [2, 0x77, 0x65, 0x69, 0x72, 1, 2, 0x77, 0x65, 0x69, 0x72, 2];

/// Sends a probe to a remote, from the namespace of the calling thread; an answer to an earlier one counts no more.
///
/// # Errors
/// The packet cannot be sent, or the array is not there.
pub fn ask(set: &Set, remote: &NetRemote) -> Result<(), NetworkError> {
    let now = now_ns();
    // Never 0, and no two alike.
    let nonce = now << 1 | 1;
    let probe = NetProbe {
        magic: abi::probe::MAGIC.to_be(),
        op: abi::probe::ASK.to_be(),
        anti: (!abi::probe::ASK).to_be(),
        nonce: nonce.to_be(),
        sent_ns: now.to_be(),
    };
    let mut frame = Vec::from(STATIONS);
    frame.extend(abi::probe::ETHERTYPE.to_be_bytes());
    frame.extend(probe.as_bytes());
    frame.resize(FRAME_LEAST, 0);
    let at = place(remote);
    set.map("net_heard")?
        .mmap()?
        .write(at, &nonce.to_ne_bytes())?;
    let (local, address) = (
        of_words(remote, &remote.local),
        of_words(remote, &remote.address),
    );
    send(remote, local, address, &frame).map_err(|source| {
        NetworkError::from(KernelError::Sys {
            what: format!("send a probe to {address}"),
            source,
        })
    })
}

/// What is known of a remote.
///
/// # Errors
/// The array is not there.
pub fn heard(set: &Set, remote: &NetRemote) -> Result<NetHeard, NetworkError> {
    let mut bytes = [0; size_of::<NetHeard>()];
    set.map("net_heard")?
        .mmap()?
        .read(place(remote), &mut bytes)?;
    Ok(NetHeard::read_from_bytes(&bytes).unwrap_or_default())
}

/// Whether a remote answered within `patience`; that is written beside what is known of it.
///
/// # Errors
/// The array is not there.
pub fn judge(set: &Set, remote: &NetRemote, patience: Duration) -> Result<bool, NetworkError> {
    let known = heard(set, remote)?;
    let silent = now_ns().saturating_sub(known.heard_ns);
    let up = known.heard_ns != 0 && u128::from(silent) <= patience.as_nanos();
    let down = u32::from(!up);
    if known.down != down {
        let at = place(remote) + std::mem::offset_of!(NetHeard, down);
        set.map("net_heard")?
            .mmap()?
            .write(at, &down.to_ne_bytes())?;
    }
    Ok(up)
}

fn place(remote: &NetRemote) -> usize {
    remote.state as usize * size_of::<NetHeard>()
}

/// The clock that the data plane reads, too.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn of_words(remote: &NetRemote, words: &[u32; 4]) -> IpAddr {
    let bytes = words.map(u32::to_ne_bytes);
    match remote.family {
        6 => {
            let octets: [u8; 16] = std::array::from_fn(|i| bytes[i / 4][i % 4]);
            Ipv6Addr::from(octets).into()
        }
        _ => Ipv4Addr::from(bytes[0]).into(),
    }
}

/// The packet is the kernel's but for the tunnel's header: its routes and neighbours are those of tunnels.
fn send(remote: &NetRemote, local: IpAddr, address: IpAddr, frame: &[u8]) -> io::Result<()> {
    let id = abi::probe::IDENTIFIER;
    let mut packet = match remote.kind {
        tunnel_kind::GENEVE => vec![0, 0, 0x65, 0x58],
        tunnel_kind::GRE => vec![0x20, 0, 0x65, 0x58],
        _ => vec![8, 0, 0, 0],
    };
    match remote.kind {
        tunnel_kind::GRE => packet.extend(id.to_be_bytes()),
        _ => packet.extend((id << 8).to_be_bytes()),
    }
    packet.extend(frame);
    if remote.kind != tunnel_kind::GRE {
        let socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
        socket.send_to(&packet, SocketAddr::new(address, remote.port))?;
        return Ok(());
    }
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let raw = socket(family, SocketType::RAW, Some(ipproto::GRE))?;
    bind(&raw, &SocketAddr::new(local, 0))?;
    sendto(
        &raw,
        &packet,
        SendFlags::empty(),
        &SocketAddr::new(address, 0),
    )?;
    Ok(())
}
