//! Metrics of what runs here, as OpenMetrics text. [`FAMILIES`] is the one list of them: the text and docs/metrics.md are made from it.
//!
//! Read at each call, from the same ledgers as `weir status`. The number of series is bounded: by ports, functions and interfaces, times
//! verdicts and reasons that occurred; and by [`CARRIED_MAX`] for what routers and balancers carried.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use weir_engine::edge::EdgeError;
use weir_engine::network::{self, Look};
use weir_packet::Reason;
use weir_runtime::status::{Carried, EdgeStatus, Ledger};
use weir_runtime::{RuntimeError, networks};

use crate::agent::{State, View};

/// Next hops, services and interfaces of one function that have series of their own: those with most packets. The rest is one, `other`.
pub const CARRIED_MAX: usize = 200;

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while what it is of runs.
    Counter,
    /// Goes both ways.
    Gauge,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name, without the `_total` of counters.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        /// All metrics.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Metric { $($id),* }
    };
}

families! {
    Info Gauge "weir_info" ["version"] "1, with the version of the program that read the metrics";
    AgentFiles Gauge "weir_agent_files" ["state"] "Files of the agent, by state: applied, edited, failed";
    AgentRunning Gauge "weir_agent_child_running" ["edge" "command"] "1 for a child of the agent that runs, 0 for one that waits to be started again";
    AgentRestarts Counter "weir_agent_child_restarts" ["edge" "command"] "How often a child of the agent was started again";
    Unreadable Gauge "weir_edge_unreadable" ["edge"] "1 for an edge that may run here and whose state cannot be read";
    Generation Gauge "weir_edge_generation" ["edge"] "Generation of the graph that packets follow";
    Missed Counter "weir_edge_missed_calls" ["edge"] "Calls that found a function that was just replaced";
    Unaccounted Gauge "weir_edge_unaccounted_packets" ["edge"] "Redirected packets that no account has, those in transit among them";
    PortAttached Gauge "weir_port_attached" ["edge" "port" "device" "mode"] "1 if the port's device is there and runs the program, 0 if not";
    PortPackets Counter "weir_port_packets" ["edge" "port" "direction"] "Packets that a port received, or that left by it";
    PortBytes Counter "weir_port_bytes" ["edge" "port" "direction"] "Their bytes, with the link header";
    PortVerdicts Counter "weir_port_verdicts" ["edge" "port" "direction" "verdict"] "What became of them at the port";
    PortReasons Counter "weir_port_reasons" ["edge" "port" "direction" "reason"] "Why packets were dropped at the port, and what was noted of them";
    FunctionPackets Counter "weir_function_packets" ["edge" "function"] "Packets that a function received";
    FunctionBytes Counter "weir_function_bytes" ["edge" "function"] "Their bytes, with the link header";
    FunctionVerdicts Counter "weir_function_verdicts" ["edge" "function" "verdict"] "What a function did with them";
    FunctionReasons Counter "weir_function_reasons" ["edge" "function" "reason"] "Why a function dropped packets, and what it noted of them";
    CarriedPackets Counter "weir_carried_packets" ["edge" "function" "to"] "Packets of a router or balancer, by next hop, interface or service";
    CarriedBytes Counter "weir_carried_bytes" ["edge" "function" "to"] "Their bytes";
    ServiceFlows Counter "weir_service_flows" ["edge" "function" "to"] "Flows of a service that began";
    ServiceServers Gauge "weir_service_servers" ["edge" "function" "to" "state"] "Servers of a service: all, those that take new flows, those that failed their checks";
    NetPackets Counter "weir_network_packets" ["edge" "network" "interface"] "Packets of a virtual interface";
    NetBytes Counter "weir_network_bytes" ["edge" "network" "interface"] "Their bytes";
    NetDrops Counter "weir_network_drops" ["edge" "network" "interface" "reason"] "Packets that were dropped at a virtual interface";
}

/// A value with its labels, in the order of the family's names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    metric: Metric,
    labels: Vec<String>,
    value: u64,
}

/// All samples of one reading.
#[derive(Debug, Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn add(&mut self, metric: Metric, labels: &[&str], value: u64) {
        self.0.push(Sample {
            metric,
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            value,
        });
    }

    fn agent(&mut self, view: &View) {
        for state in [State::Applied, State::Edited, State::Failed] {
            let files = view.files.iter().filter(|row| row.state == state).count();
            self.add(Metric::AgentFiles, &[state.name()], files as u64);
        }
        for child in &view.children {
            let labels = [
                child.edge.as_deref().unwrap_or_default(),
                child.command.as_str(),
            ];
            self.add(
                Metric::AgentRunning,
                &labels,
                u64::from(child.process.is_some()),
            );
            self.add(Metric::AgentRestarts, &labels, child.restarts);
        }
    }

    fn edge(&mut self, status: &EdgeStatus) {
        let edge = status.edge.as_str();
        self.add(Metric::Generation, &[edge], status.generation);
        self.add(Metric::Missed, &[edge], status.missed);
        let second = status.second_stage.as_ref();
        if let Some(packets) = second.and_then(|second| second.unaccounted) {
            self.add(Metric::Unaccounted, &[edge], packets);
        }
        for port in &status.ports {
            let labels = [edge, &port.name, &port.device, &port.mode];
            self.add(Metric::PortAttached, &labels, u64::from(port.attached));
            let received = Some(("received", &port.ledger));
            let transmitted = port.transmit.as_ref().map(|ledger| ("transmitted", ledger));
            for (direction, ledger) in received.into_iter().chain(transmitted) {
                let metrics = [
                    Metric::PortPackets,
                    Metric::PortBytes,
                    Metric::PortVerdicts,
                    Metric::PortReasons,
                ];
                self.ledger(metrics, &[edge, &port.name, direction], ledger);
            }
        }
        for function in &status.functions {
            let metrics = [
                Metric::FunctionPackets,
                Metric::FunctionBytes,
                Metric::FunctionVerdicts,
                Metric::FunctionReasons,
            ];
            self.ledger(metrics, &[edge, &function.name], &function.ledger);
            self.carried(edge, &function.name, &function.carried);
        }
    }

    fn ledger(&mut self, metrics: [Metric; 4], labels: &[&str], ledger: &Ledger) {
        let [packets, bytes, verdicts, reasons] = metrics;
        self.add(packets, labels, ledger.received);
        self.add(bytes, labels, ledger.bytes);
        for (verdict, packets) in ledger.verdicts.by_name() {
            self.add(verdicts, &[labels, &[verdict]].concat(), packets);
        }
        for one in &ledger.reasons {
            self.add(reasons, &[labels, &[one.reason]].concat(), one.packets);
        }
    }

    fn carried(&mut self, edge: &str, function: &str, carried: &[Carried]) {
        let mut sorted: Vec<&Carried> = carried.iter().collect();
        sorted.sort_by_key(|one| std::cmp::Reverse(one.packets));
        let (own, rest) = sorted.split_at(sorted.len().min(CARRIED_MAX));
        for one in own {
            let labels = [edge, function, one.to.as_str()];
            self.add(Metric::CarriedPackets, &labels, one.packets);
            self.add(Metric::CarriedBytes, &labels, one.bytes);
            if let Some(flows) = one.flows {
                self.add(Metric::ServiceFlows, &labels, flows);
            }
            if let Some([takes, all]) = one.servers {
                let down = one.down.unwrap_or(0);
                for (state, servers) in [("all", all), ("taking-flows", takes), ("down", down)] {
                    let labels = [edge, function, one.to.as_str(), state];
                    self.add(Metric::ServiceServers, &labels, servers as u64);
                }
            }
        }
        if !rest.is_empty() {
            let labels = [edge, function, "other"];
            let sum = |of: fn(&Carried) -> u64| rest.iter().map(|one| of(one)).sum();
            self.add(Metric::CarriedPackets, &labels, sum(|one| one.packets));
            self.add(Metric::CarriedBytes, &labels, sum(|one| one.bytes));
        }
    }

    fn networks(&mut self, edge: &str, look: &Look) -> Result<(), RuntimeError> {
        let (checked, _) = networks::Record::read(&look.text)?.check()?;
        let plan = networks::planned(&checked, edge, &look.numbers)?;
        let drops = look.set.drops()?;
        for (vid, label) in plan.labels.interfaces.iter().enumerate() {
            if label.name.is_empty() {
                continue;
            }
            let vid = vid as u32;
            let count = look.set.count(vid)?;
            let labels = [edge, &label.network, &label.name];
            self.add(Metric::NetPackets, &labels, count.packets);
            self.add(Metric::NetBytes, &labels, count.bytes);
            for (drop, packets) in drops.iter().filter(|(drop, _)| drop.vid == vid) {
                let reason = Reason::from_index(drop.reason).map_or("unknown", Reason::name);
                let labels = [edge, &label.network, &label.name, reason];
                self.add(Metric::NetDrops, &labels, *packets);
            }
        }
        Ok(())
    }

    /// What runs in this network namespace.
    fn read() -> Result<Samples, RuntimeError> {
        let mut samples = Samples::default();
        samples.add(Metric::Info, &[env!("CARGO_PKG_VERSION")], 1);
        for edge in weir_runtime::edges()? {
            if samples.read_edge(&edge).is_err() {
                // It must not hide the others.
                samples
                    .0
                    .retain(|sample| sample.labels.first() != Some(&edge));
                samples.add(Metric::Unreadable, &[&edge], 1);
            }
        }
        Ok(samples)
    }

    fn read_edge(&mut self, edge: &str) -> Result<(), RuntimeError> {
        match EdgeStatus::read(edge, false) {
            Ok(status) => self.edge(&status),
            // It has networks only.
            Err(RuntimeError::Edge(EdgeError::NotRunning { .. })) => {}
            Err(error) => return Err(error),
        }
        match network::look(edge)? {
            Some(look) => self.networks(edge, &look),
            None => Ok(()),
        }
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (at, family) in FAMILIES.iter().enumerate() {
            let mut of = self
                .0
                .iter()
                .filter(|sample| sample.metric as usize == at)
                .peekable();
            if of.peek().is_none() {
                continue;
            }
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in of {
                let values = sample.labels.iter().map(String::as_str);
                let labels: Vec<(&str, &str)> = family.labels.iter().copied().zip(values).collect();
                let mut one = encoder.encode_family(&labels)?;
                match family.kind {
                    Kind::Counter => {
                        one.encode_counter::<NoLabelSet, _, u64>(&sample.value, None)?
                    }
                    Kind::Gauge => one.encode_gauge(&(sample.value as i64))?,
                }
            }
        }
        Ok(())
    }
}

/// Metrics of all edges of this network namespace, and of the agent that asks, as OpenMetrics text.
///
/// # Errors
/// The folder of the edges cannot be read. An edge that cannot be read is a metric.
pub fn openmetrics(view: Option<&View>) -> Result<String, RuntimeError> {
    let mut samples = Samples::read()?;
    if let Some(view) = view {
        samples.agent(view);
    }
    written(samples)
}

fn written(samples: Samples) -> Result<String, RuntimeError> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(samples));
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|error| RuntimeError::Failed(error.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::ChildRow;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn the_page_lists_every_metric() {
        let mut page = "# Metrics\n\n\
            Written by a test from the list in `weir-agent`. `weir status --openmetrics` prints them as OpenMetrics text, and\n\
            `weir agent` serves them at `/metrics` ([agent.md](agent.md#metrics)). Names of counters end in `_total` there. Those of\n\
            the agent, `weir_agent_...`, are only served.\n\n\
            | metric | kind | labels | meaning |\n|---|---|---|---|\n"
            .to_owned();
        for family in FAMILIES {
            let kind = format!("{:?}", family.kind).to_lowercase();
            let labels = family.labels.iter().map(|label| format!("`{label}`"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            page += &format!(
                "| `{}` | {kind} | {labels} | {} |\n",
                family.name, family.help
            );
        }
        page += &format!(
            "\nThe {CARRIED_MAX} next hops, interfaces and services of a function with most packets have series of their own. The rest is\n\
             `to=\"other\"`.\n"
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("WEIR_UPDATE").is_some() {
            std::fs::write(path, &page).expect("written");
        }
        let old = std::fs::read_to_string(path).expect("docs/metrics.md is there");
        assert!(
            old == page,
            "docs/metrics.md is out of date: WEIR_UPDATE=1 cargo test -p weir-agent"
        );
    }

    /// Names of metrics in a text.
    fn named(text: &str) -> Vec<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("weir_")).collect()
    }

    #[test]
    fn alerts_and_dashboard_name_metrics_that_exist() {
        let is_known = |name: &str| {
            FAMILIES.iter().any(|family| match family.kind {
                Kind::Counter => name.strip_suffix("_total") == Some(family.name),
                Kind::Gauge => name == family.name,
            })
        };
        for file in ["alerts.yml", "grafana.json"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
            let text = std::fs::read_to_string(folder.join(file)).expect("it is there");
            let names = named(&text);
            assert!(names.len() > 5, "{file} names metrics");
            for name in names {
                assert!(
                    is_known(name),
                    "{file}: {name} is not in the list of metrics"
                );
            }
        }
        assert!(!is_known("weir_port_packets") && !is_known("weir_info_total"));
        let dashboard = include_str!("../../../examples/monitoring/grafana.json");
        serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
    }

    #[test]
    fn prometheus_takes_the_alerts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
        let check = Command::new("promtool")
            .args(["check", "rules"])
            .arg(folder.join("alerts.yml"))
            .output();
        let output = match check {
            Ok(output) => output,
            Err(error) => {
                let line = format!(
                    "prometheus_takes_the_alerts: skipped, no promtool ({error}): install prometheus\n"
                );
                let _ = std::io::stderr().write_all(line.as_bytes());
                return;
            }
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    #[test]
    fn samples_are_openmetrics_and_the_rest_of_many_is_one() {
        let carried: Vec<Carried> = (0..CARRIED_MAX as u64 + 50)
            .map(|at| Carried {
                to: format!("via 10.0.0.{at}"),
                packets: at,
                bytes: 100 * at,
                flows: None,
                servers: None,
                down: None,
            })
            .collect();
        let mut samples = Samples::default();
        samples.add(Metric::Info, &["1"], 1);
        samples.add(Metric::Unreadable, &["a \"quoted\"\\name\n"], 1);
        samples.carried("office", "router", &carried);
        let text = written(samples).expect("text");
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(
            text.contains("# TYPE weir_carried_packets counter\n"),
            "{text}"
        );
        assert!(text.contains("weir_info{version=\"1\"} 1\n"), "{text}");
        assert!(
            text.contains(r#"{edge="a \"quoted\"\\name\n"} 1"#),
            "{text}"
        );
        let of = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(of("weir_carried_packets_total{"), CARRIED_MAX + 1);
        let other =
            r#"weir_carried_packets_total{edge="office",function="router",to="other"} 1225"#;
        assert!(text.lines().any(|line| line == other), "{text}");
    }

    #[test]
    fn labels_are_as_many_as_the_family_names() {
        let mut samples = Samples::default();
        let one = Carried {
            to: "web".into(),
            packets: 1,
            bytes: 1,
            flows: Some(1),
            servers: Some([1, 2]),
            down: None,
        };
        samples.carried("e", "f", &[one]);
        samples.agent(&View {
            children: vec![ChildRow {
                edge: Some("e".into()),
                command: "net helper".into(),
                process: None,
                restarts: 3,
                privileges: None,
            }],
            ..View::default()
        });
        assert_eq!(samples.0.last().map(|sample| sample.value), Some(3));
        for sample in samples.0 {
            let family = FAMILIES[sample.metric as usize];
            assert_eq!(sample.labels.len(), family.labels.len(), "{}", family.name);
        }
    }
}
