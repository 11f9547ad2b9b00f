//! Scripts in Lua: in rules (`lua`, `luaxform`) and as outputs. Here is what a script is and what it may cost; `vm` runs it, `host` answers its questions from a [`View`]. Design: `docs/design/sensor-lua.md`.
//!
//! A script sees what it asks for through one function, only while it is called. It never sees a pointer, and what it does is bounded: by instructions, by memory, by the functions it has.

#[cfg(not(feature = "lua"))]
mod absent;
#[cfg(feature = "lua")]
mod host;
mod view;
#[cfg(feature = "lua")]
mod vm;

use std::sync::Arc;

use crate::buffer::Buffer;

#[cfg(not(feature = "lua"))]
pub(crate) use absent::State;
pub use view::{FileView, FlowFacts, PacketView, RuleView, Streamed, Variables, View};
#[cfg(feature = "lua")]
pub(crate) use vm::State;

/// What scripts may cost and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of memory of one script (`security.lua.max-bytes`); 0: any.
    pub bytes: usize,
    /// Instructions of one call (`security.lua.max-instructions`); 0: any.
    pub instructions: u32,
    /// All functions of the language's libraries are there, those that reach files and processes too (`security.lua.allow-restricted-functions`).
    pub unrestricted: bool,
}

impl Limits {
    /// As users of such sensors are used to.
    pub const USUAL: Limits = Limits {
        bytes: 500_000,
        instructions: 500_000,
        unrestricted: false,
    };

    /// Those of outputs, which the configuration names and no rule file can bring along: none.
    pub const OUTPUT: Limits = Limits {
        bytes: 0,
        instructions: 0,
        unrestricted: true,
    };
}

/// A library that scripts `require`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// `suricata.http`.
    Http,
    /// `suricata.dns`.
    Dns,
    /// `suricata.tls`.
    Tls,
    /// `suricata.ja3`.
    Ja3,
    /// `suricata.ssh`.
    Ssh,
    /// `suricata.smtp`.
    Smtp,
    /// `suricata.ntp`.
    Ntp,
    /// `suricata.dnp3`.
    Dnp3,
    /// Any other: it asks nothing of parsers.
    Other,
}

impl Library {
    /// By the name behind `suricata.`.
    #[cfg(feature = "lua")]
    fn named(name: &str) -> Library {
        match name {
            "http" => Library::Http,
            "dns" => Library::Dns,
            "tls" => Library::Tls,
            "ja3" => Library::Ja3,
            "ssh" => Library::Ssh,
            "smtp" => Library::Smtp,
            "ntp" => Library::Ntp,
            "dnp3" => Library::Dnp3,
            _ => Library::Other,
        }
    }

    /// What parsers must fill for it.
    pub fn buffers(self) -> &'static [Buffer] {
        match self {
            Library::Http => &[
                Buffer::HttpUri,
                Buffer::HttpUriRaw,
                Buffer::HttpHost,
                Buffer::HttpRequestLine,
                Buffer::HttpResponseLine,
                Buffer::HttpHeaderRaw,
                Buffer::HttpRequestBody,
                Buffer::HttpResponseBody,
            ],
            Library::Tls => &[Buffer::TlsCerts],
            Library::Ja3 => &[
                Buffer::Ja3Hash,
                Buffer::Ja3String,
                Buffer::Ja3sHash,
                Buffer::Ja3sString,
            ],
            Library::Ssh => &[
                Buffer::SshProto,
                Buffer::SshSoftware,
                Buffer::SshHassh,
                Buffer::SshHasshString,
                Buffer::SshHasshServer,
                Buffer::SshHasshServerString,
            ],
            Library::Ntp => &[Buffer::NtpReferenceId],
            Library::Dns | Library::Smtp | Library::Dnp3 | Library::Other => &[],
        }
    }
}

/// What a script says of itself when it is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs {
    /// Keys of the table that `init` returns, with their values if these are words.
    pub keys: Vec<(String, String)>,
    /// Libraries that it has loaded.
    pub libraries: Vec<Library>,
    /// Names of flows' counters that it registers.
    pub counters: Vec<String>,
    /// Names of numbers that its rule extracts (`byte_extract`, `byte_math`).
    pub numbers: Vec<String>,
}

impl Needs {
    /// Whether `init` asks for something.
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(k, v)| k == key && v != "false")
    }

    /// The word that `init` gives to a key.
    pub fn word(&self, key: &str) -> Option<&str> {
        let mut keys = self.keys.iter();
        keys.find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// What a script is for, and so which functions it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// `init` and `match`: a condition of a rule.
    Match,
    /// `transform`: a change of a buffer.
    Transform,
    /// `init`, `setup`, `log` and `deinit`: an output.
    Output,
}

/// A script that was read, and that states are made of.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Script {
    /// Its file, as rules name it.
    pub name: Arc<str>,
    /// Its text.
    source: Arc<[u8]>,
    /// What it may cost.
    limits: Limits,
    /// What it is for.
    purpose: Purpose,
    /// What it says of itself.
    pub needs: Needs,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("name", &self.name)
            .field("bytes", &self.source.len())
            .finish_non_exhaustive()
    }
}

/// The largest file of a script, bytes.
pub const MOST: u64 = 1 << 20;

impl Script {
    /// Loads a script: compiles it, and asks it what it needs.
    ///
    /// # Errors
    /// It is not Lua, lacks a function, fails, or exceeds a limit; or this program was built without Lua.
    pub fn load(
        name: &str,
        source: &[u8],
        limits: Limits,
        purpose: Purpose,
    ) -> Result<Script, String> {
        Script {
            name: name.into(),
            source: source.into(),
            limits,
            purpose,
            needs: Needs::default(),
        }
        .asked()
    }

    /// The same of an output.
    ///
    /// # Errors
    /// As [`Script::load`].
    pub fn output(name: &str, source: &[u8]) -> Result<Script, String> {
        Script::load(name, source, Limits::OUTPUT, Purpose::Output)
    }

    fn asked(mut self) -> Result<Script, String> {
        self.needs = State::needs(&self)?;
        Ok(self)
    }
}

/// Calls that failed, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptCounts {
    /// All of them.
    pub errors: u64,
    /// A function was called that scripts of rules do not have.
    pub blocked: u64,
    /// More instructions than a call may take.
    pub instructions: u64,
    /// More memory than a script may have.
    pub memory: u64,
}

impl ScriptCounts {
    /// Counts a failure.
    pub(crate) fn add(&mut self, failure: &Failure) {
        self.errors += 1;
        match failure.kind {
            FailureKind::Blocked => self.blocked += 1,
            FailureKind::Instructions => self.instructions += 1,
            FailureKind::Memory => self.memory += 1,
            FailureKind::Other => {}
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// As the language says it.
    pub(crate) text: String,
}

impl Failure {
    /// As it is told.
    pub(crate) fn of(&self, script: &Script) -> String {
        let (name, why) = (&script.name, &self.text);
        format!("the script {name} failed; more of its failures are only counted: {why}")
    }
}

/// What a failed call has exceeded, if it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "lua"),
    expect(dead_code, reason = "without the interpreter nothing exceeds a limit")
)]
pub(crate) enum FailureKind {
    Blocked,
    Instructions,
    Memory,
    Other,
}
