//! Which records of applications are written, and which of their fields: what `types` of an `eve-log` chooses.

use serde_json::{Map, Value};

use crate::config::DnsKinds;

/// Whether a record of DNS is one of those to be written.
pub(super) fn is_wanted(kinds: &DnsKinds, record: &Map<String, Value>) -> bool {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
    let way = match text("type") {
        "response" => kinds.responses,
        _ => kinds.requests,
    };
    let questions = record.get("queries").and_then(Value::as_array);
    let asks = |wanted: &str| {
        let mut types = questions.into_iter().flatten().map(|q| &q["rrtype"]);
        types.any(|t| t == wanted)
    };
    way && (kinds.types.is_empty() || kinds.types.iter().any(|t| asks(t)))
}

/// What a record of SMB is about, as `types` names it.
pub(super) fn smb_type(record: &Map<String, Value>) -> &'static str {
    let command = record.get("command").and_then(Value::as_str);
    let command = command.unwrap_or_default();
    let (_, name) = command.split_once("_COMMAND_").unwrap_or_default();
    if record.contains_key("dcerpc") {
        return "dcerpc";
    }
    if record.contains_key("rename") {
        return "rename";
    }
    match name {
        "TRANS2" if record.contains_key("subcmd") => "set_file_path_info",
        "NEGOTIATE_PROTOCOL" => "negotiate",
        "SESSION_SETUP" | "SESSION_SETUP_ANDX" => "session_setup",
        "TREE_CONNECT" | "TREE_CONNECT_ANDX" => "tree_connect",
        "CREATE" | "NT_CREATE_ANDX" => "create",
        "READ" | "WRITE" | "READ_ANDX" | "WRITE_ANDX" => "file",
        "IOCTL" => "ioctl",
        "RENAME" => "rename",
        "SET_INFO" => "set_file_path_info",
        _ => "generic",
    }
}

/// Leaves the fields that are asked for in a record of TLS; those of the client's certificate stand in an object of their own.
pub(super) fn only(record: &mut Map<String, Value>, fields: &[String]) {
    let has = |name: &str| fields.iter().any(|f| f == name);
    if let Some(Value::Object(client)) = record.get_mut("client") {
        client.retain(|name, _| match name.as_str() {
            "certificate" => has("client_certificate"),
            "chain" => has("client_chain"),
            _ => has("client"),
        });
        if client.is_empty() {
            record.remove("client");
        }
    }
    record.retain(|name, _| name == "client" || has(name));
}

/// Fields of a record of HTTP/1 that `extended` adds; alerts and files always show them.
const EXTENDED_HTTP: [&str; 7] = [
    "http_refer",
    "http_method",
    "protocol",
    "status",
    "status_string",
    "redirect",
    "length",
];

/// Leaves what a record of HTTP/1 has without `extended`.
pub(super) fn brief(record: &mut Map<String, Value>) {
    record.retain(|name, _| !EXTENDED_HTTP.contains(&name.as_str()));
}
