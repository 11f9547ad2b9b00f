//! The classes of differences between weir and nf_conntrack, each with the condition under which it may show; docs/differences-nftables.md argues each.
//!
//! Invariant: no class lets a legitimate packet be lost by weir, or lets weir pass abuse, without naming exactly which.

use weir_packet::build::Frame;

use super::model::{Op, Packet, Seen, Segment, Shift, Shot};

/// A class.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// As docs/differences-nftables.md names it.
    pub name: &'static str,
    /// Who passes the packet: weir, or nftables.
    pub weir_passes: bool,
    when: fn(&Shot) -> bool,
}

/// All of them.
pub const CLASSES: &[Class] = &[
    Class {
        name: "reopened",
        weir_passes: false,
        when: |shot| shot.previous,
    },
    Class {
        name: "reopened",
        weir_passes: true,
        when: |shot| shot.previous,
    },
    Class {
        name: "simultaneous-open",
        weir_passes: true,
        when: |shot| {
            let answer = |s: &Segment| s.opener && s.flags == Frame::SYN | Frame::ACK;
            matches!(&shot.packet, Packet::Tcp(s) if answer(s))
        },
    },
    Class {
        name: "window",
        weir_passes: false,
        when: |shot| {
            forged(shot).is_some_and(|(_, seq, ack)| seq != Shift::Exact || ack != Shift::Exact)
        },
    },
    Class {
        name: "icmp-window",
        weir_passes: false,
        when: |shot| shot.not_under_way,
    },
    Class {
        name: "unanswered",
        weir_passes: false,
        when: |shot| tcp(shot) && !shot.answered,
    },
    Class {
        name: "unanswered",
        weir_passes: true,
        when: |shot| tcp(shot) && !shot.answered,
    },
    Class {
        name: "reset-challenged",
        weir_passes: true,
        when: |shot| matches!(&shot.packet, Packet::Tcp(s) if s.flags & Frame::RST != 0),
    },
    Class {
        name: "reuse-unclosed",
        weir_passes: false,
        when: |shot| shot.unclosed,
    },
    Class {
        name: "reuse-unclosed",
        weir_passes: true,
        when: |shot| shot.unclosed,
    },
    Class {
        name: "after-forgery",
        weir_passes: true,
        when: |shot| shot.after_forgery,
    },
    Class {
        name: "after-forgery",
        weir_passes: false,
        when: |shot| shot.after_forgery,
    },
    Class {
        name: "fragment-order",
        weir_passes: false,
        when: |shot| matches!(shot.op, Op::Pieces { order: 2.., .. }),
    },
    Class {
        name: "data-checksum",
        weir_passes: true,
        when: |shot| {
            let quiet =
                |s: &Segment| s.bad && s.flags & (Frame::SYN | Frame::FIN | Frame::RST) == 0;
            matches!(&shot.packet, Packet::Tcp(s) if quiet(s))
        },
    },
];

/// Classes of differences that only states show.
pub const STATE_CLASSES: &[&str] = &["fin-acknowledged", "reset-sent"];

fn tcp(shot: &Shot) -> bool {
    matches!(shot.packet, Packet::Tcp(_)) || shot.quotes_tcp()
}

fn forged(shot: &Shot) -> Option<(&Segment, Shift, Shift)> {
    match (&shot.op, &shot.packet) {
        (Op::Forged { seq, ack, .. }, Packet::Tcp(segment)) => Some((segment, *seq, *ack)),
        _ => None,
    }
}

/// The class of a packet that devices treat differently. Both hooks of weir must agree.
pub(super) fn of_packet(shot: &Shot, seen: &[Seen]) -> Option<&'static str> {
    let [xdp, tc, nftables] = seen else {
        return None;
    };
    let early = matches!(shot.op, Op::Pieces { order: 2.., .. });
    if early && *xdp == Seen::Nothing && *tc == Seen::Right && *nftables == Seen::Right {
        // The one difference between the hooks: XDP cannot hold a packet.
        return Some("fragment-order");
    }
    if !xdp.same(tc) || matches!(xdp, Seen::Wrong(_)) || matches!(nftables, Seen::Wrong(_)) {
        return None;
    }
    let passes = *xdp == Seen::Right;
    let found = CLASSES
        .iter()
        .find(|class| class.weir_passes == passes && (class.when)(shot));
    found.map(|class| class.name)
}

/// `same`, or the class of a pair of states; `class`: what the conversation may differ for.
pub(super) fn of_states(
    xdp: &str,
    tc: &str,
    conntrack: &str,
    class: Option<&'static str>,
) -> Option<&'static str> {
    if xdp != tc {
        return None;
    }
    let same: &[&str] = match xdp {
        "none" => &["none"],
        "tcp-syn-sent" => &["SYN_SENT"],
        "tcp-syn-received" | "tcp-syn-recv" => &["SYN_RECV"],
        "tcp-established" => &["ESTABLISHED"],
        "tcp-fin" => &["FIN_WAIT", "CLOSE_WAIT"],
        "tcp-fin-wait" => &["FIN_WAIT"],
        "tcp-close-wait" => &["CLOSE_WAIT"],
        "tcp-last-ack" => &["LAST_ACK"],
        "tcp-time-wait" => &["TIME_WAIT", "LAST_ACK"],
        "tcp-closed" | "tcp-close" => &["CLOSE"],
        "udp-new" | "udp-unreplied" => &["UNREPLIED"],
        "udp" | "udp-stream" => &["REPLIED"],
        "icmp" => &["icmp"],
        _ => &[],
    };
    match (same.contains(&conntrack), xdp, conntrack) {
        (true, ..) => Some("same"),
        // Any ACK of the other side will do for nf_conntrack.
        (_, "tcp-last-ack", "TIME_WAIT") | (_, "tcp-fin-wait", "CLOSE_WAIT" | "LAST_ACK") => {
            Some(STATE_CLASSES[0])
        }
        (_, "tcp-close", _) if class.is_none() => Some(STATE_CLASSES[1]),
        _ => class,
    }
}
