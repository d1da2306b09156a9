/* How a message size is measured, whatever carries the messages; as `multirail bench` does it.
 *
 * A line of standard input is a message size in bytes; the answer is a line of JSON. Rounds that do not count come first: three,
 * or as many as take a second. Then as many as fit into a quarter of a second, at least three; one if it takes more than a second.
 */
#pragma once
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_MESSAGE_BYTES (1ull << 30)
#define WARM_UP_ROUNDS 3
#define WARM_UP_US 1e6
#define MEASURE_US 250e3
#define MIN_ROUNDS 3
#define LONG_ROUND_US 1e6
#define MAX_ROUNDS 2000

/* What carries messages. */
struct rounds {
    /* Sends a message and receives it back, `rounds` times; the time of each goes to `times_us`. */
    void (*go)(void *context, char *buffer, uint64_t message_bytes, uint64_t rounds, double *times_us);
    /* CPU time that both processes have used. */
    double (*cpu_s)(void *context);
    void *context;
};

__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    va_end(rest);
    fputc('\n', stderr);
    exit(1);
}

static inline double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Touched, so that no page is made inside a measurement. */
static inline char *new_buffer(uint64_t bytes) {
    char *buffer = malloc(bytes > 0 ? bytes : 1);
    if (!buffer) fail("no memory for %llu bytes", (unsigned long long)bytes);
    memset(buffer, 0x55, bytes);
    return buffer;
}

static inline int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Answers lines until standard input ends. */
static inline void measure_lines(const struct rounds *rounds) {
    static double times[MAX_ROUNDS];
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long message_bytes = strtoull(line, NULL, 10);
        if (message_bytes == 0 || message_bytes > MAX_MESSAGE_BYTES) fail("a message of 1 byte to 1 GiB, not: %s", line);
        char *buffer = new_buffer(message_bytes);
        double last_us = 0, warm_up_us = 0;
        for (int i = 0; i < WARM_UP_ROUNDS && warm_up_us < WARM_UP_US; i++) {
            rounds->go(rounds->context, buffer, message_bytes, 1, &last_us);
            warm_up_us += last_us;
        }
        double least = last_us > LONG_ROUND_US ? 1 : MIN_ROUNDS;
        uint64_t count = (uint64_t)fmin(fmax(MEASURE_US / fmax(last_us, 1.0), least), MAX_ROUNDS);
        double cpu = rounds->cpu_s(rounds->context);
        rounds->go(rounds->context, buffer, message_bytes, count, times);
        cpu = rounds->cpu_s(rounds->context) - cpu;
        free(buffer);
        double sum = 0;
        for (uint64_t i = 0; i < count; i++) sum += times[i];
        double mean = sum / (double)count;
        qsort(times, count, sizeof *times, by_size);
        uint64_t p99 = count * 99 / 100 < count ? count * 99 / 100 : count - 1;
        printf("{\"message_bytes\":%llu,\"rounds\":%llu,\"rtt_us_mean\":%.2f,\"rtt_us_p99\":%.2f,"
               "\"effective_mbit_s\":%.3f,\"cpu_s_per_gib\":%.4f}\n",
               message_bytes, (unsigned long long)count, mean, times[p99], 8.0 * (double)message_bytes / (mean / 2),
               cpu / (2.0 * (double)message_bytes * (double)count / (double)(1 << 30)));
        fflush(stdout);
    }
}
