#!/usr/bin/env python3
"""An independent model of the stateless policy language.

Written from docs/language.md and docs/semantics.md (sections 1 to 4 and 9: matches, sets, chains, verdicts, limits of addresses with what
they displace, sets that packets fill, `ttl dec`, fixed fields that rules write, the bytes with which `reject` answers; not writes of options, payloads and
tags), on the packet library scapy. It shares no code, no tables and no
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

from frames import EXTENSIONS, Dropped, Seen, ones

PACKETS = 2000  # of each capture
MASK64 = (1 << 64) - 1


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


def number_test(rng, field, pool, sets):
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
        elements, test = ", ".join(text for text, _, _ in some), lambda n: any(low <= n <= high for _, low, high in some)
        if rng.random() < 0.3 and field != "net-proto":
            sets.append("set s%d = { %s }" % (len(sets), elements))
            return " in @s%d" % (len(sets) - 1), test
        return " in { %s }" % elements, test
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


def make_match(rng, pools, texts, sets):
    """A random match; None where this one cannot be written."""
    negated = rng.random() < 0.2
    bang = "! " if negated else ""
    shape = rng.random()
    if shape < 0.04:
        field = rng.choice(ADDRESSES)
        kind = NUMBERS[field][0]
        return Match("%s%s in @seen" % (bang, field), {kind} - {""}, lambda s: field in s.fields and (field in s.members) != negated)
    if shape < 0.55:
        field = rng.choice(tuple(NUMBERS))
        kind = NUMBERS[field][0]
        classes = {kind} - {""}
        if rng.random() < 0.1 and field not in FLAGS:
            if not negated:
                return Match(field, classes, lambda s: field in s.fields)
            return Match("! " + field, set(), lambda s: field not in s.fields)
        text, test = number_test(rng, field, pools.get(field), sets)
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


ADDRESSES = ("ip-saddr", "ip-daddr", "ip6-saddr", "ip6-daddr", "eth-saddr", "eth-daddr")


def ends(seen):
    """Version, source and destination of the IP header; None without one."""
    for version, prefix in ((4, "ip"), (6, "ip6")):
        if prefix + "-saddr" in seen.fields:
            return version, seen.fields[prefix + "-saddr"], seen.fields[prefix + "-daddr"]
    return None


class Apart:
    """A limit that counts addresses apart: buckets of four words (section 3, "Limits apart")."""

    def __init__(self, rng, limits, period, limit):
        self.period, self.limit = period, limit
        self.which = rng.choice(("source", "source", "destination", "pair"))
        self.bits = {4: 32, 6: 128}
        self.text = " per " + self.which
        if self.which != "pair" and rng.random() < 0.5:
            four, six = rng.choice((8, 24, 30, 32)), rng.choice((16, 64, 125, 128))
            if rng.random() < 0.5:
                self.bits, self.text = {4: four, 6: 64}, self.text + "/%d" % four
            else:
                self.bits, self.text = {4: four, 6: six}, self.text + "/%d/%d" % (four, six)
        self.buckets = 1
        while self.buckets < limits:
            self.buckets *= 2
        self.table, self.displaced = {}, 0

    def above(self, identity, seen, time):
        known = ends(seen)
        if known is None:
            return False
        version, *addresses = known
        h = splitmix64(((version << 32) + identity) & MASK64)
        for address, counts in zip(addresses, (self.which != "destination", self.which != "source")):
            if counts:
                drop = {4: 32, 6: 128}[version] - self.bits[version]
                address = address >> drop << drop
                h = splitmix64((splitmix64((h + (address >> 64)) & MASK64) + (address & MASK64)) & MASK64)
        h |= 1
        words = self.table.setdefault((h >> 32) % self.buckets, [[0, 0] for _ in range(4)])
        for word in words:
            if word[0] == h:
                base = max(word[1], time)
                if base - time > self.limit:
                    return True
                word[1] = (base + self.period) & MASK64
                return False
        first = min(words, key=lambda word: word[1])
        self.displaced += first[1] > time
        first[:] = [h, (time + self.period) & MASK64]
        return False


class Filled:
    """A set that packets fill: buckets of eight places (section 9)."""

    FOR_GOOD = MASK64

    def __init__(self, rng):
        self.size, self.timeout = rng.choice((1, 1, 2, 8, 64, 1000)), rng.choice((None, 5, 60, 600))
        self.text = "set seen = dynamic size %d%s" % (self.size, "" if self.timeout is None else " timeout %ds" % self.timeout)
        self.buckets = {}
        self.displaced = self.full = 0

    def bucket(self, kind, value):
        a, b = value >> 64, value & MASK64
        h = b * 0xBF58476D1CE4E5B9 & MASK64
        h = ((h ^ h >> 32) ^ a) * 0x9E3779B97F4A7C15 & MASK64
        h = (h ^ h >> 29) * 0x94D049BB133111EB & MASK64
        number = (h >> 32) * ((self.size + 1) // 2) >> 32
        return self.buckets.setdefault(number, [[None, 0] for _ in range(8)])

    def holds(self, kind, value, time):
        return any(place[0] == (kind, value) and time < place[1] for place in self.bucket(kind, value))

    def add(self, kind, value, time, timeout):
        timeout = self.timeout if timeout is None else timeout
        until = self.FOR_GOOD if timeout is None else min(time + timeout * 10**9, self.FOR_GOOD)
        places = self.bucket(kind, value)
        for place in places:
            if place[0] == (kind, value) and time < place[1]:
                place[1] = max(place[1], until)
                return
        ends_at = lambda place: place[1] if time < place[1] else 0
        first = min(places, key=ends_at)
        if ends_at(first) == self.FOR_GOOD or ends_at(first) > until:
            self.full += 1
            return
        self.displaced += ends_at(first) > 0
        first[:] = [(kind, value), until]

    def delete(self, kind, value):
        for place in self.bucket(kind, value):
            if place[0] == (kind, value):
                place[:] = [None, 0]


def kind_of(field):
    return {"eth": "mac", "ip6": 6}.get(field.split("-")[0], 4)


# Fields that rules write here: header class, and where they lie: byte of the header, mask, shift.
WRITTEN = {
    "ip-dscp": ("ip4", 1, 0xFC, 2), "ip-ecn": ("ip4", 1, 0x03, 0), "ip-ttl": ("ip4", 8, 0xFF, 0), "ip6-hop-limit": ("ip6", 7, 0xFF, 0),
}


class Answer:
    """What `reject` sends back (section 3, "Answers")."""

    ICMP = {"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "net-prohibited": 9,
            "host-prohibited": 10, "admin-prohibited": 13}
    ICMP6 = {"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5, "reject-route": 6}
    EITHER = {"no-route": (0, 0), "host-unreachable": (1, 3), "port-unreachable": (3, 4), "admin-prohibited": (13, 1)}

    def __init__(self, rng):
        kind = rng.choice(("", "", "tcp-reset", "icmp", "icmp6", "icmpx"))
        self.classes, self.resets, self.codes, self.tat = set(), kind in ("", "tcp-reset"), (13, 1), 0
        self.text = "reject" if kind == "" else "reject with " + kind
        if kind == "tcp-reset":
            self.classes = {"tcp"}
        elif kind:
            table = {"icmp": self.ICMP, "icmp6": self.ICMP6, "icmpx": self.EITHER}[kind]
            name = rng.choice(sorted(table))
            self.text += " " + name
            self.codes = table[name] if kind == "icmpx" else (table[name], table[name])
            self.classes = {"icmp": {"ip4"}, "icmp6": {"ip6"}, "icmpx": set()}[kind]

    def within(self, time):
        """1000 a second, 50 at once."""
        base = max(self.tat, time)
        if base - time > 49 * 10**6:
            return False
        self.tat = base + 10**6
        return True

    def to(self, frame, seen):
        """The frame that answers this one; None: nothing does."""
        known = ends(seen)
        if known is None or frame[0] & 1 or (seen.extensions or set()) - {"esp"} or seen.fragment == "later":
            return None
        version, source, destination = known
        if version == 4:
            group = lambda a: a >> 28 == 14 or a == 0xFFFFFFFF
            if source >> 24 in (0, 127) or group(source) or group(destination):
                return None
        elif source >> 120 == 255 or destination >> 120 == 255 or source == 0:
            return None
        flags = seen.fields.get("tcp-flags", 0)
        if flags & 4:
            return None
        at, link = seen.network, frame[6:12] + frame[:6] + frame[12 : seen.network]
        if version == 4:
            end, header = at + seen.fields["ip-len"], IP(frame[at : at + 20])
            make = lambda proto, tos, flags: IP(src=header.dst, dst=header.src, ttl=64, proto=proto, tos=tos, flags=flags, id=0)
        else:
            end, header = at + 40 + seen.fields["ip6-len"], IPv6(frame[at : at + 40])
            make = lambda proto, tos, flags: IPv6(src=header.dst, dst=header.src, hlim=64, nh=proto)
        if self.resets and "tcp" in seen.classes:
            if seen.fragment or not self.is_whole(frame, seen, at, end):
                return None
            f, size = seen.fields, len(seen.payloads["tcp-payload"])
            if flags & 16:
                numbers = {"seq": f["tcp-ack-num"], "ack": 0, "flags": 4}
            else:
                numbers = {"seq": 0, "ack": (f["tcp-seq-num"] + size + (flags >> 1 & 1) + (flags & 1)) & 0xFFFFFFFF, "flags": 20}
            return link + bytes(make(6, 0, 2) / TCP(sport=f["dport"], dport=f["sport"], window=0, **numbers))
        if len(link) > 18:
            return None
        if "icmp" in seen.classes and seen.fields["icmp-type"] not in (0, 8, 9, 10, 13, 14, 15, 16, 17, 18):
            return None
        if "icmp6" in seen.classes and seen.fields["icmp6-type"] < 128:
            return None
        # Made by hand: scapy would fill the second word of some codes.
        if version == 4:
            data = struct.pack(">BBHI", 3, self.codes[0], 0, 0) + frame[at : min(end, at + 548)]
            pseudo, head = b"", make(1, frame[at + 1] & 0x1E | 0xC0, 0)
        else:
            data = struct.pack(">BBHI", 1, self.codes[1], 0, 0) + frame[at : min(end, at + 1232)]
            pseudo, head = frame[at + 24 : at + 40] + frame[at + 8 : at + 24] + struct.pack(">II", len(data), 58), make(58, 0, 0)
        data = data[:2] + struct.pack(">H", ~even(pseudo + data) & 0xFFFF) + data[4:]
        return link + bytes(head / Raw(data))

    @staticmethod
    def is_whole(frame, seen, at, end):
        """Whether the checksum of TCP is right."""
        if "ip4" in seen.classes:
            segment = frame[at + seen.fields["ip-ihl"] * 4 : end]
            pseudo = frame[at + 12 : at + 20] + struct.pack(">HH", 6, len(segment))
        else:
            segment = frame[at + 40 : end]
            pseudo = frame[at + 8 : at + 40] + struct.pack(">II", len(segment), 6)
        return even(pseudo + segment) == 0xFFFF


def even(data):
    """The ones' complement sum of any number of bytes."""
    return ones(data + b"\0" * (len(data) & 1))


class Rule:
    def __init__(self, rng, pools, texts, sets, limits):
        self.matches = [make_match(rng, pools, texts, sets) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        if rng.random() < 0.03:
            self.matches = [Match("all", set(), lambda s: True)]
        self.classes = set().union(*(m.classes for m in self.matches))
        self.packets = self.bytes = 0
        shape = rng.random()
        self.share = self.rate = self.apart = self.change = self.write = self.answer = None
        self.accepts, self.judges = False, True
        if shape < 0.24:
            self.target = "drop"
        elif shape < 0.38:
            self.answer = Answer(rng)
            self.target = self.answer.text
            self.classes |= self.answer.classes
        elif shape < 0.6:
            self.target, self.accepts = "accept", True
        elif shape < 0.66:
            milli = rng.choice((1, 250, 12345, 33333, 50000, 99999, 100000))
            self.target = "drop %d.%03d%%" % divmod(milli, 1000)
            self.share = milli * (1 << 32) // 100000
        elif shape < 0.86:
            n, unit, burst = rng.choice((1, 5, 40, 1000)), rng.choice("smh"), rng.choice((1, 1, 2, 10))
            self.target = "drop over %d/%s burst %d" % (n, unit, burst)
            period = 10**9 * {"s": 1, "m": 60, "h": 3600}[unit] // n
            self.rate, self.limit, self.tat = period, min(period * (burst - 1), MASK64), 0
            if shape > 0.72:
                self.apart = Apart(rng, limits, self.rate, self.limit)
                self.target += self.apart.text
        elif shape < 0.93:
            self.judges = False
            if rng.random() < 0.5:
                self.matches = [Match("all", set(), lambda s: True)]
                self.classes = set()
            address = rng.choice(("source", "source", "destination") + ADDRESSES)
            timeout = rng.choice((None, None, 1, 30))
            self.target = "delete @seen " + address
            adds = rng.random() < 0.8
            if adds:
                self.target = "add @seen " + address + ("" if timeout is None else " %ds" % timeout)
            self.change = adds, address, timeout
            if address in NUMBERS:
                self.classes |= {NUMBERS[address][0]} - {""}
        else:
            self.judges = False
            field = rng.choice(tuple(WRITTEN) + ("ttl dec", "ttl dec"))
            self.write, self.target = (field, None), field
            if field in WRITTEN:
                value = rng.randint(0, WRITTEN[field][2] >> WRITTEN[field][3])
                self.write, self.target = (field, value), "mod %s %d" % (field, value)
                self.classes.add(WRITTEN[field][0])
        self.before = None  # the jump in front of a rule of a chain

    def text(self, number):
        return "r%d: %s %s" % (number, " ".join(m.text for m in self.matches), self.target)

    def words(self):
        before = self.before.matches if self.before else []
        return " ".join([m.text for m in before] + [self.text(0)]).split()

    def matching(self, seen):
        if self.before is not None and not (self.before.classes <= seen.classes and all(m.test(seen) for m in self.before.matches)):
            return False
        return self.classes <= seen.classes and all(m.test(seen) for m in self.matches)

    def drops(self, identity, number, time, seed, seen):
        if not self.judges:
            return False
        if self.share is not None:
            return splitmix64((seed + (number << 32) + identity) & MASK64) >> 32 < self.share
        if self.apart is not None:
            return self.apart.above(identity, seen, time)
        if self.rate is not None:
            base = max(self.tat, time)
            if base - time > self.limit:
                return True
            self.tat = (base + self.rate) & MASK64
            return False
        return True

    def changes(self, filled, seen, time):
        adds, address, timeout = self.change
        known = ends(seen)
        if address in NUMBERS:
            kind, value = kind_of(address), seen.fields[address]
        elif known is None:
            return
        else:
            kind, value = known[0], known[1 if address == "source" else 2]
        if adds:
            filled.add(kind, value, time, timeout)
        else:
            filled.delete(kind, value)


def as_written(rules, frame, seen):
    """The frame as rules leave it."""
    frame, at = bytearray(frame), seen.network
    for rule in rules:
        field, value = rule.write
        if field == "ttl dec":
            where = 8 if "ip4" in seen.classes else 7 if "ip6" in seen.classes else None
            if where is not None and frame[at + where] > 1:
                frame[at + where] -= 1
            continue
        _, byte, mask, shift = WRITTEN[field]
        frame[at + byte] = frame[at + byte] & ~mask | value << shift
    if "ip4" in seen.classes:
        size = (frame[at] & 15) * 4
        frame[at + 10 : at + 12] = b"\0\0"
        frame[at + 10 : at + 12] = struct.pack(">H", ~ones(bytes(frame[at : at + size])) & 0xFFFF)
    return bytes(frame)


class Jump:
    def __init__(self, rng, pools, texts, sets):
        self.matches = [make_match(rng, pools, texts, sets) for _ in range(rng.choice((1, 1, 2)))]
        self.classes = set().union(*(m.classes for m in self.matches))


def make_rules(rng, pools, texts, sets, limits):
    rules = [Rule(rng, pools, texts, sets, limits) for _ in range(rng.choice((1, 2, 5, 10, 25)))]
    at = 0
    while at < len(rules) and rng.random() < 0.3:
        jump = Jump(rng, pools, texts, sets)
        size = rng.randint(1, 4)
        for rule in rules[at : at + size]:
            rule.before = jump
        at += size + rng.randint(0, 4)
    return rules


def written_policy(rules, head):
    """Lines of the policy, and which rules each is of."""
    lines, chains = [(text, []) for text in head], {}
    for number, rule in enumerate(rules):
        if rule.before is None:
            lines.append((rule.text(number), [rule]))
            continue
        inside = chains.setdefault(rule.before, [])
        inside.append((rule.text(number), [rule]))
        if len(inside) == 1:
            lines.append(("%s jump c%d" % (" ".join(m.text for m in rule.before.matches), len(chains)), inside))
    out = []
    for text, of in lines:
        # A jump is of all rules behind it.
        of = [rule for one in of for rule in (one[1] if isinstance(one, tuple) else [one])]
        out.append((text, of))
    for number, inside in enumerate(chains.values(), 1):
        out += [("chain c%d {" % number, [])] + inside + [("}", [])]
    return out


def decide(rules, ghosts, packets, seed, filled, told):
    """Packets that pass, as they leave, and None for others; counts in the rules, notes of answers in `told`. Ghosts match none. A packet is (frame, what is seen of it or None, its time)."""
    passed = []
    for number, (frame, seen, time) in enumerate(packets):
        if seen is None:
            passed.append(None)
            continue
        seen.members = {field for field in ADDRESSES if field in seen.fields and filled.holds(kind_of(field), seen.fields[field], time)}
        for rule in ghosts:
            if rule.matching(seen):
                sys.exit("weir left out %s, which matches packet %d" % (rule.text(0), number))
        drop = accept = False
        matching = [(identity, rule) for identity, rule in rules if rule.matching(seen)]
        for identity, rule in matching:
            rule.packets += 1
            rule.bytes += len(frame)
            if rule.accepts:
                accept = True
            elif rule.drops(identity, number, time, seed, seen):
                drop = True
        writes = [rule for _, rule in matching if rule.write]
        expires = any(rule.write[0] == "ttl dec" for rule in writes)
        if expires and 1 in (seen.fields.get("ip-ttl"), seen.fields.get("ip6-hop-limit")):
            passed.append(None)
            continue
        for _, rule in matching:
            if rule.change:
                rule.changes(filled, seen, time)
        if drop and not accept:
            rejects = next((rule.answer for _, rule in matching if rule.answer), None)
            answer = rejects.to(frame, seen) if rejects else None
            notes = {"answered": answer is not None, "no_answer": rejects is not None and answer is None}
            if answer is not None and not rejects.within(time):
                answer, notes = None, {"answer_limited": True}
            for name, is_so in notes.items():
                told[name] = told.get(name, 0) + is_so
            passed.append(answer)
        else:
            passed.append(as_written(writes, frame, seen) if writes else frame)
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
    verdicts = passes = drops = matched = written_rules = left_out = policies = changed = displaced = pushed = answered = 0
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
        filled, sets, limits = Filled(rng), [], rng.choice((1, 2, 16, 65536))
        rules = make_rules(rng, pools, texts, sets, limits)
        head = ["limits %d" % limits, filled.text] + sets
        written_rules += len(rules)
        while rules:
            lines = written_policy(rules, head)
            with open(policy_path, "w") as out:
                out.write("".join(text + "\n" for text, _ in lines))
            bad = refused(weir, policy_path)
            if not bad:
                break
            gone = set()
            for line in bad:
                text, of = lines[line - 1]
                if text.startswith("set "):
                    name = "@" + text.split()[1]
                    of = [rule for rule in rules if name in rule.words()]
                gone |= set(of)
            if not gone:
                sys.exit("weir refuses line %s of %s, which no rule is of" % (bad, policy_path))
            left_out += len(gone)
            rules = [rule for rule in rules if rule not in gone]
        if not rules:
            continue
        draw = rng.getrandbits(32)
        run = subprocess.run(
            [weir, "replay", policy_path, "--in", capture, "-o", output, "--seed", str(draw), "--json"], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit("weir replay ended with %d on %s:\n%s" % (run.returncode, policy_path, run.stderr))
        report = json.loads(run.stdout)
        # Rules of chains are called `CHAIN/NAME`.
        for rule in report["rules"]:
            rule["name"] = rule["name"].split("/")[-1]
        identities = {rule["name"]: rule["id"] for rule in report["rules"]}
        # In the order of the flat policy: a chain stands where it is entered.
        numbered = sorted(((identities["r%d" % n], rule) for n, rule in enumerate(rules) if "r%d" % n in identities), key=lambda one: one[0])
        # A rule of a chain that excludes the jump in front of it is none.
        ghosts = [rule for n, rule in enumerate(rules) if "r%d" % n not in identities]
        if any(rule.before is None for rule in ghosts):
            sys.exit("weir left out a rule outside of chains (policy in %s)" % policy_path)
        answers = {}
        expected = decide(numbered, ghosts, packets, draw, filled, answers)
        through = read_times(output)
        for number, ((frame, seen, time), ours) in enumerate(zip(packets, expected)):
            if through.get(time) != ours:
                said = lambda one: "drop" if one is None else "pass" if one == frame else "pass as " + one.hex()
                print("packet %d (%s)\nweir: %s, model: %s\npolicy:" % (number, frame.hex(), said(through.get(time)), said(ours)))
                for _, rule in numbered:
                    if seen is not None and rule.matching(seen):
                        print("  the model matches " + rule.text(0))
                print(open(policy_path).read())
                sys.exit(1)
            changed += ours is not None and ours != frame
        counters = {rule["name"]: (rule["packets"], rule["bytes"]) for rule in report["rules"]}
        for number, rule in enumerate(rules):
            if counters.get("r%d" % number, (0, 0)) != (rule.packets, rule.bytes):
                sys.exit("%s\nweir counted %s, the model %s (policy in %s)" % (
                    rule.text(number), counters.get("r%d" % number), (rule.packets, rule.bytes), policy_path))
            matched += rule.packets > 0
        apart = sum(rule.apart.displaced for rule in rules if rule.apart)
        told = report["reasons"]
        of = tuple((name, answers.get(name, 0)) for name in ("answered", "no_answer", "answer_limited"))
        answered += answers.get("answered", 0)
        of += (("limit_displaced", apart), ("set_displaced", filled.displaced), ("set_full", filled.full))
        for reason, count in of:
            if told.get(reason, 0) != count:
                sys.exit("weir notes %s %d times, the model %d (policy in %s)" % (reason, told.get(reason, 0), count, policy_path))
        displaced += apart
        pushed += filled.displaced
        verdicts += len(packets)
        passed = sum(one is not None for one in expected)
        passes += passed
        drops += len(expected) - passed
    if left_out * 2 > written_rules:
        sys.exit("weir refused %d of %d rules: the generator no longer knows the language" % (left_out, written_rules))
    if min(passes, drops) * 10 < verdicts or matched * 4 < written_rules - left_out:
        sys.exit("too little was compared: %d passed, %d dropped, %d of %d rules matched" % (passes, drops, matched, written_rules - left_out))
    if not (answered and changed and displaced and (pushed or wanted < 40000)):
        sys.exit("no packet was answered or changed, or no address displaced: %d, %d, %d by limits, %d in sets" % (answered, changed, displaced, pushed))
    print("%d verdicts of %d policies agree: %d passed or were answered (%d), %d of them changed, %d dropped; %d rules, %d of them matched, %d refused; "
          "%d addresses displaced by limits, %d in sets" % (
              verdicts, policies, passes, answered, changed, drops, written_rules - left_out, matched, left_out, displaced, pushed))
    if len(sys.argv) <= 4:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
