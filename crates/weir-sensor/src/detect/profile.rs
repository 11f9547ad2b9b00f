//! What rules cost: of each rule that was decided on a buffer how often, with how much work, and in which buffer with the most. Kept if the configuration asks for it.

/// What a rule cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCost {
    /// Buffers that its conditions were decided on.
    pub checks: u64,
    /// Those of which they held.
    pub held: u64,
    /// Units of work: one for each byte that was searched, some for each place that was tried.
    pub work: u64,
    /// Searches by regular expressions.
    pub expressions: u64,
    /// Buffers in which it was given up at a limit.
    pub given_up: u64,
    /// The most units of one buffer.
    pub most: u64,
    /// Bytes of that buffer.
    pub most_bytes: u64,
    /// Number of the packet with which that buffer was decided.
    pub most_packet: u64,
}

impl RuleCost {
    /// Adds one buffer, or what was counted elsewhere. Of buffers that cost the same the one of the earlier packet is named.
    pub fn add(&mut self, other: &RuleCost) {
        self.checks += other.checks;
        self.held += other.held;
        self.work += other.work;
        self.expressions += other.expressions;
        self.given_up += other.given_up;
        let key = |cost: &RuleCost| (cost.most, u64::MAX - cost.most_packet, cost.most_bytes);
        if key(other) > key(self) {
            self.most = other.most;
            self.most_bytes = other.most_bytes;
            self.most_packet = other.most_packet;
        }
    }
}
