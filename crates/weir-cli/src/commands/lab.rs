//! `weir lab`: experiments of `weir-lab`, shown on standard output. Exit status 1 if a check does not hold.

mod afxdp;
mod firewall;
mod sensor;

use std::io;
use std::process::ExitCode;

use weir_lab::demo::demo;
use weir_lab::forward::forward;
use weir_lab::{DemoOptions, LabError};

use crate::args::DemoArgs;
use crate::args::lab::{Experiment, LabArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &LabArgs) -> Result<ExitCode, Failure> {
    match &args.experiment {
        Experiment::Demo(args) => run_demo(args),
        Experiment::Afxdp(args) => afxdp::run(args),
        Experiment::Firewall(args) => firewall::run(args),
        Experiment::Sensor(args) => sensor::run(args),
        Experiment::Forward(args) => forward([&args.one, &args.other], args.cpu)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Failure::failed),
    }
}

fn run_demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let stop = crate::limits::stop_on_signals()?;
    let weir = super::program::weir()?;
    let options = DemoOptions {
        weir,
        seconds: args.duration,
        replay: args.replay,
        quiet: args.json,
        stop: &stop,
    };
    let outcome = match demo(&options, &mut io::stdout()) {
        Ok(outcome) => outcome,
        Err(LabError::Output(error)) => return Err(error.into()),
        Err(error) => return Err(Failure::failed(error)),
    };
    if args.json {
        output::json(&outcome)?;
    }
    Ok(ExitCode::from(u8::from(!outcome.ok())))
}
