// Gradient bucketing: buckets are reduced in the order their gradients are ready (TAP, section
// 4.7.1).
//
//     %g2 = linear_back_w …                       %g2 = linear_back_w …
//     %r2 = all_reduce %g2 axis="dp"              %g1 = linear_back_w …
//     %g1 = linear_back_w …                =>     %b = pack %g2, %g1
//     %r1 = all_reduce %g1 axis="dp"              %r = all_reduce %b axis="dp"
//     %w1 = sgd %w, %r1, …                        %r2 = unpack %r offset=0 shape=…
//                                                 %r1 = unpack %r offset=4096 shape=…
//                                                 %w1 = sgd %w, %r1, …
//
// One collective per small gradient would pay its latency each time; one collective for all would
// start only when backward is over. A bucket is closed when it holds `bucket` bytes (default 4
// MiB), so that its reduction overlaps with the rest of backward; before the first reader of one of
// its members; or when it has as many members as an op can have operands.
//
// There is a bucket for each group of ranks and layout: on a mesh dp=2, tp=2 one for gradients that
// tp shards by rows, and one for gradients that tp replicates. If some gradients are sharded, the
// all_reduces of their sums of squares, for the norm, are adjacent and share a bucket, too.
//
// If a rank uses only its shard of such a sum, the shard is sliced off after the bucket.
//
// If updates are deferred (defer_updates.c), an output of the step shares no bucket with gradients,
// which may be in flight longer.
//
// A value that is read much sooner than the rest of its bucket, such as a statistic of a batch
// normalisation, is reduced separately. Packing costs no copy: plan_memory places the members
// inside the bucket.

#include "bucket_grads.h"

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "pass.h"

bool is_all_reduced(const Layout *from, const Layout *to) {
  for (int a = 0; a < from->n_axes; a++)
    if (from->axis[a].kind == SBP_P ? to->axis[a].kind != SBP_B
                                    : !sbp_equal(from->axis[a], to->axis[a]))
      return false;
  return from != to;
}

enum { SOON = 64 }; // ops: a value read sooner joins no bucket read later

typedef struct Bucket {
  Vec(Op *) member; // the all_reduces, in order; none: closed
  int64_t bytes;
  int64_t first_read; // id of the first reader of a member
} Bucket;

typedef struct Packer {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t limit;
  Vec(Bucket) open;
  int64_t buckets, packed;
} Packer;

// Replaces the members' collectives by one of their bucket, after the last member.
static bool close_bucket(Packer *p, Bucket *bucket) {
  int n = bucket->member.n;
  bucket->member.n = 0;
  bucket->bytes = 0;
  // A single member keeps its own collective.
  if (n < 2) return true;
  Op *last = bucket->member.at[n - 1];
  // The bucket belongs to the latest part of the step among its members.
  Builder b = {.g = p->g, .at = last->next, .d = p->d};
  b.origin = op_origin(op_of_latest_part(bucket->member.at, n));
  Value **in = arena_array(p->scratch, Value *, n);
  for (int i = 0; i < n; i++)
    in[i] = bucket->member.at[i]->in[0].value;
  Value *packed = build_op(&b, OP_pack, in, n, NO_ATTRS);
  Value *sum = build_op(&b, OP_all_reduce, IN(packed), ATTRS(a_s("axis", attr_s(last, "axis"))));
  if (!sum) return false;
  packed->layout = in[0]->layout;
  sum->layout = last->out[0]->layout;
  // Readers of a member read its range of the reduced bucket.
  int64_t offset = 0;
  for (int i = 0; i < n; i++) {
    Op *reduce = bucket->member.at[i];
    const Type *t = reduce->out[0]->type;
    b.origin = op_origin(reduce);
    Value *one = build_op(&b, OP_unpack, IN(sum),
                          ATTRS(a_i("offset", offset), a_list("shape", t->dim, t->ndim)));
    if (!one) return false;
    one->layout = sum->layout;
    value_replace(reduce->out[0], one);
    op_erase(reduce);
    offset += pack_length(t);
  }
  p->buckets++;
  p->packed += n;
  return true;
}

// Whether two all_reduces may share a bucket: the same axis, element type and layout.
static bool same_group(const Op *a, const Op *b) {
  return str_equal(attr_s(a, "axis"), attr_s(b, "axis")) &&
         a->out[0]->type->dtype == b->out[0]->type->dtype &&
         a->in[0].value->layout == b->in[0].value->layout;
}

static bool put(Packer *p, Op *op) {
  const Type *t = op->out[0]->type;
  // The open bucket of the op's group, else a closed one, else a new one.
  int at = 0;
  while (at < p->open.n &&
         !(p->open.at[at].member.n && same_group(p->open.at[at].member.at[0], op)))
    at++;
  if (at == p->open.n)
    for (at = 0; at < p->open.n && p->open.at[at].member.n;)
      at++;
  if (at == p->open.n) vec_push(p->scratch, &p->open, (Bucket){0});
  Bucket *bucket = &p->open.at[at];
  // A bucket is closed before the first reader of a member.
  int64_t first = INT64_MAX;
  for_each_use(u, op->out[0])
    if (u->user && u->user->id < first) first = u->user->id;
  if (!bucket->member.n) bucket->first_read = INT64_MAX;
  // A value that is read soon joins no bucket that is read later.
  int64_t soon = op->id + SOON;
  bool later =
      bucket->first_read >= soon && bucket->first_read < INT64_MAX; // an output has no reader
  if (bucket->member.n && first < soon && later) return true;
  vec_push(p->scratch, &bucket->member, op);
  bucket->bytes += pack_length(t) * dtype_bytes[t->dtype];
  if (first < bucket->first_read) bucket->first_read = first;
  bool full = bucket->bytes >= p->limit || bucket->member.n == MAX_TERMS;
  return !full || close_bucket(p, bucket);
}

// Closes the buckets that the op with this id, or an earlier op, reads.
static bool close_read(Packer *p, int64_t id) {
  for (int i = 0; i < p->open.n; i++) {
    Bucket *bucket = &p->open.at[i];
    if (bucket->member.n && bucket->first_read <= id && !close_bucket(p, bucket)) return false;
  }
  return true;
}

bool pass_bucket_grads(Module *m, const PassOptions *o, Diag *d) {
  Packer p = {.scratch = opt_scratch(o), .d = d, .limit = opt_int(o, "bucket", PACK_BUCKET)};
  for_each_graph(g, m) {
    p.g = g;
    if (g->entry) {
      // A rank's slice of a sum moves to its first reader: directly after the sum it would close
      // the bucket. The walk begins at the end, so moved ops are already passed: several may
      // precede one reader.
      graph_renumber(p.g);
      for (Op *op = p.g->last, *before; op; op = before) {
        before = op->prev;
        const Op *sum = op->kind == OP_local_slice ? op->in[0].value->def : NULL;
        Op *reader = NULL;
        for_each_use(u, op->out[0])
          if (u->user && (!reader || u->user->id < reader->id)) reader = u->user;
        if (sum && sum->kind == OP_all_reduce) op_move_before(op, reader);
      }
      graph_renumber(p.g);
      p.open.n = 0;
      for_each_op_safe(op, p.g) {
        if (!close_read(&p, op->id)) return false;
        if (op->kind != OP_all_reduce || dtype_class[op->out[0]->type->dtype] != 'F') continue;
        // If updates are deferred, gradients may be in flight longer than an output of the step.
        bool reported = false;
        for_each_use(u, op->out[0])
          reported |= !u->user;
        if (p.g->module->cross_barrier && reported) continue;
        if (!put(&p, op)) return false;
      }
      if (!close_read(&p, INT64_MAX)) return false;
    }
  }
  opt_stat(o, p.buckets, "buckets");
  opt_stat(o, p.packed, "gradients packed");
  return true;
}
