/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* How fast the ports of this host are, from what their queues have sent. */

/**
 * Ends the current sample of a port's rate if it is long enough.
 *
 * What left a queue that was never empty shows the port's rate. A busy host sometimes slows down
 * all its ports, so the rate is the fastest of several samples. A port that was idle during the
 * sample is at least as fast as the sample.
 */
static __always_inline void sample_rate(struct port_state *state, const struct port *port, __u64 now_ns, __u32 queue_bytes)
{
	__u64 sent = state->bytes - state->sample_start_bytes + state->sample_start_queue_bytes - queue_bytes;
	__u64 elapsed_ns = now_ns - state->sample_start_ns, nominal = port->ns_per_kib, sample;

	state->was_idle |= !queue_bytes;
	if (elapsed_ns < MIN_SAMPLE_NS || (sent < MIN_SAMPLE_FRAMES * FRAME_BYTES && elapsed_ns < MAX_SAMPLE_RATIO * MIN_SAMPLE_NS))
		return;
	sample = elapsed_ns * 1024 / (sent + 1);
	sample = sample < nominal ? nominal : sample > MAX_SLOWDOWN * nominal ? MAX_SLOWDOWN * nominal : sample;
	if (!state->was_idle) {
		if (!state->samples || sample < state->fastest_ns_per_kib)
			state->fastest_ns_per_kib = sample;
		if (++state->samples >= SAMPLES_PER_RATE) {
			state->ns_per_kib = state->fastest_ns_per_kib;
			state->samples = 0;
		}
	} else if (sample < state->ns_per_kib - state->ns_per_kib / 4) {
		state->ns_per_kib = sample;
	}
	state->was_idle = !queue_bytes;
	state->sample_start_ns = now_ns;
	state->sample_start_bytes = state->bytes;
	state->sample_start_queue_bytes = queue_bytes;
}

/** The context of `similar_rate_step`. */
struct similar_rate {
	/** Only ports before this one are compared. */
	__u32 port;
	__u32 unused;
	__u64 ns_per_kib;
};

static long similar_rate_step(__u32 i, struct similar_rate *similar)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	__u64 ns;

	if (i >= similar->port || !state)
		return 1;
	ns = state->ns_per_kib;
	if ((ns > similar->ns_per_kib ? ns - similar->ns_per_kib : similar->ns_per_kib - ns) >= similar->ns_per_kib / 4)
		return 0;
	similar->ns_per_kib = ns;
	return 1;
}

/** Takes over what was read from the queue of port `i`. */
static long update_port_step(__u32 i, struct choice *c)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	struct port *port = bpf_map_lookup_elem(&ports, &i);
	struct host_state *host = c->host;
	__u32 at = i & (MAX_PORTS - 1), queue_bytes = c->packet->queue_bytes[at];

	if (!state || !port)
		return 0;
	if (state->ns_per_kib < port->ns_per_kib)
		state->ns_per_kib = port->ns_per_kib;
	if (!(c->packet->known_queues >> i & 1))
		return 0;
	state->queue_bytes = queue_bytes;
	sample_rate(state, port, c->packet->now_ns, queue_bytes);
	/* Rates within a quarter are treated as equal: measurement noise would load ports unevenly. */
	struct similar_rate similar = {.port = i, .ns_per_kib = state->ns_per_kib};

	bpf_loop(MAX_PORTS, similar_rate_step, &similar, 0);
	state->ns_per_kib = similar.ns_per_kib;
	host->ns_per_kib[at] = similar.ns_per_kib > port->ns_per_kib + port->ns_per_kib / 2 ? similar.ns_per_kib : port->ns_per_kib;
	host->free_at_ns[at] = c->packet->now_ns + queue_bytes * host->ns_per_kib[at] / 1024;
	return 0;
}
