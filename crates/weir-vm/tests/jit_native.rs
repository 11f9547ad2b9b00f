//! Native code of compiled C programs against the interpreter: verdict, frame, maps, records, redirects, trace lines.

mod object;

use object::compile;
use weir_vm::jit::{self, CompileError, Execution, JitError};
use weir_vm::verify::VerifyOptions;
use weir_vm::{Env, Fault, Frame, Machine, Object, Redirect};

/// Keys and values of a map, by its name.
type Contents = (String, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// What a run leaves behind.
#[derive(Debug, PartialEq)]
struct Left {
    /// Verdict, or the fault of a helper this engine lacks.
    verdict: Result<u32, Fault>,
    frame: (Vec<u8>, Vec<u8>),
    maps: Vec<Contents>,
    records: Vec<Vec<Vec<u8>>>,
    redirect: Option<Redirect>,
    trace: Vec<String>,
}

fn left(machine: &mut Machine, verdict: Result<u32, Fault>, frame: &Frame) -> Left {
    let names: Vec<String> = machine.map_names().map(str::to_owned).collect();
    let maps = names.iter().map(|name| {
        let map = machine.map(name).expect("named");
        let entries = map.keys().map(|key| {
            let value = map.lookup(&key);
            (key, value)
        });
        (name.clone(), entries.collect())
    });
    Left {
        verdict,
        frame: (frame.data().to_vec(), frame.metadata().to_vec()),
        maps: maps.collect(),
        records: names.iter().map(|n| machine.drain_ringbuf(n)).collect(),
        redirect: machine.redirect().cloned(),
        trace: machine.take_trace(),
    }
}

#[test]
fn accepted_programs_do_the_same() {
    if !jit::available() {
        return;
    }
    let mut ran = 0;
    for name in ["code", "frame", "maps", "native", "tiny"] {
        let elf = compile(name);
        let programs: Vec<String> = Object::parse(&elf)
            .expect("parses")
            .programs()
            .map(str::to_owned)
            .collect();
        for program in &programs {
            let accepted = compare(&elf, program);
            assert!(accepted || name != "native", "{program} is refused");
            ran += usize::from(accepted);
        }
    }
    assert!(ran > 25, "only {ran} programs ran");
}

const ROUNDS: u8 = 3;

fn load(elf: &[u8], program: &str) -> Machine {
    let mut object = Object::parse(elf).expect("parses");
    object.set_cpus(2);
    object.load(program).expect("loads")
}

fn round(number: u8) -> (Frame, Env) {
    let bytes: Vec<u8> = (0..200u8).map(|i| i.wrapping_mul(7 + number)).collect();
    let env = Env {
        now_ns: 1_000 + u64::from(number),
        cpu: u32::from(number % 2),
        random_seed: 9,
        ..Env::default()
    };
    (Frame::new(&bytes), env)
}

/// Some rounds in a row; false if the verifier refuses the program.
fn compare(elf: &[u8], program: &str) -> bool {
    let (mut interpreted, mut native) = (load(elf, program), load(elf, program));
    match native.verify_and_compile(&VerifyOptions::default()) {
        Ok(()) => {}
        Err(CompileError::Rejected(_)) => return false,
        Err(CompileError::Jit(JitError::Kind)) => return false,
        Err(error) => panic!("{program}: {error}"),
    }
    assert_eq!(native.execution(), Execution::Jit);
    for number in 0..ROUNDS {
        let (mut frame, env) = round(number);
        let verdict = interpreted.run_xdp(&mut frame, &env);
        let expected = left(&mut interpreted, verdict, &frame);
        let (mut frame, _) = round(number);
        let verdict = native.run_xdp(&mut frame, &env);
        assert_eq!(left(&mut native, verdict, &frame), expected, "{program}");
    }
    true
}
