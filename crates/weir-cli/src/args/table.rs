//! The table of commands as it is shown: with examples, the version, and the list of commands in groups. Help, man pages and completions
//! are made from it.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::{Args, LabProgram, examples};

/// Every command of `weir --help`, in groups. A line of two has both names, with a comma.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Policy",
        &[
            "check",
            "fmt",
            "import",
            "export",
            "explain",
            "tables",
            "replay",
            "run",
            "rule",
            "connections",
            "set",
        ],
    ),
    (
        "Graph",
        &[
            "init",
            "plan",
            "apply",
            "diff",
            "status",
            "top, logs",
            "drops",
            "trace",
            "capture",
            "route",
            "service",
            "agent, page",
            "history",
            "rollback",
            "down",
        ],
    ),
    ("Networks", &["net"]),
    ("Sensor", &["sensor"]),
    ("Programs", &["prog"]),
    (
        "Tools",
        &[
            "generate",
            "xsk",
            "doctor",
            "lab, bench",
            "completions, man",
        ],
    ),
];

/// What commands do that share a line.
const TOGETHER: &[(&str, &str)] = &[
    (
        "top, logs",
        "Live rates, connections and drops; events of the agent",
    ),
    (
        "agent, page",
        "Keep edges as their files say; log in to the agent's page",
    ),
    (
        "lab, bench",
        "Experiments and benchmarks in namespaces (weir-lab)",
    ),
    (
        "completions, man",
        "Print shell completions, write man pages",
    ),
];

/// The program `weir`.
pub(crate) fn weir() -> Command {
    let command = shown(Args::command());
    let groups = groups(&command);
    command
        .override_usage("weir [--agent AGENT] [--color WHEN] [--help] [--version] COMMAND")
        .help_template("{about}\n\n{usage-heading} {usage}{after-help}")
        .after_help(groups)
}

/// The program `weir-lab`.
pub(crate) fn weir_lab() -> Command {
    shown(LabProgram::command())
}

/// All of it: `weir` with the commands that `weir-lab` carries out.
pub(crate) fn whole() -> Command {
    let mut command = weir();
    for sub in weir_lab().get_subcommands() {
        let carried_out = sub.clone();
        command = command.mut_subcommand(sub.get_name(), |_| carried_out);
    }
    command
}

fn shown(command: Command) -> Command {
    with_examples(command, "").version(version())
}

/// Examples behind what else stands at the end of each help.
fn with_examples(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let path = format!("{path} {name}").trim_start().to_owned();
        command = command.mut_subcommand(&name, |sub| with_examples(sub, &path));
    }
    let lines = examples::of(path);
    if lines.is_empty() {
        return command;
    }
    let mut text = match command.get_after_help() {
        Some(before) => format!("{before}\n\n"),
        None => String::new(),
    };
    text.push_str("Examples:");
    for line in lines {
        let _ = write!(text, "\n  {line}");
    }
    command.after_help(text)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        for (at, name) in names.iter().enumerate() {
            let together = TOGETHER.iter().find(|(names, _)| names == name);
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = match together {
                Some((_, about)) => (*about).to_owned(),
                None => about.map(ToString::to_string).unwrap_or_default(),
            };
            // Two names that do not fit: the second is in the sentence.
            let shown = match name.len() <= 12 {
                true => name,
                false => name.split(", ").next().unwrap_or(name),
            };
            let heading = if at == 0 { heading } else { "" };
            let _ = writeln!(text, "{heading:<9} {shown:<12} {about}");
        }
    }
    text.push_str(
        "\n`weir COMMAND --help` has examples. Exit status: 0 done, 1 failed, 2 bad usage.",
    );
    text
}

/// Version, commit and features.
fn version() -> &'static str {
    let features: Vec<&str> = [
        (cfg!(feature = "libpcap"), "libpcap"),
        (cfg!(feature = "rbpf"), "rbpf"),
    ]
    .into_iter()
    .filter_map(|(is_in, name)| is_in.then_some(name))
    .collect();
    let features = match features.is_empty() {
        true => "none".to_owned(),
        false => features.join(", "),
    };
    let version = env!("CARGO_PKG_VERSION");
    let build = env!("WEIR_BUILD");
    format!("{version} ({build}; features: {features})").leak()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands that do something, by their paths.
    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
            if !sub.is_subcommand_required_set() {
                found.push(path.clone());
            }
            leaves(sub, &path, found);
        }
    }

    /// Words of a line as a shell makes them, up to a pipe, a redirection or `&&`.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().expect("a word").push(c),
            }
        }
        let end = words
            .iter()
            .position(|word| ["|", ">", "<", "&&"].contains(&word.as_str()));
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    #[test]
    fn every_command_has_examples_that_are_right() {
        let whole = whole();
        let mut all = Vec::new();
        leaves(&whole, "", &mut all);
        for path in &all {
            assert!(
                !examples::of(path).is_empty(),
                "no example of `weir {path}`"
            );
        }
        for (path, lines) in examples::EXAMPLES {
            assert!(
                all.iter().any(|known| known == path),
                "no command `weir {path}`"
            );
            for line in *lines {
                let own = line.rsplit("| weir ").next().expect("a command");
                let own = own.strip_prefix("weir ").unwrap_or(own);
                let words = words(&format!("weir {own}"));
                let read = whole.clone().try_get_matches_from(&words);
                assert!(
                    read.is_ok(),
                    "{line}: {}",
                    read.err().map_or(String::new(), |e| e.to_string())
                );
                let named: Vec<&str> = path.split(' ').collect();
                assert!(
                    words[1..]
                        .starts_with(&named.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()),
                    "{path}: {line}"
                );
            }
        }
    }

    #[test]
    fn help_fits_a_terminal_and_names_every_command_once() {
        let mut weir = weir();
        let text = weir.render_help().to_string();
        assert!(
            text.lines().count() <= 40,
            "{} lines:\n{text}",
            text.lines().count()
        );
        for line in text.lines() {
            assert!(
                line.chars().count() <= 80,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .flat_map(|names| names.split(", "))
            .collect();
        let mut known: Vec<&str> = Vec::new();
        for sub in weir
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            known.push(sub.get_name());
        }
        let (mut a, mut b) = (grouped.clone(), known.clone());
        a.sort_unstable();
        b.sort_unstable();
        assert_eq!(a, b);
    }

    #[test]
    fn the_version_says_how_it_was_built() {
        let version = weir().render_version();
        assert!(
            version.starts_with("weir ") && version.contains("; features: "),
            "{version}"
        );
    }
}
