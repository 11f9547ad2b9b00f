//! A state of the interpreter: a script, loaded, with the functions that it may call, within its limits.
//!
//! A call is bounded by a hook that counts instructions and by the allocator's limit. What is not in the closed list of functions raises an error; `pcall` is not in it, so that a
//! script cannot go on behind a limit.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value,
};

use super::host::{Shared, answer};
use super::{Failure, FailureKind, Limits, Needs, Purpose, Script, View};

/// Functions that scripts of rules have, by library; the first ones are of no library.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "assert", "error", "ipairs", "next", "pairs", "print", "rawequal", "rawget", "rawlen",
            "rawset", "require", "select", "tonumber", "tostring", "type", "warn",
        ],
    ),
    (
        "table",
        &[
            "concat", "insert", "move", "pack", "remove", "sort", "unpack",
        ],
    ),
    (
        "string",
        &[
            "byte", "char", "dump", "find", "format", "gmatch", "gsub", "len", "lower", "match",
            "pack", "packsize", "rep", "reverse", "sub", "unpack", "upper",
        ],
    ),
    (
        "math",
        &[
            "abs",
            "acos",
            "asin",
            "atan",
            "ceil",
            "cos",
            "deg",
            "exp",
            "floor",
            "fmod",
            "log",
            "max",
            "min",
            "modf",
            "rad",
            "random",
            "randomseed",
            "sin",
            "sqrt",
            "tan",
            "tointeger",
            "type",
            "ult",
        ],
    ),
    ("utf8", &["char", "codepoint", "codes", "len", "offset"]),
];

/// Put in the place of functions whose loops count no instructions and take no memory.
const BOUNDED: &str = include_str!("bounded.lua");

/// Functions that answer whoever has none of the sensor's own in force.
const LIBRARIES: &str = include_str!("libs.lua");

/// A script, ready to be called.
pub(crate) struct State {
    lua: Lua,
    limits: Limits,
    /// Its first field is the function that answers the libraries.
    slot: Table,
    /// The answer while nothing is inspected.
    idle: Function,
    /// What is called.
    called: Function,
    /// Called before `called`, so that what is random is the same for every worker.
    seed: Option<Function>,
    shared: Arc<Shared>,
    /// The bytes that were changed last, and what they became: patterns are searched for in the same bytes that conditions are about.
    last: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    /// Asks a script what it needs: of a first state, which is dropped.
    pub(super) fn needs(script: &Script) -> Result<Needs, String> {
        let said = |e: Error| first_line(&e);
        let state = State::made(script, &[], None).map_err(said)?;
        let globals = state.lua.globals();
        let init: Option<Function> = globals.get("init").map_err(said)?;
        let asked = match (init, script.purpose) {
            (Some(init), _) => {
                state.begin().map_err(said)?;
                let empty = state.lua.create_table().map_err(said)?;
                init.call::<Value>(empty).map_err(said)?
            }
            (None, Purpose::Transform) => Value::Nil,
            (None, _) => return Err("it has no function `init`".to_owned()),
        };
        let mut keys = Vec::new();
        match asked {
            Value::Table(table) => {
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(said)?;
                    let (Value::String(key), value) = (key, text(&value)) else {
                        continue;
                    };
                    keys.push((key.to_string_lossy(), value));
                }
            }
            _ if script.purpose == Purpose::Transform => {}
            _ => return Err("`init` returns no table".to_owned()),
        }
        keys.sort();
        let mut needs = state
            .shared
            .needs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        needs.keys = keys;
        Ok(needs)
    }

    /// A state of a script. `counters` are the names of flows' counters, `logs` is the folder that outputs write to.
    pub(crate) fn new(
        script: &Script,
        counters: &[String],
        logs: Option<&Path>,
    ) -> Result<State, Failure> {
        let state = State::made(script, counters, logs).map_err(|e| Failure {
            kind: FailureKind::Other,
            text: first_line(&e),
        })?;
        let first = match script.purpose {
            Purpose::Match => "thread_init",
            Purpose::Output => "setup",
            Purpose::Transform => return Ok(state),
        };
        let first: Result<Option<Function>, Error> = state.lua.globals().get(first);
        let done = first.and_then(|first| match first {
            Some(first) => {
                state.begin()?;
                first.call::<()>(state.lua.create_table()?)
            }
            None => Ok(()),
        });
        match done {
            Ok(()) => Ok(state),
            Err(e) => Err(state.failure(&e)),
        }
    }

    fn made(script: &Script, counters: &[String], logs: Option<&Path>) -> Result<State, Error> {
        let limits = script.limits;
        let libraries = match limits.unrestricted {
            true => StdLib::ALL_SAFE,
            false => StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8,
        };
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        if limits.bytes > 0 {
            lua.set_memory_limit(limits.bytes)?;
        }
        let shared = Arc::new(Shared {
            counters: counters.to_vec(),
            logs: logs.map(|path| path.display().to_string()),
            ..Shared::default()
        });
        let own = Arc::clone(&shared);
        let idle = lua.create_function(move |lua, (what, args): (LuaString, MultiValue)| {
            answer(lua, &own, None, &what.as_bytes(), args)
        })?;
        let slot = lua.create_table()?;
        slot.raw_set(1, &idle)?;
        let ask: Function = lua
            .load("local slot = ... return function(...) return slot[1](...) end")
            .call(&slot)?;
        let globals = lua.globals();
        let before: Value = globals.get("require")?;
        let require: Function = lua
            .load(LIBRARIES)
            .set_name("=require")
            .call((ask, before))?;
        globals.set("require", require)?;
        if !limits.unrestricted {
            lua.load(BOUNDED).set_name("=bounded").exec()?;
            block(&lua, &shared)?;
        }
        let (name, seed) = match script.purpose {
            Purpose::Match => ("match", true),
            Purpose::Transform => ("transform", true),
            Purpose::Output => ("log", false),
        };
        let seed = seed && script.source.windows(6).any(|w| w == b"random");
        let seed = match seed {
            true => Some(globals.get::<Table>("math")?.get("randomseed")?),
            false => None,
        };
        let mut state = State {
            lua: lua.clone(),
            limits,
            slot,
            called: idle.clone(),
            idle,
            seed,
            shared,
            last: None,
        };
        state.begin()?;
        lua.load(&script.source[..])
            .set_name(format!("@{}", script.name))
            .set_mode(mlua::chunk::ChunkMode::Text)
            .exec()?;
        let called: Option<Function> = globals.get(name)?;
        let missing = || Error::RuntimeError(format!("it has no function `{name}`"));
        state.called = called.ok_or_else(missing)?;
        Ok(state)
    }

    /// Before a call: its instructions are counted from here.
    fn begin(&self) -> Result<(), Error> {
        self.shared.blocked.store(false, Ordering::Relaxed);
        self.shared.exceeded.store(false, Ordering::Relaxed);
        if self.limits.instructions == 0 {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let most = self.limits.instructions;
        let triggers = HookTriggers::new().every_nth_instruction(most);
        self.lua.set_hook(triggers, move |_, _| {
            shared.exceeded.store(true, Ordering::Relaxed);
            let text = format!("more than {most} instructions");
            Err(Error::RuntimeError(text))
        })
    }

    /// Why a call failed.
    fn failure(&self, error: &Error) -> Failure {
        let kind = if self.shared.blocked.load(Ordering::Relaxed) {
            FailureKind::Blocked
        } else if self.shared.exceeded.load(Ordering::Relaxed) {
            FailureKind::Instructions
        } else if is_memory(error) {
            FailureKind::Memory
        } else {
            FailureKind::Other
        };
        Failure {
            kind,
            text: first_line(error),
        }
    }

    /// Calls the script's function, which may ask for what is in view.
    fn call(
        &mut self,
        view: &mut View<'_>,
        arguments: impl FnOnce(&Lua, &View<'_>) -> Result<MultiValue, Error>,
    ) -> Result<MultiValue, Failure> {
        let called = (|| {
            self.begin()?;
            if let Some(seed) = &self.seed {
                seed.call::<()>(view.packet.as_ref().map_or(0, |p| p.number))?;
            }
            let arguments = arguments(&self.lua, view)?;
            let shared = &self.shared;
            self.lua.scope(|scope| {
                let answers =
                    scope.create_function_mut(|lua, (what, args): (LuaString, MultiValue)| {
                        answer(lua, shared, Some(&mut *view), &what.as_bytes(), args)
                    })?;
                self.slot.raw_set(1, answers)?;
                self.called.call::<MultiValue>(arguments)
            })
        })();
        let idle = self.slot.raw_set(1, &self.idle);
        match called.and_then(|values| idle.map(|()| values)) {
            Ok(values) => Ok(values),
            Err(e) => Err(self.failure(&e)),
        }
    }

    /// Whether what is in view is what the script looks for: its function returns 1.
    pub(crate) fn matches(&mut self, view: &mut View<'_>) -> Result<bool, Failure> {
        let found = self.call(view, |lua, view| {
            let table = lua.create_table()?;
            for (name, bytes) in &view.arguments {
                table.raw_set(*name, lua.create_string(bytes)?)?;
            }
            Ok(MultiValue::from_iter([Value::Table(table)]))
        })?;
        Ok(match found.front() {
            Some(Value::Integer(n)) => *n == 1,
            Some(Value::Number(n)) => *n == 1.0,
            _ => false,
        })
    }

    /// What a buffer becomes; `None`: it stays as it is, as the script returns no string with its length.
    pub(crate) fn transform(
        &mut self,
        bytes: &[u8],
        words: &[String],
    ) -> Result<Option<Vec<u8>>, Failure> {
        if let Some((before, after)) = &self.last
            && before == bytes
        {
            return Ok(after.clone());
        }
        let changed = self.call(&mut View::default(), |lua, _| {
            let table = lua.create_sequence_from(words.iter().map(String::as_str))?;
            let input = lua.create_string(bytes)?;
            Ok(MultiValue::from_iter([
                Value::String(input),
                Value::Table(table),
            ]))
        })?;
        let mut changed = changed.into_iter();
        let changed = match (changed.next(), changed.next()) {
            (Some(Value::String(text)), Some(length)) => {
                let length = length.as_usize().or(length.as_f64().map(|n| n as usize));
                length.map(|n| {
                    text.as_bytes()
                        .get(..n)
                        .unwrap_or(&text.as_bytes())
                        .to_vec()
                })
            }
            _ => None,
        };
        self.last = Some((bytes.to_vec(), changed.clone()));
        Ok(changed)
    }

    /// Calls an output.
    pub(crate) fn log(&mut self, view: &mut View<'_>) -> Result<(), Failure> {
        self.call(view, |lua, view| {
            let table = lua.create_table()?;
            for (name, value) in &view.counters {
                let row = lua.create_table()?;
                row.raw_set("name", name.as_str())?;
                row.raw_set("value", *value as i64)?;
                row.raw_set("pvalue", 0)?;
                table.raw_push(row)?;
            }
            if let Some(streamed) = view.streamed {
                let to_server = streamed.direction == crate::packet::Direction::ToServer;
                let row = lua.create_table()?;
                let bytes = view.arguments.first().map(|(_, bytes)| &**bytes);
                row.raw_set("data", lua.create_string(bytes.unwrap_or_default())?)?;
                row.raw_set("open", streamed.opens)?;
                row.raw_set("close", streamed.closes)?;
                row.raw_set("toserver", to_server)?;
                row.raw_set("toclient", !to_server)?;
                table.raw_set("stream", row)?;
            }
            Ok(MultiValue::from_iter([Value::Table(table)]))
        })?;
        Ok(())
    }

    /// An output is over.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        let deinit: Result<Option<Function>, Error> = self.lua.globals().get("deinit");
        let ended = deinit.and_then(|deinit| match deinit {
            Some(deinit) => deinit.call::<()>(self.lua.create_table()?),
            None => Ok(()),
        });
        ended.map_err(|e| self.failure(&e))
    }
}

/// Replaces all functions that are not in the list by ones that raise an error.
fn block(lua: &Lua, shared: &Arc<Shared>) -> Result<(), Error> {
    for (library, allowed) in ALLOWED {
        let table = match *library {
            "" => lua.globals(),
            name => lua.globals().get(name)?,
        };
        let mut others = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            if let (Value::String(name), Value::Function(_)) = pair? {
                let name = name.to_string_lossy();
                if !allowed.contains(&name.as_str()) {
                    others.push(name);
                }
            }
        }
        for name in others {
            let shared = Arc::clone(shared);
            let called = match *library {
                "" => name.clone(),
                library => format!("{library}.{name}"),
            };
            let blocked = lua.create_function(move |_, _: MultiValue| {
                shared.blocked.store(true, Ordering::Relaxed);
                let text = format!("the function `{called}` is blocked");
                Err::<(), _>(Error::RuntimeError(text))
            })?;
            table.raw_set(name, blocked)?;
        }
    }
    Ok(())
}

fn is_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_memory(cause),
        _ => false,
    }
}

/// What an error says, without where it was raised.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// A word, number or truth value as text; anything else as `true`.
fn text(value: &Value) -> String {
    match value {
        Value::String(s) => s.to_string_lossy(),
        Value::Integer(n) => n.to_string(),
        Value::Boolean(b) => b.to_string(),
        _ => "true".to_owned(),
    }
}
