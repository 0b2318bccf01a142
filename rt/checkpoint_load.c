// Loads a checkpoint, which rank 0 has opened, into the slabs of all ranks.
//
//     rank 0   tensors of the file fit the program ─┬─ its own part
//                                                   ├─ part of rank 1, block by block ─→ rank 1
//                                                   └─ part of rank 2, block by block ─→ rank 2
//
// Ranks that are processes need neither the folder nor the file: hosts share no files.  Ranks that
// are threads read their parts from the mapped file.
//
// A block is bounded, so no rank needs memory for a whole tensor.

#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "comm.h"
#include "device.h"

enum { BLOCK = 1 << 22 };

// Facts of the file, which rank 0 sends to all: a list of integers, in which each tensor of the
// program has one more, whether the file has it.
enum {
  FITS,
  STEP,
  SEED,
  SHUFFLE,
  SHUFFLE_SEED,
  SAMPLES,
  READ,
  LENGTH,
  LR_STEPS,
  COMPARED,
  TENSORS // [n_tensors]
};

// Whether this is the state of loss scaling: the scale and its step counts.  Only programs in f16
// have it; checkpoints of programs in other types serve one in f16 as well.
static bool scales_loss(const char *state) {
  return strcmp(state, "loss_scale") == 0 || strncmp(state, "loss_scale.", 11) == 0;
}

// Initializes the state of loss scaling, as after `step` steps with none skipped.
static void start_scale(const Checkpoints *c, NnrtRank *r, const NnrtTensor *t, int64_t step) {
  Part part;
  // The number of updates is the step, since none was skipped.
  if (strcmp(t->name, "loss_scale.updates") == 0 && t->dtype == NNRT_i64) {
    if (nnrt_part_here(r, t, &part)) nnrt_part_put(r, t, &part, &step);
    return;
  }
  nnrt_init_tensor(r, t, 0, &(Why){0}); // a fill: the seed does not matter, and it cannot fail
  if (r->rank != 0 || strcmp(t->name, "loss_scale") != 0) return;
  char *path = nnrt_checkpoint_path(c, step);
  nnrt_say_note(
      "checkpoint '%s' was not written in f16: the loss scale starts from its initial value", path);
  free(path);
}

// Compares names, types and shapes of the tensors with those of the program.
static bool check_tensors(const StFile *f, const NnrtGraph *g, const char *path, int64_t *out_has,
                          Why *w) {
  static const char hint[] = "hint: resume with the same model and optimizer";
  // A program that does not scale its loss ignores the state of loss scaling.
  int n = 0;
  for (int i = 0; i < f->n_tensors; i++) {
    const char *name = f->tensor[i].name;
    if (strncmp(name, "state/", 6) == 0 && scales_loss(name + 6) &&
        !nnrt_find_tensor(g, NNRT_state, name + 6))
      n++;
  }
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_saved(t)) continue;
    char *name = nnrt_checkpoint_name(t);
    const StTensor *s = nnrt_st_find(f, name);
    out_has[i] = s != NULL;
    const int64_t *dim;
    int ndim = nnrt_tensor_known(t, &dim);
    bool ok = s && s->dtype == t->dtype && s->ndim == ndim;
    for (int d = 0; ok && d < ndim; d++)
      ok = s->dim[d] == dim[d];
    // A checkpoint of a program that is not in f16 has no loss scale.
    bool starts = !s && t->role == NNRT_state && scales_loss(t->name);
    if (!s && !starts)
      why(w, "checkpoint '%s' is of another program: it has no '%s'\n%s", path, name, hint);
    else if (!ok && !starts)
      why(w, "checkpoint '%s' is of another program: '%s' is %s in it, here %s\n%s", path, name,
          nnrt_shape_text(s->dtype, s->dim, s->ndim).at, nnrt_tensor_text(t).at, hint);
    free(name);
    if (!ok && !starts) return false;
    n += ok;
  }
  // Every tensor of the file must have been used, or ignored on purpose.
  if (n == f->n_tensors) return true;
  return why(w, "checkpoint '%s' is of another program: it has %d tensors, this program %d\n%s",
             path, f->n_tensors, n, hint);
}

static int64_t int_text(const StFile *f, const char *key, int64_t otherwise) {
  const char *text = nnrt_st_text(f, key);
  return text ? strtoll(text, NULL, 10) : otherwise;
}

static void read_facts(const Checkpoints *c, const NnrtGraph *g, int64_t *out, Why *w) {
  const StFile *f = &c->resumed;
  char *path = nnrt_checkpoint_path(c, c->last);
  bool fits = check_tensors(f, g, path, out + TENSORS, w);
  // "none", or the seed of the order.
  const char *shuffle = nnrt_st_text(f, "shuffle");
  // Older checkpoints lack some of these texts.
  out[FITS] = fits;
  out[STEP] = c->last;
  out[SEED] = int_text(f, "seed", 0);
  out[SHUFFLE] = shuffle && strcmp(shuffle, "none") != 0;
  out[SHUFFLE_SEED] = int_text(f, "shuffle", 0);
  out[SAMPLES] = int_text(f, "rows", 0);
  out[READ] = int_text(f, "rows_read", -1);
  out[LENGTH] = int_text(f, "row_tokens", 0);
  out[LR_STEPS] = int_text(f, "lr_steps", -1);
  out[COMPARED] = fits && nnrt_fingerprints_compare(c, f);
  free(path);
}

// The part of another rank of the tensor's mesh.
static Part part_of(const NnrtProgram *p, const NnrtTensor *t, int rank) {
  const NnrtMesh *m = &p->mesh[t->mesh];
  int coord[NNRT_MAX_AXES];
  nnrt_mesh_coord(m, nnrt_mesh_place(m, rank), coord);
  return nnrt_tensor_part(t, p, coord);
}

// Sends a block of their parts to all other ranks of the tensor's mesh.
static void send_block(NnrtRank *r, const NnrtTensor *t, const void *whole, int64_t at,
                       int64_t bytes) {
  const NnrtProgram *p = r->program;
  Exchange *e = nnrt_exchange_new(p->mesh[t->mesh].n_ranks, 0);
  e->n_to = 0;
  for (int rank = 1; rank < r->ranks; rank++) {
    if (nnrt_mesh_place(&p->mesh[t->mesh], rank) < 0) continue;
    Part part = part_of(p, t, rank);
    Parcel *to = &e->to[e->n_to++];
    *to = nnrt_parcel_new(rank, bytes);
    nnrt_part_from_whole(to->at, whole, t, &part, at, bytes);
  }
  if (e->n_to > 0)
    nnrt_comm_exchange(r, e);
  else
    nnrt_exchange_free(e);
  // The queue takes many exchanges: this one leaves memory before the next is made.
  nnrt_comm_drain(r);
}

static void receive_block(NnrtRank *r, const NnrtTensor *t, int64_t at, int64_t bytes) {
  Exchange *e = nnrt_exchange_new(0, 1);
  e->from[0] = (Parcel){.peer = 0, .bytes = bytes};
  nnrt_comm_exchange(r, e);
  nnrt_device_put(r, nnrt_tensor_at(r, t) + at, e->from[0].at, bytes);
  nnrt_exchange_free(e);
}

static void load_tensor(const StFile *f, bool shared, NnrtRank *r, const NnrtTensor *t) {
  bool here, reads = shared || r->rank == 0;
  const void *whole = NULL;
  Part part;
  here = nnrt_part_here(r, t, &part);
  if (reads) {
    char *name = nnrt_checkpoint_name(t);
    whole = f->data + nnrt_st_find(f, name)->begin;
    free(name);
    if (here) nnrt_part_put(r, t, &part, whole);
  }
  if (shared || (r->rank > 0 && !here)) return;
  // All parts have the size of any.
  if (!here) part = part_of(r->program, t, r->program->mesh[t->mesh].rank[0]);
  int64_t bytes = nnrt_part_count(t, &part) * nnrt_dtype_size(t->dtype);
  for (int64_t at = 0; at < bytes; at += BLOCK) {
    int64_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
    if (r->rank == 0)
      send_block(r, t, whole, at, n);
    else
      receive_block(r, t, at, n);
  }
}

bool nnrt_checkpoint_load(Checkpoints *c, NnrtRank *r, DataOrder *out_order) {
  Why w;
  const NnrtGraph *g = &r->program->train;
  bool root = r->rank == 0, shared = r->run->launch.kind == LAUNCH_none || r->ranks == 1;
  int64_t *facts = nnrt_must_alloc((size_t)(TENSORS + g->n_tensors) * sizeof *facts);
  if (root) read_facts(c, g, facts, &w);
  // Before any rank ends.
  if (root && !facts[FITS]) nnrt_say_error("%s", w.text);
  // Rank 0's facts, and zeros of all others.
  nnrt_comm_sum(r, facts, TENSORS + g->n_tensors);
  bool ok = facts[FITS];
  *out_order = (DataOrder){.seed = facts[SEED],
                           .shuffle = facts[SHUFFLE],
                           .shuffle_seed = facts[SHUFFLE_SEED],
                           .samples = facts[SAMPLES],
                           .first = facts[STEP],
                           .read = facts[READ],
                           .length = facts[LENGTH],
                           .lr_steps = facts[LR_STEPS],
                           .compared = facts[COMPARED]};
  for (int i = 0; i < g->n_tensors && ok; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_saved(t)) continue;
    if (facts[TENSORS + i])
      load_tensor(&c->resumed, shared, r, t);
    else
      start_scale(c, r, t, facts[STEP]);
  }
  // Threads read the file until here.
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  if (root) nnrt_st_close(&c->resumed);
  free(facts);
  return ok;
}
