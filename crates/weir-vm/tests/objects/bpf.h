/* Declarations the test objects need; written here so that no eBPF headers have to be installed. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define __noinline __attribute__((noinline))
#define __always_inline inline __attribute__((always_inline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };
enum { HASH = 1, ARRAY, PROG_ARRAY, PERCPU_HASH = 5, PERCPU_ARRAY, LRU_HASH = 9, LPM_TRIE = 11, ARRAY_OF_MAPS,
       HASH_OF_MAPS, DEVMAP, CPUMAP = 16, XSKMAP, DEVMAP_HASH = 25, RINGBUF = 27, PERF_EVENT_ARRAY = 4, LRU_PERCPU_HASH = 10,
       QUEUE = 22, STACK = 23, BLOOM_FILTER = 30 };

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

struct bpf_spin_lock {
	u32 val;
};

static void *(*map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static long (*trace_printk)(const char *fmt, u32 size, ...) = (void *)6;
static u32 (*get_prandom_u32)(void) = (void *)7;
static long (*tail_call)(void *ctx, void *map, u32 index) = (void *)12;
static long (*redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*perf_event_output)(void *ctx, void *map, u64 flags, void *data, u64 size) = (void *)25;
static s64 (*csum_diff)(u32 *from, u32 from_size, u32 *to, u32 to_size, u32 seed) = (void *)28;
static long (*xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*xdp_adjust_meta)(struct xdp_md *ctx, int delta) = (void *)54;
static long (*xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*fib_lookup)(void *ctx, void *params, int len, u32 flags) = (void *)69;
static long (*get_current_comm)(void *to, u32 size) = (void *)16;
static long (*map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*map_pop_elem)(void *map, void *value) = (void *)88;
static long (*map_peek_elem)(void *map, void *value) = (void *)89;
static long (*spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static long (*strtol_)(const char *buf, u64 len, u64 flags, s64 *res) = (void *)105;
static long (*strtoul_)(const char *buf, u64 len, u64 flags, u64 *res) = (void *)106;
static long (*ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*ringbuf_discard)(void *data, u64 flags) = (void *)133;
static u64 (*ringbuf_query)(void *ring, u64 flags) = (void *)134;
static long (*check_mtu)(void *ctx, u32 ifindex, u32 *mtu_len, s32 len_diff, u64 flags) = (void *)163;
static long (*for_each_map_elem)(void *map, void *callback, void *ctx, u64 flags) = (void *)164;
static long (*snprintf_)(char *str, u32 size, const char *fmt, u64 *data, u32 data_len) = (void *)165;
static long (*loop)(u32 count, void *callback, void *ctx, u64 flags) = (void *)181;
static long (*strncmp_)(const char *s1, u32 size, const char *s2) = (void *)182;
static void *(*map_lookup_percpu_elem)(void *map, const void *key, u32 cpu) = (void *)195;
static u64 (*xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188;
static long (*xdp_load_bytes)(struct xdp_md *ctx, u32 offset, void *buf, u32 len) = (void *)189;
static long (*xdp_store_bytes)(struct xdp_md *ctx, u32 offset, void *buf, u32 len) = (void *)190;

#ifndef LICENSE
#define LICENSE "Dual BSD/GPL"
#endif
char _license[] SEC("license") = LICENSE;

#ifndef NO_RESULTS
/* Results go out through this map: slot -> 64-bit value. */
struct {
	__uint(type, ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} results SEC(".maps");

static __always_inline void result(u32 slot, u64 value)
{
	map_update_elem(&results, &slot, &value, 0);
}
#endif
