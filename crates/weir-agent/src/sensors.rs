//! Sensors as children: which interfaces they listen to, and as which user.
//!
//! A sensor starts as its user, with CAP_NET_RAW alone, and gives that up too once its sockets are open (`weir sensor --confine`).

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use crate::privileges::{BPF, PERFMON};

/// Where sensors log, each in a folder of its own.
pub(crate) const LOGS: &str = "/var/log/weir";

/// The user that packages create.
const USER: &str = "weir";

/// Where users have names.
const USERS: &str = "/etc/passwd";

/// MiB of memory, if the settings do not say.
const MEMORY: u32 = 4096;

/// Settings of a sensor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SensorSettings {
    /// What it listens to.
    pub interfaces: Vec<String>,
    /// Files, patterns and folders of rules.
    #[serde(default)]
    pub rules: Vec<PathBuf>,
    /// Configurations of the sensor.
    #[serde(default)]
    pub config: Vec<PathBuf>,
    /// Its log folder; `None`: one of its name below `/var/log/weir`.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// Its user, by name or number.
    #[serde(default)]
    pub user: User,
    /// MiB of memory; one that needs more ends, and starts again.
    #[serde(default = "memory")]
    pub memory: u32,
    /// Threads.
    #[serde(default = "workers")]
    pub workers: u16,
}

fn memory() -> u32 {
    MEMORY
}

fn workers() -> u16 {
    1
}

/// A user by name or number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
pub enum User {
    /// A number, which need not have a name.
    Number(u32),
    /// A name.
    Name(String),
}

impl Default for User {
    fn default() -> User {
        User::Name(USER.to_owned())
    }
}

impl SensorSettings {
    /// What several keys say together.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("[sensor.{name}]: {text}"));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_plain) {
            return wrong("a name has letters, digits, `-` and `_`: it names a folder of logs");
        }
        if self.interfaces.is_empty() {
            return wrong("`interfaces` is empty: name what it listens to");
        }
        let is_interface = |one: &String| !one.is_empty() && !one.starts_with('-');
        if let Some(one) = self.interfaces.iter().find(|one| !is_interface(one)) {
            return wrong(&format!("`{one}` is not a name of an interface"));
        }
        if self.rules.is_empty() && self.config.is_empty() {
            return wrong("no rules: name `rules`, or a `config` that has them");
        }
        let paths = self.rules.iter().chain(&self.config).chain(&self.log);
        if let Some(path) = paths.into_iter().find(|path| !path.is_absolute()) {
            let path = path.display();
            return wrong(&format!("`{path}`: expected an absolute path"));
        }
        if matches!(&self.user, User::Number(0)) || self.user == User::Name("root".to_owned()) {
            return wrong(
                "`user` is root: a sensor parses what strangers send. Name a user without rights",
            );
        }
        if !(64..=1 << 24).contains(&self.memory) {
            return wrong("`memory` is in MiB, from 64 to 16777216");
        }
        if !(1..=256).contains(&self.workers) {
            return wrong("`workers` is from 1 to 256");
        }
        Ok(())
    }
}

/// A sensor with its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sensor {
    log: PathBuf,
    settings: SensorSettings,
}

impl Sensor {
    pub(crate) fn new(name: &str, settings: SensorSettings) -> Sensor {
        let log = settings.log.clone();
        Sensor {
            log: log.unwrap_or_else(|| Path::new(LOGS).join(name)),
            settings,
        }
    }

    pub(crate) fn rules(&self) -> &[PathBuf] {
        &self.settings.rules
    }

    pub(crate) fn config(&self) -> &[PathBuf] {
        &self.settings.config
    }

    /// Of `weir`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let of = &self.settings;
        let text = |path: &PathBuf| path.display().to_string();
        let mut all = vec!["sensor".to_owned(), "--confine".to_owned()];
        let mut add = |option: &str, value: String| all.extend([option.to_owned(), value]);
        add("--memory-limit", of.memory.to_string());
        add("--workers", of.workers.to_string());
        for one in &of.interfaces {
            add("--interface", one.clone());
        }
        for one in &of.config {
            add("--config", text(one));
        }
        for one in &of.rules {
            add("-s", text(one));
        }
        add("--log", text(&self.log));
        all
    }

    /// Options of `setpriv`: the user, no other groups, CAP_NET_RAW, which packet sockets take, and CAP_BPF and CAP_PERFMON, with which the kernel keeps packets of bypassed flows away from them. The sensor drops them before it reads any packet.
    pub(crate) fn privileges(&self) -> io::Result<Vec<String>> {
        let (user, group) = self.ids()?;
        let mut all = vec![
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
        ];
        for set in ["bounding-set", "inh-caps", "ambient-caps"] {
            all.push(format!("--{set}=-all,+net_raw,+{BPF},+{PERFMON}"));
        }
        Ok(all)
    }

    /// Numbers of its user and group.
    fn ids(&self) -> io::Result<(u32, u32)> {
        let users = fs::read_to_string(USERS)?;
        ids(&users, &self.settings.user).map_err(io::Error::other)
    }

    /// Makes the folder of its logs for its user, if it is not there.
    pub(crate) fn make_folder(&self) -> io::Result<()> {
        let at = |error: io::Error| {
            io::Error::other(format!("log folder {}: {error}", self.log.display()))
        };
        if let Some(parent) = self.log.parent() {
            match fs::create_dir_all(parent) {
                // Below a folder that is not root's, the sensor makes it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
                other => other.map_err(at)?,
            }
        }
        match DirBuilder::new().mode(0o750).create(&self.log) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(at(error)),
        }
        let (user, group) = self.ids()?;
        // Whoever owns the folder above may have put a link in its place.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.log, flags, Mode::empty()).map_err(|e| at(e.into()))?;
        let folder = File::from(folder);
        if folder.metadata()?.uid() != rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        std::os::unix::fs::fchown(&folder, Some(user), Some(group)).map_err(at)
    }
}

/// User and group of a user of `/etc/passwd`; a number without a name is its own group.
fn ids(users: &str, user: &User) -> Result<(u32, u32), String> {
    let is = |name: &str, number: u32| match user {
        User::Name(wanted) => name == wanted,
        User::Number(wanted) => number == *wanted,
    };
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        is(name, number).then_some((number, group))
    });
    match (found, user) {
        (Some((0, _)), _) => Err("the user of a sensor is root: name another".to_owned()),
        (Some(ids), _) => Ok(ids),
        (None, User::Number(number)) => Ok((*number, *number)),
        (None, User::Name(name)) => Err(format!(
            "unknown user `{name}`: {USERS} does not have it. Create it with `useradd --system {name}`, or give `user` a number that no account has"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SensorSettings, String> {
        let settings: SensorSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check("lan").map(|()| settings)
    }

    #[test]
    fn settings_are_checked_and_become_arguments() {
        let right = "interfaces = ['eth1', 'eth2']\nrules = ['/etc/weir/a.rules']\n";
        let sensor = Sensor::new("lan", read(right).expect("right"));
        let all = sensor.arguments().join(" ");
        assert_eq!(
            all,
            "sensor --confine --memory-limit 4096 --workers 1 --interface eth1 --interface eth2 -s /etc/weir/a.rules --log /var/log/weir/lan"
        );
        for (text, why) in [
            (String::new(), "interfaces"),
            (right.replace("['eth1', 'eth2']", "[]"), "is empty"),
            (right.replace("eth1", "--log"), "not a name"),
            (right.replace("rules", "#"), "no rules"),
            (right.replace("/etc/weir/", ""), "absolute"),
            (format!("{right}log = 'here'"), "absolute"),
            (format!("{right}user = 'root'"), "is root"),
            (format!("{right}user = 0"), "is root"),
            (format!("{right}memory = 1"), "MiB"),
            (format!("{right}workers = 0"), "256"),
            (format!("{right}worker = 1"), "unknown field"),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(error.contains(why), "{text}: {error}");
        }
        let settings = read(right).expect("right");
        assert!(settings.check("../lan").is_err());
    }

    #[test]
    fn users_have_names_or_numbers() {
        let users = "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbroken\nweir:x:998:997::/nonexistent:/bin/false\n";
        let of = |user: User| ids(users, &user);
        assert_eq!(of(User::default()), Ok((998, 997)));
        assert_eq!(of(User::Number(998)), Ok((998, 997)));
        assert_eq!(of(User::Number(61_000)), Ok((61_000, 61_000)));
        let error = of(User::Name("nobody".to_owned())).expect_err("unknown");
        assert!(error.contains("useradd"), "{error}");
        assert!(
            of(User::Name("toor".to_owned())).is_err(),
            "root by another name"
        );
    }
}
