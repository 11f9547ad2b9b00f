//! What an event says, in the names of the configuration.

use std::collections::BTreeMap;

use weir_bpf::abi::{NEXT, WatchEvent, net_slot, panel, watch};
use weir_packet::Reason;

/// Names of an edge's ports and instances.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// By weir's number; with [`watch::TRANSMIT`] in it, of packets that leave by the port.
    pub ports: BTreeMap<u32, String>,
    /// By number of the instance.
    pub instances: BTreeMap<u32, Named>,
    /// Of virtual networks, whose events have VIDs of interfaces for ports and instances; `None`: of a graph.
    pub networks: Option<Ends>,
}

/// Where packets leave virtual networks of an edge for others.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Other edges, by number.
    pub remotes: Vec<String>,
    /// Identifiers on the wire, by VID of the tunnel's interface.
    pub identifiers: BTreeMap<u32, u32>,
}

/// An instance.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Names of its outputs.
    pub outs: Vec<String>,
}

/// Why a packet was dropped, or what somebody's object returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing was said.
    Unsaid,
    /// One of the list.
    Reason(Reason),
    /// What an object returned.
    Code(i32),
}

impl Why {
    /// Of an event.
    pub fn of(event: &WatchEvent) -> Why {
        match event.reason {
            code if code & watch::CODE != 0 => Why::Code((code << 1) as i32 >> 1),
            reason => Reason::from_index(reason).map_or(Why::Unsaid, Why::Reason),
        }
    }
}

impl Names {
    /// A port.
    pub fn port(&self, number: u32) -> String {
        match self.ports.get(&number) {
            Some(name) => name.clone(),
            None => format!("port {}", number & !watch::TRANSMIT),
        }
    }

    /// An instance; one that was added after the names were read has its number only.
    pub fn instance(&self, vid: u32) -> String {
        match self.instances.get(&vid) {
            Some(named) => named.name.clone(),
            None => format!("instance {vid}"),
        }
    }

    /// An output, as links name it.
    pub fn out(&self, vid: u32, out: u32) -> String {
        let named = self.instances.get(&vid);
        match named.and_then(|named| named.outs.get(out as usize)) {
            Some(name) => name.clone(),
            None => format!("out {out}"),
        }
    }

    /// The instance, or where the packet came in.
    pub fn stage(&self, event: &WatchEvent) -> String {
        match event.vid {
            0 => self.port(event.port),
            vid => self.instance(vid),
        }
    }

    /// What became of the packet there: `pass`, `pass (out abuse)`, `drop rule_drop`, `tx`, `redirect`.
    pub fn verdict(&self, event: &WatchEvent) -> String {
        if let Some(ends) = &self.networks {
            return self.verdict_in(ends, event);
        }
        if event.kind == watch::ENTRY {
            return match event.vid {
                0 if event.port & watch::TRANSMIT != 0 => "is leaving".to_owned(),
                0 => "came in".to_owned(),
                _ => "came back".to_owned(),
            };
        }
        let pass = match (event.vid, event.out) {
            (0, _) => String::new(),
            (_, 0) => "pass".to_owned(),
            (vid, out) => format!("pass ({})", self.out(vid, out)),
        };
        if event.verdict == NEXT as u32 {
            return pass;
        }
        let word = verdict_word(event.verdict);
        let why = match Why::of(event) {
            Why::Reason(reason) => format!(" {reason}"),
            Why::Code(code) => format!(" (returned {code})"),
            Why::Unsaid => String::new(),
        };
        let by_link = match event.next_slot {
            0 => return format!("{word}{why}"),
            panel::STACK => "stack".to_owned(),
            panel::TX => "tx".to_owned(),
            panel::DROP => format!("drop{why}"),
            panel::DEVICE if event.verdict == 4 => self.port(event.next_vid),
            _ => format!("drop{why}"),
        };
        match pass.is_empty() {
            true => by_link,
            false => format!("{pass} > {by_link}"),
        }
    }

    /// The same in virtual networks: `pass`, `drop no_route`, `to shop/w1`, `to edge e2 (192.0.2.2, geneve), VNI 4096`.
    fn verdict_in(&self, ends: &Ends, event: &WatchEvent) -> String {
        if event.kind == watch::ENTRY {
            return match event.vid {
                0 if ends.identifiers.contains_key(&event.port) => {
                    format!("came in, VNI {}", ends.identifiers[&event.port])
                }
                0 => "came in".to_owned(),
                _ => "came back".to_owned(),
            };
        }
        if event.verdict == NEXT as u32 {
            return "pass".to_owned();
        }
        if event.kind & watch::DROP != 0 {
            return match Why::of(event) {
                Why::Reason(reason) => format!("drop {reason}"),
                Why::Code(_) | Why::Unsaid => "drop".to_owned(),
            };
        }
        let what = if event.kind == watch::COPY {
            "copy "
        } else {
            ""
        };
        match event.next_slot {
            net_slot::DEVICE => format!("{what}to {}", self.port(event.next_vid)),
            // A copy goes on to the tunnel; the packet itself has left by it, from the tunnel's interface.
            net_slot::TUNNEL if event.kind == watch::COPY => {
                format!("copy to {}", remote(ends, event.out))
            }
            net_slot::TUNNEL => {
                let to = remote(ends, event.next_vid);
                match ends.identifiers.get(&event.vid) {
                    Some(identifier) => format!("to {to}, VNI {identifier}"),
                    None => format!("to {to}"),
                }
            }
            net_slot::FLOOD => format!("flooded, {} copies", event.next_vid),
            net_slot::PUNT => "to the helper".to_owned(),
            _ if event.kind == watch::COPY => format!("copy by {}", self.instance(event.next_vid)),
            0 if event.next_vid != 0 => {
                format!("recirculated to {}", self.instance(event.next_vid))
            }
            _ => verdict_word(event.verdict).to_owned(),
        }
    }

    /// The way up to an event: `wan > shield: pass > firewall: drop rule_drop`.
    pub fn path(&self, event: &WatchEvent) -> String {
        let mut text = self.port(event.port);
        let kept = (event.hop as usize).min(watch::PATH);
        for step in &event.path[..kept] {
            let (vid, out) = match self.networks {
                Some(_) => (u32::from(*step), 0),
                None => (u32::from(step & 0x7ff), u32::from(step >> 11)),
            };
            text.push_str(&match out {
                0 => format!(" > {}: pass", self.instance(vid)),
                out => format!(" > {}: pass ({})", self.instance(vid), self.out(vid, out)),
            });
        }
        if event.hop as usize > kept {
            text.push_str(&format!(" > {} more", event.hop as usize - kept));
        }
        if event.kind != watch::ENTRY {
            match event.vid {
                0 => text.push_str(" > "),
                vid => text.push_str(&format!(" > {}: ", self.instance(vid))),
            }
            text.push_str(&self.verdict(event));
        }
        text
    }
}

fn remote(ends: &Ends, number: u32) -> String {
    match ends.remotes.get(number as usize) {
        Some(name) => format!("edge {name}"),
        None => format!("edge number {number}"),
    }
}

/// `enum xdp_action`.
pub fn verdict_word(verdict: u32) -> &'static str {
    match verdict {
        0 => "aborted",
        1 => "drop",
        2 => "pass",
        3 => "tx",
        4 => "redirect",
        5 => "next",
        _ => "invalid",
    }
}
