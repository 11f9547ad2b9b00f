/* tc programs for comparison with the kernel over captures: fields, tags, lengths, checksums. */
#include "bpf.h"

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index;
	u32 cb[5], hash, tc_classid, data, data_end, napi_id;
	u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	u64 flow_keys __attribute__((aligned(8))), tstamp;
	u32 wire_len, gso_segs;
	u64 sk __attribute__((aligned(8)));
	u32 gso_size;
};

static long (*skb_store_bytes)(void *skb, u32 offset, const void *from, u32 len, u64 flags) = (void *)9;
static long (*l3_csum_replace)(void *skb, u32 offset, u64 from, u64 to, u64 size) = (void *)10;
static long (*l4_csum_replace)(void *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*skb_vlan_push)(void *skb, u16 proto, u16 tci) = (void *)18;
static long (*skb_vlan_pop)(void *skb) = (void *)19;
static long (*skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static long (*skb_change_tail)(void *skb, u32 len, u64 flags) = (void *)38;
static long (*skb_pull_data)(void *skb, u32 len) = (void *)39;
static long (*skb_change_head)(void *skb, u32 len, u64 flags) = (void *)43;

#define AT(skb) (*(volatile struct __sk_buff *)(skb))

SEC("tc")
int fields(struct __sk_buff *skb)
{
	u8 *data = (void *)(long)skb->data;

	result(0, AT(skb).len);
	result(1, AT(skb).protocol);
	result(2, AT(skb).vlan_present);
	result(3, AT(skb).ifindex);
	result(4, AT(skb).ingress_ifindex);
	result(5, AT(skb).wire_len);
	result(6, AT(skb).gso_size);
	result(7, AT(skb).queue_mapping);
	result(8, skb->data_end - skb->data);
	AT(skb).cb[0] = AT(skb).len;
	AT(skb).cb[3] = 7;
	AT(skb).mark = AT(skb).mark + 3;
	AT(skb).priority = 5;
	AT(skb).tc_classid = 9;
	result(9, AT(skb).cb[0] + AT(skb).cb[3] + AT(skb).mark);
	result(10, *(volatile u8 *)&skb->cb[0] + AT(skb).priority);
	result(11, *(volatile u16 *)&skb->protocol);
	result(12, AT(skb).tc_classid);
	if (data + 14 <= (u8 *)(long)skb->data_end)
		data[0] ^= AT(skb).len;
	return AT(skb).len & 1 ? -1 : 0;
}

SEC("tc")
int tags(struct __sk_buff *skb)
{
	u32 n = AT(skb).len;

	switch (n % 5) {
	case 0:
		result(20, skb_vlan_push(skb, 0x0081, n & 4095));
		break;
	case 1:
		result(21, skb_vlan_pop(skb));
		break;
	case 2:
		result(22, skb_vlan_push(skb, 0xa888, n & 4095));
		result(23, skb_vlan_push(skb, 0x1234, 77));
		break;
	case 3:
		result(24, skb_vlan_push(skb, 0x0081, n & 4095));
		result(25, skb_vlan_push(skb, 0xa888, 78));
		result(26, skb_vlan_pop(skb));
		break;
	default:
		result(27, skb_vlan_pop(skb));
		result(28, skb_vlan_pop(skb));
		result(29, skb_vlan_push(skb, 0xa888, 79));
		result(30, skb_vlan_pop(skb));
	}
	result(31, AT(skb).vlan_present);
	result(32, AT(skb).vlan_tci);
	result(33, AT(skb).vlan_proto);
	result(34, AT(skb).protocol);
	result(35, AT(skb).len);
	return 2;
}

SEC("tc")
int lengths(struct __sk_buff *skb)
{
	u32 n = AT(skb).len;
	u8 buffer[24];

	switch (n % 4) {
	case 0:
		result(40, skb_change_tail(skb, n - n % 97 + 40, 0));
		break;
	case 1:
		result(41, skb_change_tail(skb, n % 31, 0));
		result(42, skb_change_tail(skb, n + 9, n & 2));
		break;
	case 2:
		result(43, skb_change_head(skb, n % 60, 0));
		break;
	default:
		result(44, skb_pull_data(skb, n % 200));
	}
	result(45, skb_load_bytes(skb, n % 80, buffer, sizeof(buffer)));
	buffer[3] += n;
	result(46, skb_store_bytes(skb, n % 90, buffer, sizeof(buffer), n & 1));
	result(47, AT(skb).len);
	result(48, buffer[5]);
	return AT(skb).len & 1 ? 0 : -1;
}

SEC("tc")
int checksums(struct __sk_buff *skb)
{
	u32 n = AT(skb).len, word = 0;
	u16 half = 0;

	skb_load_bytes(skb, 16, &word, 4);
	skb_load_bytes(skb, 20, &half, 2);
	result(50, l3_csum_replace(skb, 24, half, n, 2));
	result(51, l3_csum_replace(skb, 26, word, n * 0x10001, 4));
	result(52, l3_csum_replace(skb, 28, n % 3, word, 0));
	result(53, l4_csum_replace(skb, 30, word, n, 4 | (n & 1 ? 0x10 : 0)));
	result(54, l4_csum_replace(skb, 32, half, n, 2 | (n & 2 ? 0x20 : 0)));
	result(55, l4_csum_replace(skb, 34, 0, word ^ n, n & 4 ? 0x60 : 0x20));
	result(56, l4_csum_replace(skb, n % 128, half, word, 2));
	result(57, l4_csum_replace(skb, 36, half, word, 3));
	result(58, l3_csum_replace(skb, 38, half, word, 0x12));
	return -1;
}
