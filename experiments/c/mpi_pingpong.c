/* Ping-pong between two ranks of MPI, by the method of `multirail bench`: rank 0 reads message sizes from standard
 * input (rounds.h), rank 1 sends back.
 *
 * MPI waits by spinning. Between measurements rank 1 sleeps between looks, so that lines measured meanwhile have the CPU.
 */
#define _GNU_SOURCE
#include "rounds.h"
#include <limits.h>
#include <mpi.h>
#include <unistd.h>

#define LOOK_US 2000

enum { BATCH = 1, READY, DATA, CPU };

/* Rounds of zero ask for the other rank's CPU time; a message of zero bytes besides is the end. */
struct batch {
    uint64_t message_bytes;
    uint64_t rounds;
};

static void mpi_rounds(void *context, char *buffer, uint64_t message_bytes, uint64_t rounds, double *times_us) {
    (void)context;
    struct batch batch = {message_bytes, rounds};
    MPI_Send(&batch, sizeof batch, MPI_BYTE, 1, BATCH, MPI_COMM_WORLD);
    /* It may have slept until now. */
    MPI_Recv(NULL, 0, MPI_BYTE, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (uint64_t i = 0; i < rounds; i++) {
        double start = now_us();
        MPI_Send(buffer, (int)message_bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
        MPI_Recv(buffer, (int)message_bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        times_us[i] = now_us() - start;
    }
}

static double mpi_cpu_s(void *context) {
    (void)context;
    struct batch batch = {1, 0};
    double theirs;
    MPI_Send(&batch, sizeof batch, MPI_BYTE, 1, BATCH, MPI_COMM_WORLD);
    MPI_Recv(&theirs, 1, MPI_DOUBLE, 1, CPU, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return theirs + cpu_seconds();
}

static void answer(void) {
    for (;;) {
        int here = 0;
        for (;;) {
            MPI_Iprobe(0, BATCH, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE);
            if (here) break;
            usleep(LOOK_US);
        }
        struct batch batch;
        MPI_Recv(&batch, sizeof batch, MPI_BYTE, 0, BATCH, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (batch.rounds == 0 && batch.message_bytes == 0) return;
        if (batch.rounds == 0) {
            double used = cpu_seconds();
            MPI_Send(&used, 1, MPI_DOUBLE, 0, CPU, MPI_COMM_WORLD);
            continue;
        }
        char *buffer = new_buffer(batch.message_bytes);
        MPI_Send(NULL, 0, MPI_BYTE, 0, READY, MPI_COMM_WORLD);
        for (uint64_t i = 0; i < batch.rounds; i++) {
            MPI_Recv(buffer, (int)batch.message_bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, (int)batch.message_bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
        }
        free(buffer);
    }
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) fail("two ranks, not %d", ranks);
    if (rank == 1) {
        answer();
    } else {
        measure_lines(&(struct rounds){mpi_rounds, mpi_cpu_s, NULL});
        struct batch end = {0, 0};
        MPI_Send(&end, sizeof end, MPI_BYTE, 1, BATCH, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
