//! Every way in which the kernel or the host can refuse, as one closed list.
//!
//! A message is one line: the offending value, what was refused, and the next
//! step. Long text (a verifier log) is kept beside the line, never inside it.

use std::io;
use std::path::PathBuf;

/// What went wrong between weir and the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The process lacks a capability.
    #[error(
        "run as root or grant CAP_NET_ADMIN, CAP_BPF (and CAP_SYS_ADMIN for namespaces and pins): no permission to {what}"
    )]
    NoPermission {
        /// The refused operation, an infinitive without "to".
        what: String,
    },

    /// The kernel carries no type information.
    #[error(
        "this kernel has no BTF ({path} is missing): use a kernel built with CONFIG_DEBUG_INFO_BTF=y, or `weir replay --engine user`, which needs no kernel feature"
    )]
    NoBtf {
        /// The file that is absent.
        path: PathBuf,
    },

    /// No interface of that name in the current namespace.
    #[error("no such interface: {name}{}", did_you_mean(.near, "`ip link` lists what exists"))]
    NoSuchInterface {
        /// The name that was asked for.
        name: String,
        /// Existing names that resemble it, or all names if there are few.
        near: Vec<String>,
    },

    /// Another XDP program holds the interface.
    #[error(
        "{iface} already carries an XDP program (id {prog_id}): stop the program that holds it (`weir down` if a killed `weir run` left it; `bpftool link` names others; `ip link set dev {iface} xdp off` if nothing holds it)"
    )]
    AlreadyAttached {
        /// Interface name.
        iface: String,
        /// Id of the program found there; 0 if the kernel did not tell.
        prog_id: u32,
    },

    /// Another weir holds the interface.
    #[error(
        "{iface} already carries weir's program (id {prog_id}): stop that `weir run`, or run `weir down` if it was killed"
    )]
    AlreadyRunning {
        /// Interface name.
        iface: String,
        /// Id of the program found there.
        prog_id: u32,
    },

    /// The driver cannot run XDP natively.
    #[error(
        "{iface} (driver {driver}) cannot run native XDP: use --generic, which works on every device and is slower, or --hook tc"
    )]
    NativeUnsupported {
        /// Interface name.
        iface: String,
        /// Driver name as `ethtool -i` prints it.
        driver: String,
    },

    /// The kernel has no tcx.
    #[error("this kernel has no tcx (Linux 6.6): use a clsact filter")]
    NoTcx,

    /// The verifier refused a program.
    #[error("the kernel rejected program {program}: {line}")]
    Rejected {
        /// Program name in the object.
        program: String,
        /// The one line of the log that says why, with our source line where known.
        line: String,
        /// The full verifier log.
        log: String,
    },

    /// The bytes are not a loadable eBPF object.
    #[error(
        "not an eBPF object that libbpf can open: {why}: compile it with `clang -O2 -g -target bpf`"
    )]
    BadObject {
        /// libbpf's reason.
        why: String,
    },

    /// A map of type `struct_ops` that is declared as other maps are, which libbpf does not survive.
    #[error(
        "map {map} is of type struct_ops and declared in .maps: declare it as a variable in the section .struct_ops, or remove it"
    )]
    StructOpsMap {
        /// Map name in the object.
        map: String,
    },

    /// The object has no program of that name.
    #[error("no program {program} in the object{}", did_you_mean(.near, "it has none"))]
    MissingProgram {
        /// The name that was asked for.
        program: String,
        /// What the object has.
        near: Vec<String>,
    },

    /// The object has no map of that name.
    #[error("no map {map} in the object{}", did_you_mean(.near, "it has none"))]
    MissingMap {
        /// The name that was asked for.
        map: String,
        /// What the object has.
        near: Vec<String>,
    },

    /// A map has no room for another entry.
    #[error("map {map} is full at {entries} entries: raise the number before loading")]
    MapFull {
        /// Map name in the object.
        map: String,
        /// Entries it holds at most.
        entries: u32,
    },

    /// The object has no constant of that name.
    #[error("no constant {symbol} in .rodata{}", did_you_mean(.near, "is it declared `const volatile`, and the object compiled with -g?"))]
    MissingSymbol {
        /// The name that was asked for.
        symbol: String,
        /// What the section has.
        near: Vec<String>,
    },

    /// A value, key or constant has another size than the object declares.
    #[error(
        "{what} takes {want} bytes, got {got}: the object and this program disagree, rebuild both"
    )]
    WrongSize {
        /// Which value, key or constant.
        what: String,
        /// Size in the object, bytes.
        want: usize,
        /// Size given, bytes.
        got: usize,
    },

    /// A frame that the kernel's test run does not take.
    #[error(
        "the kernel's test run takes frames of {min} to {max} bytes, this one has {len}: use `--engine user`"
    )]
    FrameLength {
        /// Length of the frame, bytes.
        len: usize,
        /// Shortest frame accepted.
        min: usize,
        /// Longest frame accepted.
        max: usize,
    },

    /// A device feature that the driver keeps fixed.
    #[error("{iface}: the driver keeps {feature} {}: choose another device or leave the setting", if *.wanted { "off" } else { "on" })]
    FeatureFixed {
        /// Interface name.
        iface: String,
        /// ethtool's name of the feature.
        feature: &'static str,
        /// The state that was asked for.
        wanted: bool,
    },

    /// bpffs is not mounted where pins live.
    #[error("no bpffs at {path}: mount it with `mount -t bpf bpf {path}`", path = .path.display())]
    NoBpffs {
        /// The expected mount point.
        path: PathBuf,
    },

    /// A command of the test bed failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Exit status, or why it did not start.
        status: String,
        /// What it wrote to standard error, on one line.
        stderr: String,
    },

    /// A system call failed in a way that has no entry of its own.
    #[error("cannot {what}: {source}")]
    Sys {
        /// The refused operation, an infinitive without "to".
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl KernelError {
    /// The verifier's full log, if there is one.
    pub fn log(&self) -> Option<&str> {
        match self {
            Self::Rejected { log, .. } => Some(log),
            _ => None,
        }
    }

    /// Sorts an error number: missing privilege gets its own entry.
    pub(crate) fn sys(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPermission { what },
            _ => Self::Sys { what, source },
        }
    }

    /// [`Self::sys`] for the current `errno`.
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::sys(what, io::Error::last_os_error())
    }
}

/// The names of `known` that a typist may have meant by `name`: the closest in
/// edit distance, and those that differ in their number only; all of them if
/// they are at most four and none is close.
pub(crate) fn near_names(name: &str, known: &[String]) -> Vec<String> {
    let stem = |s: &str| s.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let mut scored: Vec<(usize, &String)> =
        known.iter().map(|k| (edit_distance(name, k), k)).collect();
    scored.sort();
    let close = 2.max(name.len() / 3);
    let best = scored.first().map_or(0, |(d, _)| *d);
    let near: Vec<String> = scored
        .into_iter()
        .filter(|(d, k)| (*d == best && best <= close) || stem(k) == stem(name))
        .take(4)
        .map(|(_, k)| k.clone())
        .collect();
    if near.is_empty() && known.len() <= 4 {
        return known.to_vec();
    }
    near
}

fn did_you_mean(near: &[String], otherwise: &str) -> String {
    match near {
        [] => format!(" ({otherwise})"),
        [one] => format!(", did you mean {one}?"),
        many => format!(", did you mean one of {}?", many.join(", ")),
    }
}

/// Edits (insert, delete, replace, swap two neighbours) between two names, in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| s.to_string()).collect()
    }

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(edit_distance("eth0", "eth0"), 0);
        assert_eq!(edit_distance("eth0", "eth1"), 1);
        assert_eq!(edit_distance("eth0", "ehh00"), 2);
        assert_eq!(edit_distance("tabel", "table"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
    }

    #[test]
    fn near_names_prefer_the_closest_then_the_same_stem() {
        let known = names(&["lo", "eth0", "eth12", "wlan0", "docker0", "br-lan"]);
        assert_eq!(near_names("eth1", &known), names(&["eth0", "eth12"]));
        assert_eq!(near_names("wlna0", &known), names(&["wlan0"]));
        assert!(near_names("zzzzzzzz", &known).is_empty());
    }

    #[test]
    fn few_names_are_all_listed() {
        let known = names(&["lo", "eth0"]);
        assert_eq!(near_names("enp3s0f1", &known), known);
    }

    #[test]
    fn messages_name_the_value_and_the_next_step() {
        let e = KernelError::NoSuchInterface {
            name: "eth9".into(),
            near: names(&["eth0"]),
        };
        assert_eq!(e.to_string(), "no such interface: eth9, did you mean eth0?");
        let e = KernelError::AlreadyAttached {
            iface: "eth0".into(),
            prog_id: 7,
        };
        assert!(e.to_string().contains("`ip link set dev eth0 xdp off`"));
        let e = KernelError::sys("load", io::Error::from_raw_os_error(libc::EPERM));
        assert!(matches!(e, KernelError::NoPermission { .. }));
    }
}
