/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The maps of place.bpf.c and trace.bpf.c. */
#include "layout.h"

#define ARRAY_OF(TYPE, N)                          \
	__uint(type, BPF_MAP_TYPE_ARRAY);          \
	__uint(max_entries, N);                    \
	__type(key, __u32);                        \
	__type(value, TYPE)
struct {
	ARRAY_OF(struct config, 1);
} config SEC(".maps");
struct {
	ARRAY_OF(struct port, MAX_PORTS);
} ports SEC(".maps");
struct {
	ARRAY_OF(struct port_state, MAX_PORTS);
} port_states SEC(".maps");
struct {
	ARRAY_OF(struct host_state, 1);
} host_state SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, struct mac);
	__type(value, struct peer);
} peers SEC(".maps");
struct {
	ARRAY_OF(struct peer_state, MAX_PEERS);
} peer_states SEC(".maps");
/* Socket storage: the kernel frees a stream's state together with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stream_state);
} streams SEC(".maps");
