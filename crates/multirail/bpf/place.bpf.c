// SPDX-License-Identifier: MIT OR GPL-2.0
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>

#define MAX_PORTS 16
enum { SINGLE, LAYER2, LAYER34, ROUND_ROBIN, BACKLOG, ADAPTIVE };

struct tcp_sock { __u32 write_seq; } __attribute__((preserve_access_index));
struct sk_buff { struct net_device *dev; } __attribute__((preserve_access_index));
struct qdisc_stats { __u32 qlen; __u32 backlog; } __attribute__((preserve_access_index));
struct gnet_stats_queue { __u32 qlen; __u32 backlog; } __attribute__((preserve_access_index));
struct Qdisc { struct gnet_stats_queue qstats; } __attribute__((preserve_access_index));
struct net_device { struct Qdisc *qdisc; } __attribute__((preserve_access_index));

struct mac { __u8 b[6]; __u8 pad[2]; };
struct config { __u32 policy, ports, threshold, number; };
struct port { __u32 ifindex; __u32 usable; struct mac mac; __u64 dev; __u64 ns_per_kib; };
struct port_state { __u64 packets, bytes, free_at, sample_at, given, backlog, rate_ns_per_kib, pad; };
struct peer { struct mac mac[MAX_PORTS]; __u32 usable, number; };
struct peer_state { __u64 given[MAX_PORTS]; __u64 free_at[MAX_PORTS]; __u64 decay_at; __u32 next; __u32 pad; };
struct stream { __u32 port, pinned; __u64 last, finish, bytes, moves; };

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct config); } config SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, MAX_PORTS); __type(key, __u32); __type(value, struct port); } ports SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, MAX_PORTS); __type(key, __u32); __type(value, struct port_state); } port_states SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, struct mac); __type(value, struct peer); } peers SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1024); __type(key, struct mac); __type(value, struct peer_state); } peer_states SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); } turn SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_SK_STORAGE); __uint(map_flags, BPF_F_NO_PREALLOC); __type(key, int); __type(value, struct stream); } streams SEC(".maps");

static __always_inline __u32 l34(struct __sk_buff *skb) {
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data; struct iphdr *ip = data + 14;
	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP)) return 0;
	__u32 h = ip->saddr ^ ip->daddr;
	if (ip->protocol == IPPROTO_TCP && ip->ihl == 5) { __u32 *p = (void *)(ip + 1); if ((void *)(p + 1) <= end) h ^= *p ^ (*p >> 16) ; }
	h ^= h >> 16; h ^= h >> 8; return h;
}

SEC("classifier")
int place(struct __sk_buff *skb) {
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (!c || data + 14 > end) return TC_ACT_UNSPEC;
	/* Answers about Ethernet addresses count only at the port that asked: ARP, and IPv6's neighbour discovery (hop limit 255). */
	struct ethhdr *eth = data;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = data + 14;
		if ((void *)(ip6 + 1) > end || (ip6->nexthdr == IPPROTO_ICMPV6 && ip6->hop_limit == 255)) return TC_ACT_UNSPEC;
	} else if (eth->h_proto != bpf_htons(ETH_P_IP)) return TC_ACT_UNSPEC;
	struct mac dst = {};
	__builtin_memcpy(dst.b, data, 6);
	struct peer *peer = bpf_map_lookup_elem(&peers, &dst);
	if (!peer || !c->ports) return TC_ACT_UNSPEC;
	struct peer_state *ps = bpf_map_lookup_elem(&peer_states, &dst);
	if (!ps) return TC_ACT_UNSPEC;
	__u32 n = c->ports, p = 0, len = skb->len;
	__u64 now = bpf_ktime_get_ns();
	struct bpf_sock *sk = skb->sk; struct tcp_sock *tp = 0; struct bpf_tcp_sock *bt = 0; struct stream *s = 0; __u32 backlog = 0;
	if (c->policy >= BACKLOG && sk) {
		sk = bpf_sk_fullsock(sk);
		if (sk) {
			s = bpf_sk_storage_get(&streams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
			bt = bpf_tcp_sock(sk);
			if (bt) { __u32 una = bt->snd_una; tp = bpf_skc_to_tcp_sock(sk); if (tp) backlog = tp->write_seq - una; }
		}
	}
	switch (c->policy) {
	case SINGLE: p = 0; break;
	case LAYER2: { __u8 *m = data; p = (m[5] ^ m[11]) % n; break; }
	case LAYER34: p = l34(skb) % n; break;
	case ROUND_ROBIN: { __u32 *t = bpf_map_lookup_elem(&turn, &zero); if (t) p = __sync_fetch_and_add(t, 1) % n; break; }
	case BACKLOG:
		if (s && s->pinned) p = s->port % n;
		else if (s && backlog > c->threshold) { p = __sync_fetch_and_add(&ps->next, 1) % n; s->port = p; s->pinned = 1; }
		else { __u32 *t = bpf_map_lookup_elem(&turn, &zero); if (t) p = __sync_fetch_and_add(t, 1) % n; }
		break;
	case ADAPTIVE: {
		__u64 best = ~0ULL, best2 = ~0ULL; __u32 i;
		for (i = 0; i < MAX_PORTS; i++) {
			if (i >= n) break;
			__u32 k = i;
			struct port *po = bpf_map_lookup_elem(&ports, &k);
			struct port_state *st = bpf_map_lookup_elem(&port_states, &k);
			if (!po || !st || !po->usable || !(peer->usable >> i & 1)) continue;
			__u64 f;
			if (1) {
				struct net_device *dev = (void *)po->dev; struct Qdisc *q = 0; __u32 b = 0;
				if (dev) { BPF_CORE_READ_INTO(&q, dev, qdisc); if (q) BPF_CORE_READ_INTO(&b, q, qstats.backlog); }
				f = now + (b + len) * po->ns_per_kib / 1024;
			} else {
				f = st->free_at; if (f < now) f = now;
				f += len * po->ns_per_kib / 1024;
			}
			__u64 r = ps->free_at[i]; 
			if (1) { if (r < now) r = now; r += len * po->ns_per_kib / 1024; if (r > f) f = r; }
			/* earliest finish, ties within a packet's time: least given */
			__u64 g = ps->given[i];
			if (1) { f = f / (1514 * po->ns_per_kib / 1024 / 2); }
			if (f < best || (f == best && g < best2)) { best = f; best2 = g; p = i; }
		}
		break; }
	}
	p &= MAX_PORTS - 1;
	__u32 key = p;
	struct port *port = bpf_map_lookup_elem(&ports, &key);
	struct port_state *st = bpf_map_lookup_elem(&port_states, &key);
	if (!port || !st) return TC_ACT_UNSPEC;
	st->packets++; st->bytes += len;
	if (c->policy == ADAPTIVE) {
		__u64 w = len * port->ns_per_kib / 1024;
		__u64 f = st->free_at; if (f < now) f = now; st->free_at = f + w;
		if (p < MAX_PORTS) { __u64 r = ps->free_at[p]; if (r < now) r = now; ps->free_at[p] = r + w; ps->given[p] += len; }
		if (s) { if (s->port != p) s->moves++; s->port = p; s->bytes += len; s->last = now; }
	}
	if (p == 0) return TC_ACT_UNSPEC;
	bpf_skb_store_bytes(skb, 0, peer->mac[p].b, 6, 0);
	bpf_skb_store_bytes(skb, 6, port->mac.b, 6, 0);
	return bpf_redirect(port->ifindex, 0);
}

SEC("classifier")
int learn(struct __sk_buff *skb) {
	struct net_device *dev = 0;
	struct sk_buff *k = (void *)skb;
	bpf_probe_read_kernel(&dev, sizeof dev, (void *)k + __builtin_preserve_field_info(k->dev, BPF_FIELD_BYTE_OFFSET));
	__u32 ifindex = skb->ifindex;
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u32 key = i;
		struct port *p = bpf_map_lookup_elem(&ports, &key);
		if (p && p->ifindex == ifindex) p->dev = (__u64)dev;
	}
	return 0;
}
char LICENSE[] SEC("license") = "Dual MIT/GPL";
