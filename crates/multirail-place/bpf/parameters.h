/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The constants of the decision. Time in nanoseconds; sizes in frames of FRAME_BYTES.
 */

#define NS_PER_MS 1000000ULL
/** An Ethernet frame without its checksum. */
static const __u32 FRAME_BYTES = 1514;

/** A stream is busy when more than this is unsent. */
static const __u32 BUSY_UNSENT_FRAMES = 2;
/** A stream stops being busy this long after it last had so much unsent. */
static const __u64 BUSY_TIMEOUT_NS = 50 * NS_PER_MS;
/**
 * A slot counts as busy for this long after its stream was busy. Longer than BUSY_TIMEOUT_NS: a
 * sending thread may be scheduled late. Shorter than SLOT_TIMEOUT_NS: the port of a stream that
 * ended without FIN must not stay unused.
 */
static const __u64 COUNT_TIMEOUT_NS = 250 * NS_PER_MS;
/** A stream keeps its slot and its port for this long after it was busy. */
static const __u64 SLOT_TIMEOUT_NS = 1000 * NS_PER_MS;
/** Interval at which the busy streams to a peer are counted. */
static const __u64 COUNT_INTERVAL_NS = 4 * NS_PER_MS;

/** Interval at which the queues of the ports are read. Between two reads they are estimated. */
static const __u64 QUEUE_READ_INTERVAL_NS = NS_PER_MS / 2;
/** Minimum duration of a sample of a port's rate. */
static const __u64 MIN_SAMPLE_NS = 2 * NS_PER_MS;
/** Minimum amount that a sample measures. */
static const __u32 MIN_SAMPLE_FRAMES = 32;
/** A sample ends after this many times MIN_SAMPLE_NS, however little was sent. */
static const __u32 MAX_SAMPLE_RATIO = 256;
/** The rate of a port is the fastest of this many samples. */
static const __u32 SAMPLES_PER_RATE = 8;
/** Limit of the ratio of a port's nominal rate to its measured rate. */
static const __u32 MAX_SLOWDOWN = 1024;

/** Minimum interval between two checks of a stream's duplicates. */
static const __u64 CHECK_INTERVAL_NS = 250 * NS_PER_MS;
/** Minimum number of segments sent between two checks. */
static const __u32 MIN_CHECK_SEGMENTS = 256;
/** A check fails if more than one segment in MAX_DUPLICATE_RATIO was a duplicate. */
static const __u32 MAX_DUPLICATE_RATIO = 4;
/** The stream gets fewer ports after this many failed checks in a row. */
static const __u32 FAILED_CHECKS_TO_NARROW = 4;
/** The stream gets more ports after this many passed checks in a row. */
static const __u32 PASSED_CHECKS_TO_WIDEN = 8;

/** A port that finishes at most this many of its frames after the first one is equally good. */
static const __u32 TIE_FRAMES = 2;
/** Limit of how far a port's service may lag behind the port with the most service for a peer. */
static const __u32 MAX_LAG_FRAMES = 64;
