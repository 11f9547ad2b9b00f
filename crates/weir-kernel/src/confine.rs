//! Confinement of a process that reads foreign input: no capabilities, a short list of system calls, files below a few folders only.
//!
//! It holds for the calling thread and those that it starts afterwards, so [`enter`] comes before the first thread. There is no way back.
//! Descriptors that are open stay open: what the process may still do with its sockets is what they allow.

use std::collections::BTreeMap;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::KernelError;

/// What stays possible.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Folders whose files may be made, written, renamed and removed.
    pub write: Vec<PathBuf>,
    /// Files, and folders with what is below them, that may be read.
    pub read: Vec<PathBuf>,
    /// Elements of maps of the kernel that are open may be stored and deleted; no map, program or link can be made or opened.
    pub map_elements: bool,
}

/// How file access is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// As asked.
    Enforced,
    /// The kernel is older than some rights: those it does not limit.
    Partly,
    /// The kernel has no Landlock, or it is off: only owners and modes of files hold.
    Unavailable,
}

/// The newest interface of Landlock that is asked for; older kernels do what they can.
const NEWEST: ABI = ABI::V6;

/// Enters it.
///
/// # Errors
/// The kernel refuses a part that every supported kernel has: capabilities, `no_new_privs`, the filter of system calls.
pub fn enter(confinement: &Confinement) -> Result<FileAccess, KernelError> {
    // Compiled first: whatever fails afterwards is a refusal by the kernel.
    let filters = filters(confinement.map_elements)?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|e| KernelError::sys("set no_new_privs", e.into()))?;
    let files = limit_files(confinement)?;
    drop_capabilities()?;
    for filter in &filters {
        seccompiler::apply_filter(filter)
            .map_err(|e| failed("set the filter of system calls", e))?;
    }
    Ok(files)
}

fn failed(what: &str, error: impl std::error::Error) -> KernelError {
    KernelError::sys(what, std::io::Error::other(error.to_string()))
}

fn limit_files(confinement: &Confinement) -> Result<FileAccess, KernelError> {
    let refused = |e: landlock::RulesetError| failed("limit access to files (Landlock)", e);
    // Neither programs nor devices, sockets and FIFOs.
    let write = AccessFs::from_all(NEWEST)
        & !(AccessFs::Execute
            | AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::MakeFifo
            | AccessFs::MakeSock
            | AccessFs::IoctlDev);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(|ruleset| ruleset.create())
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(&confinement.read, read)))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(&confinement.write, write)))
        .and_then(|ruleset| ruleset.restrict_self())
        .map_err(refused)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => FileAccess::Enforced,
        RulesetStatus::PartiallyEnforced => FileAccess::Partly,
        RulesetStatus::NotEnforced => FileAccess::Unavailable,
    })
}

fn drop_capabilities() -> Result<(), KernelError> {
    let refused = |e: rustix::io::Errno| KernelError::sys("drop capabilities", e.into());
    clear_ambient_capability_set().map_err(refused)?;
    // The bounding set takes CAP_SETPCAP, which a process of another user does not have. It matters to programs that are started, and none can be.
    for one in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(one) {
            // Not one of this kernel.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(rustix::io::Errno::PERM) => break,
            Err(e) => return Err(refused(e)),
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(refused)
}

/// Calls that a running sensor makes: files below the folders that Landlock allows, memory, threads, clocks, and its open sockets.
const CALLS: &[i64] = &[
    // Files.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_openat,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_getcwd,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads and signals. `clone3` gets ENOSYS from a filter of its own.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    // Clocks and the host.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Waiting, and open sockets.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_bind,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_arch_prctl,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Requests of `ioctl`: the state of links, terminals, and flags of descriptors.
const REQUESTS: &[u64] = &[
    libc::SIOCGIFINDEX,
    libc::SIOCGIFFLAGS,
    // Of SIOCETHTOOL those that change a device take CAP_NET_ADMIN.
    libc::SIOCETHTOOL,
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::TCGETS,
    libc::TIOCGWINSZ,
];

/// Commands of `bpf` that change elements of maps. Values are read where they are mapped.
const MAP_ELEMENTS: [u64; 2] = [
    libbpf_sys::BPF_MAP_UPDATE_ELEM as u64,
    libbpf_sys::BPF_MAP_DELETE_ELEM as u64,
];

/// `PR_SET_VMA`: names of mappings, which allocators give.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// The filters, in the order in which they are set. A call gets the strictest answer of all; of errors, that of the last one set counts, which is
/// why ENOSYS is not left to the first.
fn filters(map_elements: bool) -> Result<[BpfProgram; 2], KernelError> {
    let refused = |e: seccompiler::BackendError| failed("compile the filter of system calls", e);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(refused)?;
    let is = |at, op, value| SeccompCondition::new(at, Len::Qword, op, value).map_err(refused);
    let low = |at, op, value| SeccompCondition::new(at, Len::Dword, op, value).map_err(refused);
    let rule = |condition| SeccompRule::new(vec![condition]).map_err(refused);
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> = CALLS
        .iter()
        .chain(OLD_CALLS)
        .map(|call| (*call, Vec::new()))
        .collect();
    // Threads, not processes.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    calls.insert(
        libc::SYS_clone,
        vec![rule(is(0, Op::MaskedEq(thread), thread)?)?],
    );
    // An abort, not signals for others.
    let own = u64::from(std::process::id());
    calls.insert(libc::SYS_tgkill, vec![rule(low(0, Op::Eq, own)?)?]);
    // Limits may be read, and its own lowered.
    calls.insert(libc::SYS_prlimit64, vec![rule(low(0, Op::Eq, 0)?)?]);
    let prctl = [libc::PR_SET_NAME as u64, PR_SET_VMA];
    let prctl = prctl.map(|option| rule(low(0, Op::Eq, option)?));
    calls.insert(
        libc::SYS_prctl,
        prctl.into_iter().collect::<Result<_, _>>()?,
    );
    let requests = REQUESTS.iter().map(|one| rule(low(1, Op::Eq, *one)?));
    calls.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    if map_elements {
        let elements = MAP_ELEMENTS.map(|command| rule(low(0, Op::Eq, command)?));
        calls.insert(
            libc::SYS_bpf,
            elements.into_iter().collect::<Result<_, _>>()?,
        );
    }
    // A pair that signal handlers write to, and writing to it: with an address it would be another's.
    let unix = u64::from(libc::AF_UNIX.cast_unsigned());
    calls.insert(libc::SYS_socketpair, vec![rule(low(0, Op::Eq, unix)?)?]);
    calls.insert(libc::SYS_sendto, vec![rule(is(4, Op::Eq, 0)?)?]);
    let allowed = SeccompFilter::new(
        calls,
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        SeccompAction::Allow,
        arch,
    )
    .map_err(refused)?;
    // Its arguments are in memory, where no filter reads. The C library then calls `clone`.
    let clone3 = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        arch,
    )
    .map_err(refused)?;
    Ok([
        clone3.try_into().map_err(refused)?,
        allowed.try_into().map_err(refused)?,
    ])
}
