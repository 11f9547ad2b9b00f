/* The types of core.c in three kernels: the one compiled against, an older and a newer one. */
#ifndef LAYOUT
#define LAYOUT 0
#endif
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum colour {
#if LAYOUT == 2
	WHITE,
#endif
	RED = 3 + LAYOUT,
	GREEN,
#if LAYOUT != 1
	BLUE = 40 + LAYOUT,
#endif
};

struct part {
#if LAYOUT == 2
	u64 fresh;
#endif
	u32 a;
	u32 b;
};

struct thing {
#if LAYOUT == 1
	u16 first;
	u16 small;
#else
	u32 first;
	u32 small;
#endif
#if LAYOUT == 2
	u32 inserted[3];
	union {
		struct {
			u32 deep;
			u32 deeper;
		};
		u64 whole;
	};
#else
	u32 deep;
#endif
	struct part parts[LAYOUT + 2];
	u32 flags : 3;
	s32 level : 5 + LAYOUT;
#if LAYOUT != 1
	u32 optional;
#endif
#if LAYOUT == 1
	signed char sign;
#else
	u16 sign;
#endif
	u8 tail[];
};

#if LAYOUT != 1
struct only_newer {
	int x;
};
#endif

struct grown {
	u32 x;
#if LAYOUT == 2
	u64 y;
#endif
};

typedef u32 word;

#pragma clang attribute pop
