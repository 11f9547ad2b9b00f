//! `weir route`: the routes of a running router that has tables of its own, shown, changed, and kept as the kernel's are.
//!
//! Routes are written and shown as `ip route` does. Exit status 2: a route, prefix or name is wrong; 1: nothing runs, the table is full, or the host refused. Whatever fails has
//! changed nothing. What is changed here is not in the configuration file: it lasts until the edge is taken down, over every `weir apply`.

use std::io::Read as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_bpf::abi::router::{hop, origin};
use weir_engine::edge::routers::{Followed, Listed, Router};
use weir_engine::edge::{self, EdgeError};
use weir_functions::router::interface::Interface;
use weir_functions::router::rib::{Hop, Way};
use weir_functions::router::route;
use weir_kernel::routes::{self, Follower};
use weir_runtime::graph::Record;
use weir_runtime::status::hop_kind;
use weir_value::Prefix;

use super::policy::count;
use crate::args::route::{RouteArgs, RouteCommand};
use crate::failure::Failure;
use crate::limits::stop_on_signals;
use crate::output;

/// How often it is looked after gateways that the kernel does not know, and whether the edge still runs.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// In which the kernel has done what it told.
const SETTLES: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &RouteArgs) -> Result<ExitCode, Failure> {
    let session = RouteSession::open(args)?;
    match &args.command {
        RouteCommand::List { within } => list(&session, within.as_deref(), args.json)?,
        RouteCommand::Get { address } => return get(&session, *address, args.json),
        RouteCommand::Hops => hops(&session, args.json)?,
        RouteCommand::Add { words } => add(session, words, args.json)?,
        RouteCommand::Delete { words } => return delete(session, words, args.json),
        RouteCommand::Sync { table } => sync(session, table, args.json)?,
        RouteCommand::Follow { table, duration } => follow(session, table, *duration, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The router that is meant, and what its interfaces are called.
struct RouteSession {
    router: Router,
    interfaces: Vec<Interface>,
}

impl RouteSession {
    fn open(args: &RouteArgs) -> Result<RouteSession, Failure> {
        let name = match &args.edge {
            Some(name) => name.clone(),
            None => the_only_edge()?,
        };
        let router = Router::open(&name, args.function.as_deref())?;
        let status = edge::status(&name)?;
        let config = Record::read(&name, &status.text)?.config()?;
        let numbers = edge::numbers(&name)?;
        let interfaces = weir_graph::interfaces(&config, &numbers, router.function());
        let interfaces = interfaces.ok_or_else(|| {
            Failure::Failed(format!(
                "the interfaces of {} are not in the running configuration",
                router.function()
            ))
        })?;
        Ok(RouteSession { router, interfaces })
    }

    fn name_of(&self, hop: &Hop) -> &str {
        let interface = self.interfaces.get(usize::from(hop.interface));
        interface.map_or("?", |one| one.name.as_str())
    }

    /// A route as `ip route` would show it.
    fn shown(&self, listed: &Listed) -> String {
        let mut text = String::new();
        let (hop, _) = match listed.way.hops.as_slice() {
            [one] => *one,
            _ => (Hop::special(hop::NONE), 0),
        };
        match hop.kind {
            hop::LOCAL => text.push_str("local "),
            hop::BLACKHOLE => text.push_str("blackhole "),
            hop::UNREACHABLE => text.push_str("unreachable "),
            hop::PROHIBIT => text.push_str("prohibit "),
            _ => {}
        }
        match listed.prefix.len {
            0 => text.push_str("default"),
            _ => text.push_str(&format!("{:#}", listed.prefix)),
        }
        for (hop, share) in &listed.way.hops {
            if listed.way.hops.len() > 1 {
                text.push_str(" nexthop");
            }
            if let Some(via) = hop.address {
                text.push_str(&format!(" via {via}"));
            }
            if matches!(hop.kind, hop::GATEWAY | hop::LINK) {
                text.push_str(&format!(" dev {}", self.name_of(hop)));
            }
            if hop.mac != [0; 6] {
                text.push_str(&format!(" lladdr {}", mac(hop.mac)));
            }
            if listed.way.hops.len() > 1 {
                text.push_str(&format!(" weight {share}"));
            }
        }
        if let Some((hop, _)) = listed.way.hops.first().filter(|(hop, _)| hop.mtu > 0) {
            text.push_str(&format!(" mtu {}", hop.mtu));
        }
        if listed.metric > 0 {
            text.push_str(&format!(" metric {}", listed.metric));
        }
        text
    }

    fn as_json(&self, listed: &Listed) -> Value {
        let hops: Vec<Value> = listed
            .way
            .hops
            .iter()
            .map(|(hop, share)| {
                json!({
                    "kind": hop_kind(hop.kind),
                    "via": hop.address,
                    "interface": matches!(hop.kind, hop::GATEWAY | hop::LINK).then(|| self.name_of(hop)),
                    "mtu": (hop.mtu > 0).then_some(hop.mtu),
                    "share": share,
                })
            })
            .collect();
        json!({
            "prefix": format!("{:#}", listed.prefix),
            "hops": hops,
            "metric": listed.metric,
            "from": from(listed.origin),
            "packets": listed.counted.map(|c| c.0),
            "bytes": listed.counted.map(|c| c.1),
        })
    }
}

fn the_only_edge() -> Result<String, Failure> {
    let mut edges = edge::list()?;
    match edges.len() {
        0 => Err(Failure::Failed(
            "no edge is running here: `weir apply CONFIG` starts one (docs/router.md)".to_owned(),
        )),
        1 => Ok(edges.remove(0)),
        _ => Err(Failure::Usage(format!(
            "several edges are running here: select one of {} with --edge",
            edges.join(", ")
        ))),
    }
}

fn list(session: &RouteSession, within: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let within = within
        .map(|text| prefix(text, &session.interfaces))
        .transpose()?;
    let listed = session.router.list().map_err(Failure::failed)?;
    let holds = |one: &&Listed| within.is_none_or(|outer| outer.covers(&one.prefix));
    let listed: Vec<&Listed> = listed.iter().filter(holds).collect();
    if as_json {
        let routes: Vec<Value> = listed.iter().map(|one| session.as_json(one)).collect();
        output::json(&json!({ "function": session.router.function(), "routes": routes }))?;
        return Ok(());
    }
    let mut text = String::new();
    for one in listed {
        text.push_str(&session.shown(one));
        if one.origin != origin::CONFIGURED {
            text.push_str(&format!("  # {}", from(one.origin)));
        }
        if let Some((packets, bytes)) = one.counted {
            text.push_str(&format!("  {packets} packets, {bytes} bytes"));
        }
        text.push('\n');
    }
    output::out(&text)?;
    Ok(())
}

fn get(session: &RouteSession, address: IpAddr, as_json: bool) -> Result<ExitCode, Failure> {
    let found = session.router.lookup(address).map(|(prefix, way)| Listed {
        prefix,
        way,
        metric: 0,
        origin: origin::CONFIGURED,
        counted: None,
    });
    if as_json {
        let route = found.as_ref().map(|one| {
            let mut route = session.as_json(one);
            if let Some(route) = route.as_object_mut() {
                route.retain(|key, _| key == "prefix" || key == "hops");
            }
            route
        });
        output::json(&json!({ "address": address, "route": route }))?;
    } else {
        match &found {
            Some(one) => output::out(&format!("{address} takes {}\n", session.shown(one)))?,
            None => output::out(&format!("no route to {address}\n"))?,
        }
    }
    Ok(match found {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(1),
    })
}

fn hops(session: &RouteSession, as_json: bool) -> Result<(), Failure> {
    let hops = session.router.hops().map_err(Failure::failed)?;
    let sent = session.router.sent().map_err(Failure::failed)?;
    let interfaces = session.interfaces.iter().zip(&sent);
    if as_json {
        let hops: Vec<Value> = hops
            .iter()
            .map(|one| {
                json!({
                    "kind": hop_kind(one.hop.kind),
                    "via": one.hop.address,
                    "interface": matches!(one.hop.kind, hop::GATEWAY | hop::LINK).then(|| session.name_of(&one.hop)),
                    "mac": (one.mac != [0; 6]).then(|| mac(one.mac)),
                    "users": one.users,
                    "packets": one.counted.0,
                    "bytes": one.counted.1,
                })
            })
            .collect();
        let interfaces: Vec<Value> = interfaces
            .map(|(one, sent)| json!({ "name": one.name, "packets": sent.0, "bytes": sent.1 }))
            .collect();
        let told = json!({ "function": session.router.function(), "hops": hops, "interfaces": interfaces });
        output::json(&told)?;
        return Ok(());
    }
    let mut text = String::new();
    for one in &hops {
        let what = match one.hop.kind {
            hop::GATEWAY => {
                let via = one.hop.address.map(|a| a.to_string()).unwrap_or_default();
                let known = match one.mac {
                    [0, 0, 0, 0, 0, 0] => "not resolved".to_owned(),
                    known => format!("lladdr {}", mac(known)),
                };
                format!("via {via} dev {} {known}", session.name_of(&one.hop))
            }
            hop::LINK => format!("dev {}", session.name_of(&one.hop)),
            other => hop_kind(other).to_owned(),
        };
        let (packets, bytes) = one.counted;
        text.push_str(&format!("{what}: {packets} packets, {bytes} bytes\n"));
    }
    for (one, (packets, bytes)) in interfaces {
        text.push_str(&format!(
            "sent by {}: {packets} packets, {bytes} bytes\n",
            one.name
        ));
    }
    output::out(&text)?;
    Ok(())
}

fn add(mut session: RouteSession, words: &[String], as_json: bool) -> Result<(), Failure> {
    let lines = match words {
        [one] if one == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| Failure::Failed(format!("cannot read standard input: {e}")))?;
            text
        }
        words => words.join(" "),
    };
    let read = route::parse_lines(&lines, &session.interfaces).map_err(|errors| {
        let told = errors.iter().map(|(line, wrong)| {
            let advice = wrong.advice.as_deref().unwrap_or_default();
            format!("line {line}: {}: {advice}", wrong.message)
        });
        Failure::Usage(told.collect::<Vec<_>>().join("\n"))
    })?;
    let routes: Vec<(Prefix, Way, u32)> = read
        .into_iter()
        .map(|one| (one.prefix, one.way, one.metric))
        .collect();
    session.router.put(&routes)?;
    ask_for_gateways(&session.router);
    said(
        &session.router,
        json!({ "added": routes.len() }),
        as_json,
        || format!("{} put in", count(routes.len(), "route")),
    )
}

fn delete(mut session: RouteSession, words: &[String], as_json: bool) -> Result<ExitCode, Failure> {
    let (target, metric) = match words {
        [target] => (target, None),
        [target, word, metric] if word == "metric" => {
            let metric = metric
                .parse()
                .map_err(|_| Failure::Usage(format!("expected a number in `metric {metric}`")))?;
            (target, Some(metric))
        }
        _ => {
            return Err(Failure::usage(
                "write the prefix alone, or with its metric: `weir route delete 10.0.0.0/8 metric 10`",
            ));
        }
    };
    let prefix = prefix(target, &session.interfaces)?;
    let removed = session.router.remove(prefix, metric)?;
    if !removed {
        return Err(Failure::Failed(format!(
            "no route to {prefix:#}: `weir route list` shows the routes"
        )));
    }
    said(&session.router, json!({ "removed": 1 }), as_json, || {
        format!("the route to {prefix:#} is gone")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn sync(mut session: RouteSession, table: &str, as_json: bool) -> Result<(), Failure> {
    let routes = routes::read(table_number(table)?).map_err(Failure::failed)?;
    let followed = session.router.replace_kernels(&routes)?;
    ask_for_gateways(&session.router);
    let told =
        json!({ "put": followed.put, "removed": followed.removed, "refused": followed.refused });
    said(&session.router, told, as_json, || words_of(&followed))?;
    refused(&session.router, &followed)
}

/// Routes that found no room are a failure where this is done once.
fn refused(router: &Router, followed: &Followed) -> Result<(), Failure> {
    match followed.refused {
        0 => Ok(()),
        n => Err(Failure::Failed(format!(
            "{} did not fit into {}: raise `prefixes`, `prefixes6` or `next_hops` in its configuration",
            count(n, "route"),
            router.function()
        ))),
    }
}

fn follow(
    mut session: RouteSession,
    table: &str,
    duration: Option<Duration>,
    as_json: bool,
) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let until = duration.map(|d| Instant::now() + d);
    let table = table_number(table)?;
    // Opened before the first reading, so that nothing falls between the two.
    let follower = Follower::open(table).map_err(Failure::failed)?;
    // `None`: somebody applies, which may take a while with a large table.
    let read = |router: &mut Router| -> Result<Option<Followed>, Failure> {
        let all = routes::read(table).map_err(Failure::failed)?;
        match router.replace_kernels(&all) {
            Ok(followed) => {
                ask_for_gateways(router);
                Ok(Some(followed))
            }
            Err(EdgeError::Busy(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let tell = |router: &Router, followed: Followed| -> Result<(), Failure> {
        if followed == Followed::default() {
            return Ok(());
        }
        if followed.refused > 0
            && let Err(failure) = refused(router, &followed)
        {
            output::complain(&failure.to_string());
        }
        let told = json!({ "put": followed.put, "removed": followed.removed, "refused": followed.refused });
        said(router, told, as_json, || words_of(&followed))
    };
    let mut looked = Instant::now();
    // Everything is to be read again; once more a while after something that is told before it is done, as an address that goes with its routes.
    let (mut behind, mut again) = (true, None);
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        if behind {
            if let Some(followed) = read(&mut session.router)? {
                tell(&session.router, followed)?;
                behind = false;
            }
            looked = Instant::now();
        }
        let changes = follower
            .next(Duration::from_millis(200))
            .map_err(Failure::failed)?;
        if !changes.is_empty() && !behind {
            match session.router.follow(&changes) {
                Ok(Some(followed)) => tell(&session.router, followed)?,
                // What was missed is read again.
                Ok(None) | Err(EdgeError::Busy(_)) => {
                    behind = true;
                    again = Some(Instant::now() + SETTLES);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Whatever was not told is found so.
        behind |= looked.elapsed() > LOOK_AFTER;
        if again.is_some_and(|at| Instant::now() >= at) {
            (behind, again) = (true, None);
        }
    }
    Ok(())
}

/// Gateways that the kernel is not asked for by packets of its own.
fn ask_for_gateways(router: &Router) {
    for (device, address) in router.gateways() {
        // A gateway that cannot be asked for shows as packets that are `unresolved`.
        let _ = routes::ask_neighbour(device, address);
    }
}

fn words_of(followed: &Followed) -> String {
    format!(
        "{} added, {} removed",
        count(followed.put, "route"),
        followed.removed
    )
}

fn said(
    router: &Router,
    mut told: Value,
    as_json: bool,
    words: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let routes = router.len();
    if as_json {
        if let Some(object) = told.as_object_mut() {
            object.insert("function".to_owned(), router.function().into());
            object.insert("routes".to_owned(), routes.into());
        }
        output::json(&told)?;
    } else {
        output::out(&format!(
            "{}: {}, {} in all\n",
            router.function(),
            words(),
            routes
        ))?;
    }
    Ok(())
}

fn table_number(text: &str) -> Result<u32, Failure> {
    match text {
        "main" => Ok(routes::MAIN),
        "default" => Ok(253),
        number => number.parse().map_err(|_| {
            Failure::Usage(format!(
                "invalid table `{text}`: write `main` or a number, as `ip rule` shows them"
            ))
        }),
    }
}

/// A prefix as a route to nowhere would be written, so that mistakes are told in the same words.
fn prefix(text: &str, interfaces: &[Interface]) -> Result<Prefix, Failure> {
    match route::parse(&format!("blackhole {text}"), interfaces) {
        Ok(route) => Ok(route.prefix),
        Err(wrong) => Err(Failure::Usage(match wrong.advice {
            Some(advice) => format!("{}: {advice}", wrong.message),
            None => wrong.message,
        })),
    }
}

fn from(by: u8) -> &'static str {
    match by {
        origin::CONFIGURED => "configuration",
        origin::COMMAND => "weir route",
        _ => "kernel",
    }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
