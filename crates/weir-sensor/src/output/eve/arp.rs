//! Packets of ARP.

use super::{EveOptions, Head, address, begin, hardware, quoted};
use crate::decode::Arp;

/// A packet of ARP, with its newline.
pub(crate) fn arp(out: &mut Vec<u8>, head: &Head<'_>, what: &Arp, options: &EveOptions) {
    let mut o = begin(out, "arp", head, options);
    let mut a = o.object("arp");
    a.string("hw_type", "ethernet");
    a.string("proto_type", "ipv4");
    a.string("opcode", what.operation);
    let keys = [["src_mac", "src_ip"], ["dest_mac", "dest_ip"]];
    for ([mac, ip], (link, protocol)) in keys.into_iter().zip(what.ends) {
        hardware(a.key(mac), &link);
        quoted(a.key(ip), |out| address(out, protocol.into()));
    }
    a.end();
    o.end();
    out.push(b'\n');
}
