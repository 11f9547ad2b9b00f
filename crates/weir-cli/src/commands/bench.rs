//! `weir bench`: benchmarks of `weir-lab`, shown on standard output and written to files. A missed target is a result, not a failure.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use weir_lab::LabError;
use weir_lab::bench::{
    BenchOptions, Outcome, SensorBench, Traffic, all, balancer, ddos, limits, middlebox, network,
    router, sensor, sensor_part, vm, xdp, xsk,
};
use weir_lab::generate::Gaps;

use super::program;
use crate::args::{
    AllBenchArgs, BalancerBenchArgs, BenchArgs, Benchmark, MiddleboxBenchArgs, SensorBenchArgs,
};
use crate::failure::Failure;
use crate::output;

/// Where the data that some tests and benchmarks share may lie, from the project's folder.
const SHARED: &str = "../shared/data";
const CLASSBENCH: &str = "../shared/data/classbench";
const KATRAN: &str = "../shared/data/katran/balancer.bpf.o";

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    match &args.benchmark {
        Benchmark::All(args) => run_all(args),
        Benchmark::Limits(args) => {
            run_one(limits, &shown(args.json, &args.output), args.quick, &[])
        }
        Benchmark::Middlebox(args) => run_middlebox(args),
        Benchmark::Vm(args) => run_one(vm, &shown(args.json, &args.output), args.quick, &[]),
        Benchmark::Xdp(args) => {
            run_one(xdp, &shown(args.json, &args.output), args.quick, &args.only)
        }
        Benchmark::Balancer(args) => run_balancer(args),
        Benchmark::Router(args) => run_one(
            router,
            &shown(args.json, &args.output),
            args.quick,
            &args.only,
        ),
        Benchmark::Network(args) => run_one(
            network,
            &shown(args.json, &args.output),
            args.quick,
            &args.only,
        ),
        Benchmark::Xsk(args) => run_one(xsk, &shown(args.json, &args.output), args.quick, &[]),
        Benchmark::Sensor(args) => run_sensor(args),
        Benchmark::SensorPart => {
            sensor_part(&mut io::stdin().lock(), &mut io::stdout().lock())
                .map_err(Failure::failed)?;
            Ok(ExitCode::SUCCESS)
        }
        Benchmark::Ddos(args) => run_one(ddos, &shown(args.json, &args.output), args.quick, &[]),
    }
}

fn run_all(args: &AllBenchArgs) -> Result<ExitCode, Failure> {
    needs_root()?;
    if let Some(dir) = &args.output {
        create(dir)?;
    }
    let stop = crate::limits::stop_on_signals()?;
    let options = BenchOptions {
        weir: program::weir()?,
        quick: args.quick,
        largest: None,
        only: args.only.clone(),
        rules: Some(PathBuf::from(CLASSBENCH)).filter(|p| p.is_dir()),
        peer: Some(PathBuf::from(KATRAN)).filter(|p| p.is_file()),
        quiet: args.json,
        progress: output::stderr_is_terminal(),
        stop: &stop,
    };
    let found = all(&options, Path::new(SHARED), &mut io::stdout()).map_err(failure)?;
    if args.json {
        output::json(&found)?;
    } else {
        output::out(&found.table())?;
    }
    if let Some(dir) = &args.output {
        for outcome in found.outcomes() {
            write_files(outcome, dir)?;
        }
        write(&dir.join("all.tsv"), &found.tsv())?;
    }
    // A missed target is a result; a benchmark that was not carried out is not.
    match found.is_whole() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

fn run_middlebox(args: &MiddleboxBenchArgs) -> Result<ExitCode, Failure> {
    let shared = Some(PathBuf::from(CLASSBENCH)).filter(|p| p.is_dir());
    carry_out(&shown(args.json, &args.output), middlebox, |stop| {
        Ok(BenchOptions {
            weir: program::weir()?,
            quick: args.quick,
            largest: args.max_rules.map(|n| n as usize),
            only: args.only.clone(),
            rules: args.rules.clone().or(shared),
            peer: None,
            quiet: args.json,
            progress: output::stderr_is_terminal(),
            stop,
        })
    })
}

fn run_balancer(args: &BalancerBenchArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = args.katran.as_ref().filter(|path| !path.is_file()) {
        return Err(Failure::usage(format!(
            "--katran {}: there is no such file",
            path.display()
        )));
    }
    let shared = Some(PathBuf::from(KATRAN)).filter(|p| p.is_file());
    carry_out(&shown(args.json, &args.output), balancer, |stop| {
        Ok(BenchOptions {
            weir: program::weir()?,
            quick: args.quick,
            largest: None,
            only: args.only.clone(),
            rules: None,
            peer: args.katran.clone().or(shared),
            quiet: args.json,
            progress: output::stderr_is_terminal(),
            stop,
        })
    })
}

/// It needs no privileges: it reads files.
fn run_sensor(args: &SensorBenchArgs) -> Result<ExitCode, Failure> {
    if !(args.multiple.is_finite() && args.multiple > 0.0) {
        return Err(Failure::usage(format!(
            "--multiple {}: it must be above 0",
            args.multiple
        )));
    }
    let made = args.mix.is_some() || args.traffic.is_some() || args.own;
    for (given, name) in [
        (args.multiple != 1.0, "--multiple"),
        (args.flows.is_some(), "--flows"),
        (args.duration.is_some(), "--duration"),
        (args.gaps != Gaps::default(), "--gaps"),
    ] {
        if given && !made {
            return Err(Failure::usage(format!(
                "{name}: captures are read as they are; only with --mix, --traffic or --own"
            )));
        }
    }
    let wanted = SensorBench {
        traffic: Traffic {
            captures: args.capture.clone(),
            mix: args.mix.clone(),
            multiple: args.multiple,
            flows: args.flows,
            seconds: args.duration.map(|time| time.as_secs_f64()),
            gaps: args.gaps,
            made: args.traffic,
            own: args.own,
            keep: args.keep.clone(),
            rules: args.rules.clone(),
            shared: PathBuf::from(SHARED),
        },
        callgrind: args.callgrind.clone(),
        peer: args.peer.clone(),
        peer_config: args.peer_config.clone(),
    };
    measure(
        &shown(args.json, &args.output),
        |options, out| sensor(&wanted, options, out),
        |stop| {
            Ok(BenchOptions {
                weir: program::weir()?,
                quick: args.quick,
                largest: None,
                only: Vec::new(),
                rules: None,
                peer: None,
                quiet: args.json,
                progress: output::stderr_is_terminal(),
                stop,
            })
        },
    )
}

/// A benchmark with the options that all have.
fn run_one(
    bench: fn(&BenchOptions<'_>, &mut dyn io::Write) -> Result<Outcome, LabError>,
    shown: &Shown<'_>,
    quick: bool,
    only: &[String],
) -> Result<ExitCode, Failure> {
    carry_out(shown, bench, |stop| {
        Ok(BenchOptions {
            weir: program::weir()?,
            quick,
            largest: None,
            only: only.to_vec(),
            rules: None,
            peer: None,
            quiet: shown.json,
            progress: output::stderr_is_terminal(),
            stop,
        })
    })
}

/// Where an outcome goes.
struct Shown<'a> {
    json: bool,
    out: Option<&'a Path>,
}

fn shown(json: bool, out: &Option<PathBuf>) -> Shown<'_> {
    Shown {
        json,
        out: out.as_deref(),
    }
}

fn carry_out(
    shown: &Shown<'_>,
    bench: fn(&BenchOptions<'_>, &mut dyn io::Write) -> Result<Outcome, LabError>,
    options: impl for<'s> FnOnce(&'s AtomicBool) -> Result<BenchOptions<'s>, Failure>,
) -> Result<ExitCode, Failure> {
    needs_root()?;
    measure(shown, bench, options)
}

fn needs_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::Failed(
        "benchmarks load programs and build namespaces: run this as root".to_owned(),
    ))
}

fn create(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir)
        .map_err(|e| Failure::usage(format!("cannot create {}: {e}", dir.display())))
}

/// Carries out what needs no privileges beyond those that there are.
fn measure(
    shown: &Shown<'_>,
    bench: impl FnOnce(&BenchOptions<'_>, &mut dyn io::Write) -> Result<Outcome, LabError>,
    options: impl for<'s> FnOnce(&'s AtomicBool) -> Result<BenchOptions<'s>, Failure>,
) -> Result<ExitCode, Failure> {
    if let Some(dir) = shown.out {
        // Before minutes of measuring, not after.
        create(dir)?;
    }
    let stop = crate::limits::stop_on_signals()?;
    let options = options(&stop)?;
    let outcome = bench(&options, &mut io::stdout()).map_err(failure)?;
    if shown.json {
        output::json(&outcome)?;
    } else {
        output::out(&outcome.table())?;
    }
    if let Some(dir) = shown.out {
        write_files(&outcome, dir)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the user chose wrongly is told as such.
fn failure(error: LabError) -> Failure {
    match error {
        LabError::Output(error) => error.into(),
        error @ (LabError::NothingSelected(..) | LabError::RuleSet { .. } | LabError::Mix(_)) => {
            Failure::usage(error)
        }
        error => Failure::failed(error),
    }
}

fn write_files(outcome: &Outcome, dir: &Path) -> Result<(), Failure> {
    let mut json = serde_json::to_string_pretty(outcome).map_err(Failure::failed)?;
    json.push('\n');
    let mut files = vec![
        (format!("{}.json", outcome.bench), json),
        (format!("{}.tsv", outcome.bench), outcome.record()),
    ];
    files.extend(outcome.plots());
    for (name, text) in files {
        write(&dir.join(name), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))
}
