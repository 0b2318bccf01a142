// Sockets as a wire, if torchrun or Slurm started the process: a connection between every two
// ranks, in each lane, and a control link between rank 0 and each other rank.
//
// tcp_gather.c connects them.  Lanes carry the bytes of exchanges and nothing else.  The control
// links are silent until a rank ends: with BYE in order, or with ABORT, which has its error.  Rank
// 0 passes an ABORT on, so all ranks report the first failure:
//
//     rank 2   cross_entropy fails ── ABORT ─→ rank 0 ── ABORT ─→ ranks 1 and 3
//
// A rank that ends without a word is noticed because its connections close.  A machine that is gone
// without a word is noticed by keepalive probes of links that are idle, within 30 s; on a lane with
// bytes under way by their age without any acknowledgement (TCP_INFO).  TCP_USER_TIMEOUT would end
// a lane also if its receiver computes for long without reading; it is set on control links only.

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tcp.h"

enum { SILENCE_SECONDS = 40, LAST_WORD_MS = 2500, POLL_MS = 5000 };

int *nnrt_link_to(const TcpWire *t, int lane, int rank) {
  return &t->link[lane * t->wire.world + rank];
}

void nnrt_tcp_who(const TcpWire *t, int rank, char *out, size_t size) {
  const char *host = t->host[rank];
  snprintf(out, size, "rank %d%s%s", rank, *host ? " on " : "", host);
}

void nnrt_tcp_set_options(int fd, bool control) {
  int on = 1, idle = 15, interval = 5, count = 3, timeout_ms = 30000;
  // Small messages leave at once: no rank waits for a full packet.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A machine that is down sends nothing: probe it.
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  if (control) setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

// ---- the end of ranks

static TcpWire *open_wire; // of nnrt_end_job; a process has one

void nnrt_tcp_tell(TcpWire *t, int rank, const char *text) {
  Abort a = {.rank = rank};
  snprintf(a.text, sizeof a.text, "%.*s", (int)strcspn(text, "\n"), text);
  for (int i = 0; i < t->wire.world; i++)
    if (t->control[i] >= 0) nnrt_message_send(t->control[i], MESSAGE_abort, &a, sizeof a);
}

// Before this process ends with an error.
static void last_word(int status, const char *text) {
  TcpWire *t = open_wire;
  char who[128];
  (void)status;
  if (!t || *t->told.text) return; // whoever told this rank has told all
  if (!text) text = "it ended with an error";
  nnrt_tcp_who(t, t->wire.rank, who, sizeof who);
  // The message of a failed step begins with the rank.
  int n = 0, rank;
  if (sscanf(text, "rank %d, %n", &rank, &n) == 1 && rank == t->wire.rank) text += n;
  char *line = nnrt_must_format("%s: %s", who, text);
  nnrt_tcp_tell(t, t->wire.rank, line);
  free(line);
}

static int gone(TcpWire *t, int rank, const char *how) {
  char who[128];
  nnrt_tcp_who(t, rank, who, sizeof who);
  return nnrt_error(NNRT_COMM, "tcp: %s is gone: %s", who, how);
}

// Reads the control link of a rank; a code if it, or another that it tells of, has failed.
static int hear(TcpWire *t, int rank) {
  Reader *r = &t->reader[rank];
  for (;;) {
    Read read = nnrt_message_read(t->control[rank], r);
    if (read == READ_more) return 0;
    if (read == READ_whole && r->head.kind == MESSAGE_bye) {
      // Its end of the connection follows, which is in order.
      epoll_ctl(t->watch, EPOLL_CTL_DEL, t->control[rank], NULL);
      return 0;
    }
    char text[ABORT_TEXT + 200];
    if (read == READ_whole && r->head.kind == MESSAGE_abort) {
      Abort *a = (void *)r->body;
      if (a->rank < 0 || a->rank >= t->wire.world) a->rank = rank;
      nnrt_text_clean(a->text, sizeof a->text);
      t->told = *a;
    } else {
      char who[128];
      const char *how = read == READ_whole || read == READ_foreign ? "it sent nonsense"
                        : errno == ETIMEDOUT                       ? "its machine does not answer"
                                                                   : "it closed the connection";
      nnrt_tcp_who(t, rank, who, sizeof who);
      snprintf(text, sizeof text, "%s is gone: %s", who, how);
      t->told.rank = rank;
      snprintf(t->told.text, sizeof t->told.text, "%.1000s", text);
    }
    if (t->wire.rank == 0) nnrt_tcp_tell(t, t->told.rank, t->told.text);
    return nnrt_error(NNRT_COMM, "tcp: %s", t->told.text);
  }
}

// Reads the control links that have something; waits for that up to `ms`.
static int listen_to_all(TcpWire *t, int ms) {
  struct epoll_event e[16];
  pthread_mutex_lock(&t->watching);
  int code = *t->told.text ? nnrt_error(NNRT_COMM, "tcp: %s", t->told.text) : 0;
  int n = code ? 0 : epoll_wait(t->watch, e, 16, ms);
  for (int i = 0; i < n && !code; i++)
    code = hear(t, (int)e[i].data.u32);
  pthread_mutex_unlock(&t->watching);
  return code;
}

// A lane has ended: its rank may have said why on the control link.
static int lost_lane(TcpWire *t, int rank, const char *how) {
  double until = nnrt_now_us() + LAST_WORD_MS * 1e3;
  // Others may part meanwhile.
  do {
    int code = listen_to_all(t, LAST_WORD_MS / 5);
    if (code) return code;
  } while (nnrt_now_us() < until);
  return gone(t, rank, how);
}

// Whether the other end has not acknowledged sent bytes for too long.
static bool is_silent(int fd) {
  struct tcp_info info;
  socklen_t n = sizeof info;
  memset(&info, 0, sizeof info);
  return fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 &&
         info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
         info.tcpi_last_ack_recv > SILENCE_SECONDS * 1000u;
}

static bool open_tcp(Wire *wire, Why *w) {
  TcpWire *t = (TcpWire *)wire;
  int n = wire->lanes * wire->world;
  t->link = nnrt_must_alloc((size_t)n * sizeof *t->link);
  t->poll = nnrt_must_alloc((size_t)(n + wire->lanes) * sizeof *t->poll);
  // Closing skips the links that were never made.
  for (int i = 0; i < n; i++)
    t->link[i] = -1;
  open_wire = t;
  nnrt_before_end(last_word);
  if (!nnrt_tcp_gather(t, w)) return false;
  t->watch = epoll_create1(EPOLL_CLOEXEC);
  if (t->watch < 0) return why(w, "epoll: %s", strerror(errno));
  for (int i = 0; i < wire->world; i++) {
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    if (t->control[i] < 0) continue;
    if (epoll_ctl(t->watch, EPOLL_CTL_ADD, t->control[i], &e) != 0)
      return why(w, "epoll: %s", strerror(errno));
  }
  return true;
}

// ---- exchanging

// Sends and receives as much as the link of a transfer takes and has.
static int advance(TcpWire *t, const struct pollfd *link, Transfer *x) {
  // A hang-up is found by the call itself, with its error.
  if (x->n_out > 0 && link->revents & ~POLLIN) {
    ssize_t n = send(link->fd, x->out, (size_t)x->n_out, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return lost_lane(t, x->peer, strerror(errno));
    if (n > 0) {
      x->out += n;
      x->n_out -= n;
    }
  }
  if (x->n_in > 0 && link->revents & ~POLLOUT) {
    ssize_t n = recv(link->fd, x->in, (size_t)x->n_in, 0);
    if (n == 0) return lost_lane(t, x->peer, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return lost_lane(t, x->peer, strerror(errno));
    if (n > 0) {
      x->in += n;
      x->n_in -= n;
    }
  }
  return 0;
}

// Fills in what each link of a phase waits for, and last the control links; returns the number of
// transfers with bytes left.
static int links_of(const TcpWire *t, int lane, const Transfer *x, int n, struct pollfd *link) {
  int left = 0;
  for (int i = 0; i < n; i++) {
    short events = (short)((x[i].n_out > 0 ? POLLOUT : 0) | (x[i].n_in > 0 ? POLLIN : 0));
    // poll ignores a negative descriptor: a finished transfer.
    link[i] = (struct pollfd){events ? *nnrt_link_to(t, lane, x[i].peer) : -1, events, 0};
    left += events != 0;
  }
  link[n] = (struct pollfd){t->watch, POLLIN, 0};
  return left;
}

static int exchange_tcp(Wire *wire, int lane, Transfer *x, int n, atomic_bool *hurry) {
  TcpWire *t = (TcpWire *)wire;
  (void)hurry; // poll sleeps and wakes up at once
  struct pollfd *link = t->poll + lane * (wire->world + 1);
  double began = nnrt_now_us(), looked = began;
  bool warned = false;
  while (links_of(t, lane, x, n, link) > 0) {
    int ready = poll(link, (nfds_t)n + 1, POLL_MS);
    double now = nnrt_now_us();
    // Other links may be busy for long while one is silent.
    if (ready == 0 || now - looked > POLL_MS * 1e3) {
      looked = now;
      // The kernel may still hold bytes of an earlier exchange, with any rank.
      for (int i = 0; i < wire->world; i++)
        if (is_silent(*nnrt_link_to(t, lane, i)))
          return lost_lane(t, i, "its machine does not answer");
    }
    if (ready == 0 && !warned && now - began > 60e6) {
      warned = true;
      nnrt_say_warning("rank %d has waited a minute for rank %d", wire->rank,
                       nnrt_transfers_await(x, n));
    }
    for (int i = 0; i < n; i++) {
      int code = link[i].revents ? advance(t, &link[i], &x[i]) : 0;
      if (code) return code;
    }
    int code = link[n].revents ? listen_to_all(t, 0) : 0;
    if (code) return code;
  }
  return 0;
}

static int check_tcp(Wire *wire) {
  TcpWire *t = (TcpWire *)wire;
  int code = listen_to_all(t, 0);
  for (int i = 0; i < wire->world && !code; i++) {
    char byte;
    if (t->link[i] < 0) continue;
    // Peeking leaves the bytes for the next exchange.
    ssize_t n = recv(t->link[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) code = lost_lane(t, i, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) code = lost_lane(t, i, strerror(errno));
  }
  return code;
}

static void close_tcp(Wire *wire) {
  TcpWire *t = (TcpWire *)wire;
  open_wire = NULL;
  for (int i = 0; i < wire->world; i++) {
    if (t->control[i] < 0) continue;
    nnrt_message_send(t->control[i], MESSAGE_bye, NULL, 0);
    close(t->control[i]);
    free(t->reader[i].body);
  }
  for (int i = 0; i < wire->lanes * wire->world; i++)
    if (t->link[i] >= 0) close(t->link[i]);
  close(t->watch);
  pthread_mutex_destroy(&t->watching);
  free(t->link);
  free(t->poll);
  free(t->control);
  free(t->reader);
  free(t->host);
}

Wire *nnrt_wire_tcp(const NnrtRun *run) {
  const Launch *l = &run->launch;
  size_t world = (size_t)l->world;
  TcpWire *t = nnrt_must_alloc(sizeof *t);
  t->wire = (Wire){"tcp", l->rank, l->world, 1, open_tcp, exchange_tcp, close_tcp, check_tcp};
  t->run = run;
  t->watch = -1;
  pthread_mutex_init(&t->watching, NULL);
  t->control = nnrt_must_alloc(world * sizeof *t->control);
  t->reader = nnrt_must_alloc(world * sizeof *t->reader);
  t->host = nnrt_must_alloc(world * sizeof *t->host);
  for (int i = 0; i < l->world; i++)
    t->control[i] = -1;
  return &t->wire;
}
