// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Gives the packets of this host to its ports: tc egress, on the first port. A packet to a peer (a host whose ports are known) leaves by
 * the port that the policy chooses and goes to the peer's port of the same number; every other packet is not touched.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "decide.h"

/* sys/socket.h does not come with BPF's headers. */
#define SOCK_STREAM 1

struct tcp_sock {
	__u32 write_seq;
} __attribute__((preserve_access_index));
struct gnet_stats_queue {
	__u32 backlog;
} __attribute__((preserve_access_index));
struct Qdisc {
	unsigned int flags;
	struct gnet_stats_queue qstats;
} __attribute__((preserve_access_index));
struct net_device {
	struct Qdisc *qdisc;
} __attribute__((preserve_access_index));
struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));
/* Of the kernel's include/net/sch_generic.h: such qdiscs do not keep qstats.backlog. */
#define TCQ_F_MQROOT 0x2
#define TCQ_F_CPUSTATS 0x20
#define TCQ_F_NOLOCK 0x100

struct vlan {
	__be16 tag;
	__be16 proto;
};

/*
 * The hash of the bonding driver's layer3+4: addresses, and ports where this packet has them; and whether it ends a stream. Answers 0 for what must stay on the first port:
 * what is not IP, and what tells of Ethernet addresses, which a host takes only at the port that asked (ARP; IPv6's neighbour discovery, known
 * by its hop limit).
 */
static __always_inline int parse(const struct __sk_buff *skb, struct packet *packet)
{
	void *at = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = at;
	__be16 proto;
	__u32 hash, transport = 0;
	__be32 *both;

	if (at + sizeof(*eth) > end)
		return 0;
	proto = eth->h_proto;
	at += sizeof(*eth);
	for (int tags = 0; tags < 2; tags++) {
		struct vlan *vlan = at;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if (at + sizeof(*vlan) > end)
			return 0;
		proto = vlan->proto;
		at += sizeof(*vlan);
	}
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if (at + sizeof(*ip) > end)
			return 0;
		hash = ip->saddr ^ ip->daddr;
		if (!(ip->frag_off & bpf_htons(0x3fff)))
			transport = ip->protocol;
		at += ip->ihl * 4;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if (at + sizeof(*ip) > end || (ip->nexthdr == IPPROTO_ICMPV6 && ip->hop_limit == 255))
			return 0;
		hash = 0;
		for (int i = 0; i < 4; i++)
			hash ^= ip->saddr.in6_u.u6_addr32[i] ^ ip->daddr.in6_u.u6_addr32[i];
		transport = ip->nexthdr;
		at += sizeof(*ip);
	} else {
		return 0;
	}
	both = at;
	if ((transport == IPPROTO_TCP || transport == IPPROTO_UDP) && at + sizeof(*both) <= end)
		hash ^= *both;
	if (transport == IPPROTO_TCP && at + sizeof(struct tcphdr) <= end) {
		struct tcphdr *tcp = at;

		packet->is_last = tcp->fin | tcp->rst;
	}
	hash ^= hash >> 16;
	hash ^= hash >> 8;
	packet->hash34 = hash & 0xff;
	return 1;
}

static __always_inline __u32 hash2(const struct __sk_buff *skb)
{
	__u8 *at = (void *)(long)skb->data;

	return (void *)(at + 14) > (void *)(long)skb->data_end ? 0 : at[5] ^ at[11];
}

static long look_at_step(__u32 i, struct packet *packet)
{
	struct port *port = bpf_map_lookup_elem(&ports, &i);
	struct net_device *dev;
	struct Qdisc *qdisc = 0;
	__u32 flags = 0, queued = 0;

	if (!port || !port->dev)
		return 0;
	dev = (void *)port->dev;
	BPF_CORE_READ_INTO(&qdisc, dev, qdisc);
	if (!qdisc)
		return 0;
	BPF_CORE_READ_INTO(&flags, qdisc, flags);
	if (flags & (TCQ_F_MQROOT | TCQ_F_CPUSTATS | TCQ_F_NOLOCK))
		return 0;
	BPF_CORE_READ_INTO(&queued, qdisc, qstats.backlog);
	packet->seen |= 1U << i;
	packet->queued[i & (MAX_PORTS - 1)] = queued;
	return 0;
}

static __always_inline void tell_of_stream(struct packet *packet, struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
	struct tcp_sock *kernel;
	__u32 acknowledged, sent;

	if (!tcp)
		return;
	acknowledged = tcp->snd_una;
	sent = tcp->snd_nxt;
	packet->in_flight = tcp->packets_out;
	packet->segments = tcp->segs_out;
	packet->duplicates = tcp->dsack_dups;
	kernel = bpf_skc_to_tcp_sock(sk);
	if (!kernel)
		return;
	packet->backlog = kernel->write_seq - acknowledged;
	packet->unsent = kernel->write_seq - sent;
	packet->is_tcp = 1;
}

SEC("classifier")
int place(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	__u32 zero = 0, key;
	struct mac to = {};
	struct packet packet = {};
	struct choice c = {.packet = &packet};
	struct config *conf = bpf_map_lookup_elem(&config, &zero);
	struct peer *peer;
	struct port *port;
	struct bpf_sock *sk;
	__u8 both[12];
	int number;

	if (!conf || data + sizeof(struct ethhdr) > (void *)(long)skb->data_end)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(to.bytes, data, sizeof(to.bytes));
	peer = bpf_map_lookup_elem(&peers, &to);
	if (!peer)
		return TC_ACT_UNSPEC;
	c.config = conf;
	c.peer = peer;
	key = peer->number;
	c.peer_state = bpf_map_lookup_elem(&peer_states, &key);
	c.host = bpf_map_lookup_elem(&host_state, &zero);
	if (!c.peer_state || !c.host)
		return TC_ACT_UNSPEC;

	packet.now_ns = bpf_ktime_get_ns();
	packet.bytes = skb->len;
	packet.hash2 = hash2(skb);
	if (!parse(skb, &packet))
		return TC_ACT_UNSPEC;
	if (conf->policy >= BACKLOG) {
		sk = skb->sk;
		if (sk)
			sk = bpf_sk_fullsock(sk);
		/* The kernel's own socket for resets is a raw one, and no stream. */
		if (sk && sk->protocol == IPPROTO_TCP && sk->type == SOCK_STREAM) {
			c.stream = bpf_sk_storage_get(&streams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
			tell_of_stream(&packet, sk);
		}
	}
	if (conf->policy == ADAPTIVE && c.host->looked_ns + LOOK_NS < packet.now_ns) {
		packet.is_looked = 1;
		bpf_loop(conf->ports, look_at_step, &packet, 0);
	}

	number = decide(&c);
	if (number <= 0)
		return TC_ACT_UNSPEC;
	key = number;
	port = bpf_map_lookup_elem(&ports, &key);
	if (!port)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(both, peer->macs[number & (MAX_PORTS - 1)].bytes, 6);
	__builtin_memcpy(both + 6, port->mac.bytes, 6);
	bpf_skb_store_bytes(skb, 0, both, sizeof(both), 0);
	return bpf_redirect(port->ifindex, 0);
}

/* Run once for each port, by hand: finds the address of its net_device. */
SEC("classifier")
int learn(struct __sk_buff *skb)
{
	struct sk_buff *kernel = (void *)skb;
	__u32 ifindex = skb->ifindex;
	__u64 dev = 0;

	bpf_probe_read_kernel(&dev, sizeof(dev), (void *)kernel + __builtin_preserve_field_info(kernel->dev, BPF_FIELD_BYTE_OFFSET));
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u32 key = i;
		struct port *port = bpf_map_lookup_elem(&ports, &key);

		if (port && port->ifindex == ifindex)
			port->dev = dev;
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
