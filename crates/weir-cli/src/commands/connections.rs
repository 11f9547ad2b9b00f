//! `weir connections`: the connections of a `weir run`, through its socket, or of a function of an edge, from its table; page by page.
//!
//! A table of a million is listed while packets go on changing it: what opens or ends meanwhile may be there or not.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use weir_engine::control::{Ask, Client, Reply};
use weir_functions::middlebox::flows::{Connection, ConnectionFilter, Ends};
use weir_runtime::connections::{Tracked, tracked};

use super::chosen::{Choice, Chosen};
use super::policy::count;
use super::rule::strange_answer;
use crate::args::{ConnectionsArgs, ConnectionsCommand};
use crate::failure::Failure;
use crate::output;

/// Connections asked for at a time.
const PAGE: u32 = 20_000;

pub(crate) fn run(args: &ConnectionsArgs) -> Result<ExitCode, Failure> {
    let filter = filter(args);
    let command = args.command.unwrap_or(ConnectionsCommand::List);
    if let ConnectionsCommand::Delete { all } = command
        && all == (filter != ConnectionFilter::default())
    {
        return Err(Failure::usage(
            "select the connections to delete, by --id, --address, --port, --protocol, --state or --rule; or --all of them",
        ));
    }
    let mut table = Table::find(args)?;
    match command {
        ConnectionsCommand::List => list(&mut table, &filter, args.json)?,
        ConnectionsCommand::Count => total(&mut table, &filter, args.json)?,
        ConnectionsCommand::Delete { .. } => {
            let ended = table.end(filter)?;
            if args.json {
                output::json(&serde_json::json!({ "ended": ended }))?;
            } else {
                output::out(&format!("{} ended\n", count(ended as usize, "connection")))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where connections are kept.
enum Table {
    /// By a `weir run`, which is asked.
    Run(Client),
    /// By a function of an edge.
    Function(Tracked),
}

/// Some connections of a table.
struct Page {
    /// Who keeps them, for JSON.
    instance: serde_json::Value,
    capacity: u32,
    connections: Vec<Connection>,
    next: Option<u32>,
}

impl Table {
    /// The one that is meant: the only one of this network namespace, unless more is said.
    fn find(args: &ConnectionsArgs) -> Result<Table, Failure> {
        let choice = Choice {
            interface: args.interface.as_deref(),
            edge: args.edge.as_deref(),
            function: args.function.as_deref(),
            none: "no such function tracks connections: `weir status` lists the functions of edges",
            several: "several connection tables exist here",
        };
        Ok(
            match choice.find(tracked, |one| (&one.edge, &one.function))? {
                Chosen::Run(client) => Table::Run(client),
                Chosen::Function(one) => Table::Function(one),
            },
        )
    }

    fn page(&mut self, filter: &ConnectionFilter, from: u32) -> Result<Page, Failure> {
        match self {
            Table::Run(client) => {
                let ask = Ask::Connections {
                    filter: filter.clone(),
                    from,
                    limit: PAGE,
                };
                let Reply::Connections(page) = client.ask(ask)? else {
                    return Err(strange_answer());
                };
                Ok(Page {
                    instance: serde_json::to_value(&page.instance).map_err(Failure::failed)?,
                    capacity: page.capacity,
                    connections: page.connections,
                    next: page.next,
                })
            }
            Table::Function(one) => {
                let page = one.table.page(filter, from, PAGE as usize);
                let page = page.map_err(Failure::failed)?;
                Ok(Page {
                    instance: serde_json::json!({ "edge": one.edge, "function": one.function }),
                    capacity: one.capacity,
                    connections: page.connections,
                    next: page.next,
                })
            }
        }
    }

    fn end(&mut self, filter: ConnectionFilter) -> Result<u64, Failure> {
        match self {
            Table::Run(client) => match client.ask(Ask::EndConnections { filter })? {
                Reply::Ended(ended) => Ok(ended),
                _ => Err(strange_answer()),
            },
            Table::Function(one) => one.table.end(&filter).map_err(Failure::failed),
        }
    }
}

fn filter(args: &ConnectionsArgs) -> ConnectionFilter {
    ConnectionFilter {
        id: args.id,
        address: args.address,
        port: args.port,
        protocol: args.protocol.clone(),
        state: args.state.clone(),
        rule: args.rule,
    }
}

/// Hands every page to `take`.
fn pages(
    table: &mut Table,
    filter: &ConnectionFilter,
    mut take: impl FnMut(&Page) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let page = table.page(filter, from)?;
        take(&page)?;
        match page.next {
            Some(next) if next > from => from = next,
            Some(_) => return Err(strange_answer()),
            None => return Ok(()),
        }
    }
}

/// Written as it is read: a million connections are hundreds of megabytes of JSON.
fn list(table: &mut Table, filter: &ConnectionFilter, json: bool) -> Result<(), Failure> {
    let mut listed = 0usize;
    let mut first = true;
    pages(table, filter, |page| {
        let mut text = String::new();
        if first && json {
            let instance = serde_json::to_string(&page.instance).map_err(Failure::failed)?;
            text.push_str(&format!(
                "{{\"instance\":{instance},\"capacity\":{},\"connections\":[",
                page.capacity
            ));
        }
        first = false;
        for connection in &page.connections {
            if json {
                if listed > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::to_string(connection).map_err(Failure::failed)?);
            } else {
                text.push_str(&line(connection));
            }
            listed += 1;
        }
        if page.next.is_none() {
            text.push_str(&match json {
                true => "]}\n".to_owned(),
                false => format!(
                    "{}, capacity at least {}\n",
                    count(listed, "connection"),
                    page.capacity
                ),
            });
        }
        Ok(output::out(&text)?)
    })
}

/// Numbers of connections.
#[derive(Serialize)]
struct Total {
    total: u64,
    translated: u64,
    capacity: u32,
    by_state: BTreeMap<String, u64>,
}

fn total(table: &mut Table, filter: &ConnectionFilter, json: bool) -> Result<(), Failure> {
    let mut total = Total {
        total: 0,
        translated: 0,
        capacity: 0,
        by_state: BTreeMap::new(),
    };
    pages(table, filter, |page| {
        total.capacity = page.capacity;
        for connection in &page.connections {
            total.total += 1;
            total.translated += u64::from(connection.translated.is_some());
            *total.by_state.entry(connection.state.clone()).or_default() += 1;
        }
        Ok(())
    })?;
    if json {
        return Ok(output::json(&total)?);
    }
    let mut text = String::new();
    for (state, number) in &total.by_state {
        text.push_str(&format!("{number:>10}  {state}\n"));
    }
    text.push_str(&format!(
        "{:>10}  total, {} translated; capacity at least {}\n",
        total.total, total.translated, total.capacity
    ));
    Ok(output::out(&text)?)
}

/// Connections that are counted of one table for a summary. Reading a million takes seconds, and each reader waits for the one before.
const COUNTED: u64 = 100_000;

/// A table with its first connections, and how many there are by state.
pub(super) fn summary_json(one: &Tracked, limit: usize) -> Result<serde_json::Value, Failure> {
    let (mut listed, mut by_state) = (Vec::new(), BTreeMap::<String, u64>::new());
    let (mut counted, mut from) = (0, Some(0));
    while let Some(start) = from.filter(|_| counted < COUNTED) {
        let page = one
            .table
            .page(&ConnectionFilter::default(), start, PAGE as usize);
        let page = page.map_err(Failure::failed)?;
        for connection in page.connections {
            counted += 1;
            *by_state.entry(connection.state.clone()).or_default() += 1;
            if listed.len() < limit {
                listed.push(connection);
            }
        }
        from = page.next.filter(|next| *next > start);
    }
    Ok(serde_json::json!({
        "function": one.function,
        "capacity": one.capacity,
        "counted": counted,
        "is_whole": from.is_none(),
        "by_state": by_state,
        "connections": listed,
    }))
}

fn line(connection: &Connection) -> String {
    let mut text = format!(
        "{} {} {} idle {} left {}",
        connection.id,
        connection.state_and_protocol(),
        ends(&connection.original),
        time(connection.idle_ms),
        time(connection.expires_ms)
    );
    if let Some(translated) = &connection.translated {
        text.push_str(&format!(" as {}", ends(translated)));
    }
    if let Some([forward, reverse]) = connection.sequence_offsets {
        text.push_str(&format!(" seq +{forward}/+{reverse}"));
    }
    if let Some(value) = connection.identity {
        text.push_str(&format!(" id {value}"));
    }
    if let Some(value) = connection.identity_offset {
        text.push_str(&format!(" id +{value}"));
    }
    let rules: Vec<String> = connection.rules.iter().map(u32::to_string).collect();
    text.push_str(&format!(" rules {}\n", rules.join(",")));
    text
}

fn ends(ends: &Ends) -> String {
    let end = |address, port| std::net::SocketAddr::new(address, port);
    format!(
        "{} > {}",
        end(ends.source, ends.source_port),
        end(ends.destination, ends.destination_port)
    )
}

/// 7s, 4m, 3h.
pub(super) fn time(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        seconds @ 1..600 => format!("{seconds}s"),
        seconds @ 600..36_000 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
