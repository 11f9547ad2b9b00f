//! Desired state of many edges in etcd: a client of its JSON gateway, the layout of keys, and what one edge follows of them. No kernel.
//!
//! What a document means is decided elsewhere: here its entries are texts with a generation. Forwarding never waits for anything in this crate,
//! and nothing is removed because something could not be read. Design: docs/design/store.md.

#![warn(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

pub mod catalogue;
mod document;
mod entry;
mod etcd;
mod follow;
mod http;
pub mod layout;
mod local;
mod publish;
mod reading;
mod settings;
mod standing;
pub mod tls;

pub use document::{
    NetworkPart, Part, Parts, StoreDocumentError, join, split, with_groups, with_keys,
};
pub use entry::{
    Alive, EdgeEntry, FileEntry, NetworkEntry, Origin, Presence, ResultEntry, ResultState,
    StoreEntry, TenantEntry, WorkloadEntry, next_generation,
};
pub use etcd::{Client, Compare, Event, Header, KeyValue, Op, Range, Watch};
pub use follow::{Applied, Follower, Options, Published, Report, version_of};
pub use http::StoreError;
pub use local::{Local, digest};
pub use publish::{Sizes, write};
pub use reading::Reading;
pub use settings::Settings;
pub use standing::{Stage, Standing};
