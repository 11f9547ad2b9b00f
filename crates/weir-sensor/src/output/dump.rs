//! Logs with bytes in hexadecimal: tcp-data, what the ends of a session say, and alert-debug, all that is known of an alert.

use std::io::Write;
use std::net::IpAddr;

use super::eve::{Head, address};
use crate::packet::{Direction, Packet};
use crate::rules::Rule;
use crate::time;

/// Bytes of a line of a dump.
const LINE: usize = 16;

/// Lines of 16 bytes with their offset, in hexadecimal and as text.
pub(super) fn dump(out: &mut Vec<u8>, bytes: &[u8]) {
    for (n, line) in bytes.chunks(LINE).enumerate() {
        let _ = write!(out, " {:04X}  ", n * LINE);
        for at in 0..LINE {
            match line.get(at) {
                Some(byte) => {
                    let _ = write!(out, "{byte:02X} ");
                }
                None => out.extend_from_slice(b"   "),
            }
            if at == 7 {
                out.push(b' ');
            }
        }
        out.extend_from_slice(b"  ");
        for (at, byte) in line.iter().enumerate() {
            out.push(match byte {
                b' '..=b'~' => *byte,
                _ => b'.',
            });
            if at == 7 {
                out.push(b' ');
            }
        }
        out.push(b'\n');
    }
}

/// What an end of a session says: a block of tcp-data.
pub(crate) fn stream(
    out: &mut Vec<u8>,
    ends: [(IpAddr, u16); 2],
    direction: Direction,
    bytes: &[u8],
) {
    let [client, server] = ends;
    address(out, client.0);
    let _ = write!(out, "_{}-", client.1);
    address(out, server.0);
    let way = match direction {
        Direction::ToServer => "ts",
        Direction::ToClient => "tc",
    };
    let _ = writeln!(out, "_{}-{way}:", server.1);
    dump(out, bytes);
}

/// Packets and bytes of a flow when it alerted, to the server and to the client, and when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowCounts {
    pub(crate) start: u64,
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
    /// The protocol of the application.
    pub(crate) app: &'static str,
}

/// What is known of an alert beside its head and its rule.
pub(crate) struct DebugFacts<'a, 'b> {
    pub(crate) packet: Option<&'a Packet<'b>>,
    pub(crate) to_server: Option<bool>,
    pub(crate) flow: Option<FlowCounts>,
    /// Number of the transaction that it is about.
    pub(crate) transaction: Option<u64>,
    /// It was found in the stream rather than in the packet.
    pub(crate) stream: bool,
    pub(crate) payload: &'a [u8],
}

fn truth(is: bool) -> &'static str {
    if is { "TRUE" } else { "FALSE" }
}

/// An alert: a block of alert-debug.
pub(crate) fn alert(out: &mut Vec<u8>, head: &Head<'_>, rule: &Rule, facts: &DebugFacts<'_, '_>) {
    out.extend_from_slice(b"+================\nTIME:              ");
    time::fast(out, head.time);
    out.push(b'\n');
    if head.number > 0 {
        let _ = writeln!(out, "PCAP PKT NUM:      {}", head.number);
    }
    if let Some(origin) = head.origin {
        let _ = writeln!(out, "PKT SRC:           {}", origin.name());
    }
    if let Some((source, destination)) = head.addresses {
        for (what, of) in [("SRC", source), ("DST", destination)] {
            let _ = write!(out, "{what} IP:            ");
            address(out, of);
            out.push(b'\n');
        }
        let _ = writeln!(out, "PROTO:             {}", head.protocol);
    }
    if let Some((source, destination)) = head.ports {
        let _ = writeln!(out, "SRC PORT:          {source}");
        let _ = writeln!(out, "DST PORT:          {destination}");
    }
    if let Some(tcp) = facts.packet.and_then(Packet::tcp) {
        let _ = writeln!(out, "TCP SEQ:           {}", tcp.sequence);
        let _ = writeln!(out, "TCP ACK:           {}", tcp.acknowledgement);
    }
    if let Some(to_server) = facts.to_server {
        let (server, client) = (truth(to_server), truth(!to_server));
        let _ = writeln!(
            out,
            "FLOW:              to_server: {server}, to_client: {client}"
        );
    }
    if let Some(flow) = &facts.flow {
        out.extend_from_slice(b"FLOW Start TS:     ");
        time::fast(out, flow.start);
        let [to_server, to_client] = flow.packets;
        let _ = writeln!(out, "\nFLOW PKTS TODST:   {to_server}");
        let _ = writeln!(out, "FLOW PKTS TOSRC:   {to_client}");
        let all = flow.bytes[0] + flow.bytes[1];
        let _ = writeln!(out, "FLOW Total Bytes:  {all}");
        let known = truth(flow.app != "unknown");
        let app = flow.app;
        let _ = writeln!(out, "FLOW APP_LAYER:    DETECTED: {known}, PROTO {app}");
    }
    if let Some(packet) = facts.packet {
        let _ = writeln!(out, "PACKET LEN:        {}", packet.data.len());
        out.extend_from_slice(b"PACKET:\n");
        dump(out, packet.data);
    }
    let found = match (facts.transaction, facts.stream) {
        (Some(_), _) => "STATE",
        (None, true) => "STREAM",
        (None, false) => "PACKET",
    };
    let transaction = facts
        .transaction
        .map_or("N/A".to_owned(), |t| t.to_string());
    out.extend_from_slice(b"ALERT CNT:           1\n");
    for (what, value) in [
        ("MSG", &rule.message),
        ("GID", &rule.gid.to_string()),
        ("SID", &rule.sid.to_string()),
        ("REV", &rule.rev.to_string()),
        ("CLASS", &rule.category),
        ("PRIO", &rule.priority.to_string()),
        ("FOUND IN", &found.to_owned()),
        ("IN TX", &transaction),
    ] {
        let name = format!("ALERT {what} [00]:");
        let _ = writeln!(out, "{name:<20} {value}");
    }
    let _ = writeln!(out, "PAYLOAD LEN:         {}", facts.payload.len());
    out.extend_from_slice(b"PAYLOAD:\n");
    dump(out, facts.payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_an_offset_and_text() {
        let mut out = Vec::new();
        dump(&mut out, b"GET / HTTP/1.1\r\nA: b\r\n\r\n");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            " 0000  47 45 54 20 2F 20 48 54  54 50 2F 31 2E 31 0D 0A   GET / HT TP/1.1..\n \
             0010  41 3A 20 62 0D 0A 0D 0A                            A: b.... \n"
        );
        let mut out = Vec::new();
        dump(&mut out, &[]);
        assert!(out.is_empty());
    }
}
