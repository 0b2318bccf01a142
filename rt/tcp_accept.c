// Connections that come in while ranks gather: visitors, until they prove to be ranks.
//
// A visitor sends Hello, gets a Challenge, sends a proof, and is welcome; README.md has the fields.
// Each has its own deadline and buffer, so none delays another.  A stranger, a port scanner for
// example, is dropped, and the first is noted.  A process of another job gets the reason.  One with
// another program answers that by its terms, so that both sides can name the difference.

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp_gather.h"

// The longest message of a visitor: HELLO, or its terms.
enum { LONGEST = sizeof(Hello) > REFUSAL_MOST ? sizeof(Hello) : REFUSAL_MOST };

void nnrt_accept_drop(Gather *g, int i) {
  Visitor *v = g->visitor[i];
  if (v->fd >= 0) close(v->fd);
  free(v->in.body);
  free(v);
  // In their order, by age.
  g->n_visitors--;
  memmove(&g->visitor[i], &g->visitor[i + 1], (size_t)(g->n_visitors - i) * sizeof *g->visitor);
}

static void drop_stranger(Gather *g, int i, const char *reason) {
  if (nnrt_gather_says(g, NOTE_stranger))
    nnrt_say_note("dropped a connection from %s, which is no rank of this job: %s; others like it "
                  "are dropped without a note",
                  g->visitor[i]->from, reason);
  nnrt_accept_drop(g, i);
}

void nnrt_accept_new(Gather *g, int listening) {
  while (g->n_visitors < MOST_VISITORS) {
    Address from = {.n = sizeof from.at};
    int fd = accept4(listening, (void *)&from.at, &from.n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    // Without a descriptor for a rank, the oldest stranger makes room.
    bool full = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if (full && g->n_visitors) drop_stranger(g, 0, "there are too many connections");
    if (fd < 0) return;
    Visitor *v = g->visitor[g->n_visitors++] = nnrt_must_alloc(sizeof *v);
    v->fd = fd;
    v->since = nnrt_now_us();
    v->address = from;
    nnrt_address_text_port(&from, v->from);
    nnrt_reader_open(&v->in, LONGEST);
  }
}

// Notes the reason, once for each kind, and drops the visitor.
static void drop_refused(Gather *g, int i, Refusal reason, const char *what) {
  const Visitor *v = g->visitor[i];
  const Hello *h = &v->hello;
  snprintf(g->last, sizeof g->last, "a process at %s (%s) says it is rank %d of %d, but %s",
           v->from, h->host, h->rank, h->world, what);
  if (nnrt_gather_says(g, NOTE_refused + (int)reason)) nnrt_say_note("dropped: %s", g->last);
  nnrt_accept_drop(g, i);
}

static void refuse(Gather *g, int i, Refusal reason, const char *what) {
  Refuse r = {.reason = reason, .world = g->world};
  nnrt_message_send(g->visitor[i]->fd, MESSAGE_refuse, &r, offsetof(Refuse, terms));
  drop_refused(g, i, reason, what);
}

// ---- another program

static void refuse_program(Gather *g, int i) {
  Refuse r = {.reason = REFUSED_program, .world = g->world};
  int64_t n = nnrt_terms_fit(&g->terms, REFUSAL_MOST);
  memcpy(r.terms, g->terms.at, (size_t)n);
  nnrt_message_send(g->visitor[i]->fd, MESSAGE_refuse, &r, (int64_t)offsetof(Refuse, terms) + n);
  // The note waits for the visitor's terms, or its end.
  g->visitor[i]->refused = true;
}

// Notes who runs another program, and the first difference, if the visitor has sent its terms.
static void drop_program(Gather *g, int i, bool has_terms) {
  const Visitor *v = g->visitor[i];
  char what[480] = "it runs another program";
  Why w;
  if (has_terms) {
    // Zeros after the terms end a list that is cut off.
    size_t n = (size_t)v->in.head.bytes;
    char *theirs = nnrt_must_alloc(n + 4);
    memcpy(theirs, v->in.body, n);
    nnrt_text_clean(theirs, n + 4);
    if (nnrt_terms_differ((TermsOf){g->terms.at, g->rank, g->name},
                          (TermsOf){theirs, v->hello.rank, v->hello.host}, &w))
      snprintf(what, sizeof what, "it runs another program: %.450s", w.text);
    free(theirs);
  }
  drop_refused(g, i, REFUSED_program, what);
}

// ---- the handshake

// Returns the slot of the connection in the wire, if the Hello's rank and channel exist.
static int *slot_of(Gather *g, const Hello *h) {
  bool control = h->channel == CONTROL;
  if (h->rank <= g->rank || h->rank >= g->world || h->channel < CONTROL ||
      h->channel >= g->channels || (control && g->rank != 0))
    return NULL;
  return control ? &g->t->control[h->rank] : nnrt_link_to(g->t, h->channel, h->rank);
}

// Whether that rank is connected already.  A connection that has ended is let go; after the table
// was made its address would be wrong.
static bool is_taken(Gather *g, const Hello *h, int *slot) {
  if (h->channel == CONTROL && g->has_table) return true;
  if (*slot >= 0 && nnrt_is_closed(*slot)) {
    close(*slot);
    *slot = -1;
  }
  return *slot >= 0;
}

// Answers the Hello of a visitor with a challenge; it waits, if its channel has no table yet.
static void answer(Gather *g, int i) {
  Visitor *v = g->visitor[i];
  const Hello *h = &v->hello;
  int *slot = slot_of(g, h);
  bool channel = h->channel != CONTROL;
  if (h->run != g->run) {
    refuse(g, i, REFUSED_run, "of another job");
    return;
  }
  if (h->world != g->world) {
    refuse(g, i, REFUSED_world, "this job has another number of ranks");
    return;
  }
  if (!h->keyed != !g->key.n) {
    refuse(g, i, REFUSED_key, h->keyed ? "it has a key and this job has none" : "it has no key");
    return;
  }
  if (h->to != g->rank) {
    refuse(g, i, REFUSED_run, "it looks for another rank at this port");
    return;
  }
  if (!slot) {
    drop_stranger(g, i, "it sent an impossible number of a rank or channel");
    return;
  }
  // Only rank 0 has the job's number from the start.
  if (channel && !g->has_table) return;
  if (channel && memcmp(h->job, g->table->job, JOB_ID) != 0) {
    refuse(g, i, REFUSED_run, "of another job");
    return;
  }
  if (is_taken(g, h, slot)) {
    refuse(g, i, REFUSED_taken, "that rank is here already");
    return;
  }
  Challenge c;
  nnrt_draw(v->nonce, NONCE);
  memcpy(c.nonce, v->nonce, NONCE);
  nnrt_gather_proof(g, SIDE_accepts, h, v->nonce, c.proof);
  if (nnrt_message_send(v->fd, MESSAGE_challenge, &c, sizeof c))
    v->challenged = true;
  else
    nnrt_accept_drop(g, i);
}

static void admit(Gather *g, int i) {
  Visitor *v = g->visitor[i];
  const Hello *h = &v->hello;
  int *slot = slot_of(g, h);
  unsigned char proof[PROOF];
  const Prove *p = (const void *)v->in.body;
  nnrt_gather_proof(g, SIDE_connects, h, v->nonce, proof);
  if (!nnrt_key_fits(&g->key, p->proof, proof)) {
    refuse(g, i, REFUSED_proof, g->key.n ? "it has another key" : "it repeats an old connection");
    return;
  }
  if (h->program != g->program) {
    refuse_program(g, i);
    return;
  }
  // Two visitors may have been challenged for one place.
  if (!slot || is_taken(g, h, slot)) {
    refuse(g, i, REFUSED_taken, "that rank is here already");
    return;
  }
  if (!nnrt_message_send(v->fd, MESSAGE_welcome, NULL, 0)) {
    nnrt_accept_drop(g, i);
    return;
  }
  *slot = v->fd;
  v->fd = -1;
  nnrt_tcp_set_options(*slot, h->channel == CONTROL);
  if (h->channel == CONTROL) {
    // Others connect to the interface that the rank has selected, or to the address that this
    // connection comes from.
    Address own;
    Entry *e = &g->table->entry[h->rank];
    memcpy(e->host, h->host, sizeof e->host);
    memcpy(g->t->host[h->rank], h->host, sizeof e->host);
    if (*h->address && nnrt_address_parse(h->address, 0, &own))
      nnrt_address_text(&own, e->address);
    else
      nnrt_address_text(&v->address, e->address);
    e->port = h->port;
    g->t->reader[h->rank].have = 0;
    g->sent[h->rank] = 0;
  }
  nnrt_accept_drop(g, i);
}

void nnrt_accept_step(Gather *g, int i) {
  Visitor *v = g->visitor[i];
  Read read = nnrt_message_read(v->fd, &v->in);
  MessageKind kind = (MessageKind)v->in.head.kind;
  if (read == READ_more) return;
  if (v->refused) {
    drop_program(g, i, read == READ_whole && kind == MESSAGE_terms);
    return;
  }
  if (read == READ_closed) {
    // A rank that its user ends, or that has found another address of this one, closes it.
    if (v->greeted)
      nnrt_accept_drop(g, i);
    else
      drop_stranger(g, i, "it ended before it said who it is");
    return;
  }
  if (read == READ_whole && kind == MESSAGE_hello && !v->greeted) {
    memcpy(&v->hello, v->in.body, sizeof v->hello);
    nnrt_text_clean(v->hello.host, sizeof v->hello.host);
    nnrt_text_clean(v->hello.address, sizeof v->hello.address);
    v->greeted = true;
    answer(g, i);
  } else if (read == READ_whole && kind == MESSAGE_prove && v->challenged) {
    admit(g, i);
  } else {
    drop_stranger(g, i, "it does not speak as ranks do");
  }
}

void nnrt_accept_held(Gather *g) {
  for (int i = g->n_visitors - 1; i >= 0; i--)
    if (g->visitor[i]->greeted && !g->visitor[i]->challenged) answer(g, i);
}

static double deadline_of(const Gather *g, int i) {
  // The oldest of a crowd makes room early: strangers that say nothing must not keep ranks out.
  double crowded = CROWDED_MS * 1e3, all = ATTEMPT_SECONDS * 1e6;
  return g->visitor[i]->since + (i == 0 && g->n_visitors == MOST_VISITORS ? crowded : all);
}

double nnrt_accept_next(const Gather *g) {
  return g->n_visitors ? deadline_of(g, 0) : g->until;
}

void nnrt_accept_expire(Gather *g) {
  double now = nnrt_now_us();
  while (g->n_visitors > 0 && deadline_of(g, 0) <= now)
    if (g->visitor[0]->refused)
      drop_program(g, 0, false);
    else
      drop_stranger(g, 0,
                    g->visitor[0]->greeted ? "it stopped in the middle of its greeting"
                                           : "it said nothing");
}
