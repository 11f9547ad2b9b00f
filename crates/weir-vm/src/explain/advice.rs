//! What is missing: for each rule a sentence, and where the source line tells the names, the check to write.
//!
//! Invariant: code is suggested only with expressions that stand on the object's source lines; else it is said with offsets.

use super::Advice;
use super::expression::{self, Access};
use super::source::Source;
use crate::catalogue::{Outcome, helper, helper_name};
use crate::machine::Machine;
use crate::program::ProgramKind;
use crate::verify::{Birth, Rejection, Rule, Seen, ValueKind};

/// What `return` to suggest where a packet is malformed: the verdict that harms least in a filter.
const GIVE_UP: &str = "return XDP_DROP;";
/// The same in a tc program.
const GIVE_UP_TC: &str = "return TC_ACT_SHOT;";
/// What `return` to suggest where the packet is not to blame.
const GO_ON: &str = "return XDP_PASS;";
/// The same in a tc program.
const GO_ON_TC: &str = "return TC_ACT_OK;";

pub(super) fn advise(machine: &Machine, rejection: &Rejection) -> Advice {
    let advisor = Advisor {
        machine,
        rejection,
        here: Source::of(machine, rejection.place.op),
    };
    advisor.advise()
}

struct Advisor<'m> {
    machine: &'m Machine,
    rejection: &'m Rejection,
    here: Option<Source>,
}

impl Advisor<'_> {
    fn is_tc(&self) -> bool {
        let entry = self.machine.entry_of(&self.rejection.program).ok();
        entry.and_then(|entry| self.machine.code().kind(entry)) == Some(&ProgramKind::SchedCls)
    }

    fn give_up(&self) -> &'static str {
        if self.is_tc() { GIVE_UP_TC } else { GIVE_UP }
    }

    fn go_on(&self) -> &'static str {
        if self.is_tc() { GO_ON_TC } else { GO_ON }
    }

    fn advise(&self) -> Advice {
        use Rule::*;
        match &self.rejection.rule {
            PacketBounds { offset, size, .. } if self.is_metadata() => self.metadata(*offset, *size),
            PacketBounds {
                offset,
                size,
                range,
                variable,
            } => self.packet(*offset, *size, *range, *variable),
            PacketNegative { .. } => says("Make sure that the number added to the packet pointer is not negative: give it an unsigned type, or check it first."),
            NullValue { .. } | HelperNull { .. } | ArithmeticBeforeNullCheck { .. } => self.null(),
            MapValueBounds {
                map,
                min,
                max,
                size,
                value_size,
            } => self.value(&format!("a value of map {map}"), (*min, *max), *size, *value_size),
            MemoryBounds {
                kind,
                min,
                max,
                size,
                limit,
            } => self.value(&kind.to_string(), (*min, *max), *size, *limit),
            StackBounds { .. } | StackUnbounded => self.stack(),
            VariableOffset {
                kind: ValueKind::Stack,
            } => self.stack(),
            VariableOffset { kind } => says(format!("Access {kind} at a constant offset.")),
            UninitRegister { register } => self.uninitialised(*register),
            UninitStack { .. } => self.unwritten(),
            NotMemory { kind } => self.not_memory(*kind),
            PointerArithmetic { kind } => self.arithmetic(*kind),
            PointerOperator { .. } | TwoPointers { .. } | NumberMinusPointer => {
                says("Compute with numbers, and add the result to the pointer.")
            }
            NarrowPointer { .. } => says("Keep the pointer in a variable of pointer type or of 64 bits."),
            StackSubtraction => says("Add a negative constant instead of subtracting."),
            PointerDistance { value, .. } if *value < 0 => says("The number may be negative: give it an unsigned type, or check that it is at least 0, and bound it above."),
            PointerDistance { .. } => says("Bound the number before it is added to the pointer: mask it, or compare it with a constant."),
            PartialSpill { .. } | PartialFill { .. } => {
                says("Store and load the pointer in a variable of pointer type, and do not write into its bytes.")
            }
            SpillToCaller => says("Do not keep the address of a local variable where the caller can see it."),
            ContextField { write, .. } if self.is_tc() => says(if *write {
                "Write mark, priority, queue_mapping, tc_index, tc_classid, cb or tstamp only, each in its own width."
            } else {
                "Read a field of struct __sk_buff by its name, in its own width or, for fields of 32 bits, in less."
            }),
            ContextField { write: true, .. } => Advice {
                text: "Keep the value in a variable of your own; to move the start or the end of the packet call bpf_xdp_adjust_head or bpf_xdp_adjust_tail.".to_owned(),
                ..Advice::default()
            },
            ContextField { .. } => says("Read a field of struct xdp_md by its name: data, data_end, data_meta, ingress_ifindex, rx_queue_index; egress_ifindex in programs of a devmap only."),
            SocketField { .. } => says("Read a field of struct bpf_sock by its name; bpf_sk_fullsock yields a socket that has all of them."),
            ContextMoved { .. } => says("Access the context through the pointer the program was given, at the field's own offset."),
            ReadOnlyMap { map } if map.starts_with(".rodata") => {
                says("A `const` global cannot change while the program runs: leave `const` away, or write to a map.")
            }
            ReadOnlyMap { map } => says(format!("Map {map} was declared read-only for programs (BPF_F_RDONLY_PROG): leave the flag away, or write elsewhere.")),
            ReadOnlyMemory { kind } => says(format!("Copy {kind} to the stack and write there.")),
            LockAccess { .. } => says("Read and write the members beside the lock, not the value as a whole."),
            Misaligned { size, .. } => says(format!("Access it at a multiple of {size} bytes, or copy byte by byte with __builtin_memcpy.")),
            AtomicTarget { .. } => says("Copy the number to a map value or a variable, and do the atomic operation there."),
            Unreachable => says("Remove the code that nothing jumps to."),
            FallsOffEnd => says("End the function with a return on every path."),
            JumpLeavesFunction { .. } | CallTarget => says("Jump inside the function, and call functions at their start."),
            IndirectCall => says("Call the function by its name."),
            CallDepth { .. } => says("Let some of the functions be inlined (`static inline __attribute__((always_inline))`), so that at most eight are open at once."),
            CombinedStack { bytes, limit, .. } => says(format!("Move {} bytes or more of local variables to a map (a per-CPU array of one element), or let a function be inlined.", bytes.saturating_sub(*limit))),
            TailCallStack { .. } => says("Keep less than 256 bytes of local variables in the functions above the tail call."),
            Recursion => says("Replace the recursion by a loop with a constant bound."),
            EndlessLoop { .. } => self.endless(),
            Budget { .. } | PendingBranches { .. } | StateMemory { .. } | TooManyFunctions { .. } | TooManyInstructions { .. } => says("Give the loop a smaller constant bound, move its body into a callback of bpf_loop, or split the program with tail calls."),
            External { name } => self.external(name),
            Invalid { .. } => says("Leave out what weir does not have; programs of the object without it are not affected."),
            ReservedField => says("Set the fields that the instruction does not use to zero."),
            ShiftAmount { width, .. } => says(format!("Shift by less than {width}.")),
            DivisionByZero => says("Divide by something else."),
            UnknownHelper { hook, number, .. } => self.helper(hook, *number),
            License { .. } => says("Declare a GPL-compatible license: char _license[] SEC(\"license\") = \"Dual BSD/GPL\";"),
            HelperArgument {
                register, expected, ..
            } => self.argument(*register, expected),
            HelperPacket { .. } => says("Copy the bytes to the stack and pass their address."),
            HelperMap { helper, map } => says(format!("bpf_{helper} works on other kinds of maps; see the kind of {map} with `weir prog maps`.")),
            ConstantRequired { .. } => says("Pass a constant: the kernel must know the number when it loads the program."),
            SizeNegative { helper, register, .. }
            | SizeZero { helper, register }
            | SizeUnbounded { helper, register } => self.size(helper, *register),
            LeakedReference { kind, acquired_at } => self.leaked(*kind, *acquired_at),
            NotHeld { .. } => self.not_held(),
            ReleaseMoved { .. } => says("Pass the pointer as the helper returned it."),
            IteratorState { expected, .. } => says(format!("Pass the address of {expected}; bpf_for does all of it.")),
            Sleepable { .. } => says("Do it in a program that may sleep, or in user space."),
            Undescribed { function } => says(format!("Verify the program with the kernel: `weir prog load --unverified` leaves bpf_{function} to it.")),
            DynptrState { expected, .. } => says(format!("Pass the address of {expected}.")),
            ReferencedDynptr => says("Call bpf_ringbuf_submit_dynptr or bpf_ringbuf_discard_dynptr first, also if reserving failed."),
            Untrusted { .. } => says("Acquire a reference first, or pass the object as the kernel handed it to the program."),
            ObjectType { expected, .. } => says(format!("Pass a pointer to struct {expected}.")),
            ObjectField { .. } => says("Read a member by its name, in its own width; compile with `preserve_access_index` (vmlinux.h does) where layouts differ."),
            Exception { .. } => says("Throw outside of callbacks; name one global function that takes and returns a number as exception callback."),
            SectionUnmatched { .. } => says("Open the section before, and close it once."),
            SectionOpen { section } => says(format!("Close the {section} section on every path.")),
            NoLock { .. } => says("Pass the address of the value's struct bpf_spin_lock."),
            OtherLock => says("Release the lock that was taken."),
            CallUnderLock { .. } => says("Move the call before the lock or behind the unlock."),
            LeakedLock { taken_at } => self.locked(*taken_at),
            FunctionArgument { expected, .. } => says(format!("Pass {expected}.")),
            FunctionSignature { function, .. } => says(format!("Make {function} static, or give it numbers, the context, or pointers to complete types.")),
            ReturnsStackPointer => says("Return a number; let the caller pass a pointer to its own variable."),
            ReturnsNoNumber { .. } => says("Return a number."),
            CallbackResult { .. } => Advice {
                text: "Return 0 to go on with the loop, or 1 to stop it.".to_owned(),
                code: Some("return 0;".to_owned()),
                note: None,
            },
            CallbackExpected { .. } => says("Pass a static function of this object."),
            CallbackGlobal { function } => says(format!("Declare {function} static.")),
            MixedPointers { .. } => says("Read the context in one place and the other memory in another, not through one pointer that may be either."),
            NoProgram => says("Name one of the object's programs."),
        }
    }

    fn packet(&self, offset: i64, size: i64, range: i64, variable: bool) -> Advice {
        let give_up = self.give_up();
        let needed = offset.saturating_add(size);
        let end = self.packet_end();
        let access = self.access();
        let start = match access {
            Some(Access::Member { base }) => Some(format!("({base} + 1)")),
            Some(Access::Index { base, index }) => Some(match index.parse::<u64>() {
                Ok(n) => format!("({base} + {})", n.saturating_add(1)),
                Err(_) => format!("({base} + {index} + 1)"),
            }),
            Some(Access::Deref { pointer }) => Some(format!("({pointer} + 1)")),
            None => None,
        };
        let code = start
            .zip(end.as_deref())
            .map(|(start, end)| format!("if ((void *){start} > {end})\n\t{give_up}"));
        let from = if variable {
            "behind the variable offset"
        } else {
            "from the packet's start"
        };
        Advice {
            text: match &self.here {
                Some(_) if code.is_some() => "Compare with the packet's end first:".to_owned(),
                _ => format!(
                    "Compare with the packet's end first: {needed} bytes {from} must be there."
                ),
            },
            code,
            note: self.comparison_note(range, needed),
        }
    }

    fn is_metadata(&self) -> bool {
        let name = self.rejection.register.map(|r| format!("r{r}"));
        let mut state = self.rejection.state.iter();
        state.any(|s| Some(&s.name) == name.as_ref() && s.kind == ValueKind::PacketMeta)
    }

    /// Metadata ends where the packet starts.
    fn metadata(&self, offset: i64, size: i64) -> Advice {
        let start = match (self.loaded_from("data"), self.loaded_from("data_meta")) {
            (Some((name, _)), _) => name,
            (None, Some((_, context))) => format!("(void *)(long){context}->data"),
            (None, None) => "(void *)(long)ctx->data".to_owned(),
        };
        let base = match self.access() {
            Some(Access::Member { base } | Access::Index { base, .. }) => Some(base),
            Some(Access::Deref { pointer }) => Some(pointer),
            None => None,
        };
        let needed = offset.saturating_add(size);
        Advice {
            text: format!(
                "Compare with the packet's start first: {needed} bytes of metadata must be in front of it."
            ),
            code: base
                .map(|base| format!("if ((void *)({base} + 1) > {start})\n\t{}", self.go_on())),
            note: None,
        }
    }

    /// What a comparison that is there already says.
    fn comparison_note(&self, range: i64, needed: i64) -> Option<String> {
        let end = self.packet_end().unwrap_or_else(|| "data_end".to_owned());
        let steps = self.rejection.path.iter().rev();
        let mut sources = steps.filter_map(|s| Source::of(self.machine, s.op));
        let line = sources.find(|s| s.text.contains(&end))?.line;
        if range > 0 {
            return Some(format!(
                "The comparison on line {line} shows that {range} bytes are there; {needed} are needed."
            ));
        }
        // Another copy of the pointer may carry what the comparison proved.
        let opposite = |s: &Seen| s.kind == ValueKind::Packet && s.text.contains("r=-");
        if range < 0 || self.rejection.state.iter().any(opposite) {
            return Some(format!(
                "On this path the comparison on line {line} has shown that the bytes are not there: are its sides exchanged?"
            ));
        }
        None
    }

    fn null(&self) -> Advice {
        let history = self.rejection.history;
        let source = history.and_then(|h| Source::of(self.machine, h.born_at));
        let name = source
            .as_ref()
            .and_then(|s| match history.map(|h| h.birth) {
                Some(Birth::Helper(number)) => {
                    expression::assigned_from(&s.text, &format!("bpf_{}(", helper_name(number)))
                }
                _ => expression::assigned(&s.text),
            });
        let accessed = match self.access() {
            Some(Access::Member { base } | Access::Index { base, .. }) => Some(base),
            Some(Access::Deref { pointer }) => Some(pointer),
            None => None,
        };
        let name = name.or(accessed);
        Advice {
            text: "Check that it is not null first:".to_owned(),
            code: name.map(|name| format!("if (!{name})\n\t{}", self.go_on())),
            note: None,
        }
    }

    /// An access outside an object of `limit` bytes.
    fn value(&self, what: &str, (min, max): (i64, i64), size: i64, limit: u32) -> Advice {
        let give_up = self.give_up();
        if min == max {
            let needed = min.saturating_add(size);
            let text = if min < 0 {
                format!("Access {what} at offsets from 0 on.")
            } else {
                format!(
                    "Declare a larger type, of {needed} bytes at least, or access the {limit} bytes there are."
                )
            };
            return says(text);
        }
        let subscript = self
            .here
            .as_ref()
            .and_then(|s| expression::subscript(&s.text, s.mark));
        let room = i64::from(limit).saturating_sub(min.max(0));
        let elements = room.checked_div(size).filter(|n| *n > 0);
        Advice {
            text: format!(
                "Bound the offset first, so that {size} bytes at it lie inside the {limit}:"
            ),
            code: subscript
                .zip(elements)
                .map(|((_, index), elements)| format!("if ({index} >= {elements})\n\t{give_up}")),
            note: (min < 0)
                .then(|| "The offset may be negative: give the index an unsigned type.".to_owned()),
        }
    }

    fn stack(&self) -> Advice {
        let give_up = self.give_up();
        if let Some(advice) = self.stack_of_call() {
            return advice;
        }
        let subscript = self
            .here
            .as_ref()
            .and_then(|s| expression::subscript(&s.text, s.mark));
        Advice {
            text: "Bound the index first:".to_owned(),
            code: subscript.map(|(base, index)| {
                format!("if ({index} >= sizeof({base}) / sizeof({base}[0]))\n\t{give_up}")
            }),
            note: None,
        }
    }

    /// A helper would reach beyond a variable that was passed with a length.
    fn stack_of_call(&self) -> Option<Advice> {
        let register = self.rejection.register?;
        let (function, memory) = self.call_argument(register)?;
        let memory = memory.trim_start_matches('&').to_owned();
        let code = match self.call_argument(register + 1) {
            Some((_, length)) if length.parse::<u64>().is_err() => Some(format!(
                "if ({length} > sizeof({memory}))\n\t{}",
                self.give_up()
            )),
            _ => None,
        };
        Some(Advice {
            text: format!("Pass {function} no more bytes than {memory} has:"),
            code,
            note: None,
        })
    }

    fn uninitialised(&self, register: u8) -> Advice {
        let lost = self
            .rejection
            .history
            .is_some_and(|h| h.birth == Birth::Clobbered);
        if lost {
            return says(format!(
                "Keep the value in a variable: calls leave nothing in r{register}."
            ));
        }
        let returned = self.here.as_ref().and_then(|s| {
            let rest = s.text.strip_prefix("return ")?;
            let name = rest.get(..expression::word(rest, 0))?;
            let value = rest.get(name.len()..)?.trim_start();
            (value.starts_with(';') && !name.starts_with(|c: char| c.is_ascii_digit()))
                .then_some(name)
        });
        Advice {
            text: match register {
                0 => "Choose a return value on every path:".to_owned(),
                _ => format!("Give the variable in r{register} a value on every path."),
            },
            code: match (register, returned) {
                (0, Some(name)) => {
                    let verdict = self.go_on().trim_start_matches("return ");
                    Some(format!("{name} = {verdict}"))
                }
                (0, None) => Some(self.go_on().to_owned()),
                _ => None,
            },
            note: None,
        }
    }

    fn unwritten(&self) -> Advice {
        let argument = self.rejection.register.and_then(|r| self.call_argument(r));
        let variable = argument.and_then(|(_, a)| a.strip_prefix('&'));
        Advice {
            text: "Give the variable a value first, and keep pointers in it whole:".to_owned(),
            code: variable.map(|v| format!("__builtin_memset(&{v}, 0, sizeof({v}));")),
            note: None,
        }
    }

    fn not_memory(&self, kind: ValueKind) -> Advice {
        let history = self.rejection.history;
        match (kind, history.map(|h| h.birth)) {
            (_, Some(Birth::StalePacket)) => self.stale(),
            (_, Some(Birth::Released)) => {
                says("Use the record before it is submitted or discarded.")
            }
            (_, Some(Birth::Helper(number))) if returns_value(number) => Advice {
                text: "The lookup returned null on this path. Leave the path, or look up again and check that result:"
                    .to_owned(),
                ..self.null()
            },
            (ValueKind::PacketEnd, _) => self.arithmetic(kind),
            (ValueKind::Map, _) => self.arithmetic(kind),
            _ => says(
                "Use a pointer: into the packet, to a map's value, or to a variable. A number from the packet, a map or the context is not an address.",
            ),
        }
    }

    fn stale(&self) -> Advice {
        let give_up = self.give_up();
        let end = self.packet_end().unwrap_or_else(|| "data_end".to_owned());
        let base = match self.access() {
            Some(Access::Member { base } | Access::Index { base, .. }) => Some(base),
            Some(Access::Deref { pointer }) => Some(pointer),
            None => None,
        };
        let context = self.context_name();
        let code = base.map(|base| {
            format!(
                "{base} = (void *)(long){context}->data;\n{end} = (void *)(long){context}->data_end;\nif ((void *)({base} + 1) > {end})\n\t{give_up}"
            )
        });
        let born = self.rejection.history.map(|h| h.born_at);
        let source = born.and_then(|op| Source::of(self.machine, op));
        Advice {
            text: "Load the packet's start and end again, and repeat the comparison:".to_owned(),
            code,
            note: source
                .map(|s| format!("The call on line {} may move the packet's bytes.", s.line)),
        }
    }

    fn arithmetic(&self, kind: ValueKind) -> Advice {
        match kind {
            ValueKind::PacketEnd => Advice {
                text: "Reach bytes from the packet's start, and only compare with its end.".to_owned(),
                ..Advice::default()
            },
            ValueKind::Map => Advice {
                text: "A map is not an array: read its values with bpf_map_lookup_elem, and pass the map as it is.".to_owned(),
                ..Advice::default()
            },
            _ => says(format!("Do not compute with {kind}.")),
        }
    }

    fn endless(&self) -> Advice {
        Advice {
            text: "Give the loop a bound that every round comes nearer to:".to_owned(),
            code: Some("for (int i = 0; i < 64; i++)".to_owned()),
            note: None,
        }
    }

    fn helper(&self, hook: &str, number: u32) -> Advice {
        let name = helper_name(number);
        let instead = if self.is_tc() {
            match name {
                "xdp_store_bytes" => Some("bpf_skb_store_bytes"),
                "xdp_load_bytes" => Some("bpf_skb_load_bytes"),
                "xdp_adjust_head" => Some("bpf_skb_adjust_room or bpf_skb_change_head"),
                "xdp_adjust_tail" => Some("bpf_skb_change_tail"),
                "xdp_output" => Some("bpf_perf_event_output"),
                "redirect_map" => Some("bpf_redirect"),
                _ => None,
            }
        } else {
            match name {
                "skb_store_bytes" => Some("bpf_xdp_store_bytes"),
                "skb_load_bytes" | "skb_load_bytes_relative" => Some("bpf_xdp_load_bytes"),
                "skb_adjust_room" | "skb_change_head" => Some("bpf_xdp_adjust_head"),
                "skb_change_tail" => Some("bpf_xdp_adjust_tail"),
                "clone_redirect" | "redirect_peer" | "redirect_neigh" => Some("bpf_redirect"),
                "skb_output" => Some("bpf_perf_event_output"),
                _ => None,
            }
        };
        match instead {
            Some(other) => says(format!("{hook} programs call {other} instead.")),
            None => says(format!(
                "Do without it: {hook} programs do not have this helper."
            )),
        }
    }

    /// A function that is not in the object.
    fn external(&self, name: &str) -> Advice {
        let instead = match name {
            "memcpy" | "memset" | "memmove" | "memcmp" => {
                format!("__builtin_{name} with a constant length")
            }
            "strlen" | "strnlen" => {
                "a loop with a constant bound, and __builtin_strlen for constants".to_owned()
            }
            "strcmp" | "strncmp" => "bpf_strncmp (Linux 5.17)".to_owned(),
            "printf" | "printk" | "puts" => "bpf_printk".to_owned(),
            "snprintf" | "sprintf" => "bpf_snprintf (Linux 5.13)".to_owned(),
            "malloc" | "calloc" | "free" => "a map: programs have no heap".to_owned(),
            "rand" | "random" => "bpf_get_prandom_u32".to_owned(),
            "time" | "gettimeofday" | "clock_gettime" => "bpf_ktime_get_ns".to_owned(),
            "htons" | "ntohs" | "htonl" | "ntohl" => format!("bpf_{name} of bpf_endian.h"),
            "usleep" | "sleep" => "nothing: a program cannot wait".to_owned(),
            _ => {
                return says(format!(
                    "Define {name} in the object, or link the object that has it (`bpftool gen object`)."
                ));
            }
        };
        says(format!("There is no C library. Use {instead}."))
    }

    fn argument(&self, register: u8, expected: &str) -> Advice {
        let call = self.call_argument(register);
        match call {
            Some((_, argument)) => says(format!("Pass {expected} instead of `{argument}`.")),
            None => says(format!("Pass {expected} in r{register}.")),
        }
    }

    fn size(&self, helper: &str, register: u8) -> Advice {
        let give_up = self.give_up();
        let length = self.call_argument(register).map(|(_, a)| a);
        let memory = self
            .call_argument(register.saturating_sub(1))
            .map(|(_, a)| a);
        let zero_too = !matches!(self.rejection.rule, Rule::SizeUnbounded { .. });
        let code = length.zip(memory).map(|(length, memory)| {
            let memory = memory.trim_start_matches('&');
            let zero = if zero_too {
                format!("{length} == 0 || ")
            } else {
                String::new()
            };
            format!("if ({zero}{length} > sizeof({memory}))\n\t{give_up}")
        });
        Advice {
            text: format!("Bound the length before bpf_{helper} is called:"),
            code,
            note: None,
        }
    }

    fn leaked(&self, kind: ValueKind, acquired_at: usize) -> Advice {
        let acquired = Source::of(self.machine, acquired_at);
        let name = acquired
            .as_ref()
            .and_then(|s| expression::assigned(&s.text));
        let line = acquired.as_ref().map(|s| s.line);
        let (release, note) = match kind {
            ValueKind::Record => ("bpf_ringbuf_discard", ", 0"),
            _ => ("bpf_sk_release", ""),
        };
        Advice {
            text: match line {
                Some(line) => format!(
                    "Release what line {line} acquired before the program ends on this path:"
                ),
                None => "Release it before the program ends on this path.".to_owned(),
            },
            code: name.map(|name| format!("{release}({name}{note});")),
            note: self.last_branch(),
        }
    }

    fn not_held(&self) -> Advice {
        let released = self
            .rejection
            .history
            .filter(|h| h.birth == Birth::Released)
            .and_then(|h| Source::of(self.machine, h.born_at));
        Advice {
            text: "Release it once: leave this call away on paths where it was released."
                .to_owned(),
            code: None,
            note: released.map(|s| format!("Line {} released it: {}", s.line, s.text)),
        }
    }

    fn locked(&self, taken_at: usize) -> Advice {
        let taken = Source::of(self.machine, taken_at);
        let lock = taken
            .as_ref()
            .and_then(|s| expression::arguments(&s.text, "bpf_spin_lock"))
            .and_then(|a| a.first().copied().map(str::to_owned));
        Advice {
            text: match &taken {
                Some(s) => format!(
                    "Release the lock that line {} took before the program ends:",
                    s.line
                ),
                None => "Release the lock before the program ends.".to_owned(),
            },
            code: lock.map(|lock| format!("bpf_spin_unlock({lock});")),
            note: self.last_branch(),
        }
    }

    /// The branch that decided for this path, where there is one.
    fn last_branch(&self) -> Option<String> {
        let step = self.rejection.path.last()?;
        let source = Source::of(self.machine, step.op)?;
        Some(format!(
            "The path leaves by line {}: {}",
            source.line, source.text
        ))
    }

    fn access(&self) -> Option<Access<'_>> {
        let here = self.here.as_ref().filter(|s| s.width > 0)?;
        expression::access(&here.text, here.mark)
    }

    /// The helper called here and the argument passed in `register`, as the source line has them.
    fn call_argument(&self, register: u8) -> Option<(String, &str)> {
        let here = self.here.as_ref()?;
        let op = self.machine.code().ops.get(self.rejection.place.op)?;
        let function = format!("bpf_{}", helper_name(op.imm as u32));
        let arguments = expression::arguments(&here.text, &function)?;
        let argument = arguments.get(usize::from(register).checked_sub(1)?)?;
        Some((function, argument))
    }

    /// The variable that holds the packet's end, by the line that loads it.
    fn packet_end(&self) -> Option<String> {
        self.loaded_from("data_end").map(|(name, _)| name)
    }

    /// The name of the context.
    fn context_name(&self) -> String {
        self.loaded_from("data_end")
            .map_or_else(|| "ctx".to_owned(), |(_, context)| context)
    }

    /// The variable a line of the source sets from a field of the context, and the context's name.
    fn loaded_from(&self, field: &str) -> Option<(String, String)> {
        let suffix = format!("->{field};");
        self.machine.source_texts().find_map(|text| {
            let text = text.trim();
            let before = text.strip_suffix(&suffix)?;
            let name = expression::assigned(text)?.to_owned();
            let word = before
                .bytes()
                .rev()
                .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_');
            let context = before.get(before.len() - word.count()..)?.to_owned();
            Some((name, context))
        })
    }
}

/// Whether a helper returns a pointer to a map's value, or null.
fn returns_value(number: u32) -> bool {
    let call = helper(number).and_then(|helper| helper.call);
    call.is_some_and(|call| call.result == Outcome::ValueOrNull)
}

fn says(text: impl Into<String>) -> Advice {
    Advice {
        text: text.into(),
        ..Advice::default()
    }
}
