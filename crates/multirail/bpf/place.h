/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What lies in the maps. crates/multirail/src/placement/layout.rs says the same in Rust, and a test compares the sizes. */
#define MAX_PORTS 16
#define MAX_PEERS 1024
/* Busy streams to a peer that are told apart. */
#define SLOTS 64

enum policy { SINGLE, LAYER2, LAYER34, ROUND_ROBIN, BACKLOG, ADAPTIVE };

/* Why a packet went where it went; `multirail place status` prints it. */
enum why { FIRST, HASH, TURN, PINNED, SPREAD, LEAST };

struct mac {
	__u8 bytes[6];
	__u8 unused[2];
};

struct config {
	__u32 policy;
	__u32 ports;
	__u32 threshold; /* bytes, of `backlog` */
	__u32 usable;	 /* a bit a port: packets may leave there */
};

/* Written by the tool. `dev` is the address of the kernel's net_device, which `learn` finds. */
struct port {
	__u32 ifindex;
	__u32 unused;
	struct mac mac;
	__u64 dev;
	__u64 ns_per_kib; /* at the link's nominal speed */
};

/* Written by the program. */
struct port_state {
	__u64 packets;
	__u64 bytes;
	__u64 queued;		  /* bytes in the queue when it was last looked at */
	__u64 ns_per_kib;	  /* as measured */
	__u64 sampled_ns;	  /* the measurement: when it began, */
	__u64 sampled_bytes;	  /* `bytes` then, */
	__u64 sampled_queued;	  /* and what was queued then */
	__u64 fastest_ns_per_kib; /* of `samples` measurements */
	__u64 samples;
	__u64 was_idle; /* since the measurement began */
};

/* Of all ports: what is read for each packet lies together. */
struct host_state {
	__u64 looked_ns; /* when the queues were looked at */
	__u32 packets;	 /* turns: of packets, */
	__u32 streams;	 /* and of streams */
	__u64 free_ns[MAX_PORTS];    /* when what was given to a port will have left */
	__u64 ns_per_kib[MAX_PORTS]; /* what a port needs for a KiB: as nominal, unless it is clearly slower */
};

/* Written by the tool. */
struct peer {
	__u32 usable; /* a bit a port number */
	__u32 number; /* of its peer_state */
	__u32 ns_per_kib[MAX_PORTS]; /* what its ports need for a KiB at the speed that it tells of; 0: it tells of none */
	struct mac macs[MAX_PORTS];
};

struct slot {
	__u64 busy_ns; /* when the stream that has it was last busy */
	__u32 stream;  /* its number, 0: nobody's */
	__u32 unused;
};

struct peer_state {
	__u64 most_ns; /* the most of given_ns */
	__u64 counted_ns;
	__u64 busy; /* mask of slots whose streams were busy when they were counted, */
	__u64 held; /* and of those that nobody else may have yet */
	__u32 streams;
	__u32 slow; /* mask of the ports to it that are clearly slower than the fastest */
	__u64 free_ns[MAX_PORTS]; /* when the peer's port will have taken what it was given by this host, where it is slower than this host's */
	__u64 given_ns[MAX_PORTS]; /* how long each port, here or there, has worked for this peer */
	struct slot slots[SLOTS];
};

struct stream {
	__u32 port;
	__u32 pinned; /* it stays there */
	__u64 why;
	__u64 packets;
	__u64 bytes;
	__u64 moves;
	__u32 number;
	__u32 slot;
	__u32 ports;	/* mask of those it may use */
	__u32 width;	/* at most so many of them, for the sake of its receiver */
	__u32 segments; /* the judgement of reordering: counters when it began, */
	__u32 duplicates;
	__u32 bad; /* and judgements in a row */
	__u32 good;
	__u64 judged_ns;
	__u64 busy_ns; /* when it last had something waiting */
};

/* What a decision depends on besides the maps. */
struct packet {
	__u64 now_ns;
	__u32 bytes;
	__u32 hash2;	/* of hardware addresses */
	__u32 hash34;	/* of addresses and ports */
	__u32 is_tcp;	/* the fields below are known */
	__u32 backlog;	/* bytes that the stream has not had acknowledged */
	__u32 in_flight; /* segments */
	__u32 unsent;	/* of the backlog, what has not been sent yet */
	__u32 segments; /* sent since the start */
	__u32 duplicates; /* that the receiver told of */
	__u32 is_looked;  /* the queues were looked at: */
	__u32 seen;	  /* mask of those that tell, */
	__u32 is_last;	  /* the stream says that it ends */
	__u32 queued[MAX_PORTS]; /* and how many bytes they have */
};
