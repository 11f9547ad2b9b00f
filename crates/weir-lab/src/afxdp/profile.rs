//! A profile: settings that a sweep found best on this machine, with where, when and why; and what becomes of them at `weir xsk --profile`.
//!
//! TOML, written by `weir lab afxdp --recommend` to `/etc/weir/afxdp.toml` (root) or `$XDG_CONFIG_HOME/weir/afxdp.toml`; the user's own is read before the machine's. What a profile
//! names is a measurement under one kernel and driver: [`Profile::doubts`] says when they have changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weir_xsk::{BusyPoll, Mode, Wait};

use super::judgement::Judgement;
use super::recommend::{Goal, usual};
use crate::xsk::Setup;

/// Of the format.
const VERSION: u32 = 1;
/// Longest profile that is read.
const LONGEST: u64 = 1 << 20;

/// Why a profile cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not there, or not readable.
    #[error("cannot read the profile {path}: {source}")]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Cannot be written.
    #[error("cannot write the profile {path}: {source}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a profile.
    #[error("{path} is not a profile: {why}")]
    Malformed {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is none.
    #[error(
        "no measured profile ({looked}): `weir lab afxdp --recommend` measures this machine and writes one"
    )]
    None {
        /// Where it was looked for.
        looked: String,
    },
    /// No place to write to.
    #[error("neither XDG_CONFIG_HOME nor HOME is set: name a file with --profile-out")]
    Nowhere,
    /// There is no choice for what it is wanted for.
    #[error("the profile recommends nothing for {goal}{others}")]
    NotFor {
        /// What for.
        goal: &'static str,
        /// What it has.
        others: String,
    },
    /// A value that this program does not know.
    #[error("the profile's {knob} = \"{value}\" is not a known value")]
    Value {
        /// The setting.
        knob: String,
        /// Its value.
        value: String,
    },
}

/// A profile, read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Of the format.
    pub version: u32,
    /// When it was measured, where the sweep said so.
    pub date: Option<String>,
    /// Kernel it was measured on.
    pub kernel: String,
    /// Driver of the devices.
    pub driver: String,
    /// What else is known of the machine.
    #[serde(default)]
    pub machine: BTreeMap<String, String>,
    /// For short round trips.
    pub latency: Option<Entry>,
    /// For many packets.
    pub throughput: Option<Entry>,
    /// For little CPU time.
    pub cpu: Option<Entry>,
}

/// Settings for one purpose.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The cell of the sweep.
    pub cell: String,
    /// Knob -> value.
    pub settings: BTreeMap<String, String>,
    /// What speaks for it.
    #[serde(default)]
    pub evidence: BTreeMap<String, String>,
}

/// Whose settings of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends, and receives what comes back.
    Prober,
    /// It sends on what it receives.
    Forwarder,
}

/// Settings that were given by flags and stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Generic, copy or zero-copy.
    pub mode: bool,
    /// How threads wait.
    pub wait: bool,
    /// Whether the kernel says when to wake it.
    pub need_wakeup: bool,
    /// Busy polling.
    pub busy_poll: bool,
    /// Any ring: RX, TX, fill, completion.
    pub rings: [bool; 4],
    /// Bytes of a frame in memory.
    pub frame_size: bool,
    /// Real-time priority.
    pub priority: bool,
}

impl Profile {
    /// Of a judgement. None if it recommends nothing.
    pub fn of(judgement: &Judgement) -> Option<Profile> {
        let entry = |goal: Goal| {
            let choices = &judgement.recommendation.choices;
            choices.iter().find(|c| c.goal == goal).map(|c| Entry {
                cell: c.cell.clone(),
                settings: c.settings.clone(),
                evidence: c.evidence.iter().cloned().collect(),
            })
        };
        let profile = Profile {
            version: VERSION,
            date: judgement
                .machine
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case("date"))
                .map(|(_, date)| date.clone()),
            kernel: judgement.kernel.clone(),
            driver: judgement.driver.clone(),
            machine: judgement.machine.iter().cloned().collect(),
            latency: entry(Goal::Latency),
            throughput: entry(Goal::Throughput),
            cpu: entry(Goal::Cpu),
        };
        let any = Goal::ALL.iter().any(|goal| profile.find(*goal).is_some());
        any.then_some(profile)
    }

    /// What it has for a purpose.
    pub fn find(&self, goal: Goal) -> Option<&Entry> {
        match goal {
            Goal::Latency => self.latency.as_ref(),
            Goal::Throughput => self.throughput.as_ref(),
            Goal::Cpu => self.cpu.as_ref(),
        }
    }

    /// What it has for a purpose, or what it has instead.
    pub fn entry(&self, goal: Goal) -> Result<&Entry, ProfileError> {
        self.find(goal).ok_or_else(|| {
            let has: Vec<&str> = Goal::ALL
                .iter()
                .filter(|goal| self.find(**goal).is_some())
                .map(|goal| goal.name())
                .collect();
            ProfileError::NotFor {
                goal: goal.name(),
                others: match has.is_empty() {
                    true => String::new(),
                    false => format!("; it does for {}", has.join(", ")),
                },
            }
        })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let read = |source| ProfileError::Read {
            path: path.to_owned(),
            source,
        };
        let malformed = |why: String| ProfileError::Malformed {
            path: path.to_owned(),
            why,
        };
        if std::fs::metadata(path).map_err(read)?.len() > LONGEST {
            return Err(malformed(format!("it is longer than {LONGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let profile: Profile =
            toml::from_str(&text).map_err(|e| malformed(e.to_string().trim_end().to_owned()))?;
        if profile.version != VERSION {
            return Err(malformed(format!(
                "its version is {}, and this weir reads {VERSION}",
                profile.version
            )));
        }
        Ok(profile)
    }

    /// The one to use where a user says `measured`, and where it was.
    pub fn measured(places: &[PathBuf]) -> Result<(PathBuf, Profile), ProfileError> {
        for path in places {
            match Profile::read(path) {
                Err(ProfileError::Read { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                read => return read.map(|profile| (path.clone(), profile)),
            }
        }
        let looked: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        Err(ProfileError::None {
            looked: looked.join(", "),
        })
    }

    /// Writes a file, its folder first. What is there is replaced in one step.
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let write = || {
            if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
                std::fs::create_dir_all(folder)?;
            }
            let mut beside = path.as_os_str().to_owned();
            beside.push(".new");
            std::fs::write(&beside, self.text())?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|source| ProfileError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// As TOML.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# Settings of AF_XDP sockets that `weir lab afxdp --recommend` found best on this machine.\n\
             # `weir xsk --profile measured` uses them; `weir doctor` says when they are older than the kernel.\n",
        );
        let _ = writeln!(text, "version = {}", self.version);
        if let Some(date) = &self.date {
            let _ = writeln!(text, "date = {}", quoted(date));
        }
        let _ = writeln!(text, "kernel = {}", quoted(&self.kernel));
        let _ = writeln!(text, "driver = {}", quoted(&self.driver));
        table(&mut text, "machine", &self.machine);
        for goal in Goal::ALL {
            if let Some(entry) = self.find(goal) {
                let name = goal.name();
                let _ = writeln!(text, "\n[{name}]\ncell = {}", quoted(&entry.cell));
                table(&mut text, &format!("{name}.settings"), &entry.settings);
                table(&mut text, &format!("{name}.evidence"), &entry.evidence);
            }
        }
        text
    }

    /// Why it may not hold any more: a sentence for each. `devices` are names and drivers of those there are.
    pub fn doubts(&self, kernel: &str, devices: &[(String, String)]) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.kernel != kernel {
            let order = match release(&self.kernel).cmp(&release(kernel)) {
                std::cmp::Ordering::Less => "older than",
                std::cmp::Ordering::Greater => "newer than",
                std::cmp::Ordering::Equal => "a different build from",
            };
            doubts.push(format!(
                "it was measured on Linux {}, {order} the running {kernel}: measure again with `weir lab afxdp --recommend`",
                self.kernel
            ));
        }
        if !devices.is_empty() && devices.iter().all(|(_, driver)| *driver != self.driver) {
            let mut there: Vec<String> = devices
                .iter()
                .filter(|(_, driver)| !driver.is_empty())
                .map(|(name, driver)| format!("{name}: {driver}"))
                .collect();
            there.sort();
            let there = match there.is_empty() {
                true => "none says its driver".to_owned(),
                false => there.join(", "),
            };
            doubts.push(format!(
                "it was measured with the driver {}, which no device here has ({there})",
                self.driver
            ));
        }
        doubts
    }
}

impl Entry {
    /// Puts socket settings where no flag says otherwise. Returns those that differ from usual and are no socket's, so that they were left alone.
    pub fn apply(
        &self,
        role: Role,
        given: Given,
        setup: &mut Setup,
    ) -> Result<Vec<String>, ProfileError> {
        let own_wait = match role {
            Role::Prober => "prober_wait",
            Role::Forwarder => "forwarder_wait",
        };
        let mut left = Vec::new();
        for (knob, value) in &self.settings {
            let unknown = || ProfileError::Value {
                knob: knob.clone(),
                value: value.clone(),
            };
            let number = || value.parse::<u32>().map_err(|_| unknown());
            match knob.as_str() {
                "mode" => {
                    let (generic, mode) = match value.as_str() {
                        "generic" => (true, Mode::Copy),
                        "copy" => (false, Mode::Copy),
                        "zero-copy" => (false, Mode::ZeroCopy),
                        _ => return Err(unknown()),
                    };
                    if !given.mode {
                        setup.generic = generic;
                        setup.socket.mode = mode;
                    }
                }
                "forwarder_wait" | "prober_wait" => {
                    let wait = match value.as_str() {
                        "spin" => Wait::Spin,
                        "call" => Wait::SpinCalling,
                        "poll" => Wait::Poll,
                        _ => return Err(unknown()),
                    };
                    if knob == own_wait && !given.wait {
                        setup.wait = wait;
                    }
                }
                "need_wakeup" => {
                    let on = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(unknown()),
                    };
                    if !given.need_wakeup {
                        setup.socket.need_wakeup = on;
                    }
                }
                "busy_poll" => {
                    let polling = busy_poll(value).ok_or_else(unknown)?;
                    if !given.busy_poll {
                        setup.socket.busy_poll = polling;
                    }
                }
                "ring" => {
                    let entries = number()?;
                    let [rx, tx, fill, completion] = given.rings;
                    let socket = &mut setup.socket;
                    for (given, ring) in [
                        (rx, &mut socket.rx),
                        (tx, &mut socket.tx),
                        (fill, &mut socket.fill),
                        (completion, &mut socket.completion),
                    ] {
                        if !given {
                            *ring = entries;
                        }
                    }
                }
                "frame_size" => {
                    let size = number()?;
                    if !given.frame_size {
                        setup.umem.frame_size = size;
                    }
                }
                "priority" => {
                    let priority = u8::try_from(number()?).map_err(|_| unknown())?;
                    if !given.priority {
                        setup.priority = (priority > 0).then_some(priority);
                    }
                }
                _ if usual(knob).as_ref() == Some(value) => {}
                _ => left.push(format!("{knob} {value}")),
            }
        }
        Ok(left)
    }
}

/// `off` or `20us/64`.
fn busy_poll(text: &str) -> Option<Option<BusyPoll>> {
    if text == "off" {
        return Some(None);
    }
    let (time, budget) = text.split_once('/')?;
    let micros = weir_value::duration(time).ok()?.as_micros();
    Some(Some(BusyPoll {
        micros: (1..=1_000_000).contains(&micros).then_some(micros as u32)?,
        budget: budget.parse().ok()?,
        prefer: true,
    }))
}

/// Numbers of a release, for putting releases in order.
fn release(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .take(3)
        .map_while(|part| part.parse().ok())
        .collect()
}

/// A basic string of TOML: JSON's escapes are a part of TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\x7f', "\\u007f")
}

fn table(text: &mut String, name: &str, values: &BTreeMap<String, String>) {
    let _ = writeln!(text, "\n[{name}]");
    for (key, value) in values {
        let _ = writeln!(text, "{} = {}", quoted(key), quoted(value));
    }
}

/// The machine's profile.
pub const MACHINE: &str = "/etc/weir/afxdp.toml";

/// Where profiles are looked for, the user's own first. `variable` reads the environment.
pub fn places(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Vec<PathBuf> {
    own_place(variable)
        .into_iter()
        .chain([PathBuf::from(MACHINE)])
        .collect()
}

/// Where a profile is written to: root's is the machine's.
pub fn place_to_write(
    root: bool,
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<PathBuf, ProfileError> {
    if root {
        return Ok(PathBuf::from(MACHINE));
    }
    own_place(variable).ok_or(ProfileError::Nowhere)
}

fn own_place(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let folder = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        // The specification has relative ones ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(folder.join("weir").join("afxdp.toml"))
}
