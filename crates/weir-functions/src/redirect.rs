//! The function that hands packets over: to ports, to devices that are no ports (virtual machines' taps, containers' veths), to
//! CPUs, or to AF_XDP sockets.
//!
//! An instance has one kind of target. Packets spread over several targets by flow or in turn, or go to all devices at once. What it
//! counts is read back by [`handed`]; what fails later is told by the monitor (docs/redirect.md).

use weir_bpf::abi::{Counter, redirect as abi};
use zerocopy::FromBytes;

use crate::plan::{Constant, MapPlan};
use crate::request::{FunctionError, Key, Kind, Planned, Request};

/// Keys of an instance.
const KEYS: &[Key] = &[
    Key::new("to", "none", "ports, by name"),
    Key::new(
        "device",
        "none",
        "devices that are not ports: a tap of a virtual machine, a veth of a container. They come after those of `to`",
    ),
    Key::new(
        "broadcast",
        "`false`",
        "`true`: every packet to all devices",
    ),
    Key::new(
        "exclude_ingress",
        "`false`",
        "with `broadcast`: `true`: not to the device that the packet came in by",
    ),
    Key::new(
        "spread",
        "`\"flow\"`",
        "`\"flow\"`: packets of a flow, both directions, go to one target. `\"round-robin\"`: in turn, for each receiving CPU separately",
    ),
    Key::new(
        "cpu",
        "none",
        "CPUs. The rest of the packet's processing, including the stack, runs there",
    ),
    Key::new(
        "queue",
        "2,048",
        "with `cpu`: length of the queue to each CPU, 1 to 16,384",
    ),
    Key::new(
        "xsk",
        "`false`",
        "`true`: AF_XDP sockets, selected by the receive queue of the packet",
    ),
    Key::new("sockets", "64", "with `xsk`: number of queues, 1 to 64"),
    Key::new(
        "missing",
        "`\"drop\"`",
        "with `xsk`: `\"drop\"` or `\"pass\"` for packets of a queue without a socket. `\"pass\"`: by the default output",
    ),
];
/// Packets that wait for a CPU at most, unless `queue` says otherwise.
const QUEUE: u64 = 2048;
/// Most that the kernel takes for one CPU (kernel/bpf/cpumap.c).
const QUEUE_MAX: u64 = 16_384;
/// Devices or CPUs of one instance; the last account is that of broadcasts.
const MOST: usize = abi::TO_ALL as usize;
/// CPU numbers that are believed; the kernel refuses those it does not have.
const CPU_MAX: u64 = 8191;
/// `BPF_F_BROADCAST` and `BPF_F_EXCLUDE_INGRESS` of `bpf_redirect_map`.
const BROADCAST: u64 = 1 << 3;
const EXCLUDE_INGRESS: u64 = 1 << 4;
const XDP_ABORTED: u64 = 0;
const XDP_DROP: u64 = 1;
const XDP_PASS: u64 = 2;

/// The kind's row in `kind`.
pub const KIND: Kind = Kind {
    forwards: true,
    ..Kind::new("redirect", plan, &[("", KEYS)])
};

/// Plans an instance.
///
/// # Errors
/// Keys that do not fit together, ports that do not exist, numbers out of range.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(KEYS)?;
    let to_devices = request.keys.contains_key("to") || request.keys.contains_key("device");
    let cpus = request.keys.contains_key("cpu");
    let sockets = request.flag("xsk")?;
    let both = |first: &str, second: &str| {
        FunctionError::key(
            second,
            format!(
                "`{second}` and `{first}` cannot stand in one instance: it has one kind of target"
            ),
        )
        .advice("make two instances and link one behind the other")
    };
    match (to_devices, cpus, sockets) {
        (true, false, false) => to_the_devices(request),
        (false, true, false) => to_cpus(request),
        (false, false, true) => to_sockets(request),
        (true, true, _) => Err(both("to", "cpu")),
        (true, _, true) => Err(both("to", "xsk")),
        (false, true, true) => Err(both("cpu", "xsk")),
        (false, false, false) => Err(FunctionError::new("it says nowhere to redirect packets to")
            .advice("write to = \"PORT\", device = \"NAME\", cpu = [1, 2] or xsk = true")),
    }
}

/// Packets and bytes that an instance handed over to each of `targets`, from the map `handed`: of every place the values of all CPUs.
pub fn handed<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Counter {
    let mut sum = Counter::default();
    for value in values {
        if let Ok(counter) = Counter::read_from_bytes(value) {
            sum.packets += counter.packets;
            sum.bytes += counter.bytes;
        }
    }
    sum
}

fn to_the_devices(request: &Request<'_>) -> Result<Planned, FunctionError> {
    refuse(request, &["queue", "sockets", "missing"], "of devices")?;
    let mut devices = Vec::new();
    let mut ports = Vec::new();
    for name in request.texts("to")? {
        let port = request.port("to", name)?;
        ports.push(port.number);
        devices.push(port.device.clone());
    }
    let others = request.texts("device")?;
    if let Some(port) = request
        .ports
        .iter()
        .find(|port| others.contains(&port.device.as_str()))
    {
        return Err(
            FunctionError::key("device", format!("`{}` is a port", port.device))
                .advice(format!("write to = \"{}\"", port.name)),
        );
    }
    devices.extend(others.iter().map(|name| (*name).to_owned()));
    let key = if request.keys.contains_key("to") {
        "to"
    } else {
        "device"
    };
    count(key, devices.len())?;
    for (at, device) in devices.iter().enumerate() {
        weir_value::interface(device)
            .map_err(|invalid| FunctionError::key("device", invalid.to_string()))?;
        if devices[..at].contains(device) {
            return Err(FunctionError::key(
                key,
                format!("device `{device}` is named twice"),
            ));
        }
    }
    let broadcast = request.flag("broadcast")?;
    let exclude = request.flag("exclude_ingress")?;
    if exclude && !broadcast {
        return Err(FunctionError::key(
            "exclude_ingress",
            "only a broadcast can leave out the device that a packet came from",
        )
        .advice("add broadcast = true"));
    }
    if broadcast && request.keys.contains_key("spread") {
        return Err(FunctionError::key(
            "spread",
            "a broadcast goes to all devices: there is nothing to spread",
        ));
    }
    let mut flags = XDP_ABORTED;
    if broadcast {
        flags |= BROADCAST;
    }
    if exclude {
        flags |= EXCLUDE_INGRESS;
    }
    let mut planned = instance(request, abi::TO_DEVICES, devices.len(), flags)?;
    planned
        .instance
        .maps
        .push(MapPlan::devices("devices", &devices));
    planned.ports = ports;
    if !others.is_empty() {
        planned.notes.push(format!(
            "frames reach the far end of a veth only if that end has an XDP program or its GRO on; \
             `ethtool -K PEER gro on` or `weir prog attach` there cures it (devices that are no ports: {})",
            others.join(", ")
        ));
    }
    if broadcast {
        planned.notes.push(
            "a broadcast leaves out devices that are down or whose MTU is too small, and no tracepoint tells: \
             the status shows it as packets that were handed over but not sent"
                .to_owned(),
        );
    }
    Ok(planned)
}

fn to_cpus(request: &Request<'_>) -> Result<Planned, FunctionError> {
    refuse(
        request,
        &["broadcast", "exclude_ingress", "sockets", "missing"],
        "of CPUs",
    )?;
    let wrong = |what: String| {
        FunctionError::key("cpu", what).advice(format!(
            "CPUs have numbers from 0 to {CPU_MAX}; `nproc` counts them"
        ))
    };
    let value = request.keys.get("cpu");
    let numbers: Vec<&toml::Value> = match value {
        Some(toml::Value::Array(list)) => list.iter().collect(),
        other => other.into_iter().collect(),
    };
    let mut cpus: Vec<u32> = Vec::new();
    for number in numbers {
        let cpu = number
            .as_integer()
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| *n <= CPU_MAX);
        let cpu = cpu.ok_or_else(|| wrong(format!("invalid CPU `{}`", shown(number))))? as u32;
        if cpus.contains(&cpu) {
            return Err(wrong(format!("CPU {cpu} is named twice")));
        }
        cpus.push(cpu);
    }
    count("cpu", cpus.len())?;
    // So that the accounts of a running instance can be told apart by its map alone.
    cpus.sort_unstable();
    let queue = request.number("queue", 1..=QUEUE_MAX)?.unwrap_or(QUEUE);
    let mut planned = instance(request, abi::TO_CPUS, cpus.len(), XDP_ABORTED)?;
    let mut numbers = cpus.clone();
    numbers.resize(abi::TARGETS, 0);
    let numbers = numbers.into_iter().flat_map(u32::to_ne_bytes).collect();
    planned
        .instance
        .constants
        .push(("weir_cpu".into(), numbers));
    let mut map = MapPlan::empty(
        "cpus",
        cpus.iter().max().map_or(1, |last| *last as usize + 1),
        8,
    );
    map.keys = cpus.iter().flat_map(|cpu| cpu.to_ne_bytes()).collect();
    // struct bpf_cpumap_val: size of the queue, then the descriptor of a program, 0: none.
    map.values = cpus.iter().flat_map(|_| queue.to_ne_bytes()).collect();
    planned.instance.maps.push(map);
    Ok(planned)
}

fn to_sockets(request: &Request<'_>) -> Result<Planned, FunctionError> {
    refuse(
        request,
        &["broadcast", "exclude_ingress", "spread", "queue"],
        "of sockets",
    )?;
    let sockets = request
        .number("sockets", 1..=abi::TARGETS as u64)?
        .unwrap_or(abi::TARGETS as u64);
    let missing = match request.text("missing")? {
        None | Some("drop") => XDP_DROP,
        Some("pass") => XDP_PASS,
        Some(other) => {
            return Err(FunctionError::key("missing", format!("`missing` cannot be `{other}`")).advice(
                "\"drop\" drops packets of queues without a socket, \"pass\" lets them go on by the default output",
            ));
        }
    };
    let mut planned = instance(request, abi::TO_SOCKETS, sockets as usize, missing)?;
    planned
        .instance
        .maps
        .push(MapPlan::empty("sockets", sockets as usize, 4));
    planned.notes.push(
        "sockets are put into its map `sockets` by whoever opens them, by receive queue (docs/redirect.md)".to_owned(),
    );
    Ok(planned)
}

fn instance(
    request: &Request<'_>,
    to: u32,
    targets: usize,
    flags: u64,
) -> Result<Planned, FunctionError> {
    let spread = match request.text("spread")? {
        None | Some("flow") => abi::SPREAD_FLOW,
        Some("round-robin") => abi::SPREAD_ROUND,
        Some(other) => {
            return Err(FunctionError::key("spread", format!("`spread` cannot be `{other}`"))
                .advice("\"flow\" keeps the packets of a flow together, \"round-robin\" takes targets in turn"));
        }
    };
    let broadcast = flags & BROADCAST != 0;
    let word = |name: &'static str, value: u32| -> Constant {
        (name.into(), value.to_ne_bytes().to_vec())
    };
    let mut planned = Planned::embedded("redirect");
    planned.instance.constants = vec![
        word("weir_to", to),
        // A broadcast has one account.
        word("weir_targets", if broadcast { 1 } else { targets as u32 }),
        word("weir_spread", spread),
        ("weir_flags".into(), flags.to_ne_bytes().to_vec()),
    ];
    planned.asks.finished_checksums = true;
    Ok(planned)
}

fn count(key: &str, targets: usize) -> Result<(), FunctionError> {
    if (1..=MOST).contains(&targets) {
        return Ok(());
    }
    Err(
        FunctionError::key(key, format!("{targets} targets in one instance"))
            .advice(format!("an instance has 1 to {MOST} targets")),
    )
}

/// A value in the words of the configuration.
fn shown(value: &toml::Value) -> String {
    match value.as_integer() {
        Some(number) => number.to_string(),
        None => format!("{value:?}"),
    }
}

/// Keys that mean nothing for this kind of target.
fn refuse(request: &Request<'_>, keys: &[&str], whose: &str) -> Result<(), FunctionError> {
    match keys.iter().find(|key| request.keys.contains_key(**key)) {
        Some(key) => Err(FunctionError::key(
            *key,
            format!("`{key}` says nothing about targets {whose}"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::request::{EdgePort, Files};

    struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn planned(keys: &str) -> Result<Planned, FunctionError> {
        let keys = keys.parse().expect("TOML");
        let port = |number, name: &str| EdgePort {
            number,
            name: name.to_owned(),
            device: format!("{name}0"),
        };
        plan(&Request {
            name: "it",
            keys: &keys,
            files: &NoFiles,
            ports: &[port(1, "wan"), port(2, "lan")],
            transmits: false,
        })
    }

    fn constant(planned: &Planned, name: &str) -> Vec<u8> {
        let found = planned
            .instance
            .constants
            .iter()
            .find(|(symbol, _)| symbol == name);
        found.map(|(_, bytes)| bytes.clone()).expect("set")
    }

    #[test]
    fn ports_and_devices_come_in_their_order() {
        let it = planned("to = [\"lan\", \"wan\"]\ndevice = \"tap7\"\nspread = \"round-robin\"")
            .expect("planned");
        let map = &it.instance.maps[0];
        assert_eq!(
            map.devices,
            [
                (0, "lan0".to_owned()),
                (1, "wan0".to_owned()),
                (2, "tap7".to_owned())
            ]
        );
        assert_eq!(map.max_entries, 3);
        assert_eq!(it.ports, [2, 1]);
        assert_eq!(constant(&it, "weir_targets"), 3u32.to_ne_bytes());
        assert_eq!(constant(&it, "weir_spread"), 1u32.to_ne_bytes());
        assert!(it.notes[0].contains("tap7"), "{:?}", it.notes);
    }

    #[test]
    fn a_broadcast_has_one_account_and_its_flags() {
        let it = planned("to = [\"lan\", \"wan\"]\nbroadcast = true\nexclude_ingress = true")
            .expect("planned");
        assert_eq!(constant(&it, "weir_flags"), 0x18u64.to_ne_bytes());
        assert_eq!(constant(&it, "weir_targets"), 1u32.to_ne_bytes());
    }

    #[test]
    fn cpus_have_queues() {
        let it = planned("cpu = [1, 3]\nqueue = 16").expect("planned");
        let map = &it.instance.maps[0];
        let entries: Vec<_> = map.entries().collect();
        assert_eq!(map.max_entries, 4);
        assert_eq!(
            entries[1],
            (&3u32.to_ne_bytes()[..], &16u64.to_ne_bytes()[..])
        );
        assert_eq!(
            constant(&it, "weir_cpu")[..8],
            [1u32, 3].map(u32::to_ne_bytes).concat()
        );
        assert_eq!(
            planned("cpu = 1").expect("planned").instance.maps[0].values,
            2048u64.to_ne_bytes()
        );
    }

    #[test]
    fn sockets_fall_back_as_told() {
        let it = planned("xsk = true\nmissing = \"pass\"\nsockets = 4").expect("planned");
        assert_eq!(constant(&it, "weir_flags"), 2u64.to_ne_bytes());
        assert_eq!(it.instance.maps[0].max_entries, 4);
        assert!(!it.instance.maps[0].has_contents(), "sockets are state");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_key() {
        for (keys, key, message) in [
            ("", None, "it says nowhere to redirect packets to"),
            ("to = \"dmz\"", Some("to"), "no port is named `dmz`"),
            ("to = []", Some("to"), "0 targets in one instance"),
            ("device = \"wan0\"", Some("device"), "`wan0` is a port"),
            (
                "device = \"a-name-that-is-too-long\"",
                Some("device"),
                "invalid interface name `a-name-that-is-too-long`: expected 1 to 15 bytes without slash, colon or white space",
            ),
            (
                "device = [\"t\", \"t\"]",
                Some("device"),
                "device `t` is named twice",
            ),
            (
                "to = \"wan\"\ncpu = 1",
                Some("cpu"),
                "`cpu` and `to` cannot stand in one instance: it has one kind of target",
            ),
            (
                "to = \"wan\"\nqueue = 1",
                Some("queue"),
                "`queue` says nothing about targets of devices",
            ),
            (
                "to = \"wan\"\nexclude_ingress = true",
                Some("exclude_ingress"),
                "only a broadcast can leave out the device that a packet came from",
            ),
            (
                "to = \"wan\"\nspread = \"hash\"",
                Some("spread"),
                "`spread` cannot be `hash`",
            ),
            ("cpu = -1", Some("cpu"), "invalid CPU `-1`"),
            ("cpu = [1, 1]", Some("cpu"), "CPU 1 is named twice"),
            ("cpu = 1\nqueue = 0", Some("queue"), "`queue` cannot be 0"),
            (
                "xsk = true\nmissing = \"tx\"",
                Some("missing"),
                "`missing` cannot be `tx`",
            ),
            (
                "xsk = true\nspread = \"flow\"",
                Some("spread"),
                "`spread` says nothing about targets of sockets",
            ),
            (
                "too = \"wan\"",
                Some("too"),
                "unknown key `too` in this kind of function",
            ),
        ] {
            let error = planned(keys).expect_err(keys);
            assert_eq!(
                (error.key.as_deref(), error.message.as_str()),
                (key, message),
                "{keys}"
            );
        }
    }
}
