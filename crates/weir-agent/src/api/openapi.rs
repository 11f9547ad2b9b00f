//! The OpenAPI document, made from the list of routes.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::problem::MEDIA;
use super::routes::{Answer, Field, PATH, ROUTES, Route, Type};

/// What every request may be answered with.
const ALWAYS: &[StatusCode] = &[
    StatusCode::BAD_REQUEST,
    StatusCode::FORBIDDEN,
    StatusCode::TOO_MANY_REQUESTS,
];

/// What a request with a body may be answered with.
const OF_BODIES: &[StatusCode] = &[
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let operations = paths.entry(route.path).or_default();
        operations.insert(route.method.as_str().to_lowercase(), operation(route));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "weir agent",
            "version": "1",
            "description": "HTTP on the Unix socket of `weir agent`, for its page, and by TLS with certificates of both sides for other hosts. Problems are those of RFC 9457; `next` says what to do.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": { "schemas": { "problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "next"],
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "detail": { "type": "string", "description": "What went wrong" },
                "next": { "type": "string", "description": "What to do" },
            },
        } } },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = PATH
        .iter()
        .filter(|field| route.path.contains(&format!("{{{}}}", field.name)))
        .map(|field| parameter(field, "path"));
    let in_query = route.query.iter().map(|field| parameter(field, "query"));
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let content = match route.answer {
        Answer::Json(members) => json!({ "application/json": { "schema": object(members, true) } }),
        Answer::JsonOrText(members) => json!({
            "application/json": { "schema": object(members, true) },
            "text/plain": { "schema": { "type": "string" } },
        }),
        Answer::Text(media) => json!({ media: { "schema": { "type": "string" } } }),
    };
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({ "description": route.summary, "content": content }),
    );
    let has_body = route.method != hyper::Method::GET;
    let of_bodies = OF_BODIES.iter().filter(|_| has_body);
    for status in ALWAYS.iter().chain(of_bodies).chain(route.problems) {
        responses.insert(
            status.as_str().to_owned(),
            json!({
                "description": status.canonical_reason(),
                "content": { MEDIA: { "schema": { "$ref": "#/components/schemas/problem" } } },
            }),
        );
    }
    let operation = json!({
        "operationId": format!("{:?}", route.call).to_lowercase(),
        "summary": route.summary,
        "x-role": route.role.name(),
        "parameters": parameters,
        "responses": responses,
    });
    let mut members: Map<String, Value> = operation.as_object().cloned().unwrap_or_default();
    if let Some(listener) = route.listener {
        members.insert("x-only-at".to_owned(), json!(listener.name()));
    }
    if has_body {
        let content = json!({ "application/json": { "schema": object(route.body, false) } });
        members.insert(
            "requestBody".to_owned(),
            json!({ "required": false, "content": content }),
        );
    }
    members.into()
}

fn parameter(field: &Field, place: &str) -> Value {
    json!({
        "name": field.name,
        "in": place,
        "required": place == "path",
        "description": field.about,
        "schema": { "type": kind(field.kind) },
    })
}

fn object(members: &[Field], are_required: bool) -> Value {
    let properties: Map<String, Value> = members
        .iter()
        .map(|field| {
            let value = json!({ "type": kind(field.kind), "description": field.about });
            (field.name.to_owned(), value)
        })
        .collect();
    if are_required {
        let names: Vec<&str> = members.iter().map(|field| field.name).collect();
        return json!({ "type": "object", "properties": properties, "required": names });
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn kind(kind: Type) -> &'static str {
    match kind {
        Type::Array => "array",
        Type::Boolean => "boolean",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Object => "object",
        Type::String => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_that_of_the_routes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
        if std::env::var_os("WEIR_UPDATE").is_some() {
            std::fs::write(path, &text).expect("written");
        }
        let old = std::fs::read_to_string(path).expect("docs/openapi.json is there");
        assert!(
            old == text,
            "docs/openapi.json is out of date: WEIR_UPDATE=1 cargo test -p weir-agent"
        );
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut names: Vec<String> = ROUTES.iter().map(|r| format!("{:?}", r.call)).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        for route in ROUTES {
            assert!(
                route.body.is_empty() || route.method != hyper::Method::GET,
                "{}: GET has no body",
                route.path
            );
        }
    }
}
