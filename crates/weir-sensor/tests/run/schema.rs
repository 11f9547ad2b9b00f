//! Records hold to `schema.json`, the one list of EVE's fields: names and types, what is required, and no others.

use std::path::Path;

use serde_json::Value;

use super::bed::{ANSWER, How, Tape, sense, sense_tape, web};

/// What is wrong with a value, with its place. The subset of JSON Schema that the file uses: `type`, `properties`, `required`, `additionalProperties`, `items`, `enum`, `pattern_time`, `$ref`.
fn check(value: &Value, schema: &Value, root: &Value, place: &str, wrong: &mut Vec<String>) {
    if let Some(path) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        let target = root.pointer(path).unwrap_or(&Value::Null);
        assert!(target.is_object(), "the schema has no {path}");
        return check(value, target, root, place, wrong);
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = &root["definitions"][name];
        assert!(target.is_object(), "the schema has no definition {name}");
        return check(value, target, root, place, wrong);
    }
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        other => panic!("the schema has a type {other}"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|k| is(k)) {
        wrong.push(format!("{place}: {value} is no {}", kinds.join(" or ")));
        return;
    }
    if let Some(list) = schema["enum"].as_array()
        && !list.contains(value)
    {
        wrong.push(format!("{place}: {value} is none of {list:?}"));
    }
    if schema["format"] == "time" && !is_time(value.as_str().unwrap_or_default()) {
        wrong.push(format!("{place}: {value} is no time"));
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                wrong.push(format!("{place}: {name} is missing"));
            }
        }
        for (name, inner) in object {
            let place = format!("{place}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => {
                    wrong.push(format!("{place}: not in the schema"))
                }
                (Value::Null, other @ Value::Object(_)) => check(inner, other, root, &place, wrong),
                (Value::Null, _) => {}
                (found, _) => check(inner, found, root, &place, wrong),
            }
        }
    }
    if let (Some(list), Some(least)) = (value.as_array(), schema["minItems"].as_u64())
        && (list.len() as u64) < least
    {
        wrong.push(format!("{place}: fewer than {least}"));
    }
    if let (Some(list), Value::Object(_)) = (value.as_array(), &schema["items"]) {
        for (n, inner) in list.iter().enumerate() {
            check(
                inner,
                &schema["items"],
                root,
                &format!("{place}[{n}]"),
                wrong,
            );
        }
    }
}

/// `2024-01-01T00:00:00.000000+0000`.
fn is_time(text: &str) -> bool {
    text.len() == 31
        && text.bytes().enumerate().all(|(n, b)| match n {
            4 | 7 => b == b'-',
            10 => b == b'T',
            13 | 16 => b == b':',
            19 => b == b'.',
            26 => b == b'+',
            _ => b.is_ascii_digit(),
        })
}

pub(super) fn hold<'a>(records: impl Iterator<Item = &'a Value>) {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/schema.json"),
    )
    .expect("there");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let mut wrong = Vec::new();
    for record in records {
        let kind = record["event_type"].as_str().unwrap_or_default();
        check(record, &schema, &schema, kind, &mut wrong);
        // The part that a type has its name from is required.
        if record.get(kind).is_none() {
            wrong.push(format!("{kind}: there is no {kind}"));
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(
        wrong.is_empty(),
        "{} of them:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(60)].join("\n")
    );
}

/// docs/eve-fields.md lists them; `WEIR_UPDATE=1` writes the page.
#[test]
fn the_page_lists_the_fields() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("tests/run/schema.json")).expect("there");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let mut page = "# EVE fields\n\n\
        All fields that records of `weir sensor` have, with their JSON types. Written from the schema that tests check every\n\
        record against. `[]` stands for the elements of an array, `*` for names that are data.\n"
        .to_owned();
    let fields = by_name(&schema["properties"]);
    let (parts, every): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .partition(|(_, field)| is_part(&schema, field));
    page.push_str("\n## Every record\n\n| field | type | values |\n|---|---|---|\n");
    for (name, field) in every {
        field_rows(&schema, name, field, &mut page);
    }
    for (name, field) in parts {
        page.push_str(&format!(
            "\n## {name}\n\n| field | type | values |\n|---|---|---|\n"
        ));
        field_rows(&schema, name, field, &mut page);
    }
    let path = root.join("../../docs/eve-fields.md");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|old| old == page),
        "docs/eve-fields.md is out of date: WEIR_UPDATE=1 cargo test -p weir-sensor lists_the_fields"
    );
}

/// Fields of an object by their names, whatever order a build of the library keeps.
fn by_name(fields: &Value) -> std::collections::BTreeMap<&String, &Value> {
    fields.as_object().into_iter().flatten().collect()
}

/// A definition that a field refers to, or the field.
fn defined<'a>(schema: &'a Value, field: &'a Value) -> &'a Value {
    let name = field["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    name.map_or(field, |name| &schema["definitions"][name])
}

/// Whether a field has fields of its own.
fn is_part(schema: &Value, field: &Value) -> bool {
    let field = defined(schema, field);
    [field, &field["items"], &field["additionalProperties"]]
        .iter()
        .any(|part| defined(schema, part)["properties"].is_object())
}

/// The row of a field, and those below it.
fn field_rows(schema: &Value, name: &str, field: &Value, page: &mut String) {
    let field = defined(schema, field);
    let kind = match &field["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        _ => "any".to_owned(),
    };
    let values: Vec<String> = field["enum"]
        .as_array()
        .map(|all| {
            all.iter()
                .map(|one| format!("`{}`", one.to_string().trim_matches('"')))
                .collect()
        })
        .unwrap_or_default();
    let format = field["format"].as_str().map(str::to_owned);
    let said = if values.is_empty() {
        format.unwrap_or_default()
    } else {
        values.join(", ")
    };
    page.push_str(&format!("| `{name}` | {kind} | {said} |\n"));
    for (below, field) in by_name(&field["properties"]) {
        field_rows(schema, &format!("{name}.{below}"), field, page);
    }
    for (mark, part) in [
        ("[]", &field["items"]),
        (".*", &field["additionalProperties"]),
    ] {
        if part.is_object() && (is_part(schema, part) || part["enum"].is_array()) {
            field_rows(schema, &format!("{name}{mark}"), part, page);
        }
    }
}

#[test]
fn records_of_every_type() {
    let mut tape = Tape::default();
    web(
        &mut tape,
        1,
        "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        ANSWER,
    );
    let how = How::rules(
        "alert http any any -> any any (msg:\"m\"; http.uri; content:\"evil\"; target:dest_ip; metadata:a b; sid:1;)\n",
    );
    let left = sense_tape(&tape, &how);
    hold(left.eve.iter());
    let kinds: std::collections::BTreeSet<_> = left
        .eve
        .iter()
        .filter_map(|r| r["event_type"].as_str())
        .collect();
    assert!(
        ["alert", "flow", "http", "stats"]
            .iter()
            .all(|k| kinds.contains(k)),
        "{kinds:?}"
    );
}

/// The checker itself refuses what is wrong.
#[test]
fn the_checker_checks() {
    let schema: Value = serde_json::json!({"type": "object", "required": ["a"], "additionalProperties": false, "properties": {"a": {"type": "integer"}, "t": {"type": "string", "format": "time"}}});
    let count = |value: Value| {
        let mut wrong = Vec::new();
        check(&value, &schema, &schema, "", &mut wrong);
        wrong.len()
    };
    assert_eq!(count(serde_json::json!({"a": 1})), 0);
    assert_eq!(count(serde_json::json!({"a": "1"})), 1);
    assert_eq!(count(serde_json::json!({"b": 1})), 2);
    assert_eq!(count(serde_json::json!({"a": 1, "t": "2024-01-01"})), 1);
}

#[test]
fn records_of_real_captures() {
    let folders: Vec<_> = ["zeek-traces", "pcaps"]
        .iter()
        .filter_map(|folder| weir_testdata::find(folder))
        .collect();
    if folders.is_empty() {
        return;
    }
    let mut captures = Vec::new();
    gather(&folders, &mut captures);
    captures.sort();
    // Every record type on, and a rule that alerts on everything that has a payload.
    let types = [
        "alert",
        "flow",
        "netflow",
        "stats",
        "files",
        "http",
        "dns",
        "tls",
        "smtp",
        "ftp",
        "krb5",
        "ike",
        "nfs",
        "pgsql",
        "enip",
        "rdp",
        "websocket",
        "pop3",
        "mdns",
        "ftp_data",
        "ssh",
        "smb",
        "quic",
        "dcerpc",
        "ldap",
        "dnp3",
        "modbus",
    ];
    let mut how = How::rules(
        "alert ip any any -> any any (msg:\"any\"; content:\"a\"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)\n",
    );
    for kind in types {
        how = how.set(&format!("outputs.0.eve-log.types.{kind}=yes"));
    }
    how = how
        .set("outputs.0.eve-log.types.anomaly.types.decode=yes")
        .set("outputs.0.eve-log.types.anomaly.types.stream=yes")
        .set("outputs.0.eve-log.types.anomaly.types.applayer=yes")
        .set("outputs.1.fast.enabled=yes");
    let left = sense(&captures, &how);
    hold(left.eve.iter());
    // And to the schema that readers of such logs check them with.
    if let Some(known) = weir_testdata::find("suricata-verify/peer/etc/schema.json") {
        let text = std::fs::read_to_string(known).expect("readable");
        let schema: Value = serde_json::from_str(&text).expect("JSON");
        let mut wrong = Vec::new();
        for record in &left.eve {
            let kind = record["event_type"].as_str().unwrap_or_default();
            check(record, &schema, &schema, kind, &mut wrong);
        }
        wrong.sort();
        wrong.dedup();
        assert!(
            wrong.is_empty(),
            "{} of them:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(40)].join("\n")
        );
    }
    let mut kinds = std::collections::BTreeMap::new();
    for record in &left.eve {
        *kinds
            .entry(record["event_type"].as_str().unwrap_or_default())
            .or_insert(0) += 1;
    }
    println!("{} captures: {kinds:?}", captures.len());
}

fn gather(folders: &[std::path::PathBuf], found: &mut Vec<std::path::PathBuf>) {
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                gather(&[path], found);
            } else if path
                .extension()
                .is_some_and(|e| e == "pcap" || e == "trace" || e == "pcapng")
            {
                found.push(path);
            }
        }
    }
}
