/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits that count sources, destinations or pairs apart: docs/semantics.md section 3, "Limits apart". A word of GCRA for each, in buckets
 * of a cache line in a plain array: the kernel's LRU hash would choose by itself what it forgets, and no two engines alike.
 *
 * Each rule has a table of its own, so that it does not matter in which order rules are found, and none displaces what another counts.
 */
#ifndef WEIR_METER_H
#define WEIR_METER_H

const volatile __u32 weir_meter_mask = 0;	/* buckets of a rule - 1 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_meter);
} meters SEC(".maps");

/* A word whose first n bits are set. */
static __always_inline __u64 first_bits(__s32 n)
{
	if (n >= 64)
		return ~0ULL;
	if (n <= 0)
		return 0;
	return ~0ULL << (64 - n);
}

/* What a packet is counted under; 0: it has no addresses. */
static __always_inline __u64 meter_name(struct scratch *s, struct weir_rule *rule)
{
	__u64 what = rule->timeout_ns, valid = s->key[0], hash = weir_replay ? 0 : weir_flow_seed;
	__u64 src[2] = {}, dst[2] = {}, mask[2];
	__u8 *key = (__u8 *)s->key;
	__u32 len;

	if (valid & WEIR_V_IP4) {
		len = what >> WEIR_METER_LEN4 & 0x3f;
		src[1] = bpf_ntohl(*(__be32 *)(key + WEIR_K_IP4 + 12));
		dst[1] = bpf_ntohl(*(__be32 *)(key + WEIR_K_IP4 + 16));
		mask[0] = 0;
		mask[1] = first_bits(len + 32);
		hash += 4ULL << 32;
	} else if (valid & WEIR_V_IP6) {
		len = what >> WEIR_METER_LEN6 & 0xff;
		src[0] = bpf_be64_to_cpu(*(__be64 *)(key + WEIR_K_IP6 + 8));
		src[1] = bpf_be64_to_cpu(*(__be64 *)(key + WEIR_K_IP6 + 16));
		dst[0] = bpf_be64_to_cpu(*(__be64 *)(key + WEIR_K_IP6 + 24));
		dst[1] = bpf_be64_to_cpu(*(__be64 *)(key + WEIR_K_IP6 + 32));
		mask[0] = first_bits(len);
		mask[1] = first_bits((__s32)len - 64);
		hash += 6ULL << 32;
	} else {
		return 0;
	}
	hash = splitmix64(hash + (what >> WEIR_METER_NAME));
	if (what >> WEIR_METER_SOURCE & 1)
		hash = splitmix64(splitmix64(hash + (src[0] & mask[0])) + (src[1] & mask[1]));
	if (what >> WEIR_METER_DESTINATION & 1)
		hash = splitmix64(splitmix64(hash + (dst[0] & mask[0])) + (dst[1] & mask[1]));
	return hash | 1;
}

/* Counts a packet in a word, as above_rate() does. */
static __always_inline int above_word(__u64 *tat, struct weir_rule *rule, __u64 t)
{
	__u64 old, base;
	__u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		old = *(volatile __u64 *)tat;
		base = old > t ? old : t;
		if (base - t > rule->rate_limit_ns)
			return 1;
		if (__sync_val_compare_and_swap(tat, old, base + rule->drop_param) == old)
			return 0;
	}
	return 1;
}

/*
 * Whether a packet is above the limit of its addresses.
 *
 * The first packet under a name is never above. It claims the word that is furthest behind by exchanging the name, so one CPU has it; until
 * that CPU has written the word, packets of the same name on others are judged by the word of the name that was there. If another CPU was
 * faster, the packet is within and not counted. So what a lost race costs is one packet, and nothing waits.
 */
static __always_inline int above_meter(struct scratch *s, struct weir_rule *rule)
{
	__u64 name = meter_name(s, rule), least = ~0ULL, old, t = now(s);
	__u32 at = (rule->timeout_ns & WEIR_METER_TABLE) * (weir_meter_mask + 1) + (name >> 32 & weir_meter_mask), i, way = 0;
	struct weir_meter *m = bpf_map_lookup_elem(&meters, &at);
	struct weir_stats *ledger;

	if (!name || !m)
		return 0;
#pragma unroll
	for (i = 0; i < WEIR_METER_WAYS; i++) {
		if (m->name[i] == name)
			return above_word(&m->tat[i], rule, t);
	}
#pragma unroll
	for (i = 0; i < WEIR_METER_WAYS; i++) {
		old = m->tat[i];
		if (old < least) {
			least = old;
			way = i;
		}
	}
	way &= WEIR_METER_WAYS - 1;
	old = m->name[way];
	if (__sync_val_compare_and_swap(&m->name[way], old, name) != old)
		return 0;
	m->tat[way] = t + rule->drop_param;
	if (least > t) {
		ledger = stats_here();
		if (ledger)
			ledger->reason[WEIR_R_limit_displaced] += s->packets;
	}
	return 0;
}

#endif
