// Sockets as a wire, if torchrun or Slurm started the process: a connection between every two
// ranks, of each channel, and a control link between rank 0 and each other rank.
//
// tcp_gather.c connects them.  Channels carry the bytes of messages and nothing else.  The control
// links are silent until a rank ends: with BYE in order, or with ABORT, which has its error.  Rank
// 0 passes an ABORT on, so all ranks report the first failure:
//
//     rank 2   cross_entropy fails ── ABORT ─→ rank 0 ── ABORT ─→ ranks 1 and 3
//
// A rank that has waited too long for one of another machine ASKs it, through rank 0.  Its
// communicating thread answers, while it waits itself, or within a second while it is idle: a
// process that is stopped does not.
//
// A rank that ends without a word is noticed because its connections close.  A machine that is gone
// without a word is noticed by keepalive probes of links that are idle, within 30 s; on a channel
// with bytes under way by their age without any acknowledgement (TCP_INFO).  TCP_USER_TIMEOUT would
// end a channel also if its receiver computes for long without reading; it is set on control links
// only.

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tcp.h"

enum { SILENCE_SECONDS = 40, LAST_WORD_MS = 2500, POLL_MS = 5000 };

int *nnrt_link_to(const TcpWire *t, int channel, int rank) {
  return &t->link[channel * t->wire.world + rank];
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

// On SIGQUIT, in its handler.
static void tell_quit(void) {
  const TcpWire *t = open_wire;
  Abort a = {.rank = t ? t->wire.rank : 0, .quit = 1};
  for (int i = 0; t && i < t->wire.world; i++)
    if (t->control[i] >= 0) nnrt_message_send(t->control[i], MESSAGE_abort, &a, sizeof a);
}

// Writes "rank 2 on host7 (pid 4711) is gone: …", with its last operation, if that is known.
static void describe_gone(TcpWire *t, int rank, const char *how, char *out, size_t size) {
  char who[WHO_TEXT], last[LAST_OP_TEXT] = "";
  const Peer *peer = &t->wire.peers->peer[rank];
  if (peer->pid)
    nnrt_peer_who(t->wire.peers, rank, who);
  else
    nnrt_tcp_who(t, rank, who, sizeof who); // before the ranks have met
  if (peer->record) nnrt_record_last_op(peer->record, last);
  snprintf(out, size, "%s is gone: %s%s%s", who, how, *last ? "; " : "", last);
}

static int gone(TcpWire *t, int rank, const char *how) {
  char text[ABORT_TEXT];
  describe_gone(t, rank, how, text, sizeof text);
  return nnrt_error(NNRT_COMM, "tcp: %s", text);
}

// ---- questions

// Sends to a rank of the job by its control link: from rank 0 directly, from others through it.
static void send_through(TcpWire *t, int to, MessageKind kind, const void *body, int64_t bytes) {
  int link = t->control[t->wire.rank == 0 ? to : 0];
  if (link >= 0) nnrt_message_send(link, kind, body, bytes);
}

static bool is_rank(const TcpWire *t, int rank) {
  return rank >= 0 && rank < t->wire.world;
}

static void hear_question(TcpWire *t, const Ask *q) {
  if (!is_rank(t, q->from) || !is_rank(t, q->to) || q->from == t->wire.rank) return;
  if (q->to != t->wire.rank) {
    if (t->wire.rank == 0) send_through(t, q->to, MESSAGE_ask, q, sizeof *q);
    return;
  }
  Answer a = {q->to, q->from, q->number, nnrt_standing_of(t->wire.record, q->lane)};
  send_through(t, a.to, MESSAGE_answer, &a, sizeof a);
}

static void hear_answer(TcpWire *t, Answer *a) {
  if (!is_rank(t, a->from) || !is_rank(t, a->to)) return;
  if (a->to != t->wire.rank) {
    if (t->wire.rank == 0) send_through(t, a->to, MESSAGE_answer, a, sizeof *a);
    return;
  }
  Standing *s = &a->standing;
  nnrt_text_clean(s->last_op, sizeof s->last_op);
  s->known = 1;
  if (!is_rank(t, s->waits_for)) s->waits_for = -1;
  if (s->lane < 0 || s->lane >= t->wire.lanes) s->lane = 0;
  pthread_mutex_lock(&t->answered);
  t->answer = *a;
  pthread_mutex_unlock(&t->answered);
}

static bool ask_tcp(Wire *wire, int rank, int lane, double seconds, Standing *out) {
  TcpWire *t = (TcpWire *)wire;
  pthread_mutex_lock(&t->asking);
  int number = atomic_fetch_add(&t->asked, 1) + 1;
  Ask q = {wire->rank, rank, lane, number};
  double until = nnrt_now_us() + seconds * 1e6;
  bool came = false;
  send_through(t, rank, MESSAGE_ask, &q, sizeof q);
  // A communicating thread, which waits for the other rank, reads the answer meanwhile.
  while (!came && !atomic_load(&t->failed) && nnrt_now_us() < until) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    pthread_mutex_lock(&t->answered);
    came = t->answer.number == number && t->answer.from == rank;
    if (came) *out = t->answer.standing;
    pthread_mutex_unlock(&t->answered);
  }
  pthread_mutex_unlock(&t->asking);
  // A failure is reported by the thread that found it: it goes first.
  if (atomic_load(&t->failed)) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  return came;
}

// ---- control links

// Reads the control link of a rank; a code if it, or another that it tells of, has failed.
static int hear(TcpWire *t, int rank) {
  Reader *r = &t->reader[rank];
  for (;;) {
    Read read = nnrt_message_read(t->control[rank], r);
    if (read == READ_more) return 0;
    if (read == READ_whole) t->heard_us = nnrt_now_us();
    if (read == READ_whole && r->head.kind == MESSAGE_ask) {
      hear_question(t, (void *)r->body);
      continue;
    }
    if (read == READ_whole && r->head.kind == MESSAGE_answer) {
      hear_answer(t, (void *)r->body);
      continue;
    }
    if (read == READ_whole && r->head.kind == MESSAGE_bye) {
      // Its end of the connection follows, which is in order.
      epoll_ctl(t->watch, EPOLL_CTL_DEL, t->control[rank], NULL);
      return 0;
    }
    Abort failure = {.rank = rank};
    if (read == READ_whole && r->head.kind == MESSAGE_abort) {
      failure = *(Abort *)r->body;
      if (failure.quit) nnrt_stacks_quit(); // rank 0's own handler passes it on
      if (failure.rank < 0 || failure.rank >= t->wire.world) failure.rank = rank;
      nnrt_text_clean(failure.text, sizeof failure.text);
    } else {
      const char *how = read == READ_whole || read == READ_foreign ? "it sent nonsense"
                        : errno == ETIMEDOUT                       ? "its machine does not answer"
                                                                   : "it closed the connection";
      describe_gone(t, rank, how, failure.text, sizeof failure.text);
    }
    // First the other ranks: a rank that has been told has no last word, and may end at once.
    if (t->wire.rank == 0) nnrt_tcp_tell(t, failure.rank, failure.text);
    t->told = failure;
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
  if (code) atomic_store(&t->failed, true);
  pthread_mutex_unlock(&t->watching);
  return code;
}

// A connection of a channel has ended: its rank may have said why on the control link, which rank 0
// passes on.
static int lost_link(TcpWire *t, int rank, const char *how) {
  double since = nnrt_now_us();
  bool led = t->wire.rank != 0 && rank != 0;
  Ask alive = {.from = t->wire.rank, .number = -1};
  if (led) send_through(t, 0, MESSAGE_ask, &alive, sizeof alive);
  // Others may part meanwhile.
  do {
    int code = listen_to_all(t, LAST_WORD_MS / 5);
    if (code) return code;
  } while (nnrt_now_us() < since + LAST_WORD_MS * 1e3);
  atomic_store(&t->failed, true);
  gone(t, rank, how);
  if (!led || t->heard_us >= since) return NNRT_COMM;
  // The rank may have ended because rank 0 is stopped.
  char first[WHO_TEXT];
  nnrt_peer_who(t->wire.peers, 0, first);
  return nnrt_error(NNRT_COMM, "%s, and %s %s", nnrt_error_detail(), first,
                    nnrt_peer_state(t->wire.peers, 0) == 'T' ? "is stopped by a signal"
                                                             : "does not answer");
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
  int n = wire->channels * wire->world;
  t->link = nnrt_must_alloc((size_t)n * sizeof *t->link);
  // Closing skips the links that were never made.
  for (int i = 0; i < n; i++)
    t->link[i] = -1;
  open_wire = t;
  nnrt_before_end(last_word);
  nnrt_stacks_tell(tell_quit);
  if (!nnrt_tcp_gather(t, w)) return false;
  t->watch = epoll_create1(EPOLL_CLOEXEC);
  if (t->watch < 0) return why(w, "epoll: %s", strerror(errno));
  for (int i = 0; i < wire->lanes; i++) {
    TcpLane *lane = &t->lane[i];
    // The first lane has two channels.
    lane->poll = nnrt_must_alloc((size_t)(2 * wire->world + 2) * sizeof *lane->poll);
    lane->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lane->bell < 0) return why(w, "eventfd: %s", strerror(errno));
  }
  for (int i = 0; i < wire->world; i++) {
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    if (t->control[i] < 0) continue;
    if (epoll_ctl(t->watch, EPOLL_CTL_ADD, t->control[i], &e) != 0)
      return why(w, "epoll: %s", strerror(errno));
  }
  return true;
}

// ---- exchanging

enum { MOST_PARTS = 16 };

// Lists the bytes at the start of a stream, of several messages; returns the number of parts.
static int parts_of(const Stream *s, struct iovec *part) {
  int n = 0;
  for (const Message *m = s->first; m && n < MOST_PARTS; m = m->next)
    part[n++] = (struct iovec){m->at, (size_t)m->left};
  return n;
}

// Sends and receives as much as the link of a pair takes and has.
static int advance(TcpWire *t, Lane *lane, const struct pollfd *link, Pair *p) {
  struct iovec part[MOST_PARTS];
  struct msghdr head = {.msg_iov = part};
  // A hang-up is found by the call itself, with its error.
  if (p->out.first && link->revents & ~POLLIN) {
    head.msg_iovlen = (size_t)parts_of(&p->out, part);
    ssize_t n = sendmsg(link->fd, &head, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return lost_link(t, p->peer, strerror(errno));
    if (n > 0) nnrt_stream_moved(lane, &p->out, n);
  }
  if (p->in.first && link->revents & ~POLLOUT) {
    head.msg_iovlen = (size_t)parts_of(&p->in, part);
    ssize_t n = recvmsg(link->fd, &head, 0);
    if (n == 0) return lost_link(t, p->peer, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return lost_link(t, p->peer, strerror(errno));
    if (n > 0) nnrt_stream_moved(lane, &p->in, n);
  }
  return 0;
}

// Fills in the events that each busy pair waits for, then the control links and the bell; returns
// their number.
static int links_of(const TcpWire *t, const Lane *lane, struct pollfd *link) {
  int n = 0;
  for (; n < lane->n_busy; n++) {
    const Pair *p = lane->busy[n];
    short events = (short)((p->out.first ? POLLOUT : 0) | (p->in.first ? POLLIN : 0));
    link[n] = (struct pollfd){*nnrt_link_to(t, p->channel, p->peer), events, 0};
  }
  link[n++] = (struct pollfd){t->watch, POLLIN, 0};
  link[n++] = (struct pollfd){t->lane[lane->number].bell, POLLIN, 0};
  return n;
}

// The kernel may still hold bytes of an earlier message, to any rank.
static int find_silent(TcpWire *t, const Lane *lane) {
  for (int i = 0; i < lane->n_channels; i++)
    for (int rank = 0; rank < t->wire.world; rank++)
      if (is_silent(*nnrt_link_to(t, lane->first_channel + i, rank)))
        return lost_link(t, rank, "its machine does not answer");
  return 0;
}

static int exchange_tcp(Wire *wire, Lane *lane, atomic_bool *hurry) {
  TcpWire *t = (TcpWire *)wire;
  (void)hurry; // poll sleeps and wakes up at once
  TcpLane *own = &t->lane[lane->number];
  struct pollfd *link = own->poll;
  if (own->looked_us < lane->since_us) own->looked_us = lane->since_us;
  for (;;) {
    int n = links_of(t, lane, link), ready = poll(link, (nfds_t)n, POLL_MS), code = 0;
    double now = nnrt_now_us();
    // Other links may be busy for long while one is silent.
    if (ready == 0 || now - own->looked_us > POLL_MS * 1e3) {
      own->looked_us = now;
      code = find_silent(t, lane);
    }
    for (int i = 0; i < lane->n_busy && !code; i++)
      if (link[i].revents) code = advance(t, lane, &link[i], lane->busy[i]);
    if (!code && link[n - 2].revents) code = listen_to_all(t, 0);
    bool woken = link[n - 1].revents != 0;
    uint64_t rings;
    if (woken && read(own->bell, &rings, sizeof rings) < 0 && errno != EAGAIN)
      code = nnrt_error(NNRT_COMM, "tcp: eventfd: %s", strerror(errno));
    if (code || woken || ready == 0 || lane->n_ended > 0) return code;
  }
}

static void wake_tcp(Wire *wire, int lane) {
  uint64_t one = 1;
  // It fails only if the counter is full: then the lane wakes up anyway.
  ssize_t n = write(((TcpWire *)wire)->lane[lane].bell, &one, sizeof one);
  (void)n;
}

static int check_tcp(Wire *wire) {
  TcpWire *t = (TcpWire *)wire;
  int code = listen_to_all(t, 0);
  // The first channels are those of the first lane, whose thread this is.
  for (int i = 0; i < CHANNEL_ahead * wire->world && !code; i++) {
    char byte;
    if (t->link[i] < 0) continue;
    // Peeking leaves the bytes for the next exchange.
    ssize_t n = recv(t->link[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    int rank = i % wire->world;
    if (n == 0) code = lost_link(t, rank, "it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) code = lost_link(t, rank, strerror(errno));
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
  for (int i = 0; i < wire->channels * wire->world; i++)
    if (t->link[i] >= 0) close(t->link[i]);
  for (int i = 0; i < wire->lanes; i++) {
    close(t->lane[i].bell);
    free(t->lane[i].poll);
  }
  close(t->watch);
  pthread_mutex_destroy(&t->watching);
  pthread_mutex_destroy(&t->asking);
  pthread_mutex_destroy(&t->answered);
  free(t->link);
  free(t->control);
  free(t->reader);
  free(t->host);
}

Wire *nnrt_wire_tcp(const NnrtRun *run) {
  const Launch *l = &run->launch;
  size_t world = (size_t)l->world;
  TcpWire *t = nnrt_must_alloc(sizeof *t);
  t->wire = (Wire){.name = "tcp",
                   .rank = l->rank,
                   .world = l->world,
                   .lanes = 1,
                   .channels = CHANNEL_ahead,
                   .open = open_tcp,
                   .exchange = exchange_tcp,
                   .wake = wake_tcp,
                   .close = close_tcp,
                   .check = check_tcp,
                   .ask = ask_tcp,
                   .relays = true};
  t->run = run;
  t->watch = -1;
  pthread_mutex_init(&t->watching, NULL);
  pthread_mutex_init(&t->asking, NULL);
  pthread_mutex_init(&t->answered, NULL);
  t->control = nnrt_must_alloc(world * sizeof *t->control);
  t->reader = nnrt_must_alloc(world * sizeof *t->reader);
  t->host = nnrt_must_alloc(world * sizeof *t->host);
  for (int i = 0; i < l->world; i++)
    t->control[i] = -1;
  return &t->wire;
}
