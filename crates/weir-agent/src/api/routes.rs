//! The one list of what the API offers. Routing, roles, the check of arguments and the OpenAPI document are made from it.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};

use super::access::{Listener, Role};
use super::problem::Problem;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Agent,
    Apply,
    Change,
    Confirm,
    Connections,
    Document,
    Drops,
    Edge,
    Events,
    Graph,
    History,
    Link,
    Login,
    Logout,
    Logs,
    Metrics,
    Plan,
    Rollback,
    Session,
    Status,
    Try,
    Waiting,
}

/// Types of arguments and of members of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Array,
    Boolean,
    Integer,
    /// Only in answers.
    Number,
    Object,
    String,
}

/// An argument, or a member of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) about: &'static str,
}

const fn field(name: &'static str, kind: Type, about: &'static str) -> Field {
    Field { name, kind, about }
}

/// What an answer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// An object with at least these members.
    Json(&'static [Field]),
    /// The same, or what the command prints for people where `text/plain` is accepted.
    JsonOrText(&'static [Field]),
    /// Text of a media type.
    Text(&'static str),
}

/// Something that can be asked for.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Parts in braces are arguments.
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    /// The only place where it is offered; `None`: at all of them.
    pub(crate) listener: Option<Listener>,
    pub(crate) call: Call,
    pub(crate) summary: &'static str,
    /// Arguments of the query; none must be given.
    pub(crate) query: &'static [Field],
    /// Members of the body; none must be given.
    pub(crate) body: &'static [Field],
    pub(crate) answer: Answer,
    /// What else than success it answers, beside what every request may be answered.
    pub(crate) problems: &'static [StatusCode],
}

/// How changes fail.
const CHANGES: &[StatusCode] = &[StatusCode::SERVICE_UNAVAILABLE];
const CHANGES_EDGE: &[StatusCode] = &[
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Arguments of paths.
pub(crate) const PATH: &[Field] = &[
    field("edge", Type::String, "Name of an edge"),
    field("number", Type::Integer, "Number of a change"),
];

/// Media type of OpenMetrics.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const STATUS: &[Field] = &[
    field("edges", Type::Array, "Graphs: ports, functions, ledgers"),
    field(
        "networks",
        Type::Array,
        "Virtual networks, an object for each edge",
    ),
    field("policies", Type::Array, "Policies of `weir run`"),
    field("programs", Type::Array, "Programs of `weir prog load`"),
    field("remains", Type::Array, "What killed processes left"),
    field(
        "unreadable",
        Type::Array,
        "Edges whose state cannot be read",
    ),
];

const CHANGE: &[Field] = &[
    field("number", Type::Integer, "Its number, from 1"),
    field("time", Type::String, "UTC"),
    field("user", Type::String, "Who made it"),
    field("command", Type::String, "With which command or request"),
    field("runs", Type::Boolean, "Whether the edge ran after it"),
    field("changes", Type::Array, "What it changed, a line each"),
];

const AGENT: &[Field] = &[
    field("folder", Type::String, "Folder of the files"),
    field(
        "files",
        Type::Array,
        "Files: `file`, `edge`, `state` (`applied`, `edited`, `failed`), `error`",
    ),
    field(
        "children",
        Type::Array,
        "Commands beside edges, and sensors: `edge`, `command`, `process`, `restarts`, `privileges` (`user`, `capabilities`, `no_new_privs`, `seccomp`, `memory`)",
    ),
    field(
        "edits",
        Type::String,
        "What becomes of edits of edges: `report` or `revert`",
    ),
    field(
        "problems",
        Type::Array,
        "What of the API does not work: addresses that cannot be bound, certificates that cannot be read and what holds instead",
    ),
    field("version", Type::String, "Version of the agent"),
    field("newest_event", Type::Integer, "Number of the newest event"),
];

const SESSION: &[Field] = &[
    field("user", Type::String, "Who asks"),
    field("role", Type::String, "`read` or `operate`"),
    field(
        "seconds",
        Type::Integer,
        "Until the session of the page ends; 0 at the socket, which has none",
    ),
];

/// All of them.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/v1/apply",
        role: Role::Operate,
        listener: None,
        call: Call::Apply,
        summary: "Apply all files again, also of edited edges, as SIGHUP; answers when it is done",
        query: &[],
        body: &[],
        answer: Answer::Json(AGENT),
        problems: CHANGES,
    },
    Route {
        method: Method::POST,
        path: "/v1/edges/{edge}/apply",
        role: Role::Operate,
        listener: None,
        call: Call::Try,
        summary: "Apply the file of an edge, and restore the former state unless that is confirmed in time, as `weir apply --confirm`",
        query: &[],
        body: &[field(
            "confirm",
            Type::Integer,
            "Seconds until the former state is restored: 5 to 3600; default: 60",
        )],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field("waits", Type::Boolean, "true"),
            field(
                "seconds",
                Type::Integer,
                "Until the former state is restored",
            ),
        ]),
        problems: &[
            StatusCode::NOT_FOUND,
            StatusCode::CONFLICT,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::SERVICE_UNAVAILABLE,
        ],
    },
    Route {
        method: Method::POST,
        path: "/v1/edges/{edge}/drops",
        role: Role::Operate,
        listener: None,
        call: Call::Drops,
        summary: "Watch why packets are dropped, as `weir drops --json`; answers when the time is over",
        query: &[],
        body: &[field(
            "seconds",
            Type::Integer,
            "How long: 1 to 30; default: 5",
        )],
        answer: Answer::Json(&[
            field("seconds", Type::Number, "How long that was"),
            field("packets", Type::Integer, "Dropped packets that were seen"),
            field(
                "drops",
                Type::Array,
                "Causes: `stage`, `reason`, `why`, `packets`, `example`",
            ),
        ]),
        problems: CHANGES_EDGE,
    },
    Route {
        method: Method::POST,
        path: "/v1/edges/{edge}/confirm",
        role: Role::Operate,
        listener: None,
        call: Call::Confirm,
        summary: "Confirm the change that waits, as `weir apply --confirm-now`",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field("confirmed", Type::Boolean, "true"),
        ]),
        problems: CHANGES_EDGE,
    },
    Route {
        method: Method::POST,
        path: "/v1/edges/{edge}/plan",
        role: Role::Operate,
        listener: None,
        call: Call::Plan,
        summary: "What applying the file of an edge would change, as `weir diff --json`; changes nothing",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field("lines", Type::Array, "What would change, a line each"),
        ]),
        problems: &[StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY],
    },
    Route {
        method: Method::POST,
        path: "/v1/edges/{edge}/rollback",
        role: Role::Operate,
        listener: None,
        call: Call::Rollback,
        summary: "Restore the state after an earlier change, as `weir rollback`",
        query: &[],
        body: &[
            field(
                "to",
                Type::Integer,
                "Number of that change; default: the one before the newest",
            ),
            field("dry_run", Type::Boolean, "Only answer what it would change"),
        ],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field(
                "to",
                Type::Integer,
                "Number of the change whose state it is",
            ),
            field("runs", Type::Boolean, "Whether the edge runs in that state"),
            field("changes", Type::Array, "What that changed, a line each"),
            field("applied", Type::Boolean, "Whether something was changed"),
        ]),
        problems: CHANGES_EDGE,
    },
    Route {
        method: Method::POST,
        path: "/v1/session",
        role: Role::Guest,
        listener: Some(Listener::Page),
        call: Call::Login,
        summary: "Open a session of the page with the code of a login link",
        query: &[],
        body: &[field("code", Type::String, "The code; it is valid once")],
        answer: Answer::Json(&[
            field("token", Type::String, "For `Authorization: Bearer TOKEN`"),
            field("user", Type::String, "Who asked for the link"),
            field("role", Type::String, "`read` or `operate`"),
            field("seconds", Type::Integer, "Until the session ends"),
        ]),
        problems: &[StatusCode::UNAUTHORIZED],
    },
    Route {
        method: Method::POST,
        path: "/v1/session/end",
        role: Role::Read,
        listener: Some(Listener::Page),
        call: Call::Logout,
        summary: "End the session of the page",
        query: &[],
        body: &[],
        answer: Answer::Json(&[field("ended", Type::Boolean, "true")]),
        problems: &[StatusCode::UNAUTHORIZED],
    },
    Route {
        method: Method::POST,
        path: "/v1/session/link",
        role: Role::Read,
        listener: Some(Listener::Socket),
        call: Call::Link,
        summary: "Make a login link for the page, with the role of the client, as `weir page`",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("url", Type::String, "The link; it is valid once"),
            field("seconds", Type::Integer, "Until it expires"),
            field("role", Type::String, "`read` or `operate`"),
        ]),
        problems: CHANGES_EDGE,
    },
    Route {
        method: Method::GET,
        path: "/v1/session",
        role: Role::Read,
        listener: None,
        call: Call::Session,
        summary: "Who asks, and with which role",
        query: &[],
        body: &[],
        answer: Answer::Json(SESSION),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        role: Role::Metrics,
        listener: None,
        call: Call::Metrics,
        summary: "Counters of all edges as OpenMetrics text",
        query: &[],
        body: &[],
        answer: Answer::Text(OPENMETRICS),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/agent",
        role: Role::Read,
        listener: None,
        call: Call::Agent,
        summary: "Files and children of the agent, with their errors",
        query: &[],
        body: &[],
        answer: Answer::Json(AGENT),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/events",
        role: Role::Read,
        listener: None,
        call: Call::Events,
        summary: "What the agent does and finds, as it happens (server-sent events)",
        query: &[field(
            "after",
            Type::Integer,
            "Begin after this event, where it is still kept; default: with the next",
        )],
        body: &[],
        answer: Answer::Text("text/event-stream"),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/logs",
        role: Role::Read,
        listener: None,
        call: Call::Logs,
        summary: "Events that are kept, oldest first, as `weir logs --json`",
        query: &[
            field(
                "after",
                Type::Integer,
                "Only events after this one; default: all that are kept",
            ),
            field(
                "seconds",
                Type::Integer,
                "Only events of the last so many seconds",
            ),
        ],
        body: &[],
        answer: Answer::Json(&[
            field(
                "events",
                Type::Array,
                "Events: `event`, `text`, `number`, `time`, and what belongs to it",
            ),
            field(
                "newest",
                Type::Integer,
                "Number of the newest event; 0: none was",
            ),
            field(
                "missed",
                Type::Integer,
                "Events after the number that are not kept any more",
            ),
            field(
                "oldest_time",
                Type::Integer,
                "When the oldest that is kept was, in seconds since 1970",
            ),
        ]),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/openapi.json",
        role: Role::Read,
        listener: None,
        call: Call::Document,
        summary: "This document",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("openapi", Type::String, "Version of OpenAPI"),
            field("info", Type::Object, "Title and version"),
            field("paths", Type::Object, "What can be asked for"),
            field("components", Type::Object, "The problem"),
        ]),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/status",
        role: Role::Read,
        listener: None,
        call: Call::Status,
        summary: "All that runs, as `weir status --json`; as `weir status` where text/plain is accepted",
        query: &[field("hits", Type::Boolean, "With the hits of rules")],
        body: &[],
        answer: Answer::JsonOrText(STATUS),
        problems: &[],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}",
        role: Role::Read,
        listener: None,
        call: Call::Edge,
        summary: "One edge, as `weir status --edge EDGE --json`; as text where text/plain is accepted",
        query: &[field("hits", Type::Boolean, "With the hits of rules")],
        body: &[],
        answer: Answer::JsonOrText(STATUS),
        problems: &[StatusCode::NOT_FOUND],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}/confirm",
        role: Role::Read,
        listener: None,
        call: Call::Waiting,
        summary: "Whether a change of an edge waits for confirmation, and until when",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field("waits", Type::Boolean, "Whether one waits"),
            field(
                "seconds",
                Type::Integer,
                "Until the former state is restored; 0: none waits",
            ),
        ]),
        problems: &[StatusCode::NOT_FOUND],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}/connections",
        role: Role::Read,
        listener: None,
        call: Call::Connections,
        summary: "Connections of the functions of an edge that track them",
        query: &[
            field(
                "function",
                Type::String,
                "Of this function only; default: of all",
            ),
            field(
                "limit",
                Type::Integer,
                "Connections that are listed of each table; default: 100, at most 1000",
            ),
        ],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field(
                "tables",
                Type::Array,
                "Tables: `function`, `capacity`, `counted`, `is_whole`, `by_state`, `connections`",
            ),
        ]),
        problems: &[StatusCode::NOT_FOUND],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}/graph",
        role: Role::Read,
        listener: None,
        call: Call::Graph,
        summary: "Ports, functions, networks and tunnels of an edge with their links and counters",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field(
                "generation",
                Type::Integer,
                "Of the graph; 0: networks only",
            ),
            field(
                "nodes",
                Type::Array,
                "Nodes: `id`, `kind`, `name`, `detail`, `packets`, `bytes`, `drops`, `reasons`, `warning`",
            ),
            field("links", Type::Array, "Links: `from`, `to`, `out`"),
            field(
                "networks",
                Type::Array,
                "Virtual networks: `name`, `packets` and `bytes` that came in, `drops`, `reasons`",
            ),
        ]),
        problems: &[StatusCode::NOT_FOUND],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}/history",
        role: Role::Read,
        listener: None,
        call: Call::History,
        summary: "Changes of an edge, as `weir history --json`",
        query: &[],
        body: &[],
        answer: Answer::Json(&[
            field("edge", Type::String, "Name of the edge"),
            field("changes", Type::Array, "Changes, the oldest first"),
            field(
                "newest_runs",
                Type::Boolean,
                "Whether what runs is what the newest change made",
            ),
        ]),
        problems: &[StatusCode::NOT_FOUND],
    },
    Route {
        method: Method::GET,
        path: "/v1/edges/{edge}/history/{number}",
        role: Role::Read,
        listener: None,
        call: Call::Change,
        summary: "One change of an edge, as `weir history NUMBER --json`",
        query: &[],
        body: &[],
        answer: Answer::Json(CHANGE),
        problems: &[StatusCode::NOT_FOUND],
    },
];

/// Arguments of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// `None`: it is not given.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }
}

/// The route of a request, and what its path says.
///
/// # Errors
/// 404 and 405; of the second the methods are in the second half.
pub(crate) fn find(
    method: &Method,
    path: &str,
) -> Result<(&'static Route, Arguments), (Problem, Option<String>)> {
    // What can be got can be asked for its head.
    let method = match *method {
        Method::HEAD => &Method::GET,
        _ => method,
    };
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(arguments) = matched(route.path, path) else {
            continue;
        };
        if route.method == method {
            return Ok((route, arguments));
        }
        others.push(route.method.as_str());
        if route.method == Method::GET {
            others.push("HEAD");
        }
    }
    if others.is_empty() {
        return Err((
            Problem::not_found(
                format!("nothing is at {path}"),
                "GET /v1/openapi.json lists what is there",
            ),
            None,
        ));
    }
    let allowed = others.join(", ");
    Err((
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{method} is not offered at {path}"),
            format!("use {allowed}"),
        ),
        Some(allowed),
    ))
}

fn matched(template: &str, path: &str) -> Option<Arguments> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut arguments = Map::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(Arguments(arguments)),
            (Some(wanted), Some(given)) => {
                let name = wanted
                    .strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'));
                match name {
                    Some(name) => {
                        let kind = PATH.iter().find(|field| field.name == name)?.kind;
                        let value = parsed(kind, &decoded(given)?)?;
                        arguments.insert(name.to_owned(), value);
                    }
                    None if wanted == given => {}
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

/// Adds the arguments of a query.
///
/// # Errors
/// 400, with what is wrong.
pub(crate) fn query(route: &Route, query: &str, arguments: &mut Arguments) -> Result<(), Problem> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let field = known(route.query, name, "the query")?;
        let value = decoded(value).and_then(|text| parsed(field.kind, &text));
        let Some(value) = value else {
            return Err(wrong(field));
        };
        arguments.0.insert(name.to_owned(), value);
    }
    Ok(())
}

/// Adds the members of a body.
///
/// # Errors
/// 400, with what is wrong.
pub(crate) fn body(route: &Route, bytes: &[u8], arguments: &mut Arguments) -> Result<(), Problem> {
    if bytes.is_empty() {
        return Ok(());
    }
    let members: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| {
        bad(
            format!("the body is not an object of JSON: {error}"),
            "send an object, or no body",
        )
    })?;
    for (name, value) in members {
        let field = known(route.body, &name, "the body")?;
        let is_right = match field.kind {
            Type::Array => value.is_array(),
            Type::Boolean => value.is_boolean(),
            Type::Integer => value.is_u64(),
            Type::Number => value.is_number(),
            Type::Object => value.is_object(),
            Type::String => value.is_string(),
        };
        if !is_right {
            return Err(wrong(field));
        }
        arguments.0.insert(name, value);
    }
    Ok(())
}

fn known(fields: &'static [Field], name: &str, place: &str) -> Result<&'static Field, Problem> {
    fields
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let next = match names.is_empty() {
                true => "leave it out: nothing can be given here".to_owned(),
                false => format!("known here: {}", names.join(", ")),
            };
            bad(format!("unknown argument `{name}` in {place}"), next)
        })
}

fn wrong(field: &Field) -> Problem {
    let kind = match field.kind {
        Type::Array => "an array",
        Type::Boolean => "true or false",
        Type::Integer => "a whole number from 0",
        Type::Number => "a number",
        Type::Object => "an object",
        Type::String => "a string",
    };
    bad(
        format!("`{}` has a wrong value", field.name),
        format!("give {kind}"),
    )
}

fn bad(detail: String, next: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail, next)
}

fn parsed(kind: Type, text: &str) -> Option<Value> {
    match kind {
        Type::Boolean => text.parse::<bool>().ok().map(Value::from),
        Type::Integer => text.parse::<u32>().ok().map(Value::from),
        Type::String => (!text.is_empty()).then(|| Value::from(text)),
        Type::Array | Type::Number | Type::Object => None,
    }
}

/// Text with `%41` for `A`. `None`: it is not UTF-8, or holds control characters.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_whole() {
        let call = |path: &str| find(&Method::GET, path).map(|(route, _)| route.call).ok();
        assert_eq!(call("/v1/status"), Some(Call::Status));
        assert_eq!(call("/v1/edges/office"), Some(Call::Edge));
        assert_eq!(call("/v1/edges/office/history/7"), Some(Call::Change));
        for path in [
            "",
            "/",
            "/v1",
            "/v1/status/",
            "//v1/status",
            "/v1/edges/",
            "/v1/edges/a/history/x",
            "/v1/edges/a/history/-1",
            "/v1/edges/a/history/99999999999",
            "/v1/edges/%00",
            "/v1/edges/%f",
            "/v1/edges/%ff",
            "/V1/status",
            "/v1/{edge}",
        ] {
            assert_eq!(call(path), None, "{path}");
        }
        let (_, arguments) = find(&Method::GET, "/v1/edges/%c3%a4%2fb").expect("an edge");
        assert_eq!(arguments.text("edge"), "ä/b");
        assert!(find(&Method::HEAD, "/v1/status").is_ok());
        let (problem, allowed) = find(&Method::DELETE, "/v1/status").expect_err("not offered");
        assert_eq!(problem.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(allowed.as_deref(), Some("GET, HEAD"));
    }

    #[test]
    fn arguments_are_known_and_of_their_type() {
        let (route, path) = find(&Method::GET, "/v1/edges/a").expect("a route");
        let read = |text: &str| {
            let mut arguments = path.clone();
            query(route, text, &mut arguments).map(|()| arguments.flag("hits"))
        };
        assert_eq!(read(""), Ok(false));
        assert_eq!(read("hits=true&"), Ok(true));
        assert_eq!(read("hits=false"), Ok(false));
        for text in ["hits", "hits=1", "hit=true", "edge=b", "hits=%zz"] {
            assert_eq!(
                read(text).map_err(|e| e.status),
                Err(StatusCode::BAD_REQUEST),
                "{text}"
            );
        }
        let mut arguments = Arguments::default();
        assert!(body(route, b"", &mut arguments).is_ok());
        for bytes in [&b"[]"[..], b"{", b"{\"a\":1}", b"\xff"] {
            assert!(body(route, bytes, &mut arguments).is_err(), "{bytes:?}");
        }
    }
}
