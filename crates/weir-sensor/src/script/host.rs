//! Answers to what scripts ask for: one function, by the name of what is asked, from what is in view.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use md5::{Digest, Md5};
use mlua::{Error, IntoLuaMulti as _, Lua, MultiValue, Result, Table, Value};
use serde_json::Value as Json;
use sha1::Sha1;
use sha2::Sha256;

use super::{FlowFacts, Library, Needs, PacketView, Variables, View};
use crate::app::tls::version_name;
use crate::app::{App, Transaction, hex};
use crate::base64;
use crate::buffer::Buffer;
use crate::packet::Direction::{self, ToClient, ToServer};
use crate::time;

/// Bytes of a flow's variable.
const MOST_VALUE: usize = 4096;
/// Variables of one flow.
const MOST_VARIABLES: usize = 64;

/// What a state and the functions in it share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// A function was called that is blocked.
    pub(super) blocked: AtomicBool,
    /// The call has taken all instructions that it may.
    pub(super) exceeded: AtomicBool,
    /// What the script has said that it needs.
    pub(super) needs: Mutex<Needs>,
    /// Names of flows' counters; empty while the script is loaded first.
    pub(super) counters: Vec<String>,
    /// What `config.log_path` says.
    pub(super) logs: Option<String>,
}

/// Answers. Without a view nothing is inspected: the script is being loaded.
pub(super) fn answer(
    lua: &Lua,
    shared: &Shared,
    view: Option<&mut View<'_>>,
    what: &[u8],
    args: MultiValue,
) -> Result<MultiValue> {
    let what = std::str::from_utf8(what).unwrap_or_default();
    let args: Vec<Value> = args.into_iter().collect();
    let (about, asked) = what.split_once('.').unwrap_or((what, ""));
    let word = |n: usize| match args.get(n) {
        Some(Value::String(s)) => Ok(s.as_bytes().to_vec()),
        Some(Value::Integer(i)) => Ok(i.to_string().into_bytes()),
        Some(Value::Number(x)) => Ok(x.to_string().into_bytes()),
        _ => Err(wrong(format!("argument {} must be a string", n + 1))),
    };
    let name = |n: usize| word(n).map(|w| String::from_utf8_lossy(&w).into_owned());
    match about {
        "require" => {
            let library = Library::named(&name(0)?);
            let mut needs = shared.needs.lock().unwrap_or_else(PoisonError::into_inner);
            if !needs.libraries.contains(&library) {
                needs.libraries.push(library);
            }
            return none(lua);
        }
        "hash" => {
            let (kind, written) = asked.split_once('.').unwrap_or((asked, ""));
            let bytes = word(0)?;
            let sum = match kind {
                "md5" => Md5::digest(&bytes).to_vec(),
                "sha1" => Sha1::digest(&bytes).to_vec(),
                _ => Sha256::digest(&bytes).to_vec(),
            };
            return match written {
                "hex" => string(lua, hex(&sum).as_bytes()),
                _ => string(lua, &sum),
            };
        }
        "base64" => return encoding(lua, asked, &word(0)?),
        "log" => {
            // What is less than a notice is nobody's to read, unless a debugger is.
            if matches!(args.first(), Some(Value::String(l)) if ["error", "warning", "notice"].iter().any(|n| *l == *n))
            {
                let mut err = std::io::stderr().lock();
                // Without a reader it is nobody's.
                let _ = writeln!(err, "lua: {}: {}", name(0)?, name(1)?);
            }
            return none(lua);
        }
        "config" => {
            return match &shared.logs {
                Some(path) => string(lua, path.as_bytes()),
                None => absent(lua, "only outputs know the folder of logs"),
            };
        }
        "flowvar" | "flowint" if asked == "register" => {
            let mut needs = shared.needs.lock().unwrap_or_else(PoisonError::into_inner);
            if about == "flowint" {
                needs.counters.push(name(0)?);
            }
            return none(lua);
        }
        "flowint" if asked == "known" => {
            let name = name(0)?;
            return match shared.counters.contains(&name) {
                true => none(lua),
                false => Err(wrong(format!("no rule has a flowint `{name}`"))),
            };
        }
        "bytevar" if asked == "map" => {
            let mut needs = shared.needs.lock().unwrap_or_else(PoisonError::into_inner);
            needs.numbers.push(name(0)?);
            return none(lua);
        }
        _ => {}
    }
    let Some(view) = view else {
        return absent(lua, "nothing is inspected while a script is loaded");
    };
    match about {
        "packet" => match &view.packet {
            Some(packet) => of_packet(lua, packet, asked),
            None => absent(lua, "there is no packet"),
        },
        "flow" => match &view.flow {
            Some(flow) => of_flow(lua, flow, asked),
            None => absent(lua, "the packet is of no flow"),
        },
        "rule" => of_rule(lua, view, asked),
        "file" => of_file(lua, view, asked),
        "flowvar" => {
            let name = name(0)?;
            let Some(variables) = &mut view.variables else {
                return absent(lua, "the packet is of no flow");
            };
            match asked {
                "value" => {
                    let found = variables.strings.iter().find(|(n, _)| **n == *name);
                    match found {
                        Some((_, value)) => string(lua, value),
                        None => none(lua),
                    }
                }
                _ => {
                    let mut value = word(1)?;
                    if let Some(length) = args.get(2).and_then(Value::as_usize) {
                        value.truncate(length);
                    }
                    value.truncate(MOST_VALUE);
                    let list = &mut *variables.strings;
                    let room = list.len() < MOST_VARIABLES;
                    match list.iter_mut().find(|(n, _)| **n == *name) {
                        Some(known) => known.1 = value,
                        None if room => list.push((name.into(), value)),
                        None => return Err(wrong("too many variables in one flow".to_owned())),
                    }
                    none(lua)
                }
            }
        }
        "flowint" => {
            let name = name(0)?;
            let Some(variables) = &mut view.variables else {
                return absent(lua, "the packet is of no flow");
            };
            counter(lua, variables, &name, asked, args.get(1))
        }
        "bytevar" => {
            let name = name(0)?;
            match view.numbers.iter().find(|(n, _)| **n == *name) {
                Some((_, value)) => value.into_lua_multi(lua),
                None => none(lua),
            }
        }
        _ => {
            let Some(transaction) = view.transaction.as_deref() else {
                return absent(lua, "there is no transaction");
            };
            of_transaction(lua, transaction, (about, asked), &args)
        }
    }
}

fn wrong(text: String) -> Error {
    Error::RuntimeError(text)
}

fn none(lua: &Lua) -> Result<MultiValue> {
    Value::Nil.into_lua_multi(lua)
}

/// Nil, and why.
fn absent(lua: &Lua, why: &str) -> Result<MultiValue> {
    (Value::Nil, why).into_lua_multi(lua)
}

fn string(lua: &Lua, bytes: &[u8]) -> Result<MultiValue> {
    lua.create_string(bytes)?.into_lua_multi(lua)
}

/// The bytes, or nil with the reason that there are none.
fn bytes_or(lua: &Lua, bytes: Option<&[u8]>, what: &str) -> Result<MultiValue> {
    match bytes {
        Some(bytes) => string(lua, bytes),
        None => absent(lua, what),
    }
}

fn encoding(lua: &Lua, how: &str, bytes: &[u8]) -> Result<MultiValue> {
    let mut out = Vec::new();
    match how {
        "encode" | "encode_nopad" => {
            base64::encode(bytes, &mut out);
            if how == "encode_nopad" {
                while out.last() == Some(&b'=') {
                    out.pop();
                }
            }
        }
        _ => {
            let padded = match how {
                "decode_nopad" => {
                    let mut all = bytes.to_vec();
                    if bytes.contains(&b'=') {
                        return absent(lua, "not Base64 without padding");
                    }
                    while !all.len().is_multiple_of(4) {
                        all.push(b'=');
                    }
                    all
                }
                _ => bytes.to_vec(),
            };
            base64::decode_strict(&padded, &mut out);
            if out.is_empty() && !bytes.is_empty() {
                return absent(lua, "not Base64");
            }
        }
    }
    string(lua, &out)
}

fn counter(
    lua: &Lua,
    variables: &mut Variables<'_>,
    name: &str,
    asked: &str,
    value: Option<&Value>,
) -> Result<MultiValue> {
    let place = variables.names.iter().position(|n| n == name);
    let Some(place) = place.and_then(|at| u16::try_from(at).ok()) else {
        return Err(wrong(format!("no rule has a flowint `{name}`")));
    };
    let now = variables.counters.iter().find(|(n, _)| *n == place);
    let now = now.map(|(_, value)| *value);
    let by = value.and_then(Value::as_i64).or_else(|| {
        let number = value.and_then(Value::as_f64)?;
        Some(number as i64)
    });
    let next = match asked {
        "value" => {
            return match now {
                Some(now) => now.into_lua_multi(lua),
                None => none(lua),
            };
        }
        "set" => by.unwrap_or(0),
        _ => i64::from(now.unwrap_or(0)).saturating_add(by.unwrap_or(0)),
    };
    let next = u32::try_from(next.max(0)).unwrap_or(u32::MAX);
    match variables.counters.iter_mut().find(|(n, _)| *n == place) {
        Some(known) => known.1 = next,
        None => variables.counters.push((place, next)),
    }
    next.into_lua_multi(lua)
}

fn seconds(time: u64) -> (i64, i64) {
    let micro = time / 1000;
    ((micro / 1_000_000) as i64, (micro % 1_000_000) as i64)
}

fn written(lua: &Lua, time: u64, write: fn(&mut Vec<u8>, u64)) -> Result<MultiValue> {
    let mut out = Vec::new();
    write(&mut out, time);
    string(lua, &out)
}

/// Version of IP, both addresses, protocol, both ports.
fn tuple(
    lua: &Lua,
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    ports: (u16, u16),
) -> Result<MultiValue> {
    let version = if source.is_ipv4() { 4 } else { 6 };
    let ends = (source.to_string(), destination.to_string());
    (version, ends.0, ends.1, protocol, ports.0, ports.1).into_lua_multi(lua)
}

fn of_packet(lua: &Lua, packet: &PacketView<'_>, asked: &str) -> Result<MultiValue> {
    match asked {
        "" => true.into_lua_multi(lua),
        "timestamp" => seconds(packet.time).into_lua_multi(lua),
        "timestring_legacy" => written(lua, packet.time, time::fast),
        "timestring_iso8601" => written(lua, packet.time, time::eve),
        "tuple" => match packet.addresses {
            Some(ends) => {
                let icmp = packet.icmp.map(|(kind, code)| (kind.into(), code.into()));
                let last = packet.ports.or(icmp).unwrap_or_default();
                tuple(lua, ends, packet.protocol, last)
            }
            None => absent(lua, "the packet has no addresses"),
        },
        "sp" => packet.ports.map(|p| p.0).into_lua_multi(lua),
        "dp" => packet.ports.map(|p| p.1).into_lua_multi(lua),
        "payload" => string(lua, &packet.payload),
        "packet" => string(lua, &packet.data),
        "pcap_cnt" => packet.number.into_lua_multi(lua),
        _ => none(lua),
    }
}

fn of_flow(lua: &Lua, flow: &FlowFacts, asked: &str) -> Result<MultiValue> {
    let [start, last] = flow.times;
    match asked {
        "" => true.into_lua_multi(lua),
        "timestamps" => {
            let (start, last) = (seconds(start), seconds(last));
            (start.0, start.1, last.0, last.1).into_lua_multi(lua)
        }
        "timestring_legacy" => written(lua, start, time::fast),
        "timestring_iso8601" => written(lua, start, time::eve),
        "tuple" => {
            let ends = (flow.client.0, flow.server.0);
            tuple(lua, ends, flow.protocol, (flow.client.1, flow.server.1))
        }
        "app_layer_proto" => {
            let [app, to_server, to_client, before] = flow.apps;
            (app, to_server, to_client, before, "unknown").into_lua_multi(lua)
        }
        "has_alerts" => flow.alerted.into_lua_multi(lua),
        "id" => flow.id.into_lua_multi(lua),
        "stats" => {
            let [(a, b), (c, d)] = [0, 1].map(|d: usize| {
                let of = |list: &[u64; 2]| list.get(d).copied().unwrap_or_default();
                (of(&flow.packets), of(&flow.bytes))
            });
            (a, b, c, d).into_lua_multi(lua)
        }
        _ => none(lua),
    }
}

fn of_rule(lua: &Lua, view: &View<'_>, asked: &str) -> Result<MultiValue> {
    let Some(rule) = &view.rule else {
        return absent(lua, "there is no rule");
    };
    match asked {
        "" => true.into_lua_multi(lua),
        "sid" => rule.sid.into_lua_multi(lua),
        "gid" => rule.gid.into_lua_multi(lua),
        "rev" => rule.rev.into_lua_multi(lua),
        "action" => rule.action.into_lua_multi(lua),
        "msg" => string(lua, rule.message.as_bytes()),
        "class" => (&*rule.class, rule.priority).into_lua_multi(lua),
        _ => none(lua),
    }
}

fn of_file(lua: &Lua, view: &View<'_>, asked: &str) -> Result<MultiValue> {
    let Some(file) = &view.file else {
        return absent(lua, "there is no file");
    };
    match asked {
        "" => true.into_lua_multi(lua),
        "file_id" => file.id.into_lua_multi(lua),
        "tx_id" => file.transaction.into_lua_multi(lua),
        "name" => string(lua, &file.name),
        "size" => file.size.into_lua_multi(lua),
        "magic" => file.magic.as_deref().into_lua_multi(lua),
        "get_state" => file.state.into_lua_multi(lua),
        "is_stored" => file.stored.into_lua_multi(lua),
        sum => {
            let found = file.sums.iter().find(|(name, _)| *name == sum);
            found.map(|(_, sum)| sum.as_str()).into_lua_multi(lua)
        }
    }
}

/// The protocols whose transactions a library is about.
fn is_about(library: &str, t: &Transaction) -> bool {
    match library {
        "http" => matches!(t.app, App::Http1 | App::Http2),
        "dns" => matches!(t.app, App::Dns | App::Doh2),
        "tls" => t.app == App::Tls,
        "ja3" => matches!(t.app, App::Tls | App::Quic),
        other => t.app.name() == other,
    }
}

fn of_transaction(
    lua: &Lua,
    t: &Transaction,
    (library, asked): (&str, &str),
    args: &[Value],
) -> Result<MultiValue> {
    if !is_about(library, t) {
        let text = format!("the transaction is none of {library}");
        return absent(lua, &text);
    }
    let of = |buffer, direction| t.get(buffer, direction).next();
    let fact = |name| t.facts(name).next();
    match (library, asked) {
        ("dnp3", _) => {
            let record = json(lua, &Json::Object(t.record.clone()))?;
            if let Value::Table(table) = &record {
                table.raw_set("tx_num", t.number)?;
            }
            record.into_lua_multi(lua)
        }
        (_, "") => true.into_lua_multi(lua),
        ("http", _) => http(lua, t, asked, args),
        ("dns", _) => dns(lua, t, asked),
        ("tls", _) => tls(lua, t, asked),
        ("ja3", _) => {
            let (buffer, direction) = match asked {
                "ja3_get_hash" => (Buffer::Ja3Hash, ToServer),
                "ja3_get_string" => (Buffer::Ja3String, ToServer),
                "ja3s_get_hash" => (Buffer::Ja3sHash, ToClient),
                _ => (Buffer::Ja3sString, ToClient),
            };
            let said = || {
                let (key, part) = asked.split_once("_get_")?;
                t.record.get(key)?.get(part)?.as_str()
            };
            match of(buffer, direction).or(said().map(str::as_bytes)) {
                Some(bytes) => string(lua, bytes),
                None => absent(lua, "it is not known"),
            }
        }
        ("ssh", _) => {
            let (buffer, direction) = match asked {
                "server_proto" => (Buffer::SshProto, ToClient),
                "client_proto" => (Buffer::SshProto, ToServer),
                "server_software" => (Buffer::SshSoftware, ToClient),
                "client_software" => (Buffer::SshSoftware, ToServer),
                "client_hassh" => (Buffer::SshHassh, ToServer),
                "client_hassh_string" => (Buffer::SshHasshString, ToServer),
                "server_hassh" => (Buffer::SshHasshServer, ToClient),
                _ => (Buffer::SshHasshServerString, ToClient),
            };
            bytes_or(lua, of(buffer, direction), "it was not said")
        }
        ("smtp", _) => smtp(lua, t, asked, args),
        ("ntp", "version") => fact("ntp.version").into_lua_multi(lua),
        ("ntp", "mode") => fact("ntp.mode").into_lua_multi(lua),
        ("ntp", "stratum") => fact("ntp.stratum").into_lua_multi(lua),
        ("ntp", _) => {
            let either = [ToServer, ToClient].into_iter();
            let mut id = either.filter_map(|d| of(Buffer::NtpReferenceId, d));
            bytes_or(lua, id.next(), "the message has none")
        }
        _ => none(lua),
    }
}

/// Lines of a header: names and values.
fn fields(raw: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    raw.split(|b| *b == b'\n').filter_map(|line| {
        let colon = line.iter().position(|b| *b == b':')?;
        let (name, value) = line.split_at(colon);
        Some((name.trim_ascii(), value.get(1..)?.trim_ascii()))
    })
}

fn http(lua: &Lua, t: &Transaction, asked: &str, args: &[Value]) -> Result<MultiValue> {
    let of = |buffer, direction| t.get(buffer, direction).next();
    let (end, direction): (_, Direction) = match asked.starts_with("response") {
        true => ("response", ToClient),
        false => ("request", ToServer),
    };
    let headers = of(Buffer::HttpHeaderRaw, direction);
    match asked {
        "request_header" | "response_header" => {
            let Some(Value::String(wanted)) = args.first() else {
                return Err(wrong("the name of a header is missing".to_owned()));
            };
            let mut all = fields(headers.unwrap_or_default());
            let found = all.find(|(n, _)| n.eq_ignore_ascii_case(&wanted.as_bytes()));
            bytes_or(
                lua,
                found.map(|(_, value)| value),
                "there is no such header",
            )
        }
        "request_headers" | "response_headers" => {
            let table = lua.create_table()?;
            for (name, value) in fields(headers.unwrap_or_default()) {
                table.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
            }
            table.into_lua_multi(lua)
        }
        "request_headers_raw" | "response_headers_raw" => {
            bytes_or(lua, headers, &format!("the {end} has no headers"))
        }
        "request_line" => bytes_or(lua, of(Buffer::HttpRequestLine, ToServer), "no request"),
        "response_line" => bytes_or(lua, of(Buffer::HttpResponseLine, ToClient), "no response"),
        "request_uri_raw" => bytes_or(lua, of(Buffer::HttpUriRaw, ToServer), "no request"),
        "request_uri_normalized" => bytes_or(lua, of(Buffer::HttpUri, ToServer), "no request"),
        "request_host" => bytes_or(lua, of(Buffer::HttpHost, ToServer), "no host"),
        "request_body" | "response_body" => {
            let buffer = match direction {
                ToServer => Buffer::HttpRequestBody,
                ToClient => Buffer::HttpResponseBody,
            };
            let Some(body) = of(buffer, direction) else {
                return absent(lua, &format!("the {end} has no body"));
            };
            let table = lua.create_table()?;
            table.raw_push(lua.create_string(body)?)?;
            (table, 0, body.len()).into_lua_multi(lua)
        }
        _ => none(lua),
    }
}

fn dns(lua: &Lua, t: &Transaction, asked: &str) -> Result<MultiValue> {
    let said = match t.app {
        App::Doh2 => t.beside.get("dns").and_then(Json::as_object),
        _ => Some(&t.record),
    };
    let Some(said) = said else {
        return absent(lua, "the message was not read");
    };
    let list = |key: &str| said.get(key).and_then(Json::as_array);
    match asked {
        "txid" => said.get("id").and_then(Json::as_i64).into_lua_multi(lua),
        "rcode" => t.facts("dns.rcode").next().into_lua_multi(lua),
        "rcode_string" => said.get("rcode").and_then(Json::as_str).into_lua_multi(lua),
        "recursion_desired" => {
            let set = said.get("rd").and_then(Json::as_bool).unwrap_or(false);
            set.into_lua_multi(lua)
        }
        "rrname" => {
            let first = list("queries").and_then(|list| list.first()?.get("rrname")?.as_str());
            first.into_lua_multi(lua)
        }
        "queries" | "answers" | "authorities" => {
            let table = lua.create_table()?;
            for (n, row) in list(asked).into_iter().flatten().enumerate() {
                let one = lua.create_table()?;
                for (key, name) in [
                    ("rrname", "rrname"),
                    ("rrtype", "type"),
                    ("ttl", "ttl"),
                    ("rdata", "addr"),
                ] {
                    if let Some(value) = row.get(key) {
                        one.raw_set(name, json(lua, value)?)?;
                    }
                }
                table.raw_set(n, one)?;
            }
            table.into_lua_multi(lua)
        }
        _ => none(lua),
    }
}

fn tls(lua: &Lua, t: &Transaction, asked: &str) -> Result<MultiValue> {
    let client = asked.contains("client");
    let record = match t.record.get("client").and_then(Json::as_object) {
        Some(own) if client => Some(own),
        None if client => None,
        _ => Some(&t.record),
    };
    let of = |key: &str| record.and_then(|r| r.get(key)?.as_str());
    let version = t.record.get("version").and_then(Json::as_str);
    match asked {
        // Until the server has answered it is what the client has offered.
        "get_client_version" => {
            let number = t.facts("tls.version").next();
            let name = number.and_then(|n| Some(version_name(u16::try_from(n).ok()?)));
            name.into_lua_multi(lua)
        }
        "get_server_version" => version.into_lua_multi(lua),
        "get_sni" | "get_client_sni" => {
            let name = t.record.get("sni").and_then(Json::as_str);
            name.into_lua_multi(lua)
        }
        "get_client_serial" | "get_server_serial" => match of("serial") {
            Some(serial) => serial.into_lua_multi(lua),
            None => absent(lua, "no certificate was shown"),
        },
        "get_client_cert_info" | "get_server_cert_info" => match of("subject") {
            Some(subject) => {
                let (issuer, print) = (of("issuerdn"), of("fingerprint"));
                (version, subject, issuer, print).into_lua_multi(lua)
            }
            None => absent(lua, "no certificate was shown"),
        },
        "get_server_cert_not_after" => t.facts("tls.cert_notafter").next().into_lua_multi(lua),
        "get_server_cert_not_before" => t.facts("tls.cert_notbefore").next().into_lua_multi(lua),
        "get_client_cert_not_after" => of("notafter").and_then(unix).into_lua_multi(lua),
        "get_client_cert_not_before" => of("notbefore").and_then(unix).into_lua_multi(lua),
        "get_client_cert_chain" | "get_server_cert_chain" => {
            let table = lua.create_table()?;
            let direction = if client { ToServer } else { ToClient };
            for der in t.get(Buffer::TlsCerts, direction) {
                let one = lua.create_table()?;
                one.raw_set("length", der.len())?;
                one.raw_set("data", lua.create_string(der)?)?;
                table.raw_push(one)?;
            }
            table.into_lua_multi(lua)
        }
        _ => none(lua),
    }
}

/// Seconds since 1970 of `2025-01-01T00:00:00`.
fn unix(date: &str) -> Option<i64> {
    let part = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let clock = part(11, 13)? * 3600 + part(14, 16)? * 60 + part(17, 19)?;
    // Years begin in March, so that a leap day is the last one.
    let (y, m) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    let days = days + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + clock)
}

fn smtp(lua: &Lua, t: &Transaction, asked: &str, args: &[Value]) -> Result<MultiValue> {
    let said = |key: &str| t.record.get(key);
    let email = t.beside.get("email").and_then(Json::as_object);
    match asked {
        "get_mail_from" => said("mail_from").and_then(Json::as_str).into_lua_multi(lua),
        "get_rcpt_list" => match said("rcpt_to") {
            Some(list) => json(lua, list)?.into_lua_multi(lua),
            None => absent(lua, "no recipient was named"),
        },
        "get_mime_list" => {
            let table = lua.create_table()?;
            for name in email.into_iter().flat_map(|e| e.keys()) {
                if !matches!(name.as_str(), "status" | "attachment" | "url") {
                    table.raw_push(name.replace('_', "-"))?;
                }
            }
            table.into_lua_multi(lua)
        }
        "get_mime_field" => {
            let Some(Value::String(name)) = args.first() else {
                return Err(wrong("the name of a field is missing".to_owned()));
            };
            let name = name.to_string_lossy().to_ascii_lowercase();
            let name = name.replace('-', "_");
            let found = match email.and_then(|e| e.get(&name)) {
                Some(Json::Array(list)) => {
                    let words: Vec<&str> = list.iter().filter_map(Json::as_str).collect();
                    Some(words.join(", "))
                }
                Some(Json::String(text)) => Some(text.clone()),
                _ => None,
            };
            found.into_lua_multi(lua)
        }
        _ => none(lua),
    }
}

/// JSON as the language has it; lists begin at 1.
fn json(lua: &Lua, value: &Json) -> Result<Value> {
    Ok(match value {
        Json::Null => Value::Nil,
        Json::Bool(b) => Value::Boolean(*b),
        Json::Number(n) => match n.as_i64() {
            Some(n) => Value::Integer(n),
            None => Value::Number(n.as_f64().unwrap_or_default()),
        },
        Json::String(s) => Value::String(lua.create_string(s)?),
        Json::Array(list) => {
            let table: Table = lua.create_table()?;
            for one in list {
                table.raw_push(json(lua, one)?)?;
            }
            Value::Table(table)
        }
        Json::Object(map) => {
            let table: Table = lua.create_table()?;
            for (key, one) in map {
                table.raw_set(key.as_str(), json(lua, one)?)?;
            }
            Value::Table(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::unix;

    #[test]
    fn dates_are_seconds() {
        for (date, seconds) in [
            ("1970-01-01T00:00:00", 0),
            ("2000-02-29T00:00:00", 951_782_400),
            ("2023-12-31T23:59:59", 1_704_067_199),
        ] {
            assert_eq!(unix(date), Some(seconds), "{date}");
        }
        assert_eq!(unix("2023"), None);
    }
}
