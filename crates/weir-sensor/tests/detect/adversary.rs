//! Bodies grown against rules, of the rules' own contents: how much work a byte of the worst costs. The work is counted and is the same everywhere, so it is what must stay below a bound;
//! times are printed. The long form (`WEIR_LONG=1`) takes every rule and grows bodies for `WEIR_MINUTES` minutes (60), every other time towards what takes longest.

use std::time::{Duration, Instant};

use weir_sensor::app::{App, Transaction};
use weir_sensor::buffer::Buffer;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::ToServer;
use weir_sensor::rules::*;

use super::build::*;
use super::material::{Numbers, rules_text, say};

/// No input may cost more than so many times the median.
const TIMES: f64 = 20.0;

/// So many of the slowest bodies run again, to print what they take.
const AGAIN: usize = 200;

/// Shapes of rules that published sets have, and some that only malice writes.
const OWN: &str = include_str!("adversary.rules");

/// The conditions of a rule on one buffer, as a rule about a buffer that every test can fill.
struct Target {
    name: String,
    conditions: Vec<Condition>,
    contents: Vec<Content>,
}

fn targets(name: &str, text: &str, one_in: usize, offset: usize) -> Vec<Target> {
    let settings = LoadSettings::default();
    let mut loader = Loader::new(&settings);
    loader.text(name, text.as_bytes());
    let loaded = loader.finish();
    let mut out = Vec::new();
    for rule in loaded.rules.iter().skip(offset).step_by(one_in) {
        for group in rule.groups.iter().filter(|g| g.transforms.is_empty()) {
            let contents: Vec<Content> = group
                .conditions
                .iter()
                .filter_map(|c| match c {
                    Condition::Content(c) if !c.negated && !c.bytes.is_empty() => Some(c.clone()),
                    _ => None,
                })
                .collect();
            let absent = |c: &Condition| matches!(c, Condition::Absent(_));
            if contents.is_empty() || group.conditions.iter().any(absent) {
                continue;
            }
            out.push(Target {
                name: format!("{}:{}", name, rule.sid),
                conditions: group.conditions.clone(),
                contents,
            });
        }
    }
    out
}

/// What one body cost.
#[derive(Clone)]
struct Cost {
    units: f64,
    nanoseconds: f64,
    given_up: bool,
}

struct Victim {
    bed: Bed,
}

impl Victim {
    fn new(conditions: &[Condition]) -> Victim {
        let rule = on(
            1,
            HeaderProtocol::App,
            Buffer::HttpRequestBody,
            conditions.to_vec(),
        );
        Victim {
            bed: Bed::new(vec![rule], Engine::Prefilter, 6, App::Http1),
        }
    }

    /// Units of work for each byte: one for looking for leads, and those of evaluation.
    fn cost(&mut self, body: &[u8]) -> Cost {
        let before = self.bed.detector.counts().evaluation;
        let seconds = self.run(body);
        let after = self.bed.detector.counts().evaluation;
        Cost {
            units: 1.0 + (after.work - before.work) as f64 / body.len() as f64,
            nanoseconds: seconds * 1e9 / body.len() as f64,
            given_up: after.limited > before.limited,
        }
    }

    /// Seconds for a body.
    fn run(&mut self, body: &[u8]) -> f64 {
        let mut transaction = Transaction::default();
        transaction.app = App::Http1;
        transaction.complete = [true, false];
        transaction.push(Buffer::HttpRequestBody, ToServer, body);
        self.bed.state = Default::default();
        let begun = Instant::now();
        self.bed.transaction(&mut transaction, false);
        begun.elapsed().as_secs_f64()
    }

    /// The same once more: what else the machine does only adds to it.
    fn least_nanoseconds(&mut self, body: &[u8], times: usize) -> f64 {
        let runs = (0..times).map(|_| self.run(body));
        runs.fold(f64::INFINITY, f64::min) * 1e9 / body.len() as f64
    }
}

/// A content as it may stand in a body, in its case or another.
fn written(n: &mut Numbers, content: &Content) -> Vec<u8> {
    let mut bytes = content.bytes.clone();
    if content.nocase && n.chance(2) {
        for b in &mut bytes {
            *b = if n.chance(2) {
                b.to_ascii_uppercase()
            } else {
                b.to_ascii_lowercase()
            };
        }
    }
    bytes
}

/// All but the last byte, and another one.
fn almost(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(last) = bytes.last_mut() {
        *last = last.wrapping_add(1);
    }
    bytes
}

/// The bodies to begin with: `kind` says which.
fn body(n: &mut Numbers, target: &Target, kind: usize, size: usize) -> Vec<u8> {
    let contents = &target.contents;
    let mut out = Vec::with_capacity(size + 64);
    // In the wrong order at first, so that whatever leads to the rule is there.
    for content in contents.iter().rev() {
        out.extend(written(n, content));
        out.push(b' ');
    }
    let stuck = n.below(contents.len());
    match kind {
        // Up to one that is repeated, each time with what should be before it, or not.
        0 | 1 => {
            for content in &contents[..stuck] {
                out.extend(written(n, content));
            }
            while out.len() < size {
                let from = if kind == 0 { stuck } else { 0 };
                for content in &contents[from..=stuck] {
                    out.extend(written(n, content));
                }
            }
        }
        // Almost one of them.
        2 => {
            while out.len() < size {
                out.extend(almost(written(n, &contents[stuck])));
            }
        }
        // In any order.
        3 => {
            while out.len() < size {
                let any = n.below(contents.len());
                out.extend(written(n, &contents[any]));
                out.resize(out.len() + n.below(3), b' ');
            }
        }
        // All but the last in order, again and again.
        4 => {
            while out.len() < size {
                for content in &contents[..contents.len() - 1] {
                    out.extend(written(n, content));
                }
                out.extend(almost(written(n, &contents[contents.len() - 1])));
            }
        }
        // Text, with little of it: what most bodies are like.
        _ => {
            while out.len() < size {
                out.extend_from_slice(
                    b"<p class=\"text\">some words of it, and a few more</p>\r\n",
                );
                if n.chance(20) {
                    let any = n.below(contents.len());
                    out.extend(written(n, &contents[any]));
                }
            }
        }
    }
    out
}

/// Another body, of one: a part is replaced by a content, by half of one, by one byte, or by another part.
fn changed(n: &mut Numbers, target: &Target, body: &[u8]) -> Vec<u8> {
    let mut out = body.to_vec();
    let length = 1 + n.below(out.len() / 4);
    let at = n.below(out.len() - length);
    let any = n.below(target.contents.len());
    let piece = match n.below(5) {
        0 => written(n, &target.contents[any]),
        1 => almost(written(n, &target.contents[any])),
        2 => {
            let content = &target.contents[any].bytes;
            vec![content[n.below(content.len())]]
        }
        3 => {
            let from = n.below(body.len() - length);
            body[from..from + 1 + n.below(length)].to_vec()
        }
        _ => vec![n.below(256) as u8],
    };
    for (to, from) in out[at..at + length].iter_mut().zip(piece.iter().cycle()) {
        *to = *from;
    }
    out
}

#[test]
fn no_body_costs_a_rule_much_more_than_others() {
    let long = std::env::var_os("WEIR_LONG").is_some();
    let minutes = std::env::var("WEIR_MINUTES")
        .ok()
        .and_then(|m| m.parse().ok());
    let deadline = Instant::now() + Duration::from_secs(minutes.unwrap_or(60_u64) * 60);
    let (size, one_in) = if long { (32 * 1024, 1) } else { (8192, 11) };
    let mut all = targets("own", OWN, 1, 0);
    assert!(all.len() > 40, "{} rules", all.len());
    if let Some(text) = rules_text() {
        all.extend(targets("published", &text, one_in, 3));
    }
    let mut n = Numbers(22);
    let mut costs: Vec<(f64, f64)> = Vec::new();
    let mut worst: Vec<(Cost, Vec<u8>)> = Vec::new();
    let mut slowest = Vec::new();
    for target in &all {
        let mut victim = Victim::new(&target.conditions);
        let mut most: Option<(Cost, Vec<u8>)> = None;
        let mut longest: Option<(Cost, Vec<u8>)> = None;
        for kind in 0..6 {
            let body = body(&mut n, target, kind, size);
            // Automata are made when an expression is first used.
            if kind == 0 {
                victim.run(&body);
            }
            let cost = victim.cost(&body);
            costs.push((cost.units, cost.nanoseconds));
            let slower = |(l, _): &(Cost, Vec<u8>)| l.nanoseconds < cost.nanoseconds;
            if longest.as_ref().is_none_or(slower) {
                longest = Some((cost.clone(), body.clone()));
            }
            if most.as_ref().is_none_or(|(m, _)| m.units < cost.units) {
                most = Some((cost, body));
            }
        }
        let (Some((mut cost, mut body)), Some(longest)) = (most, longest) else {
            continue;
        };
        for _ in 0..8 {
            grow(&mut n, target, &mut victim, &mut cost, &mut body, false);
        }
        costs.push((cost.units, cost.nanoseconds));
        slowest.push(match longest.0.nanoseconds < cost.nanoseconds {
            true => (cost.clone(), body.clone()),
            false => longest,
        });
        worst.push((cost, body));
    }
    // What costs most goes on growing.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| worst[*b].0.units.total_cmp(&worst[*a].0.units));
    let mut grown = 0;
    'all: for round in 0_usize.. {
        if long && round % 2 == 1 {
            order.sort_by(|a, b| {
                slowest[*b]
                    .0
                    .nanoseconds
                    .total_cmp(&slowest[*a].0.nanoseconds)
            });
        } else {
            order.sort_by(|a, b| worst[*b].0.units.total_cmp(&worst[*a].0.units));
        }
        for at in order
            .iter()
            .take(64.max(order.len() >> (round / 2).min(16)))
        {
            if long && Instant::now() > deadline || !long && grown > 2000 {
                break 'all;
            }
            let mut victim = Victim::new(&all[*at].conditions);
            let by_time = long && round % 2 == 1;
            let best = if by_time { &mut slowest } else { &mut worst };
            let (cost, body) = &mut best[*at];
            victim.run(body);
            for _ in 0..20 {
                grow(&mut n, &all[*at], &mut victim, cost, body, by_time);
            }
            costs.push((cost.units, cost.nanoseconds));
            grown += 20;
        }
    }
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let median = middle(costs.iter().map(|c| c.0).collect());
    let time = middle(costs.iter().map(|c| c.1).collect());
    order.sort_by(|a, b| worst[*b].0.units.total_cmp(&worst[*a].0.units));
    let highest = worst[order[0]].0.units;
    say(&format!(
        "{} rules, {} bodies: median {median:.2} units a byte, {time:.2} ns; the most {highest:.1} units, {:.1} times the median; {} rules given up in their worst body",
        all.len(),
        costs.len() + grown,
        highest / median,
        worst.iter().filter(|(c, _)| c.given_up).count(),
    ));
    say("the worst ten by units:");
    for at in order.iter().take(10) {
        say(&format!(
            "  {}: {:.1} units a byte",
            all[*at].name, worst[*at].0.units
        ));
    }
    say_times(&all, &slowest, time);
    assert!(
        highest <= TIMES * median,
        "{highest:.1} units a byte are more than {TIMES} times the median {median:.2}"
    );
}

/// What the slowest bodies take when they run again: printed, as a busy machine changes it.
fn say_times(all: &[Target], slowest: &[(Cost, Vec<u8>)], median: f64) {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| {
        let of = |at: &usize| slowest[*at].0.nanoseconds;
        of(b).total_cmp(&of(a))
    });
    let mut times: Vec<(f64, usize)> = order
        .iter()
        .take(AGAIN)
        .map(|at| {
            let mut victim = Victim::new(&all[*at].conditions);
            victim.run(&slowest[*at].1);
            (victim.least_nanoseconds(&slowest[*at].1, 7), *at)
        })
        .collect();
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    let most = times.first().map_or(0.0, |(ns, _)| *ns);
    let above = times.iter().filter(|(ns, _)| *ns > TIMES * median).count();
    say(&format!(
        "by time: the most is {most:.1} ns a byte, {:.1} times the median; {above} of the slowest {} rules are above {TIMES} times; the worst ten:",
        most / median,
        times.len()
    ));
    for (ns, at) in times.iter().take(10) {
        let cost = &slowest[*at].0;
        say(&format!(
            "  {}: {ns:.1} ns a byte, {:.1} times the median; {:.1} units, given up: {}",
            all[*at].name,
            ns / median,
            cost.units,
            cost.given_up
        ));
    }
}

fn grow(
    n: &mut Numbers,
    target: &Target,
    victim: &mut Victim,
    cost: &mut Cost,
    body: &mut Vec<u8>,
    by_time: bool,
) {
    let other = changed(n, target, body);
    let mut found = victim.cost(&other);
    if by_time && found.nanoseconds >= cost.nanoseconds {
        found.nanoseconds = victim.least_nanoseconds(&other, 3);
    }
    let worse = match by_time {
        true => found.nanoseconds >= cost.nanoseconds,
        false => found.units >= cost.units,
    };
    if worse {
        (*cost, *body) = (found, other);
    }
}
