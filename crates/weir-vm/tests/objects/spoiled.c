/* Programs of one section, most of them with something that weir does not understand. No compiler emits the raw instructions. */
#define NO_RESULTS
#include "bpf.h"

struct bpf_timer {
    u64 hidden[2];
} __attribute__((aligned(8)));

struct with_timer {
    u64 count;
    struct bpf_timer timer;
};

struct {
    __uint(type, 2);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct with_timer);
} timers SEC(".maps");

struct {
    __uint(type, 20);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u32);
} sockets SEC(".maps");

struct {
    __uint(type, 2);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u64);
} counters SEC(".maps");

/* One raw instruction. */
#define RAW(bits) asm volatile(".quad " #bits ::: "r0", "r1", "r2", "memory")

SEC("xdp")
int counts(struct xdp_md *ctx)
{
    u32 zero = 0;
    u64 *count = map_lookup_elem(&counters, &zero);
    if (count)
        *count += 1;
    return 2;
}

SEC("xdp")
int has_timer(struct xdp_md *ctx)
{
    u32 zero = 0;
    struct with_timer *value = map_lookup_elem(&timers, &zero);
    if (value)
        value->count += 1;
    return 2;
}

SEC("xdp")
int has_sockets(struct xdp_md *ctx)
{
    return redirect_map(&sockets, 0, 2);
}

SEC("xdp")
int opcode(struct xdp_md *ctx)
{
    RAW(0x00000000000000ff);
    return 2;
}

SEC("xdp")
int opcode_on_no_path(struct xdp_md *ctx)
{
    asm volatile("r0 = 1\n"
                 "if r0 == 1 goto +1\n"
                 ".quad 0x00000000000000ff" ::: "r0");
    return 2;
}

SEC("xdp")
int register_12(struct xdp_md *ctx)
{
    RAW(0x0000000000000cb7);
    return 2;
}

SEC("xdp")
int classic_load(struct xdp_md *ctx)
{
    RAW(0x0000000000000030);
    return 2;
}

SEC("xdp")
int jumps_out(struct xdp_md *ctx)
{
    RAW(0x000000007fff0005);
    return 2;
}

SEC("xdp")
int half_a_load(struct xdp_md *ctx)
{
    RAW(0x0000000000000018);
    return 2;
}

SEC("xdp")
int no_map(struct xdp_md *ctx)
{
    asm volatile(".quad 0x0000000000001118\n"
                 ".quad 0x0000000000000000" ::: "r1");
    return 2;
}

static __noinline int bad(int n)
{
    RAW(0x00000000000000ff);
    return n + 1;
}

static __noinline int good(int n)
{
    asm volatile("" : "+r"(n));
    return n + 1;
}

SEC("xdp")
int calls_bad(struct xdp_md *ctx)
{
    return bad(ctx->rx_queue_index);
}

SEC("xdp")
int adds(struct xdp_md *ctx)
{
    return good(1);
}

