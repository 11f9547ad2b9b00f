//! All integration tests of weir-cli in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod common;
mod live_bed;
mod live_path;
mod live_services;

mod afxdp_judge;
mod bad_input;
mod bench_sensor;
mod check_speed;
mod checksums;
mod explain;
mod generate;
mod json_agree;
mod lab_afxdp;
mod lab_sensor;
mod live_balancer;
mod live_balancer_paths;
mod live_bench;
mod live_bench_network;
mod live_bench_xdp;
mod live_bench_xsk;
mod live_checksums;
mod live_connections;
mod live_demo;
mod live_edge;
mod live_flows;
mod live_host_notes;
mod live_nat;
mod live_net;
mod live_net_helper;
mod live_net_ping;
mod live_netns_exec;
mod live_prog;
mod live_redirect;
mod live_route;
mod live_rules;
mod live_run;
mod live_takeover;
mod live_tc;
mod live_vlan;
mod live_watch;
mod prog_broken;
mod prog_exec;
mod prog_run;
mod prog_serve;
mod replay_graph;
mod replay_networks;
mod replay_routes;
mod sensor;
mod sensor_running;
mod tables;
mod tour;
mod xsk;
mod xsk_ports;
