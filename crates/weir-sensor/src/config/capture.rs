//! How interfaces are read, as entries of `af-packet` say it (`bypass`, `threads`): the entry of the interface's name, and that of `default` for what it leaves out.
//!
//! `cluster-id` and `cluster-type` change nothing: a sensor's threads share frames in a group that the kernel numbers. A number that every usual configuration has would divide the traffic between
//! sensors that know nothing of each other.

use std::num::NonZeroU16;
use std::thread::available_parallelism;

use super::SensorConfig;
use crate::settings::{Settings, SettingsError};

/// The entry for interfaces that have none.
const DEFAULT: &str = "default";

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Name of the interface, or `default`.
    pub interface: String,
    /// Whether the kernel keeps packets of bypassed flows away.
    pub bypass: Option<bool>,
    /// Threads that read and inspect; one for each CPU if it is not a number.
    pub threads: Option<Threads>,
}

/// How many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for each CPU.
    Auto,
    /// So many.
    Count(NonZeroU16),
}

impl Threads {
    /// As many as there are CPUs, but not more than slices of state.
    fn count(self, slices: u16) -> u16 {
        match self {
            Threads::Count(count) => count.get(),
            Threads::Auto => {
                let cpus = available_parallelism().map_or(1, usize::from);
                u16::try_from(cpus).unwrap_or(u16::MAX).min(slices)
            }
        }
    }
}

/// The entries.
///
/// # Errors
/// A value means nothing for its key.
pub(super) fn captures(s: &Settings) -> Result<Vec<Capture>, SettingsError> {
    let mut all = Vec::new();
    for n in s.keys("af-packet") {
        let key = |name: &str| format!("af-packet.{n}.{name}");
        let Some(interface) = s.text(&key("interface")) else {
            continue;
        };
        let threads = match s.text(&key("threads")) {
            None => None,
            Some(value) if value == "auto" => Some(Threads::Auto),
            Some(value) => match value.parse() {
                Ok(count) => Some(Threads::Count(count)),
                Err(_) => {
                    return Err(SettingsError::Value {
                        key: key("threads"),
                        value,
                        expected: "auto, or a number from 1",
                    });
                }
            },
        };
        all.push(Capture {
            interface,
            bypass: s.truth(&key("bypass"))?,
            threads,
        });
    }
    Ok(all)
}

impl SensorConfig {
    /// What entries say about some interfaces.
    fn said<T>(
        &self,
        interfaces: &[String],
        key: impl Fn(&Capture) -> Option<T>,
    ) -> Vec<Option<T>> {
        let entry = |name: &str| {
            let mut of_name = self.captures.iter().filter(|c| c.interface == name);
            of_name.find_map(&key)
        };
        let each = interfaces.iter();
        each.map(|name| entry(name).or_else(|| entry(DEFAULT)))
            .collect()
    }

    /// Whether the kernel keeps packets of bypassed flows away on these interfaces. It does so on all of them or on none: one `yes` counts, `no` only if all say it.
    pub fn keeps_away(&self, interfaces: &[String]) -> Option<bool> {
        let said = self.said(interfaces, |c| c.bypass);
        match said.contains(&Some(true)) {
            true => Some(true),
            false => {
                (!said.is_empty() && said.iter().all(|one| *one == Some(false))).then_some(false)
            }
        }
    }

    /// Threads for these interfaces, each of which reads all of them: the most that is said.
    pub fn threads(&self, interfaces: &[String]) -> Option<u16> {
        let said = self.said(interfaces, |c| c.threads);
        let counts = said.into_iter().flatten();
        counts.map(|threads| threads.count(self.slices)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<SensorConfig, SettingsError> {
        SensorConfig::from_settings(&Settings::parse(text, false).expect("YAML"))
    }

    #[test]
    fn entries_by_interface() {
        let text = "af-packet:\n  - interface: a\n    bypass: yes\n    cluster-id: 99\n  - interface: b\n    threads: 3\n  - interface: c\n    bypass: no\n    threads: 5\n  - interface: default\n    bypass: no\n    threads: 2\n";
        let config = config(text).expect("right");
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for (list, bypass, threads) in [
            (&["a"][..], Some(true), Some(2)),
            (&["b"], Some(false), Some(3)),
            (&["other"], Some(false), Some(2)),
            (&["b", "c"], Some(false), Some(5)),
            (&["a", "c"], Some(true), Some(5)),
        ] {
            let list = names(list);
            assert_eq!(config.keeps_away(&list), bypass, "{list:?}");
            assert_eq!(config.threads(&list), threads, "{list:?}");
        }
        let silent = SensorConfig::default();
        assert_eq!(silent.keeps_away(&names(&["a"])), None);
        assert_eq!(silent.threads(&names(&["a"])), None);
    }

    #[test]
    fn one_silent_entry_leaves_the_choice_to_the_kernel() {
        let text =
            "af-packet:\n  - interface: a\n    bypass: no\n  - interface: b\n    threads: auto\n";
        let config = config(text).expect("right");
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(config.keeps_away(&names), None);
        assert_eq!(config.keeps_away(&names[..1]), Some(false));
        let cpus = config.threads(&names).expect("said");
        assert!((1..=config.slices).contains(&cpus), "{cpus}");
    }

    #[test]
    fn other_values_are_errors() {
        for wrong in [
            "threads: 0",
            "threads: many",
            "threads: -1",
            "bypass: sometimes",
        ] {
            let text = format!("af-packet:\n  - interface: a\n    {wrong}\n");
            assert!(config(&text).is_err(), "{wrong}");
        }
    }
}
