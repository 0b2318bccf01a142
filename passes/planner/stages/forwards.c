// Checks of a model that goes through its layers several times: see forwards.h.

#include "forwards.h"

#include "base/vec.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"

// The readers of a weight of one kind and operand, in the order of the model.
typedef struct Readers {
  const Value *weight;
  OpKind kind;
  int operand;
  Vec(const Op *) ops;
  struct Readers *next; // of the same weight
} Readers;

typedef struct Finder {
  const Sharding *s;
  Arena *a;
  bool *constant;     // by value id: computed from parameters other than inputs
  Readers **of;       // by value id of a weight
  Vec(Readers *) all; // in the order of their first ops
  int *own;           // by op id: the forward of an op that reads a weight of all; 0: another op
} Finder;

static bool is_model(const Op *op) {
  return op_part(op) == PART_forward;
}

// The trained weight that a value is, or is cast or transposed from; NULL: another value.
static const Value *weight_of(const Finder *f, const Value *v) {
  while (v->def && v->def->n_in && f->constant[v->id])
    v = v->def->in[0].value;
  return !v->def && v->role == ROLE_weight && v->train ? v : NULL;
}

static void find_constants(Finder *f) {
  const Graph *g = f->s->g;
  f->constant = arena_array(f->a, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    f->constant[g->params[i]->id] = g->params[i]->role != ROLE_input;
  for_each_op(op, g) {
    bool constant = true;
    for (int i = 0; i < op->n_in; i++)
      constant &= f->constant[op->in[i].value->id];
    for (int i = 0; i < op->n_out; i++)
      f->constant[op->out[i]->id] = constant;
  }
}

static void find_readers(Finder *f) {
  f->of = arena_array(f->a, Readers *, f->s->g->n_values);
  for_each_op(op, f->s->g) {
    // An op computed from weights alone is a part of its readers.
    if (!is_model(op) || !op->n_out || f->constant[op->out[0]->id]) continue;
    for (int i = 0; i < op->n_in; i++) {
      const Value *w = weight_of(f, op->in[i].value);
      if (!w) continue;
      Readers *r = f->of[w->id];
      while (r && (r->kind != op->kind || r->operand != i))
        r = r->next;
      if (!r) {
        r = arena_one(f->a, Readers);
        *r = (Readers){.weight = w, .kind = op->kind, .operand = i, .next = f->of[w->id]};
        f->of[w->id] = r;
        vec_push(f->a, &f->all, r);
      }
      vec_push(f->a, &r->ops, op);
    }
  }
}

// Numbers the readers of weights that are read `n` times: those of number k, from 1, are of forward
// `first` + k - 1. Returns whether there is such a weight.
static bool number_readers(Finder *f, int n, int first) {
  bool any = false;
  for (int i = 0; i < f->all.n; i++) {
    const Readers *r = f->all.at[i];
    any |= r->ops.n == n;
    for (int k = 0; k < r->ops.n && r->ops.n == n; k++)
      f->own[r->ops.at[k]->id] = first + k;
  }
  return any;
}

// The nodes of recycled values, "a,b", as --detach takes them; NULL: none was found.
static const char *recycled_nodes(const Finder *f) {
  enum { MOST = 6 };
  const Graph *g = f->s->g;
  StrBuf names = {.arena = f->a};
  bool *named = arena_array(f->a, bool, g->n_ops);
  // By op id, the last forward among the op and those that it depends on.
  int *last = arena_array(f->a, int, g->n_ops), n = 0;
  for_each_op(op, g) {
    if (!is_model(op)) continue;
    int *at = &last[op->id];
    *at = f->own[op->id];
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && last[def->id] > *at) *at = last[def->id];
    }
    for (int i = 0; i < op->n_in && f->own[op->id] == *at && *at > 1; i++) {
      const Op *def = op->in[i].value->def;
      const char *name = def ? op_node(def) : NULL;
      if (!def || last[def->id] != *at - 1 || named[def->id] || !name || !*name) continue;
      named[def->id] = true;
      if (n++ < MOST) strbuf_addf(&names, "%s%s", names.n ? "," : "", name);
    }
  }
  return n && n <= MOST ? names.at : NULL;
}

bool forwards_check(const Sharding *s, int forwards, const Loc *why, Diag *d) {
  Finder f = {.s = s, .a = s->scratch};
  find_constants(&f);
  find_readers(&f);
  f.own = arena_array(f.a, int, s->g->n_ops);
  // Readers of weights of all forwards take precedence: they are numbered last.
  bool begins = forwards > 2 && number_readers(&f, forwards - 1, 2);
  int *all = arena_array(f.a, int, s->g->n_ops), *both = f.own;
  f.own = all;
  bool repeats = number_readers(&f, forwards, 1);
  if (!repeats) {
    diag_error(d, why,
               "no trained weight of the model is read %d times: it does not go through its "
               "layers as often",
               forwards);
    diag_hint(d, "this is for a model with recycling, whose file has its forwards one after the "
                 "other; the plan for stages of other models is pp");
    return false;
  }
  // Gradients of layers before the last forward.
  const Op *const *model = model_ops(s->g, f.a);
  int through = 0;
  for_each_op(op, s->g) {
    const Op *of = op_part(op) == PART_backward ? model_op_of(s, op, model) : NULL;
    if (of && all[of->id] && all[of->id] < forwards && all[of->id] > through) through = all[of->id];
  }
  if (!through) return true;
  for (uint32_t i = 0; i < s->g->n_ops && begins; i++)
    if (!all[i]) all[i] = both[i];
  const char *nodes = recycled_nodes(&f);
  diag_error(d, why, "gradients go back through forward %d of %d, and can go through the last only",
             through, forwards);
  if (nodes)
    diag_hint(d,
              "--detach '%s' stops them at the recycled values, as x.detach() does before the "
              "export",
              nodes);
  else
    diag_hint(d,
              "--detach NODE,… stops them at the recycled values, by the nodes that compute these");
  return false;
}
