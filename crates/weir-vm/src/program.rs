//! What kind of program a section holds, as libbpf and its forerunners name sections.
//!
//! Owns the table of section names. Invariant: a name means here what libbpf 1.x takes it for; spellings of older loaders
//! (`xdp_*`, `prog`, `classifier`) mean what those took them for.

use std::fmt;

/// What a program is attached to, which decides its context and what it may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs on frames as they arrive.
    Xdp {
        /// Declared to take frames of several buffers (`xdp.frags`).
        frags: bool,
        /// Where it runs.
        attach: XdpAttach,
    },
    /// Runs on socket buffers at the traffic control layer.
    SchedCls,
    /// Something this engine does not run, by section.
    Other(String),
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttach {
    /// On an interface.
    Device,
    /// In an element of a device map, on frames redirected through it; only there `egress_ifindex` can be read.
    Devmap,
    /// In an element of a CPU map, on the CPU frames were redirected to.
    Cpumap,
}

impl ProgramKind {
    /// A plain XDP program.
    pub const XDP: ProgramKind = ProgramKind::Xdp {
        frags: false,
        attach: XdpAttach::Device,
    };

    /// The kind of the programs in a section.
    pub fn of_section(section: &str) -> ProgramKind {
        // A section marked "not to be loaded by itself".
        let name = section.strip_prefix('?').unwrap_or(section);
        let xdp = |frags, attach| ProgramKind::Xdp { frags, attach };
        match name {
            "xdp" | "prog" => return xdp(false, XdpAttach::Device),
            "xdp/devmap" => return xdp(false, XdpAttach::Devmap),
            "xdp/cpumap" => return xdp(false, XdpAttach::Cpumap),
            "xdp.frags" => return xdp(true, XdpAttach::Device),
            "xdp.frags/devmap" => return xdp(true, XdpAttach::Devmap),
            "xdp.frags/cpumap" => return xdp(true, XdpAttach::Cpumap),
            "tc" | "classifier" | "action" | "tc/ingress" | "tc/egress" | "tcx/ingress"
            | "tcx/egress" => return ProgramKind::SchedCls,
            _ => {}
        }
        let under = |prefix: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(['/', '_']))
        };
        if under("xdp_devmap") {
            return xdp(false, XdpAttach::Devmap);
        }
        if under("xdp_cpumap") {
            return xdp(false, XdpAttach::Cpumap);
        }
        if under("xdp.frags") {
            return xdp(true, XdpAttach::Device);
        }
        // Up to libbpf 0.8 any name that began like this.
        if under("xdp") && name != "xdp_metadata" {
            return xdp(false, XdpAttach::Device);
        }
        if under("classifier") || under("tc") {
            return ProgramKind::SchedCls;
        }
        ProgramKind::Other(section.to_owned())
    }

    /// Whether [`Machine::run_xdp`](crate::Machine::run_xdp) runs it.
    pub fn is_xdp(&self) -> bool {
        matches!(self, ProgramKind::Xdp { .. })
    }

    /// Whether this engine runs it.
    pub fn is_runnable(&self) -> bool {
        !matches!(self, ProgramKind::Other(_))
    }
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramKind::Xdp { frags, attach } => {
                f.write_str(if *frags { "xdp.frags" } else { "xdp" })?;
                f.write_str(match attach {
                    XdpAttach::Device => "",
                    XdpAttach::Devmap => "/devmap",
                    XdpAttach::Cpumap => "/cpumap",
                })
            }
            ProgramKind::SchedCls => f.write_str("tc"),
            ProgramKind::Other(section) => write!(f, "{section} (not XDP)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections() {
        let shown = |s: &str| ProgramKind::of_section(s).to_string();
        assert_eq!(shown("xdp"), "xdp");
        assert_eq!(shown("prog"), "xdp");
        assert_eq!(shown("xdp_pass"), "xdp");
        assert_eq!(shown("xdp/pass"), "xdp");
        assert_eq!(shown("xdp_devmap/egress"), "xdp/devmap");
        assert_eq!(shown("xdp.frags/cpumap"), "xdp.frags/cpumap");
        assert_eq!(shown("xdp.frags/other"), "xdp.frags");
        assert_eq!(shown("classifier"), "tc");
        assert_eq!(shown("tcx/ingress"), "tc");
        for other in [
            "fentry/func",
            "xdpx",
            "xdp_metadata",
            "tracepoint/x",
            ".text",
        ] {
            assert!(!ProgramKind::of_section(other).is_runnable(), "{other}");
        }
    }
}
