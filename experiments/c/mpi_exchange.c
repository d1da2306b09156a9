/* What parallel programs exchange, without what they compute between: patterns of the NAS Parallel Benchmarks.
 *
 * Rank 0 reads lines `KERNEL SECONDS` and answers each with a line of JSON: iterations, the time that they took, and the bytes that
 * they sent from rank to rank.
 *
 *   ft   all to all, of a whole array: MPI_Alltoall
 *   is   a bucket sort of integers: sizes of buckets by MPI_Allreduce and MPI_Alltoall, keys by MPI_Alltoallv
 *   cg   a butterfly: with the rank that differs in one bit, for each bit
 *   lu   neighbours in a grid, in many small messages
 */
#define _GNU_SOURCE
#include "rounds.h"
#include <limits.h>
#include <mpi.h>

#define MAX_SECONDS 60.0
/* Of all ranks together, whatever their number. */
#define ARRAY_BYTES (16u << 20)
#define KEYS (4u << 20)
/* Of one rank. */
#define BUTTERFLY_BYTES (256u << 10)
#define NEIGHBOUR_BYTES (10u << 10)
#define NEIGHBOUR_MESSAGES 16

static int rank, ranks;

struct kernel {
    const char *name;
    /* Once; the bytes that this rank sends to others. */
    uint64_t (*go)(void);
};

static char *sent, *got;

static uint64_t ft(void) {
    int each = (int)(ARRAY_BYTES / (unsigned)(ranks * ranks));
    MPI_Alltoall(sent, each, MPI_BYTE, got, each, MPI_BYTE, MPI_COMM_WORLD);
    return (uint64_t)each * (uint64_t)(ranks - 1);
}

/* A generator of its own, so that every machine sorts the same keys. */
static uint32_t next_key(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

static uint64_t is(void) {
    static int *counts, *from, *all, *starts, *places;
    int keys = (int)(KEYS / (unsigned)ranks);
    size_t size = (size_t)ranks * sizeof(int);
    if (!counts) {
        counts = malloc(size), from = malloc(size), all = malloc(size), starts = malloc(size), places = malloc(size);
        if (!counts || !from || !all || !starts || !places) fail("no memory");
    }
    memset(counts, 0, size);
    uint64_t state = (uint64_t)rank + 1;
    for (int i = 0; i < keys; i++) counts[next_key(&state) % (unsigned)ranks]++;
    for (int i = 0, at = 0; i < ranks; at += counts[i++]) starts[i] = places[i] = at;
    state = (uint64_t)rank + 1;
    for (int i = 0; i < keys; i++) {
        uint32_t key = next_key(&state);
        ((uint32_t *)sent)[places[key % (unsigned)ranks]++] = key;
    }
    MPI_Allreduce(counts, all, ranks, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Alltoall(counts, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
    int total = 0;
    for (int i = 0; i < ranks; total += from[i++]) places[i] = total;
    if (total != all[rank]) fail("rank %d gets %d keys of %d", rank, total, all[rank]);
    MPI_Alltoallv(sent, counts, starts, MPI_UINT32_T, got, from, places, MPI_UINT32_T, MPI_COMM_WORLD);
    for (int i = 0; i < total; i++)
        if (((uint32_t *)got)[i] % (unsigned)ranks != (unsigned)rank) fail("rank %d got another's key", rank);
    return 4ull * (uint64_t)(keys - counts[rank]);
}

static uint64_t cg(void) {
    uint64_t bytes = 0;
    for (int bit = 1; bit < ranks; bit *= 2) {
        int other = rank ^ bit;
        if (other >= ranks) continue;
        MPI_Sendrecv(sent, BUTTERFLY_BYTES, MPI_BYTE, other, bit, got, BUTTERFLY_BYTES, MPI_BYTE, other, bit, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        bytes += BUTTERFLY_BYTES;
    }
    return bytes;
}

static uint64_t lu(void) {
    int width = 1;
    while ((width + 1) * (width + 1) <= ranks) width++;
    while (ranks % width) width--;
    int height = ranks / width, x = rank % width, y = rank / width;
    int ways[][2] = {{(x + 1) % width + y * width, (x + width - 1) % width + y * width},
                     {x + (y + 1) % height * width, x + (y + height - 1) % height * width}};
    uint64_t bytes = 0;
    for (int i = 0; i < NEIGHBOUR_MESSAGES; i++) {
        for (int way = 0; way < 2; way++) {
            if (ways[way][0] == rank) continue;
            MPI_Sendrecv(sent, NEIGHBOUR_BYTES, MPI_BYTE, ways[way][0], way, got, NEIGHBOUR_BYTES, MPI_BYTE, ways[way][1], way,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bytes += NEIGHBOUR_BYTES;
        }
    }
    return bytes;
}

static const struct kernel KERNELS[] = {{"ft", ft}, {"is", is}, {"cg", cg}, {"lu", lu}};

/* All ranks stop after the same iteration: rank 0 says which. */
static void measure(const struct kernel *kernel, double seconds) {
    uint64_t bytes = 0, all = 0;
    int iterations = 0, more = 1;
    kernel->go();
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_us();
    for (; more; iterations++) {
        bytes += kernel->go();
        more = now_us() - start < seconds * 1e6;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double took_s = (now_us() - start) / 1e6;
    MPI_Reduce(&bytes, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"kernel\":\"%s\",\"ranks\":%d,\"iterations\":%d,\"seconds\":%.6f,\"bytes\":%llu}\n", kernel->name, ranks, iterations, took_s,
               (unsigned long long)all);
        fflush(stdout);
    }
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* Keys are spread about evenly: no process gets twice the mean. */
    size_t most = ARRAY_BYTES / (unsigned)ranks + 8 * (size_t)KEYS / (unsigned)ranks + BUTTERFLY_BYTES;
    sent = new_buffer(most);
    got = new_buffer(most);
    for (;;) {
        struct { int kernel; double seconds; } next = {-1, 0};
        char line[128], name[16];
        if (rank == 0 && fgets(line, sizeof line, stdin)) {
            if (sscanf(line, "%15s %lf", name, &next.seconds) != 2 || !(next.seconds > 0 && next.seconds <= MAX_SECONDS)) fail("not KERNEL SECONDS: %s", line);
            for (int i = 0; i < (int)(sizeof KERNELS / sizeof *KERNELS); i++)
                if (strcmp(KERNELS[i].name, name) == 0) next.kernel = i;
            if (next.kernel < 0) fail("no such kernel: %s", name);
        }
        MPI_Bcast(&next, sizeof next, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (next.kernel < 0) break;
        measure(&KERNELS[next.kernel], next.seconds);
    }
    MPI_Finalize();
    return 0;
}
