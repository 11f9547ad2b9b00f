//! What each tab shows, as rows: made from readings, filtered and sorted. How it is drawn is `draw`'s.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::rates::{listed, short};
use super::row::{rate, rows, text};
use crate::commands::table::grouped;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Of what is left over by columns with a width.
    pub(super) share: u16,
    /// Cells; 0: by share.
    pub(super) width: u16,
    /// Columns of the screen from which on it is shown.
    pub(super) from: u16,
}

const fn wide(title: &'static str, share: u16, from: u16) -> Column {
    Column {
        title,
        share,
        width: 0,
        from,
    }
}

const fn number(title: &'static str, width: u16) -> Column {
    Column {
        title,
        share: 0,
        width,
        from: 0,
    }
}

/// What stands in a cell: text, or a number with what is shown of it, which is put to the right.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Text(String),
    Number(f64, String),
}

impl Field {
    pub(super) fn shown(&self) -> &str {
        match self {
            Field::Text(text) | Field::Number(_, text) => text,
        }
    }

    fn compare(&self, other: &Field) -> Ordering {
        match (self, other) {
            // The largest number first.
            (Field::Number(one, _), Field::Number(two, _)) => two.total_cmp(one),
            _ => self.shown().cmp(other.shown()),
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) fields: Vec<Field>,
    /// Packets are lost here, or something is wrong.
    pub(super) is_alert: bool,
    /// In a sentence, for the row that is selected.
    pub(super) detail: String,
}

/// Rows and their columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// What is said where there are no rows.
    pub(super) empty: &'static str,
}

impl Grid {
    /// Only rows with that text in any field, in the order of a column.
    pub(super) fn arrange(&mut self, filter: &str, sort: Option<usize>, is_reverse: bool) {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| {
            let mut fields = row.fields.iter();
            fields.any(|field| field.shown().to_lowercase().contains(&filter))
        });
        if let Some(column) = sort {
            self.rows.sort_by(|one, two| {
                let (one, two) = (one.fields.get(column), two.fields.get(column));
                match (one, two) {
                    (Some(one), Some(two)) => one.compare(two),
                    _ => Ordering::Equal,
                }
            });
        }
        if is_reverse {
            self.rows.reverse();
        }
    }
}

/// A value twice, and the seconds in between; before the second reading there are no rates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'v> {
    pub(super) before: Option<(&'v Value, f64)>,
    pub(super) now: &'v Value,
}

impl Pair<'_> {
    /// The rate of a counter that a function finds in both.
    fn rate(&self, of: impl Fn(&Value) -> Value) -> Field {
        match self.before {
            Some((before, seconds)) => {
                let rate = rate(&of(before), &of(self.now), seconds);
                Field::Number(rate, short(rate))
            }
            None => Field::Number(0.0, "-".to_owned()),
        }
    }
}

fn total(value: &Value) -> Field {
    let number = value.as_u64().unwrap_or_default();
    Field::Number(number as f64, grouped(number))
}

fn words(value: &Value) -> Field {
    Field::Text(text(value))
}

fn node<'v>(graph: &'v Value, id: &str) -> &'v Value {
    let mut nodes = rows(&graph["nodes"]).iter();
    nodes.find(|node| node["id"] == id).unwrap_or(&Value::Null)
}

const GRAPH: &[Column] = &[
    wide("node", 2, 0),
    number("packets/s", 10),
    number("bits/s", 9),
    number("drops/s", 8),
    wide("leads to", 2, 0),
    wide("verdicts/s", 3, 110),
];

/// Ports, functions, networks and tunnels, in the order in which packets pass them.
pub(super) fn graph(pair: Pair<'_>) -> Grid {
    let links = rows(&pair.now["links"]);
    let names: BTreeMap<&str, String> = rows(&pair.now["nodes"])
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, text(&node["name"]))))
        .collect();
    let name_of = |id: &str| {
        let bare = || id.split_once(':').map_or(id, |(_, name)| name).to_owned();
        names.get(id).cloned().unwrap_or_else(bare)
    };
    let row = |(depth, id): (usize, &str)| {
        let now = node(pair.now, id);
        let counter =
            |member: &'static str| pair.rate(move |graph| node(graph, id)[member].clone());
        let bits = match counter("bytes") {
            Field::Number(rate, _) if pair.before.is_some() => {
                Field::Number(rate * 8.0, short(rate * 8.0))
            }
            other => other,
        };
        let leads: Vec<String> = links
            .iter()
            .filter(|link| link["from"] == id)
            .map(|link| {
                let to = name_of(link["to"].as_str().unwrap_or_default());
                match text(&link["out"]) {
                    out if out.is_empty() => to,
                    out => format!("{out}: {to}"),
                }
            })
            .collect();
        let verdicts = rates(pair, |graph| {
            let all = node(graph, id)["verdicts"].as_object().cloned();
            all.into_iter().flatten().collect()
        });
        let reasons = rates(pair, |graph| {
            let reasons = rows(&node(graph, id)["reasons"]).iter();
            reasons
                .map(|one| (text(&one["reason"]), one["packets"].clone()))
                .collect()
        });
        let verdicts = match reasons.is_empty() {
            true => listed(&verdicts),
            false => format!("{} ({})", listed(&verdicts), listed(&reasons)),
        };
        let drops = counter("drops");
        let warning = now["warning"].as_str();
        Row {
            is_alert: warning.is_some() || matches!(drops, Field::Number(rate, _) if rate > 0.0),
            detail: match warning {
                Some(warning) => format!("{}: {warning}", text(&now["name"])),
                None => format!(
                    "{} {}, {}: {} packets, {} dropped; {verdicts}",
                    text(&now["kind"]),
                    text(&now["name"]),
                    text(&now["detail"]),
                    grouped(now["packets"].as_u64().unwrap_or_default()),
                    grouped(now["drops"].as_u64().unwrap_or_default()),
                ),
            },
            fields: vec![
                Field::Text(format!("{}{}", "  ".repeat(depth), text(&now["name"]))),
                counter("packets"),
                bits,
                drops,
                Field::Text(leads.join(", ")),
                Field::Text(verdicts),
            ],
        }
    };
    // Parts of a network stand below it, and those of graphs before all networks.
    let (graph, parts): (Vec<_>, Vec<_>) = ordered(pair.now)
        .into_iter()
        .partition(|(_, id)| network_of(id).is_none());
    let mut all: Vec<Row> = graph.into_iter().map(row).collect();
    let mut rest = parts;
    for total in rows(&pair.now["networks"]) {
        all.push(network(pair, total));
        let name = total["name"].as_str();
        let (here, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, id)| network_of(id) == name);
        rest = others;
        all.extend(here.into_iter().map(|(depth, id)| row((depth + 1, id))));
    }
    // An agent of an earlier version has no totals.
    all.extend(rest.into_iter().map(row));
    Grid {
        columns: GRAPH,
        rows: all,
        empty: "the edge has neither ports nor networks",
    }
}

/// The network that a node is a part of.
fn network_of(id: &str) -> Option<&str> {
    let (name, _) = id.strip_prefix("network:")?.split_once('/')?;
    Some(name)
}

/// A network as a whole.
fn network(pair: Pair<'_>, total: &Value) -> Row {
    let find = |graph: &Value| {
        let mut all = rows(&graph["networks"]).iter();
        let found = all.find(|one| one["name"] == total["name"]);
        found.cloned().unwrap_or_default()
    };
    let bits = match pair.rate(|graph| find(graph)["bytes"].clone()) {
        Field::Number(rate, _) if pair.before.is_some() => {
            Field::Number(rate * 8.0, short(rate * 8.0))
        }
        other => other,
    };
    let reasons = rates(pair, |graph| {
        let total = find(graph);
        let reasons = rows(&total["reasons"]).iter();
        reasons
            .map(|one| (text(&one["reason"]), one["packets"].clone()))
            .collect()
    });
    let drops = pair.rate(|graph| find(graph)["drops"].clone());
    let number = |name: &str| grouped(total[name].as_u64().unwrap_or_default());
    Row {
        is_alert: matches!(drops, Field::Number(rate, _) if rate > 0.0),
        detail: format!(
            "network {}: {} packets came in, {} dropped; {}",
            text(&total["name"]),
            number("packets"),
            number("drops"),
            listed(&reasons)
        ),
        fields: vec![
            words(&total["name"]),
            pair.rate(|graph| find(graph)["packets"].clone()),
            bits,
            drops,
            Field::Text(String::new()),
            Field::Text(listed(&reasons)),
        ],
    }
}

/// Rates of named counters that are not 0.
fn rates(pair: Pair<'_>, of: impl Fn(&Value) -> BTreeMap<String, Value>) -> BTreeMap<String, f64> {
    let Some((before, seconds)) = pair.before else {
        return BTreeMap::new();
    };
    let before = of(before);
    of(pair.now)
        .into_iter()
        .map(|(name, now)| {
            let earlier = before.get(&name).unwrap_or(&Value::Null);
            let rate = rate(earlier, &now, seconds);
            (name, rate)
        })
        .filter(|(_, rate)| *rate > 0.0)
        .collect()
}

/// Nodes with how far they are from where packets come in; those that are not reached follow.
fn ordered(graph: &Value) -> Vec<(usize, &str)> {
    /// Deeper ones are as far to the right as these.
    const DEEPEST: usize = 4;
    let nodes = rows(&graph["nodes"]);
    let ids = || nodes.iter().filter_map(|node| node["id"].as_str());
    let known: BTreeSet<&str> = ids().collect();
    let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for link in rows(&graph["links"]) {
        if let (Some(from), Some(to)) = (link["from"].as_str(), link["to"].as_str()) {
            targets.entry(from).or_default().push(to);
        }
    }
    let is_port = |id: &&str| id.starts_with("port:");
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for start in ids().filter(is_port).chain(ids()) {
        let mut next = VecDeque::from([(0, start)]);
        while let Some((depth, id)) = next.pop_front() {
            if !known.contains(id) || !seen.insert(id) {
                continue;
            }
            found.push((depth.min(DEEPEST), id));
            for &to in targets.get(id).into_iter().flatten().rev() {
                next.push_front((depth + 1, to));
            }
        }
    }
    found
}

const RULES: &[Column] = &[
    wide("rule", 1, 0),
    number("function", 12),
    number("packets/s", 10),
    number("packets", 13),
    number("dropped", 13),
];

/// Rules of filters with their hits.
pub(super) fn rules(pair: Pair<'_>) -> Grid {
    let find = |status: &Value, function: &str, number: &Value| {
        let edge = &status["edges"][0];
        let mut functions = rows(&edge["functions"]).iter();
        let function = functions.find(|one| one["name"] == function);
        let rules = function.map_or(&[][..], |one| rows(&one["rules"]));
        let rule = rules.iter().find(|rule| rule["number"] == *number);
        rule.map_or(Value::Null, |rule| rule["packets"].clone())
    };
    let mut all = Vec::new();
    for function in rows(&pair.now["edges"][0]["functions"]) {
        let name = text(&function["name"]);
        for rule in rows(&function["rules"]) {
            let hits = pair.rate(|status| find(status, &name, &rule["number"]));
            all.push(Row {
                is_alert: false,
                detail: format!(
                    "{name}, rule {}: {}; {} bytes",
                    rule["number"],
                    text(&rule["rule"]),
                    grouped(rule["bytes"].as_u64().unwrap_or_default())
                ),
                fields: vec![
                    words(&rule["rule"]),
                    Field::Text(name.clone()),
                    hits,
                    total(&rule["packets"]),
                    total(&rule["dropped"]),
                ],
            });
        }
    }
    Grid {
        columns: RULES,
        rows: all,
        empty: "no function counts by rule: filters do, middleboxes of a graph do not",
    }
}

const CONNECTIONS: &[Column] = &[
    wide("connection", 3, 0),
    number("state", 15),
    number("idle", 6),
    number("left", 7),
    number("function", 10),
    wide("translated to", 2, 110),
];

/// Connections of the functions that track them.
pub(super) fn connections(now: &Value) -> Grid {
    let ends = |ends: &Value| {
        let end = |address: &str, port: &str| {
            let address = text(&ends[address]);
            match (ends[port].as_u64(), address.contains(':')) {
                (Some(port), true) => format!("[{address}]:{port}"),
                (Some(port), false) => format!("{address}:{port}"),
                (None, _) => address,
            }
        };
        format!(
            "{} > {}",
            end("source", "source_port"),
            end("destination", "destination_port")
        )
    };
    let time = |value: &Value| {
        let seconds = value.as_u64().unwrap_or_default() as f64 / 1000.0;
        // Sorted like all times: what is longest first.
        Field::Number(seconds, format!("{seconds:.0} s"))
    };
    let mut all = Vec::new();
    for table in rows(&now["tables"]) {
        for one in rows(&table["connections"]) {
            let translated = match one["translated"].is_object() {
                true => ends(&one["translated"]),
                false => String::new(),
            };
            let state = text(&one["state"]);
            all.push(Row {
                is_alert: false,
                detail: format!(
                    "{} {}, {state}, open for {} s{}; of {} of at most {} connections of {}",
                    text(&one["protocol"]),
                    ends(&one["original"]),
                    one["age_ms"].as_u64().unwrap_or_default() / 1000,
                    match translated.is_empty() {
                        true => String::new(),
                        false => format!(", translated to {translated}"),
                    },
                    table["counted"],
                    table["capacity"],
                    text(&table["function"]),
                ),
                fields: vec![
                    Field::Text(ends(&one["original"])),
                    Field::Text(state),
                    time(&one["idle_ms"]),
                    time(&one["expires_ms"]),
                    words(&table["function"]),
                    Field::Text(translated),
                ],
            });
        }
    }
    Grid {
        columns: CONNECTIONS,
        rows: all,
        empty: "no connections: no function tracks any, or none is open",
    }
}

const DROPS: &[Column] = &[
    number("where", 16),
    number("reason", 20),
    number("drops/s", 8),
    number("packets", 13),
    wide("meaning", 1, 0),
];

/// Reasons of drops by where they happen.
pub(super) fn drops(pair: Pair<'_>) -> Grid {
    let find = |graph: &Value, id: &str, reason: &Value| {
        let mut reasons = rows(&node(graph, id)["reasons"]).iter();
        let found = reasons.find(|one| one["reason"] == *reason);
        found.map_or(Value::Null, |one| one["packets"].clone())
    };
    let mut all = Vec::new();
    for node in rows(&pair.now["nodes"]) {
        let id = text(&node["id"]);
        for one in rows(&node["reasons"]) {
            let hits = pair.rate(|graph| find(graph, &id, &one["reason"]));
            all.push(Row {
                is_alert: matches!(hits, Field::Number(rate, _) if rate > 0.0),
                detail: format!(
                    "{}: {}: {}",
                    text(&node["name"]),
                    text(&one["reason"]),
                    text(&one["text"])
                ),
                fields: vec![
                    words(&node["name"]),
                    words(&one["reason"]),
                    hits,
                    total(&one["packets"]),
                    words(&one["text"]),
                ],
            });
        }
    }
    Grid {
        columns: DROPS,
        rows: all,
        empty: "no packet was dropped, and nothing was noted of one",
    }
}

const CAUSES: &[Column] = &[
    number("packets", 10),
    number("where", 16),
    wide("why", 2, 0),
    wide("first packet", 2, 100),
];

/// What a watch of drops found.
pub(super) fn causes(report: &Value) -> Grid {
    let row = |one: &Value| {
        let why: Vec<&str> = rows(&one["why"]).iter().filter_map(Value::as_str).collect();
        let why = why.join(" ");
        Row {
            is_alert: false,
            detail: format!("{why}; first: {}", text(&one["example"])),
            fields: vec![
                total(&one["packets"]),
                words(&one["stage"]),
                Field::Text(why),
                words(&one["example"]),
            ],
        }
    };
    Grid {
        columns: CAUSES,
        rows: rows(&report["drops"]).iter().map(row).collect(),
        empty: "no packet was dropped while it was watched",
    }
}

const WORKERS: &[Column] = &[
    wide("command", 1, 0),
    number("edge", 16),
    number("process", 9),
    number("restarts", 9),
];

/// Commands that the agent keeps alive beside edges.
pub(super) fn workers(now: &Value) -> Grid {
    let row = |one: &Value| {
        let restarts = one["restarts"].as_u64().unwrap_or_default();
        let process = match one["process"].as_u64() {
            Some(process) => Field::Number(process as f64, process.to_string()),
            None => Field::Number(0.0, "ended".to_owned()),
        };
        Row {
            is_alert: one["process"].is_null(),
            detail: format!(
                "weir {}: started again {restarts} times{}",
                text(&one["command"]),
                privileges(&one["privileges"])
            ),
            fields: vec![
                words(&one["command"]),
                words(&one["edge"]),
                process,
                Field::Number(restarts as f64, restarts.to_string()),
            ],
        }
    };
    Grid {
        columns: WORKERS,
        rows: rows(&now["children"]).iter().map(row).collect(),
        empty: "the agent runs no command beside an edge",
    }
}

/// What a process may do, in words; nothing of one that does not run.
fn privileges(of: &Value) -> String {
    let Some(user) = of["user"].as_u64() else {
        return String::new();
    };
    let names: Vec<&str> = (rows(&of["capabilities"]).iter())
        .filter_map(Value::as_str)
        .collect();
    let capabilities = match names.as_slice() {
        [] => "no capabilities".to_owned(),
        names => names.join(", "),
    };
    let filter = match of["seccomp"] == true {
        true => ", system calls filtered",
        false => "",
    };
    let memory = match of["memory"].as_u64() {
        Some(bytes) => format!(", at most {} MiB", bytes >> 20),
        None => String::new(),
    };
    format!("; user {user}, {capabilities}{filter}{memory}")
}
