//! All integration tests of weir-bpf in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod contract;

mod abi;
mod abi_balancer;
mod abi_bypass;
mod abi_dynset;
mod abi_filter;
mod abi_meter;
mod abi_network;
mod abi_router;
