/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A router's own tables: the longest prefix that holds an address
 * (docs/design/router.md). The first 24 or 16 bits of an address are an index; where longer prefixes lie below, nodes of 8 bits follow.
 *
 * User space writes single words while packets read: every word is a complete answer at any time.
 */
#ifndef WEIR_ROUTES_H
#define WEIR_ROUTES_H

struct route_words {
	__u32 word[WEIR_RT_CHUNK];
};

/* The first 24 bits of IPv4: 256 elements; or its first 16: one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_words);
} root4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_words);
} root6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_words);
} nodes SEC(".maps");

/* Where routes are counted: what each of them leads to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_words);
} targets SEC(".maps");

/* For who edits the tables. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_next_hop);
} next_hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_group);
} groups SEC(".maps");

/* By next hop. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_near);
} nears SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_counter);
} hop_counts SEC(".maps");

/* By number of the route. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_counter);
} route_counts SEC(".maps");

static __always_inline __u32 words_at(void *map, __u32 element, __u32 at)
{
	struct route_words *words = bpf_map_lookup_elem(map, &element);

	opaque(at);
	return words ? words->word[at & (WEIR_RT_CHUNK - 1)] : 0;
}

/* The word of a node for the next 8 bits of an address. */
static __always_inline __u32 node_at(__u32 word, __u32 byte)
{
	__u32 node = word & WEIR_RT_NUMBER;

	return words_at(&nodes, node >> 8, (node & 255) << 8 | (byte & 255));
}

/* `address` in host order. */
static __always_inline __u32 find_route4(__u32 address)
{
	__u32 word;

	if (does(WEIR_RF_WIDE)) {
		word = words_at(&root4, address >> 24, address >> 8);
	} else {
		word = words_at(&root4, 0, address >> 16);
		if (word & WEIR_RT_DEEPER)
			word = node_at(word, address >> 8);
	}
	if (word & WEIR_RT_DEEPER)
		word = node_at(word, address);
	return word;
}

/* Goes on by the low 16 bits of `here`. */
static __always_inline __u32 find_by_16(__u32 word, __u32 here)
{
	if (word & WEIR_RT_DEEPER)
		word = node_at(word, here >> 8);
	if (word & WEIR_RT_DEEPER)
		word = node_at(word, here);
	return word;
}

/* `address` as in packets. */
static __always_inline __u32 find_route6(__u32 *address)
{
	__u32 here = bpf_ntohl(address[0]), word = words_at(&root6, 0, here >> 16), i;

	word = find_by_16(word, here);
#pragma unroll
	for (i = 1; i < 4; i++) {
		if (word & WEIR_RT_DEEPER) {
			here = bpf_ntohl(address[i]);
			word = find_by_16(find_by_16(word, here >> 16), here);
		}
	}
	return word;
}

#endif
