/* Ping-pong over one plain socket, TCP or Multipath TCP, by the method of `multirail bench`, and a load of such messages.
 *
 *   pingpong server ADDRESS PORT [--mptcp]
 *   pingpong client ADDRESS PORT [--bind ADDRESS] [--mptcp]
 *   pingpong load   ADDRESS PORT [--bind ADDRESS] [--mptcp] --bytes N --seconds S [--pause-us P]
 *
 * The server says `ready` and answers until it is ended. The client stays connected and measures each
 * message size that it reads from standard input, one a line (rounds.h). `load` prints one line, at its end.
 */
#define _GNU_SOURCE
#include "rounds.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
/* A peer that is silent for longer counts as lost. No message takes this long. */
#define SILENCE_S 120
#define MAX_LOAD_S 3600.0

/* What the client sends before a batch of rounds. Rounds of zero ask for the server's CPU time, a double. */
struct batch {
    uint64_t message_bytes;
    uint64_t rounds;
};

struct options {
    const char *bind;
    int protocol;
    uint64_t bytes;
    double seconds;
    unsigned pause_us;
};

static void read_all(int fd, void *to, size_t bytes) {
    for (char *at = to; bytes > 0;) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("read: %s", strerror(errno));
        if (n == 0) fail("read: the other side has closed");
        at += n;
        bytes -= (size_t)n;
    }
}

static void write_all(int fd, const void *from, size_t bytes) {
    for (const char *at = from; bytes > 0;) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("write: %s", strerror(errno));
        at += n;
        bytes -= (size_t)n;
    }
}

static struct sockaddr_in address(const char *text, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, text, &to.sin_addr) != 1) fail("not an IPv4 address: %s", text);
    return to;
}

static int new_socket(int protocol) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol);
    if (fd < 0) fail("socket of protocol %d: %s", protocol, strerror(errno));
    return fd;
}

static void configure(int fd) {
    int on = 1;
    struct timeval silence = {.tv_sec = SILENCE_S};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

static int dial(const char *host, int port, const struct options *options) {
    int fd = new_socket(options->protocol);
    if (options->bind) {
        struct sockaddr_in local = address(options->bind, 0);
        if (bind(fd, (struct sockaddr *)&local, sizeof local) != 0) fail("bind %s: %s", options->bind, strerror(errno));
    }
    struct sockaddr_in to = address(host, port);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) fail("connect %s:%d: %s", host, port, strerror(errno));
    configure(fd);
    struct timeval silence = {.tv_sec = SILENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    return fd;
}

static void answer(int fd) {
    char *buffer = NULL;
    size_t held = 0;
    for (;;) {
        struct batch batch;
        ssize_t n = recv(fd, &batch, sizeof batch, MSG_WAITALL);
        if (n != (ssize_t)sizeof batch) return;
        if (batch.rounds == 0) {
            double used = cpu_seconds();
            write_all(fd, &used, sizeof used);
            continue;
        }
        if (batch.message_bytes > MAX_MESSAGE_BYTES) fail("a message of %llu bytes", (unsigned long long)batch.message_bytes);
        if (batch.message_bytes > held) {
            free(buffer);
            buffer = new_buffer(batch.message_bytes);
            held = batch.message_bytes;
        }
        for (uint64_t i = 0; i < batch.rounds; i++) {
            read_all(fd, buffer, batch.message_bytes);
            write_all(fd, buffer, batch.message_bytes);
        }
    }
}

static int serve(const char *host, int port, const struct options *options) {
    signal(SIGCHLD, SIG_IGN);
    int listener = new_socket(options->protocol), on = 1;
    struct sockaddr_in at = address(host, port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0)
        fail("listening on %s:%d: %s", host, port, strerror(errno));
    puts("ready");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) fail("accept: %s", strerror(errno));
        configure(fd);
        pid_t child = fork();
        if (child < 0) fail("fork: %s", strerror(errno));
        if (child == 0) {
            /* The connections end with the server. */
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            close(listener);
            answer(fd);
            _exit(0);
        }
        close(fd);
    }
}

static void socket_rounds(void *context, char *buffer, uint64_t message_bytes, uint64_t rounds, double *times_us) {
    int fd = *(int *)context;
    struct batch batch = {message_bytes, rounds};
    write_all(fd, &batch, sizeof batch);
    for (uint64_t i = 0; i < rounds; i++) {
        double start = now_us();
        write_all(fd, buffer, message_bytes);
        read_all(fd, buffer, message_bytes);
        times_us[i] = now_us() - start;
    }
}

static double socket_cpu_s(void *context) {
    int fd = *(int *)context;
    struct batch batch = {0, 0};
    double theirs;
    write_all(fd, &batch, sizeof batch);
    read_all(fd, &theirs, sizeof theirs);
    return theirs + cpu_seconds();
}

static int client(const char *host, int port, const struct options *options) {
    int fd = dial(host, port, options);
    measure_lines(&(struct rounds){socket_rounds, socket_cpu_s, &fd});
    return 0;
}

static int load(const char *host, int port, const struct options *options) {
    if (options->bytes == 0 || options->bytes > MAX_MESSAGE_BYTES) fail("--bytes from 1 to %llu", MAX_MESSAGE_BYTES);
    if (!(options->seconds > 0 && options->seconds <= MAX_LOAD_S)) fail("--seconds up to %.0f", MAX_LOAD_S);
    int fd = dial(host, port, options);
    char *buffer = new_buffer(options->bytes);
    uint64_t rounds = 0;
    double sum_us = 0, start = now_us(), end = start + options->seconds * 1e6;
    while (now_us() < end) {
        double took_us;
        socket_rounds(&fd, buffer, options->bytes, 1, &took_us);
        sum_us += took_us;
        rounds++;
        if (options->pause_us > 0) usleep(options->pause_us);
    }
    printf("{\"message_bytes\":%llu,\"rounds\":%llu,\"seconds\":%.3f,\"rtt_us_mean\":%.1f}\n", (unsigned long long)options->bytes,
           (unsigned long long)rounds, (now_us() - start) / 1e6, sum_us / (double)rounds);
    return 0;
}

int main(int count, char **words) {
    const char *usage = "pingpong server|client|load ADDRESS PORT [--bind ADDRESS] [--mptcp] "
                        "[--bytes N --seconds S [--pause-us P]]";
    if (count < 4) fail("usage: %s", usage);
    struct options options = {0};
    for (int i = 4; i < count; i++) {
        const char *name = words[i];
        if (strcmp(name, "--mptcp") == 0) {
            options.protocol = IPPROTO_MPTCP;
            continue;
        }
        if (++i == count) fail("usage: %s", usage);
        if (strcmp(name, "--bind") == 0) options.bind = words[i];
        else if (strcmp(name, "--bytes") == 0) options.bytes = strtoull(words[i], NULL, 10);
        else if (strcmp(name, "--seconds") == 0) options.seconds = atof(words[i]);
        else if (strcmp(name, "--pause-us") == 0) options.pause_us = (unsigned)strtoul(words[i], NULL, 10);
        else fail("usage: %s", usage);
    }
    signal(SIGPIPE, SIG_IGN);
    int port = atoi(words[3]);
    if (strcmp(words[1], "server") == 0) return serve(words[2], port, &options);
    if (strcmp(words[1], "client") == 0) return client(words[2], port, &options);
    if (strcmp(words[1], "load") == 0) return load(words[2], port, &options);
    fail("usage: %s", usage);
}
