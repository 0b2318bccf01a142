// A switch with slow cables, for tests on hosts that are network namespaces:
//
//     shaper TAP ...
//
// It makes a TAP device of each name, prints "ready", and passes Ethernet frames between them; the
// caller moves each device into a namespace.  A cable has a rate each way, and a delay:
//
//     host ── rate ─→ switch: queue of each port ── rate, delay ─→ host
//
// A frame leaves its host when the cable is free.  The switch reads frames up to 10 ms before, so
// that the cable is busy even if the switch itself is late.  The queue of a port, to its host,
// drops frames when it is full.
//
// Commands are lines of the standard input, each answered by a line; its end is the end:
//
//     rate MBITS DELAY_MS    of all cables, Mbit/s each way, and ms one way; 0: no limit    ok
//     cut N, join N          the cable of the N-th device, from 0                           ok
//     bytes                  to each host since the start                                   B0 B1 …

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PORTS = 16, FRAME = 9216, QUEUE_BYTES = 1 << 20, MAC = 6, BURST = 64 };

typedef struct Frame {
  struct Frame *next;
  double arrives; // at its host, in seconds
  int bytes;
  char data[];
} Frame;

typedef struct Port {
  int fd;
  bool cut;
  unsigned char mac[MAC];    // of its host, once a frame has come from it
  double from_free, to_free; // when the cable from the host, and that to it, are free
  Frame *first, **end;       // on their way to the host, in order
  int64_t bytes_sent;        // to the host since the start
} Port;

static Port port[MOST_PORTS];
static int n_ports;
static double seconds_per_byte, delay;
static const double AHEAD = 10e-3;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int make_tap(const char *name) {
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0) return fd;
  fprintf(stderr, "shaper: %s: %s\n", name, strerror(errno));
  exit(1);
}

// Puts a frame, which has left its host at `at`, on the cable to another.
static void send_to(Port *p, const char *data, int bytes, double at) {
  // The queue has the bytes that the cable has not taken at that time.
  double backlog = p->to_free - at;
  if (p->cut || (seconds_per_byte > 0 && backlog / seconds_per_byte > QUEUE_BYTES)) return;
  Frame *f = malloc(sizeof *f + (size_t)bytes);
  if (!f) exit(1);
  p->to_free = (backlog > 0 ? p->to_free : at) + bytes * seconds_per_byte;
  *f = (Frame){.arrives = p->to_free + delay, .bytes = bytes};
  memcpy(f->data, data, (size_t)bytes);
  *p->end = f;
  p->end = &f->next;
}

static void pass_on(Port *from, const char *data, int bytes, double at) {
  memcpy(from->mac, data + MAC, MAC);
  bool to_all = data[0] & 1;
  Port *to = NULL;
  for (int i = 0; i < n_ports && !to_all; i++)
    if (memcmp(port[i].mac, data, MAC) == 0) to = &port[i];
  // A host that has not sent yet may be at any port.
  for (int i = 0; i < n_ports; i++)
    if (to ? &port[i] == to : &port[i] != from) send_to(&port[i], data, bytes, at);
}

// Takes the frames for which the cable from the host will be free soon.
static void take_frames(Port *p, double t) {
  char data[FRAME];
  for (int i = 0; i < BURST && p->from_free <= t + AHEAD; i++) {
    ssize_t n = read(p->fd, data, sizeof data);
    if (n <= 2 * MAC) break;
    // A cable that was idle begins now, not earlier.
    if (p->from_free < t) p->from_free = t;
    p->from_free += (double)n * seconds_per_byte;
    if (!p->cut) pass_on(p, data, (int)n, p->from_free);
  }
}

static void deliver(Port *p, double t) {
  while (p->first && p->first->arrives <= t) {
    Frame *f = p->first;
    // A host that takes no more loses the frame, as it does with a full ring of its card.
    if (write(p->fd, f->data, (size_t)f->bytes) == f->bytes) p->bytes_sent += f->bytes;
    p->first = f->next;
    if (!p->first) p->end = &p->first;
    free(f);
  }
}

static void answer(const char *line) {
  double mbits, ms;
  int i;
  char word[8];
  if (sscanf(line, "rate %lf %lf", &mbits, &ms) == 2 && mbits >= 0 && ms >= 0) {
    seconds_per_byte = mbits > 0 ? 8e-6 / mbits : 0;
    delay = ms * 1e-3;
    puts("ok");
  } else if (sscanf(line, "%7s %d", word, &i) == 2 && i >= 0 && i < n_ports &&
             (!strcmp(word, "cut") || !strcmp(word, "join"))) {
    port[i].cut = word[0] == 'c';
    puts("ok");
  } else if (!strncmp(line, "bytes", 5)) {
    for (i = 0; i < n_ports; i++)
      printf("%lld%c", (long long)port[i].bytes_sent, i < n_ports - 1 ? ' ' : '\n');
  } else {
    printf("unknown: %s", line);
  }
  fflush(stdout);
}

// Waits until a cable can take a frame, one arrives, or there is a command.
static void wait_for_more(struct pollfd *p, double t) {
  double until = t + 1;
  for (int i = 0; i < n_ports; i++) {
    bool free = port[i].from_free <= t + AHEAD;
    // poll ignores a negative descriptor: the host has to wait for its cable.
    p[i] = (struct pollfd){free ? port[i].fd : -1, POLLIN, 0};
    if (!free && port[i].from_free - AHEAD / 2 < until) until = port[i].from_free - AHEAD / 2;
    if (port[i].first && port[i].first->arrives < until) until = port[i].first->arrives;
  }
  p[n_ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
  double left = until - t > 0 ? until - t : 0;
  struct timespec ts = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
  ppoll(p, (nfds_t)n_ports + 1, &ts, NULL);
}

int main(int argc, char **argv) {
  n_ports = argc - 1;
  if (n_ports < 2 || n_ports > MOST_PORTS) {
    fprintf(stderr, "usage: shaper TAP TAP ..., at most %d\n", MOST_PORTS);
    return 2;
  }
  for (int i = 0; i < n_ports; i++)
    port[i] = (Port){.fd = make_tap(argv[i + 1]), .end = &port[i].first};
  // Frames are late if others take the processor.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  setpriority(PRIO_PROCESS, 0, -20);
  puts("ready");
  fflush(stdout);
  for (;;) {
    struct pollfd p[MOST_PORTS + 1];
    wait_for_more(p, now());
    double t = now();
    for (int i = 0; i < n_ports; i++)
      deliver(&port[i], t);
    for (int i = 0; i < n_ports; i++)
      take_frames(&port[i], t);
    if (p[n_ports].revents) {
      // A caller writes a line, and waits for the answer.
      char line[128] = "";
      ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);
      if (n <= 0) return 0;
      answer(line);
    }
  }
}
