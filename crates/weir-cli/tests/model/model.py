#!/usr/bin/env python3
"""An independent model of the stateless policy language.

Written from docs/language.md and docs/semantics.md (sections 1 to 3), on the packet library scapy. It shares no code, no tables and no
generator with weir. It makes packets and policies at random, decides every packet by itself, lets `weir replay` decide it, and compares
the verdict of each packet and the counters of each rule.

    model.py WEIR VERDICTS SEED [FOLDER]

Prints a line with the number of verdicts. The first difference ends it with status 1: packet, policy and both answers are in FOLDER
(default: a temporary folder, removed when nothing differs).
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

PACKETS = 2000  # of each capture
MASK64 = (1 << 64) - 1
EXTENSIONS = {0: "hopbyhop", 43: "routing", 60: "destopt", 135: "mobility", 139: "hip", 140: "shim6", 51: "ah", 44: "fragment"}
TAGS = (0x8100, 0x88A8, 0x9100)


# ---- Section 1: what a frame holds -------------------------------------------------------------------------------------------------


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
    import ipaddress

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


# ---- Section 2: matching -----------------------------------------------------------------------------------------------------------

# Name: class, bits. The class "" is every frame.
NUMBERS = {
    "eth-saddr": ("", 48), "eth-daddr": ("", 48), "eth-type": ("", 16), "l4-proto": ("", 8), "net-proto": ("", 8),
    "vlan-id": ("vlan", 12), "vlan-pcp": ("vlan", 3), "vlan-dei": ("vlan", 1),
    "vlan2-id": ("vlan2", 12), "vlan2-pcp": ("vlan2", 3), "vlan2-dei": ("vlan2", 1),
    "sport": ("ports", 16), "dport": ("ports", 16),
    "ip-ihl": ("ip4", 4), "ip-dscp": ("ip4", 6), "ip-ecn": ("ip4", 2), "ip-len": ("ip4", 16), "ip-id": ("ip4", 16),
    "ip-flags": ("ip4", 3), "ip-res": ("ip4", 1), "ip-df": ("ip4", 1), "ip-mf": ("ip4", 1), "ip-frag-offset": ("ip4", 13),
    "ip-ttl": ("ip4", 8), "ip-proto": ("ip4", 8), "ip-checksum": ("ip4", 16), "ip-saddr": ("ip4", 32), "ip-daddr": ("ip4", 32),
    "ip6-traffic-class": ("ip6", 8), "ip6-dscp": ("ip6", 6), "ip6-ecn": ("ip6", 2), "ip6-flow-label": ("ip6", 20),
    "ip6-len": ("ip6", 16), "ip6-next": ("ip6", 8), "ip6-hop-limit": ("ip6", 8), "ip6-saddr": ("ip6", 128), "ip6-daddr": ("ip6", 128),
    "ip6-frag-offset": ("ip6", 13), "ip6-mf": ("ip6", 1), "ip6-frag-id": ("ip6", 32),
    "icmp-type": ("icmp", 8), "icmp-code": ("icmp", 8), "icmp-checksum": ("icmp", 16),
    "icmp6-type": ("icmp6", 8), "icmp6-code": ("icmp6", 8), "icmp6-checksum": ("icmp6", 16),
    "udp-sport": ("udp", 16), "udp-dport": ("udp", 16), "udp-len": ("udp", 16), "udp-checksum": ("udp", 16),
    "tcp-sport": ("tcp", 16), "tcp-dport": ("tcp", 16), "tcp-seq-num": ("tcp", 32), "tcp-ack-num": ("tcp", 32),
    "tcp-offset": ("tcp", 4), "tcp-reserved": ("tcp", 4), "tcp-flags": ("tcp", 8), "tcp-win": ("tcp", 16),
    "tcp-checksum": ("tcp", 16), "tcp-urg-ptr": ("tcp", 16),
}
FLAGS = {"tcp-" + name: "tcp" for name in ("fin", "syn", "rst", "push", "ack", "urg", "ece", "cwr")}
FLAGS.update({"ip-df": "ip4", "ip-mf": "ip4", "ip-res": "ip4", "ip6-mf": "ip6", "vlan-dei": "vlan", "vlan2-dei": "vlan2"})
ECN = {"ip-non-ect": 0, "ip-ect0": 2, "ip-ect1": 1, "ip-ce": 3}
HEADERS = ("vlan", "vlan2", "tcp", "udp", "icmp", "icmp6")
PIECES = {"frag": ("first", "later"), "frag-first": ("first",), "frag-later": ("later",)}
IP_OPTIONS = {"ip-opt-rr": 7, "ip-opt-timestamp": 68, "ip-opt-lsrr": 131, "ip-opt-ssrr": 137, "ip-opt-router-alert": 148}
TCP_OPTIONS = {"tcp-opt-mss": (2, 2), "tcp-opt-wscale": (3, 1), "tcp-opt-timestamp": (8, 8)}
BYTES = {"ip-payload": "ip4", "ip6-payload": "ip6", "tcp-payload": "tcp", "udp-payload": "udp", "icmp-payload": "icmp", "icmp6-payload": "icmp6"}
COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}


class Match:
    """A match: its text, the classes it requires, and its test."""

    def __init__(self, text, classes, test):
        self.text, self.classes, self.test = text, classes, test


def written(field, number, rng):
    if field in ("eth-saddr", "eth-daddr"):
        return ":".join("%02x" % byte for byte in number.to_bytes(6, "big"))
    if field.endswith("addr"):
        import ipaddress

        kind = ipaddress.IPv6Address if NUMBERS[field][1] == 128 else ipaddress.IPv4Address
        return str(kind(number))
    if field == "net-proto":
        return "ip%d" % number
    return rng.choice(("%d", "x%x", "0x%x")) % number


def number_test(rng, field, pool):
    """A random test on a number, as text and function."""
    bits = NUMBERS[field][1]
    top = (1 << bits) - 1

    def value():
        if field == "net-proto":
            return rng.choice((4, 6))
        if pool and rng.random() < 0.8:
            return min(top, max(0, rng.choice(pool) + rng.choice((0, 0, 0, 1, -1))))
        return rng.randint(0, top)

    def stretch():
        """(text, least, greatest)"""
        if field != "net-proto" and rng.random() < 0.4:
            one, other = sorted((value(), value()))
            if field.endswith("addr") and rng.random() < 0.6:
                length = rng.randint(1, bits)
                one = one >> bits - length << bits - length
                return "%s/%d" % (written(field, one, rng), length), one, one + (1 << bits - length) - 1
            return "%s-%s" % (written(field, one, rng), written(field, other, rng)), one, other
        one = value()
        return written(field, one, rng), one, one

    # Behind a flag, `in { ... }` is a set of interfaces.
    shape = rng.uniform(0.35, 1) if field in FLAGS else rng.random()
    if shape < 0.35:
        some = [stretch() for _ in range(rng.randint(1, 6))]
        return " in { %s }" % ", ".join(text for text, _, _ in some), lambda n: any(low <= n <= high for _, low, high in some)
    if shape < 0.6:
        text, low, high = stretch()
        if rng.random() < 0.3:
            return " != " + text, lambda n: not low <= n <= high
        return rng.choice((" ", " == ")) + text, lambda n: low <= n <= high
    if field in ("net-proto", "eth-saddr", "eth-daddr"):
        one = value()
        return " == " + written(field, one, rng), lambda n: n == one
    one, condition = value(), rng.choice(tuple(COMPARE))
    return " %s %s" % (condition, written(field, one, rng)), lambda n: COMPARE[condition](n, one)


def make_match(rng, pools, texts):
    """A random match; None where this one cannot be written."""
    negated = rng.random() < 0.2
    bang = "! " if negated else ""
    shape = rng.random()
    if shape < 0.55:
        field = rng.choice(tuple(NUMBERS))
        kind = NUMBERS[field][0]
        classes = {kind} - {""}
        if rng.random() < 0.1 and field not in FLAGS:
            if not negated:
                return Match(field, classes, lambda s: field in s.fields)
            return Match("! " + field, set(), lambda s: field not in s.fields)
        text, test = number_test(rng, field, pools.get(field))
        return Match(bang + field + text, classes, lambda s: field in s.fields and test(s.fields[field]) != negated)
    if shape < 0.68:
        if rng.random() < 0.2:
            field = rng.choice(tuple(ECN))
            classes = {"ip4"}
            return Match(bang + field, classes, lambda s: "ip4" in s.classes and (s.fields["ip-ecn"] == ECN[field]) != negated)
        field = rng.choice(tuple(FLAGS))
        return Match(bang + field, {FLAGS[field]}, lambda s: field in s.fields and (s.fields[field] == 1) != negated)
    if shape < 0.74:
        field = rng.choice(HEADERS)
        return Match(bang + field, set() if negated else {field}, lambda s: (field in s.classes) != negated)
    if shape < 0.79:
        field = rng.choice(tuple(PIECES))
        return Match(bang + field, set(), lambda s: (s.fragment in PIECES[field]) != negated)
    if shape < 0.82:
        mask = rng.randint(1, 255)
        wanted = rng.randint(0, 255) & mask
        if rng.random() < 0.7:
            mask, wanted = rng.choice(((0x12, 2), (0x3F, 2), (0x05, 4), (0x02, 2), (0x11, 0x10)))
        names = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr")
        listed = lambda flags: ",".join(n for bit, n in enumerate(names) if flags >> bit & 1) or "none"
        text = "%stcp-flags %s/%s" % (bang, listed(wanted), listed(mask))
        return Match(text, {"tcp"}, lambda s: "tcp" in s.classes and (s.fields["tcp-flags"] & mask == wanted) != negated)
    if shape < 0.86:
        if rng.random() < 0.3:
            return Match(bang + "ip6-eh", {"ip6"}, lambda s: "ip6" in s.classes and bool(s.extensions) != negated)
        name = rng.choice(tuple(EXTENSIONS.values()) + ("esp",))
        return Match(bang + "ip6-eh-" + name, {"ip6"}, lambda s: "ip6" in s.classes and (name in s.extensions) != negated)
    if shape < 0.89:
        if rng.random() < 0.3:
            return Match(bang + "ip-opt", {"ip4"}, lambda s: "ip4" in s.classes and bool(s.ip_options) != negated)
        name = rng.choice(tuple(IP_OPTIONS))
        kind = IP_OPTIONS[name]
        if rng.random() < 0.3:
            name = "ip-opt %d" % kind
        return Match(bang + name, {"ip4"}, lambda s: "ip4" in s.classes and (kind in s.ip_options) != negated)
    if shape < 0.95:
        return option_match(rng, negated, bang)
    field = rng.choice(tuple(BYTES))
    sample = texts.get(field)
    offset = rng.choice((0, 0, 1, 3, 8, 30))
    wanted = rng.randbytes(rng.randint(1, 8))
    if sample and rng.random() < 0.8:
        one = rng.choice(sample)
        wanted = one[offset : offset + rng.randint(1, 12)] or wanted
    condition = rng.choice(("==", "!="))
    text = "%s%s%s %s x%s" % (bang, field, "[%d]" % offset if offset else "", condition, wanted.hex())

    def equal(seen):
        if field not in seen.payloads:
            return False
        same = seen.payloads[field][offset : offset + len(wanted)] == wanted
        return (same == (condition == "==")) != negated

    return Match(text, {BYTES[field]}, equal)


def option_match(rng, negated, bang):
    shape = rng.random()
    if shape < 0.15:
        return Match(bang + "tcp-opt", {"tcp"}, lambda s: "tcp" in s.classes and bool(s.tcp_options) != negated)
    if shape < 0.4:
        kind = rng.choice((2, 3, 4, 5, 8, 30, 34, 254))
        return Match("%stcp-opt %d" % (bang, kind), {"tcp"}, lambda s: "tcp" in s.classes and (kind in s.tcp_options) != negated)
    if shape < 0.8:
        name = rng.choice(tuple(TCP_OPTIONS))
        kind, size = TCP_OPTIONS[name]
        one, condition = rng.choice((0, 1, 7, 14, 536, 1400, 1460, 8960)), rng.choice(tuple(COMPARE))
        if size == 1:
            one = min(one, 14)
        if rng.random() < 0.3:
            name = "tcp-opt %d" % kind
        text = "%s%s %s %d" % (bang, name, condition, one)

        def number(seen):
            if "tcp" not in seen.classes or len(seen.tcp_options.get(kind, b"")) != size:
                return False
            return COMPARE[condition](int.from_bytes(seen.tcp_options[kind], "big"), one) != negated

        return Match(text, {"tcp"}, number)
    kind = rng.choice((30, 34, 254))
    if rng.random() < 0.5:
        wanted, condition = rng.choice((b"\x01", b"\x00\x81", b"\xab\xcd", b"\x10\x20\x30")), rng.choice(("==", "!="))
        text = "%stcp-opt %d %s x%s" % (bang, kind, condition, wanted.hex())

        def start(seen):
            if "tcp" not in seen.classes or kind not in seen.tcp_options:
                return False
            same = seen.tcp_options[kind][: len(wanted)] == wanted
            return (same == (condition == "==")) != negated

        return Match(text, {"tcp"}, start)
    one, condition = rng.choice((0, 1, 129, 43981, 1056816)), rng.choice(tuple(COMPARE))
    text = "%stcp-opt %d %s %d" % (bang, kind, condition, one)

    def value(seen):
        held = seen.tcp_options.get(kind) if "tcp" in seen.classes else None
        if held is None or not 1 <= len(held) <= 8:
            return False
        return COMPARE[condition](int.from_bytes(held, "big"), one) != negated

    return Match(text, {"tcp"}, value)


# ---- Section 3: verdicts -----------------------------------------------------------------------------------------------------------


def splitmix64(x):
    z = (x + 0x9E3779B97F4A7C15) & MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


class Rule:
    def __init__(self, rng, pools, texts):
        self.matches = [make_match(rng, pools, texts) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        if rng.random() < 0.03:
            self.matches = [Match("all", set(), lambda s: True)]
        self.classes = set().union(*(m.classes for m in self.matches))
        self.packets = self.bytes = 0
        shape = rng.random()
        self.share = self.rate = None
        self.accepts = False
        if shape < 0.5:
            self.target = "drop"
        elif shape < 0.75:
            self.target, self.accepts = "accept", True
        elif shape < 0.85:
            milli = rng.choice((1, 250, 12345, 33333, 50000, 99999, 100000))
            self.target = "drop %d.%03d%%" % divmod(milli, 1000)
            self.share = milli * (1 << 32) // 100000
        else:
            n, unit, burst = rng.choice((1, 5, 40, 1000)), rng.choice("smh"), rng.choice((1, 1, 2, 10))
            self.target = "drop over %d/%s burst %d" % (n, unit, burst)
            period = 10**9 * {"s": 1, "m": 60, "h": 3600}[unit] // n
            self.rate, self.limit, self.tat = period, min(period * (burst - 1), MASK64), 0

    def text(self, number):
        return "r%d: %s %s" % (number, " ".join(m.text for m in self.matches), self.target)

    def matching(self, seen):
        return self.classes <= seen.classes and all(m.test(seen) for m in self.matches)

    def drops(self, identity, number, time, seed):
        if self.share is not None:
            return splitmix64((seed + (number << 32) + identity) & MASK64) >> 32 < self.share
        if self.rate is not None:
            base = max(self.tat, time)
            if base - time > self.limit:
                return True
            self.tat = (base + self.rate) & MASK64
            return False
        return True


def decide(rules, packets, seed):
    """Which packets pass; counts in the rules. A packet is (frame, what is seen of it or None, its time)."""
    passed = []
    for number, (frame, seen, time) in enumerate(packets):
        if seen is None:
            passed.append(False)
            continue
        drop = accept = False
        for identity, rule in rules:
            if not rule.matching(seen):
                continue
            rule.packets += 1
            rule.bytes += len(frame)
            if rule.accepts:
                accept = True
            elif rule.drops(identity, number, time, seed):
                drop = True
        passed.append(accept or not drop)
    return passed


# ---- Packets -----------------------------------------------------------------------------------------------------------------------


def make_frame(rng):
    mac = lambda: "02:00:00:00:00:%02x" % rng.randint(1, 6) if rng.random() < 0.8 else "%02x:%02x:5e:00:53:%02x" % (
        rng.choice((0, 2, 1)), rng.randint(0, 255), rng.randint(0, 255))
    link = Ether(src=mac(), dst=mac())
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 3, 4))):
        tag = Dot1Q if rng.random() < 0.7 else Dot1AD
        link = link / tag(vlan=rng.choice((0, 1, 7, 100, 4095)), prio=rng.randint(0, 7), id=rng.randint(0, 1))
    kind = rng.random()
    if kind < 0.05:
        return bytes(link / ARP())
    if kind < 0.07:
        return bytes(link)[:-2] + struct.pack(">H", rng.choice((0x88CC, 0x8847, 0x0026))) + rng.randbytes(46)
    body = rng.choice((b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", rng.randbytes(rng.randint(1, 60))))
    six = kind < 0.5
    port = lambda: rng.choice((22, 53, 80, 443, 1024, 8080, 40000, 65535, rng.randint(0, 65535)))
    draw = rng.random()
    if draw < 0.45:
        some = [("MSS", rng.choice((536, 1400, 1460, 8960))), ("WScale", rng.randint(0, 14)), ("NOP", None), ("SAckOK", b""),
                ("Timestamp", (rng.choice((0, 7, 14, 1 << 31)), rng.choice((0, 1)))), (30, rng.randbytes(rng.choice((0, 2, 9)))),
                (254, rng.choice((b"\x01", b"\xab\xcd\x01", b"\x00\x81", b"\x10\x20\x30"))), (34, b"\x01" * 8), ("MSS", 1)]
        rng.shuffle(some)
        upper = TCP(sport=port(), dport=port(), flags=rng.choice((2, 0x12, 0x10, 0x18, 4, 0x11, 0x14, 0, 0xFF, rng.randint(0, 255))),
                    seq=rng.choice((0, 1, rng.getrandbits(32))), ack=rng.choice((0, rng.getrandbits(32))), window=rng.choice((0, 1024, 65535)),
                    options=some[: rng.choice((0, 0, 1, 2, 3, 4))], urgptr=rng.choice((0, 0, 5)), reserved=rng.choice((0, 0, 0, 3)))
    elif draw < 0.72:
        upper = UDP(sport=port(), dport=port())
        if rng.random() < 0.1:
            upper.chksum = 0
    elif draw < 0.86:
        upper = ICMPv6EchoRequest(data=b"") if six else ICMP(type=rng.choice((0, 3, 8, 11, 13)), code=rng.randint(0, 3))
        if six:
            upper.type, upper.code = rng.choice((1, 2, 128, 129, 133, 135, 136)), rng.randint(0, 3)
    else:
        upper = Raw(rng.randbytes(rng.choice((4, 8, 20))))
    if six:
        net = IPv6(src="2001:db8::%x" % rng.randint(1, 9), dst=rng.choice(("2001:db8:1::5", "2001:db8:ffff::1", "ff02::1", "fe80::1")),
                   tc=rng.choice((0, 0, 1, 46 << 2, rng.randint(0, 255))), fl=rng.choice((0, 5, rng.getrandbits(20))),
                   hlim=rng.choice((1, 64, 255)))
        for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 3))):
            net = net / rng.choice((IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=["2001:db8::77"]),
                                    IPv6ExtHdrFragment(id=rng.choice((1, 9)), m=rng.randint(0, 1), offset=rng.choice((0, 0, 185)))))
        if isinstance(upper, Raw):
            last = net.lastlayer()
            last.nh = rng.choice((47, 50, 50, 33, 132, 136, 59, 1))
    else:
        net = IP(src="10.0.%d.%d" % (rng.randint(0, 3), rng.randint(1, 9)), dst=rng.choice(("192.0.2.1", "198.51.100.7", "10.0.0.1", "224.0.0.5")),
                 tos=rng.choice((0, 0, 1, 2, 3, 46 << 2, rng.randint(0, 255))), ttl=rng.choice((1, 2, 64, 255)), id=rng.choice((0, 1, rng.getrandbits(16))),
                 flags=rng.choice((0, 0, 2, 2, 1, 4)), frag=rng.choice((0, 0, 0, 0, 1, 185)),
                 options=rng.choice((b"", b"", b"", b"\x94\x04\x00\x00", b"\x07\x07\x04\x0a\x00\x00\x01\x00", b"\x01\x83\x07\x04\x0a\x00\x00\x01", b"\x44\x04\x05\x00", b"\x89\x03\x04\x00")))
        if isinstance(upper, Raw):
            net.proto = rng.choice((47, 50, 51, 33, 132, 136, 89, 58))
    frame = bytes(link / net / upper / Raw(body))
    if rng.random() < 0.1:
        frame = spoil(rng, frame)
    if rng.random() < 0.05:
        frame += bytes(rng.randint(1, 12))
    return frame


def spoil(rng, frame):
    """A frame with an error, or at least with other bytes."""
    if rng.random() < 0.4:
        return frame[: rng.randint(10, len(frame))]
    changed = bytearray(frame)
    changed[rng.randrange(12, min(len(frame), 80))] = rng.choice((0, 1, 4, 0xFF, rng.randint(0, 255)))
    return bytes(changed)


def make_packets(rng):
    packets, time = [], 1_700_000_000_000_000_000
    for _ in range(PACKETS):
        time += rng.choice((1, 1000, 10**6, 10**8, 2 * 10**9))
        frame = make_frame(rng)
        try:
            seen = Seen(frame)
        except Dropped:
            seen = None
        packets.append((frame, seen, time))
    return packets


# ---- Beside weir -------------------------------------------------------------------------------------------------------------------


def write_capture(path, packets):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        for frame, _, time in packets:
            out.write(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)) + frame)


def read_times(path):
    with open(path, "rb") as capture:
        data = capture.read()
    order = {0xA1B23C4D: "<", 0x4D3CB2A1: ">"}[struct.unpack("<I", data[:4])[0]]
    at, times = 24, {}
    while at < len(data):
        seconds, nanoseconds, size, _ = struct.unpack(order + "IIII", data[at : at + 16])
        times[seconds * 10**9 + nanoseconds] = data[at + 16 : at + 16 + size]
        at += 16 + size
    return times


def refused(weir, path):
    """Lines of a policy that weir does not take, as errors of contradictory matches."""
    run = subprocess.run([weir, "check", "--json", path], capture_output=True, text=True)
    report = json.loads(run.stdout)
    lines = set()
    for one in report["policies"][0]["diagnostics"]:
        if one["severity"] == "error":
            lines.add(one["line"])
    return lines


def main():
    weir, wanted, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder = sys.argv[4] if len(sys.argv) > 4 else tempfile.mkdtemp(prefix="weir-model-")
    os.makedirs(folder, exist_ok=True)
    policy_path, capture, output = (os.path.join(folder, name) for name in ("policy.weir", "packets.pcap", "passed.pcap"))
    rng = random.Random(seed)
    verdicts = passes = drops = matched = written_rules = left_out = policies = 0
    while verdicts < wanted:
        if policies % 20 == 0:
            packets = make_packets(rng)
            write_capture(capture, packets)
            pools, texts = {}, {}
            for _, seen, _ in packets:
                if seen is None:
                    continue
                for name, number in seen.fields.items():
                    pools.setdefault(name, []).append(number)
                for name, data in seen.payloads.items():
                    texts.setdefault(name, []).append(data)
        policies += 1
        rules = [Rule(rng, pools, texts) for _ in range(rng.choice((1, 2, 5, 10, 25)))]
        written_rules += len(rules)
        while True:
            with open(policy_path, "w") as out:
                out.write("".join(rule.text(number) + "\n" for number, rule in enumerate(rules)))
            bad = refused(weir, policy_path)
            if not bad:
                break
            left_out += len(bad)
            rules = [rule for line, rule in enumerate(rules, 1) if line not in bad]
        if not rules:
            continue
        draw = rng.getrandbits(32)
        run = subprocess.run(
            [weir, "replay", policy_path, "--in", capture, "-o", output, "--seed", str(draw), "--json"], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit("weir replay ended with %d on %s:\n%s" % (run.returncode, policy_path, run.stderr))
        report = json.loads(run.stdout)
        identities = {rule["name"]: rule["id"] for rule in report["rules"]}
        numbered = [(identities["r%d" % number], rule) for number, rule in enumerate(rules)]
        expected = decide(numbered, packets, draw)
        through = read_times(output)
        for number, ((frame, seen, time), passes_here) in enumerate(zip(packets, expected)):
            if (time in through) != passes_here:
                print("packet %d (%s)\nweir: %s, model: %s\npolicy:" % (
                    number, frame.hex(), "pass" if time in through else "drop", "pass" if passes_here else "drop"))
                for _, rule in numbered:
                    if seen is not None and rule.matching(seen):
                        print("  the model matches " + rule.text(0))
                print(open(policy_path).read())
                sys.exit(1)
            if passes_here and through[time] != frame:
                sys.exit("packet %d was changed" % number)
        counters = {rule["name"]: (rule["packets"], rule["bytes"]) for rule in report["rules"]}
        for number, rule in enumerate(rules):
            if counters["r%d" % number] != (rule.packets, rule.bytes):
                sys.exit("%s\nweir counted %s, the model %s (policy in %s)" % (
                    rule.text(number), counters["r%d" % number], (rule.packets, rule.bytes), policy_path))
            matched += rule.packets > 0
        verdicts += len(packets)
        passes += sum(expected)
        drops += len(expected) - sum(expected)
    if left_out * 2 > written_rules:
        sys.exit("weir refused %d of %d rules: the generator no longer knows the language" % (left_out, written_rules))
    if min(passes, drops) * 10 < verdicts or matched * 4 < written_rules - left_out:
        sys.exit("too little was compared: %d passed, %d dropped, %d of %d rules matched" % (passes, drops, matched, written_rules - left_out))
    print("%d verdicts of %d policies agree: %d passed, %d dropped; %d rules, %d of them matched, %d refused" % (
        verdicts, policies, passes, drops, written_rules - left_out, matched, left_out))
    if len(sys.argv) <= 4:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
