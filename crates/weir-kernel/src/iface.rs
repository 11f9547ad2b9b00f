//! Network interfaces of the current namespace: finding them by name, their
//! driver, size and XDP program, and the offloads that change what XDP sees.
//!
//! Everything asks the kernel through sockets, never through /sys, which shows
//! the namespace it was mounted in rather than the one the thread is in.

#![expect(unsafe_code, reason = "interface ioctls take raw pointers")]

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::near_names;
use crate::{KernelError, XdpMode, sys};

/// What weir wants to know of an interface before it attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Index, unique within the namespace.
    pub ifindex: u32,
    /// Largest packet behind the link header, bytes.
    pub mtu: u32,
    /// Hardware address; zero where the device has none of 6 bytes.
    pub mac: [u8; 6],
    /// Whether it is administratively up.
    pub up: bool,
    /// Driver as `ethtool -i` prints it (`veth`, `tun`, `virtio_net`, ..);
    /// empty where the device does not say (`lo`).
    pub driver: String,
    /// Index of the other end, for a veth; it may lie in another namespace.
    pub veth_peer: Option<u32>,
    /// Id of the XDP program on it, if any.
    pub xdp_prog_id: Option<u32>,
}

impl Interface {
    /// Whether local senders behind this device may leave checksums unfinished,
    /// as virtual drivers do; a device that does not name its driver (`lo`) counts as one.
    pub fn may_carry_unfinished_checksums(&self) -> bool {
        matches!(
            self.driver.as_str(),
            "veth" | "tun" | "virtio_net" | "vif" | "bridge" | "macvlan" | "ipvlan" | ""
        )
    }

    /// Whether the device is one end of a veth pair, where native XDP costs the
    /// peer its segmentation offload.
    pub fn is_veth(&self) -> bool {
        self.driver == "veth"
    }
}

/// An offload that can be read and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The sender leaves L4 checksums to the device.
    TxChecksum,
    /// The device vouches for L4 checksums.
    RxChecksum,
    /// The device takes the VLAN tag out of a received frame.
    RxVlan,
    /// The device puts the VLAN tag into a sent frame.
    TxVlan,
    /// The device cuts large TCP sends.
    Tso,
    /// The stack cuts large sends late.
    Gso,
    /// The stack merges received segments.
    Gro,
}

/// How the legacy ioctls reach a feature.
enum Access {
    /// Own get and set commands.
    Commands { read: u32, write: u32 },
    /// A bit of the flags word.
    Flag(u32),
}

const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETH_SS_STATS: u32 = 1;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

impl Feature {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::TxChecksum,
        Self::RxChecksum,
        Self::RxVlan,
        Self::TxVlan,
        Self::Tso,
        Self::Gso,
        Self::Gro,
    ];

    /// The name that `ethtool -k` prints.
    pub fn ethtool_name(self) -> &'static str {
        match self {
            Self::TxChecksum => "tx-checksumming",
            Self::RxChecksum => "rx-checksumming",
            Self::RxVlan => "rx-vlan-offload",
            Self::TxVlan => "tx-vlan-offload",
            Self::Tso => "tcp-segmentation-offload",
            Self::Gso => "generic-segmentation-offload",
            Self::Gro => "generic-receive-offload",
        }
    }

    fn access(self) -> Access {
        let commands = |read, write| Access::Commands { read, write };
        match self {
            Self::TxChecksum => commands(0x16, 0x17),
            Self::RxChecksum => commands(0x14, 0x15),
            Self::Tso => commands(0x1e, 0x1f),
            Self::Gso => commands(0x23, 0x24),
            Self::Gro => commands(0x2b, 0x2c),
            Self::TxVlan => Access::Flag(ETH_FLAG_TXVLAN),
            Self::RxVlan => Access::Flag(ETH_FLAG_RXVLAN),
        }
    }
}

/// Finds an interface by name in the current namespace.
pub fn find(name: &str) -> Result<Interface, KernelError> {
    let ifindex = index_of(name)?;
    let ask = |code, what: &str| {
        let mut request = Request::named(name);
        request
            .ioctl(code)
            .map(|()| request)
            .map_err(|e| KernelError::sys(format!("read the {what} of {name}"), e))
    };
    let mtu = ask(libc::SIOCGIFMTU, "MTU")?;
    let flags = ask(libc::SIOCGIFFLAGS, "flags")?;
    let address = ask(libc::SIOCGIFHWADDR, "hardware address")?;
    // SAFETY: each ioctl succeeded and filled the member that is read.
    let (mtu, flags, address) = unsafe {
        (
            mtu.0.ifr_ifru.ifru_mtu,
            flags.0.ifr_ifru.ifru_flags,
            address.0.ifr_ifru.ifru_hwaddr.sa_data,
        )
    };
    let mut mac = [0u8; 6];
    for (to, from) in mac.iter_mut().zip(address) {
        *to = from as u8;
    }
    let driver = driver_of(name).unwrap_or_default();
    let veth_peer = if driver == "veth" {
        veth_peer(name).ok().flatten()
    } else {
        None
    };
    Ok(Interface {
        name: name.to_owned(),
        ifindex,
        mtu: mtu as u32,
        mac,
        up: i32::from(flags) & libc::IFF_UP != 0,
        driver,
        veth_peer,
        xdp_prog_id: xdp_prog_id(ifindex)?,
    })
}

/// All interfaces of the current namespace, by index.
pub fn list() -> Result<Vec<Interface>, KernelError> {
    let mut found = Vec::new();
    for name in names()? {
        match find(&name) {
            // It went away since its name was read.
            Err(KernelError::NoSuchInterface { .. }) => {}
            other => found.push(other?),
        }
    }
    Ok(found)
}

/// Names of all interfaces of the current namespace, by index.
pub fn names() -> Result<Vec<String>, KernelError> {
    // SAFETY: no arguments; returns null or an array that is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(KernelError::last("list the interfaces"));
    }
    let mut names = Vec::new();
    let mut at = list;
    // SAFETY: the array ends with an entry of index 0 and null name; every other name is a C string.
    unsafe {
        while (*at).if_index != 0 && !(*at).if_name.is_null() {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(names)
}

/// The largest MTU whose packets a native XDP program has in one buffer: a page without XDP's headroom (256 bytes), the kernel's
/// description of a packet (`struct skb_shared_info`, 320 bytes) and an Ethernet header. 3,506 where pages have 4,096 bytes.
pub fn linear_mtu() -> u32 {
    // SAFETY: no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    (page as u32).saturating_sub(256 + 320 + 14)
}

/// Index of a named interface; [`KernelError::NoSuchInterface`] lists near names.
pub fn index_of(name: &str) -> Result<u32, KernelError> {
    let absent = || KernelError::NoSuchInterface {
        name: name.to_owned(),
        near: near_names(name, &names().unwrap_or_default()),
    };
    find_index(name).ok_or_else(absent)
}

/// Index of a named interface; `None` if there is none. Unlike [`index_of`] it never looks at all the others.
pub fn find_index(name: &str) -> Option<u32> {
    let c_name = sys::c_string(name).ok()?;
    // SAFETY: `c_name` is a valid C string.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

/// Whether each of many interfaces still has its index and its name. Asked by index: of thousands the kernel finds one by its number in half the time that it
/// takes to compare names, and a name that means another device by now is not the name of this one.
///
/// # Errors
/// There is no socket to ask by.
pub fn still_named<'a>(
    interfaces: impl IntoIterator<Item = (u32, &'a str)>,
) -> Result<Vec<bool>, KernelError> {
    // SAFETY: no pointers are passed.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        let why = io::Error::last_os_error();
        return Err(KernelError::sys("open a socket to ask for interfaces", why));
    }
    // SAFETY: the socket was just opened and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let is_named = |(ifindex, name): (u32, &str)| {
        // SAFETY: all zeros are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = ifindex.cast_signed();
        // SAFETY: the request lives through the call, which writes its name only.
        let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) };
        let found = request.ifr_name.iter().map(|byte| byte.cast_unsigned());
        asked == 0 && found.take_while(|byte| *byte != 0).eq(name.bytes())
    };
    Ok(interfaces.into_iter().map(is_named).collect())
}

/// Name of an interface, `None` if the index is unused here.
pub fn name_of(ifindex: u32) -> Option<String> {
    let mut buffer = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call requires.
    let found = unsafe { libc::if_indextoname(ifindex, buffer.as_mut_ptr().cast()) };
    (!found.is_null()).then(|| sys::text_until_nul(&buffer))
}

/// Id of the XDP program on an interface, whatever its mode.
pub fn xdp_prog_id(ifindex: u32) -> Result<Option<u32>, KernelError> {
    let opts = xdp_query(ifindex)?;
    let id = [
        opts.prog_id,
        opts.drv_prog_id,
        opts.skb_prog_id,
        opts.hw_prog_id,
    ]
    .into_iter()
    .find(|id| *id != 0);
    Ok(id)
}

/// Mode of the XDP program on an interface; `None` if there is none, or if it runs in hardware.
pub fn xdp_mode(ifindex: u32) -> Result<Option<XdpMode>, KernelError> {
    let opts = xdp_query(ifindex)?;
    Ok(match (opts.drv_prog_id, opts.skb_prog_id) {
        (0, 0) => None,
        (0, _) => Some(XdpMode::Generic),
        _ => Some(XdpMode::Native),
    })
}

/// Whether frames can be redirected to an interface, or sent out of it by XDP; `None` where the kernel does not tell (before Linux 6.3). A veth can
/// take them only while its far end has an XDP program or its GRO on, and not at all while that has more receive queues than it has transmit queues.
pub fn takes_xdp_frames(ifindex: u32) -> Result<Option<bool>, KernelError> {
    /// `NETDEV_XDP_ACT_NDO_XMIT` (include/uapi/linux/netdev.h).
    const NDO_XMIT: u64 = 4;
    let features = xdp_query(ifindex)?.feature_flags;
    // A kernel that tells has none to tell of such a device.
    let tells =
        features != 0 || crate::probes::release_at_least(&crate::probes::kernel_release(), "6.3");
    Ok(tells.then_some(features & NDO_XMIT != 0))
}

/// Frames that an interface of the current namespace dropped when it was to send them, by its own count: of whatever sender.
pub fn dropped_on_transmit(name: &str) -> Result<u64, KernelError> {
    let path = "/proc/thread-self/net/dev";
    let text =
        std::fs::read_to_string(path).map_err(|e| KernelError::sys(format!("read {path}"), e))?;
    let line = text.lines().find_map(|line| {
        let (device, counters) = line.split_once(':')?;
        (device.trim() == name).then_some(counters)
    });
    // Eight counters of reception, then bytes, packets, errors and drops.
    let dropped = line.and_then(|counters| counters.split_whitespace().nth(11)?.parse().ok());
    dropped.ok_or_else(|| {
        let gone = io::Error::from_raw_os_error(libc::ENODEV);
        KernelError::sys(format!("read the counters of {name}"), gone)
    })
}

/// Whether its driver has zero-copy AF_XDP sockets; `None` where the kernel does not tell (before Linux 6.3).
pub fn does_zero_copy(ifindex: u32) -> Result<Option<bool>, KernelError> {
    /// `NETDEV_XDP_ACT_XSK_ZEROCOPY` (include/uapi/linux/netdev.h).
    const ZEROCOPY: u64 = 8;
    let features = xdp_query(ifindex)?.feature_flags;
    Ok((features != 0).then_some(features & ZEROCOPY != 0))
}

/// Queues of an interface: channels as `ethtool -l` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Those that only receive.
    pub rx: u32,
    /// Those that only send.
    pub tx: u32,
    /// Those that do both.
    pub combined: u32,
    /// The most of one direction that the device can have.
    pub most: u32,
}

impl Queues {
    /// Queues that a socket can be bound to: 0 up to here.
    pub fn usable(&self) -> u32 {
        self.rx.max(self.tx) + self.combined
    }
}

/// How many queues an interface has. Devices that do not tell (`lo`, taps) are an error.
pub fn queues(name: &str) -> Result<Queues, KernelError> {
    let [_, most_rx, most_tx, _, most_combined, rx, tx, _, combined] = channels(name)
        .map_err(|e| KernelError::sys(format!("read the number of queues of {name}"), e))?;
    Ok(Queues {
        rx,
        tx,
        combined,
        most: most_rx.max(most_tx) + most_combined,
    })
}

/// Sets how many queues an interface has, as [`queues`] tells them; `most` is not used. Traffic may stop for a moment.
pub fn set_queues(name: &str, wanted: Queues) -> Result<(), KernelError> {
    let failed = |e| KernelError::sys(format!("give {name} {} queues", wanted.usable()), e);
    let mut request = channels(name).map_err(failed)?;
    request[0] = ETHTOOL_SCHANNELS;
    request[5] = wanted.rx;
    request[6] = wanted.tx;
    request[8] = wanted.combined;
    ethtool(name, &mut request).map_err(failed)
}

/// `struct ethtool_channels`: command, then most and present of rx, tx, other, combined.
fn channels(name: &str) -> io::Result<[u32; 9]> {
    let mut request = [0u32; 9];
    request[0] = ETHTOOL_GCHANNELS;
    ethtool(name, &mut request)?;
    Ok(request)
}

/// How long a device gathers packets before it interrupts (`ethtool -c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds that a received packet may wait.
    pub rx_micros: u32,
    /// Microseconds that the end of sending may wait.
    pub tx_micros: u32,
    /// The device chooses by itself for receiving.
    pub rx_adaptive: bool,
    /// The device chooses by itself for sending.
    pub tx_adaptive: bool,
}

/// How an interface gathers interrupts.
///
/// # Errors
/// Devices without an interrupt (a veth) do not tell.
pub fn coalescing(name: &str) -> Result<Coalescing, KernelError> {
    let words = coalesce(name)
        .map_err(|e| KernelError::sys(format!("read the interrupt coalescing of {name}"), e))?;
    Ok(Coalescing {
        rx_micros: words[1],
        tx_micros: words[5],
        rx_adaptive: words[10] != 0,
        tx_adaptive: words[11] != 0,
    })
}

/// Sets how an interface gathers interrupts; what is not in [`Coalescing`] stays.
///
/// # Errors
/// The driver refuses.
pub fn set_coalescing(name: &str, wanted: Coalescing) -> Result<(), KernelError> {
    let failed = |e| KernelError::sys(format!("set the interrupt coalescing of {name}"), e);
    let mut words = coalesce(name).map_err(failed)?;
    words[0] = ETHTOOL_SCOALESCE;
    words[1] = wanted.rx_micros;
    words[5] = wanted.tx_micros;
    words[10] = u32::from(wanted.rx_adaptive);
    words[11] = u32::from(wanted.tx_adaptive);
    ethtool(name, &mut words).map_err(failed)
}

/// `struct ethtool_coalesce`.
fn coalesce(name: &str) -> io::Result<[u32; 23]> {
    let mut words = [0u32; 23];
    words[0] = ETHTOOL_GCOALESCE;
    ethtool(name, &mut words)?;
    Ok(words)
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Administratively up.
    pub up: bool,
    /// It can carry packets: cable in, far end up.
    pub carrier: bool,
}

/// Looks at one interface's state again and again, from any thread and whatever namespace that is in.
#[derive(Debug)]
pub struct LinkWatch {
    socket: OwnedFd,
    name: String,
    ifindex: u32,
}

impl LinkWatch {
    /// Of an interface of the current namespace.
    pub fn new(name: &str) -> Result<LinkWatch, KernelError> {
        Ok(LinkWatch {
            ifindex: index_of(name)?,
            socket: control_socket()
                .map_err(|e| KernelError::sys(format!("watch the state of {name}"), e))?,
            name: name.to_owned(),
        })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index of the interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Its state now; `None` if it is gone.
    pub fn state(&self) -> Result<Option<LinkState>, KernelError> {
        let ask = |code| {
            let mut request = Request::named(&self.name);
            match request.ioctl_on(&self.socket, code) {
                Ok(()) => Ok(Some(request)),
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
                Err(e) => Err(KernelError::sys(
                    format!("read the state of {}", self.name),
                    e,
                )),
            }
        };
        let (Some(index), Some(flags)) = (ask(libc::SIOCGIFINDEX)?, ask(libc::SIOCGIFFLAGS)?)
        else {
            return Ok(None);
        };
        // SAFETY: each ioctl succeeded and filled the member that is read.
        let (index, flags) = unsafe {
            (
                index.0.ifr_ifru.ifru_ifindex,
                i32::from(flags.0.ifr_ifru.ifru_flags),
            )
        };
        // Another device of that name is not the one.
        if index != self.ifindex.cast_signed() {
            return Ok(None);
        }
        // IFF_RUNNING follows up to a second late; what the device itself says does not.
        let carrier = self.carrier().unwrap_or(flags & libc::IFF_RUNNING != 0);
        Ok(Some(LinkState {
            up: flags & libc::IFF_UP != 0,
            carrier,
        }))
    }

    /// Whether the device says that it has a carrier; none if it does not say.
    fn carrier(&self) -> Option<bool> {
        let mut buffer = [ETHTOOL_GLINK, 0];
        let mut request = Request::named(&self.name);
        request.0.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        request.ioctl_on(&self.socket, libc::SIOCETHTOOL).ok()?;
        Some(buffer[1] != 0)
    }
}

/// Gives a device room for so many frames that wait to be sent.
pub(crate) fn set_queue_length(name: &str, frames: u32) -> Result<(), KernelError> {
    let mut request = Request::named(name);
    // `ifr_qlen` is the same number in the union.
    request.0.ifr_ifru.ifru_metric = frames.cast_signed();
    request
        .ioctl(libc::SIOCSIFTXQLEN)
        .map_err(|e| KernelError::sys(format!("set the queue length of {name}"), e))
}

/// Has a device receive what is addressed to others, until that is taken back. Returns whether that is a change.
///
/// # Errors
/// No such device, or no permission.
pub fn set_promiscuous(name: &str, on: bool) -> Result<bool, KernelError> {
    let failed = |e| KernelError::sys(format!("set {name} promiscuous"), e);
    let mut request = Request::named(name);
    request.ioctl(libc::SIOCGIFFLAGS).map_err(failed)?;
    // SAFETY: the ioctl succeeded and filled the flags.
    let flags = unsafe { request.0.ifr_ifru.ifru_flags };
    let promiscuous = libc::IFF_PROMISC as libc::c_short;
    if (flags & promiscuous != 0) == on {
        return Ok(false);
    }
    request.0.ifr_ifru.ifru_flags = flags ^ promiscuous;
    request.ioctl(libc::SIOCSIFFLAGS).map_err(failed)?;
    Ok(true)
}

/// Gives an Ethernet device a hardware address and an MTU, and sets it up.
pub(crate) fn dress(name: &str, mac: [u8; 6], mtu: u32) -> Result<(), KernelError> {
    let failed = |e| KernelError::sys(format!("set up {name}"), e);
    if mac != [0; 6] {
        let mut request = Request::named(name);
        let mut address = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: [0; 14],
        };
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        request.0.ifr_ifru.ifru_hwaddr = address;
        request.ioctl(libc::SIOCSIFHWADDR).map_err(failed)?;
    }
    let mut request = Request::named(name);
    request.0.ifr_ifru.ifru_mtu = mtu.cast_signed();
    request.ioctl(libc::SIOCSIFMTU).map_err(failed)?;
    let mut request = Request::named(name);
    request.ioctl(libc::SIOCGIFFLAGS).map_err(failed)?;
    // SAFETY: the ioctl succeeded and filled the flags.
    let flags = unsafe { request.0.ifr_ifru.ifru_flags };
    request.0.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    request.ioctl(libc::SIOCSIFFLAGS).map_err(failed)
}

fn xdp_query(ifindex: u32) -> Result<libbpf_sys::bpf_xdp_query_opts, KernelError> {
    sys::silence_libbpf();
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: mem::size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `opts` is valid for the call and states its size.
    sys::check(unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut opts) }).map_err(
        |e| KernelError::sys(format!("ask for the XDP program of interface {ifindex}"), e),
    )?;
    Ok(opts)
}

/// Driver name of an interface.
pub(crate) fn driver_of(name: &str) -> Result<String, KernelError> {
    // struct ethtool_drvinfo: command, then driver[32], version[32], ..; 196 bytes in all.
    let mut buffer = [0u32; 49];
    buffer[0] = ETHTOOL_GDRVINFO;
    ethtool(name, &mut buffer)
        .map_err(|e| KernelError::sys(format!("ask {name} for its driver"), e))?;
    let bytes: Vec<u8> = buffer[1..9].iter().flat_map(|w| w.to_ne_bytes()).collect();
    Ok(sys::text_until_nul(&bytes))
}

/// Whether an offload is on.
pub fn feature(name: &str, feature: Feature) -> Result<bool, KernelError> {
    index_of(name)?;
    let asked = match feature.access() {
        Access::Commands { read, .. } => ethtool_value(name, read, 0).map(|v| v != 0),
        Access::Flag(bit) => ethtool_value(name, ETHTOOL_GFLAGS, 0).map(|v| v & bit != 0),
    };
    asked.map_err(|e| KernelError::sys(format!("read {} of {name}", feature.ethtool_name()), e))
}

/// Switches an offload and checks that the driver obeyed.
pub fn set_feature(name: &str, which: Feature, on: bool) -> Result<(), KernelError> {
    if feature(name, which)? == on {
        return Ok(());
    }
    let done = match which.access() {
        Access::Commands { write, .. } => ethtool_value(name, write, u32::from(on)),
        Access::Flag(bit) => ethtool_value(name, ETHTOOL_GFLAGS, 0).and_then(|now| {
            let wanted = if on { now | bit } else { now & !bit };
            ethtool_value(name, ETHTOOL_SFLAGS, wanted)
        }),
    };
    let fixed = || KernelError::FeatureFixed {
        iface: name.to_owned(),
        feature: which.ethtool_name(),
        wanted: on,
    };
    match done {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            return Err(fixed());
        }
        Err(e) => {
            return Err(KernelError::sys(
                format!("set {} of {name}", which.ethtool_name()),
                e,
            ));
        }
        Ok(_) => {}
    }
    if feature(name, which)? != on {
        return Err(fixed());
    }
    Ok(())
}

/// The peer's index, which the veth driver tells as its first statistic.
fn veth_peer(name: &str) -> io::Result<Option<u32>> {
    /// More than any veth has (four plus nine per queue).
    const MOST: usize = 512;
    // struct ethtool_gstrings: command, set, count, then 32 bytes a name.
    let mut strings = vec![0u32; 3 + MOST * 8];
    // struct ethtool_stats: command, count, then 64 bits a value.
    let mut drvinfo = [0u32; 49];
    drvinfo[0] = ETHTOOL_GDRVINFO;
    ethtool(name, &mut drvinfo)?;
    // n_stats follows driver, version, fw_version, bus_info, erom_version (32 each),
    // reserved2[12] and n_priv_flags.
    let count = drvinfo[1 + 5 * 8 + 3 + 1] as usize;
    if count == 0 || count > MOST {
        return Ok(None);
    }
    strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32]);
    ethtool(name, &mut strings)?;
    let mut stats = vec![0u32; 2 + MOST * 2];
    stats[..2].copy_from_slice(&[ETHTOOL_GSTATS, count as u32]);
    ethtool(name, &mut stats)?;
    let position = (0..count).find(|i| {
        let words = &strings[3 + i * 8..3 + (i + 1) * 8];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        sys::text_until_nul(&bytes) == "peer_ifindex"
    });
    // The value is a 64-bit number in host order; an index fits its lower half.
    Ok(position.map(|i| {
        let (a, b) = (stats[2 + i * 2], stats[3 + i * 2]);
        if cfg!(target_endian = "little") { a } else { b }
    }))
}

/// One `struct ethtool_value` exchange.
fn ethtool_value(name: &str, command: u32, value: u32) -> io::Result<u32> {
    let mut buffer = [command, value];
    ethtool(name, &mut buffer)?;
    Ok(buffer[1])
}

/// One SIOCETHTOOL call; `buffer` starts with the command and must be as large
/// as the command's structure.
fn ethtool(name: &str, buffer: &mut [u32]) -> io::Result<()> {
    let mut request = Request::named(name);
    request.0.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
    request.ioctl(libc::SIOCETHTOOL)
}

/// A `struct ifreq` that names an interface.
struct Request(libc::ifreq);

impl Request {
    fn named(name: &str) -> Self {
        // SAFETY: `ifreq` is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // The last byte stays NUL; a longer name matches nothing.
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1]
            .iter_mut()
            .zip(name.bytes())
        {
            *to = from as libc::c_char;
        }
        Self(request)
    }

    fn ioctl(&mut self, code: libc::Ioctl) -> io::Result<()> {
        self.ioctl_on(&control_socket()?, code)
    }

    fn ioctl_on(&mut self, socket: &OwnedFd, code: libc::Ioctl) -> io::Result<()> {
        // SAFETY: the codes used in this module take an `ifreq`, which is valid here, and where it
        // carries a pointer (`ethtool`) that points at a live buffer of the command's size.
        match unsafe { libc::ioctl(socket.as_raw_fd(), code, &raw mut self.0) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A socket of the thread's current namespace to send ioctls through.
fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_an_unknown_name_lists_near_ones() {
        let lo = find("lo").expect("every namespace has lo");
        assert_eq!(name_of(lo.ifindex).as_deref(), Some("lo"));
        assert!(!lo.is_veth());
        match find("l0") {
            Err(KernelError::NoSuchInterface { name, near }) => {
                assert_eq!(name, "l0");
                assert!(near.contains(&"lo".to_owned()));
            }
            other => panic!("{other:?}"),
        }
        assert!(find("a\0b").is_err());
        assert!(find("").is_err());
    }

    #[test]
    fn features_of_loopback_are_readable() {
        assert!(feature("lo", Feature::Gso).is_ok());
        assert!(feature("lo", Feature::TxChecksum).expect("readable"));
        assert!(matches!(
            set_feature("lo", Feature::TxChecksum, false),
            Err(KernelError::FeatureFixed { .. } | KernelError::NoPermission { .. })
        ));
    }
}
