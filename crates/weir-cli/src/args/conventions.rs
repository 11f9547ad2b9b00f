//! What holds for all options of all commands: the same name, letter and type for the same thing.

use std::any::TypeId;
use std::time::Duration;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::{Args, LabProgram};

/// Options with a letter that are the same wherever they are.
const LETTERS: [(&str, char); 3] = [("output", 'o'), ("quiet", 'q'), ("verbose", 'v')];

/// Names that other names stand for now; they are accepted, and hidden.
const FORMER: [&str; 3] = ["out", "for", "seconds"];

/// Options that may take a duration of less than the whole range: of whole seconds, or of microseconds in the kernel.
const COARSE: [&str; 3] = ["duration", "busy-poll", "retire"];

/// Every command with its options, the ways to it included.
fn walk(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Arg)) {
    let path = format!("{path} {}", command.get_name());
    for arg in command.get_arguments() {
        visit(&path, arg);
    }
    for sub in command.get_subcommands() {
        walk(sub, &path, visit);
    }
}

#[test]
fn options_are_the_same_everywhere() {
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for program in [Args::command(), LabProgram::command()] {
        walk(&program, "", &mut |path, arg| {
            let Some(long) = arg.get_long() else {
                return;
            };
            let mut say = |what: String| wrong.push(format!("{path} --{long}: {what}"));
            seen.push(long.to_owned());
            for (name, letter) in LETTERS {
                // A letter of ipvsadm is its own.
                let is_own = path == " weir service";
                if long == name && arg.get_short() != Some(letter) {
                    say(format!("its letter is -{letter}"));
                }
                if long != name && arg.get_short() == Some(letter) && !is_own {
                    say(format!("-{letter} is --{name}"));
                }
            }
            if FORMER.contains(&long) {
                say("a former name".to_owned());
            }
            let values: Vec<String> = arg
                .get_value_names()
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect();
            let has_value = arg.get_action().takes_values();
            let takes = |name: &str| has_value && values.iter().any(|value| value == name);
            for unit in ["SECONDS", "SECS", "S", "MS", "US"] {
                if takes(unit) {
                    say(format!("a duration is TIME, not {unit}"));
                }
            }
            let is_duration = arg.get_value_parser().type_id() == TypeId::of::<Duration>();
            if takes("TIME") && !is_duration && !COARSE.contains(&long) {
                say("TIME is a duration".to_owned());
            }
            let is_time = ["interval", "duration", "timeout", "idle", "wait"].contains(&long);
            if is_time && has_value && !takes("TIME") && arg.get_possible_values().is_empty() {
                say("it takes TIME".to_owned());
            }
            if is_duration && !takes("TIME") {
                say("a duration is called TIME".to_owned());
            }
            if long == "json" && !matches!(arg.get_action(), ArgAction::SetTrue) {
                say("it takes no value".to_owned());
            }
            if long == "color" {
                let known: Vec<String> = arg
                    .get_possible_values()
                    .iter()
                    .map(|value| value.get_name().to_owned())
                    .collect();
                if known != ["auto", "always", "never"] || !arg.is_global_set() {
                    say("auto, always, never, at every command".to_owned());
                }
            }
        });
    }
    for name in [
        "json", "interval", "duration", "output", "quiet", "verbose", "color",
    ] {
        assert!(seen.iter().any(|long| long == name), "no --{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names of earlier versions are accepted and not shown.
#[test]
fn former_names_are_hidden_aliases() {
    use clap::Parser as _;
    for line in [
        "weir run p.weir -i e --for 5",
        "weir route follow --for 5s",
        "weir trace --for 0.5",
        "weir service check --for 5",
        "weir prog serve o.o -i e --for 5",
        "weir replay p.weir --in a --out b",
        "weir prog run o.o --in a --out b",
        "weir capture --out b",
        "weir net check n.toml",
        "weir net plan n.toml --edge e1",
        "weir net apply n.toml --edge e1",
        "weir connections --state tcp-syn-received",
        "weir connections --state tcp-fin",
        "weir connections --state tcp-closed",
        "weir connections --state udp-new",
        "weir connections --state udp",
    ] {
        let read = Args::try_parse_from(line.split(' '));
        assert!(
            read.is_ok(),
            "{line}: {}",
            read.err().map_or(String::new(), |e| e.to_string())
        );
    }
    for line in [
        "weir lab demo --seconds 3",
        "weir lab afxdp --out d",
        "weir bench sensor --seconds 0.5 --out d",
        "weir bench vm --out d",
    ] {
        let read = LabProgram::try_parse_from(line.split(' '));
        assert!(
            read.is_ok(),
            "{line}: {}",
            read.err().map_or(String::new(), |e| e.to_string())
        );
    }
    walk(&Args::command(), "", &mut |path, arg| {
        let shown = arg.get_visible_aliases().unwrap_or_default();
        assert!(
            !shown.iter().any(|name| FORMER.contains(name)),
            "{path}: {shown:?}"
        );
    });
}
