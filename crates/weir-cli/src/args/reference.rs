//! docs/commands.md: every command with its options, from the same table as help, man pages and completions. `WEIR_UPDATE=1` writes the page.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};

use super::table;

const HEAD: &str = "# Commands\n\n\
    Written by a test from the table of commands; `weir COMMAND --help` shows the same with examples, and `weir man` writes\n\
    man pages. All commands take `--color WHEN` and `--help`. Exit status: 0 done, 1 failed, 2 bad usage or configuration.\n\n\
    `weir --agent AGENT [--cert FILE] [--key FILE] [--ca FILE] COMMAND` goes through an [agent](agent.md#from-other-hosts).\n";

#[test]
fn the_page_lists_every_command() {
    let mut page = HEAD.to_owned();
    let whole = table::whole();
    for (group, names) in table::GROUPS {
        let _ = write!(page, "\n## {group}\n");
        for name in names.iter().flat_map(|names| names.split(", ")) {
            let found = whole.find_subcommand(name);
            command(found.expect("a command of a group"), "weir", &mut page);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let old = std::fs::read_to_string(&path).expect("docs/commands.md is there");
    assert!(
        old == page,
        "docs/commands.md is out of date: WEIR_UPDATE=1 cargo test -p weir-cli --lib reference"
    );
}

/// A command and those below it.
fn command(found: &Command, above: &str, page: &mut String) {
    let path = format!("{above} {}", found.get_name());
    let below: Vec<&Command> = found
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        .collect();
    let about = found.get_about().map(ToString::to_string);
    let _ = write!(
        page,
        "\n### {path}\n\n{}.\n",
        escaped(&about.unwrap_or_default())
    );
    if !found.is_subcommand_required_set() {
        let mut named = found.clone().bin_name(&path);
        let usage = named.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        let _ = write!(page, "\n```text\n{usage}\n```\n");
    }
    let shown: Vec<&Arg> = found
        .get_arguments()
        .filter(|arg| {
            !arg.is_hide_set() && !["help", "color", "version"].contains(&arg.get_id().as_str())
        })
        .collect();
    if !shown.is_empty() {
        page.push_str("\n| option | meaning |\n|---|---|\n");
    }
    for arg in shown {
        let _ = writeln!(page, "| `{}` | {} |", spelling(arg), meaning(arg));
    }
    for sub in below {
        command(sub, &path, page);
    }
}

fn spelling(arg: &Arg) -> String {
    let mut text = arg.get_short().map(|c| format!("-{c}")).unwrap_or_default();
    if let Some(long) = arg.get_long() {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}--{long}");
    }
    let values: Vec<String> = match arg.get_action().takes_values() {
        true => arg
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect(),
        false => Vec::new(),
    };
    for value in values {
        let gap = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{gap}{value}");
    }
    text
}

fn meaning(arg: &Arg) -> String {
    let help = arg
        .get_long_help()
        .or(arg.get_help())
        .map(ToString::to_string);
    let mut text = escaped(&help.unwrap_or_default());
    let values: Vec<String> =
        match arg.get_action().takes_values() && !arg.is_hide_possible_values_set() {
            true => arg
                .get_possible_values()
                .iter()
                .filter(|value| !value.is_hide_set())
                .map(|value| match value.get_help() {
                    Some(help) => format!("`{}`: {}", value.get_name(), escaped(&help.to_string())),
                    None => format!("`{}`", value.get_name()),
                })
                .collect(),
            false => Vec::new(),
        };
    if !values.is_empty() {
        let _ = write!(text, ". Values: {}", values.join("; "));
    }
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
        let _ = write!(text, ". Default: {}", defaults.join(", "));
    }
    text
}

/// In one line of a Markdown table: no end of a cell, no markup.
fn escaped(text: &str) -> String {
    let mut quoted = false;
    let mut out = String::new();
    for c in text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
    {
        match c {
            '`' => quoted = !quoted,
            '|' => out.push('\\'),
            '<' | '*' | '_' | '[' if !quoted => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    out
}
