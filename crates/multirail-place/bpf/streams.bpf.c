// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Lists the streams of map `streams` of place.bpf.c: an iterator over its sockets. Reading the
 * iterator's file gives a `struct stream_record` for each.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "layout.h"

#define AF_INET 2
#define AF_INET6 10

/* The kernel's types, as far as they are read here; the loader relocates the offsets. */
struct in6_addr___kernel { __u8 bytes[16]; };
struct sock_common {
	union { struct { __be32 skc_daddr; __be32 skc_rcv_saddr; }; };
	union { struct { __be16 skc_dport; __u16 skc_num; }; };
	unsigned short skc_family;
	struct in6_addr___kernel skc_v6_daddr, skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));
struct sock { struct sock_common __sk_common; __u16 sk_protocol; } __attribute__((preserve_access_index));
struct tcp_sock { __u32 write_seq, snd_una; } __attribute__((preserve_access_index));
struct seq_file;
struct bpf_iter_meta { struct seq_file *seq; } __attribute__((preserve_access_index));
struct bpf_map;
struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
} __attribute__((preserve_access_index));

SEC("iter/bpf_sk_storage_map")
int list_streams(struct bpf_iter__bpf_sk_storage_map *ctx) {
	struct sock *sk = ctx->sk;
	struct stream_state *state = ctx->value;
	struct stream_record record = {};

	if (!sk || !state)
		return 0;
	record.state = *state;
	record.family = sk->__sk_common.skc_family;
	record.protocol = sk->sk_protocol;
	record.local_port = sk->__sk_common.skc_num;
	record.remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (record.family == AF_INET) {
		__be32 address = sk->__sk_common.skc_rcv_saddr;
		__builtin_memcpy(record.local, &address, 4);
		address = sk->__sk_common.skc_daddr;
		__builtin_memcpy(record.remote, &address, 4);
	} else if (record.family == AF_INET6) {
		bpf_probe_read_kernel(record.local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_probe_read_kernel(record.remote, 16, &sk->__sk_common.skc_v6_daddr);
	}
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp)
		record.backlog_bytes = tcp->write_seq - tcp->snd_una;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
