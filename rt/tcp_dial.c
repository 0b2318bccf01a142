// Connections that a rank makes while ranks gather: to rank 0, and then to all ranks before it.
//
//     pause → connect → challenge → welcome → done
//       ↑________|__________|__________|        until the time is over
//
// A rank tries again if nothing listens there, or another job does: it may be the one before this,
// on the same port.  A rank that is refused for good reports the difference.

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp_gather.h"

static void who(const Gather *g, const Dial *d, char *out, size_t size) {
  char rank[128], at[300];
  nnrt_tcp_who(g->t, d->to, rank, sizeof rank);
  if (d->to == 0 || !d->n_addresses)
    nnrt_gather_place(g, at, sizeof at);
  else
    nnrt_address_text_port(&d->address[d->at], at);
  snprintf(out, size, "%s at %s", rank, at);
}

void nnrt_dial_open(Gather *g, Dial *d, int to, int channel) {
  *d = (Dial){.to = to, .channel = channel, .fd = -1, .pause_ms = 5};
  Hello *h = &d->hello;
  *h = (Hello){.world = g->world,
               .rank = g->rank,
               .to = to,
               .channel = channel,
               .keyed = g->key.n > 0,
               .run = g->run,
               .program = g->program};
  memcpy(h->host, g->name, sizeof h->host);
  nnrt_reader_open(&d->in, sizeof(Refuse));
  if (channel == CONTROL) return;
  memcpy(h->job, g->table->job, JOB_ID);
  // Rank 0 keeps the address of its control link.  A loopback address is one of rank 0's machine,
  // which only its own ranks use.
  const Entry *e = &g->table->entry[to];
  Address *a = &d->address[0];
  d->n_addresses = 1;
  bool known = to > 0 && nnrt_address_parse(e->address, e->port, a);
  if (known && (!nnrt_address_is_loopback(a) || nnrt_address_is_loopback(&g->reached))) return;
  *a = g->reached;
  if (to > 0) nnrt_address_set_port(a, e->port);
}

void nnrt_dial_close(Dial *d) {
  if (d->fd >= 0) close(d->fd);
  free(d->in.body);
}

// Ends the attempt; the next begins after a pause.
static void retry(Dial *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void retry(Dial *d, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(d->last, sizeof d->last, fmt, args);
  va_end(args);
  if (d->fd >= 0) close(d->fd);
  d->fd = -1;
  d->in.have = 0;
  d->state = DIAL_pause;
  d->next = nnrt_now_us() + (double)d->pause_ms * 1e3;
  // Pauses double.
  d->pause_ms = 2 * d->pause_ms < LONGEST_PAUSE_MS ? 2 * d->pause_ms : LONGEST_PAUSE_MS;
}

static bool begin(Gather *g, Dial *d, Why *w);

// The other addresses of the name are tried without a pause.
static bool next_address(Gather *g, Dial *d, int error, Why *w) {
  bool more = d->at + 1 < d->n_addresses;
  retry(d, "%s", strerror(error));
  if (!more) return true;
  d->at++;
  return begin(g, d, w);
}

// Begins to connect to address `at`.
static bool begin(Gather *g, Dial *d, Why *w) {
  const Address *a = &d->address[d->at];
  d->fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (d->fd < 0) return next_address(g, d, errno, w);
  d->state = DIAL_connect;
  d->next = nnrt_now_us() + ATTEMPT_SECONDS * 1e6;
  if (connect(d->fd, (const void *)&a->at, a->n) == 0 || errno == EINPROGRESS) return true;
  return next_address(g, d, errno, w);
}

static bool resolve(Gather *g, Dial *d, Why *w) {
  // The name is resolved again each time: a container's name may appear late.
  int error = 0;
  Address found[MOST_ADDRESSES];
  int n = nnrt_address_resolve(g->at_host, g->at_port, found, &error);
  if (n > 0) {
    memcpy(d->address, found, sizeof found);
    d->n_addresses = n;
    d->at = 0;
    return begin(g, d, w);
  }
  retry(d, "%s", gai_strerror(error));
  // A name that had an address before may have one again.
  if (d->n_addresses || nnrt_now_us() < g->began + RESOLVE_SECONDS * 1e6) return true;
  return why(w,
             "rank 0's machine '%s' is not found: %s\n"
             "hint: MASTER_ADDR is a name or an address of the machine of rank 0",
             g->at_host, d->last);
}

// Listens at an address that other ranks can connect to: the local one of the link to rank 0.
static bool listen_here(Gather *g, int fd, Why *w) {
  Address own = {.n = sizeof own.at};
  if (g->listeners.n) return true;
  if (g->places.n_interface)
    return nnrt_listen_in_range(&g->listeners, g->places.interface, g->places.n_interface,
                                &g->places, w);
  bool known = getsockname(fd, (void *)&own.at, &own.n) == 0;
  // Rank 0 is on this machine; others may not be.
  bool all = !known || (nnrt_address_is_loopback(&own) && !g->one_host);
  return nnrt_listen_in_range(&g->listeners, &own, all ? 0 : 1, &g->places, w);
}

static bool connected(Gather *g, Dial *d, Why *w) {
  int error = 0;
  socklen_t n = sizeof error;
  if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = errno;
  if (error) return next_address(g, d, error, w);
  if (d->channel == CONTROL) {
    if (!listen_here(g, d->fd, w)) return false;
    d->hello.port = g->listeners.port;
    g->reached = d->address[d->at];
    // Of the family that connects ranks, if the interface has both.
    const TcpPlaces *p = &g->places;
    bool second = p->n_interface > 1 && p->interface[1].at.ss_family == g->reached.at.ss_family;
    if (p->n_interface) nnrt_address_text(&p->interface[second], d->hello.address);
  }
  // A listener with an old challenge does not know this nonce.
  nnrt_draw(d->hello.nonce, NONCE);
  if (nnrt_message_send(d->fd, MESSAGE_hello, &d->hello, sizeof d->hello))
    d->state = DIAL_challenge;
  else
    retry(d, "it closed the connection");
  return true;
}

// Reports a refusal that cannot be helped, or tries again.
static bool refused(Gather *g, Dial *d, Why *w) {
  const Refuse *r = (const void *)d->in.body;
  int64_t n = d->in.head.bytes - (int64_t)offsetof(Refuse, terms);
  char at[450], key[] = "\nhint: the same NNRT_JOB_KEY, or NNRT_JOB_KEY_FILE, on all ranks";
  who(g, d, at, sizeof at);
  switch ((Refusal)r->reason) {
  case REFUSED_world:
    return why(w,
               "%s is of a job of %d ranks, and this process of one of %d\n"
               "hint: another MASTER_PORT for each job",
               at, r->world, g->world);
  case REFUSED_key:
    return why(w, "%s has %s%s", at, g->key.n ? "no key" : "a key, and this rank has none", key);
  case REFUSED_proof: return why(w, "%s has another key%s", at, key);
  case REFUSED_program: {
    // The other side reports the difference, too: it goes on waiting for this rank.
    nnrt_message_send(d->fd, MESSAGE_terms, g->terms.at, nnrt_terms_fit(&g->terms, REFUSAL_MOST));
    // Zeros after the terms end a list that is cut off.
    char *theirs = nnrt_must_alloc((size_t)n + 4);
    memcpy(theirs, r->terms, (size_t)n);
    nnrt_text_clean(theirs, (size_t)n + 4);
    // Before the table, rank 0's machine has the name under which it was reached.
    const char *host = g->t->host[d->to];
    if (!*host) host = nnrt_address_is_loopback(&g->reached) ? g->name : g->at_host;
    if (!nnrt_terms_differ((TermsOf){theirs, d->to, host}, (TermsOf){g->terms.at, g->rank, g->name},
                           w))
      why(w, "%s runs another program", at);
    free(theirs);
    return why(w,
               "%s\nhint: all ranks run one executable, or those of one --split-ranks; see "
               "--describe",
               w->text);
  }
  case REFUSED_taken:
    if (nnrt_gather_says(g, NOTE_taken))
      nnrt_say_note("%s says that rank %d has come already; trying again", at, g->rank);
    retry(d, "rank %d had come already", g->rank);
    return true;
  case REFUSED_run:
  case N_REFUSALS: break;
  }
  if (nnrt_gather_says(g, NOTE_busy_port)) nnrt_say_note("another job is at %s; trying again", at);
  retry(d, "another job is there");
  return true;
}

static bool challenged(Gather *g, Dial *d, Why *w) {
  const Challenge *c = (const void *)d->in.body;
  unsigned char proof[PROOF];
  Prove p;
  nnrt_gather_proof(g, SIDE_accepts, &d->hello, c->nonce, proof);
  if (!nnrt_key_fits(&g->key, c->proof, proof)) {
    char at[450];
    who(g, d, at, sizeof at);
    return why(w,
               "%s has another key\n"
               "hint: the same NNRT_JOB_KEY, or NNRT_JOB_KEY_FILE, on all ranks",
               at);
  }
  nnrt_gather_proof(g, SIDE_connects, &d->hello, c->nonce, p.proof);
  if (nnrt_message_send(d->fd, MESSAGE_prove, &p, sizeof p))
    d->state = DIAL_welcome;
  else
    retry(d, "it closed the connection");
  return true;
}

static bool receive(Gather *g, Dial *d, Why *w) {
  Read read = nnrt_message_read(d->fd, &d->in);
  MessageKind kind = (MessageKind)d->in.head.kind;
  if (read == READ_more) return true;
  if (read == READ_whole && kind == MESSAGE_refuse) return refused(g, d, w);
  if (read == READ_whole && kind == MESSAGE_challenge && d->state == DIAL_challenge)
    return challenged(g, d, w);
  if (read == READ_whole && kind == MESSAGE_welcome && d->state == DIAL_welcome) {
    if (d->channel == CONTROL)
      g->t->control[0] = d->fd;
    else
      *nnrt_link_to(g->t, d->channel, d->to) = d->fd;
    nnrt_tcp_set_options(d->fd, d->channel == CONTROL);
    d->fd = -1;
    d->state = DIAL_done;
    return true;
  }
  if (read == READ_closed) {
    retry(d, "it closed the connection");
    return true;
  }
  char at[450];
  who(g, d, at, sizeof at);
  if (nnrt_gather_says(g, NOTE_busy_port))
    nnrt_say_note("another program listens for %s; trying again", at);
  retry(d, "another program listens there");
  return true;
}

short nnrt_dial_events(const Dial *d) {
  return d->state == DIAL_connect ? POLLOUT : POLLIN;
}

bool nnrt_dial_step(Gather *g, Dial *d, short events, Why *w) {
  bool late = nnrt_now_us() >= d->next;
  switch (d->state) {
  case DIAL_pause:
    if (!late) return true;
    if (d->channel == CONTROL) return resolve(g, d, w);
    return begin(g, d, w);
  case DIAL_connect:
    if (events) return connected(g, d, w);
    return late ? next_address(g, d, ETIMEDOUT, w) : true;
  case DIAL_challenge:
  case DIAL_welcome:
    if (events) return receive(g, d, w);
    if (late) retry(d, "it does not answer");
    return true;
  case DIAL_done: return true;
  }
  return true;
}
