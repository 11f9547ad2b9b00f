//! What is wrong with the hosts of beginners: settings of the kernel and of devices that weir meets in the field, set on every host of a bed between
//! the page's set-up and its first command of weir.

use std::fmt;

/// One of the usual traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// The bed as the page makes it.
    None,
    /// Generic receive offload off: a veth then takes no redirected frames without a program.
    GroOff,
    /// Checksums, segmentation and VLAN tags are not left to devices.
    OffloadsOff,
    /// No host forwards.
    NoForwarding,
    /// Devices have other MAC addresses than at the time of the set-up.
    OtherMacs,
    /// Strict reverse path filter on all devices.
    RpFilter,
    /// SYN cookies in a flood only, as the kernel has it.
    FewCookies,
}

impl Trap {
    /// Those of every page.
    pub(crate) const USUAL: [Trap; 5] = [
        Trap::GroOff,
        Trap::OffloadsOff,
        Trap::NoForwarding,
        Trap::OtherMacs,
        Trap::RpFilter,
    ];

    /// A script that sets it in every namespace.
    pub(crate) fn script(self) -> String {
        let set = match self {
            Trap::None => return String::new(),
            Trap::GroOff => "ethtool -K $dev gro off",
            // One by one: what a device cannot change is left as it is.
            Trap::OffloadsOff => {
                "for what in tso gso sg tx rx txvlan rxvlan; do ethtool -K $dev $what off; done; true"
            }
            Trap::NoForwarding => "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0",
            // Last byte of the index: addresses differ.
            Trap::OtherMacs => {
                "i=$(cat /sys/class/net/$dev/ifindex); s=$(stat -Lc %i /proc/self/ns/net); \
                 ip link set dev $dev address $(printf '02:aa:%02x:%02x:%02x:%02x' $((s>>16&255)) $((s>>8&255)) $((s&255)) $i)"
            }
            Trap::RpFilter => {
                "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1 net.ipv4.conf.$dev.rp_filter=1"
            }
            Trap::FewCookies => "sysctl -qw net.ipv4.tcp_syncookies=1",
        };
        format!(
            "set -e
for ns in $(ls /run/netns); do
  for dev in $(ip -n $ns -o link | cut -d: -f2 | cut -d@ -f1); do
    [ $dev = lo ] || ip netns exec $ns bash -c 'dev=$1; {set}' trap $dev
  done
  ip -n $ns neigh flush all
done
set +e
",
            set = set.replace('\'', "'\\''")
        )
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trap::None => "as the page says",
            Trap::GroOff => "GRO off",
            Trap::OffloadsOff => "offloads off",
            Trap::NoForwarding => "no forwarding",
            Trap::OtherMacs => "other MACs",
            Trap::RpFilter => "rp_filter on",
            Trap::FewCookies => "cookies in a flood only",
        })
    }
}
