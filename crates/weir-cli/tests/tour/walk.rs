//! A reader walks through a part of a tutorial, in a sandbox, with or without a trap: it works; or what weir printed names commands that cure it, and
//! with those it works; or packets are lost in silence, which is the failure that these tests are about.

use std::fmt;
use std::time::{Duration, Instant};

use super::page::{Section, Step, Tutorial, What, is_shown};
use super::sandbox::{Done, Sandbox};
use super::traps::Trap;

/// A command that does not end by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a reader asks again what weir's state is, and waits for a command that stays to say that it is ready.
const ASKING: Duration = Duration::from_secs(15);

/// How a walk ended well.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Works,
    /// With these commands, which weir named.
    Cured(Vec<String>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Works => f.write_str("works"),
            Verdict::Cured(cures) => write!(f, "told: {}", cures.join("; ")),
        }
    }
}

/// A step that did not do what the page says.
#[derive(Clone, Debug)]
struct Failure {
    what: String,
}

/// Walks through these parts of a tutorial, one after the other, behind its set-up. The error says what was lost, and what weir had said.
pub(crate) fn walk(
    tutorial: &Tutorial,
    sections: &[Section],
    trap: Trap,
) -> Result<Verdict, String> {
    let mut first = Walk::new(tutorial, trap, false);
    let lost = match first.all(tutorial, sections) {
        Ok(()) if trap == Trap::None && !first.cures.is_empty() => {
            return Err(format!("it works, and weir warns: {}", first.said));
        }
        Ok(()) => return Ok(Verdict::Works),
        Err(lost) => lost,
    };
    if trap == Trap::None || first.cures.is_empty() {
        return Err(format!(
            "{}\nweir named no cure; it said:\n{}",
            lost.what, first.said
        ));
    }
    drop(first);
    let mut second = Walk::new(tutorial, trap, true);
    match second.all(tutorial, sections) {
        Ok(()) => Ok(Verdict::Cured(second.cures)),
        Err(still) => Err(format!(
            "{}\nand with the cures that weir named ({}):\n{}\nweir said:\n{}",
            lost.what,
            second.cures.join("; "),
            still.what,
            second.said
        )),
    }
}

struct Walk {
    page: String,
    sandbox: Sandbox,
    trap: Trap,
    /// The trap is still to be set.
    armed: bool,
    /// Whether commands that weir names are run.
    obeys: bool,
    cures: Vec<String>,
    /// What commands of weir printed.
    said: String,
}

impl Walk {
    fn new(tutorial: &Tutorial, trap: Trap, obeys: bool) -> Walk {
        Walk {
            page: tutorial.page.clone(),
            sandbox: Sandbox::start(),
            trap,
            armed: true,
            obeys,
            cures: Vec::new(),
            said: String::new(),
        }
    }

    fn all(&mut self, tutorial: &Tutorial, sections: &[Section]) -> Result<(), Failure> {
        let steps = sections.iter().flat_map(|section| &section.steps);
        for step in tutorial.setup.iter().chain(steps) {
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let (text, shows) = match &step.what {
            What::File { name, text } => {
                self.sandbox.save(name, text);
                return Ok(());
            }
            What::Command { text, shows } => (text, shows),
        };
        if step.is_weir() && self.armed {
            self.armed = false;
            let done = self.sandbox.run(&self.trap.script(), PATIENCE);
            assert_eq!(done.status, Some(0), "{}: {}", self.trap, done.output());
        }
        let started = Instant::now();
        loop {
            let done = self.sandbox.run(text, PATIENCE);
            if step.stays() {
                settle(text, &done);
            }
            let output = done.output();
            let fresh = if step.is_weir() {
                self.hear(text, &output)
            } else {
                Vec::new()
            };
            if self.obeys && !fresh.is_empty() {
                self.cure(&fresh);
                // What was refused, or half done, is asked for again; what stays has not ended.
                if !step.stays() {
                    continue;
                }
            }
            let shown = shows.is_empty() || is_shown(shows, &output);
            if done.status == Some(0) && shown {
                return Ok(());
            }
            if step.asks_weir() && started.elapsed() < ASKING {
                std::thread::sleep(Duration::from_millis(300));
                continue;
            }
            let status = match done.status {
                Some(status) => format!("status {status}"),
                None => format!("no end in {PATIENCE:?}"),
            };
            let expected = if shows.is_empty() {
                String::new()
            } else {
                format!("\nthe page shows:\n{}", indent(&shows.join("\n")))
            };
            return Err(Failure {
                what: format!(
                    "{}:{}: {text}\n{status}, and printed:\n{}{expected}",
                    self.page,
                    step.line,
                    indent(&output)
                ),
            });
        }
    }

    /// Notes what a command of weir printed; returns the cures in it that are new, as they are to be run.
    fn hear(&mut self, command: &str, output: &str) -> Vec<String> {
        self.said
            .push_str(&indent(&format!("$ {command}\n{output}")));
        let host = host_of(command);
        let mut fresh = Vec::new();
        for cure in named(output) {
            let cure = match host {
                Some(host) if !cure.starts_with("ip netns") && !cure.starts_with("sed") => {
                    format!("ip netns exec {host} {cure}")
                }
                _ => cure,
            };
            if !self.cures.contains(&cure) && !fresh.contains(&cure) {
                fresh.push(cure);
            }
        }
        self.cures.extend(fresh.iter().cloned());
        fresh
    }

    fn cure(&mut self, cures: &[String]) {
        for cure in cures {
            let done = self.sandbox.run(cure, PATIENCE);
            // A cure that cannot be run shows as what stays lost; its output is told there.
            self.said
                .push_str(&indent(&format!("cure: {cure}\n{}", done.output())));
        }
    }
}

/// Where `ip netns exec HOST` runs a command.
fn host_of(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip_while(|w| *w != "exec");
    words.nth(1)
}

/// Commands that a text names in backquotes. A key of a configuration that it names is edited: the MAC address of the sentence that is not in
/// the key becomes that of the key.
fn named(text: &str) -> Vec<String> {
    let begins = ["ip ", "ethtool ", "sysctl ", "bridge ", "nft "];
    let mut cures = Vec::new();
    for line in text.lines() {
        for part in line.split('`').skip(1).step_by(2) {
            if begins.iter().any(|begin| part.starts_with(begin)) {
                cures.push(part.to_owned());
            }
            if let Some(new) = part.strip_prefix("mac = \"") {
                let new = new.trim_end_matches('"');
                let words = line.split(|c: char| !c.is_ascii_hexdigit() && c != ':');
                let words = words.map(|word| word.trim_matches(':'));
                let olds = words.filter(|w| w.len() == 17 && w.contains(':') && *w != new);
                cures.extend(olds.map(|old| format!("sed -i 's/{old}/{new}/g' *.toml")));
            }
        }
    }
    cures
}

/// Waits until `weir run` says that it is at work; of others that stay the next commands show it.
fn settle(command: &str, done: &Done) {
    let end = Instant::now() + ASKING;
    while command.contains("weir run") && !done.output().contains("attached to") {
        if Instant::now() > end {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
