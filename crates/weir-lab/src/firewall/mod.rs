//! `weir lab firewall`: the same packets through weir on XDP, weir on tc and nftables with connection tracking, case by case.
//!
//! Cases are text (`cases/*.fw`, docs/firewall-bed.md): who sends which segment, and which must arrive where, with what translation. A case passes if
//! both hooks of weir do what it says, and let pass no abuse that nftables drops.

mod bed;
mod device;
mod play;
pub mod random;
mod script;
mod segment;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::process::{Scratch, missing};
use bed::Bed;
use script::{Case, Policy};
use segment::World;

pub use device::Device;
pub use play::{Came, Judged};
pub use script::ScriptError;
pub use table::table;

/// Policies, and cases in the order of the table.
const POLICIES: &str = include_str!("cases/policies.fw");
const CASES: [(&str, &str); 6] = [
    ("tcp.fw", include_str!("cases/tcp.fw")),
    ("handshake.fw", include_str!("cases/handshake.fw")),
    ("icmp.fw", include_str!("cases/icmp.fw")),
    ("fragments.fw", include_str!("cases/fragments.fw")),
    ("nat.fw", include_str!("cases/nat.fw")),
    ("other.fw", include_str!("cases/other.fw")),
];
/// Cases of one run: blocks of addresses are 1 to 250.
const MOST: usize = 250;

/// What to run.
#[derive(Debug)]
pub struct FirewallOptions {
    /// The program weir.
    pub weir: PathBuf,
    /// Devices; in the order of [`Device::ALL`].
    pub devices: Vec<Device>,
    /// Only cases with one of these texts in group or title; none: all.
    pub only: Vec<String>,
    /// Only these policies; none: all.
    pub policies: Vec<String>,
    /// Cases of these files instead of the built-in ones.
    pub files: Vec<PathBuf>,
}

/// A case under a policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Group of the case.
    pub group: String,
    /// What it is.
    pub title: String,
    /// Who says what must happen.
    pub cite: String,
    /// What a reader should know beside it.
    pub note: Option<String>,
    /// Why weir may let pass what nftables drops.
    pub argued: Option<String>,
    /// The policy.
    pub policy: String,
    /// Judged steps by device.
    pub steps: BTreeMap<Device, Vec<Judged>>,
}

/// What is said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// weir does what the case says, and so does nftables.
    Same,
    /// weir does, and drops abuse that nftables lets pass.
    Stricter,
    /// weir does, and nftables breaks what is legitimate.
    Better,
    /// weir lets pass what nftables drops, and the case says why that does no harm.
    Argued,
    /// weir lets abuse pass that nftables drops.
    Laxer,
    /// weir does not do what the case says.
    Fails,
}

impl Verdict {
    /// As the table says it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Stricter => "stricter",
            Verdict::Better => "better",
            Verdict::Argued => "argued",
            Verdict::Laxer => "LAXER",
            Verdict::Fails => "FAILS",
        }
    }
}

impl Row {
    /// What is said of it.
    pub fn verdict(&self) -> Verdict {
        let weir = self.steps.iter().filter(|(d, _)| d.is_weir());
        if weir.clone().any(|(_, steps)| !steps.iter().all(Judged::ok)) {
            return Verdict::Fails;
        }
        let Some(other) = self.steps.get(&Device::Nftables) else {
            return Verdict::Same;
        };
        // A step that could not be sent says nothing about the device.
        let laxer = |(_, steps): (&Device, &Vec<Judged>)| {
            (steps.iter().zip(other)).any(|(own, other)| {
                own.abuse && own.came == Came::Passed && other.came == Came::Dropped
            })
        };
        if weir.clone().any(laxer) {
            return match self.argued {
                Some(_) => Verdict::Argued,
                None => Verdict::Laxer,
            };
        }
        let breaks = |judged: &&Judged| !judged.abuse && !judged.ok();
        if other
            .iter()
            .any(|judged| judged.abuse && !judged.ok() && !judged.passes)
        {
            Verdict::Stricter
        } else if other.iter().any(|judged| breaks(&judged)) {
            Verdict::Better
        } else {
            Verdict::Same
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FirewallOutcome {
    /// All cases under their policies.
    pub rows: Vec<Row>,
    /// Reasons that weir counted otherwise than the cases say.
    pub counters: Vec<String>,
}

impl FirewallOutcome {
    /// Whether all is as it must be.
    pub fn ok(&self) -> bool {
        let holds = |row: &Row| !matches!(row.verdict(), Verdict::Fails | Verdict::Laxer);
        self.counters.is_empty() && self.rows.iter().all(holds)
    }
}

/// Runs cases against devices.
pub fn firewall(options: &FirewallOptions) -> Result<FirewallOutcome, LabError> {
    let mut tools = vec!["ip", "ethtool"];
    if options.devices.contains(&Device::Nftables) {
        tools.push("nft");
    }
    let missing = missing(&tools);
    if !missing.is_empty() {
        return Err(LabError::MissingTools(missing));
    }
    let policies = script::policies(POLICIES).map_err(|e| failed("policies.fw", &e))?;
    let cases = selected(options)?;
    for case in &cases {
        for name in &case.policies {
            if !policies.iter().any(|p| p.name == *name) {
                return Err(LabError::Engine(format!(
                    "{}: no policy `{name}`",
                    case.title
                )));
            }
        }
    }
    let scratch = Scratch::create("weir-firewall")?;
    let mut outcome = FirewallOutcome {
        rows: Vec::new(),
        counters: Vec::new(),
    };
    for policy in &policies {
        if !options.policies.is_empty() && !options.policies.contains(&policy.name) {
            continue;
        }
        let under: Vec<&Case> = cases
            .iter()
            .filter(|c| c.policies.contains(&policy.name))
            .collect();
        for part in under.chunks(MOST) {
            run_policy(options, policy, part, &scratch, &mut outcome)?;
        }
    }
    let place = |row: &Row| cases.iter().position(|case| case.title == row.title);
    outcome.rows.sort_by_key(place);
    Ok(outcome)
}

fn selected(options: &FirewallOptions) -> Result<Vec<Case>, LabError> {
    let mut cases = Vec::new();
    if options.files.is_empty() {
        for (name, text) in CASES {
            cases.extend(script::cases(text).map_err(|e| failed(name, &e))?);
        }
    }
    for file in &options.files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(LabError::io(format!("read {name}")))?;
        cases.extend(script::cases(&text).map_err(|e| failed(&name, &e))?);
    }
    let mut titles = BTreeSet::new();
    if let Some(twice) = cases.iter().find(|case| !titles.insert(case.title.clone())) {
        return Err(LabError::Engine(format!(
            "two cases are named `{}`",
            twice.title
        )));
    }
    cases.retain(|case| {
        options.only.is_empty()
            || (options.only.iter()).any(|o| case.title.contains(o) || case.group.contains(o))
    });
    Ok(cases)
}

fn failed(file: &str, error: &ScriptError) -> LabError {
    LabError::Engine(format!("{file}: {error}"))
}

/// All cases of a policy, device by device.
fn run_policy(
    options: &FirewallOptions,
    policy: &Policy,
    cases: &[&Case],
    scratch: &Scratch,
    outcome: &mut FirewallOutcome,
) -> Result<(), LabError> {
    if cases.is_empty() {
        return Ok(());
    }
    let first = outcome.rows.len();
    outcome.rows.extend(cases.iter().map(|case| Row {
        group: case.group.clone(),
        title: case.title.clone(),
        cite: case.cite.clone(),
        note: case.note.clone(),
        argued: case.argued.clone(),
        policy: policy.name.clone(),
        steps: BTreeMap::new(),
    }));
    let blocks: Vec<u8> = (1..).take(cases.len()).collect();
    let worlds: Vec<(&Case, u8, World)> = cases
        .iter()
        .zip(&blocks)
        .map(|(case, block)| (*case, *block, World::new(policy, *block, case.ip6)))
        .collect();
    for &device in &options.devices {
        // The thread ends, and with it that it stays on one CPU.
        let (judged, report) = std::thread::scope(|scope| {
            let run = || {
                bed::pin()?;
                let mut bed = Bed::build()?;
                let standing =
                    device::stand(device, policy, &blocks, &bed.middle, &options.weir, scratch)?;
                let judged = play::play(&mut bed, &worlds)?;
                Ok::<_, LabError>((judged, standing.stop()?))
            };
            match scope.spawn(run).join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        if let Some(report) = &report {
            let wrong = counters(&judged, &report["reasons"]);
            let line = |wrong| format!("{}, policy {}: {wrong}", device.name(), policy.name);
            outcome.counters.extend(wrong.into_iter().map(line));
        }
        for (row, judged) in outcome.rows[first..].iter_mut().zip(judged) {
            row.steps.insert(device, judged);
        }
    }
    Ok(())
}

/// Reasons that some step names and that were counted more or less often than steps name them.
fn counters(judged: &[Vec<Judged>], reasons: &serde_json::Value) -> Vec<String> {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for step in judged.iter().flatten() {
        if let Some(reason) = &step.reason {
            *expected.entry(reason).or_default() += step.times;
        }
    }
    let counted = |reason: &str| reasons[reason].as_u64().unwrap_or(0);
    expected
        .into_iter()
        .filter(|(reason, expected)| counted(reason) != *expected)
        .map(|(reason, n)| format!("{reason}: {} counted, {n} expected", counted(reason)))
        .collect()
}
