// Cycles that joint groups of ops would make (fuse_groups.h), compared with the plain definition: a
// path leads out of the joint group and back into it.

#include "unit.h"

#include "draw.h"
#include "fuse/fuse_groups.h"
#include "ir/op.h"

// -- Random graphs -----------------------------------------------------------------------------

// Chains of ops with readers far from their operands, as gates have. Values have too many points
// for groups at the ends of the graph, which are joined without a test (FEW_POINTS).
//
//     %v1 = relu %x
//     %v2 = linear %v1, %w
//     %v3 = reshape %v2 shape=[131072]     a view, read by ops on values of its shape
//     %v4 = tanh %v3
//     %v5 = reduce_sum %v2 axes=[0] …      a sum, and a broadcast of it
typedef struct Written {
  StrBuf text;
  Random random;
  int n;
  bool flat[1024]; // by value: its shape is that of the view
} Written;

enum { OPS = 300, NEAR = 6 };

// A value with the shape: one of the last, or any.
static int some_value(Written *w, bool flat) {
  int from = below(&w->random, 4) && w->n > NEAR ? w->n - NEAR : 0;
  for (int tries = 0; tries < 50; tries++) {
    int v = from + below(&w->random, w->n - from);
    if (w->flat[v] == flat) return v;
  }
  return flat ? 1 : 0; // %v1 is the view of %v0
}

static void add_op(Written *w) {
  static const char *const unary[] = {"relu", "tanh", "gelu", "sigmoid"};
  int v = w->n, kind = below(&w->random, 12);
  bool flat = below(&w->random, 4) == 0;
  int x = some_value(w, flat), y = some_value(w, flat);
  StrBuf *b = &w->text;
  if (kind < 4) {
    strbuf_addf(b, "  %%v%d = %s %%v%d", v, unary[below(&w->random, 4)], x);
  } else if (kind < 8) {
    strbuf_addf(b, "  %%v%d = %s %%v%d, %%v%d", v, kind < 6 ? "add" : "mul", x, y);
  } else if (kind == 8) {
    strbuf_addf(b, "  %%v%d = reshape %%v%d shape=[%s]", v, x, flat ? "512,256" : "131072");
    flat = !flat;
  } else if (kind == 9) {
    x = some_value(w, flat = false);
    strbuf_addf(b, "  %%s%d = reduce_sum %%v%d axes=[0]\n", v, x);
    strbuf_addf(b, "  %%v%d = broadcast %%s%d shape=[512,256]", v, v);
  } else {
    x = some_value(w, flat = false);
    strbuf_addf(b, "  %%v%d = linear %%v%d, %%w", v, x);
  }
  // Ops with an order are a chain.
  if (kind != 9 && below(&w->random, 24) == 0)
    strbuf_addf(b, " : f32[%s] order=%d", flat ? "131072" : "512,256", v);
  strbuf_add(b, "\n");
  w->flat[w->n++] = flat;
}

static const char *random_graph(Arena *a, unsigned seed) {
  Written w = {.text = {.arena = a}, .random = {seed * 7919u + 1}, .n = 2, .flat = {false, true}};
  strbuf_add(&w.text, "module phase=typed\ngraph @main entry (%x: f32[512,256] input \"x\", "
                      "%w: f32[256,256] weight \"w\" = normal(0,1)) {\n"
                      "  %v0 = linear %x, %w\n  %v1 = reshape %v0 shape=[131072]\n");
  while (w.n < OPS)
    add_op(&w);
  strbuf_addf(&w.text, "  return output \"y\" %%v%d\n}\n", w.n - 1);
  return w.text.at;
}

// -- The plain definition ----------------------------------------------------------------------

// Ops that depend on the joint group: all readers of its results, and so on.
typedef struct Plain {
  const FuseGroups *f;
  const Group *a, *b;
  const Op **after; // by op id: the op with the next order; or NULL
  bool *met;        // by op id
  bool returns;     // some of them is in the group
  Vec(const Op *) pending;
  Arena *arena;
} Plain;

static bool is_member(const Plain *p, const Op *op) {
  const Group *g = group_of(p->f, op);
  return g && (g == p->a || g == p->b);
}

static bool in_same_group(const Plain *p, const Op *x, const Op *y) {
  if (is_member(p, x)) return is_member(p, y);
  return group_of(p->f, x) && group_of(p->f, x) == group_of(p->f, y);
}

// Whether the reader is in the group that computes the value, or that of which it is a view: a body
// copies views of its own results.
static bool is_copied(const Plain *p, Value *v, const Op *reader) {
  const Op *def = through_views(v)->def;
  return def && op_is_elementwise(def) && in_same_group(p, def, reader);
}

static void meet(Plain *p, const Op *op) {
  bool is_new = !is_member(p, op) && !p->met[op->id];
  p->returns |= is_member(p, op);
  p->met[op->id] = true;
  if (is_new) vec_push(p->arena, &p->pending, op);
}

// Meets the ops that depend on `op`.
static void meet_readers(Plain *p, const Op *op) {
  const Op *after = p->after[op->id];
  if (after && !in_same_group(p, op, after)) meet(p, after);
  for (int k = 0; k < op->n_out; k++)
    for_each_use(u, op->out[k])
      if (u->user && !is_copied(p, op->out[k], u->user)) meet(p, u->user);
}

static void meet_readers_of(Plain *p, const Group *g) {
  for (int m = 0; m < g->member.n; m++)
    meet_readers(p, g->member.at[m]);
}

static bool plain_cycle(const FuseGroups *f, const Group *a, const Group *b, Arena *arena) {
  Plain p = {.f = f, .a = a, .b = b, .arena = arena};
  p.met = arena_array(arena, bool, f->n_ops);
  p.after = arena_array(arena, const Op *, f->n_ops);
  for (uint32_t i = 0; i < f->n_ops; i++)
    if (f->before[i]) p.after[f->before[i]->id] = f->op[i];
  meet_readers_of(&p, a);
  meet_readers_of(&p, b);
  while (!p.returns && p.pending.n > 0) {
    const Op *op = p.pending.at[--p.pending.n];
    // A group runs as one op.
    if (group_of(f, op))
      meet_readers_of(&p, group_of(f, op));
    else
      meet_readers(&p, op);
  }
  return p.returns;
}

// -- Tests -------------------------------------------------------------------------------------

typedef struct Counts {
  int pairs, cycles, far, far_cycles; // far: walks that have met many ops
} Counts;

static void compare_all_pairs(const FuseGroups *found, unsigned seed, const char *text, Counts *n) {
  enum { MANY = 64 }; // after which the tree is asked for a path
  FuseGroups *f = (FuseGroups *)(uintptr_t)found;
  Vec(const Group *) all = {0};
  Arena *a = arena_new();
  for (uint32_t i = 0; i < f->n_ops; i++)
    if (f->group[i] && f->group[i]->member.at[0]->id == i) vec_push(a, &all, f->group[i]);
  for (int i = 0; i < all.n; i++)
    for (int k = 0; k < i; k++) {
      Arena *scratch = arena_new();
      bool expected = plain_cycle(f, all.at[i], all.at[k], scratch);
      bool is = fuse_makes_cycle(f, all.at[i], all.at[k]);
      arena_free(scratch);
      if (is != expected)
        fail_msg("seed %u: groups of %%%s and %%%s: %d, and %d is right, in\n%s", seed,
                 all.at[i]->member.at[0]->out[0]->name, all.at[k]->member.at[0]->out[0]->name, is,
                 expected, text);
      bool far = f->visited.n > MANY;
      n->pairs++;
      n->cycles += is;
      n->far += far;
      n->far_cycles += far && is;
    }
  arena_free(a);
}

// All pairs of groups of random graphs, and of their ops one by one. `test_unit fuse_groups 100`
// tries so many graphs.
static void cycles_are_those_of_the_definition(void **state) {
  (void)state;
  int graphs = 40;
  Counts n = {0};
  sscanf(group_option, "%d", &graphs);
  for (int i = 0; i < 2 * graphs; i++) {
    Arena *a = arena_new();
    Heard *h = heard_new();
    const char *text = random_graph(a, (unsigned)i / 2);
    Module *m = module_parse("random.nn", text, strlen(text), h->d);
    if (!m) heard(h, "no message");
    assert_non_null(m);
    graph_renumber(m->graphs);
    compare_all_pairs(fuse_groups_find(m->graphs, i % 2, a), (unsigned)i / 2, text, &n);
    module_free(m);
    heard_free(h);
    arena_free(a);
  }
  print_message("%d pairs, %d with a cycle; %d far, %d with a cycle\n", n.pairs, n.cycles, n.far,
                n.far_cycles);
  assert_true(n.cycles > 100 * graphs && n.pairs - n.cycles > 100 * graphs);
  assert_true(n.far_cycles > 10 * graphs && n.far - n.far_cycles > 10 * graphs);
}

TEST_GROUP(fuse_groups) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cycles_are_those_of_the_definition),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
