/* One program of each kind, several in one section, many data sections, weak and missing symbols of the kernel. */
#include "bpf.h"

#define __weak __attribute__((weak))
#define IN(name) __attribute__((section(name)))

extern int CONFIG_SOMETHING __weak IN(".kconfig");
extern u64 CONFIG_OTHER __weak IN(".kconfig");
extern int CONFIG_STRONG IN(".kconfig");
extern const int kernel_variable __weak IN(".ksyms");
extern int kernel_function(int x) __weak IN(".ksyms");

u32 zeroed;
u32 set = 3;
u32 own_bss SEC(".bss.own");
u32 own_data SEC(".data.own") = 4;
const volatile u32 own_rodata SEC(".rodata.own") = 5;

SEC("xdp")
int device(struct xdp_md *ctx)
{
	zeroed += 1;
	own_bss += 2;
	own_data += own_rodata;
	return XDP_PASS;
}

SEC("xdp")
int device_too(struct xdp_md *ctx)
{
	return XDP_DROP;
}

__noinline int shared(int x)
{
	set += x;
	return set;
}

SEC("xdp.frags")
int frags(struct xdp_md *ctx)
{
	return shared(1);
}

SEC("xdp/devmap")
int devmap_program(struct xdp_md *ctx)
{
	return ctx->egress_ifindex;
}

SEC("xdp.frags/cpumap")
int cpumap_program(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int weak_symbols(struct xdp_md *ctx)
{
	if (CONFIG_SOMETHING || CONFIG_OTHER || &kernel_variable)
		return XDP_ABORTED;
	if (kernel_function)
		return kernel_function(1);
	return XDP_TX;
}

SEC("xdp")
int strong_symbol(struct xdp_md *ctx)
{
	return CONFIG_STRONG ? XDP_PASS : XDP_DROP;
}

struct {
	__uint(type, DEVMAP);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 8);
} devices SEC(".maps");

struct {
	__uint(type, CPUMAP);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 8);
} cpus SEC(".maps");

SEC("xdp")
int sends(struct xdp_md *ctx)
{
	return redirect_map(&devices, 1, XDP_DROP);
}

SEC("fentry/func")
int traced(void *ctx)
{
	return 0;
}
