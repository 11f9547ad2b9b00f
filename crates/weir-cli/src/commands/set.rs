//! `weir set`: the dynamic sets of a `weir run`, through its socket, or of a function of an edge, in its map.
//!
//! Packets go on filling a set while it is listed: what comes and goes meanwhile may be there or not.

use std::process::ExitCode;

use serde::Serialize;
use weir_engine::control::{Ask, Client, Reply};
use weir_engine::live::{ElementsAdded, Listed, SetError, SetInfo, Stay};
use weir_policy::dynamic::Element;
use weir_runtime::dynamic_sets::{Filled, filled};

use super::chosen::{Choice, Chosen};
use super::connections::time;
use super::policy::count;
use super::rule::strange_answer;
use crate::args::set::{SetArgs, SetCommand};
use crate::failure::Failure;
use crate::output;

/// Elements asked for at a time.
const PAGE: u32 = 20_000;

pub(crate) fn run(args: &SetArgs) -> Result<ExitCode, Failure> {
    let mut table = Table::find(args)?;
    match &args.command {
        SetCommand::List { set: None } => list(&mut table, args.json)?,
        SetCommand::List { set: Some(set) } => elements(&mut table, set, args.json)?,
        SetCommand::Add {
            set,
            elements,
            timeout,
            permanent,
        } => {
            let stay = match timeout {
                _ if *permanent => Stay::ForGood,
                Some(time) if time.is_zero() => {
                    return Err(Failure::usage("a time-out is longer than no time"));
                }
                Some(time) => Stay::For(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
                None => Stay::AsSet,
            };
            let added = table.add(set, elements, stay)?;
            show_added(set, &added, args.json)?;
        }
        SetCommand::Delete { set, elements } => {
            show_deleted(table.delete(set, Some(elements))?, args.json)?;
        }
        SetCommand::Flush { set } => show_deleted(table.delete(set, None)?, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where sets are kept.
enum Table {
    /// By a `weir run`, which is asked.
    Run(Client),
    /// By a function of an edge.
    Function(Filled),
}

/// Some elements of a set.
struct Page {
    elements: Vec<Listed>,
    next: Option<u32>,
}

impl Table {
    /// The one that is meant: the only one of this network namespace, unless more is said.
    fn find(args: &SetArgs) -> Result<Table, Failure> {
        let choice = Choice {
            interface: args.interface.as_deref(),
            edge: args.edge.as_deref(),
            function: args.function.as_deref(),
            none: "no such function has dynamic sets: `weir status` lists the functions of edges",
            several: "several policies run here",
        };
        Ok(
            match choice.find(filled, |one| (&one.edge, &one.function))? {
                Chosen::Run(client) => Table::Run(client),
                Chosen::Function(one) => Table::Function(one),
            },
        )
    }

    /// Who has the sets, for JSON, and the sets.
    fn sets(&mut self) -> Result<(serde_json::Value, Vec<SetInfo>), Failure> {
        match self {
            Table::Run(client) => match client.ask(Ask::Sets)? {
                Reply::Sets(sets) => {
                    let instance = serde_json::to_value(&sets.instance).map_err(Failure::failed)?;
                    Ok((instance, sets.sets))
                }
                _ => Err(strange_answer()),
            },
            Table::Function(one) => {
                let instance = serde_json::json!({ "edge": one.edge, "function": one.function });
                Ok((instance, one.table.sets().map_err(failure)?))
            }
        }
    }

    fn page(&mut self, set: &str, from: u32) -> Result<Page, Failure> {
        match self {
            Table::Run(client) => {
                let ask = Ask::Elements {
                    set: set.to_owned(),
                    from,
                    limit: PAGE,
                };
                let Reply::Elements(page) = client.ask(ask)? else {
                    return Err(strange_answer());
                };
                Ok(Page {
                    elements: page.elements,
                    next: page.next,
                })
            }
            Table::Function(one) => {
                let page = one.table.page(set, from, PAGE as usize).map_err(failure)?;
                Ok(Page {
                    elements: page.elements,
                    next: page.next,
                })
            }
        }
    }

    fn add(
        &mut self,
        set: &str,
        elements: &[Element],
        stay: Stay,
    ) -> Result<ElementsAdded, Failure> {
        match self {
            Table::Run(client) => {
                let ask = Ask::AddElements {
                    set: set.to_owned(),
                    elements: elements.iter().map(Element::to_string).collect(),
                    stay,
                };
                match client.ask(ask)? {
                    Reply::ElementsAdded(added) => Ok(added),
                    _ => Err(strange_answer()),
                }
            }
            Table::Function(one) => one.table.add_all(set, elements, stay).map_err(failure),
        }
    }

    /// `None`: all elements. Returns how many there were.
    fn delete(&mut self, set: &str, elements: Option<&[Element]>) -> Result<u64, Failure> {
        match self {
            Table::Run(client) => {
                let texts = |all: &[Element]| all.iter().map(Element::to_string).collect();
                let ask = Ask::DeleteElements {
                    set: set.to_owned(),
                    elements: elements.map(texts),
                };
                match client.ask(ask)? {
                    Reply::ElementsDeleted(gone) => Ok(gone),
                    _ => Err(strange_answer()),
                }
            }
            Table::Function(one) => match elements {
                Some(elements) => one.table.delete_all(set, elements).map_err(failure),
                None => one.table.flush(set).map_err(failure),
            },
        }
    }
}

fn failure(error: SetError) -> Failure {
    match error {
        SetError::Unknown { .. } => Failure::Usage(error.to_string()),
        SetError::Kernel(_) => Failure::failed(error),
    }
}

fn list(table: &mut Table, json: bool) -> Result<(), Failure> {
    let (instance, sets) = table.sets()?;
    if json {
        return Ok(output::json(
            &serde_json::json!({ "instance": instance, "sets": sets }),
        )?);
    }
    let mut text = String::new();
    for set in &sets {
        let stay = match set.timeout_ms {
            Some(ms) => format!("timeout {}", time(ms)),
            None => "no timeout".to_owned(),
        };
        text.push_str(&format!(
            "{} {} of {}, {stay}\n",
            set.name,
            count(set.count as usize, "element"),
            set.size
        ));
    }
    Ok(output::out(&text)?)
}

/// Written as it is read: a million elements are a hundred megabytes of JSON.
fn elements(table: &mut Table, set: &str, json: bool) -> Result<(), Failure> {
    let mut listed = 0usize;
    let mut from = 0;
    loop {
        let page = table.page(set, from)?;
        let mut text = String::new();
        if from == 0 && json {
            let name = serde_json::to_string(set).map_err(Failure::failed)?;
            text.push_str(&format!("{{\"set\":{name},\"elements\":["));
        }
        for one in &page.elements {
            if json {
                if listed > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::to_string(one).map_err(Failure::failed)?);
            } else {
                text.push_str(&match one.expires_ms {
                    Some(ms) => format!("{} expires {}\n", one.element, time(ms)),
                    None => format!("{} permanent\n", one.element),
                });
            }
            listed += 1;
        }
        if page.next.is_none() {
            text.push_str(&match json {
                true => "]}\n".to_owned(),
                false => format!("{}\n", count(listed, "element")),
            });
        }
        output::out(&text)?;
        match page.next {
            Some(next) if next > from => from = next,
            Some(_) => return Err(strange_answer()),
            None => return Ok(()),
        }
    }
}

fn show_added(set: &str, added: &ElementsAdded, json: bool) -> Result<(), Failure> {
    if json {
        output::json(added)?;
    } else {
        let mut text = format!("{} added", count(added.added as usize, "element"));
        if added.renewed > 0 {
            text.push_str(&format!(", {} renewed", added.renewed));
        }
        if added.displaced > 0 {
            text.push_str(&format!(", {} displaced", added.displaced));
        }
        output::out(&format!("{text}\n"))?;
    }
    if added.refused.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "no room in `{set}` for {}: all that share a bucket with it are permanent; delete some, or give the set a larger `size`",
        added.refused.join(", ")
    )))
}

fn show_deleted(gone: u64, json: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Deleted {
        deleted: u64,
    }
    if json {
        return Ok(output::json(&Deleted { deleted: gone })?);
    }
    let text = format!("{} deleted\n", count(gone as usize, "element"));
    Ok(output::out(&text)?)
}
