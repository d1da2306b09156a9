/* Streams between hosts as unchanged programs make them: sockets with default buffers, written to whenever they take something. One thread
 * serves all streams of a host, so that it is not the load that fills the processors.
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
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define WRITE_BYTES (64 << 10)
#define MAX_LINE_BYTES (64 << 10)
#define MAX_STREAMS 1024
/* A stream that takes all that it is given is not written to more often before others have their turn. */
#define MAX_WRITES 16
/* The number of backlogs that are kept of a stream, evenly spread. */
#define MAX_SAMPLES 4096
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
    int fd;
    /* While it waits to be able to write. */
    int waits;
    struct target target;
    /* Of messages: which one it is at, and how much of it has been written. */
    uint64_t message, written;
    int samples, stride, skipped;
    uint32_t backlog[MAX_SAMPLES];
};

struct receiver {
    int fd;
    struct in_addr from;
    uint64_t bytes;
};

/* What an event is about. */
enum kind { LISTENER, TIMER, SENDER, RECEIVER };

static int port, protocol, poller, listener, timer;
/* Of the current run. */
static struct run run;
static struct sender *senders[MAX_STREAMS];
static struct receiver receivers[MAX_STREAMS];
static int sent, received;
static char *out, *in;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void watch(int fd, uint32_t events, enum kind kind, int number) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)number};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll: %s", strerror(errno));
}

/* The last bytes need not arrive: a run has ended. */
static void reset(int fd) {
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void end_sender(struct sender *one) {
    if (one->fd >= 0) reset(one->fd);
    one->fd = -1;
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

static void connect_sender(struct sender *one, int number) {
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (one->fd < 0) fail("socket of protocol %d: %s", protocol, strerror(errno));
    if (connect(one->fd, (const struct sockaddr *)&one->target.to, sizeof one->target.to) != 0 && errno != EINPROGRESS) end_sender(one);
    /* Told once each time that it can take more; it is written to until it takes no more. */
    else watch(one->fd, EPOLLOUT | EPOLLET, SENDER, number);
}

/* When its present message is to be sent; 0: as soon as it can be. */
static int64_t due_ns(const struct sender *one) {
    if (one->target.kbit_s <= 0) return 0;
    return run.start_ns + (int64_t)(8e6 * (double)one->target.message_bytes / one->target.kbit_s * (double)one->message);
}

static int can_send(const struct sender *one, int64_t now) {
    return one->fd >= 0 && !one->waits && now >= run.start_ns && now < run.to_ns && due_ns(one) <= now;
}

/* What is due, as far as the socket takes it. */
static void send_some(struct sender *one, int64_t now) {
    for (int i = 0; i < MAX_WRITES && can_send(one, now); i++) {
        uint64_t rest = one->target.message_bytes - one->written;
        ssize_t n = send(one->fd, out, rest < WRITE_BYTES ? rest : WRITE_BYTES, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) one->waits = 1;
        else if (n < 0) end_sender(one);
        if (n <= 0) return;
        one->written += (uint64_t)n;
        if (one->written == one->target.message_bytes) {
            one->written = 0;
            one->message++;
        }
        int backlog = 0;
        if (now >= run.from_ns && ioctl(one->fd, SIOCOUTQ, &backlog) == 0) keep_sample(one, (uint32_t)backlog);
        now = now_ns();
    }
}

static void receive_some(struct receiver *one) {
    ssize_t n = recv(one->fd, in, WRITE_BYTES, 0);
    int64_t now = now_ns();
    if (n > 0 && now >= run.from_ns && now < run.to_ns) one->bytes += (uint64_t)n;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        reset(one->fd);
        one->fd = -1;
    }
}

static void accept_one(void) {
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (received == MAX_STREAMS || now_ns() > run.to_ns) {
        reset(fd);
        return;
    }
    receivers[received] = (struct receiver){.fd = fd, .from = from.sin_addr};
    watch(fd, EPOLLIN, RECEIVER, received++);
}

/* Wakes `serve` at a time; a timer, for the wait of epoll counts milliseconds. */
static void wake_at(int64_t at_ns) {
    static int64_t set_ns;
    struct itimerspec at = {.it_value = {at_ns / 1000000000, at_ns % 1000000000}};
    if (at_ns == set_ns) return;
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    set_ns = at_ns;
}

/* When something is to be done without a socket saying so, but not after `until_ns`. */
static int64_t next_ns(int64_t now, int64_t until_ns) {
    int64_t next = now < run.start_ns && run.start_ns < until_ns ? run.start_ns : until_ns;
    for (int i = 0; i < sent; i++) {
        const struct sender *one = senders[i];
        if (can_send(one, now)) return now;
        if (one->fd >= 0 && !one->waits && due_ns(one) > now && due_ns(one) < next) next = due_ns(one);
    }
    return next;
}

/* All streams, until then. */
static void serve(int64_t until_ns) {
    for (int64_t now; (now = now_ns()) < until_ns;) {
        for (int i = 0; i < sent; i++) send_some(senders[i], now);
        struct epoll_event events[64];
        int64_t next = next_ns(now, until_ns);
        if (next > now) wake_at(next);
        int count = epoll_wait(poller, events, 64, next > now ? -1 : 0);
        for (int i = 0; i < count; i++) {
            int number = (int)(uint32_t)events[i].data.u64;
            switch ((enum kind)(events[i].data.u64 >> 32)) {
            case LISTENER: accept_one(); break;
            case TIMER: if (read(timer, &(uint64_t){0}, sizeof(uint64_t)) < 0) continue; break;
            case SENDER:
                senders[number]->waits = 0;
                if (events[i].events & (EPOLLERR | EPOLLHUP)) end_sender(senders[number]);
                break;
            case RECEIVER: receive_some(&receivers[number]); break;
            }
        }
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
    target.message_bytes = message_bytes ? message_bytes : WRITE_BYTES;
    return target;
}

static void go(char *line) {
    static counters before, after;
    int used = 0;
    if (sscanf(line, "%ld %ld %ld%n", &run.start_ns, &run.from_ns, &run.to_ns, &used) != 3) fail("no times: %s", line);
    char *rest = line + used, *word;
    while ((word = strsep(&rest, " \n"))) {
        if (!*word) continue;
        struct target target = parse_target(word);
        for (int i = 0; i < target.count; i++) {
            if (sent == MAX_STREAMS) fail("more than %d streams", MAX_STREAMS);
            struct sender *one = calloc(1, sizeof *one);
            if (!one) fail("no memory");
            *one = (struct sender){.fd = -1, .waits = 1, .target = target, .stride = 1};
            senders[sent++] = one;
        }
    }
    /* All hosts have heard of the run by then. */
    serve(run.start_ns - CONNECT_NS);
    for (int i = 0; i < sent; i++) connect_sender(senders[i], i);
    serve(run.from_ns);
    look(before);
    serve(run.to_ns);
    look(after);
    for (int i = 0; i < sent; i++) end_sender(senders[i]);
    /* The others end theirs, too. */
    serve(run.to_ns + GRACE_NS);
    fputs("{\"received\":[", stdout);
    for (int i = 0; i < received; i++)
        printf("%s{\"from\":\"%s\",\"bytes\":%llu}", i ? "," : "", inet_ntoa(receivers[i].from), (unsigned long long)receivers[i].bytes);
    fputs("],\"sent\":[", stdout);
    for (int i = 0; i < sent; i++) {
        if (i) putchar(',');
        print_sender(senders[i]);
        free(senders[i]);
    }
    putchar(']');
    print_counters("before", before);
    print_counters("after", after);
    puts("}");
    fflush(stdout);
    for (int i = 0; i < received; i++)
        if (receivers[i].fd >= 0) reset(receivers[i].fd);
    sent = received = 0;
}

int main(int count, char **words) {
    if (count < 2) fail("usage: streams PORT [--mptcp]");
    port = atoi(words[1]);
    protocol = count > 2 && strcmp(words[2], "--mptcp") == 0 ? IPPROTO_MPTCP : 0;
    signal(SIGPIPE, SIG_IGN);
    out = new_buffer(WRITE_BYTES);
    in = new_buffer(WRITE_BYTES);
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (poller < 0 || timer < 0) fail("epoll: %s", strerror(errno));
    watch(timer, EPOLLIN, TIMER, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, MAX_STREAMS) != 0)
        fail("listening on port %d: %s", port, strerror(errno));
    watch(listener, EPOLLIN, LISTENER, 0);
    puts("ready");
    fflush(stdout);
    static char line[MAX_LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) go(line);
    return 0;
}
