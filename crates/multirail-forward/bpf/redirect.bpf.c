// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Connects TCP sockets of the processes in a cgroup to the relay on loopback, if they connect to the
 * host of a server.
 *
 * connect4(), connect6(): the socket remembers its target and gets the relay's address instead.
 * connected(): the relay learns the target. It runs before the relay can accept the connection.
 * getpeername4(), getpeername6(): the program sees the target.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* sys/socket.h is not available to BPF programs. */
#define AF_INET 2
#define SOCK_STREAM 1

/* The kernel allows loads at constant offsets only. Read before a branch, since the compiler would merge both sides. */
#define READ_FIELD(field) (*(volatile typeof(field) *)&(field))

/* Hosts whose servers have a session. */
#define MAX_HOSTS 4096
/* Connections that the relay has not accepted yet. */
#define MAX_ESTABLISHED 65536

/* An IPv6 address in network order. IPv4 has its mapped form (RFC 4291, section 2.5.5.2). */
struct address {
	__be32 words[4];
};

/* The port is in network order, in the lower half. */
struct endpoint {
	struct address address;
	__u32 port;
};

/* The relay on loopback: its network namespace, and its ports for IPv4 and IPv6. */
struct relay {
	__u64 netns;
	__u32 port4;
	__u32 port6;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay);
} relay SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_HOSTS);
	__type(key, struct address);
	__type(value, __u8);
} hosts SEC(".maps");

/* The target of a socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct endpoint);
} targets SEC(".maps");

/* The target of a connection, by the address that the relay sees. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_ESTABLISHED);
	__type(key, struct endpoint);
	__type(value, struct endpoint);
} established SEC(".maps");

static __always_inline struct address mapped(__be32 ip4)
{
	struct address address = { { 0, 0, bpf_htonl(0xffff), ip4 } };

	return address;
}

static __always_inline bool is_mapped(const struct address *address)
{
	return !address->words[0] && !address->words[1] && address->words[2] == bpf_htonl(0xffff);
}

/* Returns the relay for a socket that connects to `target`; NULL if its connection is not taken over. */
static __always_inline struct relay *relay_for(struct bpf_sock_addr *ctx, const struct endpoint *target)
{
	struct bpf_sock *sk = ctx->sk;
	struct endpoint *stored;
	struct relay *found;
	__u32 first = 0;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !sk)
		return NULL;
	/* An earlier attempt may have failed, and its target would be taken for that of this one. */
	bpf_sk_storage_delete(&targets, sk);
	found = bpf_map_lookup_elem(&relay, &first);
	if (!found || !bpf_map_lookup_elem(&hosts, &target->address))
		return NULL;
	/* Loopback is another one there, or cannot be reached. */
	if (bpf_get_netns_cookie(ctx) != found->netns || sk->bound_dev_if)
		return NULL;
	stored = bpf_sk_storage_get(&targets, sk, (void *)target, BPF_SK_STORAGE_GET_F_CREATE);
	return stored ? found : NULL;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct endpoint target = { mapped(ctx->user_ip4), ctx->user_port };
	struct relay *found = relay_for(ctx, &target);

	if (found) {
		ctx->user_ip4 = bpf_htonl(INADDR_LOOPBACK);
		ctx->user_port = found->port4;
	}
	return 1;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	struct endpoint target = {
		{ { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } },
		ctx->user_port,
	};
	struct relay *found = relay_for(ctx, &target);

	if (!found)
		return 1;
	if (is_mapped(&target.address)) {
		ctx->user_ip6[3] = bpf_htonl(INADDR_LOOPBACK);
		ctx->user_port = found->port4;
	} else {
		ctx->user_ip6[0] = 0;
		ctx->user_ip6[1] = 0;
		ctx->user_ip6[2] = 0;
		ctx->user_ip6[3] = bpf_htonl(1);
		ctx->user_port = found->port6;
	}
	return 1;
}

SEC("sockops")
int connected(struct bpf_sock_ops *ops)
{
	struct endpoint *target, own = {};
	struct bpf_sock *sk = ops->sk;
	__be32 ip4;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || !sk)
		return 1;
	target = bpf_sk_storage_get(&targets, sk, NULL, 0);
	if (!target)
		return 1;
	ip4 = READ_FIELD(ops->local_ip4);
	own.address.words[0] = READ_FIELD(ops->local_ip6[0]);
	own.address.words[1] = READ_FIELD(ops->local_ip6[1]);
	own.address.words[2] = READ_FIELD(ops->local_ip6[2]);
	own.address.words[3] = READ_FIELD(ops->local_ip6[3]);
	if (ops->family == AF_INET)
		own.address = mapped(ip4);
	own.port = bpf_htons(ops->local_port);
	bpf_map_update_elem(&established, &own, target, BPF_ANY);
	return 1;
}

/* Returns the target of a socket that is connected to the relay; NULL for others. */
static __always_inline struct endpoint *target_of(struct bpf_sock_addr *ctx)
{
	return ctx->sk ? bpf_sk_storage_get(&targets, ctx->sk, NULL, 0) : NULL;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	struct endpoint *target = target_of(ctx);

	if (target) {
		ctx->user_ip4 = target->address.words[3];
		ctx->user_port = target->port;
	}
	return 1;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	struct endpoint *target = target_of(ctx);

	if (target) {
		ctx->user_ip6[0] = target->address.words[0];
		ctx->user_ip6[1] = target->address.words[1];
		ctx->user_ip6[2] = target->address.words[2];
		ctx->user_ip6[3] = target->address.words[3];
		ctx->user_port = target->port;
	}
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
