//! `weir connections`: the connections of a running `weir run`, through its socket, page by page.
//!
//! A table of a million is listed while packets go on changing it: what opens or ends meanwhile may be there or not.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use weir_engine::control::{Ask, Client, ConnectionPage, Reply};
use weir_functions::middlebox::flows::{Connection, Ends, Filter};

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
        && all == (filter != Filter::default())
    {
        return Err(Failure::usage(
            "say which connections to end, by --id, --address, --port, --protocol, --state or --rule; or --all of them",
        ));
    }
    let mut client = Client::find(args.interface.as_deref())?;
    match command {
        ConnectionsCommand::List => list(&mut client, &filter, args.json)?,
        ConnectionsCommand::Count => total(&mut client, &filter, args.json)?,
        ConnectionsCommand::Delete { .. } => {
            let Reply::Ended(ended) = client.ask(Ask::EndConnections { filter })? else {
                return Err(strange_answer());
            };
            if args.json {
                output::json(&serde_json::json!({ "ended": ended }))?;
            } else {
                output::out(&format!("{} ended\n", count(ended as usize, "connection")))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(args: &ConnectionsArgs) -> Filter {
    Filter {
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
    client: &mut Client,
    filter: &Filter,
    mut take: impl FnMut(&ConnectionPage) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let ask = Ask::Connections {
            filter: filter.clone(),
            from,
            limit: PAGE,
        };
        let Reply::Connections(page) = client.ask(ask)? else {
            return Err(strange_answer());
        };
        take(&page)?;
        match page.next {
            Some(next) if next > from => from = next,
            Some(_) => return Err(strange_answer()),
            None => return Ok(()),
        }
    }
}

/// Written as it is read: a million connections are hundreds of megabytes of JSON.
fn list(client: &mut Client, filter: &Filter, json: bool) -> Result<(), Failure> {
    let mut listed = 0usize;
    let mut first = true;
    pages(client, filter, |page| {
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
                    "{} of {} kept at least\n",
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

fn total(client: &mut Client, filter: &Filter, json: bool) -> Result<(), Failure> {
    let mut total = Total {
        total: 0,
        translated: 0,
        capacity: 0,
        by_state: BTreeMap::new(),
    };
    pages(client, filter, |page| {
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
        "{:>10}  in all, {} of them translated; {} are kept at least\n",
        total.total, total.translated, total.capacity
    ));
    Ok(output::out(&text)?)
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
fn time(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        seconds @ 1..600 => format!("{seconds}s"),
        seconds @ 600..36_000 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
