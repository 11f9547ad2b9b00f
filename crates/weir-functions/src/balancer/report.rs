//! What a balancer counted, by service and by server.

use weir_bpf::abi::LbCount;
use zerocopy::FromBytes;

/// The counts of one number, of all CPUs together.
pub fn sum<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> LbCount {
    let mut all = LbCount::default();
    for value in values {
        if let Ok(one) = LbCount::read_from_bytes(value) {
            all.packets += one.packets;
            all.bytes += one.bytes;
            all.flows += one.flows;
        }
    }
    all
}
