/* Every kind of CO-RE relocation. The results are compared with what the target types say. */
#include "bpf.h"
#include "core_types.h"

/* Flavours: the same types as other kernels have them. */
struct thing___flavour {
	u32 optional;
} __attribute__((preserve_access_index));

struct thing___other {
	u32 never;
} __attribute__((preserve_access_index));

enum colour___flavour { BLUE___flavour };

struct nowhere {
	int x;
};

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8[256]);
} memory SEC(".maps");

enum { BYTE_OFFSET, BYTE_SIZE, EXISTS, SIGNED, LSHIFT, RSHIFT };

#define field(kind, expression) __builtin_preserve_field_info(expression, kind)
#define type_info(kind, type) __builtin_preserve_type_info(*(type *)0, kind)
#define enumerator(kind, type, name) __builtin_preserve_enum_value(*(type *)name, kind)

static __always_inline u64 bits(struct thing *t)
{
	/* The compiler's own bit field reads are not relocated; this is how CO-RE reads them. */
	u64 value = 0;
	const void *at = (void *)t + field(BYTE_OFFSET, t->level);

	switch (field(BYTE_SIZE, t->level)) {
	case 1: value = *(u8 *)at; break;
	case 2: value = *(u16 *)at; break;
	case 4: value = *(u32 *)at; break;
	case 8: value = *(u64 *)at; break;
	}
	value <<= field(LSHIFT, t->level);
	if (field(SIGNED, t->level))
		return (s64)value >> field(RSHIFT, t->level);
	return value >> field(RSHIFT, t->level);
}

SEC("xdp")
int core(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct thing *t = map_lookup_elem(&memory, &zero);
	struct thing___flavour *flavour = (void *)t;
	struct thing___other *other = (void *)t;

	if (!t)
		return XDP_ABORTED;
	result(0, t->first);
	result(1, t->small);
	result(2, t->deep);
	result(3, t->parts[1].b);
	result(4, bits(t));
	result(5, field(EXISTS, t->optional));
	if (field(EXISTS, flavour->optional))
		result(6, flavour->optional);
	else
		result(6, 77);
	result(7, field(EXISTS, other->never));
	if (field(EXISTS, other->never))
		result(7, other->never);
	result(8, field(BYTE_OFFSET, t->parts[1].b));
	result(9, field(BYTE_SIZE, t->small));
	result(10, field(SIGNED, t->sign));
	result(11, type_info(0, struct only_newer));
	result(12, type_info(1, struct grown));
	result(13, type_info(0, struct nowhere));
	result(14, type_info(1, struct nowhere));
	result(15, enumerator(0, enum colour, BLUE));
	result(16, enumerator(1, enum colour, GREEN));
	result(17, enumerator(0, enum colour___flavour, BLUE___flavour));
	result(18, __builtin_btf_type_id(*(struct grown *)0, 0) != 0);
	result(19, __builtin_btf_type_id(*(struct grown *)0, 1) != 0);
	result(20, type_info(0, word));
	result(21, field(BYTE_SIZE, t->parts));
	t->deep = 99;
	return XDP_PASS;
}

SEC("xdp")
int needs_newer(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct thing *t = map_lookup_elem(&memory, &zero);

	return t ? t->optional : XDP_ABORTED;
}
