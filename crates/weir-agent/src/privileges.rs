//! What a process may do, as the kernel says it: not what it was started with, but what it has.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Pid;
use serde::Serialize;

/// CAP_BPF and CAP_PERFMON for `setpriv`: by number, because that of Ubuntu 22.04 has no names for them.
pub(crate) const BPF: &str = "cap_39";
pub(crate) const PERFMON: &str = "cap_38";

/// Privileges of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Privileges {
    /// Number of its user.
    pub user: u32,
    /// Its effective capabilities, as `net_raw`.
    pub capabilities: Vec<String>,
    /// It cannot get more.
    pub no_new_privs: bool,
    /// A filter refuses system calls.
    pub seccomp: bool,
    /// Most bytes of memory that it may ask the kernel for; `None`: no limit.
    pub memory: Option<u64>,
}

/// Of a process; `None`: it is gone.
pub(crate) fn of(process: u32) -> Option<Privileges> {
    let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
    let folder = format!("/proc/{process}");
    let status = fs::read_to_string(format!("{folder}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).unwrap_or_default()
    };
    let effective = rustix::thread::capabilities(Some(pid)).ok()?.effective;
    Some(Privileges {
        user: fs::metadata(&folder).ok()?.uid(),
        capabilities: (effective.iter_names())
            .map(|(name, _)| name.to_lowercase())
            .collect(),
        no_new_privs: field("NoNewPrivs:") == "1",
        seccomp: field("Seccomp:") == "2",
        memory: limit(&folder),
    })
}

/// The limit of its data. Another user's limits are read from its folder: the system call takes CAP_SYS_RESOURCE.
fn limit(folder: &str) -> Option<u64> {
    let limits = fs::read_to_string(format!("{folder}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max data size"))?;
    line.split_whitespace().next()?.parse().ok()
}
