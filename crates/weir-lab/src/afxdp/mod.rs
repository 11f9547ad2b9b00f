//! `weir lab afxdp`: finds out which settings of AF_XDP matter on this machine.
//!
//! A sweep names the values of each knob; every possible combination is a cell. Cells run in random order, in blocks with controls in each, and what the kernel really did
//! is part of a result. Cells that failed to do what they were asked are classed apart; the others are clustered, and what the members of a cluster share is its finding.

pub mod results;
