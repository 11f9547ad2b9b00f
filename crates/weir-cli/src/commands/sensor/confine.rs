//! `--confine` and `--memory-limit`: what the sensor gives up before it reads what strangers wrote.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use weir_kernel::confine::{Confinement, FileAccess, enter};
use weir_sensor::config::SensorConfig;
use weir_sensor::output::LogDestination;

use crate::args::sensor::SensorRunArgs;
use crate::failure::Failure;

/// Time zones, for logs in local time.
const ZONES: [&str; 2] = ["/etc/localtime", "/usr/share/zoneinfo"];

/// Limits the memory that it asks the kernel for. Rings are shared with the kernel, and do not count.
pub(super) fn limit_memory(args: &SensorRunArgs) -> Result<(), Failure> {
    let Some(mib) = args.memory_limit else {
        return Ok(());
    };
    let bytes = Some(u64::from(mib) << 20);
    let limit = Rlimit {
        current: bytes,
        maximum: bytes,
    };
    setrlimit(Resource::Data, limit)
        .map_err(|e| Failure::failed(format!("cannot limit memory to {mib} MiB: {e}")))
}

/// What a confined sensor cannot do, before anything is opened.
pub(super) fn check(args: &SensorRunArgs, config: &SensorConfig) -> Result<(), Failure> {
    if !args.confine {
        return Ok(());
    }
    if config.inline.is_some() {
        return Err(Failure::Usage(
            "--confine is for sensors that listen: one between two interfaces changes maps of the kernel while it runs".to_owned(),
        ));
    }
    let eve = config.logs.eve.iter().map(|one| &one.log);
    let all = eve.chain(&config.logs.fast).chain(&config.logs.stats);
    for log in all {
        if let LogDestination::UnixStream(path) | LogDestination::UnixDatagram(path) = &log.target {
            return Err(Failure::Usage(format!(
                "--confine allows no new sockets, and the configuration writes to the socket {}: write a file there (filetype: regular)",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Confines the process. A warning, if the kernel does not limit files as it should.
///
/// # Errors
/// The kernel refuses.
pub(super) fn confine(
    args: &SensorRunArgs,
    config: &SensorConfig,
    keeps_away: bool,
) -> Result<Option<&'static str>, Failure> {
    if !args.confine {
        return Ok(None);
    }
    let confinement = Confinement {
        // Of flows whose packets the kernel keeps away.
        map_elements: keeps_away,
        ..folders(args, config)
    };
    let files = enter(&confinement).map_err(Failure::failed)?;
    Ok(match files {
        FileAccess::Enforced => None,
        FileAccess::Partly => Some(
            "this kernel's Landlock is old: it limits most of the access to files, but not all; Linux 6.12 limits all of it",
        ),
        FileAccess::Unavailable => Some(
            "Landlock is not available: the sensor can write and read what its user can. Boot with lsm=landlock,... to limit it to its folders",
        ),
    })
}

fn folders(args: &SensorRunArgs, config: &SensorConfig) -> Confinement {
    let mut write = vec![args.log.clone()];
    write.extend(config.data_folder.clone());
    // A folder of rules is read whole, and a file is replaced by another of its name: both take its folder.
    let rules = (args.rules.iter())
        .chain(&args.only_rules)
        .chain(&config.rule_files)
        .chain(config.firewall.iter().flatten());
    let files = (args.settings.configs.iter())
        .chain(&config.classification)
        .chain(&config.references)
        .chain(&config.thresholds)
        .chain(&config.reputation)
        .chain(&config.reputation_categories);
    let mut read: Vec<PathBuf> = rules.chain(files).map(|path| folder(path)).collect();
    read.extend(config.rule_folder.clone());
    read.extend(args.read.iter().map(|path| folder(path)));
    read.extend(ZONES.map(PathBuf::from));
    Confinement {
        write,
        read,
        map_elements: false,
    }
}

/// A folder, or that of a file or pattern.
fn folder(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
