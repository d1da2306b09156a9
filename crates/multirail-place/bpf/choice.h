/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The context of a decision, and operations on sets of ports. */

/** All that a decision depends on, and its result. Also the context of callbacks of bpf_loop(). */
struct choice {
	const struct config *config;
	struct host_state *host;
	const struct peer *peer;
	struct peer_state *peer_state;
	/** Null for a packet that belongs to no socket of this host. */
	struct stream_state *stream;
	const struct packet *packet;
	/** Mask of the ports that work at both ends. */
	__u32 usable;
	/** Mask of the ports among which `best_port` chooses: a subset of `usable`. */
	__u32 candidates;
	__u32 reason;
	/** Result of `nth_port_step`. */
	__u32 port;
	/** Counter of `nth_port_step` and `port_range_step`. */
	__u32 n;
	/** Result of `port_range_step`. */
	__u32 mask;
	/** Range of `port_range_step`. */
	__u32 from;
	__u32 to;
	/** Results of `count_slot_step`: masks of slots. */
	__u64 busy_slots;
	__u64 reserved_slots;
};

/** Number of bits that are set. */
static __always_inline __u32 count_bits(__u32 mask)
{
	mask = mask - ((mask >> 1) & 0x55555555);
	mask = (mask & 0x33333333) + ((mask >> 2) & 0x33333333);
	return (((mask + (mask >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

static __always_inline __u32 count_bits64(__u64 mask)
{
	return count_bits((__u32)mask) + count_bits((__u32)(mask >> 32));
}

static long nth_port_step(__u32 i, struct choice *c)
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

/** The usable port of index `n` modulo the number of usable ports. */
static __always_inline __u32 nth_port(struct choice *c, __u32 n)
{
	n %= count_bits(c->usable);
	/* The usual case: all ports up to the last one are usable. */
	if (!(c->usable & (c->usable + 1)))
		return n;
	c->n = n;
	c->port = 0;
	bpf_loop(MAX_PORTS, nth_port_step, c, 0);
	return c->port;
}

/** Adds port `i` to the mask if its index among the usable ports is in the range. */
static long port_range_step(__u32 i, struct choice *c)
{
	if (!(c->usable >> i & 1))
		return 0;
	if (c->n >= c->from && c->n < c->to)
		c->mask |= 1U << i;
	c->n++;
	return 0;
}
