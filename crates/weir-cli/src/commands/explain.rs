//! `weir explain`: the rules of a policy in words, or which of them match the packets of a capture and why.

use std::process::ExitCode;

use serde::Serialize;
use weir_packet::summary;
use weir_policy::describe;
use weir_policy::model::Policy;
use weir_policy::reference::{
    Input, Meta, Options, Part, PortId, Reference, RuleExplanation, explain,
};

use super::{capture, policy};
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct RuleWords {
    id: u32,
    name: Option<String>,
    line: u32,
    /// The file, if it is one that the policy includes.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip)]
    place: String,
    text: String,
}

#[derive(Serialize)]
struct PacketWords {
    packet: u64,
    summary: String,
    /// Why it is dropped before any rule sees it.
    dropped: Option<&'static str>,
    /// What it has to do with a connection.
    connection: Option<&'static str>,
    rules: Vec<RuleOnPacket>,
}

#[derive(Serialize)]
struct RuleOnPacket {
    id: u32,
    name: Option<String>,
    matched: bool,
    text: String,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let parsed = policy::read(&args.policy)?;
    if let Some(id) = args.rule
        && !parsed.policy.rules.iter().any(|rule| rule.id == id)
    {
        let n = parsed.policy.rules.len();
        return Err(Failure::Usage(format!(
            "no rule {id}; the policy has {}",
            policy::count(n, "rule")
        )));
    }
    match &args.input {
        None => words(args, &parsed.policy),
        Some(_) => packets(args, &parsed.policy),
    }
}

fn words(args: &ExplainArgs, policy: &Policy) -> Result<ExitCode, Failure> {
    let chosen = policy
        .rules
        .iter()
        .filter(|rule| args.rule.is_none_or(|id| rule.id == id));
    let rules: Vec<RuleWords> = chosen
        .map(|rule| RuleWords {
            id: rule.id,
            name: rule.name.clone(),
            line: rule.line,
            file: rule.included.then(|| rule.file.to_string()),
            place: rule.line_text(),
            text: describe(rule),
        })
        .collect();
    if args.json {
        #[derive(Serialize)]
        struct Words {
            rules: Vec<RuleWords>,
        }
        output::json(&Words { rules })?;
        return Ok(ExitCode::SUCCESS);
    }
    for rule in rules {
        output::out(&format!("{}: {}\n", rule.place, rule.text))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn packets(args: &ExplainArgs, policy: &Policy) -> Result<ExitCode, Failure> {
    let Some(path) = &args.input else {
        return words(args, policy);
    };
    let survey = capture::survey(path, args.in_if.as_deref())?;
    if let Some(n) = args.packet
        && (n == 0 || n > survey.packets)
    {
        return Err(Failure::Usage(format!(
            "no packet {n}; the capture has {}",
            policy::count(survey.packets as usize, "packet")
        )));
    }
    let mut capture = capture::open(path)?;
    let mut progress = capture::Progress::new(survey.packets);
    // Connections are those of all packets before, shown or not.
    let mut stateful = policy
        .rules
        .iter()
        .any(|rule| rule.stateful)
        .then(|| Reference::new(policy.clone(), Options::default()));
    let mut all = Vec::new();
    loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => return Err(Failure::failed(format!("{}: {error}", path.display()))),
        };
        let number = packet.number + 1;
        progress.tick(number);
        let wanted = args.packet.is_none_or(|wanted| wanted == number);
        if !wanted && stateful.is_none() {
            continue;
        }
        let port = survey.port_of(&packet);
        let input = Input {
            frame: packet.data,
            now_ns: packet.timestamp_ns,
            number: packet.number,
            port: PortId {
                name: port.and_then(|p| p.name.as_deref()),
                index: port.map_or(u32::MAX, |p| p.index),
            },
            queue: 0,
            meta: Meta::default(),
        };
        let (connection, explained) = match &mut stateful {
            Some(reference) if !wanted => {
                reference.run(input);
                continue;
            }
            Some(reference) => {
                let (outcome, explained) = reference.explain(input);
                (outcome.connection, explained)
            }
            None => (None, explain(policy, &input)),
        };
        let (dropped, rules) = match explained {
            Ok(rules) => (None, rules),
            Err(reason) => (Some(reason), Vec::new()),
        };
        let wanted = |rule: &RuleExplanation| args.rule.is_none_or(|id| rule.rule == id);
        let words = PacketWords {
            packet: number,
            summary: summary(packet.data),
            dropped: dropped.map(|reason| reason.name()),
            connection: connection.map(|part| part_words(part).0),
            rules: rules
                .into_iter()
                .filter(wanted)
                .map(|rule| RuleOnPacket {
                    id: rule.rule,
                    matched: rule.matched,
                    text: rule.to_string(),
                    name: rule.name,
                })
                .collect(),
        };
        if args.json {
            all.push(words);
            continue;
        }
        let mut text = format!("packet {}: {}\n", words.packet, words.summary);
        if let Some(reason) = dropped {
            text.push_str(&format!(
                "  dropped before the rules: {} ({})\n",
                reason.name(),
                reason.text()
            ));
        }
        if let Some(part) = connection {
            text.push_str(&format!("  {}\n", part_words(part).1));
        }
        for rule in words.rules {
            text.push_str(&format!("  {}\n", rule.text));
        }
        output::out(&text)?;
    }
    if args.json {
        #[derive(Serialize)]
        struct Packets {
            packets: Vec<PacketWords>,
        }
        output::json(&Packets { packets: all })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// In JSON, and in words.
fn part_words(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::Opened => ("opened", "opens a connection"),
        Part::Forward => ("forward", "belongs to a connection, original direction"),
        Part::Reverse => ("reverse", "belongs to a connection, reply direction"),
        Part::Error => ("error", "is an error about a packet of a connection"),
    }
}
