//! What to do about drops of virtual networks, by reason.

use weir_packet::Reason;

/// The next step of who finds packets dropped for a reason and wants them to pass; `None`: the reason says all.
#[must_use]
pub fn cure(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::SpoofedMac => {
            "give the workload's interface the MAC address that `weir plan` prints, or write the one that it has as `mac` (`mac = \"device\"` reads that of a veth)"
        }
        Reason::Spoofed => {
            "give the workload one of the addresses that the document gives it, or add the one that it has to `address`"
        }
        Reason::NeighbourSpoofed => {
            "add the address to `address` of the workload; link-local ones are made of its MAC address (EUI-64) unless they are declared"
        }
        Reason::NeighbourBad => {
            "it is not what RFC 826, 4861 and 6980 have hosts send; `address = \"any\"` and `mac = \"any\"` let ARP of all kinds through"
        }
        Reason::RaGuard => "add `allow = [\"ra\"]` to the workload if it is a router",
        Reason::DhcpGuard => {
            "add `allow = [\"dhcp-server\"]` to the workload if it is a DHCP server"
        }
        Reason::GroupSpoofed => {
            "MLD comes from a link-local address that is made of the MAC address or declared, IGMP from a declared one"
        }
        Reason::TunnelNoTenant => {
            "write `tenant_option = false` for the edge that it comes from if that edge sends none"
        }
        Reason::NoLink => {
            "link the interface in the document, or apply it again if the device is new"
        }
        Reason::UnknownStation => {
            "declare the station as a workload, or write `unknown = \"flood\"` in the subnet"
        }
        Reason::VlanNotAllowed => "add the VLAN to `vlan` of the workload or link",
        Reason::FloodRateLimited => {
            "raise `storm` of the subnet if this broadcast rate is intended"
        }
        Reason::UnknownVtep => {
            "add the address to `underlay` of its edge, or the edge to the document"
        }
        Reason::TunnelKind => "add the kind to `accepts` of this edge",
        Reason::TunnelUnknown => "apply the same document on both edges",
        Reason::TunnelMember => "apply the same document on both edges",
        Reason::PuntNoListener => "start `weir net helper`, or the controller",
        _ => return None,
    })
}
