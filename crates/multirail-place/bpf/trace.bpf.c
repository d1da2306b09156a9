// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Runs decide.h on a packet whose data is a `struct traced_packet`, for the test that compares it
 * with its model in Rust. A `struct traced_decision` overwrites the data after the addresses.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "decide.h"

struct {
	ARRAY_OF(struct stream_state, TRACED_STREAMS);
} traced_streams SEC(".maps");

SEC("classifier")
int trace(struct __sk_buff *skb)
{
	struct traced_packet traced;
	struct traced_decision decision;
	struct mac to = {};
	struct choice c = {.packet = &traced.packet};
	__u32 zero = 0;

	if (bpf_skb_load_bytes(skb, 0, &traced, sizeof(traced)))
		return TC_ACT_SHOT;
	__builtin_memcpy(to.bytes, traced.ethernet, sizeof(to.bytes));
	c.config = bpf_map_lookup_elem(&config, &zero);
	c.host = bpf_map_lookup_elem(&host_state, &zero);
	c.peer = bpf_map_lookup_elem(&peers, &to);
	c.stream = bpf_map_lookup_elem(&traced_streams, &traced.stream);
	if (!c.config || !c.host || !c.peer)
		return TC_ACT_SHOT;
	c.peer_state = bpf_map_lookup_elem(&peer_states, &c.peer->index);
	if (!c.peer_state)
		return TC_ACT_SHOT;
	decision.port = decide(&c);
	decision.reason = c.reason;
	return bpf_skb_store_bytes(skb, 16, &decision, sizeof(decision), 0) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
