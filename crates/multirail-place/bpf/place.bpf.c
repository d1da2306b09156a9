// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Gives the packets of this host to its ports, at the tc egress hook of the first port. A packet to
 * a peer (a host whose ports are known) leaves by the port that the policy chooses and goes to the
 * peer's port of the same number. All other packets pass unchanged.
 *
 * For one packet: place() calls parse(), read_socket(), read_queue_step() for each port if the last
 * read is too old, and decide(); then it rewrites the Ethernet addresses and redirects the packet.
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

/* sys/socket.h is not available to BPF programs. */
#define SOCK_STREAM 1

/* The kernel's types, as far as they are read here; the loader relocates the offsets. */
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
/* Flags of the kernel's include/net/sch_generic.h: these qdiscs do not maintain qstats.backlog. */
#define TCQ_F_MQROOT 0x2
#define TCQ_F_CPUSTATS 0x20
#define TCQ_F_NOLOCK 0x100

struct vlan {
	__be16 tag;
	__be16 proto;
};

/**
 * Computes the layer3+4 hash of the bonding driver and sees whether the packet ends its stream.
 *
 * Returns 0 for a packet that must stay at the first port: one that is not IP, or that announces
 * Ethernet addresses (ARP, and neighbour discovery of IPv6, which has hop limit 255).
 */
static __always_inline int parse(const struct __sk_buff *skb, struct packet *packet)
{
	void *at = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = at;
	__be16 proto;
	__u32 hash, transport = 0;
	__be32 *ports;

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
	ports = at;
	if ((transport == IPPROTO_TCP || transport == IPPROTO_UDP) && at + sizeof(*ports) <= end)
		hash ^= *ports;
	if (transport == IPPROTO_TCP && at + sizeof(struct tcphdr) <= end) {
		struct tcphdr *tcp = at;

		packet->ends_stream = tcp->fin | tcp->rst;
	}
	hash ^= hash >> 16;
	hash ^= hash >> 8;
	packet->layer34_hash = hash & 0xff;
	return 1;
}

/** The layer2 hash of the bonding driver. */
static __always_inline __u32 layer2_hash(const struct __sk_buff *skb)
{
	__u8 *at = (void *)(long)skb->data;

	return (void *)(at + 14) > (void *)(long)skb->data_end ? 0 : at[5] ^ at[11];
}

/** Reads the length of the queue of port `i`, if its qdisc maintains it. */
static long read_queue_step(__u32 i, struct packet *packet)
{
	struct port *port = bpf_map_lookup_elem(&ports, &i);
	struct net_device *dev;
	struct Qdisc *qdisc = 0;
	__u32 flags = 0, queue_bytes = 0;

	if (!port || !port->net_device)
		return 0;
	dev = (void *)port->net_device;
	BPF_CORE_READ_INTO(&qdisc, dev, qdisc);
	if (!qdisc)
		return 0;
	BPF_CORE_READ_INTO(&flags, qdisc, flags);
	if (flags & (TCQ_F_MQROOT | TCQ_F_CPUSTATS | TCQ_F_NOLOCK))
		return 0;
	BPF_CORE_READ_INTO(&queue_bytes, qdisc, qstats.backlog);
	packet->known_queues |= 1U << i;
	packet->queue_bytes[i & (MAX_PORTS - 1)] = queue_bytes;
	return 0;
}

/** Copies what a decision needs to know of a TCP socket. */
static __always_inline void read_socket(struct packet *packet, struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
	struct tcp_sock *kernel;
	__u32 acknowledged, sent;

	if (!tcp)
		return;
	acknowledged = tcp->snd_una;
	sent = tcp->snd_nxt;
	packet->in_flight_segments = tcp->packets_out;
	packet->segments = tcp->segs_out;
	packet->duplicates = tcp->dsack_dups;
	kernel = bpf_skc_to_tcp_sock(sk);
	if (!kernel)
		return;
	packet->backlog_bytes = kernel->write_seq - acknowledged;
	packet->unsent_bytes = kernel->write_seq - sent;
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
	__u8 addresses[12];
	int number;

	if (!conf || data + sizeof(struct ethhdr) > (void *)(long)skb->data_end)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(to.bytes, data, sizeof(to.bytes));
	peer = bpf_map_lookup_elem(&peers, &to);
	if (!peer)
		return TC_ACT_UNSPEC;
	c.config = conf;
	c.peer = peer;
	key = peer->index;
	c.peer_state = bpf_map_lookup_elem(&peer_states, &key);
	c.host = bpf_map_lookup_elem(&host_state, &zero);
	if (!c.peer_state || !c.host)
		return TC_ACT_UNSPEC;

	packet.now_ns = bpf_ktime_get_ns();
	packet.bytes = skb->len;
	packet.layer2_hash = layer2_hash(skb);
	if (!parse(skb, &packet))
		return TC_ACT_UNSPEC;
	if (conf->policy >= POLICY_BACKLOG) {
		sk = skb->sk;
		if (sk)
			sk = bpf_sk_fullsock(sk);
		/* The kernel sends resets by a raw socket of its own, which is no stream. */
		if (sk && sk->protocol == IPPROTO_TCP && sk->type == SOCK_STREAM) {
			c.stream = bpf_sk_storage_get(&streams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
			read_socket(&packet, sk);
		}
	}
	if (conf->policy == POLICY_ADAPTIVE && c.host->queues_read_ns + QUEUE_READ_INTERVAL_NS < packet.now_ns) {
		packet.has_queues = 1;
		bpf_loop(conf->port_count, read_queue_step, &packet, 0);
	}

	number = decide(&c);
	if (number <= 0)
		return TC_ACT_UNSPEC;
	key = number;
	port = bpf_map_lookup_elem(&ports, &key);
	if (!port)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(addresses, peer->macs[number & (MAX_PORTS - 1)].bytes, 6);
	__builtin_memcpy(addresses + 6, port->mac.bytes, 6);
	bpf_skb_store_bytes(skb, 0, addresses, sizeof(addresses), 0);
	return bpf_redirect(port->ifindex, 0);
}

/** Stores the address of a port's net_device. User space runs it once for each port. */
SEC("classifier")
int find_net_device(struct __sk_buff *skb)
{
	struct sk_buff *kernel = (void *)skb;
	__u32 ifindex = skb->ifindex;
	__u64 dev = 0;

	bpf_probe_read_kernel(&dev, sizeof(dev), (void *)kernel + __builtin_preserve_field_info(kernel->dev, BPF_FIELD_BYTE_OFFSET));
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u32 key = i;
		struct port *port = bpf_map_lookup_elem(&ports, &key);

		if (port && port->ifindex == ifindex)
			port->net_device = dev;
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
