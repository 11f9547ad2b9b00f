// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * filter_quick: function filter where rules ask about addresses, ports and
 * protocols, and only allow and deny, for good. The source is filter.c.
 *
 * Hooks: xdp, graph on tc, networks.
 */
#define WEIR_FILTER_ALWAYS	0
#define WEIR_FILTER_KEPT	(WEIR_FF_SRC | WEIR_FF_DST | WEIR_FF_SPORT | WEIR_FF_DPORT | WEIR_FF_KIND | WEIR_FF_L4 | \
				 WEIR_FF_IP6_SRC | WEIR_FF_IP6_DST | WEIR_FF_HITS | WEIR_FF_DENY_REST | WEIR_FF_DENY_OTHER | \
				 WEIR_FF_PROTOCOL)
#define WEIR_FILTER_LEAN	1

#include "filter.c"
