//! `weir sensor`: frames to alerts. Here: from arguments to a setup, signals, progress, and what is said at the end.

mod confine;
mod journal;
mod report;
mod rules;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use weir_sensor::analysis::analyze;
use weir_sensor::config::{
    Checksums, DATA_FOLDER, DNS_VERSION, FAIL_OPEN, FIREWALL, JOINED, SIMULATE, SensorConfig,
    Verified,
};
use weir_sensor::load::{BookError, named};
use weir_sensor::matcher;
use weir_sensor::rules::{Dialect, keywords};
use weir_sensor::run::{Controls, Reload, RunError, Say, Setup, run as run_sensor};
use weir_sensor::settings::Settings;
#[cfg(feature = "libpcap")]
use weir_sensor::source::Libpcap;
use weir_sensor::source::filter::Filter;
use weir_sensor::source::{
    BypassMode, FileOptions, Files, Inline, InlineOptions, Interfaces, LiveOptions, Notice,
    RingGroup, Rings, Source, SourceError, detach,
};
use weir_sensor::worker::Engine;

use crate::args::sensor::{
    BypassName, CaptureName, ChecksumsName, DialectName, MatcherName, RulesCommand, SensorArgs,
    SensorCommand, SensorRunArgs, SettingsArgs, ShedName,
};
use crate::failure::Failure;
use crate::output;

use journal::{Journal, Level};

/// Files that are left out are named so often; beyond that they are counted.
const SHOWN: usize = 5;

pub(crate) fn run(args: &SensorArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(SensorCommand::Rules(rules)) => match &rules.command {
            RulesCommand::Check(args) => rules::check(args),
            RulesCommand::Analyse(args) => rules::analyse(args),
        },
        None => sense(&args.run),
    }
}

/// The configuration, with what the command line changes of it.
fn config(args: &SettingsArgs) -> Result<SensorConfig, Failure> {
    SensorConfig::from_settings(&settings(args)?).map_err(Failure::usage)
}

fn settings(args: &SettingsArgs) -> Result<Settings, Failure> {
    let files: Vec<PathBuf> = [&args.configs[..], &args.includes[..]].concat();
    let mut settings = Settings::read(&files).map_err(Failure::usage)?;
    // As users of such sensors say it where they have no section for records of DNS.
    if let Ok(version) = std::env::var("SURICATA_EVE_DNS_VERSION") {
        settings
            .set(&format!("{DNS_VERSION}={version}"))
            .map_err(Failure::usage)?;
    }
    for set in &args.sets {
        settings.set(set).map_err(Failure::usage)?;
    }
    Ok(settings)
}

fn dialect(args: &SettingsArgs) -> Dialect {
    match args.dialect {
        DialectName::Suricata => Dialect::Suricata,
        DialectName::Snort3 => Dialect::Snort,
    }
}

/// Rule files of the command line (`-S`, `-s`) and the configuration, patterns resolved.
fn files(
    only: &[PathBuf],
    beside: &[PathBuf],
    config: &SensorConfig,
) -> Result<Vec<PathBuf>, BookError> {
    let of_config: &[PathBuf] = match only {
        [] => &config.rule_files,
        _ => &[],
    };
    let mut found = Vec::new();
    for path in only {
        found.extend(named(path)?);
    }
    // A configuration may be for more than is there; what the command line names must be.
    for path in of_config {
        match named(path) {
            Ok(files) => found.extend(files),
            Err(e) => output::complain(&format!("{e}; the other rules are loaded")),
        }
    }
    for path in beside {
        found.extend(named(path)?);
    }
    Ok(found)
}

/// What is asked for instead of a run.
fn listed(args: &SensorRunArgs, settings: &Settings) -> Option<String> {
    let list = |title: &str, names: Vec<&str>| {
        let lines = names.iter().map(|name| format!("- {name}\n"));
        Some(
            lines.fold(format!("=====Supported {title}=====\n"), |text, line| {
                text + &line
            }),
        )
    };
    if args.dump_config {
        let mut text = settings.dump().join("\n");
        text.push('\n');
        return Some(text);
    }
    if args.list_keywords {
        return list("keywords", keywords::names(dialect(&args.settings)));
    }
    args.list_app_layer_protos
        .then(|| list("App Layer Protocols", keywords::protocol_names()))
        .flatten()
}

fn sense(args: &SensorRunArgs) -> Result<ExitCode, Failure> {
    let settings = settings(&args.settings)?;
    if let Some(text) = listed(args, &settings) {
        output::out(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(names), true) = (&args.inline, args.detach) {
        return give_back(names);
    }
    let mut journal = Journal::open(&settings, &args.log)?;
    let result =
        confine::limit_memory(args).and_then(|()| sense_with(args, settings, &mut journal));
    if let Err(failure) = &result {
        journal.say(Level::Error, "sensor", &failure.to_string());
    }
    result
}

fn sense_with(
    args: &SensorRunArgs,
    mut settings: Settings,
    journal: &mut Journal,
) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.data_dir {
        settings
            .set(&format!("{DATA_FOLDER}={}", folder.display()))
            .map_err(Failure::usage)?;
    }
    let joined = joined(args, &mut settings)?;
    if args.simulate_ips || joined {
        settings
            .set(&format!("{SIMULATE}=yes"))
            .map_err(Failure::usage)?;
    }
    let firewall = !args.firewall_rules_exclusive.is_empty();
    if firewall {
        settings
            .set(&format!("{FIREWALL}=yes"))
            .map_err(Failure::usage)?;
    }
    let mut config = SensorConfig::from_settings(&settings).map_err(Failure::usage)?;
    if firewall {
        config.firewall = Some(args.firewall_rules_exclusive.clone());
    }
    if let Some(which) = args.checksums {
        config.checksums = Checksums::all(match which {
            ChecksumsName::Auto => Verified::Auto,
            ChecksumsName::All => Verified::All,
            ChecksumsName::None => Verified::None,
        });
    }
    if args.engine_analysis {
        return analysis(args, &config, journal);
    }
    if !joined {
        config.inline = None;
    }
    if config.inline.is_some() && config.firewall.is_some() {
        return Err(Failure::Usage(format!(
            "a firewall between two interfaces would drop ARP, as no rule can accept it: try the firewall's rules on captures (-r) with --simulate-ips, or remove {FIREWALL} from the configuration"
        )));
    }
    if let Some(joined) = &config.inline {
        config.logs.options.interfaces = joined.interfaces.to_vec();
    } else if !args.test_config {
        config.logs.options.interfaces = interfaces(args, &config)?;
    }
    if config.ips && config.inline.is_none() && !config.logs.options.interfaces.is_empty() {
        return Err(Failure::Usage(format!(
            "the sensor listens beside live traffic and cannot drop it: stand between two interfaces (--inline), read captures (-r) with --simulate-ips, or remove {SIMULATE} from the configuration"
        )));
    }
    config.profile_rules |= args.profile_rules;
    let filter = args
        .filter
        .as_deref()
        .map(Filter::parse)
        .transpose()
        .map_err(Failure::usage)?;
    let idle = args.idle;
    let matcher = match args.engine {
        MatcherName::Prefilter => matcher::Engine::Prefilter,
        MatcherName::AhoCorasick => matcher::Engine::AhoCorasick,
    };
    confine::check(args, &config)?;
    // What is slow or needs rights comes after what can be wrong at once.
    let source = match args.test_config {
        true => None,
        false => Some(source(args, &config)?),
    };
    writable(&args.log)?;
    // Before the first thread, and before rules are read.
    let keeps_away = source.as_ref().is_some_and(|s| s.bypass().is_some());
    if let Some(warning) = confine::confine(args, &config, keeps_away)? {
        output::complain(warning);
        journal.say(Level::Warning, "sensor", warning);
    }
    let started = std::time::Instant::now();
    let (engine, rules, refused) = files(&args.only_rules, &args.rules, &config)
        .and_then(|files| Engine::load(&config, dialect(&args.settings), &files, matcher, None))
        .map_err(Failure::usage)?;
    let loaded = report::Loaded::new(&rules, &refused, &engine, started.elapsed());
    report::tell_rules(&rules, &refused, args.verbose);
    journal.rules(&rules, &refused);
    for (key, what) in &config.vital {
        output::complain(&format!("{key}: {what}"));
        journal.say(Level::Warning, "config", &format!("{key}: {what}"));
    }
    for (key, what) in &config.contrary {
        output::complain(&format!("{key}: {what}"));
        journal.say(Level::Warning, "config", &format!("{key}: {what}"));
    }
    for (key, what) in &config.obsolete {
        output::complain(&format!("{key}: {what}"));
        journal.say(Level::Warning, "config", what);
    }
    if args.verbose > 0 {
        report::tell_unknown(&config.unknown);
    }
    say_loaded(journal, &loaded);
    if args.strict {
        strict(&loaded, &config)?;
    }
    say_processed(journal, &loaded);
    let Some(mut source) = source else {
        if args.json {
            output::json(&report::tested(&loaded))?;
        } else {
            output::out(&format!(
                "{} rules loaded, {} rejected; the configuration is valid\n{}",
                loaded.rules,
                loaded.refused,
                loaded.remarks()
            ))?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    drop(rules);

    let controls = Arc::new(Controls::default());
    signals(&controls)?;
    let reload = reloader(args, &config, matcher);
    let terminal = output::stderr_is_terminal();
    let own = std::sync::Mutex::new(journal);
    let told = |text: &str| {
        // Nothing panics with it held.
        if let Ok(mut journal) = own.lock() {
            journal.say(Level::Warning, "sensor", text);
        }
    };
    let say = |what: Say<'_>| match what {
        Say::Progress(done, total, frames) if terminal => {
            let percent = (done * 100).checked_div(total).unwrap_or(0);
            output::tell(&format!(
                "\r{percent:3} % of {}, {frames} frames ",
                report::bytes(total)
            ));
        }
        Say::Progress(..) => {}
        Say::Reloaded(rules, took) => output::complain(&format!(
            "{rules} rules reloaded in {:.2} s",
            took.as_secs_f64()
        )),
        Say::NotReloaded(why) => {
            output::complain(&format!("reload failed, the old rules stay in use: {why}"))
        }
        Say::Interface(Notice::Down { why, .. }) => {
            output::complain(&format!("{why}; waiting for it"));
        }
        Say::Interface(Notice::NoBypass { why }) => output::complain(&format!(
            "flows that are let go are read, as the kernel cannot keep their packets away: {why}"
        )),
        Say::Interface(Notice::Gap(gap)) => output::complain(&format!(
            "{}: {} {} s",
            gap.interface,
            match gap.back {
                true => "back after",
                false => "still away, since",
            },
            gap.to.saturating_sub(gap.from) / 1_000_000_000
        )),
        Say::Script(text) => {
            output::complain(text);
            told(&format!("Lua script failed to run successfully: {text}"));
        }
        Say::SetNotWritten(path, error) => {
            let text = format!("{}: {error}; the set is not kept", path.display());
            output::complain(&text);
            told(&text);
        }
        Say::SumsIgnored => output::complain(
            "more than a tenth of a capture's first frames have wrong checksums, as where a sender leaves them to its device: the rest is read without validation (-k all validates)",
        ),
    };
    let setup = Setup {
        config: &config,
        engine: Arc::new(engine),
        workers: usize::from(workers(args, &config)),
        filter,
        logs: args.log.clone(),
        idle,
        reload: Some(reload),
        say: &say,
    };
    let result = run_sensor(setup, &mut *source, &controls);
    if terminal {
        // The line of progress goes.
        output::tell("\r\x1b[K");
    }
    if let Some(joined) = &config.inline {
        let [a, b] = &joined.interfaces;
        output::complain(&format!(
            "until a sensor runs again, {} between {a} and {b}; `weir sensor --inline {a}:{b} --detach` gives them back to the host",
            match joined.fail_open {
                true => "frames pass uninspected",
                false => "nothing passes",
            }
        ));
    }
    let journal = own
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let summary = result.map_err(|e| match e {
        RunError::Sink(_) | RunError::Source(_) | RunError::Worker(_) => Failure::failed(e),
        RunError::TooManyWorkers { .. } => Failure::usage(e),
    })?;
    for (path, problem) in &summary.problems {
        output::complain(&format!("{}: {problem}", path.display()));
        let message = format!("{}: {problem}", path.display());
        journal.say(Level::Error, "source", &message);
    }
    for path in summary.skipped.iter().take(SHOWN) {
        output::complain(&format!("{}: no capture, left out", path.display()));
    }
    if summary.skipped.len() > SHOWN {
        output::complain(&format!(
            "{} more files are not captures",
            summary.skipped.len() - SHOWN
        ));
    }
    // Of a directory in which nothing is a capture, somebody may have expected something else.
    let nothing = summary.source.files == 0 && !summary.skipped.is_empty() && !args.follow;
    if nothing {
        output::complain("no capture to read");
    }
    if args.json {
        output::json(&report::json(&loaded, &summary))?;
    } else {
        output::out(&report::text(&loaded, &summary, args.verbose))?;
        if config.profile_rules {
            output::out(&report::profile(&summary, args.verbose))?;
        }
    }
    // A capture that ends early is decided up to there, and was told.
    Ok(
        match summary.problems.len() == summary.partial && !(nothing && args.strict) {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(1),
        },
    )
}

/// Says in the log how many rules were loaded of how many files.
fn say_loaded(journal: &mut Journal, loaded: &report::Loaded) {
    if loaded.unstored {
        journal.say(Level::Warning, "detect-filestore", report::UNSTORED);
    }
    match loaded.rules {
        0 if loaded.files > 0 => {
            let files = loaded.files;
            let message = format!("{files} rule files specified, but no rules were loaded!");
            journal.say(Level::Warning, "detect", &message);
        }
        _ => journal.say(Level::Info, "detect", &loaded.summary()),
    }
}

/// Says in the log that detection goes on with the rules, be they none: where rejected ones end the run it does not.
fn say_processed(journal: &mut Journal, loaded: &report::Loaded) {
    let message = format!("{} signatures processed", loaded.rules);
    journal.say(Level::Info, "detect", &message);
}

/// Writes the analysis of the rules to the log directory, and says what became of the rules.
fn analysis(
    args: &SensorRunArgs,
    config: &SensorConfig,
    journal: &mut Journal,
) -> Result<ExitCode, Failure> {
    writable(&args.log)?;
    let started = std::time::Instant::now();
    let files = files(&args.only_rules, &args.rules, config).map_err(Failure::usage)?;
    let mut analysis =
        analyze(config, dialect(&args.settings), &files, &args.log).map_err(Failure::usage)?;
    let book = &mut analysis.book;
    // What detection cannot decide is refused as well.
    let (engine, uncompiled) = Engine::new(config, book, matcher::Engine::Prefilter);
    let loaded = report::Loaded::new(book, &uncompiled, &engine, started.elapsed());
    report::tell_rules(book, &uncompiled, args.verbose);
    journal.rules(book, &uncompiled);
    for (key, what) in &config.obsolete {
        output::complain(&format!("{key}: {what}"));
        journal.say(Level::Warning, "config", what);
    }
    say_loaded(journal, &loaded);
    say_processed(journal, &loaded);
    if analysis.files.is_empty() {
        output::complain(
            "the configuration asks for no analysis: set engine-analysis.rules=yes, engine-analysis.rules-fast-pattern=yes or detect.profiling.grouping.dump-to-disk=yes",
        );
    }
    if args.json {
        output::json(&report::tested(&loaded))?;
    } else {
        let mut text = format!(
            "{} rules loaded, {} rejected\n",
            loaded.rules, loaded.refused
        );
        for path in &analysis.files {
            text += &format!("{}\n", path.display());
        }
        output::out(&text)?;
    }
    Ok(match loaded.refused {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

/// What `--strict` does not let by.
fn strict(loaded: &report::Loaded, config: &SensorConfig) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    // A rule that says it is not for this sensor is not in error.
    let refused = loaded.refused - loaded.skipped;
    if refused > 0 {
        wrong.push(format!("{refused} rules are rejected"));
    }
    if loaded.lines > 0 {
        wrong.push(format!("{} other lines are rejected", loaded.lines));
    }
    if !config.vital.is_empty() {
        let keys = config.vital.len();
        wrong.push(format!(
            "{keys} configuration keys ask for unsupported features"
        ));
    }
    if !config.contrary.is_empty() {
        let keys = config.contrary.len();
        wrong.push(format!("{keys} configuration keys contradict others"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let why = format!("{} (--strict)", wrong.join(", "));
    // Rejected rules end with the status that `weir sensor rules check` has for them.
    Err(match config.vital.is_empty() {
        true => Failure::Failed(why),
        false => Failure::Usage(why),
    })
}

/// Interfaces to listen to; none: captures are read.
fn interfaces(args: &SensorRunArgs, config: &SensorConfig) -> Result<Vec<String>, Failure> {
    if !args.interfaces.is_empty() || !args.read.is_empty() {
        return Ok(args.interfaces.clone());
    }
    let [packet, libpcap] = &config.interfaces;
    let (names, section) = match args.capture {
        CaptureName::AfPacket => (packet, "af-packet"),
        CaptureName::Libpcap => (libpcap, "pcap"),
    };
    match names.is_empty() {
        false => Ok(names.clone()),
        true => Err(Failure::Usage(format!(
            "nothing to read: name captures (-r) or interfaces (-i), or list interfaces in the configuration ({section})"
        ))),
    }
}

/// Whether the sensor stands between two interfaces; if the command line says so, the settings say it from here on.
fn joined(args: &SensorRunArgs, settings: &mut Settings) -> Result<bool, Failure> {
    let mut set = |key: &str, value: &str| {
        settings
            .set(&format!("{key}={value}"))
            .map_err(Failure::usage)
    };
    if let Some([a, b]) = &args.inline {
        set(JOINED, &format!("{a}:{b}"))?;
    }
    if args.fail_open || args.fail_closed {
        set(FAIL_OPEN, if args.fail_open { "yes" } else { "no" })?;
    }
    if !args.read.is_empty() || !args.interfaces.is_empty() || args.engine_analysis {
        return Ok(false);
    }
    let joined = weir_sensor::config::joined(settings)
        .map_err(Failure::usage)?
        .is_some();
    if !joined && (args.fail_open || args.fail_closed) {
        return Err(Failure::Usage(
            "--fail-open and --fail-closed are about interfaces that the sensor stands between: name two with --inline IF1:IF2".to_owned(),
        ));
    }
    if joined && args.filter.is_some() {
        return Err(Failure::Usage(
            "-f leaves frames out, and inline each is decided: write pass rules instead".to_owned(),
        ));
    }
    Ok(joined)
}

/// `--detach`.
fn give_back(names: &[String; 2]) -> Result<ExitCode, Failure> {
    let given = detach(names).map_err(Failure::failed)?;
    output::out(&match given.as_slice() {
        [] => "no interface was joined\n".to_owned(),
        names => format!("{} given back\n", names.join(", ")),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn source(args: &SensorRunArgs, config: &SensorConfig) -> Result<Box<dyn Source>, Failure> {
    if let Some(joined) = &config.inline {
        let options = InlineOptions {
            fail_open: joined.fail_open,
            queue: joined.queue,
            ..InlineOptions::default()
        };
        let inline = Inline::open(&joined.interfaces, options).map_err(Failure::failed)?;
        return Ok(Box::new(inline));
    }
    let interfaces = &config.logs.options.interfaces;
    if !interfaces.is_empty() {
        return listen(interfaces, args, config).map_err(|e| match e {
            SourceError::Interface { .. } => Failure::failed(e),
            SourceError::Open { .. } | SourceError::NoFiles { .. } => Failure::usage(e),
        });
    }
    let options = FileOptions {
        recursive: args.recursive,
        follow: args.follow,
    };
    Ok(Box::new(
        Files::open(&args.read, options).map_err(Failure::usage)?,
    ))
}

/// Threads that inspect: where packets are dropped one, as each decision may depend on all before it.
fn workers(args: &SensorRunArgs, config: &SensorConfig) -> u16 {
    if config.ips {
        return 1;
    }
    let said = || match args.capture {
        CaptureName::AfPacket => config.threads(&config.logs.options.interfaces),
        CaptureName::Libpcap => None,
    };
    args.workers.or_else(said).unwrap_or(1)
}

fn listen(
    interfaces: &[String],
    args: &SensorRunArgs,
    config: &SensorConfig,
) -> Result<Box<dyn Source>, SourceError> {
    let options = LiveOptions {
        cluster: args.cluster,
        reopens: !args.confine,
        bypass: match args.bypass {
            Some(BypassName::Auto) => BypassMode::Auto,
            Some(BypassName::Socket) => BypassMode::Socket,
            Some(BypassName::Xdp) => BypassMode::Xdp,
            Some(BypassName::None) => BypassMode::None,
            None => match config.keeps_away(interfaces) {
                Some(false) => BypassMode::None,
                Some(true) | None => BypassMode::Auto,
            },
        },
        vlans: config.flow.vlans,
        sheds: args.shed == ShedName::Flows,
        ..LiveOptions::default()
    };
    if args.shed == ShedName::Flows && args.capture != CaptureName::AfPacket {
        return Err(SourceError::Interface {
            interface: interfaces.join(", "),
            message: "--shed flows needs --capture af-packet".to_owned(),
        });
    }
    if args.cluster.is_some() && args.capture != CaptureName::AfPacket {
        return Err(SourceError::Interface {
            interface: interfaces.join(", "),
            message: "--cluster needs --capture af-packet".to_owned(),
        });
    }
    if matches!(args.bypass, Some(BypassName::Socket | BypassName::Xdp))
        && args.capture != CaptureName::AfPacket
    {
        return Err(SourceError::Interface {
            interface: interfaces.join(", "),
            message: "--bypass socket and --bypass xdp need --capture af-packet".to_owned(),
        });
    }
    match args.capture {
        CaptureName::AfPacket => {
            let workers = workers(args, config);
            if workers > 1 && workers <= config.slices && args.cluster.is_none() {
                match RingGroup::load(workers, config.slices) {
                    Ok(group) => return Ok(Box::new(Rings::open(interfaces, options, group)?)),
                    Err(e) => output::complain(&format!(
                        "one thread reads for all workers, as the kernel cannot give each a ring: {e}"
                    )),
                }
            }
            Ok(Box::new(Interfaces::open(interfaces, options)?))
        }
        #[cfg(feature = "libpcap")]
        CaptureName::Libpcap => match interfaces {
            [one] => Ok(Box::new(Libpcap::open(one, options)?)),
            _ => Err(SourceError::Interface {
                interface: interfaces.join(", "),
                message: "libpcap listens to one interface, or to all of them (`any`)".to_owned(),
            }),
        },
        #[cfg(not(feature = "libpcap"))]
        CaptureName::Libpcap => Err(SourceError::Interface {
            interface: interfaces.join(", "),
            message: "this program was built without libpcap; `cargo build --release -p weir-cli --features libpcap` has it, and --capture af-packet needs none".to_owned(),
        }),
    }
}

/// Makes the directory of the logs if it is not there, and refuses one that no log can be written to, before any work is done.
fn writable(folder: &Path) -> Result<(), Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot write logs to {}: {why}", folder.display()))
    };
    let about = match std::fs::metadata(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(folder).and_then(|()| std::fs::metadata(folder))
        }
        other => other,
    }
    .map_err(|e| wrong(&e))?;
    if !about.is_dir() {
        return Err(wrong(&"it is not a directory"));
    }
    rustix::fs::access(
        folder,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )
    .map_err(|e| wrong(&e))
}

/// SIGINT and SIGTERM end the run, SIGHUP begins log files anew, SIGUSR2 loads the rules anew.
fn signals(controls: &Arc<Controls>) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR2])
        .map_err(Failure::failed)?;
    let controls = Arc::clone(controls);
    std::thread::Builder::new()
        .name("sensor-signals".to_owned())
        .spawn(move || {
            use std::sync::atomic::Ordering::Relaxed;
            for signal in signals.forever() {
                match signal {
                    SIGHUP => controls.reopen.store(true, Relaxed),
                    SIGUSR2 => controls.reload.store(true, Relaxed),
                    // The second one does not wait.
                    _ if controls.stop.swap(true, Relaxed) => {
                        let _ = std::io::stderr().flush();
                        std::process::exit(130);
                    }
                    _ => {}
                }
            }
        })
        .map_err(Failure::failed)?;
    Ok(())
}

/// What loads the rules anew: the same files, read again, with the configuration as it was.
fn reloader(args: &SensorRunArgs, config: &SensorConfig, matcher: matcher::Engine) -> Arc<Reload> {
    let (config, dialect) = (config.clone(), dialect(&args.settings));
    let (only, beside) = (args.only_rules.clone(), args.rules.clone());
    Arc::new(move |before: &Engine| {
        let files = files(&only, &beside, &config).map_err(|e| e.to_string())?;
        Engine::load(&config, dialect, &files, matcher, Some(before))
            .map(|(engine, ..)| engine)
            .map_err(|e| e.to_string())
    })
}

/// Wall time as people read it.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}
