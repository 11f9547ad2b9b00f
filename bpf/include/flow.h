/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections: the tuple of a packet, the connection it belongs to, what is remembered of fragments,
 * and what a packet that passes leaves behind. Opening a connection is in open.h, translating in translate.h.
 *
 * Nothing here takes a lock (docs/design/connections.md). A reader compares a record's `life` before and
 * after it copied the record; a writer claims a record by changing `life` from what it saw.
 * Follows docs/semantics.md section 7.
 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

const volatile __u32 weir_flow_buckets = 1;
const volatile __u32 weir_nat_buckets = 1;
const volatile __u32 weir_frag_buckets = 1;
const volatile __u64 weir_flow_seed = 0;	/* so that nobody can choose tuples, or addresses of limits, that share a bucket */
const volatile __u32 weir_loose = 0;	/* TCP segments pass whatever their numbers are */
const volatile __u64 weir_timeout[32] = {};	/* ns, by state; WEIR_FLOW_STATES of them */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_flow);
} flows SEC(".maps");

/* Buckets of a cache line; mapped memory, so that they begin at one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_bucket);
} flow_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_nat_bucket);
} nat_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_frag);
} frags SEC(".maps");

/* By id - 1. The half that packets do not read is written with the rules beside the plan. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_rule_at);
} rule_at SEC(".maps");

/* States as docs/semantics.md section 7 names them; the order is that of weir_timeout. */
enum flow_state {
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_ESTABLISHED,
	TCP_FIN_WAIT,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	UDP_UNREPLIED,
	UDP_STREAM,
	ICMP_QUERY,
	FRAGMENT,
	GENERIC_NEW,
	GENERIC,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_RETRANS,
	TCP_UNACK,
	MAPPING,
	EXPECTATION,
};

#define BEFORE(a, b)	((__s32)((a) - (b)) < 0)	/* of two sequence numbers */
#define AFTER(a, b)	BEFORE(b, a)

#define SEEN_BOTH(flag)	((flag) | (flag) << WEIR_SEEN_REVERSE)
#define SEQUENCE_OF(life)	((life) >> 32)

/* The parts of `life` that say which connection it is; flags may change while one reads. */
#define SAME_LIFE(a, b)	(!(((a) ^ (b)) & (0xffffffffULL << 32 | WEIR_LIFE_MASK)))

#define life_of(flow)	(*(volatile __u64 *)&(flow)->life)

#define FLOW_LINE	8	/* words of a cache line */
#define FLOW_WORDS	(sizeof(struct weir_flow) / 8)

/* Keeps the compiler from moving reads and writes of a record across a look at its life. */
#define barrier()	asm volatile("" ::: "memory")

/*
 * Functions that are not static are verified once, not once for every way to every call. They take no pointers: the
 * scratch of the packet is found by its level.
 */
#define scratch_of(level)	bpf_map_lookup_elem(&scratch, &(level))

/* Coarse: as new as the last tick, a few ms, and 20 times cheaper than the fine clock. */
static __always_inline __u64 flow_now(struct scratch *s)
{
	if (weir_replay)
		return s->now_ns;
	if (!s->flow_now)
		s->flow_now = bpf_ktime_get_coarse_ns();
	return s->flow_now;
}

/* Whether no L4 header of the protocol is known, so that only addresses can be translated. */
static __always_inline int is_generic(__u32 proto, __u32 family)
{
	return proto != IPPROTO_TCP && proto != IPPROTO_UDP && proto != (family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

static __always_inline __u32 flow_state(__u64 life, struct weir_tuple *t)
{
	__u32 seen = (life >> WEIR_SEEN_AT) & 0xff, acked = life & (WEIR_LIFE_ACKED_FIN * 3), proto = t->proto;

	if (weir_features & (WEIR_F_MAPPING | WEIR_F_EXPECT) && t->what)
		return t->what == WEIR_TUPLE_EXPECTED ? EXPECTATION : MAPPING;
	if (proto == IPPROTO_UDP)
		return seen >> WEIR_SEEN_REVERSE ? UDP_STREAM : UDP_UNREPLIED;
	if (proto != IPPROTO_TCP) {
		if (!is_generic(proto, t->family))
			return ICMP_QUERY;
		return seen >> WEIR_SEEN_REVERSE ? GENERIC : GENERIC_NEW;
	}
	if (seen & SEEN_BOTH(WEIR_SEEN_RST))
		return TCP_CLOSE;
	if ((seen & SEEN_BOTH(WEIR_SEEN_FIN)) == SEEN_BOTH(WEIR_SEEN_FIN))
		return acked == WEIR_LIFE_ACKED_FIN * 3 ? TCP_TIME_WAIT : TCP_LAST_ACK;
	if (seen & SEEN_BOTH(WEIR_SEEN_FIN))
		return acked ? TCP_CLOSE_WAIT : TCP_FIN_WAIT;
	if (!(seen >> WEIR_SEEN_REVERSE))
		return TCP_SYN_SENT;
	if ((seen & SEEN_BOTH(WEIR_SEEN_ACK)) == SEEN_BOTH(WEIR_SEEN_ACK))
		return TCP_ESTABLISHED;
	return TCP_SYN_RECV;
}

/*
 * The value, by way of memory: what the verifier knew of it is gone, so that paths which differ only in it are walked on as one. Without
 * this every state of a connection is walked through all that follows.
 */
static __always_inline __u32 forget(struct scratch *s, __u32 value)
{
	*(volatile __u32 *)&s->forgotten = value;
	return *(volatile __u32 *)&s->forgotten;
}

/* How long ago that was, by way of memory: see forget(). */
static __always_inline __u64 idle_time(struct scratch *s, __u64 then)
{
	__u64 t = flow_now(s);

	*(volatile __u64 *)&s->idle = t > then ? t - then : 0;
	return *(volatile __u64 *)&s->idle;
}

static __always_inline int older_than(struct scratch *s, __u64 then, __u64 timeout)
{
	return idle_time(s, then) > timeout;
}

/* Whether an established connection was idle for too long with retransmissions or data that nobody acknowledged. */
static __noinline int stalled(struct scratch *s, struct weir_flow *flow, __u64 life, __u64 idle)
{
	if ((life & WEIR_LIFE_RETRANS) == WEIR_LIFE_RETRANS && idle > weir_timeout[TCP_RETRANS])
		return 1;
	return !(life & WEIR_LIFE_INEXACT) && idle > weir_timeout[TCP_UNACK] &&
	       (AFTER(flow->side[0].end, flow->acked[1]) || AFTER(flow->side[1].end, flow->acked[0]));
}

/* Whether a live record is that of a dead connection. */
static __always_inline int flow_expired(struct scratch *s, struct weir_flow *flow, __u64 life)
{
	__u32 state = forget(s, flow_state(life, &flow->orig));
	__u64 timeout = weir_timeout[state & 31], idle = idle_time(s, flow->last_ns);

	if (flow->what & WEIR_FLOW_TIMEOUT &&
	    (state == TCP_ESTABLISHED || state == UDP_STREAM || state == ICMP_QUERY || state == GENERIC))
		timeout = flow->timeout_ns;
	if (idle > timeout)
		return 1;
	/* The line with the numbers is looked at only when it matters. */
	if (state != TCP_ESTABLISHED || weir_loose || (idle <= weir_timeout[TCP_RETRANS] && idle <= weir_timeout[TCP_UNACK]))
		return 0;
	return stalled(s, flow, life, idle);
}

/* Whether the record at a place is that of a dead connection. Its life may have changed since the caller looked: who claims it sees that. */
__noinline int expired_at(__u32 level, __u32 at)
{
	struct scratch *s = scratch_of(level);
	struct weir_flow *flow = bpf_map_lookup_elem(&flows, &at);

	return s && flow && flow_expired(s, flow, life_of(flow));
}

/* ---- tuples ---- */

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * WEIR_HASH_WORD;
	return hash ^ hash >> 32;
}

/* Tag and buckets of the tuple in `want`: the same for both directions. */
static __always_inline void locate(struct scratch *s)
{
	struct weir_tuple *t = &s->want;
	__u64 a = mix(weir_flow_seed, t->src[0]), b = mix(weir_flow_seed, t->dst[0]), hash;

	if (t->family == 6) {
		a = mix(a, t->src[1]);
		b = mix(b, t->dst[1]);
	}
	hash = mix(a, t->sport) + mix(b, t->dport);
	hash = mix(hash, t->proto | t->family << 8 | t->what << 16);
	s->tag = (hash >> 32) | 1;
	s->hash_first = hash;
	s->hash_second = mix(hash, WEIR_HASH_END);
}

/* A number below n. */
static __always_inline __u32 spread(__u32 hash, __u32 n)
{
	return ((__u64)hash * n) >> 32;
}

static __always_inline int same_tuple(struct weir_tuple *a, struct weir_tuple *b)
{
	return !((a->src[0] ^ b->src[0]) | (a->src[1] ^ b->src[1]) |
		 (a->dst[0] ^ b->dst[0]) | (a->dst[1] ^ b->dst[1]) |
		 (*(__u64 *)&a->sport ^ *(__u64 *)&b->sport));
}

static __always_inline int reversed_tuple(struct weir_tuple *a, struct weir_tuple *b)
{
	return !((a->src[0] ^ b->dst[0]) | (a->src[1] ^ b->dst[1]) |
		 (a->dst[0] ^ b->src[0]) | (a->dst[1] ^ b->src[1]) |
		 (__u64)(a->sport ^ b->dport) | (__u64)(a->dport ^ b->sport) |
		 (__u64)(a->proto ^ b->proto) | (__u64)(a->family ^ b->family) | (__u64)(a->what ^ b->what));
}

static __always_inline void set_addresses(struct weir_tuple *t, __u8 *ip4, __u8 *ip6)
{
	if (ip4) {
		t->src[0] = *(__u32 *)(ip4 + 12);
		t->src[1] = 0;
		t->dst[0] = *(__u32 *)(ip4 + 16);
		t->dst[1] = 0;
		t->family = 4;
		return;
	}
	t->src[0] = *(__u64 *)(ip6 + 8);
	t->src[1] = *(__u64 *)(ip6 + 16);
	t->dst[0] = *(__u64 *)(ip6 + 24);
	t->dst[1] = *(__u64 *)(ip6 + 32);
	t->family = 6;
}

/* The query that this type asks or answers, 0: neither. A type of 255 is no query either. */
static __always_inline __u32 query_type(__u32 proto, __u32 type, int *is_answer)
{
	*is_answer = 0;
	if (proto == IPPROTO_ICMPV6) {
		*is_answer = type == 129;
		return type == 128 || type == 129 ? 128 : 0;
	}
	*is_answer = type == 0 || type == 14;
	if (type == 8 || type == 0)
		return 8;
	return type == 13 || type == 14 ? 13 : 0;
}

/* Protocol and ports from the first 8 bytes of an L4 header. Returns 0 if it has no tuple. */
static __always_inline int set_ports(struct weir_tuple *t, __u32 proto, __u8 *l4, int *is_answer)
{
	__u16 id, query;

	t->proto = proto;
	t->what = WEIR_TUPLE_PACKET;
	*is_answer = 0;
	if (proto == IPPROTO_TCP || proto == IPPROTO_UDP) {
		t->sport = *(__u16 *)l4;
		t->dport = *(__u16 *)(l4 + 2);
		return 1;
	}
	query = bpf_htons(query_type(proto, l4[0], is_answer));
	if (!query)
		return 0;
	id = *(__u16 *)(l4 + 4);
	t->sport = *is_answer ? query : id;
	t->dport = *is_answer ? id : query;
	return 1;
}

/* The same of a protocol without a known L4 header, whose payload of `len` bytes begins at `at`: only SCTP has ports. */
static __always_inline void set_generic(struct weir_tuple *t, __u32 proto, __u8 *at, __u32 len)
{
	t->proto = proto;
	t->what = WEIR_TUPLE_PACKET;
	t->sport = 0;
	t->dport = 0;
	if (proto == IPPROTO_SCTP && len >= 8) {
		t->sport = *(__u16 *)at;
		t->dport = *(__u16 *)(at + 2);
	}
}

/* Whether the destination is a group of the interface or the link, to which no router sends on. */
static __always_inline int stays_on_link(struct weir_tuple *t)
{
	__u32 first = t->dst[0];

	if (t->family == 4)
		return (first & bpf_htonl(0xffffff00)) == bpf_htonl(0xe0000000);
	/* Any flags, scope 1 or 2. */
	first = bpf_ntohl(first) >> 16 & 0xff0f;
	return first == 0xff01 || first == 0xff02;
}

/* Whether an authentication header covers the packet's addresses. */
static __always_inline int is_authenticated(struct scratch *s)
{
	return s->key[0] & WEIR_V_EH_AH || (s->key[0] & WEIR_V_IP4 && s->l4_proto == IPPROTO_AH);
}

static __always_inline int is_icmp_error(__u64 valid, __u32 type)
{
	if (valid & WEIR_V_ICMP)
		return type == 3 || type == 11 || type == 12;
	return valid & WEIR_V_ICMP6 && type >= 1 && type <= 4;
}

/*
 * The tuple of the packet that an ICMP error quotes, to `want`. Returns 0 if there is none that could be
 * a connection's: the quote must have its IP header and 8 bytes more in the first WEIR_WINDOW_EH bytes of the frame.
 */
static __noinline int quoted_tuple(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 at = s->l4_payload, l4 = at, window = s->frame_len, proto;
	__u8 *ip = hdr_at(s, at);
	int is_answer;

	if (window > WEIR_WINDOW_EH)
		window = WEIR_WINDOW_EH;
	if (window > s->window) {
		s->window = window;
		opaque(window);
		window &= HDR_BYTES - 1;
		if (!window || ctx_load_head(w->ctx, s->hdr, window, HDR_BYTES))
			return 0;
	}
	s->quote_end = s->ip_end < s->window ? s->ip_end : s->window;
	if (s->key[0] & WEIR_V_IP4) {
		l4 += (ip[0] & 15) * 4;
		if (at + 20 > s->quote_end || ip[0] >> 4 != 4 || l4 < at + 20 || *(__u16 *)(ip + 6) & bpf_htons(0x1fff))
			return 0;
		proto = ip[9];
		set_addresses(&s->want, ip, 0);
	} else {
		l4 += 40;
		if (l4 > s->quote_end || ip[0] >> 4 != 6)
			return 0;
		proto = ip[6];
		if (is_extension(proto))
			return 0;
		set_addresses(&s->want, 0, ip);
	}
	if (l4 + 8 > s->quote_end)
		return 0;
	s->quote = at;
	s->quote_l4 = l4;
	if (is_generic(proto, s->want.family)) {
		set_generic(&s->want, proto, hdr_at(s, l4), 8);
		return 1;
	}
	return set_ports(&s->want, proto, hdr_at(s, l4), &is_answer);
}

/* The tuple of a packet without a known L4 header to `want`. */
__noinline int generic_tuple(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u8 *key;

	if (!s)
		return 0;
	key = (__u8 *)s->key;
	if (s->key[0] & WEIR_V_IP4)
		set_addresses(&s->want, key + WEIR_K_IP4, 0);
	else
		set_addresses(&s->want, 0, key + WEIR_K_IP6);
	if (stays_on_link(&s->want))
		return 0;
	set_generic(&s->want, s->l4_proto, hdr_at(s, s->ip_payload), s->ip_end - s->ip_payload);
	s->may_open = 1;
	return 1;
}

/* The packet's own tuple to `want`, or that of its quote. Says whether it may open a connection. Returns 0: no tuple. */
static __always_inline int packet_tuple(struct walk *w)
{
	struct scratch *s = w->s;
	__u64 valid = s->key[0];
	__u8 *key = (__u8 *)s->key, *l4 = key + WEIR_K_L4;
	int is_answer;

	if (!(valid & (WEIR_V_TCP | WEIR_V_UDP | WEIR_V_ICMP | WEIR_V_ICMP6))) {
		if (!(valid & (WEIR_V_IP4 | WEIR_V_IP6)))
			return 0;
		return generic_tuple(s->level);
	}
	if (valid & (WEIR_V_ICMP | WEIR_V_ICMP6) && is_icmp_error(valid, l4[0])) {
		if (valid & WEIR_V_FRAG)
			return 0;
		s->is_error = 1;
		return quoted_tuple(w);
	}
	if (valid & WEIR_V_IP4)
		set_addresses(&s->want, key + WEIR_K_IP4, 0);
	else
		set_addresses(&s->want, 0, key + WEIR_K_IP6);
	if (!set_ports(&s->want, s->l4_proto, l4, &is_answer))
		return 0;
	s->may_open = !is_answer;
	if (valid & WEIR_V_TCP) {
		__u32 flags = l4[13];

		if (flags & (TCP_FLAG_RST | TCP_FLAG_FIN) || (flags & TCP_FLAG_SYN && (flags & TCP_FLAG_ACK || valid & WEIR_V_FRAG)))
			s->may_open = 0;
		s->reopens = flags & TCP_FLAG_SYN && !(flags & TCP_FLAG_ACK);
	}
	return 1;
}

/* ---- lookup ---- */

/*
 * Whether the record at a place is that of `want`: found. `busy`: it will be, another CPU is writing it. `stale`: it was.
 * by_trans says which of its tuples is meant.
 */
__noinline int same_flow(__u32 level, __u32 at)
{
	struct scratch *s = scratch_of(level);
	struct weir_flow *flow = bpf_map_lookup_elem(&flows, &at);
	struct weir_tuple *tuple;
	__u32 kind = 0;
	__u64 life;

	if (!s || !flow || at + 1 == s->self)
		return 0;
	life = life_of(flow);
	barrier();
	tuple = &flow->orig;
	if (s->by_trans) {
		if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_FREE || !(flow->what & WEIR_FLOW_NAT))
			return 0;
		tuple = &flow->trans;
		kind = WEIR_TRANS_DIRECT;
	}
	if (!same_tuple(tuple, &s->want)) {
		if (!reversed_tuple(tuple, &s->want))
			return 0;
		kind |= 1;
	}
	if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_CLAIMED) {
		s->busy = 1;
		return 0;
	}
	/* A deleted one keeps its tag until its place is taken: passed over, three of them would hide the tuple's own record. */
	if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_FREE || flow_expired(s, flow, life))
		goto dead;
	if (s->reopens && !s->by_trans && flow->orig.proto == IPPROTO_TCP) {
		__u32 state = forget(s, flow_state(life, &flow->orig));

		if (state == TCP_LAST_ACK || state == TCP_TIME_WAIT || state == TCP_CLOSE)
			goto dead;
	}
	barrier();
	if (!SAME_LIFE(life, life_of(flow)))
		return 0;
	s->found = at + 1;
	s->found_kind = kind;
	return 1;
dead:
	/* A dead record of the tuple is the first choice for a new one: two would answer for it. */
	if (!s->by_trans) {
		s->stale = at + 1;
		s->stale_life = life;
	}
	return 0;
}

/* Looks for `want` among the ways of one bucket of the index by original tuple. */
static __noinline int search_bucket(struct scratch *s)
{
	__u32 at = s->bucket, tag = s->tag, k, n;
	struct weir_bucket *bucket = bpf_map_lookup_elem(&flow_index, &at);
	__u64 ways = 0;

	s->spilled = 0;
	if (!bucket)
		return 0;
	s->version = *(volatile __u32 *)&bucket->version;
	barrier();
#pragma unroll
	for (k = 0; k < WEIR_WAYS; k++) {
		/* Without a branch: 2^15 ways through this are more than the verifier walks. */
		__u64 differ = bucket->tag[k] ^ tag;

		opaque(differ);
		ways |= (differ - 1) >> 63 << k;
	}
	s->spilled = bucket->tag[WEIR_WAYS - 1] != 0;
	/* Of the same tag are the tuple's own record and dead ones of it, of which room is made first. */
	for (n = 0; n < 3 && ways; n++) {
		__u32 way = lowest_bit(ways);

		ways &= ways - 1;
		if (same_flow(s->level, at * WEIR_WAYS + way))
			return 1;
	}
	return 0;
}

/* The same in the index by translated tuple. */
static __noinline int search_nat_bucket(struct scratch *s)
{
	__u32 at = s->bucket, k;
	struct weir_nat_bucket *bucket = bpf_map_lookup_elem(&nat_index, &at);
	__u64 entry, tag = s->tag;

	s->spilled = 0;
	if (!bucket)
		return 0;
	s->nat_version = *(volatile __u32 *)&bucket->version;
	barrier();
	s->spilled = bucket->entry[WEIR_NAT_WAYS - 1] != 0;
#pragma unroll
	for (k = 0; k < WEIR_NAT_WAYS; k++) {
		entry = bucket->entry[k];
		if (entry >> 32 != tag)
			continue;
		if (same_flow(s->level, (__u32)entry - 1))
			return 1;
	}
	return 0;
}

int count_hits(__u32 level, __u32 step);

/* Looks for `want` by original tuple. `home` is its first bucket, home_version that bucket's version before the look. */
__noinline int search_orig(__u32 level)
{
	struct scratch *s = scratch_of(level);

	if (!s)
		return 0;
	s->by_trans = 0;
	s->bucket = spread(s->hash_first, weir_flow_buckets);
	s->home = s->bucket;
	if (search_bucket(s)) {
		s->home_version = s->version;
		return 1;
	}
	s->home_version = s->version;
	if (!s->spilled)
		return 0;
	s->bucket = spread(s->hash_second, weir_flow_buckets);
	return search_bucket(s);
}

/* The same by translated tuple. */
__noinline int search_trans(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 version;
	int found;

	if (!s)
		return 0;
	s->by_trans = 1;
	s->bucket = spread(s->hash_first, weir_nat_buckets);
	if (search_nat_bucket(s))
		return 1;
	if (!s->spilled)
		return 0;
	version = s->nat_version;
	s->bucket = spread(s->hash_second, weir_nat_buckets);
	found = search_nat_bucket(s);
	s->nat_version = version;
	return found;
}

/* Looks for `want` everywhere. */
static __always_inline int search(struct scratch *s)
{
	s->found = 0;
	s->busy = 0;
	s->stale = 0;
	if (search_orig(s->level))
		return 1;
	return weir_features & WEIR_F_NAT && search_trans(s->level);
}

/* Whether a packet of the direction is translated and accounted here (docs/semantics.md section 7, "Handled"). */
static __always_inline int is_handled(struct scratch *s, __u32 reverse)
{
	int transmits = s->f.what & WEIR_FLOW_TRANSMIT;

	if (!ctx_transmits())
		return reverse || !transmits;
	if (!reverse)
		return transmits;
	return !*(__u16 *)((__u8 *)s->key + WEIR_K_IN);
}

/* The rule of an id, if it has not been deleted; its place in `*at`. */
static __always_inline struct weir_rule *rule_of(struct scratch *s, __u32 id, __u32 *at)
{
	struct weir_rule_at *places;
	struct weir_rule *rule;
	__u32 index = id - 1, place;

	places = bpf_map_lookup_elem(&rule_at, &index);
	if (!places)
		return 0;
	place = places->place[s->live_half & 1];
	if (!place)
		return 0;
	*at = place - 1;
	rule = bpf_map_lookup_elem(&rules, at);
	if (!rule || s->generation >= rule->dead_from)
		return 0;
	return rule;
}

/* Whether any rule of the connection in scratch is still there: a connection ends with its last rule. */
static __always_inline int has_rules(struct scratch *s)
{
	__u32 k, at;

	if (rule_of(s, s->f.rule, &at))
		return 1;
	if (!(s->f.what & WEIR_FLOW_MORE))
		return 0;
#pragma unroll
	for (k = 0; k < WEIR_FLOW_RULES - 1; k++) {
		if (!s->f.more[k])
			break;
		if (rule_of(s, s->f.more[k], &at))
			return 1;
	}
	return 0;
}

/*
 * The packet belongs to the connection at `found`, its tuple (or its quote's) being that of found_kind. Works on a copy from here on:
 * the record may become another's at any time.
 */
__noinline int adopt(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 at, i, kind;
	struct weir_flow *flow;
	__u64 *to, *from, life;

	if (!s)
		return WEIR_R_internal;
	kind = s->found_kind;
	at = s->found - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return WEIR_R_internal;
	to = (__u64 *)&s->f;
	from = (__u64 *)flow;
	life = life_of(flow);
	barrier();
	/* Cache lines that the connection does not need stay where they are. */
#pragma unroll
	for (i = 1; i < FLOW_LINE; i++)
		to[i] = from[i];
	if (s->f.what & WEIR_FLOW_NAT || s->f.orig.proto == IPPROTO_TCP) {
#pragma unroll
		for (i = FLOW_LINE; i < 2 * FLOW_LINE; i++)
			to[i] = from[i];
	}
	s->f.seq_off = 0;
	s->f.ack_off = 0;
	if (weir_features & WEIR_F_TRANSLATE) {
		if (s->f.what & WEIR_FLOW_THIRD_LINE) {
			s->f.seq_off = flow->seq_off;
			s->f.ack_off = flow->ack_off;
			s->f.identity = flow->identity;
		}
		if (!(s->f.what & WEIR_FLOW_NAT))
			s->f.trans = s->f.orig;
	}
	if (s->f.what & WEIR_FLOW_MORE) {
#pragma unroll
		for (i = 0; i < WEIR_FLOW_RULES - 1; i++)
			s->f.more[i] = flow->more[i];
	}
	if (weir_features & WEIR_F_MAPPING && s->f.what & WEIR_FLOW_MAPPED) {
		s->f.mapping = flow->mapping;
		s->f.permission = flow->permission;
	}
	barrier();
	if ((life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || !SAME_LIFE(life, life_of(flow)))
		return WEIR_R_flow_busy;
	s->f.life = life;
	s->kind = kind;
	if (!has_rules(s)) {
		/* Nobody else would free it before its time. If its life changed meanwhile, somebody uses it. */
		__sync_val_compare_and_swap(&flow->life, life, (life & ~(__u64)WEIR_LIFE_MASK) | WEIR_LIFE_FREE);
		return PARSED;
	}
	s->flow = at + 1;
	s->may_open = 0;
	if (s->f.what & WEIR_FLOW_NAT) {
		/* A quote is translated where a packet in the other direction is. */
		int sent = kind == WEIR_TRANS_DIRECT || kind == WEIR_ORIG_REVERSED;

		if (sent != s->is_error) {
			/* On receive nothing has been translated yet: somebody else sent it. */
			if (!ctx_transmits())
				s->flow = 0;
			return PARSED;
		}
	}
	s->handled = is_handled(s, (kind & 1) ^ s->is_error);
	if (weir_features & WEIR_F_NAT && s->handled && s->f.what & WEIR_FLOW_NAT && is_authenticated(s))
		return WEIR_R_nat_protocol;
	return PARSED;
}

/* ---- fragments ---- */

/* Key of the packet's datagram in scratch; returns the first place of its bucket. */
static __always_inline __u32 fragment_key(struct scratch *s)
{
	__u8 *key = (__u8 *)s->key;
	struct weir_frag *frag = &s->frag;
	struct weir_tuple *t = &s->want;
	__u64 hash;

	if (s->key[0] & WEIR_V_IP4) {
		set_addresses(t, key + WEIR_K_IP4, 0);
		frag->id = *(__u16 *)(key + WEIR_K_IP4 + 4);
		frag->proto = key[WEIR_K_IP4 + 9];
	} else {
		set_addresses(t, 0, key + WEIR_K_IP6);
		frag->id = *(__u32 *)(key + WEIR_K_FRAG6 + 4);
		frag->proto = 0;
	}
	frag->family = t->family;
	frag->src[0] = t->src[0];
	frag->src[1] = t->src[1];
	frag->dst[0] = t->dst[0];
	frag->dst[1] = t->dst[1];
	hash = mix(mix(weir_flow_seed, frag->src[0]), frag->src[1]);
	hash = mix(mix(hash, frag->dst[0]), frag->dst[1]);
	hash = mix(hash, (__u64)frag->id << 16 | frag->proto << 8 | frag->family);
	s->frag_hash = hash;
	return spread(hash, weir_frag_buckets) * WEIR_FRAG_WAYS;
}

static __always_inline int same_fragment(struct weir_frag *a, struct weir_frag *b)
{
	return !((a->src[0] ^ b->src[0]) | (a->src[1] ^ b->src[1]) |
		 (a->dst[0] ^ b->dst[0]) | (a->dst[1] ^ b->dst[1]) |
		 (__u64)(a->id ^ b->id) | (__u64)(a->proto ^ b->proto) | (__u64)(a->family ^ b->family));
}

/* Where the data of a later fragment lies in its datagram, in units of 8 bytes. */
static __always_inline __u32 fragment_offset(struct scratch *s)
{
	__u8 *key = (__u8 *)s->key;

	if (s->key[0] & WEIR_V_IP4)
		return bpf_ntohs(*(__be16 *)(key + WEIR_K_IP4 + 6)) & 0x1fff;
	return bpf_ntohs(*(__be16 *)(key + WEIR_K_FRAG6 + 2)) >> 3;
}

/* Where the data of a first fragment end, in the same units. */
static __always_inline __u32 first_fragment_end(struct scratch *s)
{
	__u32 start = s->key[0] & WEIR_V_IP4 ? s->ip_payload : s->frag_data;

	return (s->ip_end - start + 7) >> 3;
}

/* What the first fragment of a later one belonged to. */
__noinline int recall_fragment(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 first, k, at, place = 0, end = 0;
	struct weir_frag *frag = 0;
	struct weir_flow *flow;
	__u64 lock = 0, then = 0, life, sequence = 0;

	if (!s)
		return WEIR_R_internal;
	first = fragment_key(s);
#pragma unroll
	for (k = 0; k < WEIR_FRAG_WAYS; k++) {
		at = first + k;
		frag = bpf_map_lookup_elem(&frags, &at);
		if (!frag)
			return WEIR_R_internal;
		lock = *(volatile __u64 *)&frag->lock;
		if (!lock || lock & 1 || !same_fragment(frag, &s->frag))
			continue;
		barrier();
		then = frag->at_ns;
		place = frag->flow;
		sequence = frag->flow_seq;
		s->found_kind = frag->kind & ((1 << WEIR_FRAG_END_AT) - 1);
		end = frag->kind >> WEIR_FRAG_END_AT;
		barrier();
		if (lock == *(volatile __u64 *)&frag->lock)
			goto remembered;
	}
	s->frag_early = 1;
	return WEIR_R_frag_before_first;
remembered:
	if (older_than(s, then, weir_timeout[FRAGMENT])) {
		s->frag_early = 1;
		return WEIR_R_frag_before_first;
	}
	if (fragment_offset(s) < end)
		return WEIR_R_frag_overlap;
	if (!place)
		return PARSED;
	at = place - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return WEIR_R_internal;
	life = life_of(flow);
	if (SEQUENCE_OF(life) != sequence || (life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || expired_at(s->level, at))
		return WEIR_R_frag_before_first;
	s->found = place;
	return adopt(s->level);
}

/* Remembers a first fragment that passed. When another CPU writes the same entry, that one is kept. */
__noinline int remember_fragment(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 first, k, at, best;
	struct weir_frag *frag;
	__u64 lock, oldest = ~0ULL;

	if (!s)
		return 0;
	first = fragment_key(s);
	best = first;
#pragma unroll
	for (k = 0; k < WEIR_FRAG_WAYS; k++) {
		__u64 age;

		at = first + k;
		frag = bpf_map_lookup_elem(&frags, &at);
		if (!frag)
			return 0;
		age = frag->at_ns + 1;
		if (!frag->lock || older_than(s, frag->at_ns, weir_timeout[FRAGMENT]))
			age = 1;
		else if (same_fragment(frag, &s->frag))
			age = 0;
		if (age < oldest) {
			oldest = age;
			best = at;
		}
	}
	frag = bpf_map_lookup_elem(&frags, &best);
	if (!frag)
		return 0;
	lock = *(volatile __u64 *)&frag->lock;
	if (lock & 1 || __sync_val_compare_and_swap(&frag->lock, lock, lock + 1) != lock)
		return 0;
	barrier();
	frag->at_ns = flow_now(s);
	frag->src[0] = s->frag.src[0];
	frag->src[1] = s->frag.src[1];
	frag->dst[0] = s->frag.dst[0];
	frag->dst[1] = s->frag.dst[1];
	frag->id = s->frag.id;
	frag->proto = s->frag.proto;
	frag->family = s->frag.family;
	frag->kind = s->kind | first_fragment_end(s) << WEIR_FRAG_END_AT;
	frag->flow = s->flow;
	frag->flow_seq = SEQUENCE_OF(s->f.life);
	/* A full barrier: what is looked for in `held` after this is not read before it (hold.h). */
	__sync_val_compare_and_swap(&frag->lock, lock + 1, lock + 2);
	return 0;
}

#include "segment.h"
#include "hold.h"

#include "mapping.h"
#include "expect.h"

/* ---- a packet's way through ---- */

/* The connection of a packet that was parsed. Returns PARSED or the reason to drop it. */
static __always_inline int find_connection(struct walk *w)
{
	struct scratch *s = w->s;
	int reason;

	if (s->key[0] & WEIR_V_FRAG_LATER)
		return recall_fragment(s->level);
	if (!packet_tuple(w)) {
		s->may_open = 0;
		s->is_error = HAS_NO_TUPLE;
		return PARSED;
	}
	locate(s);
	if (!search(s)) {
		if (weir_features & (WEIR_F_MAPPING | WEIR_F_EXPECT) && s->may_open)
			find_record(s);
		return PARSED;
	}
	reason = adopt(s->level);
	if (reason == PARSED && s->flow && s->handled && s->f.orig.proto == IPPROTO_TCP)
		reason = s->is_error ? judge_quote(s->level) : judge_segment(s->level);
	return reason;
}

/* What the packet has to do with connections, once that is known. */
static __always_inline __u32 ct_state(struct scratch *s)
{
	if (!(s->key[0] & (WEIR_V_IP4 | WEIR_V_IP6)))
		return 0;
	if (s->flow) {
		if (s->is_error)
			return WEIR_CT_RELATED;
		/* A reset answers nothing: it marks itself only. */
		if (s->kind & 1 || s->f.life >> (WEIR_SEEN_AT + WEIR_SEEN_REVERSE) & WEIR_SEEN_ANY)
			return WEIR_CT_ESTABLISHED;
		return weir_features & WEIR_F_EXPECT && s->f.what & WEIR_FLOW_EXPECTED ? WEIR_CT_RELATED : WEIR_CT_NEW;
	}
	if (weir_features & WEIR_F_EXPECT && s->by_mapping == BY_EXPECTATION)
		return WEIR_CT_RELATED;
	if (s->may_open)
		return WEIR_CT_NEW;
	return s->is_error == HAS_NO_TUPLE || s->key[0] & WEIR_V_FRAG_LATER ? WEIR_CT_UNTRACKED : WEIR_CT_INVALID;
}

/* A rule of the packet's connection. */
static long flow_rule(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_rule *rule;
	__u32 k = i, at, id, requires;

	id = s->f.rule;
	if (k) {
		k--;
		opaque(k);
		if (!(s->f.what & WEIR_FLOW_MORE) || k >= WEIR_FLOW_RULES - 1)
			return 1;
		id = s->f.more[k];
		if (!id)
			return 1;
	}
	rule = rule_of(s, id, &at);
	if (!rule)
		return 0;
	requires = rule->flags >> WEIR_RULE_REQUIRES;
	/* What is beyond the low bits are no header classes. */
	if (!s->handled || s->is_error || (s->key[0] & requires) != requires)
		at |= HIT_LOGS_ONLY;
	matched(s, rule, at);
	return 0;
}

/* The rules of the packet's connection match. */
static __always_inline void match_flow_rules(struct walk *w)
{
	w->s->of_flow = 1;
	bpf_loop(WEIR_FLOW_RULES, flow_rule, w, 0);
}

/* The count of retransmissions in a row; one that another CPU's change overtakes is not counted, the next one is. */
static __always_inline void count_retransmission(struct scratch *s, struct weir_flow *flow)
{
	__u64 life = life_of(flow), want = life;

	if (!SAME_LIFE(life, s->f.life))
		return;
	if (s->segment_count == COUNT_NONE)
		want &= ~(__u64)WEIR_LIFE_RETRANS;
	else if ((life & WEIR_LIFE_RETRANS) != WEIR_LIFE_RETRANS)
		want += WEIR_LIFE_RETRANS_ONE;
	if (want != life)
		__sync_val_compare_and_swap(&flow->life, life, want);
}

/* A handled packet of a connection passed: marks what it showed of its side, and moves the window with it. */
__noinline int refresh(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u64 seen = WEIR_SEEN_ANY, life, have;
	struct weir_flow *flow;
	__u32 at, i;

	if (!s)
		return 0;
	/* In this function, which the kernel verifies separately: in process() it made programs without the feature cost half as much again. */
	if (weir_features & WEIR_F_COUNT && s->flow == s->self)
		count_hits(level, COUNT_WRITES);
	at = s->flow - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return 0;
	if (s->f.orig.proto == IPPROTO_TCP) {
		if (s->segment == SEGMENT_IDLE)
			return 0;
		life = life_of(flow);
		if (!SAME_LIFE(life, s->f.life))
			return 0;
		if (s->segment == SEGMENT_SYN || s->segment == SEGMENT_SYN_ACK) {
			keep_handshake(s, flow);
			return 0;
		}
		if (s->segment == SEGMENT_RESTARTS) {
			restart(s, flow, life);
			goto passed;
		}
		move_window(s, flow, life);
		seen = s->segment_seen;
	}
	if (weir_features & WEIR_F_MAPPING && s->f.what & WEIR_FLOW_MAPPED)
		keep_mapping(s);
	seen <<= WEIR_SEEN_AT + (s->kind & 1 ? WEIR_SEEN_REVERSE : 0);
	seen |= s->segment_life;
	life = life_of(flow);
	/* Bits are added 20 times at most in a record's life, so another CPU cannot win forever. */
#pragma unroll
	for (i = 0; i < 8; i++) {
		if (!SAME_LIFE(life, s->f.life))
			return 0;
		if ((life & seen) == seen)
			break;
		have = __sync_val_compare_and_swap(&flow->life, life, life | seen);
		if (have == life)
			break;
		life = have;
	}
	if (s->segment_count)
		count_retransmission(s, flow);
passed:
	if (flow_now(s) > flow->last_ns)
		flow->last_ns = flow_now(s);
	return 0;
}

/* The packet passes: what it leaves in the tables. */
static __always_inline void keep_state(struct walk *w)
{
	struct scratch *s = w->s;

	if (s->flow && s->handled && !s->is_error)
		refresh(s->level);
	if (s->key[0] & WEIR_V_FRAG_FIRST) {
		remember_fragment(s->level);
#ifdef WEIR_HOLDS
		if (can_hold())
			release_fragments(w);
#endif
	}
}

#endif
