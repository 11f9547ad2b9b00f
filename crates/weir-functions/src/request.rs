//! What a kind of function is given and what it makes of it: the request for one instance, its plan, its errors.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};
use weir_bpf::abi::SetPlace;
use weir_packet::Reason;
use weir_policy::nearest;
use weir_policy::reference::Input;

use zerocopy::{FromBytes, IntoBytes};

use crate::middlebox::translations::Translation;
use crate::plan::{InstancePlan, ObjectSource};

/// Reads what explains the drops of an instance.
pub type ReadJudge = fn(&Request<'_>) -> Result<Box<dyn Judge>, FunctionError>;

/// A key of a kind of function: a row of the tables in the documentation.
pub struct Key {
    /// As configuration names it.
    pub name: &'static str,
    /// What holds without it, in Markdown.
    pub default: &'static str,
    /// What it says, in Markdown.
    pub meaning: &'static str,
}

impl Key {
    /// A row.
    pub const fn new(name: &'static str, default: &'static str, meaning: &'static str) -> Key {
        Key {
            name,
            default,
            meaning,
        }
    }
}

/// Keys of a kind: those of a table below `[[function]]` by its path, `""` for the function itself.
pub type Keys = &'static [(&'static str, &'static [Key])];

/// A kind of function: its row in the list of kinds.
pub struct Kind {
    /// As configuration names it.
    pub name: &'static str,
    /// All its keys.
    pub keys: Keys,
    /// Plans one instance.
    pub plan: fn(&Request<'_>) -> Result<Planned, FunctionError>,
    /// Explains the drops of an instance; `None`: its reasons say all there is.
    pub judge: Option<ReadJudge>,
    /// Its programs send packets out of any port, whatever the links say.
    pub sends: bool,
    /// It forwards packets itself: what goes on from it is for the host.
    pub forwards: bool,
}

impl Kind {
    /// A kind that does nothing beyond its plan.
    pub const fn new(
        name: &'static str,
        plan: fn(&Request<'_>) -> Result<Planned, FunctionError>,
        keys: Keys,
    ) -> Kind {
        Kind {
            name,
            keys,
            plan,
            judge: None,
            sends: false,
            forwards: false,
        }
    }
}

/// Says why an instance drops packets, from what a packet and the configuration tell.
pub trait Judge {
    /// What in the configuration is against a packet that was dropped for this reason: one line each, none if it cannot be told from the
    /// packet alone.
    fn why(&self, input: &Input<'_>, reason: Option<Reason>) -> Vec<String>;
}

/// Files that configuration names. Relative paths start at the folder of the configuration.
pub trait Files {
    /// All bytes of a file; `path` as it is written.
    ///
    /// # Errors
    /// Whatever kept the file from being read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// When a file was last changed, in seconds since 1970; `None` if that is not known.
    fn modified(&self, path: &Path) -> Option<u64> {
        let _ = path;
        None
    }

    /// What a map of the instance of this name holds where it runs, all elements one behind the other; `None` if it does not run, or
    /// has no such map. For numbers that must outlive a new plan.
    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        let _ = (instance, map);
        None
    }

    /// Names of security groups that policies may test like sets: those of the network that the instance is in.
    fn groups(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A port of the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgePort {
    /// weir's number, from 1.
    pub number: u32,
    /// Name in the configuration.
    pub name: String,
    /// Name of the interface.
    pub device: String,
}

/// What configuration says about one instance.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Name of the instance.
    pub name: &'a str,
    /// The keys of its kind.
    pub keys: &'a Table,
    /// Files it may name.
    pub files: &'a dyn Files,
    /// All ports of the edge.
    pub ports: &'a [EdgePort],
    /// Whether packets that leave by a port, seen on tc, can come to it: then their port is known, and that of packets that this host sends is not.
    pub transmits: bool,
}

/// One instance, ready for any engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Object, constants, maps.
    pub instance: InstancePlan,
    /// Names of the outputs: the place is the number that the program gives to `panel_leave`. The first is `next`, where a packet
    /// goes on. At most [`MAX_OUTS`].
    pub outs: Vec<String>,
    /// Ports it sends packets to by itself, besides its links: weir's numbers.
    pub ports: Vec<u32>,
    /// What it needs of ports and engine.
    pub asks: Asks,
    /// What it makes of addresses of packets that go on.
    pub translations: Vec<Translation>,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
    /// Why packets of ports on XDP must not come to it; `None`: they may.
    pub tc_only: Option<String>,
    /// What a user should know unless a map of the object is shared: the map and a sentence.
    pub unshared: Vec<(String, String)>,
    /// Security groups that its policy tests: the place in the constant [`GROUP_PLACES`] where each has its number, and its name.
    pub groups: Vec<(usize, String)>,
}

/// The constant with the places of sets and groups. Whoever plans a network writes numbers of groups into it ([`Planned::number_groups`]).
pub const GROUP_PLACES: &str = "weir_set";

/// Outputs an instance can have.
pub const MAX_OUTS: usize = 8;

/// What an instance needs of the ports it runs on and of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// VLAN tags must be in the frame: a device that hides them has that offload switched off, or is refused.
    pub vlan_in_frame: bool,
    /// It sends packets where nobody finishes their checksums: they must be complete when it is done with them.
    pub finished_checksums: bool,
    /// Name of a constant of 8 bytes that is to be secret: random, and kept as long as the state of the instance.
    pub secret: Option<&'static str>,
    /// It was not built for packets of several buffers: a port that may receive such is refused.
    pub linear_frames: bool,
    /// Smallest MTU that ports must have for its tunnels to carry what every host may send; 0: it makes none.
    pub least_mtu: u32,
    /// The stack must answer every SYN that it gets with a cookie, because others answered for it.
    pub syn_cookies: bool,
}

impl Planned {
    /// An instance with the default output only, that asks for nothing.
    pub fn new(instance: InstancePlan) -> Planned {
        Planned {
            instance,
            outs: vec!["next".to_owned()],
            ports: Vec::new(),
            asks: Asks::default(),
            translations: Vec::new(),
            notes: Vec::new(),
            tc_only: None,
            unshared: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Tells the program the numbers of its groups.
    pub fn number_groups(&mut self, number: impl Fn(&str) -> u32) {
        let constants = self.instance.constants.iter_mut();
        for (_, bytes) in constants.filter(|(symbol, _)| symbol == GROUP_PLACES) {
            for (at, name) in &self.groups {
                let places = bytes.chunks_exact_mut(size_of::<SetPlace>());
                if let Some(place) = places.into_iter().nth(*at) {
                    let group = SetPlace {
                        first: number(name),
                        ..SetPlace::read_from_bytes(place).unwrap_or_default()
                    };
                    place.copy_from_slice(group.as_bytes());
                }
            }
        }
    }

    /// The instance of one of weir's own objects whose program has the object's name, without constants and maps.
    pub fn embedded(object: &'static str) -> Planned {
        Planned::new(InstancePlan {
            object: ObjectSource::Embedded(object),
            program: object.into(),
            constants: Vec::new(),
            maps: Vec::new(),
        })
    }
}

/// Why an instance cannot be planned: what, where, and what to write instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FunctionError {
    /// The key of the instance that is wrong; `None`: the instance as a whole.
    pub key: Option<String>,
    /// The line, from 1, of a file that a key names.
    pub file: Option<(PathBuf, usize)>,
    /// What is wrong, in one line, naming the offending value.
    pub message: String,
    /// The next step.
    pub advice: Option<String>,
    /// More that was found on the way.
    pub others: Box<[FunctionError]>,
}

impl FunctionError {
    /// About the instance as a whole.
    pub fn new(message: impl Into<String>) -> FunctionError {
        FunctionError {
            message: message.into(),
            ..FunctionError::default()
        }
    }

    /// About the value of a key.
    pub fn key(key: impl Into<String>, message: impl Into<String>) -> FunctionError {
        FunctionError {
            key: Some(key.into()),
            ..FunctionError::new(message)
        }
    }

    /// In a line of a file that the key names.
    #[must_use]
    pub fn at(mut self, file: impl Into<PathBuf>, line: usize) -> FunctionError {
        self.file = Some((file.into(), line));
        self
    }

    /// With the next step.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> FunctionError {
        self.advice = Some(advice.into());
        self
    }

    /// One error for several; `None` if there are none.
    pub fn join(errors: Vec<FunctionError>) -> Option<FunctionError> {
        let mut errors = errors.into_iter();
        let mut first = errors.next()?;
        let others = std::mem::take(&mut first.others);
        first.others = others.into_iter().chain(errors).collect();
        Some(first)
    }
}

/// `did you mean ...?`, or all there is.
pub fn suggest(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// Typed access to keys. A key of another type is an error that says which type it must have.
impl Request<'_> {
    /// Refuses keys that are not among these.
    ///
    /// # Errors
    /// All keys that are not known.
    pub fn only(&self, known: &[Key]) -> Result<(), FunctionError> {
        let known: Vec<&str> = known.iter().map(|key| key.name).collect();
        let unknown = self
            .keys
            .keys()
            .filter(|key| !known.contains(&key.as_str()));
        let errors = unknown.map(|key| {
            FunctionError::key(key, format!("unknown key `{key}` in this kind of function"))
                .advice(suggest(key, &known))
        });
        FunctionError::join(errors.collect()).map_or(Ok(()), Err)
    }

    /// A text.
    ///
    /// # Errors
    /// It is no text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, FunctionError> {
        self.typed(key, "a text in quotes", Value::as_str)
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// It is no whole number, or out of range.
    pub fn number(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, FunctionError> {
        let Some(number) = self.typed(key, "a whole number", Value::as_integer)? else {
            return Ok(None);
        };
        match u64::try_from(number).ok().filter(|n| range.contains(n)) {
            Some(number) => Ok(Some(number)),
            None => Err(
                FunctionError::key(key, format!("`{key}` cannot be {number}")).advice(format!(
                    "it is from {} to {}",
                    range.start(),
                    range.end()
                )),
            ),
        }
    }

    /// A duration: a text, or a number of seconds.
    ///
    /// # Errors
    /// It is neither.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>, FunctionError> {
        let text = match self.keys.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Integer(seconds)) => seconds.to_string(),
            Some(Value::Float(seconds)) => seconds.to_string(),
            Some(other) => return Err(wrong_type(key, "a duration such as \"30s\"", other)),
        };
        match weir_value::duration(&text) {
            Ok(duration) => Ok(Some(duration)),
            Err(invalid) => Err(FunctionError::key(key, invalid.to_string())),
        }
    }

    /// `true` or `false`; `false` if the key is absent.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, key: &str) -> Result<bool, FunctionError> {
        Ok(self
            .typed(key, "true or false", Value::as_bool)?
            .unwrap_or(false))
    }

    /// A list of texts; one text is a list of one. Empty if the key is absent.
    ///
    /// # Errors
    /// It is no such list.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, FunctionError> {
        fn texts(value: &Value) -> Option<Vec<&str>> {
            match value {
                Value::String(one) => Some(vec![one]),
                Value::Array(list) => list.iter().map(Value::as_str).collect(),
                _ => None,
            }
        }
        Ok(self
            .typed(key, "a list of texts in quotes", texts)?
            .unwrap_or_default())
    }

    /// A table of keys below a key.
    ///
    /// # Errors
    /// It is no table.
    pub fn table(&self, key: &str) -> Result<Option<&Table>, FunctionError> {
        self.typed(key, "a table", Value::as_table)
    }

    /// A list of tables, as `[[function.KEY]]` writes it. Empty if the key is absent.
    ///
    /// # Errors
    /// It is no such list.
    pub fn tables(&self, key: &str) -> Result<Vec<&Table>, FunctionError> {
        match self.keys.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .map(|one| {
                    one.as_table()
                        .ok_or_else(|| wrong_type(key, "a list of tables", one))
                })
                .collect(),
            Some(other) => Err(wrong_type(key, "a list of tables", other)),
        }
    }

    /// The port of that name.
    ///
    /// # Errors
    /// There is none; `key` is the place to point at.
    pub fn port(&self, key: &str, name: &str) -> Result<&EdgePort, FunctionError> {
        self.ports
            .iter()
            .find(|port| port.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
                FunctionError::key(key, format!("no port is named `{name}`"))
                    .advice(suggest(name, &names))
            })
    }

    /// The bytes of the file that the value of `key` names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file(&self, key: &str, path: &Path) -> Result<Vec<u8>, FunctionError> {
        self.files.read(path).map_err(|error| {
            FunctionError::key(key, format!("cannot read `{}`: {error}", path.display()))
                .advice("paths are relative to the folder of the configuration")
        })
    }

    fn typed<'v, T>(
        &'v self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, FunctionError> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(wrong_type(key, wanted, value)),
            },
        }
    }
}

fn wrong_type(key: &str, wanted: &str, found: &Value) -> FunctionError {
    FunctionError::key(
        key,
        format!("`{key}` is {wanted}, not {}", article(found.type_str())),
    )
}

fn article(word: &str) -> String {
    let article = if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {word}")
}
