// SPDX-License-Identifier: MIT OR GPL-2.0
/* For the test that compares decide.h with its model in Rust: a packet's data is what a decision depends on, and the answer replaces it. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "decide.h"

#define STREAMS 72

struct trace {
	__u8 ethernet[16];
	__u32 stream;
	__u32 unused;
	struct packet packet;
};

struct answer {
	__s32 port;
	__u32 why;
};

struct {
	ARRAY_OF(struct stream, STREAMS);
} traced SEC(".maps");

SEC("classifier")
int trace(struct __sk_buff *skb)
{
	struct trace t;
	struct answer answer;
	struct mac to = {};
	struct choice c = {.packet = &t.packet};
	__u32 zero = 0;

	if (bpf_skb_load_bytes(skb, 0, &t, sizeof(t)))
		return TC_ACT_SHOT;
	__builtin_memcpy(to.bytes, t.ethernet, sizeof(to.bytes));
	c.config = bpf_map_lookup_elem(&config, &zero);
	c.host = bpf_map_lookup_elem(&host_state, &zero);
	c.peer = bpf_map_lookup_elem(&peers, &to);
	c.stream = bpf_map_lookup_elem(&traced, &t.stream);
	if (!c.config || !c.host || !c.peer)
		return TC_ACT_SHOT;
	c.peer_state = bpf_map_lookup_elem(&peer_states, &c.peer->number);
	if (!c.peer_state)
		return TC_ACT_SHOT;
	answer.port = decide(&c);
	answer.why = c.why;
	return bpf_skb_store_bytes(skb, 16, &answer, sizeof(answer), 0) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
