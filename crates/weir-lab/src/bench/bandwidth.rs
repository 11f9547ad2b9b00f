//! Part C of the middlebox benchmark: bandwidth of 7 parallel iperf3 flows through a box, as Figures 6 and 7 of the mmb paper show it,
//! with the CPU time that a gigabit takes.
//!
//! Every variant has a client, a box and a server of its own and is measured in turn in every round. No rule drops the streams. On
//! a machine with few CPUs the ends of the streams compete with the box, so CPU time tells more than bandwidth.

use std::process::Stdio;
use std::time::Duration;

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

use super::measure::{Samples, ksoftirqd_ns};
use super::peers::{self, Contender, RuleSet, Standing};
use super::report::Figure;
use super::rules::{self, Random, Rule, TCP};
use super::{Bench, Group};
use crate::LabError;
use crate::process::{Running, Scratch, is_listening, missing};

/// Parallel flows, as in the paper.
const FLOWS: &str = "7";
const PORT: u16 = 5201;
/// Of seconds each, other than those of the other parts.
const ROUNDS: usize = 5;
const SERVER: &str = "10.2.0.2";
/// The box's interfaces, to the client and to the server.
const PORTS: [&str; 2] = ["b0", "b1"];

/// Measures everything that is selected.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    let groups = [
        Group::Bandwidth,
        Group::BandwidthTuples,
        Group::BandwidthStateful,
        Group::BandwidthTimestamps,
    ];
    if !groups.iter().any(|g| bench.wants(*g)) {
        return Ok(());
    }
    if !missing(&["iperf3"]).is_empty() {
        bench.absent("iperf3", "iperf3");
        return Ok(());
    }
    let scratch = Scratch::create("weir-bench")?;
    let mut paths = build(bench, &scratch)?;
    let (rounds, total) = (ROUNDS, paths.len());
    bench.say(&format!(
        "7 flows of iperf3: {total} paths, {rounds} rounds"
    ))?;
    for round in 0..rounds {
        for (n, path) in paths.iter_mut().enumerate() {
            bench.progress(&format!(
                "iperf3, round {}: {} of {total}",
                round + 1,
                n + 1
            ))?;
            path.measure(bench.scale.quick)?;
        }
    }
    for path in paths {
        bench.figure(Figure::new(
            format!("{}.bandwidth", path.name),
            "Gbit/s",
            path.gbit,
        ));
        bench.figure(Figure::new(
            format!("{}.cpu", path.name),
            "CPU-ms/Gbit",
            path.cpu_ms,
        ));
    }
    Ok(())
}

fn build(bench: &mut Bench<'_>, scratch: &Scratch) -> Result<Vec<Path>, LabError> {
    use Contender::{Iptables, NftRules, NftSet, WeirTc, WeirXdp};
    let mut paths = Vec::new();
    if bench.wants(Group::Bandwidth) {
        paths.push(Path::direct(scratch)?);
        paths.push(Path::through_box("bandwidth.forwarding", scratch)?);
        for weir in [WeirTc, WeirXdp] {
            let name = format!("bandwidth.{}", weir.series());
            let nothing = RuleSet::Tuples(Vec::new());
            paths.extend(filtered(bench, scratch, &name, weir, &nothing)?);
        }
    }
    // Sizes, and what holds rules of a kind.
    let quick = bench.scale.quick;
    let sizes = |all: &[usize]| -> Vec<usize> {
        let all = if quick {
            &all[all.len() / 2..][..1]
        } else {
            all
        };
        all.to_vec()
    };
    if bench.wants(Group::BandwidthTuples) {
        for count in sizes(&[10, 1000, 10_000, 100_000]) {
            let count = count.min(bench.scale.largest);
            let set = RuleSet::Tuples(rules::disjoint(count));
            let all = [WeirTc, WeirXdp, NftSet, NftRules, Iptables];
            let some = [WeirTc, NftSet, Iptables];
            let contenders: &[Contender] = if quick { &some } else { &all };
            series(
                bench, scratch, &mut paths, "tuples", count, &set, contenders,
            )?;
        }
    }
    if bench.wants(Group::BandwidthStateful) && !quick {
        for count in [10, 1000, 10_000] {
            let count = count.min(bench.scale.largest);
            // The paper's static rule, which all traffic matches, and as many as are asked for that none does.
            let mut rules = rules::disjoint(count);
            rules.push(Rule {
                source: (0x0a01_0000, 24),
                ..Rule::everything(TCP)
            });
            let set = RuleSet::Stateful(rules);
            let all = [WeirTc, NftSet, NftRules, Iptables];
            series(bench, scratch, &mut paths, "stateful", count, &set, &all)?;
        }
    }
    if bench.wants(Group::BandwidthTimestamps) && !quick {
        let mut random = Random(11);
        for count in [10, 78, 1000] {
            let count = count.min(bench.scale.largest);
            let values = (0..count).map(|_| random.next() as u32 | 1 << 31).collect();
            let set = RuleSet::Timestamps(values);
            let all = [WeirTc, WeirXdp, NftSet, NftRules, Iptables];
            series(bench, scratch, &mut paths, "timestamps", count, &set, &all)?;
        }
    }
    Ok(paths)
}

fn series(
    bench: &mut Bench<'_>,
    scratch: &Scratch,
    paths: &mut Vec<Path>,
    set_name: &str,
    count: usize,
    set: &RuleSet,
    contenders: &[Contender],
) -> Result<(), LabError> {
    for &contender in contenders {
        let name = format!("bandwidth.{set_name}.{}.{count}", contender.series());
        if paths.iter().any(|p| p.name == name) {
            continue;
        }
        if contender.is_linear() && count > 10_000 {
            bench.refuse(
                &name,
                "one rule after the other: a packet takes ms, and loading minutes",
            );
            continue;
        }
        paths.extend(filtered(bench, scratch, &name, contender, set)?);
    }
    Ok(())
}

/// A box with a filter; `None`, and the outcome says why, where that cannot be.
fn filtered(
    bench: &mut Bench<'_>,
    scratch: &Scratch,
    name: &str,
    contender: Contender,
    set: &RuleSet,
) -> Result<Option<Path>, LabError> {
    bench.progress(&format!("building {name}"))?;
    if let Some((program, package)) = contender.absent() {
        bench.absent(program, package);
        return Ok(None);
    }
    let mut path = Path::through_box(name, scratch)?;
    let Some(middle) = &path.middle else {
        return Ok(None);
    };
    let weir = bench.options.weir.clone();
    match peers::stand(contender, set, middle, &PORTS, &weir, scratch) {
        Ok(standing) => path.standing = Some(standing),
        Err(error) => {
            bench.refuse(name, &error.to_string());
            return Ok(None);
        }
    }
    Ok(Some(path))
}

/// From a client to a server, with or without a box between them.
struct Path {
    name: String,
    // In the order of their ends: what stands on the box, the server program, the namespaces.
    standing: Option<Standing>,
    _iperf: Running,
    client: NetNs,
    middle: Option<NetNs>,
    _server: NetNs,
    gbit: Samples,
    cpu_ms: Samples,
}

impl Path {
    fn direct(scratch: &Scratch) -> Result<Path, LabError> {
        let (client, server) = ends()?;
        bed::veth(
            end(&client, "c0", &["10.2.0.1/24"]),
            end(&server, "s0", &["10.2.0.2/24"]),
        )?;
        Path::new("bandwidth.direct", scratch, client, None, server)
    }

    fn through_box(name: &str, scratch: &Scratch) -> Result<Path, LabError> {
        let (client, server) = ends()?;
        let middle = NetNs::create("weir-bench-box")?;
        let [near, far] = PORTS;
        bed::veth(
            end(&client, "c0", &["10.1.0.2/24"]),
            end(&middle, near, &["10.1.0.1/24"]),
        )?;
        bed::veth(
            end(&server, "s0", &["10.2.0.2/24"]),
            end(&middle, far, &["10.2.0.1/24"]),
        )?;
        bed::forward(&middle)?;
        bed::default_route(&client, "10.1.0.1")?;
        bed::default_route(&server, "10.2.0.1")?;
        Path::new(name, scratch, client, Some(middle), server)
    }

    fn new(
        name: &str,
        scratch: &Scratch,
        client: NetNs,
        middle: Option<NetNs>,
        server: NetNs,
    ) -> Result<Path, LabError> {
        let mut command = server.command("iperf3")?;
        command.arg("-s").stdout(Stdio::null());
        let mut iperf = Running::start(&mut command, "iperf3 -s", scratch)?;
        iperf.wait_until(Duration::from_secs(5), |_| is_listening(&server, PORT))?;
        Ok(Path {
            name: name.to_owned(),
            standing: None,
            _iperf: iperf,
            client,
            middle,
            _server: server,
            gbit: Samples::default(),
            cpu_ms: Samples::default(),
        })
    }

    fn measure(&mut self, quick: bool) -> Result<(), LabError> {
        let mut args = vec!["-c", SERVER, "-P", FLOWS, "-J"];
        // A quick round moves 7 times so much instead of running for seconds.
        args.extend(if quick { ["-n", "32M"] } else { ["-t", "2"] });
        let before = ksoftirqd_ns();
        let text = self.client.output("iperf3", &args)?;
        let helpers_ms = (ksoftirqd_ns() - before) / 1e6;
        let result: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| LabError::Child {
                what: "iperf3 -c".to_owned(),
                why: format!("printed no JSON: {e}"),
            })?;
        let number = |pointer: &str| {
            let value = result.pointer(pointer).and_then(serde_json::Value::as_f64);
            value.ok_or_else(|| LabError::Child {
                what: "iperf3 -c".to_owned(),
                why: format!("its JSON has no {pointer}"),
            })
        };
        let gbit = number("/end/sum_received/bytes")? * 8.0 / 1e9;
        let seconds = number("/end/sum_received/seconds")?;
        let percent = number("/end/cpu_utilization_percent/host_total")?
            + number("/end/cpu_utilization_percent/remote_total")?;
        self.gbit.push(gbit / seconds);
        self.cpu_ms
            .push((percent / 100.0 * seconds * 1e3 + helpers_ms) / gbit);
        Ok(())
    }
}

fn ends() -> Result<(NetNs, NetNs), LabError> {
    Ok((
        NetNs::create("weir-bench-client")?,
        NetNs::create("weir-bench-server")?,
    ))
}

fn end<'a>(ns: &'a NetNs, name: &'a str, addresses: &'a [&'a str]) -> End<'a> {
    End {
        ns,
        name,
        addresses,
    }
}
