// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * filter: lets packets pass or drops them, by address, port, protocol, rate and
 * load. docs/filter.md says what rules mean, docs/design/filter.md how they are found.
 *
 * Every part of a packet that rules ask about is turned into a row of bits, one for each rule; the rules that
 * match are the AND of the rows. Nothing here depends on the number of prefixes.
 *
 * Hooks: xdp, graph on tc, networks.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_mtu = 0;
const volatile __u32 weir_replay = 0;		/* time comes from the replay map */
const volatile __u32 weir_filter_features = 0;	/* WEIR_FF_* */
const volatile __u32 weir_slow_rules = 1;	/* rules that shed, limit or ask for cookies, at least 1 */
const volatile __u32 weir_no_ports = 0;		/* row of packets without ports, for both tables */
const volatile __u32 weir_hits[4] = {};		/* first counter of each table of addresses: side * 2 + (family == 6) */
const volatile __u32 weir_hit_slots[2] = {};	/* counters of a position, by side */
const volatile __u32 weir_filter_cpu[WEIR_FILTER_CPUS] = {};	/* CPUs to move to: of the filter, then of rules */
const volatile __u32 weir_filter_cpus = 0;	/* of the filter */
const volatile __u32 weir_filter_never = 0;	/* always 0 */

/*
 * What is compiled in. The file is compiled again for filters that ask little: filter_quick.c and filter_one.c define these. What the
 * verifier removes for its constants has had registers and stack all the same, and that costs a small filter half of its time.
 */
#ifndef WEIR_FILTER_KEPT
#define WEIR_FILTER_KEPT	(~0U)	/* features that may be on */
#define WEIR_FILTER_ALWAYS	0	/* features that are */
#endif

/* Whether one of these features is on. */
#define has(f) ((WEIR_FILTER_ALWAYS & (f)) || ((WEIR_FILTER_KEPT & (f)) && (weir_filter_features & WEIR_FILTER_KEPT & (f))))

#include "ctx.h"
#include "csum.h"
#include "finish.h"
#include "panel.h"
#include "stats.h"
#include "spread.h"
#include "quick_parse.h"
#include "prefixes.h"
#include "limits.h"

#define NO_RULE		(WEIR_FILTER_WORDS * 64)
#define QUICK_SENT	-3	/* the packet is an answer now */

struct port_rows {
	__u16 row[65536];
};

struct kind_rows {
	__u16 row[WEIR_FILTER_KINDS];
};

struct hit_block {
	__u64 hits[WEIR_FILTER_HITS];
};

struct hit_homes {
	__u32 home[WEIR_FILTER_HITS];
};

/* The rules that match, for those that are asked one after the other. */
struct filter_walk {
	__u64 word[WEIR_FILTER_WORDS];
	__u32 at;		/* word */
	__u32 reason;
	__u32 cookie;		/* a rule asks for a cookie */
	__u32 bytes;
	__u32 table_src, table_dst;
	struct place src, dst;
	__u32 family;
	__u32 pad;
	__u64 src_high, src_low;
	__u64 now_ns;
	__u8 ip[40];		/* headers, for the helpers that make and check cookies */
	__u8 tcp[84];		/* 20 and up to 63 bytes */
	__u8 macs[12];
	__u8 answer[64];
};

#include "cookies.h"

/* Source ports, then destination ports. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct port_rows);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kind_rows);
} kinds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit_block);
} hits SEC(".maps");

/* What the small counters in `blocks4` went over by: packets, of all CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit_block);
} wide_hits SEC(".maps");

/* By counter: where in `blocks4` it is, in units of 2 bytes and one more; 0: not there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit_homes);
} homes SEC(".maps");

/*
 * What was counted for the same entries and rules by the instances that this one replaced. Written and read by user space alone, but a
 * map lives as long as a program names it: see keep().
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit_block);
} carried_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_count);
} carried_counts SEC(".maps");

/* By counter of an entry: what tells the entry from all others. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hit_block);
} owners SEC(".maps");

/* Load values that `shed` looks at: a map that somebody else writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} load SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_walk);
} walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);	/* struct bpf_cpumap_val: size of the queue, no program */
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_replay);
} replay SEC(".maps");

/* No address of it goes to a call, so that all of it can live in registers. */
struct judge {
	ctx_t *ctx;
	struct filter_walk *walk;
	struct head h;
	struct place src, dst;
	__u64 now_ns;
	__u32 first;		/* rule, NO_RULE: none matches */
	__u32 cpu_first, cpus;	/* where an accepted packet goes on; none: here */
};

/* What ask() is called with. */
struct asking {
	struct filter_walk *walk;
};

/* Number of the lowest bit; there is one. */
static __always_inline __u32 lowest(__u64 word)
{
	static const __u8 place[64] = {
		0, 1, 2, 53, 3, 7, 54, 27, 4, 38, 41, 8, 34, 55, 48, 28,
		62, 5, 39, 46, 44, 42, 22, 9, 24, 35, 59, 56, 49, 18, 29, 11,
		63, 52, 6, 26, 37, 40, 33, 47, 61, 45, 43, 21, 23, 58, 17, 10,
		51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
	};

	return place[(word & -word) * 0x022fdd63cc95386dULL >> 58];
}

static __always_inline __u64 clock_ns(void)
{
	__u32 zero = 0;

	if (weir_replay) {
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		return given ? given->now_ns : 0;
	}
	if (has(WEIR_FF_EXACT))
		return bpf_ktime_get_ns();
	return bpf_ktime_get_coarse_ns();
}

static __always_inline void hit(__u32 table, struct place place, __u32 slot)
{
	__u32 number = weir_hits[table & 3] + place.position * weir_hit_slots[(table >> 1) & 1] + slot, element, at;
	struct hit_block *here;
	__u8 *block;

	if (!(table & 1) && weir_unit4 > 4) {
		at = place.counter + slot * 2;
		element = at / WEIR_FILTER_BLOCKS;
		block = bpf_map_lookup_elem(&blocks4, &element);
		if (!block)
			return;
		opaque(at);
		at &= WEIR_FILTER_BLOCKS - 2;
		/* Whoever reads at this very moment finds 65,536 too few. */
		if (++*(__u16 *)(block + at))
			return;
		element = number / WEIR_FILTER_HITS;
		here = bpf_map_lookup_elem(&wide_hits, &element);
		if (here)
			__sync_fetch_and_add(&here->hits[number % WEIR_FILTER_HITS], 65536);
		return;
	}
	element = number / WEIR_FILTER_HITS;
	here = bpf_map_lookup_elem(&hits, &element);
	if (here)
		here->hits[number % WEIR_FILTER_HITS]++;
}

/* Counts a packet that asked a rule, and the entries of its sets that made it match. */
static __always_inline struct weir_filter_count *count(struct weir_filter_rule *rule, __u32 number, __u32 bytes,
							__u32 family6, struct place src, struct place dst)
{
	struct weir_filter_count *here = bpf_map_lookup_elem(&counts, &number);

	if (!here)
		return 0;
	here->packets++;
	here->bytes += bytes;
	if (has(WEIR_FF_HITS)) {
		if (has(WEIR_FF_SRC) && rule->flags & WEIR_FR_HIT_SRC)
			hit(family6, src, rule->slot_src);
		if (has(WEIR_FF_DST) && rule->flags & WEIR_FR_HIT_DST)
			hit(2 + family6, dst, rule->slot_dst);
	}
	return here;
}

/* Whether a packet is over the limit of a rule. */
static __always_inline int is_over(struct filter_walk *walk, struct weir_filter_rule *rule, __u32 number)
{
	__u64 *word, high = 0, low = 0;
	struct hit_block *owner;
	__u32 at, bits;

	switch (rule->per) {
	case WEIR_P_SOURCE:
		high = walk->src_high;
		low = walk->src_low;
		if (walk->family == 4) {
			bits = rule->len4 & 63;
			low = bits ? low >> ((32 - bits) & 63) : 0;
		} else {
			bits = rule->len6;
			if (bits <= 64) {
				low = 0;
				high = bits ? high >> ((64 - bits) & 63) : 0;
			} else {
				low >>= (128 - bits) & 63;
			}
			/* The highest bit tells the families apart: no IPv4 address has it. */
			low |= 1ULL << 63;
		}
		break;
	case WEIR_P_ENTRY:
		if (!has(WEIR_FF_ENTRY))
			return 0;
		if (rule->flags & WEIR_FR_ENTRY_DST)
			at = weir_hits[(2 + (walk->family == 6)) & 3] + walk->dst.position * weir_hit_slots[1] + rule->slot_dst;
		else
			at = weir_hits[(walk->family == 6) & 3] + walk->src.position * weir_hit_slots[0] + rule->slot_src;
		number = at / WEIR_FILTER_HITS;
		owner = bpf_map_lookup_elem(&owners, &number);
		if (!owner)
			return 0;
		low = owner->hits[at % WEIR_FILTER_HITS];
		break;
	default:
		word = bpf_map_lookup_elem(&totals, &number);
		if (!word)
			return 0;
		return over(word, walk->now_ns, rule->interval_ns, rule->burst_ns);
	}
	word = limit_word(mix(high + ((__u64)rule->id << 32), low));
	if (!word)
		return 0;
	return over(word, walk->now_ns, rule->interval_ns, rule->burst_ns);
}

/* Asks the next rule that matches. */
static long ask(__u32 i, void *arg)
{
	struct filter_walk *walk = ((struct asking *)arg)->walk;
	struct weir_filter_count *here;
	struct weir_filter_rule *rule;
	__u32 at = walk->at, number;
	__u64 word, *value;

	if (at >= weir_words)
		return 1;
	word = walk->word[at & (WEIR_FILTER_WORDS - 1)];
	if (!word) {
		walk->at++;
		return 0;
	}
	walk->word[at & (WEIR_FILTER_WORDS - 1)] = word & (word - 1);
	number = at * 64 + lowest(word);
	rule = bpf_map_lookup_elem(&rules, &number);
	if (!rule)
		return 1;
	here = count(rule, number, walk->bytes, walk->family == 6, walk->src, walk->dst);
	if (!here)
		return 1;
	if (has(WEIR_FF_SHED) && rule->action == WEIR_A_SHED) {
		number = rule->shed;
		value = bpf_map_lookup_elem(&load, &number);
		if (value && *value > rule->above) {
			here->dropped++;
			walk->reason = WEIR_R_shed;
			return 1;
		}
	}
	if (has(WEIR_FF_LIMIT) && rule->action == WEIR_A_LIMIT && is_over(walk, rule, number)) {
		here->dropped++;
		walk->reason = WEIR_R_limited;
		if (has(WEIR_FF_BLOCK) && rule->block_ns) {
			here->blocked++;
			block(walk->src_high, walk->src_low, walk->now_ns + rule->block_ns);
		}
		return 1;
	}
	if (has(WEIR_FF_COOKIE) && rule->action == WEIR_A_COOKIE) {
		walk->cookie = number + 1;
		return 1;
	}
	return 0;
}

/* The rules that match: the first one, and all of them where more than the first counts. */
static __always_inline int match(struct judge *j)
{
	__u64 *src = 0, *dst = 0, *sport = 0, *dport = 0, *kind = 0, word;
	__u32 zero = 0, one = 1, i, at;
	struct port_rows *by_port;
	struct kind_rows *by_kind;

	if (has(WEIR_FF_ONE) && !has(WEIR_FF_KIND)) {
		j->first = has(WEIR_FF_SRC) ? j->src.row : j->dst.row;
		return QUICK_OK;
	}
	if (has(WEIR_FF_KIND)) {
		by_kind = bpf_map_lookup_elem(&kinds, &zero);
		if (!by_kind)
			return WEIR_R_internal;
		at = j->h.kind;
		opaque(at);
		at = by_kind->row[at & (WEIR_FILTER_KINDS - 1)];
		if (has(WEIR_FF_ONE)) {
			j->first = at;
			return QUICK_OK;
		}
		kind = row_at(at);
		if (!kind)
			return WEIR_R_internal;
	}
	if (has(WEIR_FF_SRC)) {
		src = row_at(j->src.row + j->h.zero);
		if (!src)
			return WEIR_R_internal;
	}
	if (has(WEIR_FF_DST)) {
		dst = row_at(j->dst.row + j->h.zero);
		if (!dst)
			return WEIR_R_internal;
	}
	if (has(WEIR_FF_SPORT)) {
		by_port = bpf_map_lookup_elem(&ports, &zero);
		if (!by_port)
			return WEIR_R_internal;
		at = j->h.ports >> 16;
		opaque(at);
		sport = row_at(j->h.has_ports ? by_port->row[at & 0xffff] : weir_no_ports + j->h.zero);
		if (!sport)
			return WEIR_R_internal;
	}
	if (has(WEIR_FF_DPORT)) {
		by_port = bpf_map_lookup_elem(&ports, &one);
		if (!by_port)
			return WEIR_R_internal;
		at = j->h.ports;
		opaque(at);
		dport = row_at(j->h.has_ports ? by_port->row[at & 0xffff] : weir_no_ports + j->h.zero);
		if (!dport)
			return WEIR_R_internal;
	}
	j->first = NO_RULE;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WORDS; i++) {
		if (i >= weir_words)
			break;
		word = ~0ULL;
		if (has(WEIR_FF_KIND))
			word &= kind[i];
		if (has(WEIR_FF_SRC))
			word &= src[i];
		if (has(WEIR_FF_DST))
			word &= dst[i];
		if (has(WEIR_FF_SPORT))
			word &= sport[i];
		if (has(WEIR_FF_DPORT))
			word &= dport[i];
		if (has(WEIR_FF_SLOW))
			j->walk->word[i] = word;
		if (word && j->first == NO_RULE) {
			j->first = i * 64 + lowest(word);
			if (!has(WEIR_FF_SLOW))
				break;
		}
	}
	return QUICK_OK;
}

/* Names the maps that only user space looks into. No instruction of it is left after loading. */
static __always_inline void keep(void)
{
	__u32 zero = 0;

	if (!weir_filter_never)
		return;
	bpf_map_lookup_elem(&carried_hits, &zero);
	bpf_map_lookup_elem(&carried_counts, &zero);
	bpf_map_lookup_elem(&owners, &zero);
	bpf_map_lookup_elem(&homes, &zero);
}

/* What an allow rule says besides. */
static __always_inline void accept(struct judge *j, struct panel p, struct weir_filter_rule *rule)
{
#ifdef WEIR_PANEL
	if (p.chain && rule->flags & WEIR_FR_MARK) {
		p.chain->mark = rule->mark;
#ifdef WEIR_HOOK_TC
		/* 0 in the chain leaves the socket buffer's mark, and then the function behind this one read that. */
		j->ctx->mark = rule->mark;
#endif
	}
#endif
	if (has(WEIR_FF_CPU) && rule->flags & WEIR_FR_CPU) {
		j->cpu_first = rule->cpu_first;
		j->cpus = rule->cpus;
	}
}

/* Moves a packet to one of its CPUs. XDP's alone: planning refuses such rules in networks and on tc. */
static __always_inline int move(ctx_t *ctx, struct judge *j)
{
	__u32 at = j->cpu_first;

	if (j->cpus > 1)
		at += spread_over(spread_hash(ctx), j->cpus);
	finish(ctx);
#ifdef WEIR_HOOK_TC
	return XDP_ABORTED;
#endif
	return bpf_redirect_map(&cpus, weir_filter_cpu[at & (WEIR_FILTER_CPUS - 1)], XDP_ABORTED);
}

/* Returns QUICK_OK, QUICK_OTHER for a frame that passes unseen, QUICK_SENT, or the reason to drop. */
static __always_inline int judge(struct judge *j, struct panel p)
{
	struct weir_filter_count *here;
	struct weir_filter_rule *rule;
	struct head *h = &j->h;
	struct asking asking;
	__u32 zero = 0, family6, number;
	__u64 high, low;
	int reason = quick_parse(j->ctx, h);

	if (reason == QUICK_OTHER)
		return has(WEIR_FF_DENY_OTHER) ? WEIR_R_not_allowed : QUICK_OTHER;
	if (reason != QUICK_OK)
		return reason;
	family6 = h->family == 6;
	h->kind += h->zero;
	h->has_ports += h->zero;
	h->ports += h->zero;
	h->tcp_flags += h->zero;
	h->l4 += h->zero;
	if (has(WEIR_FF_LIVES | WEIR_FF_LIMIT | WEIR_FF_BLOCK | WEIR_FF_COOKIE))
		j->now_ns = clock_ns();
	if (has(WEIR_FF_SRC)) {
		if (!family6)
			j->src = find4(SIDE_SRC, h->src_low);
		else if (has(WEIR_FF_IP6_SRC))
			j->src = find6(SIDE_SRC, h->src_high, h->src_low);
		else
			j->src.row = weir_outside6[SIDE_SRC];
		if (has(WEIR_FF_LIVES))
			outlive(&j->src, family6, j->now_ns + weir_clock_offset);
	}
	if (has(WEIR_FF_DST)) {
		if (!family6)
			j->dst = find4(SIDE_DST, h->dst_low);
		else if (has(WEIR_FF_IP6_DST))
			j->dst = find6(SIDE_DST, h->dst_high, h->dst_low);
		else
			j->dst.row = weir_outside6[SIDE_DST];
		if (has(WEIR_FF_LIVES))
			outlive(&j->dst, 2 + family6, j->now_ns + weir_clock_offset);
	}
	if (has(WEIR_FF_SLOW)) {
		j->walk = bpf_map_lookup_elem(&walks, &zero);
		if (!j->walk)
			return WEIR_R_internal;
	}
	reason = match(j);
	if (reason != QUICK_OK)
		return reason;
	rule = 0;
	if (j->first != NO_RULE) {
		number = j->first;
		rule = bpf_map_lookup_elem(&rules, &number);
		if (!rule)
			return WEIR_R_internal;
	}
	if (has(WEIR_FF_CPU))
		j->cpus = weir_filter_cpus;
	if (rule && rule->action == WEIR_A_ALLOW) {
		count(rule, j->first, h->len, family6, j->src, j->dst);
		accept(j, p, rule);
		return QUICK_OK;
	}
	if (has(WEIR_FF_BLOCK)) {
		high = h->src_high;
		low = family6 ? h->src_low : h->src_low | 0xffffULL << 32;
		if (is_blocked(high, low, j->now_ns))
			return WEIR_R_blocked;
	}
	if (rule && rule->action == WEIR_A_DENY) {
		count(rule, j->first, h->len, family6, j->src, j->dst);
		return WEIR_R_denied;
	}
	if (has(WEIR_FF_SLOW) && rule) {
		j->walk->at = 0;
		j->walk->reason = 0;
		j->walk->cookie = 0;
		j->walk->bytes = h->len;
		j->walk->src = j->src;
		j->walk->dst = j->dst;
		j->walk->family = h->family;
		j->walk->src_high = h->src_high;
		j->walk->src_low = family6 ? h->src_low : h->src_low | 0xffffULL << 32;
		j->walk->now_ns = j->now_ns;
		asking.walk = j->walk;
		bpf_loop(weir_slow_rules, ask, &asking, 0);
		if (j->walk->reason)
			return j->walk->reason;
	}
	if (has(WEIR_FF_COOKIE) && rule && j->walk->cookie) {
		reason = cookie(j->ctx, h, j->walk, j->walk->cookie - 1);
		switch (reason) {
		case COOKIE_OPEN:
			return QUICK_OK;
		case COOKIE_ANSWERED:
			return QUICK_SENT;
		case COOKIE_BAD:
			reason = WEIR_R_cookie_bad;
		}
		number = j->walk->cookie - 1;
		here = bpf_map_lookup_elem(&counts, &number);
		if (here)
			here->dropped++;
		return reason;
	}
	return has(WEIR_FF_DENY_REST) ? WEIR_R_not_allowed : QUICK_OK;
}

/* Packets on the wire that one stands for, as ledgers of graphs count them; rules count it once. */
#ifdef WEIR_PANEL
#define filter_packets(ctx)	ctx_segments(ctx)
#else
#define filter_packets(ctx)	1
#endif

/* On tc the headers need not be in the linear part, and the outermost tag is beside the data. */
#if defined(WEIR_HOOK_TC) && defined(WEIR_PANEL)

/* Bytes from the start that headers may take. */
#define FILTER_HEADS	(WEIR_FRAME_MIN + WEIR_VLAN_MAX * VLAN_BYTES + 40 + WEIR_EH_BYTES + 20)

/* Bytes from the start that headers do take, of packets without tags in the data and IPv6 extension headers; of others FILTER_HEADS. */
static __always_inline __u32 filter_heads(ctx_t *ctx)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);

	if (data + WEIR_FRAME_MIN + 20 > end)
		return FILTER_HEADS;
	if (be16_at(data + 12) == ETH_P_IP)
		return WEIR_FRAME_MIN + (data[WEIR_FRAME_MIN] & 15) * 4 + 20;
	if (be16_at(data + 12) == ETH_P_IPV6 && !is_extension(data[WEIR_FRAME_MIN + 6]))
		return WEIR_FRAME_MIN + 40 + 20;
	return FILTER_HEADS;
}

static __always_inline void filter_pull(ctx_t *ctx)
{
	__u32 need = filter_heads(ctx), len = ctx_word(ctx, len);

	if (need > len)
		need = len;
	if (packet_word(ctx, data) + need > packet_word(ctx, data_end))
		bpf_skb_pull_data(ctx, need);
}

/* Whether the frame has more tags than it may, the one beside the data included. */
static __always_inline int filter_is_deep(ctx_t *ctx, struct head *h)
{
	return ctx_beside(ctx) && h->l3 == WEIR_FRAME_MIN + WEIR_VLAN_MAX * VLAN_BYTES;
}

#define filter_len(ctx, p)	((p).len - ctx_beside(ctx))

#else

#define filter_pull(ctx)	do { } while (0)
#define filter_is_deep(ctx, h)	0
#define filter_len(ctx, p)	((p).len)

#endif

SEC(CTX_SECTION)
int filter(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct judge j = { .ctx = ctx };
	int verdict = ctx_return(XDP_ABORTED), reason;
	struct panel p;

	keep();
	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, filter_packets(ctx));
	filter_pull(ctx);
	j.h.len = filter_len(ctx, p);
	reason = judge(&j, p);
	if (filter_is_deep(ctx, &j.h))
		reason = WEIR_R_vlan_deep;
	if (reason == QUICK_OTHER)
		stats->reason[WEIR_R_not_ip] += filter_packets(ctx);
	if (has(WEIR_FF_CPU) && reason == QUICK_OK && j.cpus && move(ctx, &j) != XDP_REDIRECT)
		reason = WEIR_R_redirect_failed;
	if (reason >= 0) {
		stats->reason[reason & (WEIR_REASONS - 1)] += filter_packets(ctx);
		verdict = CTX_DROP;
	} else {
		verdict = CTX_PASS;
		if (has(WEIR_FF_CPU) && reason == QUICK_OK && j.cpus)
			verdict = XDP_REDIRECT;
		if (has(WEIR_FF_COOKIE) && reason == QUICK_SENT)
			verdict = XDP_TX;
		reason = WEIR_NO_REASON;
	}
	verdict = panel_leave_with(ctx, stats, p, filter_packets(ctx), verdict, 0, reason);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
