//! What a router carried, by next hop and by interface, read beside packets. It looks at no route, so that it costs the same whatever the tables hold.

use std::net::IpAddr;

use weir_bpf::abi::{NextHop, router::hop};
use weir_kernel::{KernelError, Map};
use zerocopy::FromBytes;

use super::routers::{OBJECT, sum};
use super::status::InstanceStatus;

/// What a router carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterCounts {
    /// By next hop, of a router with tables of its own.
    pub hops: Vec<HopCount>,
    /// Packets and bytes sent, by number of the interface.
    pub sent: Vec<(u64, u64)>,
}

/// What went to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopCount {
    /// [`hop`].
    pub kind: u8,
    /// Gateway, if it is one.
    pub via: Option<IpAddr>,
    /// Number of the interface.
    pub interface: u16,
    /// Packets and bytes.
    pub counted: (u64, u64),
}

impl InstanceStatus {
    /// What a router carried; `None` if the instance is none.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn router_counts(&self) -> Result<Option<RouterCounts>, KernelError> {
        if self.object != OBJECT {
            return Ok(None);
        }
        let open = |name: &str| -> Result<Option<Map>, KernelError> {
            let id = self.maps.iter().find(|map| map.0 == name).map(|map| map.1);
            id.map(|id| Map::by_id(id, name)).transpose()
        };
        let mut counts = RouterCounts::default();
        if let Some(sent) = open("sent")? {
            for number in 0..sent.definition().entries {
                let values = sent.lookup_percpu(&number.to_ne_bytes())?;
                counts.sent.push(sum(&values));
            }
        }
        if let (Some(hops), Some(of)) = (open("next_hops")?, open("hop_counts")?) {
            let hops = hops.mmap()?;
            let mut bytes = vec![0; hops.len()];
            if hops.read(0, &mut bytes).is_err() {
                return Ok(Some(counts));
            }
            for (number, bytes) in (0u32..).zip(bytes.chunks_exact(size_of::<NextHop>())) {
                let Ok(next) = NextHop::read_from_bytes(bytes) else {
                    continue;
                };
                if next.kind == 0 || number >= of.definition().entries {
                    continue;
                }
                let counted = sum(&of.lookup_percpu(&number.to_ne_bytes())?);
                counts.hops.push(HopCount {
                    kind: next.kind,
                    via: via(&next),
                    interface: next.interface,
                    counted,
                });
            }
        }
        Ok(Some(counts))
    }
}

fn via(next: &NextHop) -> Option<IpAddr> {
    let [a, b, c, d, ..] = next.address;
    match (next.kind, next.family) {
        (hop::GATEWAY, 4) => Some([a, b, c, d].into()),
        (hop::GATEWAY, 6) => Some(next.address.into()),
        _ => None,
    }
}
