/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What time it is, to a tick of the kernel, for functions that need it no better; in a replay, the time of the packet.
 * Needs the constant weir_replay.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_replay);
} replay SEC(".maps");

static __always_inline __u64 clock_ns(void)
{
	__u32 zero = 0;

	if (weir_replay) {
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		return given ? given->now_ns : 0;
	}
	return bpf_ktime_get_coarse_ns();
}

#endif
