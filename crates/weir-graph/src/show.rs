//! A plan for people ([`std::fmt::Display`]) and for programs (`Serialize`, through its [`Outline`](crate::Outline)).

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::config::TRANSMIT;
use crate::edge::{EdgePlan, Target};
use crate::outline::checksums;

impl fmt::Display for EdgePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "edge {}", self.edge)?;
        let targets = self.entries.iter().zip(&self.transmits);
        for (port, (entry, transmit)) in self.ports.iter().zip(targets) {
            let (number, name, device) = (port.number, &port.name, &port.device);
            write!(f, "port {number} {name}: {device}, {}", port.mode.text())?;
            if let Some(mode) = port.checksums {
                write!(f, ", checksums {}", checksums(mode))?;
            }
            write!(f, " > {}", self.target_name(*entry))?;
            if let Some(transmit) = transmit {
                write!(f, ", {TRANSMIT} > {}", self.target_name(*transmit))?;
            }
            writeln!(f)?;
        }
        for map in &self.maps {
            writeln!(
                f,
                "map {}: {}, {} entries of {} + {} bytes",
                map.name,
                map.kind.text(),
                map.entries,
                map.key,
                map.value
            )?;
        }
        for (at, one) in self.instances.iter().enumerate() {
            let plan = &one.planned.instance;
            write!(f, "function {} {}: {}", at + 1, one.name, one.kind)?;
            if plan.object.to_string() != one.kind {
                write!(f, " ({})", plan.object)?;
            }
            for (own, shared) in &one.shares {
                write!(f, ", map {own} is {shared}")?;
            }
            for (out, (name, target)) in self.outs(at).enumerate() {
                // Outputs nobody linked are the stack; saying so of the first is enough.
                if out == 0 {
                    write!(f, " > {}", self.target_name(target))?;
                } else if target != Target::Stack {
                    write!(f, ", {name} > {}", self.target_name(target))?;
                }
            }
            writeln!(f)?;
        }
        for hook in &self.hooks {
            write!(
                f,
                "hook {}: {} of {} on {}",
                hook.name,
                hook.program,
                hook.file.display(),
                hook.attach
            )?;
            for (own, shared) in &hook.shares {
                write!(f, ", map {own} is {shared}")?;
            }
            writeln!(f)?;
        }
        let times = match self.recirculations {
            0 => String::new(),
            1 => ", recirculated once".to_owned(),
            many => format!(", recirculated {many} times"),
        };
        let functions = if self.longest == 1 {
            "function"
        } else {
            "functions"
        };
        writeln!(f, "longest path: {} {functions}{times}", self.longest)?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Serialize for EdgePlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let outline = self.outline();
        let mut out = serializer.serialize_struct("EdgePlan", 8)?;
        out.serialize_field("edge", &outline.edge)?;
        out.serialize_field("ports", &outline.ports)?;
        out.serialize_field("functions", &outline.instances)?;
        out.serialize_field("maps", &outline.maps)?;
        out.serialize_field("hooks", &outline.hooks)?;
        out.serialize_field("longest", &self.longest)?;
        out.serialize_field("recirculations", &self.recirculations)?;
        out.serialize_field("notes", &self.notes)?;
        out.end()
    }
}
