// The ranks of a job find each other over TCP; README.md has the protocol.
//
//     rank 0   listens ─ control links of all ─ sends the table ─ channels of all ─ all ready ─ go
//     rank k   control link to rank 0, listens ─ gets the table ─ channels to ranks before k,
//              and of ranks after k ─ ready ─ go
//
// One loop polls everything: listeners, visitors (tcp_accept.c), connections that this rank makes
// (tcp_dial.c), and the control links, by which a rank that ends is noticed at once.  Before the
// table is made, rank 0 lets a dead rank go and waits for it again; later its end is that of the
// job.

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tcp_gather.h"

bool nnrt_gather_says(Gather *g, int note) {
  bool first = !(g->said & 1u << note);
  g->said |= 1u << note;
  return first;
}

void nnrt_gather_place(const Gather *g, char *out, size_t size) {
  bool brackets = strchr(g->at_host, ':') && g->at_host[0] != '[';
  snprintf(out, size, brackets ? "[%s]:%d" : "%s:%d", g->at_host, g->at_port);
}

void nnrt_gather_proof(const Gather *g, int side, const Hello *h, const unsigned char *nonce,
                       unsigned char out[PROOF]) {
  // Without a key each side repeats the nonce of the other.
  if (!g->key.n) {
    memcpy(out, side == SIDE_accepts ? h->nonce : nonce, PROOF);
    return;
  }
  // The sides sign different texts, so none can send back the proof of the other.
  struct {
    char side[16];
    Hello hello;
    unsigned char nonce[NONCE];
  } text = {.hello = *h};
  snprintf(text.side, sizeof text.side, "nnrt %s", side == SIDE_accepts ? "accepts" : "connects");
  memcpy(text.nonce, nonce, NONCE);
  nnrt_key_sign(&g->key, &text, sizeof text, out);
}

bool nnrt_is_closed(int fd) {
  char byte;
  ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

// ---- missing ranks

static bool has_channels(const Gather *g, int rank) {
  for (int channel = 0; channel < g->channels; channel++)
    if (*nnrt_link_to(g->t, channel, rank) < 0) return false;
  return true;
}

// Returns the number of ranks that have no control link, at rank 0, or after the table no channels;
// *out_first is one of them.
static int count_missing(const Gather *g, int *out_first) {
  int n = 0;
  for (int rank = g->world - 1; rank >= 0; rank--) {
    bool there = rank == g->rank;
    if (!there) there = g->has_table ? has_channels(g, rank) : g->t->control[rank] >= 0;
    // Before the table other ranks know rank 0 only.
    if (there || (!g->has_table && g->rank > 0 && rank > 0)) continue;
    n++;
    *out_first = rank;
  }
  return n;
}

static bool all_ready(const Gather *g) {
  for (int rank = 1; rank < g->world; rank++)
    if (!g->ready[rank]) return false;
  return true;
}

// Once a rank has reached rank 0, that one ends the wait, and tells the reason.
static double until_of(const Gather *g) {
  bool led = g->rank > 0 && g->t->control[0] >= 0;
  return g->until + (led ? ATTEMPT_SECONDS * 1e6 : 0);
}

static void say_patience(Gather *g) {
  char who[128], more[32] = "", at[300];
  int first = 0, missing = count_missing(g, &first);
  // A rank that has reached rank 0 waits with it for the others, which rank 0 names.
  if (missing == 0 || !nnrt_gather_says(g, NOTE_patience)) return;
  nnrt_gather_place(g, at, sizeof at);
  nnrt_tcp_who(g->t, first, who, sizeof who);
  if (missing > 1) snprintf(more, sizeof more, " and %d more", missing - 1);
  nnrt_say_note("waiting for %s%s at %s", who, more, at);
}

static bool too_late(Gather *g, Why *w) {
  char who[128], at[300];
  int first = 0, missing = count_missing(g, &first);
  double seconds = (g->until - g->began) / 1e6;
  nnrt_gather_place(g, at, sizeof at);
  nnrt_tcp_who(g->t, first, who, sizeof who);
  bool control = g->rank > 0 && g->t->control[0] < 0;
  if (control) {
    bool loops = g->dial[0].n_addresses && nnrt_address_is_loopback(&g->dial[0].address[0]);
    return why(w, "cannot connect to rank 0 at %s within %g s (--connect-timeout): %s%s", at,
               seconds, g->dial[0].last,
               loops && !g->one_host ? "\nhint: MASTER_ADDR is an address of this machine only"
                                     : "");
  }
  char others[48] = "";
  if (missing == 0 && g->rank > 0)
    return why(w,
               "rank 0 at %s has not gathered all ranks within %g s (--connect-timeout): it, or "
               "its machine, is stopped",
               at, seconds);
  if (missing == 0) {
    for (first = 1; first + 1 < g->world && g->ready[first];)
      first++;
    nnrt_tcp_who(g->t, first, who, sizeof who);
    return why(w, "%s has not connected to all others within %g s (--connect-timeout)", who,
               seconds);
  }
  if (missing > 1) snprintf(others, sizeof others, ", and %d more are missing", missing - 1);
  return why(w, "%s did not come to %s within %g s (--connect-timeout)%s%s%s", who,
             g->rank == 0 ? at : g->name, seconds, others, *g->last ? "\nnote: " : "", g->last);
}

// ---- control links

static bool gone(Gather *g, int rank, const char *text, Why *w) {
  char who[128], at[300] = "";
  nnrt_tcp_who(g->t, rank, who, sizeof who);
  if (rank == 0) nnrt_gather_place(g, at, sizeof at);
  why(w, "%s%s%s is gone: %s", who, rank == 0 ? " at " : "", at, text);
  if (g->rank == 0) nnrt_tcp_tell(g->t, rank, w->text);
  return false;
}

// A rank that rank 0 waits for again.
static void let_go(Gather *g, int rank, const char *reason) {
  char who[128];
  nnrt_tcp_who(g->t, rank, who, sizeof who);
  nnrt_say_note("%s is gone, and waited for again: %s", who, reason);
  close(g->t->control[rank]);
  g->t->control[rank] = -1;
}

static bool control_step(Gather *g, int rank, Why *w) {
  Reader *r = &g->t->reader[rank];
  for (;;) {
    Read read = nnrt_message_read(g->t->control[rank], r);
    if (read == READ_more) return true;
    bool whole = read == READ_whole, early = g->rank == 0 && !g->has_table;
    MessageKind kind = (MessageKind)r->head.kind;
    if (whole && kind == MESSAGE_abort) {
      Abort *a = (void *)r->body;
      if (a->quit && !early) nnrt_stacks_quit();
      if (a->rank < 0 || a->rank >= g->world) a->rank = rank;
      nnrt_text_clean(a->text, sizeof a->text);
      if (early) {
        let_go(g, rank, a->text);
        return true;
      }
      if (g->rank == 0) nnrt_tcp_tell(g->t, a->rank, a->text);
      g->t->told = *a;
      return why(w, "%s", a->text);
    }
    if (whole && g->rank == 0 && kind == MESSAGE_ready && !early) {
      g->ready[rank] = true;
    } else if (whole && g->rank > 0 && kind == MESSAGE_table && !g->has_table &&
               r->head.bytes == g->table_bytes) {
      memcpy(g->table, r->body, (size_t)g->table_bytes);
      g->has_table = true;
      for (int i = 0; i < g->world; i++) {
        Entry *e = &g->table->entry[i];
        nnrt_text_clean(e->host, sizeof e->host);
        nnrt_text_clean(e->address, sizeof e->address);
        memcpy(g->t->host[i], e->host, sizeof e->host);
      }
      // To all ranks before this one.
      for (int i = g->rank - 1; i >= 0; i--)
        for (int channel = 0; channel < g->channels; channel++)
          nnrt_dial_open(g, &g->dial[g->n_dials++], i, channel);
      nnrt_accept_held(g);
    } else if (whole && g->rank > 0 && kind == MESSAGE_go && g->said_ready) {
      g->go = true;
      return true; // later bytes are those of exchanges
    } else {
      const char *reason = read == READ_closed ? "it closed the connection" : "it sent nonsense";
      if (!early) return gone(g, rank, reason, w);
      let_go(g, rank, reason);
      return true;
    }
  }
}

// Makes the table when all ranks have come, sends it, and tells when all are ready.
static bool lead(Gather *g, Why *w) {
  int first, missing = count_missing(g, &first);
  if (!g->has_table) {
    if (missing) return true;
    nnrt_draw(g->table->job, JOB_ID);
    memcpy(g->table->entry[0].host, g->name, HOST_TEXT);
    g->has_table = true;
  }
  Head head = nnrt_message_head(MESSAGE_table, g->table_bytes);
  int64_t all = (int64_t)sizeof head + g->table_bytes;
  for (int i = 1; i < g->world; i++)
    while (g->sent[i] < all) {
      bool in_head = g->sent[i] < (int64_t)sizeof head;
      const char *from = in_head ? (char *)&head : (char *)g->table;
      int64_t at = in_head ? g->sent[i] : g->sent[i] - (int64_t)sizeof head;
      size_t n = (size_t)((in_head ? (int64_t)sizeof head : g->table_bytes) - at);
      ssize_t step = send(g->t->control[i], from + at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (step < 0 && errno == EINTR) continue;
      if (step < 0 && errno == EAGAIN) break;
      if (step <= 0) return gone(g, i, strerror(errno), w);
      g->sent[i] += step;
    }
  if (g->go || count_missing(g, &first) || !all_ready(g)) return true;
  for (int i = 1; i < g->world; i++)
    if (!nnrt_message_send(g->t->control[i], MESSAGE_go, NULL, 0))
      return gone(g, i, "it closed the connection", w);
  g->go = true;
  return true;
}

static bool follow(Gather *g, Why *w) {
  int first;
  if (g->said_ready || !g->has_table || count_missing(g, &first)) return true;
  g->said_ready = true;
  return nnrt_message_send(g->t->control[0], MESSAGE_ready, NULL, 0) ||
         gone(g, 0, "it closed the connection", w);
}

// ---- the loop

enum PollSource { FROM_listener, FROM_visitor, FROM_control, FROM_dial };

typedef struct Polled {
  struct pollfd *p;
  struct {
    enum PollSource source;
    int index;
  } * of;
  int n;
} Polled;

static void poll_add(Polled *p, int fd, short events, enum PollSource source, int index) {
  p->p[p->n] = (struct pollfd){.fd = fd, .events = events};
  p->of[p->n].source = source;
  p->of[p->n++].index = index;
}

static double collect(const Gather *g, Polled *p) {
  double next = until_of(g), patience = g->began + PATIENCE_SECONDS * 1e6;
  p->n = 0;
  if (!(g->said & 1u << NOTE_patience) && patience < next) next = patience;
  // More visitors wait in the backlog of the kernel.
  for (int i = 0; i < g->listeners.n && g->n_visitors < MOST_VISITORS; i++)
    poll_add(p, g->listeners.fd[i], POLLIN, FROM_listener, i);
  for (int i = 0; i < g->n_visitors; i++)
    poll_add(p, g->visitor[i]->fd, POLLIN, FROM_visitor, i);
  if (nnrt_accept_next(g) < next) next = nnrt_accept_next(g);
  int64_t all = (int64_t)sizeof(Head) + g->table_bytes;
  for (int i = 0; i < g->world; i++) {
    bool sends = g->rank == 0 && g->has_table && g->sent[i] < all;
    if (g->t->control[i] >= 0)
      poll_add(p, g->t->control[i], (short)(POLLIN | (sends ? POLLOUT : 0)), FROM_control, i);
  }
  for (int i = 0; i < g->n_dials; i++) {
    const Dial *d = &g->dial[i];
    if (d->state == DIAL_done) continue;
    if (d->fd >= 0) poll_add(p, d->fd, nnrt_dial_events(d), FROM_dial, i);
    if (d->next < next) next = d->next;
  }
  return next;
}

static bool turn(Gather *g, Polled *p, Why *w) {
  double left = (collect(g, p) - nnrt_now_us()) / 1e3;
  // Rounded up, so that the loop does not spin before the time.
  int ready = poll(p->p, (nfds_t)p->n, left < 0 ? 0 : left < 60e3 ? (int)left + 1 : 60000);
  if (ready < 0 && errno != EINTR) return why(w, "poll: %s", strerror(errno));
  // Control links first: a rank that has died makes room for one that comes again.  Then visitors
  // from the last, since one that is dropped moves those after it.  The table may have dropped
  // some: then another visitor is read, which may have sent nothing yet.
  for (int i = p->n - 1; i >= 0 && ready > 0; i--)
    if (p->p[i].revents & ~POLLOUT && p->of[i].source == FROM_control &&
        !control_step(g, p->of[i].index, w))
      return false;
  for (int i = p->n - 1; i >= 0 && ready > 0; i--)
    if (p->p[i].revents && p->of[i].source == FROM_visitor && p->of[i].index < g->n_visitors)
      nnrt_accept_step(g, p->of[i].index);
  nnrt_accept_expire(g);
  for (int i = 0; i < p->n && ready > 0; i++)
    if (p->p[i].revents && p->of[i].source == FROM_listener)
      nnrt_accept_new(g, g->listeners.fd[p->of[i].index]);
  // A dial may also continue by its time.
  for (int i = 0, k = 0; i < g->n_dials; i++) {
    short events = 0;
    while (k < p->n && !(p->of[k].source == FROM_dial && p->of[k].index >= i))
      k++;
    if (ready > 0 && k < p->n && p->of[k].index == i) events = p->p[k].revents;
    if (!nnrt_dial_step(g, &g->dial[i], events, w)) return false;
  }
  if (!(g->rank == 0 ? lead(g, w) : follow(g, w))) return false;
  if (g->go) return true;
  double now = nnrt_now_us();
  if (now >= until_of(g)) return too_late(g, w);
  if (now >= g->began + PATIENCE_SECONDS * 1e6) say_patience(g);
  return true;
}

// ---- the beginning

// A number that separates the jobs of one machine; not a secret.
static uint64_t run_of(const Launch *l) {
  const char *torchrun[] = {"TORCHELASTIC_RUN_ID"};
  const char *slurm[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"};
  bool by_slurm = l->kind == LAUNCH_slurm;
  uint64_t run = (uint64_t)l->kind;
  for (int i = 0; i < (by_slurm ? 3 : 1); i++) {
    const char *text = getenv(by_slurm ? slurm[i] : torchrun[i]);
    run = nnrt_xxh64(text ? text : "", text ? (int64_t)strlen(text) : 0, run);
  }
  return run;
}

// Rank 0 listens at the address that the others are told.
static bool listen_as_rank_0(Gather *g, Why *w) {
  Address a[MOST_ADDRESSES];
  int error = 0, n = nnrt_address_resolve(g->at_host, g->at_port, a, &error);
  bool loops = n > 0;
  if (n == 0)
    return why(w,
               "rank 0's machine '%s' is not found: %s\n"
               "hint: MASTER_ADDR is a name or an address of this machine, which is rank 0's",
               g->at_host, gai_strerror(error));
  for (int i = 0; i < n; i++)
    loops &= nnrt_address_is_loopback(&a[i]);
  if (loops && !g->one_host) {
    // Debian's /etc/hosts gives 127.0.1.1 to the machine's own name; other hosts know it by another
    // address.  Ranks of this machine come to the loopback address.
    const TcpPlaces *p = &g->places;
    Address both[MOST_ADDRESSES + 2];
    int n_both = p->n_interface;
    memcpy(both, p->interface, sizeof p->interface);
    for (int i = 0; i < n && n_both; i++)
      both[n_both++] = a[i];
    if (!nnrt_listen(&g->listeners, both, n_both, g->at_port, w)) return false;
  } else if (!nnrt_listen(&g->listeners, a, n, g->at_port, w)) {
    return false;
  }
  if (g->listeners.open_to_others && !g->key.n)
    nnrt_say_note("ranks are not authenticated: whoever reaches port %d can take part; see "
                  "NNRT_JOB_KEY in docs/hosts.md",
                  g->at_port);
  return true;
}

// Each rank has a descriptor for each channel of each other, and visitors need some.
static bool raise_limit(const Gather *g, Why *w) {
  enum { OTHERS = 64 }; // files, GPUs
  struct rlimit limit;
  int64_t need = (int64_t)g->world * (g->channels + 1) + MOST_VISITORS + OTHERS;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)need) return true;
  rlim_t most = limit.rlim_max;
  limit.rlim_cur = most < (rlim_t)need ? most : (rlim_t)need;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= (rlim_t)(need - MOST_VISITORS))
    return true;
  return why(w,
             "%d ranks need %lld open files, and this process may open %lld\n"
             "hint: ulimit -Hn %lld, or a larger LimitNOFILE",
             g->world, (long long)need, (long long)most, (long long)need);
}

static bool begin(Gather *g, Why *w) {
  const NnrtRun *run = g->t->run;
  const Launch *l = &run->launch;
  g->at_host = l->host;
  g->at_port = l->port;
  g->one_host = l->one_host;
  g->run = run_of(l);
  nnrt_program_terms(run->program, &g->terms);
  g->program = nnrt_xxh64(g->terms.at, g->terms.bytes, 0);
  gethostname(g->name, sizeof g->name - 1);
  g->began = nnrt_now_us();
  g->until = g->began + nnrt_connect_timeout(&run->flags) * 1e6;
  if (!raise_limit(g, w) || !nnrt_places_read(&g->places, w) || !nnrt_key_read(&g->key, w))
    return false;
  if (run->flags.require_key.given && !g->key.n)
    return why(w, "--require-key, but this rank has no key\n"
                  "hint: NNRT_JOB_KEY, or NNRT_JOB_KEY_FILE, on all ranks");
  memcpy(g->t->host[g->rank], g->name, HOST_TEXT);
  if (g->rank == 0) return listen_as_rank_0(g, w);
  nnrt_dial_open(g, &g->dial[g->n_dials++], 0, CONTROL);
  return true;
}

bool nnrt_tcp_gather(TcpWire *t, Why *w) {
  int world = t->wire.world, channels = t->wire.channels, most_dials = t->wire.rank * channels + 1;
  Gather *g = nnrt_must_alloc(sizeof *g);
  *g = (Gather){.t = t, .rank = t->wire.rank, .world = world, .channels = channels};
  g->table_bytes = (int64_t)sizeof *g->table + world * (int64_t)sizeof *g->table->entry;
  g->table = nnrt_must_alloc((size_t)g->table_bytes);
  g->sent = nnrt_must_alloc((size_t)world * sizeof *g->sent);
  g->ready = nnrt_must_alloc((size_t)world * sizeof *g->ready);
  g->dial = nnrt_must_alloc((size_t)most_dials * sizeof *g->dial);
  // Rank 0 has control links of all others, which send short messages; the others have one.
  for (int i = 0; i < world; i++) {
    bool control = g->rank == 0 ? i > 0 : i == 0;
    int64_t room = g->rank > 0 && g->table_bytes > (int64_t)sizeof(Abort) ? g->table_bytes
                                                                          : (int64_t)sizeof(Abort);
    if (control) nnrt_reader_open(&t->reader[i], room);
  }
  int n = MOST_ADDRESSES + 2 + MOST_VISITORS + world + most_dials;
  Polled polled = {.p = nnrt_must_alloc((size_t)n * sizeof *polled.p),
                   .of = nnrt_must_alloc((size_t)n * sizeof *polled.of)};
  bool ok = begin(g, w);
  while (ok && !g->go)
    ok = turn(g, &polled, w);
  // The port closes, and with it the connections of strangers.
  nnrt_listeners_close(&g->listeners);
  while (g->n_visitors > 0)
    nnrt_accept_drop(g, g->n_visitors - 1);
  for (int i = 0; i < g->n_dials; i++)
    nnrt_dial_close(&g->dial[i]);
  nnrt_key_free(&g->key);
  nnrt_terms_free(&g->terms);
  free(polled.p);
  free(polled.of);
  free(g->dial);
  free(g->ready);
  free(g->sent);
  free(g->table);
  free(g);
  return ok;
}
