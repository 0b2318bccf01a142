// Reshards within one mesh, axis by axis.
//
// P or S(i) becomes S(j) in one hop, or in two through B (hops.h). The one hop moves half the bytes
// of an all_reduce, or one n-th of those of an all_gather. But if another reader needs the whole
// value, the hop from B, a slice, is free. So the costs of all layouts wanted of a value are added
// up with one hop and with two, and the cheaper sum wins.

#include "comm_state.h"
#include "ir/collective.h"

// Whether the value is a weight or a cast of one.
static bool is_weight(const Value *v) {
  while (v->def && v->def->kind == OP_cast)
    v = v->def->in[0].value;
  return !v->def && v->role == ROLE_weight;
}

Op *place_of(const Value *v, Op *reader) {
  if (is_weight(v) && reader && reader != v->def) return reader;
  return v->def ? v->def->next : v->graph->first;
}

// Inserts one change along one axis, of `v` (local already) for `reader`.
static Value *reshard_axis(Comm *c, Value *v, int axis, Sbp to, Op *reader) {
  Sbp from = v->layout->axis[axis];
  const MeshAxis *along = &v->layout->mesh->axis[axis];
  Origin reason = reader ? op_origin(reader) : value_origin(v);
  Builder b = {.g = c->g, .at = place_of(v, reader), .d = c->d};
  Value *out;
  if (from.kind == SBP_S && along->time) {
    cannot_cut(c, reader, reader->id < c->n_ops ? c->dims_of[reader->id] : NULL);
    return NULL;
  }
  if (from.kind == SBP_B && v->def && v->def->kind == OP_fill) {
    // A shard of a constant is a smaller constant.
    Type t = *v->type;
    t.dim[to.dim] /= along->size;
    b.origin = op_origin(v->def);
    out = build_fill(&b, t.dtype, t.ndim, t.dim, attr_f(v->def, "value"));
  } else {
    // Partial sums of slices accumulate.
    OpKind kind = collective_between(from, to, along->time && to.kind == SBP_B);
    b.origin = origin_for(c->m->arena, reason, op_info[kind].name);
    out = build_collective(&b, kind, v, along->name, from, to);
  }
  // The result differs along this axis only.
  if (!out) return NULL;
  out->layout = with_axis(c->m, v->layout, axis, to);
  c->inserted++;
  return out;
}

// -- Choice of hops ----------------------------------------------------------------------------

typedef struct Price {
  double elements; // sent by a rank
  int ops;
} Price;

typedef struct Estimate {
  const Comm *c;
  const Type *whole;
  const Layout *from;
  Hops hops;
  Vec(const Layout *) made;
  Price price;
} Estimate;

// Adds the steps to `want` that are not made for another layout.
static void add_way(Estimate *e, const Layout *want) {
  // Reshards to another mesh have costs of their own.
  if (want->mesh != e->from->mesh) return;
  for (const Layout *have = e->from; have != want;) {
    Step s = next_step(e->c->m, have, want, e->hops);
    bool made = false;
    for (int i = 0; i < e->made.n; i++)
      made |= e->made.at[i] == s.layout;
    if (!made) {
      // A rank sends its part once to slice, twice to reduce, and to all others to gather.
      Sbp from = have->axis[s.axis], to = s.layout->axis[s.axis];
      if (from.kind != SBP_B && !is_time(have, s.axis)) {
        double n = have->mesh->axis[s.axis].size;
        double part = (double)type_count(type_local(e->c->m, e->whole, have)) / n;
        e->price.elements += (n - 1) * part * (to.kind == SBP_S ? 1 : from.kind == SBP_P ? 2 : n);
      }
      e->price.ops++;
      vec_push(e->c->scratch, &e->made, s.layout);
    }
    have = s.layout;
  }
}

// The cost of all layouts that readers need of `v`, if none is made yet.
static Price price_of(const Comm *c, const Value *v, Hops hops) {
  Estimate e = {.c = c, .from = v->layout, .hops = hops};
  e.whole = type_whole(c->m, v->type, v->layout);
  for_each_use(u, v) {
    const Op *op = u->user;
    for (int i = 0; op && i < op->n_in; i++)
      if (op->in[i].value == v) add_way(&e, comm_wanted_layout(c, op, i));
  }
  for_each_use(u, v)
    if (!u->user) add_way(&e, wanted_result(c, c->g->results[u->index]));
  return e.price;
}

// -- Moving ------------------------------------------------------------------------------------

Value *moved_before(const Comm *c, uint32_t original, const Layout *want, TrainPart part) {
  for (AxisReshard *k = c->moved[original]; k; k = k->next)
    if (k->layout == want && k->part == part) return k->value;
  return NULL;
}

Value *comm_remember(Comm *c, uint32_t original, TrainPart part, Value *v) {
  AxisReshard *k = arena_one(c->scratch, AxisReshard);
  *k = (AxisReshard){.layout = v->layout, .part = part, .value = v, .next = c->moved[original]};
  return (c->moved[original] = k)->value;
}

TrainPart part_of(const Value *v, const Op *reader) {
  return is_weight(v) && reader ? op_part(reader) : PART_forward;
}

Value *reshard_by_hops(Comm *c, uint32_t original, TrainPart part, Value *v, const Layout *want,
                       Hops hops, Op *reader) {
  while (v->layout != want) {
    Step s = next_step(c->m, v->layout, want, hops);
    Value *next = moved_before(c, original, s.layout, part);
    if (!next) {
      next = reshard_axis(c, v, s.axis, s.layout->axis[s.axis], reader);
      if (!next) return NULL;
      comm_remember(c, original, part, next);
    }
    v = next;
  }
  return v;
}

Value *reshard_by_axes(Comm *c, Value *v, const Layout *want, Op *reader) {
  if (v->layout != want && c->hops[v->id] == UNDECIDED) {
    // The cheapest hops for all layouts that readers need.
    Hops best = NO_HOPS;
    Price least = price_of(c, v, best);
    for (Hops hops = SUMS_HOP; hops <= ALL_HOP; hops++) {
      Price p = price_of(c, v, hops);
      if (p.elements > least.elements || (p.elements == least.elements && p.ops >= least.ops))
        continue;
      best = hops;
      least = p;
    }
    c->hops[v->id] = best;
  }
  return reshard_by_hops(c, v->id, part_of(v, reader), v, want, c->hops[v->id], reader);
}
