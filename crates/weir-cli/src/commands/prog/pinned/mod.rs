//! Programs that stay in the kernel: loaded, put on interfaces, replaced, taken away. What is there is in bpffs and nowhere else, so
//! every command is one shot and any of them may be killed.

pub(super) mod attach;
pub(super) mod detach;
pub(in crate::commands) mod holder;
pub(in crate::commands) mod list;
pub(super) mod load;
mod prepare;
pub(super) mod replace;
mod store;
pub(super) mod unload;
