/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which service a packet is for: an exact address, protocol and port first, then the address with any port, then
 * prefixes, the longest first. What the configuration does not have is not looked for. And, of NAT services, which service a packet of
 * a server is from.
 */
#ifndef WEIR_SERVICES_H
#define WEIR_SERVICES_H

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct weir_lb_key);
	__type(value, struct weir_lb_service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct weir_lb_prefix);
	__type(value, struct weir_lb_service);
} service_prefixes SEC(".maps");

/* By address and port of a server. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct weir_lb_key);
	__type(value, struct weir_lb_back);
} backs SEC(".maps");

/* Not inlined: few ask it, and its stack is its own. */
static __noinline struct weir_lb_service *service_by_prefix(struct weir_lb_key *key)
{
	struct weir_lb_prefix prefix = {};
	struct weir_lb_service *service;

	prefix.protocol = key->protocol;
	prefix.family = key->family;
	prefix.port = bpf_htons(key->port);
	if (key->family == 6) {
		prefix.bits = 32 + 128;
		*(__u32 *)prefix.address = bpf_htonl(key->high >> 32);
		*(__u32 *)(prefix.address + 4) = bpf_htonl((__u32)key->high);
		*(__u32 *)(prefix.address + 8) = bpf_htonl(key->low >> 32);
		*(__u32 *)(prefix.address + 12) = bpf_htonl((__u32)key->low);
	} else {
		prefix.bits = 32 + 32;
		*(__u32 *)prefix.address = bpf_htonl((__u32)key->low);
	}
	service = bpf_map_lookup_elem(&service_prefixes, &prefix);
	if (service || !key->port)
		return service;
	prefix.port = 0;
	return bpf_map_lookup_elem(&service_prefixes, &prefix);
}

static __always_inline struct weir_lb_service *service_find(struct weir_lb_key *key)
{
	struct weir_lb_service *service = bpf_map_lookup_elem(&services, key);
	__u16 port = key->port;

	if (service)
		return service;
	if (lb_has(WEIR_LB_F_ANY_PORT) && port) {
		key->port = 0;
		service = bpf_map_lookup_elem(&services, key);
		key->port = port;
		if (service)
			return service;
	}
	return lb_has(WEIR_LB_F_PREFIX) ? service_by_prefix(key) : 0;
}

static __always_inline struct weir_lb_back *service_back(struct weir_lb_key *key)
{
	struct weir_lb_back *back = bpf_map_lookup_elem(&backs, key);
	__u16 port = key->port;

	if (back || !port)
		return back;
	key->port = 0;
	back = bpf_map_lookup_elem(&backs, key);
	key->port = port;
	return back;
}

#endif
