// Sockets as a wire, if torchrun or Slurm started the process: a connection between every two
// ranks, in each lane.
//
// Rank 0 listens at MASTER_ADDR and MASTER_PORT.  The other ranks connect to it and send a Hello
// with their rank and their own listening port.  Rank 0 answers with the addresses of all ranks;
// then every rank connects to the ranks before it.  A Hello of another world is refused.  A dead
// peer is detected because its connection closes.

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

enum { CONNECT_SECONDS = 120, HELLO_SECONDS = 30, PATIENCE_SECONDS = 5 };

typedef struct Hello {
  char magic[8];
  int32_t world, rank, port;
  int32_t lanes, lane; // of this connection
  char host[64];       // numeric; rank 0 fills it in
} Hello;

static const char magic[8] = "nnrtcom3";

typedef struct TcpWire {
  Wire wire;
  const char *host;
  int port;
  int *link; // [lanes, world], -1: not connected
} TcpWire;

// ---- whole messages, while connecting

static bool wait_ready(int fd, short events, double until_us) {
  // poll takes milliseconds, and rounds up so that it does not spin at the end.
  double left = (until_us - nnrt_now_us()) / 1e3;
  struct pollfd p = {.fd = fd, .events = events};
  return left > 0 && poll(&p, 1, (int)left + 1) > 0;
}

static bool read_all(int fd, void *to, size_t n, double until_us) {
  for (size_t got = 0; got < n;) {
    if (!wait_ready(fd, POLLIN, until_us)) return false;
    ssize_t step = recv(fd, (char *)to + got, n - got, 0);
    // A signal may interrupt the call; a closed connection reads 0 bytes.
    if (step < 0 && errno == EINTR) continue;
    if (step <= 0) return false;
    got += (size_t)step;
  }
  return true;
}

static bool write_all(int fd, const void *from, size_t n) {
  for (size_t sent = 0; sent < n;) {
    // A peer that is gone must not end the process by SIGPIPE.
    ssize_t step = send(fd, (const char *)from + sent, n - sent, MSG_NOSIGNAL);
    if (step < 0 && errno == EINTR) continue;
    if (step <= 0) return false;
    sent += (size_t)step;
  }
  return true;
}

// ---- connecting

static int listen_at(int port, int *out_port, Why *w) {
  int on = 1, off = 0;
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr *address = (void *)&six;
  socklen_t n = sizeof six;
  // One socket serves IPv6 and IPv4.
  if (fd >= 0) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  } else { // a machine without IPv6
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = (void *)&four;
    n = sizeof four;
  }
  // A job that starts right after another may use the same port.
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || bind(fd, address, n) != 0 || listen(fd, 1024) != 0 ||
      getsockname(fd, address, &n) != 0) {
    why(w, "cannot listen at port %d: %s", port, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
  }
  // For port 0 the kernel has chosen one.
  *out_port = ntohs(address->sa_family == AF_INET6 ? six.sin6_port : four.sin_port);
  return fd;
}

// Connects to `rank`; tries again until it listens there.
static int connect_to(int rank, const char *host, int port, Why *w) {
  double began = nnrt_now_us(), until = began + CONNECT_SECONDS * 1e6;
  bool warned = false;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  // Pauses between attempts double up to a second.
  for (long pause_ms = 10;; pause_ms = pause_ms < 1000 ? 2 * pause_ms : 1000) {
    // The name is resolved again each time: a container's name may appear late.
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo(host, service, &want, &found), error = 0;
    for (struct addrinfo *a = found; a; a = a->ai_next) {
      int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
        freeaddrinfo(found);
        return fd;
      }
      error = errno;
      if (fd >= 0) close(fd);
    }
    if (found) freeaddrinfo(found);
    // The last attempt's error is the one reported.
    if (nnrt_now_us() > until) {
      why(w, "cannot connect to %s, port %d: %s", host, port,
          code ? gai_strerror(code) : strerror(error));
      return -1;
    }
    // A user who waits should know for whom.
    if (!warned && nnrt_now_us() > began + PATIENCE_SECONDS * 1e6) {
      warned = true;
      nnrt_say_note("waiting for rank %d at %s:%d", rank, host, port);
    }
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
  }
}

static int *link_to(const TcpWire *t, int lane, int rank) {
  return &t->link[lane * t->wire.world + rank];
}

// Whether the rank is connected in all lanes.
static bool has_come(const TcpWire *t, int rank) {
  for (int lane = 0; lane < t->wire.lanes; lane++)
    if (*link_to(t, lane, rank) < 0) return false;
  return true;
}

static int count_missing(const TcpWire *t, int first) {
  int n = 0;
  for (int rank = first; rank < t->wire.world; rank++)
    n += !has_come(t, rank);
  return n;
}

// Accepts connections, at `port`, until every rank from `first` on has one.
static bool accept_ranks(TcpWire *t, int listening, int port, int first, Hello *heard, Why *w) {
  double began = nnrt_now_us(), until = began + CONNECT_SECONDS * 1e6;
  bool warned = false;
  for (int missing; (missing = count_missing(t, first)) > 0;) {
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    if (!warned && !wait_ready(listening, POLLIN, began + PATIENCE_SECONDS * 1e6)) {
      warned = true;
      // The first rank that is missing stands for all.  Rank 0 listens at MASTER_ADDR; other ranks
      // name only their port.
      char more[32] = "", at[300] = "port ";
      int rank = first;
      while (has_come(t, rank))
        rank++;
      if (missing > 1) snprintf(more, sizeof more, " and %d more", missing - 1);
      if (t->wire.rank == 0) snprintf(at, sizeof at, "%s:", t->host);
      nnrt_say_note("waiting for rank %d%s at %s%d", rank, more, at, port);
      continue;
    }
    // Past the deadline, the error names a rank that is missing.
    if (warned && !wait_ready(listening, POLLIN, until)) {
      for (int i = first; i < t->wire.world; i++)
        if (!has_come(t, i)) return why(w, "rank %d did not come within %d s", i, CONNECT_SECONDS);
    }
    int fd = accept4(listening, (void *)&from, &n, SOCK_CLOEXEC);
    Hello h;
    if (fd < 0) continue;
    // Strangers connect too, port scanners for example.  They are not an error.
    if (!read_all(fd, &h, sizeof h, nnrt_now_us() + HELLO_SECONDS * 1e6) ||
        memcmp(h.magic, magic, sizeof magic) != 0) {
      close(fd);
      continue;
    }
    // A process of another job, or two of the same rank.
    if (h.world != t->wire.world || h.rank < first || h.rank >= t->wire.world ||
        h.lanes != t->wire.lanes || h.lane < 0 || h.lane >= h.lanes ||
        *link_to(t, h.lane, h.rank) >= 0) {
      close(fd);
      return why(w,
                 "a process that says it is rank %d of %d is not of this job\n"
                 "hint: another MASTER_PORT for each job",
                 h.rank, h.world);
    }
    // Other ranks connect to the address that this connection comes from.
    if (getnameinfo((void *)&from, n, h.host, sizeof h.host, NULL, 0, NI_NUMERICHOST) != 0)
      h.host[0] = 0;
    *link_to(t, h.lane, h.rank) = fd;
    if (heard) heard[h.rank] = h;
  }
  return true;
}

// Connects to a rank that listens there; this rank listens at port `mine`.
static bool connect_lanes(TcpWire *t, int rank, const char *host, int port, int mine, Why *w) {
  for (int lane = 0; lane < t->wire.lanes; lane++) {
    // The peer checks that this is a rank of its own job.
    Hello hello = {.world = t->wire.world, .rank = t->wire.rank, .port = mine};
    hello.lanes = t->wire.lanes;
    hello.lane = lane;
    memcpy(hello.magic, magic, sizeof magic);
    int fd = *link_to(t, lane, rank) = connect_to(rank, host, port, w);
    if (fd < 0) return false;
    if (!write_all(fd, &hello, sizeof hello)) return why(w, "rank %d is gone", rank);
  }
  return true;
}

static bool open_tcp(Wire *wire, Why *w) {
  TcpWire *t = (TcpWire *)wire;
  int n = wire->lanes * wire->world;
  Hello *table = nnrt_must_alloc((size_t)wire->world * sizeof *table);
  t->link = nnrt_must_alloc((size_t)n * sizeof *t->link);
  // Closing skips the links that were never made.
  for (int i = 0; i < n; i++)
    t->link[i] = -1;
  int rank = wire->rank, world = wire->world, port;
  size_t bytes = (size_t)world * sizeof *table;
  // Only rank 0 has a port that others know; the kernel chooses the others'.
  int listening = listen_at(rank == 0 ? t->port : 0, &port, w);
  bool ok = listening >= 0;
  if (ok && rank == 0) {
    // Every other rank connects, and then gets the table of all addresses.
    ok = accept_ranks(t, listening, port, 1, table, w);
    for (int i = 1; ok && i < world; i++)
      if (!write_all(t->link[i], table, bytes)) ok = why(w, "rank %d is gone", i);
  } else if (ok) {
    // The table comes from rank 0; a rank connects to those before it, and accepts those after it.
    ok = connect_lanes(t, 0, t->host, t->port, port, w);
    if (ok && !read_all(t->link[0], table, bytes, nnrt_now_us() + CONNECT_SECONDS * 1e6))
      ok = why(w, "rank 0 at %s, port %d, closed the connection", t->host, t->port);
    for (int i = 1; ok && i < rank; i++)
      ok = connect_lanes(t, i, table[i].host, table[i].port, port, w);
    ok = ok && accept_ranks(t, listening, port, rank + 1, NULL, w);
  }
  if (listening >= 0) close(listening);
  free(table);
  for (int i = 0; ok && i < n; i++)
    if (t->link[i] >= 0) {
      int fd = t->link[i], on = 1, idle = 30, interval = 10, count = 3;
      // Small messages leave at once: no rank waits for a full packet.
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      // A machine that is down sends nothing: probe it.
      setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
      setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
      setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
  return ok;
}

// ---- exchanging

static int gone(int rank, const char *how) {
  return nnrt_error(NNRT_COMM, "tcp: rank %d is gone: %s", rank, how);
}

static int exchange_tcp(Wire *wire, int lane, int to, const void *out, int64_t n_out, int from,
                        void *in, int64_t n_in, atomic_bool *hurry) {
  TcpWire *t = (TcpWire *)wire;
  (void)hurry; // poll sleeps and wakes up at once
  const char *p_out = out;
  char *p_in = in;
  bool warned = false;
  while (n_out > 0 || n_in > 0) {
    // poll ignores a negative descriptor: a finished direction.
    struct pollfd p[2] = {{.fd = n_out > 0 ? *link_to(t, lane, to) : -1, .events = POLLOUT},
                          {.fd = n_in > 0 ? *link_to(t, lane, from) : -1, .events = POLLIN}};
    int ready = poll(p, 2, 60000);
    if (ready == 0 && !warned) {
      warned = true;
      nnrt_say_warning("rank %d has waited a minute for rank %d", wire->rank, n_in > 0 ? from : to);
    }
    // A hang-up is found by the call itself, with its error.
    if (p[0].revents) {
      ssize_t n = send(p[0].fd, p_out, (size_t)n_out, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return gone(to, strerror(errno));
      if (n > 0) {
        p_out += n;
        n_out -= n;
      }
    }
    if (p[1].revents) {
      ssize_t n = recv(p[1].fd, p_in, (size_t)n_in, 0);
      if (n == 0) return gone(from, "it closed the connection");
      if (n < 0 && errno != EAGAIN && errno != EINTR) return gone(from, strerror(errno));
      if (n > 0) {
        p_in += n;
        n_in -= n;
      }
    }
  }
  return 0;
}

static int check_tcp(Wire *wire) {
  TcpWire *t = (TcpWire *)wire;
  for (int i = 0; i < wire->world; i++) {
    char byte;
    if (t->link[i] < 0) continue;
    // Peeking leaves the bytes for the next exchange.
    ssize_t n = recv(t->link[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) return gone(i, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return gone(i, strerror(errno));
  }
  return 0;
}

static void close_tcp(Wire *wire) {
  TcpWire *t = (TcpWire *)wire;
  for (int i = 0; i < wire->lanes * wire->world; i++)
    if (t->link[i] >= 0) close(t->link[i]);
}

Wire *nnrt_wire_tcp(const Launch *l) {
  TcpWire *t = nnrt_must_alloc(sizeof *t);
  t->wire = (Wire){"tcp", l->rank, l->world, 1, open_tcp, exchange_tcp, close_tcp, check_tcp};
  t->host = l->host;
  t->port = l->port;
  return &t->wire;
}
