// A stamp of the contents of a module: see stamp.h.

#include "stamp.h"

#include <string.h>

#include "ir/intern.h"
#include "ir/op.h"
#include "ir/schedule.h"

static uint64_t stamp_word(uint64_t h, uint64_t word) {
  h = hash_mix(h, word);
  return h ^ h >> 29;
}

// `n` bytes; of structs, which are multiples of a word, and of short lists.  In four lanes, since a
// word waits for the product of the one before it in its lane.
static uint64_t stamp_bytes(uint64_t h, const void *at, size_t n) {
  const char *byte = at;
  uint64_t word[4], a = h, b = h + 1, c = h + 2;
  for (; n >= sizeof word; n -= sizeof word, byte += sizeof word) {
    memcpy(word, byte, sizeof word);
    h = stamp_word(h, word[0]);
    a = stamp_word(a, word[1]);
    b = stamp_word(b, word[2]);
    c = stamp_word(c, word[3]);
  }
  h = stamp_word(h, stamp_word(a, stamp_word(b, c)));
  for (; n >= sizeof(uint64_t); n -= sizeof(uint64_t), byte += sizeof(uint64_t)) {
    memcpy(word, byte, sizeof *word);
    h = stamp_word(h, *word);
  }
  uint64_t rest = 0;
  if (n) memcpy(&rest, byte, n);
  return stamp_word(h, rest + n);
}

// Each object starts from the same word, so that the sums of neighbours overlap.
static uint64_t stamp_object(uint64_t h, const void *at, size_t n) {
  return stamp_word(h, stamp_bytes(1, at, n));
}

static uint64_t stamp_value(uint64_t h, const Value *v) {
  h = stamp_object(h, v, sizeof *v);
  return v->init ? stamp_object(h, v->init, sizeof *v->init) : h;
}

static uint64_t stamp_op(uint64_t h, const Op *op) {
  h = stamp_object(h, op, sizeof *op);
  h = stamp_object(h, op->in, (size_t)op->n_in * sizeof *op->in);
  for (int i = 0; i < op->n_out; i++)
    h = stamp_value(h, op->out[i]);
  int n;
  op_attr_specs(op->kind, &n);
  h = stamp_object(h, op->attrs, (size_t)n * sizeof *op->attrs);
  for (int i = 0; i < n; i++)
    if (op->attrs[i].kind == 'I')
      h = stamp_object(h, op->attrs[i].list.at,
                       (size_t)op->attrs[i].list.n * sizeof *op->attrs[i].list.at);
  return h;
}

// Runs are changed in place, so their contents count; names of segments are only added.
static uint64_t stamp_schedule(uint64_t h, const Schedule *s) {
  h = stamp_word(stamp_word(h, (uint64_t)s->segment.n), (uint64_t)s->run.n);
  for (int i = 0; i < s->run.n; i++) {
    const RankRun *run = &s->run.at[i];
    h = stamp_bytes(h, run->device, (size_t)run->n_devices * sizeof *run->device);
    for (int k = 0; k < run->action.n; k++) {
      const Action *action = &run->action.at[k];
      h = stamp_word(h, (uint64_t)action->segment);
      h = stamp_word(h, (uint64_t)(uintptr_t)action->get);
    }
  }
  return h;
}

uint64_t module_stamp(const Module *m) {
  if (m->annotations) return 0;
  uint64_t h = stamp_bytes(1, m, sizeof *m);
  for_each_mesh(mesh, m) {
    h = stamp_bytes(h, mesh, sizeof *mesh);
    h = stamp_bytes(h, mesh->device, (size_t)mesh->n_devices * sizeof *mesh->device);
  }
  for_each_graph(g, m) {
    h = stamp_bytes(h, g, sizeof *g);
    if (g->schedule) h = stamp_schedule(h, g->schedule);
    for (int i = 0; i < g->n_params; i++)
      h = stamp_value(h, g->params[i]);
    for (int i = 0; i < g->n_results; i++)
      h = stamp_bytes(h, g->results[i], sizeof *g->results[i]);
    for_each_op(op, g)
      h = stamp_op(h, op);
  }
  return h ? h : 1;
}
