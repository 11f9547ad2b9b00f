//! `weir rule`: changing and listing the rules of a running `weir run`, through its socket.
//!
//! Rules are written as in a policy, or as mmb has them. Exit status 2: the rule, the id or the interface is wrong; 1: nothing runs, the
//! rules changed meanwhile, or the host refused. Whatever fails has changed nothing.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_engine::control::{
    Ask, Change, Client, ClientError, Edited, Listed, Loaded, Reply, Rules, Saved, State,
};

use super::{policy::count, table};
use crate::args::{RuleArgs, RuleCommand, SaveArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &RuleArgs) -> Result<ExitCode, Failure> {
    let ask = match &args.command {
        RuleCommand::Add(line) if line.words == ["-"] => edit(args, from_stdin()?),
        RuleCommand::Add(line) => edit(args, vec![Change::Add(line.words.join(" "))]),
        RuleCommand::AddStateful(line) => {
            let line = format!("add-stateful {}", line.words.join(" "));
            edit(args, vec![Change::Add(line)])
        }
        RuleCommand::Replace(replace) => {
            let line = replace.words.join(" ");
            edit(args, vec![Change::Delete(replace.id), Change::Add(line)])
        }
        RuleCommand::Delete(delete) => edit(
            args,
            delete.ids.iter().map(|id| Change::Delete(*id)).collect(),
        ),
        RuleCommand::Flush => edit(args, vec![Change::Flush]),
        RuleCommand::List => Ask::List,
        RuleCommand::Load(load) => Ask::Load {
            file: load.file.as_deref().map(absolute).transpose()?,
            flush_connections: load.flush_connections,
        },
        RuleCommand::Save(save) => saving(save)?,
        RuleCommand::Compact => Ask::Compact,
    };
    let mut client = Client::find(args.interface.as_deref())?;
    match client.ask(ask)? {
        Reply::Edited(edited) => show_edited(args, &edited)?,
        Reply::Loaded(loaded) => {
            output::tell(&loaded.warnings);
            match args.json {
                true => output::json(&loaded)?,
                false => output::out(&took_over(&loaded))?,
            }
        }
        Reply::Rules(rules) if args.json => output::json(&rules)?,
        Reply::Rules(rules) => output::out(&listing(&rules))?,
        Reply::Saved(saved) if args.json => output::json(&saved)?,
        Reply::Saved(saved) => output::out(&said(&saved))?,
        _ => return Err(strange_answer()),
    }
    Ok(ExitCode::SUCCESS)
}

/// An answer to something else than was asked.
pub(super) fn strange_answer() -> Failure {
    Failure::Failed("unexpected response of the running weir: use the same version".to_owned())
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        if error.is_usage() {
            Failure::usage(error)
        } else {
            Failure::failed(error)
        }
    }
}

fn edit(args: &RuleArgs, edits: Vec<Change>) -> Ask {
    Ask::Edit {
        edits,
        if_generation: args.if_generation,
    }
}

/// One rule a line; empty lines and comments are passed over.
fn from_stdin() -> Result<Vec<Change>, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Failure::usage(format!("standard input: {e}")))?;
    let lines = text.lines().map(str::trim);
    let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let edits: Vec<Change> = rules.map(|line| Change::Add(line.to_owned())).collect();
    if edits.is_empty() {
        return Err(Failure::usage("standard input has no rules"));
    }
    Ok(edits)
}

fn saving(save: &SaveArgs) -> Result<Ask, Failure> {
    Ok(Ask::Save {
        file: save.file.as_deref().map(absolute).transpose()?,
        force: save.force,
    })
}

/// The running weir has another working directory.
fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|e| Failure::usage(format!("{}: {e}", file.display())))
}

fn show_edited(args: &RuleArgs, edited: &Edited) -> Result<(), Failure> {
    output::tell(&edited.warnings);
    if args.json {
        output::json(edited)?;
        return Ok(());
    }
    let mut text = match edited.added.as_slice() {
        [] => String::new(),
        [id] => format!("rule {id}, "),
        [first, .., last] => format!("rules {first} to {last}, "),
    };
    text.push_str(&format!("generation {}", edited.generation));
    if edited.rebuilt {
        text.push_str(", classifier rebuilt");
    }
    output::out(&format!(
        "{text} ({:.1} ms)\n",
        edited.micros as f64 / 1000.0
    ))?;
    Ok(())
}

fn took_over(loaded: &Loaded) -> String {
    let renumbered = match loaded.renumbered {
        0 => String::new(),
        n => format!(" ({n} with another id, as rules in front of them changed)"),
    };
    let anew = if loaded.rebuilt {
        ", classifier rebuilt"
    } else {
        ""
    };
    format!(
        "{}: {} kept{renumbered}, {} added, {} removed, generation {}{anew} ({:.1} ms)\n",
        loaded.file.display(),
        count(loaded.kept, "rule"),
        loaded.added,
        loaded.removed,
        loaded.generation,
        loaded.micros as f64 / 1000.0
    )
}

fn listing(rules: &Rules) -> String {
    let of = |state: State| rules.rules.iter().filter(|r| r.state == state).count();
    let (added, deleted) = (of(State::AddedLive), of(State::DeletedLive));
    let mut text = format!(
        "{} on {}: {}, generation {}",
        rules.instance.policy.display(),
        rules.instance.interfaces.join(", "),
        count(rules.rules.len() - deleted, "rule"),
        rules.generation
    );
    if rules.drifted {
        text.push_str(&format!(
            "\nnot saved: {added} added (+), {deleted} deleted (-); `weir rule save` writes them to the policy"
        ));
    }
    text.push_str("\n       id      packets            bytes  rule\n");
    rules
        .rules
        .iter()
        .for_each(|rule| text.push_str(&line(rule)));
    text
}

fn line(rule: &Listed) -> String {
    let mark = match rule.state {
        State::Configured => ' ',
        State::AddedLive => '+',
        State::DeletedLive => '-',
    };
    let number = |n: u64| match rule.state {
        State::DeletedLive => String::new(),
        _ => table::grouped(n),
    };
    format!(
        "{mark} {:>7} {:>12} {:>16}  {}\n",
        rule.id,
        number(rule.packets),
        number(rule.bytes),
        rule.rule
    )
}

fn said(saved: &Saved) -> String {
    format!(
        "{}: {}, {} added, {} removed\n",
        saved.file.display(),
        count(saved.rules, "rule"),
        saved.added,
        saved.removed
    )
}
