/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The metadata area in front of a frame: room for what must go with a packet
 * where weir_chain cannot. XDP in a graph only.
 */
#ifndef WEIR_META_H
#define WEIR_META_H

/*
 * Makes room for a struct weir_meta and marks it as weir's, 0 if there is none. Whatever lay there is gone: Linux 6.1 takes no more
 * than these 32 bytes.
 */
static __always_inline struct weir_meta *meta_make(ctx_t *ctx, struct weir_chain *chain, __u32 vid)
{
	struct weir_meta *meta = (void *)(long)ctx->data_meta;
	int there = ctx->data - ctx->data_meta;
	__u32 home = 0;

	/* Behind a recirculation the stack gets it by the device that it came in by (homecoming.c). */
	if (!vid && (void *)(meta + 1) <= (void *)(long)ctx->data && meta->magic == WEIR_META_HOME)
		home = meta->port;
	if (bpf_xdp_adjust_meta(ctx, there - (int)sizeof(*meta)))
		return 0;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return 0;
	meta->magic = WEIR_META_MAGIC;
	meta->mark = chain->mark;
	meta->vid = vid;
	meta->port = chain->port;
	meta->passes = vid ? chain->passes : home;
	meta->csum_mode = chain->csum_mode;
	meta->generation = chain->generation;
	return meta;
}

#endif
