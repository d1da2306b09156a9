/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The policy `adaptive`: each pair of hosts uses all ports between them evenly, and a stream uses
 * as few of them as that allows (docs/decisions/0017-placement-by-pairs-of-hosts.md).
 *
 * PMCME (section 3.2) keeps a busy stream on one port, so fewer busy streams than ports leave ports
 * idle, and it counts streams instead of bytes. This policy differs as follows.
 *
 * - A stream with little to send uses, for each packet, the port that finishes it first.
 * - A stream with unsent data is busy. While a peer has fewer busy streams than ports, each busy
 *   stream may use all ports. From as many streams as ports on, each holds a slot, which stands for
 *   one port, and its packets keep their order.
 * - Of several allowed ports, a stream uses the one that finishes the packet first. Among ports
 *   that finish it almost as early, the one with the least service for this peer is chosen. If all
 *   senders do this, the queues at the peer's ports are equally long, too.
 * - A port is as slow as the slower of its two ends. The peer reports the speed of its end.
 * - No stream is pinned to a port that is clearly slower than the fastest one: it would starve.
 * - A stream whose receiver reports many duplicates gets fewer ports: its sender mistook reordering
 *   for loss.
 */

/** Time that a port needs for 1 KiB: at this host or at the peer, whichever is slower. */
static __always_inline __u64 path_ns_per_kib(const struct choice *c, __u32 i)
{
	__u64 local = c->host->ns_per_kib[i & (MAX_PORTS - 1)], remote = c->peer->ns_per_kib[i & (MAX_PORTS - 1)];

	return remote > local ? remote : local;
}

/**
 * The service of a port for this peer. Its lag is limited, so that a port that was idle or unusable
 * does not receive all that it missed.
 */
static __always_inline __u64 service_ns(const struct choice *c, __u32 i, __u64 ns_per_kib)
{
	__u64 max_lag_ns = MAX_LAG_FRAMES * FRAME_BYTES * ns_per_kib / 1024;
	__u64 service = c->peer_state->service_ns[i & (MAX_PORTS - 1)];

	return service + max_lag_ns < c->peer_state->max_service_ns ? c->peer_state->max_service_ns - max_lag_ns : service;
}

/** When both ends of a port would have finished a packet that is given to it now. */
static __always_inline __u64 finish_ns(const struct choice *c, __u32 i, __u64 ns_per_kib)
{
	__u64 now = c->packet->now_ns, local = c->host->free_at_ns[i & (MAX_PORTS - 1)], remote = c->peer_state->free_at_ns[i & (MAX_PORTS - 1)];
	__u64 start = local > remote ? local : remote;

	return (start > now ? start : now) + c->packet->bytes * ns_per_kib / 1024;
}

/**
 * The candidate with the least service for the peer, among those that finish the packet at most
 * `tie_frames` of their own frames after the first. Ports that are equal in everything take turns.
 */
static __always_inline __u32 best_port(struct choice *c, __u64 tie_frames)
{
	__u64 first_ns = ~0ULL, least_ns = ~0ULL;
	__u32 port_count = c->config->port_count, port = 0;

	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u64 end_ns;

		if (!(c->candidates >> i & 1))
			continue;
		end_ns = finish_ns(c, i, path_ns_per_kib(c, i));
		if (end_ns < first_ns)
			first_ns = end_ns;
	}
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u32 at = c->stream->port + 1 + i;
		__u64 ns, service;

		if (i >= port_count)
			break;
		at = (at >= port_count ? at - port_count : at) & (MAX_PORTS - 1);
		if (!(c->candidates >> at & 1))
			continue;
		ns = path_ns_per_kib(c, at);
		if (finish_ns(c, at, ns) > first_ns + tie_frames * FRAME_BYTES * ns / 1024)
			continue;
		service = service_ns(c, at, ns) + c->packet->bytes * ns / 1024;
		if (service < least_ns) {
			least_ns = service;
			port = at;
		}
	}
	return port;
}

static long count_slot_step(__u32 i, struct choice *c)
{
	__u64 last_busy_ns = c->peer_state->slots[i & (SLOTS - 1)].last_busy_ns, bit = 1ULL << (i & (SLOTS - 1));

	if (!last_busy_ns)
		return 0;
	if (last_busy_ns + COUNT_TIMEOUT_NS > c->packet->now_ns)
		c->busy_slots |= bit;
	if (last_busy_ns + SLOT_TIMEOUT_NS > c->packet->now_ns)
		c->reserved_slots |= bit;
	return 0;
}

/** Mask of the ports that need at least a quarter more time than the fastest one to the peer. */
static __always_inline __u32 slow_ports(const struct choice *c)
{
	__u64 least = ~0ULL;
	__u32 slow = 0;

	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u64 ns = path_ns_per_kib(c, i);

		if ((c->usable >> i & 1) && ns < least)
			least = ns;
	}
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		if (path_ns_per_kib(c, i) >= least + least / 4)
			slow |= 1U << i;
	}
	return slow;
}

/** Computes the masks of slots and of slow ports again. */
static __always_inline void count_slots(struct choice *c)
{
	c->busy_slots = c->reserved_slots = 0;
	bpf_loop(SLOTS, count_slot_step, c, 0);
	c->peer_state->slow_ports = slow_ports(c);
	c->peer_state->busy_slots = c->busy_slots;
	c->peer_state->reserved_slots = c->reserved_slots;
	c->peer_state->slots_counted_ns = c->packet->now_ns;
}

static __always_inline __u32 has_slot(const struct choice *c)
{
	return c->stream->id && c->peer_state->slots[c->stream->slot & (SLOTS - 1)].stream_id == c->stream->id;
}

static __always_inline void release_slot(struct choice *c)
{
	struct peer_state *state = c->peer_state;
	__u32 slot = c->stream->slot & (SLOTS - 1);

	state->slots[slot].stream_id = 0;
	state->slots[slot].last_busy_ns = 0;
	state->busy_slots &= ~(1ULL << slot);
	state->reserved_slots &= ~(1ULL << slot);
}

/**
 * Gives the stream the first free slot; returns 0 if there is none. Each of the first slots stands
 * for a port of its own, so a stream in a later slot moves to one of them as soon as one is free.
 */
static __always_inline __u32 take_slot(struct choice *c, __u32 port_count)
{
	struct peer_state *state = c->peer_state;
	__u64 lowest = ~state->reserved_slots & (state->reserved_slots + 1);
	__u32 free = lowest ? count_bits64(lowest - 1) : SLOTS, has = has_slot(c);

	if (has && (c->stream->slot < port_count || free >= port_count))
		return 1;
	if (free >= SLOTS)
		return 0;
	if (has)
		release_slot(c);
	state->slots[free & (SLOTS - 1)].stream_id = c->stream->id;
	c->stream->slot = free;
	return 1;
}

/**
 * Mask of the ports that a busy stream may use; empty if all slots are taken. The stream gets all
 * ports while the peer has fewer busy streams than ports, or if the port of its slot is a slow one.
 * Otherwise it gets the port of its slot.
 */
static __always_inline __u32 allowed_ports(struct choice *c)
{
	struct stream_state *stream = c->stream;
	struct peer_state *state = c->peer_state;
	__u32 port_count = count_bits(c->usable), slot, port;

	if (!stream->id)
		stream->id = __sync_fetch_and_add(&state->last_stream_id, 1) + 1;
	if (state->slots_counted_ns + COUNT_INTERVAL_NS < c->packet->now_ns)
		count_slots(c);
	if (!take_slot(c, port_count))
		return 0;
	slot = stream->slot & (SLOTS - 1);
	state->slots[slot].last_busy_ns = c->packet->now_ns;
	state->busy_slots |= 1ULL << slot;
	state->reserved_slots |= 1ULL << slot;
	if (count_bits64(state->busy_slots) >= port_count) {
		port = nth_port(c, slot) & (MAX_PORTS - 1);
		if (!(state->slow_ports >> port & 1))
			return 1U << port;
	}
	if (!stream->max_ports || stream->max_ports >= port_count)
		return c->usable;
	/* Streams with a limit start at different ports. */
	c->from = c->packet->layer34_hash % (port_count - stream->max_ports + 1);
	c->to = c->from + stream->max_ports;
	c->n = 0;
	c->mask = 0;
	bpf_loop(MAX_PORTS, port_range_step, c, 0);
	return c->mask;
}

/**
 * Limits the number of ports of a stream whose receiver reports too many duplicates, and raises the
 * limit again when it reports fewer.
 */
static __always_inline void check_duplicates(struct choice *c)
{
	struct stream_state *stream = c->stream;
	__u32 segments = c->packet->segments - stream->checked_segments, duplicates = c->packet->duplicates - stream->checked_duplicates;

	if (stream->checked_ns + CHECK_INTERVAL_NS > c->packet->now_ns || segments < MIN_CHECK_SEGMENTS)
		return;
	if (stream->checked_ns && stream->allowed_ports) {
		__u32 has_failed = duplicates > segments / MAX_DUPLICATE_RATIO, port_count = count_bits(stream->allowed_ports);

		stream->failed_checks = has_failed ? stream->failed_checks + 1 : 0;
		stream->passed_checks = has_failed ? 0 : stream->passed_checks + 1;
		if (stream->failed_checks >= FAILED_CHECKS_TO_NARROW) {
			stream->max_ports = port_count > 2 ? port_count / 2 : 1;
			stream->failed_checks = 0;
		} else if (stream->max_ports && stream->passed_checks >= PASSED_CHECKS_TO_WIDEN) {
			stream->max_ports = stream->max_ports >= MAX_PORTS ? 0 : 2 * stream->max_ports;
			stream->passed_checks = 0;
		}
	}
	stream->checked_ns = c->packet->now_ns;
	stream->checked_segments = c->packet->segments;
	stream->checked_duplicates = c->packet->duplicates;
}

/** Whether the stream has, or had a moment ago, more unsent data than BUSY_UNSENT_FRAMES. */
static __always_inline __u32 is_busy(const struct choice *c)
{
	if (c->packet->unsent_bytes > BUSY_UNSENT_FRAMES * FRAME_BYTES)
		c->stream->last_busy_ns = c->packet->now_ns;
	return c->stream->last_busy_ns && c->stream->last_busy_ns + BUSY_TIMEOUT_NS > c->packet->now_ns;
}

/**
 * Whether a stream that is not busy stays at the only port it was allowed. It does while segments
 * are in flight, which a packet at another port could overtake, and until SLOT_TIMEOUT_NS.
 */
static __always_inline __u32 stays_pinned(const struct choice *c)
{
	const struct stream_state *stream = c->stream;
	__u32 port = stream->port & 31;

	if (stream->allowed_ports != 1U << port || !(c->usable >> port & 1))
		return 0;
	return c->packet->in_flight_segments || stream->last_busy_ns + SLOT_TIMEOUT_NS > c->packet->now_ns;
}

/** The port for a packet of a stream that has little to send. */
static __always_inline __u32 choose_idle(struct choice *c)
{
	struct stream_state *stream = c->stream;

	if (stays_pinned(c)) {
		c->reason = REASON_PINNED;
		return stream->port;
	}
	/* If the receiver tolerates few ports, segments in flight must not be overtaken either. */
	if (stream->max_ports && c->packet->in_flight_segments && stream->allowed_ports & c->usable)
		c->candidates = stream->allowed_ports & c->usable;
	c->reason = REASON_EARLIEST;
	return best_port(c, 0);
}

/** The port for a packet of a stream that has much to send. */
static __always_inline __u32 choose_busy(struct choice *c)
{
	struct stream_state *stream = c->stream;
	__u32 port;

	check_duplicates(c);
	stream->allowed_ports = allowed_ports(c);
	if (stream->allowed_ports) {
		c->candidates = stream->allowed_ports;
		c->reason = c->candidates & (c->candidates - 1) ? REASON_SPREAD : REASON_PINNED;
		/* The number of the only port in a mask is the number of the bits below it. */
		return c->reason == REASON_PINNED ? count_bits(c->candidates - 1) : best_port(c, TIE_FRAMES);
	}
	/* All slots are taken: the stream changes its port only when nothing is in flight. */
	c->reason = REASON_PINNED;
	port = stream->port & (MAX_PORTS - 1);
	if (!stream->packets || !c->packet->in_flight_segments || !(c->usable >> port & 1))
		port = best_port(c, TIE_FRAMES) & (MAX_PORTS - 1);
	stream->allowed_ports = 1U << port;
	return port;
}

static __always_inline __u32 choose_adaptive(struct choice *c)
{
	if (!c->packet->is_tcp || !c->stream) {
		c->reason = REASON_HASH;
		return nth_port(c, c->packet->layer34_hash);
	}
	c->candidates = c->usable;
	return is_busy(c) ? choose_busy(c) : choose_idle(c);
}

/** Adds the packet to the service of its port and to the time at which both ends will be free. */
static __always_inline void account_service(struct choice *c, __u32 at)
{
	__u64 now = c->packet->now_ns, local = c->host->ns_per_kib[at], path = path_ns_per_kib(c, at), service;
	struct host_state *host = c->host;

	/* The queue at the peer's end is not visible; it is estimated where that end is slower. */
	if (path > local)
		c->peer_state->free_at_ns[at] = (c->peer_state->free_at_ns[at] > now ? c->peer_state->free_at_ns[at] : now) + c->packet->bytes * path / 1024;
	host->free_at_ns[at] = (host->free_at_ns[at] > now ? host->free_at_ns[at] : now) + c->packet->bytes * local / 1024;
	service = service_ns(c, at, path) + c->packet->bytes * path / 1024;
	c->peer_state->service_ns[at] = service;
	if (service > c->peer_state->max_service_ns)
		c->peer_state->max_service_ns = service;
}
