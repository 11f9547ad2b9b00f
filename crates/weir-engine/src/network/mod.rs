//! Virtual networks on one edge, live: the maps and programs that they share, the devices they are attached to, and one word that switches
//! all of them at once (docs/design/network.md).

mod apply;
mod attach;
mod error;
pub mod helper;
mod layout;
pub mod ping;
mod private;
pub mod probe;
mod set;
mod state;
pub mod user;
mod watched;

pub use apply::{
    Applied, DeviceChanges, Look, Networks, Role, Step, Watcher, list_here, look, runs_here,
};
pub use error::NetworkError;
pub use layout::Capacity;
pub use set::Set;
pub use watched::{is_watched, watcher};
