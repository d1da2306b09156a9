/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The decision: the port by which a packet leaves. src/program/model is the same in Rust; a test
 * runs both with the same packets (trace.bpf.c) and compares every decision.
 */
#include "maps.h"
#include "parameters.h"
#include "choice.h"
#include "rates.h"
#include "adaptive.h"

static __always_inline __u32 next_port(struct choice *c, __u32 *counter)
{
	return nth_port(c, __sync_fetch_and_add(counter, 1));
}

/**
 * PMCME (section 3.2): a stream whose backlog exceeds the threshold is pinned to the next port.
 * Packets of other streams take ports in turn.
 */
static __always_inline __u32 choose_by_backlog(struct choice *c)
{
	struct stream_state *stream = c->stream;

	if (stream && stream->pinned && (c->usable >> (stream->port & 31) & 1)) {
		c->reason = REASON_PINNED;
		return stream->port;
	}
	if (stream && c->packet->is_tcp && c->packet->backlog_bytes > c->config->threshold_bytes) {
		c->reason = REASON_PINNED;
		return next_port(c, &c->host->next_stream);
	}
	c->reason = REASON_ROUND_ROBIN;
	return next_port(c, &c->host->next_packet);
}

static __always_inline __u32 choose(struct choice *c)
{
	c->reason = REASON_HASH;
	switch (c->config->policy) {
	case POLICY_LAYER2:
		return nth_port(c, c->packet->layer2_hash);
	case POLICY_LAYER34:
		return nth_port(c, c->packet->layer34_hash);
	case POLICY_ROUND_ROBIN:
		c->reason = REASON_ROUND_ROBIN;
		return next_port(c, &c->host->next_packet);
	case POLICY_BACKLOG:
		return choose_by_backlog(c);
	case POLICY_ADAPTIVE:
		return choose_adaptive(c);
	}
	c->reason = REASON_FIRST_PORT;
	return nth_port(c, 0);
}

/** Records that the packet was given to port `i`. */
static __always_inline void account(struct choice *c, __u32 i)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	struct stream_state *stream = c->stream;

	if (!state)
		return;
	__sync_fetch_and_add(&state->packets, 1);
	__sync_fetch_and_add(&state->bytes, c->packet->bytes);
	if (c->config->policy == POLICY_ADAPTIVE)
		account_service(c, i & (MAX_PORTS - 1));
	if (stream) {
		if (c->packet->ends_stream && c->config->policy == POLICY_ADAPTIVE && has_slot(c))
			release_slot(c);
		stream->port_changes += stream->packets && stream->port != i;
		stream->port = i;
		stream->reason = c->reason;
		stream->pinned = c->reason == REASON_PINNED;
		stream->packets++;
		stream->bytes += c->packet->bytes;
	}
}

/** The port for a packet; -1 if no port works at both ends. */
static __always_inline int decide(struct choice *c)
{
	__u32 port;

	c->usable = c->config->usable_ports & c->peer->usable_ports;
	if (!c->usable)
		return -1;
	if (c->packet->has_queues) {
		bpf_loop(c->config->port_count, update_port_step, c, 0);
		c->host->queues_read_ns = c->packet->now_ns;
	}
	port = choose(c) & (MAX_PORTS - 1);
	account(c, port);
	return port;
}
