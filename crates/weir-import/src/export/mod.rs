//! A policy as a rule set of nftables, and what has no place in it.

mod answers;
mod nft;
mod writes;

use weir_policy::describe;
use weir_policy::field::Header;
use weir_policy::model::{DropWhen, Policy, Rule, Target};

use crate::finding::{Effect, Finding};

use writes::Written;

pub use nft::{Inexpressible, chain, lines_of};

/// What was made of a policy.
#[derive(Clone, Debug)]
pub struct Exported {
    /// For `nft -f`: replaces the table of the same name.
    pub ruleset: String,
    /// Rules that are in it.
    pub rules: usize,
    /// What is not in it, by line of the policy.
    pub findings: Vec<Finding>,
}

/// Lines of one kind that a packet meets, in their order.
#[derive(Debug, Default)]
struct Sections {
    logs: Vec<String>,
    accepts: Vec<String>,
    /// The first that rejects a packet answers it, also where a rule before drops it.
    rejects: Vec<String>,
    drops: Vec<String>,
    /// What is done to packets that pass: nobody sees the others.
    passed: Vec<String>,
}

/// The chain that packets which pass go to, if something is done to them.
const PASSED: &str = "passed";

/// A policy as table `weir` of family netdev, on these interfaces.
pub fn export_nft(policy: &Policy, interfaces: &[String]) -> Exported {
    let mut findings = Vec::new();
    let mut sections = Sections::default();
    // Of each rule whether it has lines; `None`: it is left out whole.
    let mut said: Vec<Option<bool>> = Vec::new();
    for rule in &policy.rules {
        let judged = match policy.connections.timezone != 0 && tests_time(rule) {
            true => Err("nftables tests the time in UTC, and this policy has another time zone"),
            false => verdicts(rule, &mut sections),
        };
        if let Err(reason) = judged {
            findings.push(finding(rule, reason, lost(rule)));
        }
        said.push(judged.ok());
    }
    // A line that sets the mark to 0 stands in front of tests that need several lines.
    let judged = [
        &sections.logs,
        &sections.accepts,
        &sections.rejects,
        &sections.drops,
    ];
    let tested = (judged.into_iter().flatten()).any(|line| line == nft::NO_MARK);
    let mut written = Written::behind(tested);
    for (rule, said) in policy.rules.iter().zip(&mut said) {
        let Some(said) = said else {
            continue;
        };
        let before = sections.passed.len();
        let mut reasons = written.add(rule, &mut sections.passed);
        *said |= sections.passed.len() > before;
        let changes = |target: &Target| matches!(target, Target::ChangeSet(_));
        if rule.targets.iter().any(changes) {
            reasons.push("dynamic sets are not exported");
        }
        for reason in reasons {
            findings.push(finding(rule, reason, Effect::NoChange));
        }
    }
    written.end(&mut sections.passed);
    findings.sort_by_key(|finding: &Finding| finding.line);
    // A rule of a chain may stand for several.
    findings.dedup_by(|one, before| one.line == before.line && one.reason == before.reason);
    Exported {
        ruleset: sections.table(interfaces),
        rules: said.into_iter().filter(|said| *said == Some(true)).count(),
        findings,
    }
}

impl Sections {
    fn table(mut self, interfaces: &[String]) -> String {
        let devices: Vec<String> = interfaces
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect();
        let mut text = "# made by `weir export nft`\ntable netdev weir\ndelete table netdev weir\ntable netdev weir {\n".to_owned();
        if !self.passed.is_empty() {
            text.push_str(&format!("    chain {PASSED} {{\n"));
            for line in &self.passed {
                text.push_str(&format!("        {line}\n"));
            }
            text.push_str("    }\n\n");
            for line in &mut self.accepts {
                if let Some(tests) = line.strip_suffix("accept") {
                    *line = format!("{tests}goto {PASSED}");
                }
            }
        }
        text.push_str(&format!(
            "    chain ingress {{\n        type filter hook ingress devices = {{ {} }} priority 0; policy accept;\n",
            devices.join(", ")
        ));
        for (title, lines) in [
            ("every match is logged", &self.logs),
            ("an accept overrides every drop", &self.accepts),
            ("drops with an answer", &self.rejects),
            ("drops", &self.drops),
        ] {
            if !lines.is_empty() {
                text.push_str(&format!("\n        # {title}\n"));
            }
            for line in lines {
                text.push_str(&format!("        {line}\n"));
            }
        }
        if !self.passed.is_empty() {
            text.push_str(&format!(
                "\n        # what rules write\n        goto {PASSED}\n"
            ));
        }
        text.push_str("    }\n}\n");
        text
    }
}

/// Whether a rule tests when packets come in.
fn tests_time(rule: &Rule) -> bool {
    let mut tested = rule.matches.iter().map(|one| one.subject.field.info());
    tested.any(|info| info.header == Header::Clock)
}

fn finding(rule: &Rule, reason: impl Into<String>, effect: Effect) -> Finding {
    Finding::new(rule.line, &describe(rule), reason, effect)
}

/// What it means that a rule is not there.
fn lost(rule: &Rule) -> Effect {
    let accepts = rule.targets.contains(&Target::Accept);
    let drops = (rule.targets.iter()).any(|target| matches!(target, Target::Drop(_)));
    match (accepts, drops) {
        (true, _) => Effect::Narrower,
        (_, true) => Effect::Wider,
        _ => Effect::NoChange,
    }
}

/// Adds lines that log, accept and drop. Returns whether there are some.
fn verdicts(rule: &Rule, sections: &mut Sections) -> Result<bool, &'static str> {
    if rule.stateful {
        return Err("nftables has no connections at this hook");
    }
    let mut out: [Vec<String>; 4] = Default::default();
    let [logs, accepts, rejects, drops] = &mut out;
    for target in &rule.targets {
        let said = |what: &str| nft::statement(rule, what).map_err(|Inexpressible(what)| what);
        match target {
            Target::Accept => accepts.extend(said("accept")?),
            Target::Drop(DropWhen::Always) => drops.extend(said("drop")?),
            Target::Log { prefix, limit } => {
                let prefix = prefix.replace('"', "'");
                let limit = limit.as_ref().map(nft::limit).unwrap_or_default();
                logs.extend(said(&format!("{limit}log prefix \"{prefix}\""))?);
            }
            Target::Drop(DropWhen::Answered(how)) => {
                for (rule, what) in answers::lines(rule, *how)? {
                    rejects
                        .extend(nft::statement(&rule, &what).map_err(|Inexpressible(what)| what)?);
                }
            }
            Target::Drop(DropWhen::Quota { .. }) => {
                return Err("`quota` of nftables counts bytes without Ethernet headers");
            }
            Target::Drop(DropWhen::OverConnections { .. }) => {
                return Err(
                    "`ct count` needs connection tracking, which comes behind the ingress hook",
                );
            }
            Target::Drop(_) => return Err("nftables counts and draws in another way"),
            _ => {}
        }
    }
    let some = out.iter().any(|lines| !lines.is_empty());
    let parts = [
        &mut sections.logs,
        &mut sections.accepts,
        &mut sections.rejects,
        &mut sections.drops,
    ];
    for (part, lines) in parts.into_iter().zip(out) {
        part.extend(lines);
    }
    Ok(some)
}
