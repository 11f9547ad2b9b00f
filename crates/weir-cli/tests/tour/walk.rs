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

/// What a message advises: alternatives, each some commands.
type Advice = Vec<Vec<String>>;

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
        Ok(()) if trap == Trap::None && !first.advice.is_empty() => {
            return Err(format!("it works, and weir warns: {}", first.said));
        }
        Ok(()) => return Ok(Verdict::Works),
        Err(lost) => lost,
    };
    if trap == Trap::None || first.advice.is_empty() {
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
    advice: Vec<Advice>,
    /// Commands of it that were run.
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
            advice: Vec::new(),
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
            // What it is asked for again and again says nothing new.
            // What it is asked for again and again says nothing new.
            let fresh = match step.is_weir() && !step.asks_weir() {
                true => self.hear(text, &output),
                false => Vec::new(),
            };
            if self.obeys && !fresh.is_empty() {
                fresh.iter().for_each(|advice| self.follow(advice));
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

    /// Notes what a command of weir printed; returns what it advises that is new.
    fn hear(&mut self, command: &str, output: &str) -> Vec<Advice> {
        self.said
            .push_str(&indent(&format!("$ {command}\n{output}")));
        let mut fresh = Vec::new();
        for advice in named(output, host_of(command)) {
            if !self.advice.contains(&advice) {
                self.advice.push(advice.clone());
                fresh.push(advice);
            }
        }
        fresh
    }

    /// Follows a piece of advice: the first of its alternatives that can be followed.
    fn follow(&mut self, advice: &Advice) {
        for commands in advice {
            let ran = commands.iter().all(|command| {
                let done = self.sandbox.run(command, PATIENCE);
                let line = format!("cure: {command}\n{}", done.output());
                self.said.push_str(&indent(&line));
                done.status == Some(0)
            });
            if ran {
                self.cures.extend(commands.iter().cloned());
                return;
            }
        }
    }
}

/// Where `ip netns exec HOST` runs a command.
fn host_of(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip_while(|w| *w != "exec");
    words.nth(1)
}

/// What each line of a text advises: commands in backquotes, which are for `host` unless they say where they are to be run. A key of a configuration
/// is edited: the MAC address of the line that is not in the key becomes that of the key.
fn named(text: &str, host: Option<&str>) -> Vec<Advice> {
    let advice = text.lines().map(|line| {
        let alternatives = line.split(" or ").map(|part| {
            let quoted = part.split('`').skip(1).step_by(2);
            quoted.flat_map(|what| commands(line, what, host)).collect()
        });
        let alternatives = alternatives.filter(|commands: &Vec<String>| !commands.is_empty());
        alternatives.collect::<Advice>()
    });
    advice.filter(|advice| !advice.is_empty()).collect()
}

fn commands(line: &str, what: &str, host: Option<&str>) -> Vec<String> {
    if let Some(new) = what.strip_prefix("mac = \"") {
        let new = new.trim_end_matches('"');
        let olds = macs(line).filter(|old| *old != new);
        return olds
            .map(|old| format!("sed -i 's/{old}/{new}/g' *.toml"))
            .collect();
    }
    let begins = ["ip ", "ethtool ", "sysctl ", "bridge ", "nft ", "nsenter "];
    let places = ["ip netns ", "ip -n ", "nsenter "];
    match host {
        _ if !begins.iter().any(|begin| what.starts_with(begin)) => Vec::new(),
        _ if line.contains("in its namespace") => vec![where_it_is(line, what)],
        Some(host) if !places.iter().any(|place| what.starts_with(place)) => {
            vec![format!("ip netns exec {host} {what}")]
        }
        _ => vec![what.to_owned()],
    }
}

/// A command for the namespace of the device that it names: a reader knows which that is. Here it is the one where the device has a MAC address of
/// the line.
fn where_it_is(line: &str, what: &str) -> String {
    let macs: Vec<&str> = macs(line).collect();
    let device = what.split(' ').skip_while(|word| *word != "dev").nth(1);
    format!(
        "found=1; for ns in $(ls /run/netns); do ip -n $ns -o link show dev {} 2>/dev/null | grep -qE '{}' && ip netns exec $ns {what} && found=0; done; [ $found = 0 ]",
        device.unwrap_or_default(),
        macs.join("|")
    )
}

/// MAC addresses of a line.
fn macs(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_hexdigit() && c != ':');
    let words = words.map(|word| word.trim_matches(':'));
    words.filter(|word| word.len() == 17 && word.split(':').count() == 6)
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

#[test]
fn advice_is_what_stands_in_backquotes() {
    let text = "all is `well`\n\
        it is 02:00:00:00:00:01, not 02:00:00:00:00:02: run `ip link set a` there, or write `mac = \"02:00:00:00:00:01\"`\n\
        `ip netns exec b ethtool -K c gro on`\n";
    let owned = |all: &[&[&str]]| -> Advice {
        all.iter()
            .map(|one| one.iter().map(|c| (*c).to_owned()).collect())
            .collect()
    };
    assert_eq!(
        named(text, Some("lb")),
        [
            owned(&[
                &["ip netns exec lb ip link set a"],
                &["sed -i 's/02:00:00:00:00:02/02:00:00:00:00:01/g' *.toml"]
            ]),
            owned(&[&["ip netns exec b ethtool -K c gro on"]]),
        ]
    );
}
