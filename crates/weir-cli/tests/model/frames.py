"""Section 1 of docs/semantics.md: what a frame holds, read with scapy."""

import ipaddress
import struct

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether

EXTENSIONS = {0: "hopbyhop", 43: "routing", 60: "destopt", 135: "mobility", 139: "hip", 140: "shim6", 51: "ah", 44: "fragment"}
TAGS = (0x8100, 0x88A8, 0x9100)


class Dropped(Exception):
    """No rule sees the frame."""


class Seen:
    """Fields, options and payloads of one frame."""

    def __init__(self, frame):
        self.frame = frame
        self.fields = {}  # name: number
        self.classes = set()
        self.payloads = {}  # name: bytes
        self.extensions = None  # names; None without IPv6
        self.ip_options = None  # types; None without IPv4
        self.tcp_options = None  # {kind: value}; None without TCP
        self.fragment = None  # None, "first" or "later"
        self.network = None  # where the IP header begins
        self.members = set()  # fields whose address is in the dynamic set
        self.read()

    def read(self):
        frame = self.frame
        if len(frame) < 14:
            raise Dropped("frame_short")
        link = Ether(frame[:14])
        self.fields["eth-daddr"] = int(link.dst.replace(":", ""), 16)
        self.fields["eth-saddr"] = int(link.src.replace(":", ""), 16)
        # Below 1,536 scapy calls it a length.
        kind, at, tags = struct.unpack(">H", frame[12:14])[0], 14, 0
        while kind in TAGS:
            tags += 1
            if tags == 5:
                raise Dropped("vlan_deep")
            if len(frame) < at + 4:
                raise Dropped("vlan_truncated")
            tag = Dot1Q(frame[at : at + 4])
            if tags <= 2:
                name = "vlan" if tags == 1 else "vlan2"
                self.classes.add(name)
                self.fields[name + "-id"] = tag.vlan
                self.fields[name + "-pcp"] = tag.prio
                self.fields[name + "-dei"] = tag.id
            kind, at = tag.type, at + 4
        self.fields["eth-type"] = kind
        self.network = at
        if kind == 0x0800:
            self.ip4(frame[at:])
        elif kind == 0x86DD:
            self.ip6(frame[at:])

    def ip4(self, data):
        if len(data) < 20:
            raise Dropped("ip4_truncated")
        header = IP(data[:20])
        if header.version != 4:
            raise Dropped("ip4_bad_version")
        size = header.ihl * 4
        if size < 20 or size > len(data):
            raise Dropped("ip4_bad_ihl")
        if header.len < size:
            raise Dropped("ip4_bad_len")
        if header.len > len(data):
            raise Dropped("ip4_len_over")
        if ones(data[:size]) != 0xFFFF:
            raise Dropped("ip4_bad_checksum")
        if header.ttl == 0:
            raise Dropped("ttl_zero")
        self.ip_options = []
        for option, _ in options(data[20:size], "ip4_bad_option"):
            self.ip_options.append(option)
        if header.frag * 8 + header.len - size > 65535:
            raise Dropped("frag_past_end")
        flags = int(header.flags)
        self.classes.add("ip4")
        self.fields.update(
            {
                "ip-ver": 4,
                "ip-ihl": header.ihl,
                "ip-dscp": header.tos >> 2,
                "ip-ecn": header.tos & 3,
                "ip-len": header.len,
                "ip-id": header.id,
                "ip-flags": flags,
                "ip-res": flags >> 2,
                "ip-df": flags >> 1 & 1,
                "ip-mf": flags & 1,
                "ip-frag-offset": header.frag,
                "ip-ttl": header.ttl,
                "ip-proto": header.proto,
                "ip-checksum": header.chksum,
                "ip-saddr": address(header.src),
                "ip-daddr": address(header.dst),
                "net-proto": 4,
                "l4-proto": header.proto,
            }
        )
        payload = data[size : header.len]
        self.payloads["ip-payload"] = payload
        if header.frag:
            self.fragment = "later"
            return
        if flags & 1:
            self.fragment = "first"
        self.transport(header.proto, payload, False)

    def ip6(self, data):
        if len(data) < 40:
            raise Dropped("ip6_truncated")
        header = IPv6(data[:40])
        if header.version != 6:
            raise Dropped("ip6_bad_version")
        if header.hlim == 0:
            raise Dropped("ttl_zero")
        if header.plen == 0 and header.nh == 0:
            raise Dropped("ip6_jumbo")
        if header.plen + 40 > len(data):
            raise Dropped("ip6_len_over")
        self.classes.add("ip6")
        self.extensions = set()
        at, end, proto, count = 40, 40 + header.plen, header.nh, 0
        transport = True
        while proto in EXTENSIONS or proto == 50:
            count += 1
            if count == 9:
                raise Dropped("ip6_eh_deep")
            if end - at < 8:
                raise Dropped("ip6_eh_truncated")
            if proto == 50:
                size = 8
            elif proto == 51:
                size = (data[at + 1] + 2) * 4
            elif proto == 44:
                size = 8
            else:
                size = (data[at + 1] + 1) * 8
            if at + size > end:
                raise Dropped("ip6_eh_truncated")
            if at + size - 40 > 256:
                raise Dropped("ip6_eh_long")
            if proto == 50:
                self.extensions.add("esp")
                transport = False
                break
            self.extensions.add(EXTENSIONS[proto])
            following = data[at]
            if proto == 44:
                part = IPv6ExtHdrFragment(data[at : at + 8])
                if part.offset * 8 + end - at - 8 > 65535:
                    raise Dropped("frag_past_end")
                self.fields["ip6-frag-offset"] = part.offset
                self.fields["ip6-mf"] = part.m
                self.fields["ip6-frag-id"] = part.id
                self.fragment = "later" if part.offset else "first" if part.m else None
            at, proto = at + size, following
            if self.fragment == "later":
                transport = False
                break
        self.fields.update(
            {
                "ip6-ver": 6,
                "ip6-traffic-class": header.tc,
                "ip6-dscp": header.tc >> 2,
                "ip6-ecn": header.tc & 3,
                "ip6-flow-label": header.fl,
                "ip6-len": header.plen,
                "ip6-next": header.nh,
                "ip6-hop-limit": header.hlim,
                "ip6-saddr": address(header.src),
                "ip6-daddr": address(header.dst),
                "net-proto": 6,
                "l4-proto": proto,
            }
        )
        payload = data[at:end]
        self.payloads["ip6-payload"] = payload
        if transport:
            self.transport(proto, payload, True)

    def transport(self, proto, data, six):
        if proto == 6:
            if len(data) < 20:
                raise Dropped("tcp_truncated")
            header = TCP(data[:20])
            size = header.dataofs * 4
            if size < 20 or size > len(data):
                raise Dropped("tcp_bad_offset")
            self.tcp_options = {}
            for kind, value in options(data[20:size], "tcp_bad_option"):
                self.tcp_options[kind] = value
            flags = int(header.flags) & 0xFF
            self.classes |= {"tcp", "ports"}
            self.fields.update(
                {
                    "tcp-sport": header.sport,
                    "tcp-dport": header.dport,
                    "sport": header.sport,
                    "dport": header.dport,
                    "tcp-seq-num": header.seq,
                    "tcp-ack-num": header.ack,
                    "tcp-offset": header.dataofs,
                    "tcp-reserved": data[12] & 15,
                    "tcp-flags": flags,
                    "tcp-win": header.window,
                    "tcp-checksum": header.chksum,
                    "tcp-urg-ptr": header.urgptr,
                }
            )
            for bit, name in enumerate(("fin", "syn", "rst", "push", "ack", "urg", "ece", "cwr")):
                self.fields["tcp-" + name] = flags >> bit & 1
            self.payloads["tcp-payload"] = data[size:]
        elif proto == 17:
            if len(data) < 8:
                raise Dropped("udp_truncated")
            header = UDP(data[:8])
            if header.len < 8 or (header.len > len(data) and self.fragment != "first"):
                raise Dropped("udp_bad_len")
            self.classes |= {"udp", "ports"}
            self.fields.update(
                {
                    "udp-sport": header.sport,
                    "udp-dport": header.dport,
                    "sport": header.sport,
                    "dport": header.dport,
                    "udp-len": header.len,
                    "udp-checksum": header.chksum,
                }
            )
            self.payloads["udp-payload"] = data[8 : min(header.len, len(data))]
        elif proto in (1, 58) and (proto == 58) == six:
            if len(data) < 8:
                raise Dropped("icmp_truncated")
            name = "icmp6" if six else "icmp"
            self.classes.add(name)
            self.fields[name + "-type"] = data[0]
            self.fields[name + "-code"] = data[1]
            self.fields[name + "-checksum"] = struct.unpack(">H", data[2:4])[0]
            self.payloads[name + "-payload"] = data[8:]
        elif proto in (33, 132, 136) and len(data) >= 8:
            self.classes.add("ports")
            self.fields["sport"], self.fields["dport"] = struct.unpack(">HH", data[:4])


def address(text):
    return int(ipaddress.ip_address(text))


def ones(data):
    """The ones' complement sum of 16-bit words."""
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def options(data, reason):
    at = 0
    while at < len(data) and data[at] != 0:
        if data[at] == 1:
            at += 1
            continue
        if at + 2 > len(data) or data[at + 1] < 2 or at + data[at + 1] > len(data):
            raise Dropped(reason)
        yield data[at], data[at + 2 : at + data[at + 1]]
        at += data[at + 1]
