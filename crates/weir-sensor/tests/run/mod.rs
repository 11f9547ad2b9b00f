//! Whole runs: captures made here, rules written here, and what the logs say of them.

mod bed;
mod caps;
mod datagrams;
mod dcerpc;
mod defects;
mod dnp3;
mod encrypted;
mod events;
mod firewall;
mod frames;
mod fuzzed;
mod hostile;
mod http2;
mod keywords;
mod language;
mod layers;
mod ldap;
mod let_go;
mod limits;
mod logs;
#[cfg(feature = "lua")]
mod lua;
mod magic;
mod mail;
mod mqtt;
mod names;
#[cfg(not(feature = "lua"))]
mod no_lua;
mod numbers;
mod pass;
mod prevention;
mod protocols;
mod records;
mod reload;
mod rfb;
mod schema;
mod sets;
mod sip;
mod spread;
mod stored;
mod switches;
mod tags;
mod transfers;
mod web;
