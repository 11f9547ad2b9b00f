/* Programs that call kernel functions and use dynptrs and kernel objects. What is named no_RULE_... breaks that rule, the
 * rest is accepted. The structs are those of the kernel as far as the programs need them. */
#define NO_RESULTS
#include "bpf.h"

#define __ksym __attribute__((section(".ksyms")))
#define __weak __attribute__((weak))
#define preserved __attribute__((preserve_access_index))

struct bpf_dynptr {
	u64 opaque[2];
};
struct sock_common {
	u32 skc_hash;
} preserved;
struct task_struct {
	int pid, tgid;
	struct task_struct *group_leader;
} preserved;
struct nf_conn {
	u64 status;
} preserved;
struct bpf_sock_tuple {
	u32 words[9];
};
struct bpf_ct_opts {
	s32 netns_id, error;
	u8 l4proto, dir, reserved[2];
};
struct bpf_key {
	u32 has_ref;
} preserved;
struct bpf_wq {
	u64 opaque[2];
};
struct __sk_buff {
	u32 len, pkt_type, mark;
};

extern int bpf_dynptr_from_xdp(struct xdp_md *x, u64 flags, struct bpf_dynptr *ptr__uninit) __ksym;
extern int bpf_dynptr_from_skb(struct __sk_buff *s, u64 flags, struct bpf_dynptr *ptr__uninit) __ksym;
extern void *bpf_dynptr_slice(const struct bpf_dynptr *p, u64 offset, void *buffer__opt, u64 buffer__szk) __ksym;
extern void *bpf_dynptr_slice_rdwr(const struct bpf_dynptr *p, u64 offset, void *buffer__opt, u64 buffer__szk) __ksym;
extern int bpf_dynptr_adjust(const struct bpf_dynptr *p, u64 start, u64 end) __ksym;
extern u64 bpf_dynptr_size(const struct bpf_dynptr *p) __ksym;
extern int bpf_dynptr_clone(const struct bpf_dynptr *p, struct bpf_dynptr *clone__uninit) __ksym;
extern _Bool bpf_dynptr_is_null(const struct bpf_dynptr *p) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_preempt_disable(void) __ksym;
extern void bpf_preempt_enable(void) __ksym;
extern void bpf_throw(u64 cookie) __ksym;
extern void *bpf_rdonly_cast(const void *obj__ign, u32 btf_id__k) __ksym;
extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *xdp_ctx, struct bpf_sock_tuple *bpf_tuple, u32 tuple__sz,
					 struct bpf_ct_opts *opts, u32 opts__sz) __ksym;
extern void bpf_ct_release(struct nf_conn *nfct) __ksym;
extern struct bpf_key *bpf_lookup_user_key(s32 serial, u64 flags) __ksym;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym;

static struct task_struct *(*get_current_task_btf)(void) = (void *)158;
static long (*dynptr_from_mem)(void *data, u32 size, u64 flags, struct bpf_dynptr *ptr) = (void *)197;
static long (*ringbuf_reserve_dynptr)(void *ring, u32 size, u64 flags, struct bpf_dynptr *ptr) = (void *)198;
static void (*ringbuf_submit_dynptr)(struct bpf_dynptr *ptr, u64 flags) = (void *)199;
static void (*ringbuf_discard_dynptr)(struct bpf_dynptr *ptr, u64 flags) = (void *)200;
static long (*dynptr_read)(void *dst, u32 len, const struct bpf_dynptr *src, u32 offset, u64 flags) = (void *)201;
static long (*dynptr_write)(const struct bpf_dynptr *dst, u32 offset, void *src, u32 len, u64 flags) = (void *)202;
static void *(*dynptr_data)(const struct bpf_dynptr *ptr, u32 offset, u32 len) = (void *)203;

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct sixteen {
	u64 words[2];
};

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sixteen);
} values SEC(".maps");

/* The source address of an IPv4 packet, or where the packet is shorter 1. */
SEC("xdp")
int slices_the_packet(struct xdp_md *ctx)
{
	struct bpf_dynptr packet;
	u32 copy, *source;

	if (bpf_dynptr_from_xdp(ctx, 0, &packet))
		return 0;
	source = bpf_dynptr_slice(&packet, 26, &copy, sizeof(copy));
	return source ? *source : 1;
}

/* Writes through a slice, reads it back by another dynptr that begins behind the Ethernet header; also by the pointer. */
SEC("xdp")
int writes_the_packet(struct xdp_md *ctx)
{
	struct bpf_dynptr packet, inner;
	u8 *first, read = 0;

	bpf_dynptr_from_xdp(ctx, 0, &packet);
	first = bpf_dynptr_slice_rdwr(&packet, 14, 0, 4);
	if (!first)
		return 1;
	*first = 77;
	if (bpf_dynptr_clone(&packet, &inner) || bpf_dynptr_adjust(&inner, 14, 40))
		return 2;
	if (dynptr_read(&read, 1, &inner, 0, 0))
		return 3;
	if (dynptr_write(&inner, 26, &read, 1, 0) != -7)
		return 4;
	return read + bpf_dynptr_size(&inner);
}

SEC("xdp")
int dynptr_of_a_value(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u32 key = 0, *word;
	struct sixteen *value = map_lookup_elem(&values, &key);
	u64 number = 40;

	if (!value)
		return 0;
	if (dynptr_from_mem(value, 16, 0, &p))
		return 1;
	if (dynptr_write(&p, 8, &number, 8, 0))
		return 2;
	word = dynptr_data(&p, 8, 4);
	if (!word)
		return 3;
	return *word + 2;
}

SEC("xdp")
int record_of_any_size(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u32 word = ctx->rx_queue_index, *there;

	if (ringbuf_reserve_dynptr(&ring, 8 + (word & 8), 0, &p)) {
		ringbuf_discard_dynptr(&p, 0);
		return 1;
	}
	dynptr_write(&p, 0, &word, 4, 0);
	there = dynptr_data(&p, 0, 4);
	if (there)
		*there = 5;
	ringbuf_submit_dynptr(&p, 0);
	return 2;
}

__noinline int size_of(const struct bpf_dynptr *p)
{
	return bpf_dynptr_size(p);
}

SEC("xdp")
int passes_a_dynptr(struct xdp_md *ctx)
{
	struct bpf_dynptr p;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	return size_of(&p);
}

SEC("xdp")
int acquires_a_task(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_acquire(get_current_task_btf());
	int pid = 0;

	if (task) {
		pid = task->pid;
		bpf_task_release(task);
	}
	return pid;
}

SEC("xdp")
int looks_a_connection_up(struct xdp_md *ctx)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_ct_opts opts = { .netns_id = -1, .l4proto = 6 };
	struct nf_conn *found = bpf_xdp_ct_lookup(ctx, &tuple, 12, &opts, sizeof(opts));

	if (found)
		bpf_ct_release(found);
	return opts.error == -2 ? 3 : 4;
}

SEC("xdp")
int reads_in_sections(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	bpf_preempt_disable();
	bpf_preempt_enable();
	bpf_rcu_read_unlock();
	return 2;
}

__noinline int checked(u64 n)
{
	if (n > 10)
		bpf_throw(7);
	return n;
}

SEC("xdp")
int throws(struct xdp_md *ctx)
{
	return checked(ctx->rx_queue_index) + checked(ctx->ingress_ifindex + 40);
}

__noinline int trusts(struct task_struct *task __attribute__((btf_decl_tag("arg:trusted"))))
{
	return task->tgid;
}

__noinline int not_null(u64 *n __attribute__((btf_decl_tag("arg:nonnull"))))
{
	return *n;
}

SEC("xdp")
int passes_tagged_arguments(struct xdp_md *ctx)
{
	u64 n = 2;

	return trusts(get_current_task_btf()) + not_null(&n);
}

SEC("tc")
int slices_a_buffer(struct __sk_buff *skb)
{
	struct bpf_dynptr p;
	u8 *first;

	bpf_dynptr_from_skb(skb, 0, &p);
	first = bpf_dynptr_slice(&p, 14, 0, 1);
	return first ? *first : 1;
}

SEC("xdp")
int no_DynptrState_never_made(struct xdp_md *ctx)
{
	struct bpf_dynptr p = {};

	return bpf_dynptr_size(&p);
}

SEC("xdp")
int no_DynptrState_overwritten(struct xdp_md *ctx)
{
	struct bpf_dynptr p;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	*(volatile u64 *)&p = 1;
	return bpf_dynptr_size(&p);
}

SEC("xdp")
int no_UninitStack_dynptr_is_read(struct xdp_md *ctx)
{
	struct bpf_dynptr p;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	return *(volatile u64 *)&p;
}

SEC("xdp")
int no_ReferencedDynptr(struct xdp_md *ctx)
{
	struct bpf_dynptr p;

	ringbuf_reserve_dynptr(&ring, 8, 0, &p);
	*(volatile u64 *)&p = 1;
	ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_LeakedReference_record(struct xdp_md *ctx)
{
	struct bpf_dynptr p;

	return ringbuf_reserve_dynptr(&ring, 8, 0, &p);
}

SEC("xdp")
int no_NotMemory_slice_after_release(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u32 *there, n = 0;

	ringbuf_reserve_dynptr(&ring, 8, 0, &p);
	there = dynptr_data(&p, 0, 4);
	ringbuf_submit_dynptr(&p, 0);
	if (there)
		n = *there;
	return n;
}

SEC("xdp")
int no_ReadOnlyMemory_slice(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u32 *there;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	there = bpf_dynptr_slice(&p, 0, 0, 4);
	if (there)
		*there = 1;
	return 0;
}

SEC("xdp")
int no_MemoryBounds_slice(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u8 *there;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	there = bpf_dynptr_slice(&p, 0, 0, 4);
	return there ? there[4] : 0;
}

SEC("xdp")
int no_NotMemory_slice_of_moved_packet(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	u8 *there;

	bpf_dynptr_from_xdp(ctx, 0, &p);
	there = bpf_dynptr_slice(&p, 0, 0, 4);
	if (!there)
		return 0;
	xdp_adjust_head(ctx, 4);
	return *there;
}

SEC("xdp")
int no_LeakedReference_task(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);

	return task ? task->pid : 0;
}

SEC("xdp")
int no_HelperNull_task(struct xdp_md *ctx)
{
	bpf_task_release(bpf_task_acquire(bpf_task_from_pid(1)));
	return 0;
}

SEC("xdp")
int no_NotHeld_task(struct xdp_md *ctx)
{
	bpf_task_release(get_current_task_btf());
	return 0;
}

SEC("xdp")
int no_Untrusted_task(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_rdonly_cast(ctx, __builtin_btf_type_id(*(struct task_struct *)0, 1));

	task = bpf_task_acquire(task);
	if (task)
		bpf_task_release(task);
	return 0;
}

SEC("xdp")
int no_ObjectType_task(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);

	if (task)
		bpf_ct_release((void *)task);
	return 0;
}

SEC("xdp")
int no_NotMemory_task_is_written(struct xdp_md *ctx)
{
	get_current_task_btf()->pid = 3;
	return 0;
}

SEC("xdp")
int no_SectionOpen(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	return 2;
}

SEC("xdp")
int no_SectionOpen_preemption(struct xdp_md *ctx)
{
	bpf_preempt_disable();
	return 2;
}

SEC("xdp")
int no_SectionUnmatched(struct xdp_md *ctx)
{
	bpf_rcu_read_unlock();
	return 2;
}

SEC("xdp")
int no_LeakedReference_throw(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);

	if (!task)
		return 0;
	if (ctx->rx_queue_index)
		bpf_throw(1);
	bpf_task_release(task);
	return 2;
}

SEC("xdp")
int no_Sleepable(struct xdp_md *ctx)
{
	return bpf_lookup_user_key(1, 0) != 0;
}

SEC("tc")
int no_UnknownHelper_of_xdp(struct __sk_buff *skb)
{
	struct bpf_dynptr p;

	return bpf_dynptr_from_xdp((void *)skb, 0, &p);
}

SEC("xdp")
int no_FunctionArgument_null(struct xdp_md *ctx)
{
	u32 key = ctx->rx_queue_index;

	return not_null(map_lookup_elem(&values, &key));
}

SEC("xdp")
int no_Undescribed(struct xdp_md *ctx)
{
	return bpf_wq_start((void *)ctx, 0);
}

SEC("xdp")
int no_ObjectField(struct xdp_md *ctx)
{
	char *task = (char *)get_current_task_btf();

	return *(volatile u64 *)(task + 1);
}

__noinline int adds_one(u64 cookie)
{
	return cookie + 1;
}

SEC("xdp")
__attribute__((btf_decl_tag("exception_callback:adds_one")))
int throws_to_a_callback(struct xdp_md *ctx)
{
	return checked(ctx->ingress_ifindex + 40);
}

static long throwing(u32 index, void *context)
{
	bpf_throw(1);
	return 0;
}

SEC("xdp")
int no_Exception_in_a_callback(struct xdp_md *ctx)
{
	loop(3, throwing, 0, 0);
	return 2;
}

SEC("xdp")
__attribute__((btf_decl_tag("exception_callback:adds_one")))
int no_Exception_callback_is_called(struct xdp_md *ctx)
{
	return adds_one(checked(ctx->ingress_ifindex));
}
