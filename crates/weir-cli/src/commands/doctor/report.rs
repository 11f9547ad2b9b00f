//! `weir doctor --report`: what a bug report needs, in one file that can be shown to others.
//!
//! It is made from a list of what may be in it, not by striking out what may not: versions, features, numbers, kinds, names of fields, of
//! reasons and of drivers. Names of devices, edges, ports and sets, addresses, values of rules, and paths are never collected. Only texts of
//! errors come from elsewhere, and [`Redaction`] strikes out what looks like one of them, and the names of this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use weir_bpf::abi::{STATE_LAYOUT, Stats};
use weir_engine::control::{Ask, Client, Reply};
use weir_engine::edge::{self, EdgeError, Form, Status, reasons};
use weir_engine::network;
use weir_kernel::probes::{self, ProbeResult};
use weir_kernel::{Map, iface, pins};
use weir_policy::model::{DropWhen, Policy, Rule, Target, Test};
use weir_policy::parse_file;
use weir_runtime::graph::Record;

use crate::commands::prog::pinned::list::rows;
use crate::failure::Failure;

/// Version of the form of the report.
const FORM: u32 = 1;

/// Settings of AF_XDP that were measured: where, and why they may not hold any more.
pub(super) struct Settings<'m> {
    pub(super) kernel: Option<&'m str>,
    pub(super) driver: Option<&'m str>,
    pub(super) doubts: &'m [String],
}

/// Writes the report: `features` and `profile` are what `weir doctor` found.
pub(super) fn write(
    path: &Path,
    features: &[ProbeResult],
    profile: Option<Settings<'_>>,
) -> Result<(), Failure> {
    let redaction = Redaction::of_host();
    let features = features.iter().map(|feature| {
        let why_not = (feature.ok.as_ref().err()).map(|why| redaction.redact(why));
        json!({ "name": feature.name, "ok": feature.ok.is_ok(), "why_not": why_not })
    });
    let profile = profile.map(|profile| {
        let doubts = profile.doubts.iter().map(|one| redaction.redact(one));
        let doubts: Vec<String> = doubts.collect();
        json!({ "kernel": profile.kernel, "driver": profile.driver, "doubts": doubts })
    });
    let report = json!({
        "report": FORM,
        "weir": env!("CARGO_PKG_VERSION"),
        "edge_layout": STATE_LAYOUT,
        "host": host(),
        "capabilities": capabilities(),
        "features": features.collect::<Vec<_>>(),
        "afxdp_profile": profile,
        "devices": devices(&redaction),
        "policies": found(policies(&redaction), &redaction),
        "edges": found(edges(&redaction), &redaction),
        "programs": found(rows().map(|all| all.len()), &redaction),
    });
    let text = serde_json::to_string_pretty(&report).map_err(Failure::failed)?;
    fs::write(path, text + "\n")
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

/// What was found, or why it could not be.
fn found<T: Serialize>(found: Result<T, Failure>, redaction: &Redaction) -> Value {
    match found {
        Ok(found) => json!(found),
        Err(error) => redaction.error(&error),
    }
}

fn host() -> Value {
    let read = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let release = read("/etc/os-release").unwrap_or_default();
    let of_release = |key: &str| {
        let value = (release.lines()).find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    let settings = [
        "kernel/unprivileged_bpf_disabled",
        "net/core/bpf_jit_enable",
        "net/core/bpf_jit_harden",
    ];
    let settings: BTreeMap<&str, Option<String>> = settings
        .into_iter()
        .map(|name| (name, read(&format!("/proc/sys/{name}"))))
        .collect();
    json!({
        "kernel": probes::kernel_release(),
        "architecture": std::env::consts::ARCH,
        "distribution": of_release("ID"),
        "distribution_version": of_release("VERSION_ID"),
        "cpus": std::thread::available_parallelism().ok(),
        "lockdown": read("/sys/kernel/security/lockdown"),
        "sysctl": settings,
    })
}

/// Names by number, of include/uapi/linux/capability.h, without `CAP_`.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The effective ones of this process, and whether it is root.
fn capabilities() -> Value {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = (status.lines())
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let names = mask.map(|mask| {
        let all = CAPABILITIES.iter().enumerate();
        let held = all.filter(|(bit, _)| mask >> bit & 1 == 1);
        held.map(|(_, name)| *name).collect::<Vec<_>>()
    });
    json!({ "root": rustix::process::geteuid().is_root(), "effective": names })
}

/// Devices without their names: driver, MTU, and what is attached.
fn devices(redaction: &Redaction) -> Value {
    let devices = match iface::list() {
        Ok(devices) => devices,
        Err(error) => return redaction.error(&error),
    };
    let pinned = pins::list().unwrap_or_default();
    let rows = devices.iter().map(|device| {
        let of_weir = pinned.iter().filter(|pin| pin.ifindex == device.ifindex);
        json!({
            "driver": device.driver,
            "mtu": device.mtu,
            "up": device.up,
            "xdp_program": device.xdp_prog_id.is_some(),
            "programs_of_weir_run": of_weir.filter(|pin| pin.prog_id.is_some()).count(),
        })
    });
    rows.collect()
}

/// Policies of `weir run`.
fn policies(redaction: &Redaction) -> Result<Vec<Value>, Failure> {
    let mut clients = Client::all()?;
    let of = |client: &mut Client| {
        let running = match client.ask(Ask::List) {
            Ok(Reply::Rules(rules)) => json!({
                "rules": rules.rules.len(),
                "generation": rules.generation,
                "drifted": rules.drifted,
            }),
            Ok(_) => Value::Null,
            Err(error) => redaction.error(&error),
        };
        let hello = client.hello();
        // Edits since it was read are counted above, and not shown.
        // Errors of parsing quote the file.
        let file = match parse_file(&hello.policy) {
            Ok(parsed) => shape(&parsed.policy),
            Err(_) => json!({ "error": "it cannot be read any more, or has mistakes" }),
        };
        json!({ "interfaces": hello.interfaces.len(), "running": running, "file": file })
    };
    Ok(clients.iter_mut().map(of).collect())
}

/// The rules of a policy without any value: which fields they test and how, and what they do.
fn shape(policy: &Policy) -> Value {
    let rules: Vec<Value> = policy.rules.iter().map(rule).collect();
    json!({ "capacity": policy.connections.capacity, "rules": rules })
}

fn rule(rule: &Rule) -> Value {
    let matches = rule.matches.iter().map(|one| {
        let test = match &one.test {
            Test::Present => "present".to_owned(),
            Test::In(ranges) => format!("in {}", ranges.intervals().len()),
            Test::Masked { .. } => "masked".to_owned(),
            Test::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Test::Port(names) => format!("{} ports", names.len()),
            Test::Dynamic(_) => "dynamic set".to_owned(),
            Test::Always => "always".to_owned(),
        };
        let not = if one.negated { "not " } else { "" };
        format!("{}: {not}{test}", one.subject.field.info().name)
    });
    let targets = rule.targets.iter().map(|target| match target {
        Target::Set { field, .. } => format!("mod {}", field.info().name),
        Target::PushTag { .. } => "vlan push".to_owned(),
        Target::PopTag => "vlan pop".to_owned(),
        Target::DecrementTtl => "ttl dec".to_owned(),
        Target::SetMeta { field, .. } => format!("{} set", field.info().name),
        Target::SetPayload { bytes, .. } => format!("mod payload, {} bytes", bytes.len()),
        Target::SetOption { kind, .. } => format!("mod option {kind}"),
        Target::AddOption { kind, .. } => format!("add option {kind}"),
        Target::Strip(_) => "strip".to_owned(),
        Target::Drop(when) => match when {
            DropWhen::Always => "drop",
            DropWhen::Answered(_) => "reject",
            DropWhen::Random { .. } => "drop at random",
            DropWhen::Over { .. } => "drop over a rate",
            DropWhen::OverEach { .. } => "drop over a rate, each",
            DropWhen::OverConnections { .. } => "drop over connections at a time",
            DropWhen::Quota { .. } => "drop over a quota",
        }
        .to_owned(),
        Target::Accept => "accept".to_owned(),
        Target::Map { field, .. } => format!("map {}", field.info().name),
        Target::Shuffle { field } => format!("shuffle {}", field.info().name),
        Target::ChangeSet(_) => "change a set".to_owned(),
        Target::Log { .. } => "log".to_owned(),
    });
    json!({
        "stateful": rule.stateful,
        "matches": matches.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
    })
}

/// Edges of this namespace: graphs and networks.
fn edges(redaction: &Redaction) -> Result<Vec<Value>, Failure> {
    let names = weir_runtime::edges()?;
    let of = |name: &String| {
        let graph = match edge::status(name) {
            Ok(status) => graph(&status),
            Err(EdgeError::NotRunning { .. }) => Value::Null,
            Err(error) => redaction.error(&error),
        };
        let networks = match network::look(name) {
            Ok(Some(look)) => json!({
                "generation": look.generation,
                "capacity": look.capacity,
                "devices": look.devices.len(),
            }),
            Ok(None) => Value::Null,
            Err(error) => redaction.error(&error),
        };
        json!({ "graph": graph, "networks": networks })
    };
    Ok(names.iter().map(of).collect())
}

/// Ports and functions in their order, which links name; none has a name.
fn graph(status: &Status) -> Value {
    let record = Record::read(&status.name, &status.text).ok();
    let kind = |name: &str| {
        let mut instances = record.iter().flat_map(|record| &record.outline.instances);
        instances
            .find(|one| one.name == name)
            .map(|one| one.kind.clone())
    };
    let drivers: BTreeMap<String, String> = (iface::list().unwrap_or_default().into_iter())
        .map(|device| (device.name, device.driver))
        .collect();
    let ports = status.ports.iter().map(|port| {
        json!({
            "mode": port.mode,
            "driver": drivers.get(&port.device),
            "attached": port.attached,
            "ledger": ledger(&port.ledger),
        })
    });
    let functions = status.instances.iter().map(|one| {
        let maps = one.maps.iter().map(|(name, id)| {
            let map = Map::by_id(*id, name);
            map.map_or(Value::Null, |map| {
                let definition = map.definition();
                json!({ "kind": definition.kind_name(), "key": definition.key, "value": definition.value, "entries": definition.entries })
            })
        });
        let targets = one.outs.iter().map(|(_, to)| {
            let place = status.instances.iter().position(|other| other.name == *to);
            place.map_or_else(|| "out of the graph".to_owned(), |at| format!("function {at}"))
        });
        json!({
            "kind": kind(&one.name),
            "implicit": one.implicit,
            "outputs": targets.collect::<Vec<_>>(),
            "maps": maps.collect::<Vec<_>>(),
            "ledger": ledger(&one.ledger),
        })
    });
    json!({
        "generation": status.generation,
        "watched": status.form == Form::Watched,
        "missed": status.missed,
        "recirculates": status.recirculation.is_some(),
        "hooks": status.hooks.len(),
        "ports": ports.collect::<Vec<_>>(),
        "functions": functions.collect::<Vec<_>>(),
    })
}

fn ledger(stats: &Stats) -> Value {
    let reasons: BTreeMap<&str, u64> = reasons(stats).into_iter().collect();
    json!({ "received": stats.received, "bytes": stats.bytes, "verdicts": stats.verdict, "reasons": reasons })
}

/// Words that messages put in front of a name.
const BEFORE_NAMES: [&str; 10] = [
    "balancer",
    "device",
    "edge",
    "function",
    "interface",
    "network",
    "port",
    "server",
    "tenant",
    "workload",
];

/// Strikes names, addresses, paths and values out of messages.
pub(super) struct Redaction {
    /// What this host and what runs on it are called.
    names: BTreeSet<String>,
}

impl Redaction {
    /// That of this host: its name, its devices, its edges.
    fn of_host() -> Redaction {
        let mut names: BTreeSet<String> = BTreeSet::new();
        names.extend(weir_runtime::edges().unwrap_or_default());
        names.extend(edge::list().unwrap_or_default());
        names.extend(iface::names().unwrap_or_default());
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        names.extend(host.split_once('.').map(|(short, _)| short.to_owned()));
        names.insert(host);
        Redaction { names }
    }

    fn error(&self, error: &dyn std::fmt::Display) -> Value {
        json!({ "error": self.redact(&error.to_string()) })
    }

    /// A text of an error without names, addresses, paths, quoted values and long runs of hexadecimal digits.
    ///
    /// Messages also name what is not there, for example a function of an edge that cannot be read: so what stands behind
    /// one of [`BEFORE_NAMES`] is a name, and what stands behind that in parentheses is another.
    pub(super) fn redact(&self, text: &str) -> String {
        let (mut quoted, mut named, mut expected) = (false, false, false);
        let words = text.split(' ').map(|word| {
            let opens = word.matches('`').count() % 2 == 1;
            let hidden = quoted || word.contains('`');
            quoted ^= opens;
            let is_name = expected || self.names(word) || (named && word.starts_with('('));
            expected = BEFORE_NAMES.contains(&word.trim_matches(['(', ':']));
            named = is_name;
            match (hidden, is_name) {
                (true, _) => "<value>",
                (false, true) => "<name>",
                (false, false) => plain(word),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Whether a part of the word is a name of this host: `eth7:` and `(eth7)` are, `eth70` is not.
    fn names(&self, word: &str) -> bool {
        let parts = word.split(|c: char| !c.is_alphanumeric() && !"-_.".contains(c));
        parts
            .map(|part| part.trim_matches('.'))
            .any(|part| self.names.contains(part))
    }
}

/// A word, or what stands for it.
fn plain(word: &str) -> &str {
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != ':' && c != '/');
    let bare = bare.trim_end_matches(':');
    let (host, _) = bare.split_once('/').unwrap_or((bare, ""));
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let without_port = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let without_port = without_port.trim_matches(['[', ']']);
    let is_mac = host.len() == 17 && host.split([':', '-']).all(|part| part.len() == 2);
    if is_address(host) || is_address(without_port) || is_mac {
        "<address>"
    } else if bare.contains('/') {
        "<path>"
    } else if bare.len() >= 12 && bare.chars().all(|c| c.is_ascii_hexdigit()) {
        "<hex>"
    } else {
        word
    }
}

#[cfg(test)]
mod tests {
    use weir_policy::Source;

    use super::*;

    #[test]
    fn texts_of_errors_lose_what_is_nobodys_business() {
        let names = ["acme-berlin", "eth7", "fw1.acme.example"].map(str::to_owned);
        let redaction = Redaction {
            names: names.into(),
        };
        for (text, want) in [
            (
                "the state of edge hidden cannot be read (layout): run `weir down --edge hidden`, then apply again",
                "the state of edge <name> cannot be read (layout): run <value> <value> <value> <value> then apply again",
            ),
            (
                "function red/web: no map; port lan (eth9) runs in native mode",
                "function <name> no map; port <name> <name> runs in native mode",
            ),
            (
                "acme-berlin: eth7, (eth7) and eth7/1 on fw1.acme.example.",
                "<name> <name> <name> and <name> on <name>",
            ),
            ("ethernet has no names", "ethernet has no names"),
            (
                "no route to 192.0.2.7, try 10.0.0.0/8 or 192.0.2.1:8080.",
                "no route to <address> try <address> or <address>",
            ),
            (
                "2001:db8::1 and [2001:db8::1]:53 and fe80::1/64: gone",
                "<address> and <address> and <address> gone",
            ),
            ("from 02:00:5e:10:00:01 twice", "from <address> twice"),
            (
                "cannot read /srv/joe/secret.weir: denied",
                "cannot read <path> denied",
            ),
            (
                "unknown set `@big customer`; say which",
                "unknown set <value> <value> say which",
            ),
            ("key deadbeef00112233 failed", "key <hex> failed"),
            (
                "layout is 3, this weir writes 2: retry",
                "layout is 3, this weir writes 2: retry",
            ),
        ] {
            assert_eq!(redaction.redact(text), want);
        }
    }

    #[test]
    fn shapes_have_fields_and_targets_and_no_value() {
        let text = "set customers = { 192.0.2.7, 198.51.100.0/24 }\n\
             acme: ip-saddr in @customers tcp-dport 4711 drop log \"acme corp\"\n\
             nat: add-stateful ip-saddr 10.1.2.3 map ip-saddr 203.0.113.9\n\
             word: udp-payload 0x73656372657400112233 drop\n";
        let source = Source::new("secret.weir", text);
        let parsed = weir_policy::parse(&source, &weir_policy::NoFiles).expect("a policy");
        let shape = shape(&parsed.policy).to_string();
        let want = [
            r#""matches":["ip-saddr: in 2","tcp-dport: in 1"],"stateful":false,"targets":["drop","log"]"#,
            r#""stateful":true,"targets":["map ip-saddr"]"#,
            r#"["udp-payload: 10 bytes"]"#,
        ];
        for part in want {
            assert!(shape.contains(part), "{part}: {shape}");
        }
        for value in ["192", "4711", "acme", "customers", "7365", "secret"] {
            assert!(!shape.contains(value), "{value}: {shape}");
        }
    }
}
