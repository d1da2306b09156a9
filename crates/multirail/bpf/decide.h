/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The decision: which port a packet leaves by. crates/multirail-proto/src/placement is the same in Rust, with the reasons; a test
 * drives both with the same packets (trace.bpf.c) and compares every decision.
 */
#include "place.h"

#define FRAME_BYTES 1514
#define MS 1000000ULL
/* A stream is no longer busy after this, */
#define IDLE_NS (50 * MS)
/* no longer counts among its peer's busy ones after this, */
#define COUNTED_NS (250 * MS)
/* and has its slot and its port until this. */
#define KEEP_NS (1000 * MS)
/* A stream is busy if more than this waits to be sent. */
#define WAITING_FRAMES 2
#define COUNT_NS (4 * MS)
#define SAMPLE_NS (2 * MS)
#define SAMPLE_FRAMES 32
#define SAMPLES 8
/* No port is taken to be slower than nominal by more than this. */
#define SLOWEST 1024
/* How often the queues are looked at; in between, they are reckoned. */
#define LOOK_NS (MS / 2)
#define JUDGE_NS (250 * MS)
/* Of duplicates, a stream's receiver bears one segment in so many, */
#define BEARABLE 4
/* of at least so many; */
#define JUDGE_SEGMENTS 256
/* it gets fewer ports after so many bad judgements in a row, and more after so many good ones. */
#define BAD 4
#define GOOD 8
/* A port that finishes a packet so many of its frames later than the first is as good. */
#define ALIKE_FRAMES 2
/* How far a port may be behind the one that has worked most for a peer. */
#define BEHIND_FRAMES 64

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
/* By the address of a host's first port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PEERS);
	__type(key, struct mac);
	__type(value, struct peer);
} peers SEC(".maps");
struct {
	ARRAY_OF(struct peer_state, MAX_PEERS);
} peer_states SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stream);
} streams SEC(".maps");

/* All that a decision is about. */
struct choice {
	const struct config *config;
	struct host_state *host;
	const struct peer *peer;
	struct peer_state *peer_state;
	struct stream *stream;
	const struct packet *packet;
	__u32 usable; /* mask */
	__u32 wanted; /* mask: a part of `usable` */
	__u32 why;
	__u32 port;
	__u32 n;
	__u32 mask;
	__u32 from;
	__u32 to;
	__u64 busy; /* masks of slots */
	__u64 held;
};

static __always_inline __u32 count(__u32 mask)
{
	mask = mask - ((mask >> 1) & 0x55555555);
	mask = (mask & 0x33333333) + ((mask >> 2) & 0x33333333);
	return (((mask + (mask >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

/* The n-th bit that is set, in order. */
static long nth_step(__u32 i, struct choice *c)
{
	if (!(c->usable >> i & 1))
		return 0;
	if (c->n == 0) {
		c->port = i;
		return 1;
	}
	c->n--;
	return 0;
}

static __always_inline __u32 nth(struct choice *c, __u32 n)
{
	n %= count(c->usable);
	/* As a rule, all ports up to the last one. */
	if (!(c->usable & (c->usable + 1)))
		return n;
	c->n = n;
	c->port = 0;
	bpf_loop(MAX_PORTS, nth_step, c, 0);
	return c->port;
}

/* What a KiB needs by this port: here or there, whichever is slower. */
static __always_inline __u64 pair_ns_per_kib(const struct choice *c, __u32 i)
{
	__u64 here = c->host->ns_per_kib[i & (MAX_PORTS - 1)], there = c->peer->ns_per_kib[i & (MAX_PORTS - 1)];

	return there > here ? there : here;
}

/* How long a port has worked for this peer. One that was idle, or away, does not get all that it missed. */
static __always_inline __u64 given(const struct choice *c, __u32 i, __u64 ns)
{
	__u64 behind = BEHIND_FRAMES * FRAME_BYTES * ns / 1024, given_ns = c->peer_state->given_ns[i & (MAX_PORTS - 1)];

	return given_ns + behind < c->peer_state->most_ns ? c->peer_state->most_ns - behind : given_ns;
}

/* When a port, here or there, has finished a packet that is given to it now. */
static __always_inline __u64 finish(const struct choice *c, __u32 i, __u64 ns)
{
	__u64 now = c->packet->now_ns, here = c->host->free_ns[i & (MAX_PORTS - 1)], there = c->peer_state->free_ns[i & (MAX_PORTS - 1)];
	__u64 from = here > there ? here : there;

	return (from > now ? from : now) + c->packet->bytes * ns / 1024;
}

/*
 * The port that finishes the packet first; of those that do within `alike_frames` of their own of it, that which has worked least for the peer, so that its
 * ports are used evenly, too. Of ports alike in everything, the next after the stream's last one.
 */
static __always_inline __u32 best(struct choice *c, __u64 alike_frames)
{
	__u64 first_ns = ~0ULL, least_ns = ~0ULL;
	__u32 ports = c->config->ports, port = 0;

	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u64 finish_ns;

		if (!(c->wanted >> i & 1))
			continue;
		finish_ns = finish(c, i, pair_ns_per_kib(c, i));
		if (finish_ns < first_ns)
			first_ns = finish_ns;
	}
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u32 at = c->stream->port + 1 + i;
		__u64 ns, given_ns;

		if (i >= ports)
			break;
		at = (at >= ports ? at - ports : at) & (MAX_PORTS - 1);
		if (!(c->wanted >> at & 1))
			continue;
		ns = pair_ns_per_kib(c, at);
		if (finish(c, at, ns) > first_ns + alike_frames * FRAME_BYTES * ns / 1024)
			continue;
		given_ns = given(c, at, ns) + c->packet->bytes * ns / 1024;
		if (given_ns < least_ns) {
			least_ns = given_ns;
			port = at;
		}
	}
	return port;
}

static long count_step(__u32 i, struct choice *c)
{
	__u64 busy_ns = c->peer_state->slots[i & (SLOTS - 1)].busy_ns, bit = 1ULL << (i & (SLOTS - 1));

	if (!busy_ns)
		return 0;
	if (busy_ns + COUNTED_NS > c->packet->now_ns)
		c->busy |= bit;
	if (busy_ns + KEEP_NS > c->packet->now_ns)
		c->held |= bit;
	return 0;
}

/* Of the ports that lead to the peer, those that need a quarter more than the fastest, or still more. */
static __always_inline __u32 slow_ports(const struct choice *c)
{
	__u64 least = ~0ULL;
	__u32 slow = 0;

	for (__u32 i = 0; i < MAX_PORTS; i++) {
		__u64 ns = pair_ns_per_kib(c, i);

		if ((c->usable >> i & 1) && ns < least)
			least = ns;
	}
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		if (pair_ns_per_kib(c, i) >= least + least / 4)
			slow |= 1U << i;
	}
	return slow;
}

static __always_inline void recount(struct choice *c)
{
	c->busy = c->held = 0;
	bpf_loop(SLOTS, count_step, c, 0);
	c->peer_state->slow = slow_ports(c);
	c->peer_state->busy = c->busy;
	c->peer_state->held = c->held;
	c->peer_state->counted_ns = c->packet->now_ns;
}

static __always_inline __u32 count64(__u64 mask)
{
	return count((__u32)mask) + count((__u32)(mask >> 32));
}

static __always_inline __u32 has_slot(const struct choice *c)
{
	return c->stream->number && c->peer_state->slots[c->stream->slot & (SLOTS - 1)].stream == c->stream->number;
}

static __always_inline void release(struct choice *c)
{
	struct peer_state *state = c->peer_state;
	__u32 slot = c->stream->slot & (SLOTS - 1);

	state->slots[slot].stream = 0;
	state->slots[slot].busy_ns = 0;
	state->busy &= ~(1ULL << slot);
	state->held &= ~(1ULL << slot);
}

/* Whether the stream has a slot; one of the first, of which each is another port's, if there is one. */
static __always_inline __u32 take_slot(struct choice *c, __u32 ports)
{
	struct peer_state *state = c->peer_state;
	__u64 lowest = ~state->held & (state->held + 1);
	__u32 free = lowest ? count64(lowest - 1) : SLOTS, has = has_slot(c);

	if (has && (c->stream->slot < ports || free >= ports))
		return 1;
	if (free >= SLOTS)
		return 0;
	if (has)
		release(c);
	state->slots[free & (SLOTS - 1)].stream = c->stream->number;
	c->stream->slot = free;
	return 1;
}

static long width_step(__u32 i, struct choice *c)
{
	if (!(c->usable >> i & 1))
		return 0;
	if (c->n >= c->from && c->n < c->to)
		c->mask |= 1U << i;
	c->n++;
	return 0;
}

/*
 * The ports that a busy stream may use, as a mask: all, as long as there are fewer busy streams to this peer than ports; one for each from
 * then on. Nothing, if there are more than slots. All, too, for one whose port were a slow one, where it would starve.
 */
static __always_inline __u32 share(struct choice *c)
{
	struct stream *stream = c->stream;
	struct peer_state *state = c->peer_state;
	__u32 ports = count(c->usable), slot, port;

	if (!stream->number)
		stream->number = __sync_fetch_and_add(&state->streams, 1) + 1;
	if (state->counted_ns + COUNT_NS < c->packet->now_ns)
		recount(c);
	if (!take_slot(c, ports))
		return 0;
	slot = stream->slot & (SLOTS - 1);
	state->slots[slot].busy_ns = c->packet->now_ns;
	state->busy |= 1ULL << slot;
	state->held |= 1ULL << slot;
	if (count64(state->busy) >= ports) {
		port = nth(c, slot) & (MAX_PORTS - 1);
		if (!(state->slow >> port & 1))
			return 1U << port;
	}
	if (!stream->width || stream->width >= ports)
		return c->usable;
	/* Not all from the same port on. */
	c->from = c->packet->hash34 % (ports - stream->width + 1);
	c->to = c->from + stream->width;
	c->n = 0;
	c->mask = 0;
	bpf_loop(MAX_PORTS, width_step, c, 0);
	return c->mask;
}

/* Fewer ports for a stream whose receiver tells of too many segments that came twice, and more again when it has got better. */
static __always_inline void judge(struct choice *c)
{
	struct stream *stream = c->stream;
	__u32 segments = c->packet->segments - stream->segments, duplicates = c->packet->duplicates - stream->duplicates;

	if (stream->judged_ns + JUDGE_NS > c->packet->now_ns || segments < JUDGE_SEGMENTS)
		return;
	if (stream->judged_ns && stream->ports) {
		__u32 is_bad = duplicates > segments / BEARABLE, now = count(stream->ports);

		stream->bad = is_bad ? stream->bad + 1 : 0;
		stream->good = is_bad ? 0 : stream->good + 1;
		if (stream->bad >= BAD) {
			stream->width = now > 2 ? now / 2 : 1;
			stream->bad = 0;
		} else if (stream->width && stream->good >= GOOD) {
			stream->width = stream->width >= MAX_PORTS ? 0 : 2 * stream->width;
			stream->good = 0;
		}
	}
	stream->judged_ns = c->packet->now_ns;
	stream->segments = c->packet->segments;
	stream->duplicates = c->packet->duplicates;
}

/* A stream of which something waits, or did just now, could use more than it has. */
static __always_inline __u32 is_busy(const struct choice *c)
{
	if (c->packet->unsent > WAITING_FRAMES * FRAME_BYTES)
		c->stream->busy_ns = c->packet->now_ns;
	return c->stream->busy_ns && c->stream->busy_ns + IDLE_NS > c->packet->now_ns;
}

/* A stream that was kept to one port, and whose program only comes late, is not to overtake itself. */
static __always_inline __u32 is_kept(const struct choice *c)
{
	const struct stream *stream = c->stream;
	__u32 port = stream->port & 31;

	if (stream->ports != 1U << port || !(c->usable >> port & 1))
		return 0;
	return c->packet->in_flight || stream->busy_ns + KEEP_NS > c->packet->now_ns;
}

static __always_inline __u32 adaptive(struct choice *c)
{
	struct stream *stream = c->stream;
	__u32 port;

	if (!c->packet->is_tcp || !stream) {
		c->why = HASH;
		return nth(c, c->packet->hash34);
	}
	c->wanted = c->usable;
	if (!is_busy(c)) {
		if (is_kept(c)) {
			c->why = PINNED;
			return stream->port;
		}
		/* Where its receiver bears only so many ports, what is on the way must not be overtaken either. */
		if (stream->width && c->packet->in_flight && stream->ports & c->usable)
			c->wanted = stream->ports & c->usable;
		c->why = LEAST;
		return best(c, 0);
	}
	judge(c);
	stream->ports = share(c);
	if (stream->ports) {
		c->wanted = stream->ports;
		c->why = c->wanted & (c->wanted - 1) ? SPREAD : PINNED;
		/* A mask of one port: its number is that of the bits below. */
		return c->why == PINNED ? count(c->wanted - 1) : best(c, ALIKE_FRAMES);
	}
	/* One more than there are slots: it stays where it is until nothing of it is on the way. */
	c->why = PINNED;
	port = stream->port & (MAX_PORTS - 1);
	if (!stream->packets || !c->packet->in_flight || !(c->usable >> port & 1))
		port = best(c, ALIKE_FRAMES) & (MAX_PORTS - 1);
	stream->ports = 1U << port;
	return port;
}

static __always_inline __u32 in_turn(struct choice *c, __u32 *turn)
{
	return nth(c, __sync_fetch_and_add(turn, 1));
}

/* The paper's method: what has much to send is given a port for good, ports in turn; the packets of the others go in turn. */
static __always_inline __u32 by_backlog(struct choice *c)
{
	struct stream *stream = c->stream;

	if (stream && stream->pinned && (c->usable >> (stream->port & 31) & 1)) {
		c->why = PINNED;
		return stream->port;
	}
	if (stream && c->packet->is_tcp && c->packet->backlog > c->config->threshold) {
		c->why = PINNED;
		return in_turn(c, &c->host->streams);
	}
	c->why = TURN;
	return in_turn(c, &c->host->packets);
}

static __always_inline __u32 choose(struct choice *c)
{
	c->why = HASH;
	switch (c->config->policy) {
	case LAYER2:
		return nth(c, c->packet->hash2);
	case LAYER34:
		return nth(c, c->packet->hash34);
	case ROUND_ROBIN:
		c->why = TURN;
		return in_turn(c, &c->host->packets);
	case BACKLOG:
		return by_backlog(c);
	case ADAPTIVE:
		return adaptive(c);
	}
	c->why = FIRST;
	return nth(c, 0);
}

/*
 * What has drained while there was always something queued shows the port's rate: the fastest of some measurements, for a host that is busy
 * slows all of them now and then. If it was idle in between, it is at least as fast as that.
 */
static __always_inline void measure(struct port_state *state, const struct port *port, __u64 now_ns, __u32 queued)
{
	__u64 carried = state->bytes - state->sampled_bytes + state->sampled_queued - queued, passed = now_ns - state->sampled_ns;
	__u64 nominal = port->ns_per_kib, sample;

	state->was_idle |= !queued;
	if (passed < SAMPLE_NS || (carried < SAMPLE_FRAMES * FRAME_BYTES && passed < 256 * SAMPLE_NS))
		return;
	sample = passed * 1024 / (carried + 1);
	sample = sample < nominal ? nominal : sample > SLOWEST * nominal ? SLOWEST * nominal : sample;
	if (!state->was_idle) {
		if (!state->samples || sample < state->fastest_ns_per_kib)
			state->fastest_ns_per_kib = sample;
		if (++state->samples >= SAMPLES) {
			state->ns_per_kib = state->fastest_ns_per_kib;
			state->samples = 0;
		}
	} else if (sample < state->ns_per_kib - state->ns_per_kib / 4) {
		state->ns_per_kib = sample;
	}
	state->was_idle = !queued;
	state->sampled_ns = now_ns;
	state->sampled_bytes = state->bytes;
	state->sampled_queued = queued;
}

struct alike {
	__u32 port;
	__u32 unused;
	__u64 ns_per_kib;
};

static long alike_step(__u32 i, struct alike *alike)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	__u64 ns;

	if (i >= alike->port || !state)
		return 1;
	ns = state->ns_per_kib;
	if ((ns > alike->ns_per_kib ? ns - alike->ns_per_kib : alike->ns_per_kib - ns) >= alike->ns_per_kib / 4)
		return 0;
	alike->ns_per_kib = ns;
	return 1;
}

static long look_step(__u32 i, struct choice *c)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	struct port *port = bpf_map_lookup_elem(&ports, &i);
	struct host_state *host = c->host;
	__u32 at = i & (MAX_PORTS - 1), queued = c->packet->queued[at];

	if (!state || !port)
		return 0;
	if (state->ns_per_kib < port->ns_per_kib)
		state->ns_per_kib = port->ns_per_kib;
	if (!(c->packet->seen >> i & 1))
		return 0;
	state->queued = queued;
	measure(state, port, c->packet->now_ns, queued);
	/* Ports that are nearly alike are alike, for else noise would make them work unevenly. */
	struct alike alike = {.port = i, .ns_per_kib = state->ns_per_kib};

	bpf_loop(MAX_PORTS, alike_step, &alike, 0);
	state->ns_per_kib = alike.ns_per_kib;
	host->ns_per_kib[at] = alike.ns_per_kib > port->ns_per_kib + port->ns_per_kib / 2 ? alike.ns_per_kib : port->ns_per_kib;
	host->free_ns[at] = c->packet->now_ns + queued * host->ns_per_kib[at] / 1024;
	return 0;
}

static __always_inline void account(struct choice *c, __u32 i)
{
	struct port_state *state = bpf_map_lookup_elem(&port_states, &i);
	__u64 now = c->packet->now_ns, given_ns, here, ns;
	struct stream *stream = c->stream;
	struct host_state *host = c->host;
	__u32 at = i & (MAX_PORTS - 1);

	if (!state)
		return;
	__sync_fetch_and_add(&state->packets, 1);
	__sync_fetch_and_add(&state->bytes, c->packet->bytes);
	if (c->config->policy == ADAPTIVE) {
		here = host->ns_per_kib[at];
		ns = pair_ns_per_kib(c, at);
		/* Where the peer's port is the slower one, its queue is not seen. */
		if (ns > here)
			c->peer_state->free_ns[at] = (c->peer_state->free_ns[at] > now ? c->peer_state->free_ns[at] : now) + c->packet->bytes * ns / 1024;
		host->free_ns[at] = (host->free_ns[at] > now ? host->free_ns[at] : now) + c->packet->bytes * here / 1024;
		given_ns = given(c, at, ns) + c->packet->bytes * ns / 1024;
		c->peer_state->given_ns[at] = given_ns;
		if (given_ns > c->peer_state->most_ns)
			c->peer_state->most_ns = given_ns;
	}
	if (stream) {
		if (c->packet->is_last && c->config->policy == ADAPTIVE && has_slot(c))
			release(c);
		stream->moves += stream->packets && stream->port != i;
		stream->port = i;
		stream->why = c->why;
		stream->pinned = c->why == PINNED;
		stream->packets++;
		stream->bytes += c->packet->bytes;
	}
}

/* The port for a packet, or none (-1) if this host and the peer have no port in common that works. */
static __always_inline int decide(struct choice *c)
{
	__u32 port;

	c->usable = c->config->usable & c->peer->usable;
	if (!c->usable)
		return -1;
	if (c->packet->is_looked) {
		bpf_loop(c->config->ports, look_step, c, 0);
		c->host->looked_ns = c->packet->now_ns;
	}
	port = choose(c) & (MAX_PORTS - 1);
	account(c, port);
	return port;
}
