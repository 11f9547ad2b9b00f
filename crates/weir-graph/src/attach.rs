//! `attach = "..."` of a `[[hook]]`: which hook outside the graph an object goes on.

use std::fmt;
use std::path::PathBuf;

use weir_functions::kind::suggest;

/// Where an object is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// A tracepoint of the kernel.
    Tracepoint {
        /// Its folder in tracefs.
        category: String,
        /// Its name there.
        name: String,
    },
    /// A cgroup of version 2.
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// Which of its hooks.
        hook: CgroupHook,
    },
}

/// Hooks of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are Linux's own, BPF_CGROUP_... in capitals"
)]
pub enum CgroupHook {
    Ingress,
    Egress,
    SockCreate,
    Bind4,
    Bind6,
    Connect4,
    Connect6,
    Sendmsg4,
    Sendmsg6,
}

impl CgroupHook {
    /// All of them.
    pub const ALL: [CgroupHook; 9] = [
        CgroupHook::Ingress,
        CgroupHook::Egress,
        CgroupHook::SockCreate,
        CgroupHook::Bind4,
        CgroupHook::Bind6,
        CgroupHook::Connect4,
        CgroupHook::Connect6,
        CgroupHook::Sendmsg4,
        CgroupHook::Sendmsg6,
    ];

    /// As configuration writes it.
    pub fn text(self) -> &'static str {
        match self {
            CgroupHook::Ingress => "ingress",
            CgroupHook::Egress => "egress",
            CgroupHook::SockCreate => "sock_create",
            CgroupHook::Bind4 => "bind4",
            CgroupHook::Bind6 => "bind6",
            CgroupHook::Connect4 => "connect4",
            CgroupHook::Connect6 => "connect6",
            CgroupHook::Sendmsg4 => "sendmsg4",
            CgroupHook::Sendmsg6 => "sendmsg6",
        }
    }

    /// Linux's `enum bpf_attach_type`.
    pub fn number(self) -> u32 {
        match self {
            CgroupHook::Ingress => 0,
            CgroupHook::Egress => 1,
            CgroupHook::SockCreate => 2,
            CgroupHook::Bind4 => 8,
            CgroupHook::Bind6 => 9,
            CgroupHook::Connect4 => 10,
            CgroupHook::Connect6 => 11,
            CgroupHook::Sendmsg4 => 14,
            CgroupHook::Sendmsg6 => 15,
        }
    }
}

impl Attach {
    /// Reads `tracepoint:CATEGORY/NAME` or `cgroup:PATH:HOOK`. The error is what is wrong, and what to write.
    pub(crate) fn parse(text: &str) -> Result<Attach, (String, String)> {
        let forms = "write `tracepoint:CATEGORY/NAME` or `cgroup:PATH:HOOK`";
        let Some((kind, rest)) = text.split_once(':') else {
            return Err((format!("`{text}` names no hook"), forms.to_owned()));
        };
        match kind {
            "tracepoint" => match rest.split_once('/') {
                Some((category, name)) if is_word(category) && is_word(name) => {
                    Ok(Attach::Tracepoint {
                        category: category.to_owned(),
                        name: name.to_owned(),
                    })
                }
                _ => Err((
                    format!("invalid tracepoint `{rest}`"),
                    "write `tracepoint:CATEGORY/NAME`, as in `tracepoint:sched/sched_switch`"
                        .to_owned(),
                )),
            },
            "cgroup" => {
                let Some((path, hook)) = rest.rsplit_once(':') else {
                    return Err((
                        format!("`{text}` does not say which hook of the cgroup"),
                        "write `cgroup:PATH:HOOK`, as in `cgroup:/sys/fs/cgroup:ingress`"
                            .to_owned(),
                    ));
                };
                if !path.starts_with('/') {
                    return Err((
                        format!("invalid cgroup path `{path}`"),
                        "write the whole path, as in `cgroup:/sys/fs/cgroup:ingress`".to_owned(),
                    ));
                }
                match CgroupHook::ALL.into_iter().find(|one| one.text() == hook) {
                    Some(hook) => Ok(Attach::Cgroup {
                        path: PathBuf::from(path),
                        hook,
                    }),
                    None => Err((
                        format!("a cgroup has no hook `{hook}`"),
                        suggest(hook, &CgroupHook::ALL.map(CgroupHook::text)),
                    )),
                }
            }
            _ => Err((
                format!("weir attaches nothing to `{kind}`"),
                forms.to_owned(),
            )),
        }
    }
}

/// Names of tracepoints become part of a path.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attach::Tracepoint { category, name } => write!(f, "tracepoint:{category}/{name}"),
            Attach::Cgroup { path, hook } => write!(f, "cgroup:{}:{}", path.display(), hook.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_read_back() {
        for text in [
            "tracepoint:sched/sched_switch",
            "cgroup:/sys/fs/cgroup/unified:connect4",
        ] {
            let attach = Attach::parse(text).expect(text);
            assert_eq!(attach.to_string(), text);
        }
        for bad in [
            "",
            "sched/sched_switch",
            "tracepoint:sched",
            "tracepoint:sched/../x",
            "cgroup:/x",
            "cgroup::ingress",
            "cgroup:/x:everything",
        ] {
            assert!(Attach::parse(bad).is_err(), "{bad}");
        }
    }
}
