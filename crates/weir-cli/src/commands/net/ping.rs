//! `weir net ping`: echo requests through the networks that run on this edge, and where lost ones were lost, as far as this edge can tell.
//!
//! Exit status as of ping: 0 something was answered, 1 nothing was, or the host refused; 2 the usage is wrong.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_engine::network::ping::{Asked, Pace, Ping, Refusal};
use weir_engine::network::{Look, probe};
use weir_network::trace::{self, Described, Payload, Trace};
use weir_network::{EdgeNetworks, Networks};
use weir_packet::Reason;

use weir_runtime::networks::{Record, planned, running_edge};
use weir_runtime::stations;

use super::checked;
use super::names::workload_of;
use crate::args::net::PingArgs;
use crate::failure::Failure;
use crate::output;

/// How long another edge has to answer a probe.
const PROBED: Duration = Duration::from_secs(1);

pub(super) fn run(args: &PingArgs, json: bool) -> Result<ExitCode, Failure> {
    let pace = Pace {
        count: args.count,
        interval: args.interval,
        patience: args.wait,
    };
    let (edge, look) = running_edge(args.edge.as_deref())?;
    let networks = checked(&Record::read(&look.text)?)?;
    let plan = planned(&networks, &edge, &look.numbers)?;
    let (network, workload) = workload_of(&args.from)?;
    let target = target(args, &networks, network, workload)?;
    let described = Described {
        network: network.to_owned(),
        workload: workload.to_owned(),
        to: target.address,
        from: args.source,
        mac: args.mac,
        payload: Payload::Echo,
        ttl: args.ttl,
        length: args.size + if target.address.is_ipv4() { 28 } else { 48 },
    };
    let (home, frame) = trace::frame(&networks, &described).map_err(Failure::usage)?;
    if home != edge {
        return Err(Failure::Usage(format!(
            "workload {workload} is on edge {home}, and this is edge {edge}; ping from there, or name a workload of this edge"
        )));
    }
    let device = |name: &str| {
        let mut devices = plan.devices.iter();
        let found = devices.find(|one| one.network == network && one.workload == name);
        found.map(|one| one.device.as_str())
    };
    let near = device(workload)
        .ok_or_else(|| Failure::failed(format!("the running plan has no device of {workload}")))?;
    // Where requests to the workload itself go, nothing more is to be seen.
    let far = target.workload.as_deref().and_then(device);
    let far = far.filter(|far| *far != near);
    let before = drops(&look)?;
    let mut ping = Ping::open(near, far, frame)?;
    if !json {
        let name = target.name();
        output::out(&format!(
            "{name} from {} by {near}: {} bytes\n",
            args.from, args.size
        ))?;
    }
    let mut failed = None;
    let asked = ping.run(&pace, |number, one| {
        if !json && failed.is_none() {
            failed = output::out(&line(args, &target, number, one)).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let asked = asked.to_vec();
    let lost = asked.iter().filter(|one| one.answer.is_none()).count();
    let mut why = Vec::new();
    let mut moved = Vec::new();
    if lost > 0 {
        moved = changed(&plan, network, &before, &drops(&look)?)?;
        why = explain(&Lost {
            networks: &networks,
            plan: &plan,
            look: &look,
            described: &described,
            target: &target,
            asked: &asked,
            watched: far,
            moved: &moved,
            near,
            missed: ping.missed()?,
        })?;
    }
    // Requests are made with the address of the document: what the workload itself sends may be lost although they are answered.
    let ends = [Some(workload), target.workload.as_deref()];
    why.extend(stations::of_ends(&plan, network, &ends)?);
    let times: Vec<f64> = asked
        .iter()
        .filter_map(|one| one.answer)
        .map(|answer| answer.rtt.as_secs_f64() * 1000.0)
        .collect();
    if json {
        output::json(&report(args, &edge, &target, &asked, &times, &why, &moved))?;
    } else {
        output::out(&summary(&asked, &times, &why))?;
    }
    Ok(match times.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// Whom requests are for.
struct PingTarget {
    address: IpAddr,
    /// Its name and edge, if it is a workload of the network.
    workload: Option<String>,
    edge: Option<String>,
}

impl PingTarget {
    fn name(&self) -> String {
        match &self.workload {
            Some(name) => format!("{name} ({})", self.address),
            None => self.address.to_string(),
        }
    }
}

/// An address, or `WORKLOAD`, or `NETWORK/WORKLOAD`.
fn target(
    args: &PingArgs,
    networks: &Networks,
    network: &str,
    from: &str,
) -> Result<PingTarget, Failure> {
    let all = &networks.document.networks;
    let found = all.iter().find(|one| one.name.value == network);
    let workloads = found.map_or(&[][..], |one| &one.workloads);
    if let Ok(address) = args.to.parse::<IpAddr>() {
        let owner = workloads.iter().find(|one| {
            let known = one.addresses.known();
            known.iter().any(|known| known.value == address)
        });
        return Ok(PingTarget {
            address,
            workload: owner.map(|one| one.name.value.clone()),
            edge: owner.map(|one| one.edge.value.clone()),
        });
    }
    let name = match args.to.split_once('/') {
        Some((other, _)) if other != network => {
            return Err(Failure::Usage(format!(
                "`{}` is of another network than {}; networks do not reach each other",
                args.to, args.from
            )));
        }
        Some((_, name)) => name,
        None => &args.to,
    };
    let of = |name: &str| workloads.iter().find(|one| one.name.value == name);
    let workload = of(name).ok_or_else(|| {
        Failure::Usage(format!(
            "`{}` is not an address, and network {network} has no workload named `{name}`",
            args.to
        ))
    })?;
    let own: Vec<IpAddr> = match (args.source, of(from)) {
        (Some(source), _) => vec![source],
        (None, Some(from)) => from.addresses.known().iter().map(|a| a.value).collect(),
        (None, None) => Vec::new(),
    };
    let mut addresses = workload.addresses.known().iter().map(|known| known.value);
    let same = |address: &IpAddr| {
        own.is_empty() || own.iter().any(|own| own.is_ipv4() == address.is_ipv4())
    };
    let address = addresses.find(same).ok_or_else(|| {
        Failure::Usage(format!(
            "workload {name} has no fixed address of a family that {} has; give an address",
            args.from
        ))
    })?;
    Ok(PingTarget {
        address,
        workload: Some(name.to_owned()),
        edge: Some(workload.edge.value.clone()),
    })
}

/// One request that was answered or refused.
fn line(args: &PingArgs, target: &PingTarget, number: u16, one: &Asked) -> String {
    match (&one.answer, &one.refusal) {
        (Some(answer), _) => format!(
            "{} bytes from {}: seq={number} ttl={} time={:.3} ms\n",
            args.size + 8,
            target.address,
            answer.ttl,
            answer.rtt.as_secs_f64() * 1000.0
        ),
        (None, Some(refusal)) => {
            format!("from {}: seq={number} {}\n", refusal.from, said(refusal))
        }
        (None, None) => String::new(),
    }
}

/// An ICMP error in words.
fn said(refusal: &Refusal) -> String {
    let v6 = refusal.from.is_ipv6();
    let what = match (v6, refusal.kind, refusal.code) {
        (false, 3, 0) | (true, 1, 0) => "no route to the destination",
        (false, 3, 1) | (true, 1, 3) => "the destination cannot be reached",
        (false, 3, 4) | (true, 2, _) => "packet too big for the next hop",
        (false, 3, 9 | 10 | 13) | (true, 1, 1) => "prohibited",
        (false, 3, _) | (true, 1, _) => "unreachable",
        (false, 11, _) | (true, 3, _) => "the TTL ran out",
        _ => "parameter problem",
    };
    format!("{what} (ICMP type {}, code {})", refusal.kind, refusal.code)
}

type Drops = BTreeMap<(u32, u32), u64>;

fn drops(look: &Look) -> Result<Drops, Failure> {
    let all = look.set.drops()?.into_iter();
    Ok(all.map(|(drop, n)| ((drop.vid, drop.reason), n)).collect())
}

/// Drops that were counted meanwhile.
struct Moved {
    network: String,
    interface: String,
    reason: &'static str,
    text: &'static str,
    count: u64,
    /// What to do about it, where that is known.
    cure: Option<String>,
}

/// ... at interfaces of the network, and of what had not come so far.
fn changed(
    plan: &EdgeNetworks,
    network: &str,
    before: &Drops,
    after: &Drops,
) -> Result<Vec<Moved>, Failure> {
    let mut moved = Vec::new();
    for ((vid, reason), now) in after {
        let count = now - before.get(&(*vid, *reason)).copied().unwrap_or(0).min(*now);
        let label = plan.labels.interfaces.get(*vid as usize);
        let label = label.filter(|label| !label.name.is_empty());
        let here = *vid == 0 || label.is_some_and(|label| *label.network == *network);
        let (true, true, Some(reason)) = (count > 0, here, Reason::from_index(*reason)) else {
            continue;
        };
        moved.push(Moved {
            network: label.map_or_else(String::new, |label| label.network.to_string()),
            interface: label.map_or_else(|| "no interface".to_owned(), |l| l.name.clone()),
            reason: reason.name(),
            text: reason.text(),
            count,
            cure: stations::cure(plan, *vid, reason)?,
        });
    }
    Ok(moved)
}

/// What is known where something was lost.
struct Lost<'a> {
    networks: &'a Networks,
    plan: &'a EdgeNetworks,
    look: &'a Look,
    described: &'a Described,
    target: &'a PingTarget,
    asked: &'a [Asked],
    /// The device of the workload that requests are for, where it was watched.
    watched: Option<&'a str>,
    moved: &'a [Moved],
    near: &'a str,
    missed: u64,
}

/// Sentences from what is surest to what is likely.
fn explain(lost: &Lost<'_>) -> Result<Vec<String>, Failure> {
    let mut why = Vec::new();
    let count = |what: fn(&Asked) -> bool| lost.asked.iter().filter(|one| what(one)).count();
    let all = lost.asked.len();
    if lost.missed > 0 {
        why.push(format!(
            "{} ICMP packets on {} were missed by the capture; replies may be among them",
            lost.missed, lost.near
        ));
    }
    let entered = count(|one| one.sent_ns.is_some());
    if entered < all {
        why.push(format!(
            "{} of {all} requests did not come in by {}: is the device up?",
            all - entered,
            lost.near
        ));
    }
    for moved in lost.moved {
        why.push(format!(
            "meanwhile this edge dropped {} at {}: {} ({})",
            moved.count, moved.interface, moved.reason, moved.text
        ));
        why.extend(moved.cure.clone());
    }
    if let Some(device) = lost.watched {
        let (delivered, returned) = (count(|one| one.delivered), count(|one| one.returned));
        let answered = count(|one| one.answer.is_some());
        let name = lost.target.name();
        match (delivered, returned) {
            (0, _) => why.push(format!("no request left by {device} for {name}")),
            (_, 0) => why.push(format!(
                "{delivered} of {all} requests were delivered to {name} by {device}, and it answered none: it is down, has another address, or does not answer echo"
            )),
            (_, returned) if returned < delivered => why.push(format!(
                "{delivered} of {all} requests were delivered to {name} by {device}, and it answered {returned}"
            )),
            (_, returned) if answered < returned => why.push(format!(
                "{name} answered {returned} requests, and {} of the answers were lost on their way back",
                returned - answered
            )),
            _ => {}
        }
    }
    // What the tables say, whatever was counted.
    let trace = trace::trace(lost.networks, lost.described).map_err(Failure::usage)?;
    why.extend(by_tables(lost, &trace));
    if let Some(edge) = lost
        .target
        .edge
        .as_ref()
        .filter(|edge| **edge != lost.plan.edge)
    {
        why.push(probed(lost, edge)?);
    }
    Ok(why)
}

/// Where a request ends by the tables of all edges.
fn by_tables(lost: &Lost<'_>, trace: &Trace) -> Option<String> {
    let told = |decision: &str| {
        trace
            .steps
            .iter()
            .rev()
            .find(|one| one.decision == decision)
    };
    let drop = told("dropped").or_else(|| told("error"));
    if let (Some(step), true) = (
        drop,
        trace
            .delivered
            .iter()
            .all(|d| d.workload == lost.described.workload),
    ) {
        return Some(format!(
            "by the document that runs here, {} on edge {}: {}",
            step.function, step.edge, step.text
        ));
    }
    let to: Vec<String> = trace
        .delivered
        .iter()
        .map(|one| format!("{} on edge {} by {}", one.workload, one.edge, one.device))
        .collect();
    match to.as_slice() {
        [] => None,
        to => Some(format!(
            "by the document that runs here, a request reaches {}",
            to.join(", ")
        )),
    }
}

/// Whether the edge of the destination answers a probe by the tunnel to it.
fn probed(lost: &Lost<'_>, edge: &str) -> Result<String, Failure> {
    let labels = lost.plan.labels.remotes.iter();
    let number = labels.clone().position(|name| name == edge);
    let remote = number.and_then(|number| lost.plan.remotes.get(number));
    let Some(remote) = remote.filter(|remote| remote.family != 0) else {
        return Ok(format!("this edge has no tunnel to edge {edge}"));
    };
    let set = &lost.look.set;
    let before = probe::heard(set, remote)?.answers;
    if let Err(error) = probe::ask(set, remote) {
        return Ok(format!("no probe of the tunnel could be sent: {error}"));
    }
    let begin = Instant::now();
    while begin.elapsed() < PROBED {
        let now = probe::heard(set, remote)?;
        if now.answers != before {
            return Ok(format!(
                "edge {edge} answered a probe by its tunnel after {:.3} ms: requests or answers are lost there; `weir net show` on {edge} says why",
                now.rtt_ns as f64 / 1e6
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(format!(
        "edge {edge} did not answer a probe by its tunnel either: the underlay does not carry packets to it and back, or its networks do not run"
    ))
}

fn summary(asked: &[Asked], times: &[f64], why: &[String]) -> String {
    let refused = asked
        .iter()
        .filter(|one| one.answer.is_none() && one.refusal.is_some());
    let mut text = format!("{} sent, {} answered", asked.len(), times.len());
    match refused.count() {
        0 => {}
        refused => text.push_str(&format!(", {refused} refused")),
    }
    let lost = asked.len() - times.len();
    text.push_str(&format!(
        ", {:.0} % lost",
        lost as f64 * 100.0 / asked.len().max(1) as f64
    ));
    if let Some([least, mean, most]) = spread(times) {
        text.push_str(&format!(
            "; rtt {least:.3}/{mean:.3}/{most:.3} ms (least/mean/most)"
        ));
    }
    text.push('\n');
    for sentence in why {
        text.push_str(&format!("  {sentence}\n"));
    }
    text
}

fn spread(times: &[f64]) -> Option<[f64; 3]> {
    let least = times.iter().copied().reduce(f64::min)?;
    let most = times.iter().copied().reduce(f64::max)?;
    Some([least, times.iter().sum::<f64>() / times.len() as f64, most])
}

fn report(
    args: &PingArgs,
    edge: &str,
    target: &PingTarget,
    asked: &[Asked],
    times: &[f64],
    why: &[String],
    moved: &[Moved],
) -> Value {
    let each = asked.iter().zip(1..).map(|(one, number)| {
        json!({
            "sequence": number,
            "rtt_ms": one.answer.map(|answer| answer.rtt.as_secs_f64() * 1000.0),
            "ttl": one.answer.map(|answer| answer.ttl),
            "refused": one.refusal.map(|refusal| json!({
                "from": refusal.from,
                "type": refusal.kind,
                "code": refusal.code,
                "text": said(&refusal),
            })),
        })
    });
    let each: Vec<Value> = each.collect();
    let drops: Vec<Value> = moved
        .iter()
        .map(|one| {
            json!({
                "network": one.network,
                "interface": one.interface,
                "reason": one.reason,
                "packets": one.count,
                "cure": one.cure,
            })
        })
        .collect();
    let spread = spread(times);
    json!({
        "edge": edge,
        "from": args.from,
        "to": args.to,
        "address": target.address,
        "workload": target.workload,
        "sent": asked.len(),
        "answered": times.len(),
        "lost": asked.len() - times.len(),
        "rtt_ms": spread.map(|[least, mean, most]| json!({ "least": least, "mean": mean, "most": most })),
        "requests": each,
        "drops": drops,
        "why": why,
    })
}
