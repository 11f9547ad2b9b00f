//! One module for each command.

mod agent;
mod bench;
mod capture;
mod check;
mod chosen;
mod connections;
mod doctor;
mod documents;
mod down;
mod edge;
mod explain;
mod fmt;
mod generate;
mod history;
mod import;
mod init;
mod lab;
pub(crate) mod lab_afxdp_judge;
mod logs;
mod net;
mod policy;
mod ports;
mod prog;
mod program;
mod reach;
mod remote;
mod replay;
mod route;
mod rule;
mod run;
mod run_user;
mod sensor;
mod service;
mod set;
mod table;
mod tables;
mod watch;
mod xsk;

use std::process::ExitCode;

pub(crate) use net::{CNI_PLUGIN, cni};

use clap::ColorChoice;

use crate::args::{Args, Command, LabCommand};
use crate::failure::Failure;

/// Runs a command, through an agent if one is named.
pub(crate) fn dispatch(args: Args) -> Result<ExitCode, Failure> {
    match reach::target(&args.reach)? {
        Some(target) if !remote::is_of_files(&args.command) => remote::run(target, args.command),
        _ => carry_out(args.command, args.color),
    }
}

/// Runs a command on this host.
fn carry_out(command: Command, color: ColorChoice) -> Result<ExitCode, Failure> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Fmt(args) => fmt::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => import::export(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Plan(args) => edge::plan_of(&args),
        Command::Apply(args) => edge::apply::run(&args),
        Command::Diff(args) => edge::diff::run(&args),
        Command::Top(args) => watch::top::run(&args, None),
        Command::Capture(args) => watch::capture::run(&args),
        Command::Drops(args) => watch::drops::run(&args),
        Command::Trace(args) => watch::trace::run(&args),
        Command::Status(args) => edge::status::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Page(args) => agent::page::run(&args),
        Command::Logs(args) => logs::run(&args, None),
        Command::History(args) => history::run(&args),
        Command::Rollback(args) => history::rollback(&args),
        Command::Down(args) => down::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Sensor(args) => sensor::run(&args),
        Command::Xsk(args) => xsk::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => documents::completions(args.shell),
        Command::Man(args) => documents::man(&args.folder),
        Command::Prog(args) => prog::run(&args),
        Command::Tables(args) => tables::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Service(args) => service::run(&args),
        Command::Net(args) => net::run(&args),
        Command::Rule(args) => rule::run(&args),
        Command::Connections(args) => connections::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Lab(args) => program::become_lab("lab", color, &args.arguments),
        Command::Bench(args) => program::become_lab("bench", color, &args.arguments),
    }
}

/// Runs a command of `weir-lab`.
pub(crate) fn dispatch_lab(command: LabCommand) -> Result<ExitCode, Failure> {
    match command {
        LabCommand::Lab(args) => lab::run(&args),
        LabCommand::Bench(args) => bench::run(&args),
    }
}
