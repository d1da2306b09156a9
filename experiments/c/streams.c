/* Streams between hosts as unchanged programs make them: a blocking socket and a thread each, at both ends, with default buffers.
 *
 *   streams PORT [--mptcp]
 *
 * A host runs one of these, which says `ready`. A line of standard input makes a run, of which every host is told at the same time:
 *
 *   START FROM TO [ADDRESS:COUNT[:KBIT_S:MESSAGE_BYTES]] ...
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. To each address COUNT streams are opened at once; they send from START to TO, as fast as
 * they can, or a message now and then. The answer is a line of JSON: the bytes of each stream that came to this host between FROM and
 * TO; of the streams that left, what was written and not yet acknowledged after each write; and counters of the host at both times.
 */
#define _GNU_SOURCE
#include "rounds.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define WRITE_BYTES (64 << 10)
#define MAX_LINE_BYTES (64 << 10)
#define MAX_STREAMS 1024
/* Of a stream's backlogs, so many are kept, evenly spread. */
#define MAX_SAMPLES 4096
/* How long a call of a socket may wait before the time is looked at. */
#define LOOK_US 50000
/* Connections are made so long before a run starts. */
#define CONNECT_NS 150000000ll
/* From the end of a run until everything that belongs to it has ended. */
#define GRACE_NS 150000000ll
#define COUNTERS_BYTES (64 << 10)

struct run {
    int64_t start_ns, from_ns, to_ns;
};

struct target {
    struct sockaddr_in to;
    int count;
    double kbit_s;
    uint64_t message_bytes;
};

struct sender {
    pthread_t thread;
    struct target target;
    struct run run;
    int samples, stride, skipped;
    uint32_t backlog[MAX_SAMPLES];
};

struct receiver {
    pthread_t thread;
    int fd;
    struct in_addr from;
    uint64_t bytes;
};

static int port, protocol;
/* Of the current run; written by the thread that accepts and by the main one between runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct receiver *receivers[MAX_STREAMS];
static int received;
static struct run current;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void sleep_until(int64_t at_ns) {
    struct timespec at = {at_ns / 1000000000, at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

static void start_thread(pthread_t *thread, void *(*go)(void *), void *context) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    int error = pthread_create(thread, &small, go, context);
    if (error) fail("thread: %s", strerror(error));
    pthread_attr_destroy(&small);
}

/* The last bytes need not arrive: a run has ended. */
static void reset(int fd) {
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void keep_sample(struct sender *self, uint32_t backlog) {
    if (++self->skipped < self->stride) return;
    self->skipped = 0;
    if (self->samples == MAX_SAMPLES) {
        for (int i = 0; i < MAX_SAMPLES / 2; i++) self->backlog[i] = self->backlog[2 * i];
        self->samples /= 2;
        self->stride *= 2;
    }
    self->backlog[self->samples++] = backlog;
}

static void *send_stream(void *context) {
    struct sender *self = context;
    const struct target *target = &self->target;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol);
    if (fd < 0) fail("socket of protocol %d: %s", protocol, strerror(errno));
    struct timeval look = {.tv_usec = LOOK_US};
    /* All hosts have heard of the run by then. */
    sleep_until(self->run.start_ns - CONNECT_NS);
    /* It is also how long connecting may take. */
    struct timeval patience = {.tv_sec = (self->run.to_ns - now_ns()) / 1000000000 + 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&target->to, sizeof target->to) != 0) {
        reset(fd);
        return NULL;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
    uint64_t message_bytes = target->message_bytes ? target->message_bytes : WRITE_BYTES;
    char *buffer = new_buffer(message_bytes);
    double gap_ns = target->kbit_s > 0 ? 8e6 * (double)message_bytes / target->kbit_s : 0;
    sleep_until(self->run.start_ns);
    for (int64_t i = 0, now; (now = now_ns()) < self->run.to_ns; i++) {
        int64_t due_ns = self->run.start_ns + (int64_t)(gap_ns * (double)i);
        if (gap_ns > 0 && due_ns > now) {
            sleep_until(due_ns < self->run.to_ns ? due_ns : self->run.to_ns);
            if (due_ns >= self->run.to_ns) break;
        }
        uint64_t sent = 0;
        while (sent < message_bytes && now_ns() < self->run.to_ns) {
            ssize_t n = send(fd, buffer + sent, message_bytes - sent, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN && errno != EINTR) goto end;
            if (n > 0) sent += (uint64_t)n;
            int backlog = 0;
            if (now_ns() >= self->run.from_ns && n > 0 && ioctl(fd, SIOCOUTQ, &backlog) == 0) keep_sample(self, (uint32_t)backlog);
        }
    }
end:
    reset(fd);
    free(buffer);
    return NULL;
}

static void *receive_stream(void *context) {
    struct receiver *self = context;
    char *buffer = new_buffer(WRITE_BYTES);
    int64_t end_ns = 0;
    for (;;) {
        ssize_t n = recv(self->fd, buffer, WRITE_BYTES, 0);
        int64_t now = now_ns();
        pthread_mutex_lock(&lock);
        struct run run = current;
        pthread_mutex_unlock(&lock);
        end_ns = run.to_ns;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || now > end_ns + GRACE_NS / 3) break;
        if (n > 0 && now >= run.from_ns && now < run.to_ns) self->bytes += (uint64_t)n;
    }
    reset(self->fd);
    free(buffer);
    return NULL;
}

static void *accept_streams(void *context) {
    int listener = *(int *)context;
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC);
        if (fd < 0) continue;
        struct timeval look = {.tv_usec = LOOK_US};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
        pthread_mutex_lock(&lock);
        if (received == MAX_STREAMS || now_ns() > current.to_ns) {
            reset(fd);
        } else {
            struct receiver *one = calloc(1, sizeof *one);
            if (!one) fail("no memory");
            one->fd = fd;
            one->from = from.sin_addr;
            receivers[received++] = one;
            start_thread(&one->thread, receive_stream, one);
        }
        pthread_mutex_unlock(&lock);
    }
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '\n') fputs("\\n", stdout);
        else if (*text == '"' || *text == '\\') printf("\\%c", *text);
        else if (*text == '\t') putchar(' ');
        else putchar(*text);
    }
    putchar('"');
}

static const char *const COUNTERS[] = {"netstat", "snmp", "dev"};
#define COUNTERS_FILES (sizeof COUNTERS / sizeof *COUNTERS)
typedef char counters[COUNTERS_FILES][COUNTERS_BYTES];

static void look(counters into) {
    for (size_t i = 0; i < COUNTERS_FILES; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/net/%s", COUNTERS[i]);
        FILE *file = fopen(path, "r");
        if (!file) fail("%s: %s", path, strerror(errno));
        into[i][fread(into[i], 1, COUNTERS_BYTES - 1, file)] = 0;
        fclose(file);
    }
}

static void print_counters(const char *name, counters of) {
    printf(",\"%s\":{", name);
    for (size_t i = 0; i < COUNTERS_FILES; i++) {
        printf("%s\"%s\":", i ? "," : "", COUNTERS[i]);
        print_text(of[i]);
    }
    putchar('}');
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_sender(struct sender *one) {
    double sum = 0;
    for (int i = 0; i < one->samples; i++) sum += one->backlog[i];
    qsort(one->backlog, (size_t)one->samples, sizeof *one->backlog, by_value);
    printf("{\"to\":\"%s\",\"backlog_mean\":%.0f,\"backlog_median\":%u}", inet_ntoa(one->target.to.sin_addr),
           one->samples ? sum / one->samples : 0.0, one->samples ? one->backlog[one->samples / 2] : 0);
}

static struct target parse_target(char *word) {
    struct target target = {.to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}};
    char *count = strchr(word, ':');
    if (!count) fail("no count: %s", word);
    *count++ = 0;
    if (inet_pton(AF_INET, word, &target.to.sin_addr) != 1) fail("not an IPv4 address: %s", word);
    unsigned long long message_bytes = 0;
    if (sscanf(count, "%d:%lf:%llu", &target.count, &target.kbit_s, &message_bytes) < 1) fail("not a count: %s", count);
    if (target.count < 1 || target.count > MAX_STREAMS || message_bytes > MAX_MESSAGE_BYTES) fail("too much: %s", count);
    target.message_bytes = message_bytes;
    return target;
}

static void go(char *line) {
    static counters before, after;
    struct run run;
    int used = 0, senders = 0;
    struct sender *all[MAX_STREAMS];
    if (sscanf(line, "%ld %ld %ld%n", &run.start_ns, &run.from_ns, &run.to_ns, &used) != 3) fail("no times: %s", line);
    pthread_mutex_lock(&lock);
    current = run;
    pthread_mutex_unlock(&lock);
    char *rest = line + used, *word;
    while ((word = strsep(&rest, " \n"))) {
        if (!*word) continue;
        struct target target = parse_target(word);
        for (int i = 0; i < target.count; i++) {
            if (senders == MAX_STREAMS) fail("more than %d streams", MAX_STREAMS);
            struct sender *one = calloc(1, sizeof *one);
            if (!one) fail("no memory");
            one->target = target;
            one->run = run;
            one->stride = 1;
            all[senders++] = one;
            start_thread(&one->thread, send_stream, one);
        }
    }
    sleep_until(run.from_ns);
    look(before);
    sleep_until(run.to_ns);
    look(after);
    for (int i = 0; i < senders; i++) pthread_join(all[i]->thread, NULL);
    sleep_until(run.to_ns + GRACE_NS);
    /* Nothing is accepted any more. */
    for (int i = 0; i < received; i++) pthread_join(receivers[i]->thread, NULL);
    fputs("{\"received\":[", stdout);
    for (int i = 0; i < received; i++)
        printf("%s{\"from\":\"%s\",\"bytes\":%llu}", i ? "," : "", inet_ntoa(receivers[i]->from), (unsigned long long)receivers[i]->bytes);
    fputs("],\"sent\":[", stdout);
    for (int i = 0; i < senders; i++) {
        if (i) putchar(',');
        print_sender(all[i]);
        free(all[i]);
    }
    putchar(']');
    print_counters("before", before);
    print_counters("after", after);
    puts("}");
    fflush(stdout);
    for (int i = 0; i < received; i++) free(receivers[i]);
    received = 0;
}

int main(int count, char **words) {
    if (count < 2) fail("usage: streams PORT [--mptcp]");
    port = atoi(words[1]);
    protocol = count > 2 && strcmp(words[2], "--mptcp") == 0 ? IPPROTO_MPTCP : 0;
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, MAX_STREAMS) != 0)
        fail("listening on port %d: %s", port, strerror(errno));
    pthread_t thread;
    start_thread(&thread, accept_streams, &listener);
    puts("ready");
    fflush(stdout);
    static char line[MAX_LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) go(line);
    return 0;
}
