/* Broadcasts between Open MPI ranks, one a host.
 *
 * Rank 0 reads lines of standard input: a number of bytes. It says `armed` when all ranks are there, begins at the next line, and
 * prints a line of JSON: seconds until the last rank had everything, by the clock that all ranks share on this one machine. A number
 * with a `w` behind is a warm-up: nothing is waited for or printed. All compare what they got afterwards. Ranks without work sleep.
 */
#include "rounds.h"
#include <mpi.h>
#include <unistd.h>

#define LOOK_US 2000

enum { JOB = 1 };

struct job {
    uint64_t bytes;
    uint64_t is_warm_up;
};

static void fill(unsigned char *buffer, uint64_t bytes, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (uint64_t at = 0; at < bytes; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(buffer + at, &state, bytes - at < 8 ? bytes - at : 8);
    }
}

static uint64_t sum_of(const unsigned char *buffer, uint64_t bytes) {
    uint64_t sum = 0xcbf29ce484222325ull;
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, buffer + at, bytes - at < 8 ? bytes - at : 8);
        sum = (sum ^ word) * 0x100000001b3ull;
    }
    return sum;
}

static void wait_for_line(void) {
    char line[64];
    puts("armed");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) fail("standard input ended");
}

static void broadcast(int rank, struct job job) {
    unsigned char *buffer = (unsigned char *)new_buffer(job.bytes);
    memset(buffer, 0, job.bytes);
    if (rank == 0) fill(buffer, job.bytes, job.bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && !job.is_warm_up) wait_for_line();
    double began = now_us();
    MPI_Bcast(buffer, (int)job.bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    double ended = now_us(), last;
    MPI_Reduce(&ended, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    uint64_t sum = sum_of(buffer, job.bytes), least, most;
    MPI_Reduce(&sum, &least, 1, MPI_UINT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&sum, &most, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    free(buffer);
    if (rank != 0 || job.is_warm_up) return;
    printf("{\"bytes\":%llu,\"seconds\":%.6f,\"is_equal\":%s}\n", (unsigned long long)job.bytes, (last - began) / 1e6,
           least == most && least == sum ? "true" : "false");
    fflush(stdout);
}

static void answer(int rank) {
    for (;;) {
        int here = 0;
        while (MPI_Iprobe(0, JOB, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE), !here) usleep(LOOK_US);
        struct job job;
        MPI_Recv(&job, sizeof job, MPI_BYTE, 0, JOB, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (job.bytes == 0) return;
        broadcast(rank, job);
    }
}

static void tell_all(int ranks, struct job job) {
    for (int rank = 1; rank < ranks; rank++) MPI_Send(&job, sizeof job, MPI_BYTE, rank, JOB, MPI_COMM_WORLD);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank != 0) {
        answer(rank);
    } else {
        puts("ready");
        fflush(stdout);
        char line[64];
        while (fgets(line, sizeof line, stdin)) {
            char *end;
            unsigned long long bytes = strtoull(line, &end, 10);
            if (bytes == 0 || bytes > MAX_MESSAGE_BYTES) fail("a message of 1 byte to 1 GiB, not: %s", line);
            struct job job = {bytes, *end == 'w'};
            tell_all(ranks, job);
            broadcast(0, job);
        }
        tell_all(ranks, (struct job){0, 0});
    }
    MPI_Finalize();
    return 0;
}
