//! fast.log: one line an alert.

use std::io::Write;

use super::eve::{Effect, Head, RuleText, address, protocol_name};
use crate::rules::Action;
use crate::time;

/// A line of fast.log, with its newline.
pub fn alert(out: &mut Vec<u8>, head: &Head<'_>, rule: &RuleText, effect: Effect) {
    time::fast(out, head.time);
    out.extend_from_slice(b"  ");
    match effect {
        Effect::Blocked if rule.action == Action::Reject => {}
        Effect::Blocked => out.extend_from_slice(b"[Drop] "),
        Effect::WouldBlock => out.extend_from_slice(b"[wDrop] "),
        Effect::Allowed => {}
    }
    out.extend_from_slice(&rule.fast);
    match head.addresses {
        Some((source, destination)) => {
            out.push(b'{');
            match protocol_name(head.protocol) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => {
                    let _ = write!(out, "PROTO:{:03}", head.protocol);
                }
            }
            out.extend_from_slice(b"} ");
            // Of ICMP, type and code stand where ports would.
            let icmp = head
                .icmp
                .map(|(kind, code)| (u16::from(kind), u16::from(code)));
            let ports = head.ports.or(icmp).unwrap_or_default();
            address(out, source);
            let _ = write!(out, ":{} -> ", ports.0);
            address(out, destination);
            let _ = writeln!(out, ":{}", ports.1);
        }
        None => {
            let _ = writeln!(out, "[pcap file packet: {}]", head.number);
        }
    }
}
