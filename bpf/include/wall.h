/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a packet came in, as rules test it: `hour` and `day`, in the time zone of the policy. Read once a packet, by policies that
 * name them only (WEIR_F_CLOCK). Needs the map replay of marks.h.
 *
 * TAI follows every step of the host's clock, without a control program. It differs from UTC by whole seconds that the kernel knows
 * and programs do not: the control program writes them into the map. docs/design/middlebox.md has what was rejected.
 */
#ifndef WEIR_WALL_H
#define WEIR_WALL_H

#define SECOND_NS	1000000000ULL
#define DAY_S		86400
#define FIRST_DAY	4	/* 1 January 1970 was a Thursday */

const volatile __u32 weir_zone = 0;	/* seconds that the policy's time is ahead of UTC, below a week */

/* Seconds that TAI is ahead of UTC. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tai SEC(".maps");

static __noinline int load_clock(struct walk *w)
{
	struct scratch *s;
	__u32 zero = 0;
	__u64 seconds, days;

	if (!w || !w->s)
		return 0;
	s = w->s;
	if (weir_replay) {
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		seconds = given ? given->wall_ns / SECOND_NS : 0;
	} else {
		__u32 *ahead = bpf_map_lookup_elem(&tai, &zero);

		seconds = bpf_ktime_get_tai_ns() / SECOND_NS - (ahead ? *(volatile __u32 *)ahead : 0);
	}
	seconds += weir_zone;
	days = seconds / DAY_S;
	s->key[WEIR_K_CLOCK / 8] = bpf_htonl(seconds - days * DAY_S) | (__u64)bpf_htons((days + FIRST_DAY) % 7) << 32;
	return 0;
}

#endif
