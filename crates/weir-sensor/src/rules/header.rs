//! Headers of rules: action, protocol, addresses, ports, direction.

use crate::app::{self, App, COMMON_HOOKS, Protocol};

use super::addresses::{Groups, any_address, any_port};
use super::load::{Dialect, LoadSettings};
use super::model::{
    Action, FirewallPlace, FirewallRule, Header, HeaderProtocol, Hook, Scope, Verdict,
};
use super::problem::{Kind, Parsed, Problem};
use super::scan::ACTIONS;
use super::text::Text;

/// A header with the protocols of applications that its first word names.
pub(super) struct Head {
    pub(super) action: Action,
    pub(super) header: Header,
    pub(super) apps: Vec<App>,
    /// The number that a protocol of IP has, of those that have no class of their own.
    pub(super) number: Option<u8>,
    /// `PROTOCOL:HOOK`: when the rule is decided.
    pub(super) hook: Option<Hook>,
    /// The action is `config`: no alert.
    pub(super) silent: bool,
    /// `=>`: about a request and its response together.
    pub(super) whole: bool,
    /// What the action is done to, if that is said.
    pub(super) scope: Option<Scope>,
    /// Of a file of the firewall.
    pub(super) firewall: Option<FirewallRule>,
    /// `accept:hook,alert`.
    pub(super) alerts: bool,
    pub(super) notes: Vec<String>,
}

/// Protocols that the language has and no parser here knows.
const FOREIGN: &[&str] = &[
    "arp",
    "ether",
    "msn",
    "sdp",
    "template",
    "cip",
    "gtp",
    "mms",
    "s7commplus",
    "mysql",
    "irc",
    "sunrpc",
];

/// What a word of a firewall's rule asks for: `accept:flow,pass:flow,alert`.
struct Decree {
    verdict: Verdict,
    scope: Scope,
    pass: Option<Scope>,
    alerts: bool,
}

/// Parses a header; of a file of the firewall if `firewall` says so.
pub(super) fn head(
    text: Text<'_>,
    settings: &LoadSettings,
    groups: &mut Groups,
    firewall: bool,
) -> Parsed<Head> {
    let words = words(text);
    let mut words = words.into_iter();
    let Some(first) = words.next() else {
        return Err(text.fail(Kind::Syntax, "the rule has no header"));
    };
    let mut notes = Vec::new();
    let silent = first.is("config") && settings.dialect == Dialect::Suricata;
    let decree = firewall.then(|| decree(first, settings)).transpose()?;
    let (action, scope) = match &decree {
        Some(decree) => match decree.verdict {
            Verdict::Accept => (Action::Alert, None),
            Verdict::Drop => (Action::Drop, None),
            Verdict::Reject => (Action::Reject, None),
        },
        None if silent => (Action::Alert, None),
        None => match first.cut(b':') {
            Some((word, at)) if settings.dialect == Dialect::Suricata => {
                let action = action(word, settings.dialect, &mut notes)?;
                (action, Some(scope_of(action, at)?))
            }
            _ => (action(first, settings.dialect, &mut notes)?, None),
        },
    };
    let Some(word) = words.next() else {
        return Err(first.fail(Kind::Syntax, "a protocol is missing after the action"));
    };
    let (word, hook_at) = match word.cut(b':') {
        Some((word, at)) if settings.dialect == Dialect::Suricata => (word, Some(at)),
        _ => (word, None),
    };
    let number = match word.bytes {
        b"igmp" => Some(2),
        b"gre" => Some(47),
        b"esp" => Some(50),
        _ => None,
    };
    let (protocol, apps) = match number {
        Some(_) => (HeaderProtocol::Ip, Vec::new()),
        None => protocol(word, settings.dialect)?,
    };
    // `<` before a hook: the states before it are accepted as well.
    let before = firewall && hook_at.is_some_and(|at| at.bytes.starts_with(b"<"));
    let hook_at = hook_at.map(|at| if before { at.from(1) } else { at });
    let hook = hook_at.map(|at| hook(word, &apps, at)).transpose()?;
    let firewall = match decree {
        None => None,
        Some(decree) => {
            let place = place(first, (word, &apps), hook.zip(hook_at), before)?;
            let state = matches!(place, FirewallPlace::State { .. });
            if decree.scope == Scope::Transaction && !state {
                let reason = "`tx` is about transactions: a rule about packets has none";
                return Err(first.fail(Kind::Conflict, reason));
            }
            Some((decree, place))
        }
    };
    let mut whole = false;
    let rest: Vec<Text<'_>> = words.collect();
    let header = match rest[..] {
        [] if settings.dialect == Dialect::Snort && protocol == HeaderProtocol::App => Header {
            protocol,
            source: any_address(),
            source_ports: any_port(),
            destination: any_address(),
            destination_ports: any_port(),
            both_ways: false,
        },
        [from, from_ports, arrow, to, to_ports] => Header {
            protocol,
            source: groups.addresses(from, &settings.variables)?,
            source_ports: groups.ports(from_ports, &settings.variables)?,
            both_ways: {
                whole = arrow.bytes == b"=>" && settings.dialect == Dialect::Suricata;
                if whole && apps.is_empty() {
                    let reason = "`=>` is about the transactions of an application, which the header does not name";
                    return Err(arrow.fail(Kind::Conflict, reason));
                }
                !whole && direction(arrow)?
            },
            destination: groups.addresses(to, &settings.variables)?,
            destination_ports: groups.ports(to_ports, &settings.variables)?,
        },
        _ => {
            let reason = format!(
                "a header is ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT; this one has {} words",
                rest.len() + 2
            );
            return Err(text.fail(Kind::Syntax, reason));
        }
    };
    Ok(Head {
        action,
        header,
        apps,
        number,
        hook,
        // A rule of the firewall says nothing unless it is told to.
        silent: silent || firewall.as_ref().is_some_and(|(decree, _)| !decree.alerts),
        whole,
        scope,
        alerts: firewall.as_ref().is_some_and(|(decree, _)| decree.alerts),
        firewall: firewall.map(|(decree, place)| FirewallRule {
            verdict: decree.verdict,
            scope: decree.scope,
            pass: decree.pass,
            place,
        }),
        notes,
    })
}

/// What a rule of the inspection does its action to.
fn scope_of(action: Action, at: Text<'_>) -> Parsed<Scope> {
    match (action, at.bytes) {
        (Action::Pass | Action::Drop | Action::Reject, b"packet") => Ok(Scope::Packet),
        (Action::Pass | Action::Drop | Action::Reject, b"flow") => Ok(Scope::Flow),
        (Action::Alert, _) => {
            let reason = "an alert has no scope: it is about what matched";
            Err(at.fail(Kind::Syntax, reason))
        }
        _ => {
            let reason = format!("`{}` is not a scope (packet or flow)", at.lossy());
            Err(at.fail(Kind::Value, reason))
        }
    }
}

/// The actions of a rule of the firewall: what it decides, then what it does beside that.
fn decree(word: Text<'_>, settings: &LoadSettings) -> Parsed<Decree> {
    if settings.dialect != Dialect::Suricata {
        let reason = "rules of the firewall are written in the dialect `suricata`";
        return Err(word.fail(Kind::Unsupported, reason));
    }
    let mut decree: Option<Decree> = None;
    let mut rest = Some(word);
    while let Some(text) = rest {
        let (one, more) = match text.cut(b',') {
            Some((one, more)) => (one, Some(more)),
            None => (text, None),
        };
        rest = more;
        let (name, scope) = match one.cut(b':') {
            Some((name, scope)) => (name, Some(scope)),
            None => (one, None),
        };
        let verdict = match name.bytes {
            b"accept" => Some(Verdict::Accept),
            b"drop" => Some(Verdict::Drop),
            b"reject" => Some(Verdict::Reject),
            _ => None,
        };
        let known = scope.and_then(|scope| match scope.bytes {
            b"hook" => Some(Scope::Hook),
            b"tx" => Some(Scope::Transaction),
            b"packet" => Some(Scope::Packet),
            b"flow" => Some(Scope::Flow),
            _ => None,
        });
        let reason = match (&mut decree, verdict, known) {
            (None, Some(verdict), Some(scope)) => {
                if verdict == Verdict::Accept || scope >= Scope::Packet {
                    decree = Some(Decree {
                        verdict,
                        scope,
                        pass: None,
                        alerts: false,
                    });
                    continue;
                }
                "packets and flows are dropped: `drop:packet` or `drop:flow`"
            }
            (None, Some(_), None) => {
                "the scope is missing: `hook`, `tx`, `packet` or `flow` behind a colon"
            }
            (None, None, _) => {
                "a rule of the firewall begins with `accept`, `drop` or `reject`, and a scope"
            }
            (Some(one), None, Some(scope)) if name.is("pass") && scope >= Scope::Packet => {
                if one.verdict == Verdict::Accept {
                    one.pass = Some(scope);
                    continue;
                }
                "what is dropped is not passed"
            }
            (Some(one), None, None) if name.is("alert") && scope.is_none() => {
                one.alerts = true;
                continue;
            }
            (Some(_), ..) => {
                "beside its decision a rule of the firewall has `alert`, `pass:packet` or `pass:flow`"
            }
        };
        return Err(one.fail(Kind::Syntax, reason));
    }
    decree.ok_or_else(|| word.fail(Kind::Syntax, "the rule has no action"))
}

/// Which table a rule of the firewall stands in.
fn place(
    first: Text<'_>,
    (protocol, apps): (Text<'_>, &[App]),
    hook: Option<(Hook, Text<'_>)>,
    before: bool,
) -> Parsed<FirewallPlace> {
    let Some((hook, at)) = hook else {
        let reason = "a rule of the firewall says when it is asked: PROTOCOL:HOOK";
        return Err(protocol.fail(Kind::Syntax, reason));
    };
    match hook {
        Hook::Reached(direction, _) => {
            let [app] = apps else {
                let reason = format!(
                    "`{}` is several protocols, whose states differ: name one",
                    protocol.lossy()
                );
                return Err(protocol.fail(Kind::Value, reason));
            };
            let name = at.str()?;
            let state = app::protocol(*app).and_then(|row| row.state(direction, name));
            let Some(state) = state else {
                return Err(unknown_hook(protocol, at, name));
            };
            Ok(FirewallPlace::State {
                app: *app,
                direction,
                state,
                before,
            })
        }
        Hook::All | Hook::FlowStart if !before => Ok(FirewallPlace::Packet),
        Hook::PreFlow if !before => Ok(FirewallPlace::PreFlow),
        Hook::PreStream if !before => Ok(FirewallPlace::PreStream),
        _ => {
            let reason = "`<` is about the states of a transaction";
            Err(first.fail(Kind::Conflict, reason))
        }
    }
}

/// Words between blanks outside brackets.
fn words(text: Text<'_>) -> Vec<Text<'_>> {
    let mut words = Vec::new();
    let mut from = None;
    let mut depth = 0u32;
    for (i, b) in text.bytes.iter().enumerate() {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let blank = b.is_ascii_whitespace() && depth == 0;
        match (blank, from) {
            (false, None) => from = Some(i),
            (true, Some(start)) => {
                words.push(text.part(start..i));
                from = None;
            }
            _ => {}
        }
    }
    if let Some(start) = from {
        words.push(text.from(start));
    }
    words
}

fn action(word: Text<'_>, dialect: Dialect, notes: &mut Vec<String>) -> Parsed<Action> {
    let name = word.str()?;
    Ok(match name {
        "alert" => Action::Alert,
        "pass" => Action::Pass,
        "drop" | "sdrop" => Action::Drop,
        "reject" | "rejectsrc" => Action::Reject,
        "rejectdst" | "rejectboth" => {
            notes.push(format!("`{name}` is treated as `reject`"));
            Action::Reject
        }
        "block" if dialect == Dialect::Snort => Action::Drop,
        "react" if dialect == Dialect::Snort => {
            notes.push("`react` is treated as `reject`: no page is sent".to_owned());
            Action::Reject
        }
        _ if ACTIONS.contains(&name) => {
            let reason = format!("rules with the action `{name}` are not supported");
            return Err(word.fail(Kind::Unsupported, reason));
        }
        _ => {
            let reason = format!("`{name}` is not an action (alert, pass, drop, reject, ...)");
            return Err(word.fail(Kind::Syntax, reason));
        }
    })
}

fn protocol(word: Text<'_>, dialect: Dialect) -> Parsed<(HeaderProtocol, Vec<App>)> {
    let name = word.str()?;
    // Capitals are fine in names of the layers below applications.
    let plain = match name.to_ascii_lowercase().as_str() {
        "ip" => Some(HeaderProtocol::Ip),
        "any" if dialect == Dialect::Suricata => Some(HeaderProtocol::Ip),
        "ip4" | "ipv4" => Some(HeaderProtocol::Ipv4),
        "ip6" | "ipv6" => Some(HeaderProtocol::Ipv6),
        "tcp" => Some(HeaderProtocol::Tcp),
        "tcp-pkt" => Some(HeaderProtocol::TcpPacket),
        "tcp-stream" => Some(HeaderProtocol::TcpStream),
        "udp" => Some(HeaderProtocol::Udp),
        "icmp" => Some(HeaderProtocol::Icmp),
        "icmpv4" => Some(HeaderProtocol::Icmpv4),
        "icmpv6" => Some(HeaderProtocol::Icmpv6),
        "sctp" => Some(HeaderProtocol::Sctp),
        "pkthdr" => Some(HeaderProtocol::PacketHeader),
        _ => None,
    };
    if let Some(plain) = plain {
        return Ok((plain, Vec::new()));
    }
    if name == "file" && dialect == Dialect::Snort {
        return Ok((HeaderProtocol::App, Vec::new()));
    }
    let apps = match dialect {
        Dialect::Suricata => apps(name),
        Dialect::Snort => apps(name).or_else(|| service(name)),
    };
    match apps {
        Some(apps) => Ok((HeaderProtocol::App, apps)),
        None if FOREIGN.contains(&name) => {
            let reason = format!("the protocol `{name}` is not known to any parser here");
            Err(word.fail(Kind::Unsupported, reason))
        }
        None => Err(word.fail(Kind::Value, format!("`{name}` is not a protocol"))),
    }
}

/// When a rule is decided, by the name behind its protocol.
fn hook(protocol: Text<'_>, apps: &[App], at: Text<'_>) -> Parsed<Hook> {
    let name = at.str()?;
    let Some(app) = apps.first() else {
        return match name {
            "all" => Ok(Hook::All),
            "pre_flow" => Ok(Hook::PreFlow),
            "pre_stream" => Ok(Hook::PreStream),
            "flow_start" => Ok(Hook::FlowStart),
            _ => Err(unknown_hook(protocol, at, name)),
        };
    };
    let Some(row) = app::protocol(*app).filter(|row| row.kind.is_some()) else {
        let reason = format!("transactions of {} are not told apart here", app.name());
        return Err(at.fail(Kind::Unsupported, reason));
    };
    if let Some((_, reason)) = row.no_hooks.iter().find(|(all, _)| all.contains(&name)) {
        return Err(at.fail(Kind::Unsupported, *reason));
    }
    // A name that stands for several protocols has the hooks that all have.
    if apps.len() > 1 && !COMMON_HOOKS.iter().any(|(hook, ..)| *hook == name) {
        return Err(unknown_hook(protocol, at, name));
    }
    match row.hook(name) {
        Some((direction, stage)) => Ok(Hook::Reached(direction, stage)),
        None => Err(unknown_hook(protocol, at, name)),
    }
}

fn unknown_hook(protocol: Text<'_>, at: Text<'_>, name: &str) -> Problem {
    let reason = format!("`{}` has no hook `{name}`", protocol.lossy());
    at.fail(Kind::Value, reason)
}

/// The applications that a name stands for: `http` is either version.
pub(super) fn apps(name: &str) -> Option<Vec<App>> {
    let apps: Vec<App> = app::named(name).map(|row| row.app).collect();
    (!apps.is_empty()).then_some(apps)
}

/// The applications of a service of Snort; `None`: it is none of those that are told here.
pub(super) fn service(name: &str) -> Option<Vec<App>> {
    let has = |row: &&Protocol| row.services.contains(&name);
    match app::PROTOCOLS.iter().find(has) {
        Some(row) => Some(vec![row.app]),
        None => apps(name),
    }
}

fn direction(arrow: Text<'_>) -> Parsed<bool> {
    match arrow.bytes {
        b"->" => Ok(false),
        b"<>" => Ok(true),
        b"<-" => {
            let reason = "`<-` is not a direction: write the receiver at the right";
            Err(arrow.fail(Kind::Syntax, reason))
        }
        _ => Err(arrow.fail(Kind::Syntax, "a direction is `->` or `<>`")),
    }
}
