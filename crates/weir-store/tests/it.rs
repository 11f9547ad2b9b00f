//! All tests of weir-store that need a real etcd, in one program.

mod etcd;
mod simulated;
