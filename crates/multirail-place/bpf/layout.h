/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The data that the BPF programs and user space share: map values and records. scripts/build-bpf
 * generates src/program/layout/generated.rs from this file and from parameters.h.
 *
 * A "mask of ports" has bit p set for port p. Times are those of bpf_ktime_get_ns(), in
 * nanoseconds. The speed of a port is given as the time that it takes to send 1 KiB.
 */
#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

#define MAX_PORTS 16
#define MAX_PEERS 1024
/** Busy streams to one peer that are tracked separately. */
#define SLOTS 64
/** Streams in the map of trace.bpf.c: more than there are slots. */
#define TRACED_STREAMS 72

/** How streams are given to ports. */
enum policy {
	POLICY_SINGLE,
	POLICY_LAYER2,
	POLICY_LAYER34,
	POLICY_ROUND_ROBIN,
	POLICY_BACKLOG,
	POLICY_ADAPTIVE,
};

/** Why a packet was given to its port. */
enum reason {
	/** The policy is `single`. */
	REASON_FIRST_PORT,
	/** The port was chosen by a hash of the packet's addresses. */
	REASON_HASH,
	/** The port was the next one in round-robin order. */
	REASON_ROUND_ROBIN,
	/** The stream is pinned to this port. */
	REASON_PINNED,
	/** The stream may use several ports, and this one was the best of them. */
	REASON_SPREAD,
	/** The stream has little to send, and this port finishes the packet first. */
	REASON_EARLIEST,
};

/** An Ethernet address, padded to eight bytes. */
struct mac {
	__u8 bytes[6];
	__u8 unused[2];
};

/** The only entry of map `config`, written by user space. */
struct config {
	/** An `enum policy`. */
	__u32 policy;
	/** Number of ports of this host. */
	__u32 port_count;
	/** The backlog above which the policy `backlog` pins a stream. */
	__u32 threshold_bytes;
	/** Mask of the ports of this host that can send. */
	__u32 usable_ports;
};

/** An entry of map `ports`: a port of this host, written by user space. */
struct port {
	__u32 ifindex;
	__u32 unused;
	struct mac mac;
	/** Address of the kernel's `struct net_device`, stored by the program `find_net_device`. */
	__u64 net_device;
	/** Time for 1 KiB at the port's nominal speed. */
	__u64 ns_per_kib;
};

/** An entry of map `port_states`: what the program measured at a port of this host. */
struct port_state {
	__u64 packets;
	__u64 bytes;
	/** Bytes in the port's queue when it was last read. */
	__u64 queue_bytes;
	/** Measured time for 1 KiB. */
	__u64 ns_per_kib;
	/** Start of the current rate sample. */
	__u64 sample_start_ns;
	/** `bytes` at the start of the sample. */
	__u64 sample_start_bytes;
	/** `queue_bytes` at the start of the sample. */
	__u64 sample_start_queue_bytes;
	/** The fastest of the `samples` taken so far. */
	__u64 fastest_ns_per_kib;
	__u64 samples;
	/** Whether the queue was empty at any time during the sample. */
	__u64 was_idle;
};

/** The only entry of map `host_state`: what each packet needs of all ports, kept together. */
struct host_state {
	/** When the queues of the ports were last read. */
	__u64 queues_read_ns;
	/** Round-robin counter of packets. */
	__u32 next_packet;
	/** Round-robin counter of streams. */
	__u32 next_stream;
	/** When each port is expected to have sent all that it was given. */
	__u64 free_at_ns[MAX_PORTS];
	/** Time for 1 KiB: nominal, unless the measured one is clearly longer. */
	__u64 ns_per_kib[MAX_PORTS];
};

/** An entry of map `peers`, by the address of the peer's first port; written by user space. */
struct peer {
	/** Mask of the ports that lead to the peer. */
	__u32 usable_ports;
	/** Index of its entry in map `peer_states`. */
	__u32 index;
	/** Time for 1 KiB at the speed that the peer reports for its port; 0 if it reports none. */
	__u32 ns_per_kib[MAX_PORTS];
	struct mac macs[MAX_PORTS];
};

/** A slot, which one busy stream to a peer holds. Slot s stands for port s modulo the ports. */
struct slot {
	/** When the stream that holds the slot was last busy. */
	__u64 last_busy_ns;
	/** Id of that stream; 0 if the slot is free. */
	__u32 stream_id;
	__u32 unused;
};

/** An entry of map `peer_states`: what the program keeps of a peer. */
struct peer_state {
	/** The largest value of `service_ns`. */
	__u64 max_service_ns;
	/** When the masks of slots were last computed from `slots`. */
	__u64 slots_counted_ns;
	/** Mask of slots whose streams count as busy. */
	__u64 busy_slots;
	/** Mask of slots that no other stream may take yet. */
	__u64 reserved_slots;
	/** Id of the newest stream to this peer. */
	__u32 last_stream_id;
	/** Mask of the ports that are clearly slower than the fastest one to this peer. */
	__u32 slow_ports;
	/** When the peer's port will have received what this host sent, if it is the slower end. */
	__u64 free_at_ns[MAX_PORTS];
	/** Total sending time of each port for this peer. */
	__u64 service_ns[MAX_PORTS];
	struct slot slots[SLOTS];
};

/** A value of map `streams`: what the program keeps of a socket. */
struct stream_state {
	/** The port of the last packet. */
	__u32 port;
	/** Whether the stream stays at that port. */
	__u32 pinned;
	/** An `enum reason`: why the last packet was given to its port. */
	__u64 reason;
	__u64 packets;
	__u64 bytes;
	/** How many packets left by another port than the packet before. */
	__u64 port_changes;
	/** Unique among the streams to a peer; 0 until the stream is first busy. */
	__u32 id;
	__u32 slot;
	/** Mask of the ports that the stream may use. */
	__u32 allowed_ports;
	/** Limit of the number of ports, set when the receiver reports duplicates; 0: no limit. */
	__u32 max_ports;
	/** Number of segments sent at the last check of duplicates. */
	__u32 checked_segments;
	/** Number of duplicate segments at the last check. */
	__u32 checked_duplicates;
	/** Failed checks in a row. */
	__u32 failed_checks;
	/** Passed checks in a row. */
	__u32 passed_checks;
	__u64 checked_ns;
	/** When the stream last had unsent data. */
	__u64 last_busy_ns;
};

/** All properties of a packet that a decision depends on. */
struct packet {
	__u64 now_ns;
	/** Length of the frame. */
	__u32 bytes;
	/** Hash of the Ethernet addresses. */
	__u32 layer2_hash;
	/** Hash of the IP addresses and transport ports. */
	__u32 layer34_hash;
	/** Whether the packet is of a TCP socket of this host; if not, the next five are 0. */
	__u32 is_tcp;
	/** The stream's backlog: bytes written by the program and not acknowledged. */
	__u32 backlog_bytes;
	/** Segments sent and not acknowledged. */
	__u32 in_flight_segments;
	/** The part of the backlog that has not been sent. */
	__u32 unsent_bytes;
	/** Segments sent since the stream began. */
	__u32 segments;
	/** Segments that the receiver reported as duplicates (DSACK, RFC 2883). */
	__u32 duplicates;
	/** Whether the queues were read for this packet. */
	__u32 has_queues;
	/** Mask of the ports whose queues could be read. */
	__u32 known_queues;
	/** Whether the packet ends its stream (FIN or RST). */
	__u32 ends_stream;
	/** Bytes in the queues of the ports. */
	__u32 queue_bytes[MAX_PORTS];
};

/** The input of trace.bpf.c, as the data of a packet. */
struct traced_packet {
	/** The destination address, as in an Ethernet header. */
	__u8 ethernet[16];
	/** Index of the stream in map `traced_streams`. */
	__u32 stream;
	__u32 unused;
	struct packet packet;
};

/** The output of trace.bpf.c, stored after the first 16 bytes. */
struct traced_decision {
	/** -1 if no port can be used. */
	__s32 port;
	/** An `enum reason`. */
	__u32 reason;
};
#pragma clang diagnostic pop
