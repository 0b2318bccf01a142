// Stamps of the contents of a module: see stamp.h.

#include "stamp.h"

#include <string.h>

#include "ir/schedule.h"

// Two sums over the words of all objects, one after the other.  Lengths of lists are among the
// words, so no two modules have the same words by another division into objects.
typedef struct Stamp {
  uint64_t lane[2];
} Stamp;

// Both halves of a product of 128 bits, which depend on all bits of both words.
static inline uint64_t stamp_words(uint64_t h, uint64_t x, uint64_t y) {
  __extension__ typedef unsigned __int128 Wide;
  Wide product = (Wide)(h ^ x) * (y ^ 0x9e3779b97f4a7c15u);
  return (uint64_t)product ^ (uint64_t)(product >> 64) ^ x;
}

static inline uint64_t word_at(const char *byte) {
  uint64_t word;
  memcpy(&word, byte, sizeof word);
  return word;
}

// `n` bytes; of structs, which are multiples of a word, and of lists.
static inline void stamp_bytes(Stamp *s, const void *at, size_t n) {
  const char *byte = at;
  for (; n >= 32; n -= 32, byte += 32) {
    s->lane[0] = stamp_words(s->lane[0], word_at(byte), word_at(byte + 8));
    s->lane[1] = stamp_words(s->lane[1], word_at(byte + 16), word_at(byte + 24));
  }
  for (; n >= 8; n -= 8, byte += 8)
    s->lane[0] = stamp_words(s->lane[0], word_at(byte), n);
  uint64_t rest = 0;
  if (n) memcpy(&rest, byte, n);
  if (n) s->lane[0] = stamp_words(s->lane[0], rest, n);
}

static void stamp_op(Stamp *s, const Op *op) {
  stamp_bytes(s, op, sizeof *op);
  stamp_bytes(s, op->in, (size_t)op->n_in * sizeof *op->in);
  for (int i = 0; i < op->n_out; i++)
    stamp_bytes(s, op->out[i], sizeof *op->out[i]);
}

// Runs are changed in place, so their contents count; names of segments are only added.
static void stamp_schedule(Stamp *s, const Schedule *of) {
  stamp_bytes(s, of, sizeof *of);
  for (int i = 0; i < of->run.n; i++) {
    const RankRun *run = &of->run.at[i];
    stamp_bytes(s, run, sizeof *run);
    stamp_bytes(s, run->device, (size_t)run->n_devices * sizeof *run->device);
    stamp_bytes(s, run->action.at, (size_t)run->action.n * sizeof *run->action.at);
  }
}

static uint64_t stamp_end(const Stamp *s) {
  return stamp_words(1, s->lane[0], s->lane[1]);
}

static uint64_t stamp_graph(const Graph *g, bool *io_ordered) {
  Stamp s = {{1, 2}};
  stamp_bytes(&s, g, sizeof *g);
  if (g->schedule) stamp_schedule(&s, g->schedule);
  for (int i = 0; i < g->n_params; i++)
    stamp_bytes(&s, g->params[i], sizeof *g->params[i]);
  for (int i = 0; i < g->n_results; i++)
    stamp_bytes(&s, g->results[i], sizeof *g->results[i]);
  for_each_op(op, g) {
    stamp_op(&s, op);
    *io_ordered |= g->entry && op->order;
  }
  return stamp_end(&s);
}

bool module_stamp(const Module *m, Arena *a, ModuleStamp *out) {
  *out = (ModuleStamp){0};
  if (m->annotations) return false;
  Stamp s = {{1, 2}};
  stamp_bytes(&s, m, sizeof *m);
  for_each_mesh(mesh, m) {
    stamp_bytes(&s, mesh, sizeof *mesh);
    stamp_bytes(&s, mesh->device, (size_t)mesh->n_devices * sizeof *mesh->device);
  }
  out->module = stamp_end(&s);
  for_each_graph(g, m) {
    GraphStamp of = {g, g->entry, stamp_graph(g, &out->ordered)};
    vec_push(a, &out->graph, of);
  }
  out->known = true;
  return true;
}

bool stamp_same(const ModuleStamp *before, const ModuleStamp *now) {
  bool same = before->known && now->known && before->module == now->module &&
              before->graph.n == now->graph.n;
  for (int i = 0; same && i < now->graph.n; i++)
    same = before->graph.at[i].stamp == now->graph.at[i].stamp;
  return same;
}

const bool *stamp_kept_graphs(const ModuleStamp *before, const ModuleStamp *now, Arena *a) {
  if (!before->known || !now->known || before->module != now->module) return NULL;
  bool *kept = arena_array(a, bool, now->graph.n);
  int n = 0; // graphs from before that are there
  // New graphs are between those from before, or follow them; these keep their order.
  for (int i = 0; i < now->graph.n; i++) {
    const GraphStamp *is = &now->graph.at[i];
    if (n == before->graph.n || before->graph.at[n].g != is->g) continue;
    const GraphStamp *was = &before->graph.at[n++];
    kept[i] = was->stamp == is->stamp;
    if (!kept[i] && !was->entry) return NULL;
  }
  return n == before->graph.n ? kept : NULL;
}
