//! Plans of weir in the user engine, for benchmarks that run or count them there.

use weir_functions::plan::{InstancePlan, PortConstants};
use weir_vm::jit::CompileError;
use weir_vm::{LoadError, Machine, MapError, Object};

use crate::LabError;

/// The data plane in the user engine, with the constants and maps it has in the kernel.
pub(super) fn user_machine(plan: &InstancePlan) -> Result<Machine, LabError> {
    let elf = plan.object.bytes().unwrap_or_default();
    let mut object = Object::parse(elf).map_err(engine)?;
    let port = PortConstants::default().constants();
    for (symbol, bytes) in plan.constants.iter().chain(&port) {
        object.set_rodata(symbol, bytes).map_err(engine)?;
    }
    for map in &plan.maps {
        object
            .set_map_entries(&map.name, map.max_entries)
            .map_err(engine)?;
    }
    let mut machine = object.load(&plan.program).map_err(engine)?;
    for map in &plan.maps {
        let Some(target) = machine.map_mut(&map.name) else {
            continue;
        };
        for (key, value) in map.entries() {
            target.update(key, value, 0).map_err(engine)?;
        }
    }
    Ok(machine)
}

/// What the user engine can answer with.
pub(super) trait EngineFailure: std::error::Error {}
impl EngineFailure for LoadError {}
impl EngineFailure for MapError {}
impl EngineFailure for CompileError {}
impl EngineFailure for weir_vm::jit::JitError {}
impl EngineFailure for weir_vm::Fault {}

pub(super) fn engine(error: impl EngineFailure) -> LabError {
    LabError::Engine(error.to_string())
}
