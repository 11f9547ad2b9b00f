//! All integration tests of weir-sensor but one in one program: each folder beside this one is a module here, and linking once is what it saves.
//!
//! `memory` is a program of its own: its allocator counts every byte of the process.

mod detect;
mod rules;
mod run;
mod traffic;
