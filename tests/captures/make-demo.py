#!/usr/bin/env python3
"""Takes tests/captures/demo.pcapng: the traffic of `weir lab demo`, as it reaches weir.

Usage (as root): tests/captures/make-demo.py PATH-TO-WEIR

Builds the demo's bed (client, box, server in three network namespaces), runs weir in the box, and captures what both
senders send, with their checksum and segmentation offloads off, so that frames are what a wire would carry. The two
captures become one pcapng file whose interfaces are named box0 and box1: by them packets come to weir.
"""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = os.path.join(HERE, "../../examples/demo.weir")
NS = {part: f"weir-capture-{part}-{os.getpid()}" for part in ("client", "box", "server")}
KEEP_STREAM = 40  # packets of the iperf3 stream, each direction


def sh(command):
    subprocess.run(command, shell=True, check=True)


def inside(part, command, **options):
    return subprocess.Popen(["nsenter", f"--net=/run/netns/{NS[part]}", *command], **options)


def build():
    for name in NS.values():
        sh(f"ip netns add {name} && ip -n {name} link set lo up")
    for end, part, box, net in (("cl0", "client", "box0", 1), ("sv0", "server", "box1", 2)):
        sh(f"ip -n {NS[part]} link add {end} type veth peer name {box} netns {NS['box']}")
        for ns, dev, host in ((NS[part], end, 2), (NS["box"], box, 1)):
            sh(f"ip -n {ns} addr add 10.0.{net}.{host}/24 dev {dev}")
            sh(f"ip -n {ns} addr add fd00:{net}::{host}/64 dev {dev} nodad")
            sh(f"ip -n {ns} link set {dev} up")
            inside("box" if dev == box else part, ["ethtool", "-K", dev, "tx", "off", "gso", "off"]).wait()
        sh(f"ip -n {NS[part]} route add default via 10.0.{net}.1")
        sh(f"ip -n {NS[part]} -6 route add default via fd00:{net}::1")
    for knob in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        inside("box", ["sh", "-c", f"echo 1 > /proc/sys/net/{knob}"]).wait()
    time.sleep(2.5)  # duplicate address detection of link-local addresses


TRAFFIC = r"""
import socket
def connect(address, port):
    try:
        socket.create_connection((address, port), timeout=0.6).close()
    except OSError:
        pass
for family, address in ((socket.AF_INET, "10.0.2.2"), (socket.AF_INET6, "fd00:2::2")):
    connect(address, 23)
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(0.6)
    for n in (1, 40, 700, 1400):
        s.sendto(bytes(range(256)) * 5 + b"x" * 120 if n == 1400 else b"w" * n, (address, 7))
        try:
            s.recv(2048)
        except OSError:
            pass
    s.sendto(b"quic", (address, 443))
"""

ECHO = r"""
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::", 7))
while True:
    data, sender = s.recvfrom(2048)
    s.sendto(data, sender)
"""


def take(weir, folder):
    www = os.path.join(folder, "www")
    os.mkdir(www)
    with open(os.path.join(www, "weir.bin"), "wb") as f:
        f.write(bytes((i * 167 + (i >> 8)) & 255 for i in range(40_000)))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [
        inside("server", ["python3", "-m", "http.server", "80", "--bind", "::", "--directory", www], **quiet),
        inside("server", ["python3", "-c", ECHO], **quiet),
        inside("server", ["iperf3", "-s"], **quiet),
        inside("box", [weir, "run", POLICY, "-i", "box0", "-i", "box1"], **quiet),
    ]
    time.sleep(2)
    taps = []
    for part, dev in (("client", "cl0"), ("server", "sv0")):
        path = os.path.join(folder, dev + ".pcap")
        command = ["tcpdump", "-Z", "root", "--immediate-mode", "-U", "-s", "0", "-n", "-Q", "out", "-i", dev, "-w", path]
        taps.append((inside(part, command, **quiet), path))
    time.sleep(1)
    for host in ("10.0.2.2", "[fd00:2::2]"):
        url = f"http://{host}:8080/weir.bin"
        inside("client", ["curl", "-s", "--noproxy", "*", "--max-time", "5", "-o", "/dev/null", url]).wait()
    inside("client", ["python3", "-c", TRAFFIC]).wait()
    inside("client", ["iperf3", "-c", "10.0.2.2", "-n", "400K"], **quiet).wait()
    time.sleep(0.5)
    for process, _ in taps:
        process.send_signal(signal.SIGINT)
        process.wait()
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return [path for _, path in taps]


def frames(path, interface):
    """Frames of a classic pcap file in microseconds; only the first of the stream's data."""
    with open(path, "rb") as f:
        data = f.read()
    stream = 0
    at = 24
    while at < len(data):
        seconds, micros, length, original = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        assert length == original
        if frame[12:14] == b"\x08\x00" and frame[23] == 6 and 5201 in struct.unpack_from(">HH", frame, 34):
            stream += 1
            if stream > KEEP_STREAM:
                continue
        yield seconds * 1_000_000 + micros, interface, frame


def option(code, value):
    return struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def block(kind, body):
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def write(path, packets):
    with open(path, "wb") as f:
        f.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        for name in (b"box0", b"box1"):
            f.write(block(1, struct.pack("<HHI", 1, 0, 0) + option(2, name) + option(9, b"\x06") + option(0, b"")))
        for time_us, interface, frame in packets:
            head = struct.pack("<IIIII", interface, time_us >> 32, time_us & 0xFFFFFFFF, len(frame), len(frame))
            f.write(block(6, head + frame + b"\0" * (-len(frame) % 4)))


def main():
    weir = os.path.abspath(sys.argv[1])
    try:
        build()
        with tempfile.TemporaryDirectory() as folder:
            paths = take(weir, folder)
            packets = sorted(p for i, path in enumerate(paths) for p in frames(path, i))
    finally:
        for name in NS.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)
    target = os.path.join(HERE, "demo.pcapng")
    write(target, packets)
    print(f"{target}: {len(packets)} packets, {os.path.getsize(target)} bytes")


main()
