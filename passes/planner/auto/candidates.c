// See candidates.h.
//
// Texts are put together from rows of candidates.def, in their order: ties go to the first.

#include "candidates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "point.h"

typedef bool Suits(const Module *m);

static bool any(const Module *m) {
  (void)m;
  return true;
}

// Whether a product reads a matrix per expert, or one for each row, as ep.lua requires.
static bool has_experts(const Module *m) {
  for_each_op(op, m->graphs) {
    if (op->kind == OP_grouped_linear) return true;
    for (int i = 0; op->kind == OP_matmul && i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      if (v->type->ndim < 3) continue;
      // A weight, or derived from one by ops with one operand, or its matrices for each row.
      while (v->def && (v->def->n_in == 1 ||
                        (v->def->kind == OP_gather && v->def->in[0].value->type->ndim >= 3)))
        v = v->def->in[0].value;
      if (v->role == ROLE_weight) return true;
    }
  }
  return false;
}

// Whether values are sliced: perhaps the columns of a product, as search_qkv.lua requires.
static bool has_slices(const Module *m) {
  for_each_op(op, m->graphs)
    if (op->kind == OP_slice) return true;
  return false;
}

// Whether rows go through the same layers several times, as pp_3f1b.lua requires: more than two ops
// read a weight, besides lookups in a table that an encoder and a decoder share.
bool model_recycles(const Module *m) {
  const Graph *g = m->graphs;
  for (int i = 0; i < g->n_params; i++) {
    int n = 0;
    for_each_use(u, g->params[i])
      n += !u->user || u->user->kind != OP_gather;
    if (g->params[i]->role == ROLE_weight && n > 2) return true;
  }
  return false;
}

// Whether tables of (batch, rows, columns, features) are normalised, as dap.lua requires.
static bool has_tables(const Module *m) {
  for_each_op(op, m->graphs)
    if ((op->kind == OP_layer_norm || op->kind == OP_rms_norm) && op->out[0]->type->ndim == 4)
      return true;
  return false;
}

// The columns of candidates.def.
enum {
  ALONE = 1,
  OUTER = 2,
  INNER = 4,
  IN_NODE = 8,
  SEARCH = 16,
  EXTENDS_SEARCH = 32,
  STAGES = 64,
  FREES_ACTIVATIONS = 128,
  SCHEDULE = 256,
  UNEVEN = 512,
  OFFLOADS_STATE = 1024,
  CHANGES_MODEL = 2048,
  OFFLOADS_GRADIENTS = 4096
};
typedef struct Kind {
  const char *plan;
  int use;
  int64_t least;
  const char *saves_memory_over;
  Suits *suits;
} Kind;

static const Kind known[] = {
#define CANDIDATE(plan, use, least, saves_memory_over, suits)                                      \
  {#plan, use, least, saves_memory_over, suits},
#include "candidates.def"
#undef CANDIDATE
};
enum { N_KNOWN = sizeof known / sizeof *known };

// Adds a candidate of the kind, between an outer and an inner plan; "" is none.
static Trial *add(const ChooseOptions *o, Arena *a, Trials *out, const char *outside,
                  const Kind *kind, const char *inside) {
  int64_t slices = o->micro_batches ? o->micro_batches : 1;
  const char *plan = str_format(a, "%s%s%s", outside, kind->plan, inside);
  Trial t = {.c = {.plan = plan, .ranks = o->ranks, .micro_batches = slices}};
  if (kind->saves_memory_over)
    t.saves_memory_over = str_format(a, "%s%s%s", outside, kind->saves_memory_over, inside);
  vec_push(a, out, t);
  return &out->at[out->n - 1];
}

// Returns the first kind with that use.
static const Kind *first_kind(int use) {
  int i = 0;
  while (!(known[i].use & use))
    i++;
  return &known[i];
}

// Links between nodes are slower; nodes of one device have no others.
static int64_t most_ranks(const ChooseOptions *o, const Kind *kind) {
  bool near = (kind->use & IN_NODE) && o->cluster->per_node > 1;
  return near ? o->cluster->per_node : o->ranks;
}

void candidates_list(const Module *m, const ChooseOptions *o, Arena *a, Trials *out) {
  // The plans of the user, or all that suit the model.
  for (int i = 0; i < o->n_plans; i++)
    add(o, a, out, "", &(Kind){.plan = o->plans[i]}, "");
  for (int i = 0; i < N_KNOWN && !o->plans; i++) {
    const Kind *kind = &known[i];
    int64_t n = o->ranks, most = most_ranks(o, kind);
    if (!kind->suits(m)) continue;
    if ((kind->use & ALONE) && n >= kind->least && n <= most) add(o, a, out, "", kind, "");
    if (!(kind->use & INNER)) continue;
    // On every number of ranks inside of each outer plan. The plan with the fewest of them is the
    // first: more may be no help.
    const char *fewer = NULL;
    for (int64_t k = kind->least; k <= most && k < n; k++) {
      if (n % k != 0) continue;
      const char *inside = str_format(a, ",%s=%" PRId64, kind->plan, k);
      for (int outer = 0; outer < N_KNOWN; outer++) {
        if (!(known[outer].use & OUTER)) continue;
        Trial *t = add(o, a, out, "", &known[outer], inside);
        t->inside = kind->plan;
        t->fewer = fewer;
        t->none = first_kind(OUTER)->plan;
        if (!fewer) fewer = t->c.plan;
      }
    }
  }
}

// So many stages, with one of the others inside of each, and outside of all if it may be.
static void list_with(const ChooseOptions *o, Arena *a, const Kind *stages, int64_t k,
                      const Kind *other, Trials *out) {
  add(o, a, out, str_format(a, "%s=%" PRId64 ",", stages->plan, k), other, "");
  // The nesting of axes matters if some links are slower, or devices differ.
  if ((other->use & OUTER) && (o->ranks > o->cluster->per_node || o->cluster->n_kinds))
    add(o, a, out, "", other, str_format(a, ",%s=%" PRId64, stages->plan, k));
}

// So many stages, alone and with each of the others.
static void list_stages(const Module *m, const ChooseOptions *o, Arena *a, const Kind *stages,
                        int64_t k, Trials *out) {
  if (k == o->ranks) add(o, a, out, "", stages, "");
  for (int i = 0; i < N_KNOWN && k < o->ranks; i++)
    if ((known[i].use & (OUTER | INNER)) && known[i].suits(m))
      list_with(o, a, stages, k, &known[i], out);
}

void candidates_freeing_activations(const Module *m, const ChooseOptions *o, Arena *a,
                                    Trials *out) {
  int64_t n = o->ranks;
  for (int i = 0; i < N_KNOWN; i++) {
    const Kind *saver = &known[i];
    if (!(saver->use & FREES_ACTIVATIONS)) continue;
    const char *inside = str_format(a, ",%s=1", saver->plan);
    const char *outside = str_format(a, "%s,", saver->plan);
    const char *none = str_format(a, "%s%s", first_kind(OUTER)->plan, inside);
    if (n == 1) add(o, a, out, "", saver, "");
    // With each of the others around it, and on every number of ranks inside of it.
    for (int x = 0; x < N_KNOWN && n > 1; x++) {
      const Kind *other = &known[x];
      const char *fewer = NULL;
      if (!other->suits(m)) continue;
      if ((other->use & (OUTER | SEARCH)) && !(other->use & EXTENDS_SEARCH))
        add(o, a, out, "", other, inside);
      for (int64_t k = 2; k < n && k <= most_ranks(o, other) && (other->use & INNER); k++) {
        if (n % k != 0) continue;
        Trial *t = add(o, a, out, outside, other, str_format(a, "=%" PRId64, k));
        t->fewer = fewer;
        t->none = none;
        if (!fewer) fewer = t->c.plan;
      }
    }
  }
}

void candidates_stages(const Module *m, const ChooseOptions *o, Arena *a, Trials *out) {
  for (int i = 0; i < N_KNOWN; i++)
    for (int64_t k = known[i].least; k <= o->ranks && (known[i].use & STAGES); k++)
      if (o->ranks % k == 0) list_stages(m, o, a, &known[i], k, out);
}

// Adds `inside` to each outer plan.
static void list_inside(const Module *m, const ChooseOptions *o, Arena *a, const char *inside,
                        Trials *out) {
  for (int i = 0; i < N_KNOWN; i++)
    if ((known[i].use & OUTER) && o->ranks >= known[i].least && known[i].suits(m))
      add(o, a, out, "", &known[i], inside);
}

void candidates_saving(const Module *m, const ChooseOptions *o, Arena *a, Trials *out) {
  for (int i = 0; i < N_KNOWN; i++)
    if (known[i].use & FREES_ACTIVATIONS)
      list_inside(m, o, a, str_format(a, ",%s=1", known[i].plan), out);
}

void candidates_last(const Module *m, const ChooseOptions *o, Arena *a, Trials *out) {
  for (int i = 0; i < N_KNOWN; i++) {
    if (!(known[i].use & OFFLOADS_STATE)) continue;
    // By itself, and with each that recomputes or offloads saved activations.
    const char *last = str_format(a, ",%s=1", known[i].plan);
    list_inside(m, o, a, last, out);
    for (int k = 0; k < N_KNOWN; k++)
      if (known[k].use & FREES_ACTIVATIONS)
        list_inside(m, o, a, str_format(a, ",%s=1%s", known[k].plan, last), out);
  }
}

void candidates_of_stages(const ChooseOptions *o, Arena *a, int64_t stages, bool searched,
                          Trials *out) {
  const Kind *kind = first_kind(STAGES);
  if (stages == o->ranks) {
    add(o, a, out, "", kind, "");
    return;
  }
  list_with(o, a, kind, stages, first_kind(OUTER), out);
  if (searched) list_with(o, a, kind, stages, first_kind(SEARCH), out);
}

void candidates_uneven(const ChooseOptions *o, Arena *a, Trials *out) {
  if (o->cluster->n_kinds) add(o, a, out, "", first_kind(UNEVEN), "");
}

void candidates_all_of_stages(const Module *m, const ChooseOptions *o, Arena *a, int64_t stages,
                              Trials *out) {
  for (int i = 0; i < N_KNOWN; i++)
    if (known[i].use & STAGES) list_stages(m, o, a, &known[i], stages, out);
  if (stages < o->ranks) list_with(o, a, first_kind(STAGES), stages, first_kind(SEARCH), out);
}

// Returns the position of the first program with one of these uses in a plan's text, and its kind;
// or NULL.
static const char *find_program(const char *text, int use, const Kind **kind) {
  for (const char *p = text; p; p = strchr(p, ',')) {
    // A program's name ends at its numbers, at its ranks, or at the next program.
    p += *p == ',';
    size_t n = strcspn(p, ":=,");
    for (int i = 0; i < N_KNOWN; i++) {
      *kind = &known[i];
      if ((known[i].use & use) && n == strlen(known[i].plan) && !strncmp(p, known[i].plan, n))
        return p;
    }
  }
  return NULL;
}

// Returns the position of the program that makes stages in a plan's text, in any order, and its
// kind; or NULL.
static const char *find_stages(const char *text, const Kind **kind) {
  return find_program(text, STAGES | SCHEDULE, kind);
}

int64_t candidate_stages(const Candidate *c) {
  Point p;
  if (plan_numbers(c->plan, c->ranks, c->micro_batches, &p)) return p.stages;
  const Kind *kind;
  const char *at = find_program(c->plan, STAGES | SCHEDULE | UNEVEN, &kind);
  if (!at) return 1;
  const char *size = at + strcspn(at, "=,");
  return *size == '=' ? strtoll(size + 1, NULL, 10) : c->ranks;
}

void candidates_scheduled(const Module *m, Arena *a, const Candidate *c, Trials *out) {
  const Kind *kind;
  const char *at = find_stages(c->plan, &kind);
  // A deal of layers is of its schedule; others are points of their own (point.h).
  if (at && at[strlen(kind->plan)] == ':') return;
  for (int i = 0; i < N_KNOWN && at && c->micro_batches > 1; i++) {
    if (!(known[i].use & SCHEDULE) || !known[i].suits(m)) continue;
    // The same text, with the schedule's name for that of the stages.
    Trial t = {.c = {.ranks = c->ranks, .micro_batches = c->micro_batches}};
    t.c.plan = str_format(a, "%.*s%s%s", (int)(at - c->plan), c->plan, known[i].plan,
                          at + strlen(kind->plan));
    vec_push(a, out, t);
  }
}

void candidates_inside(const ChooseOptions *o, Arena *a, Trials *out) {
  const Kind *search = first_kind(SEARCH);
  for (int64_t k = search->least; k < o->ranks; k++) {
    const char *inside = str_format(a, ",%s=%" PRId64, search->plan, k);
    if (o->ranks % k == 0) add(o, a, out, "", first_kind(OUTER), inside);
  }
}

void candidates_quick(const Module *m, const ChooseOptions *o, Arena *a, bool stages, Trials *out) {
  int use = stages ? ALONE | STAGES : ALONE;
  for (int i = 0; i < N_KNOWN; i++) {
    const Kind *kind = &known[i];
    if (!(kind->use & use) || (kind->use & SEARCH) || o->ranks < kind->least) continue;
    if (kind->suits(m)) add(o, a, out, "", kind, "");
  }
}

void candidates_savers(Arena *a, Savers *out) {
  for (int i = 0; i < N_KNOWN; i++)
    if (known[i].use & OFFLOADS_STATE)
      vec_push(a, out, (Saver){str_format(a, ",%s=1", known[i].plan), 1, false, true, false});
  int n = out->n;
  for (int i = 0; i < N_KNOWN; i++) {
    if (!(known[i].use & FREES_ACTIVATIONS)) continue;
    const char *text = str_format(a, ",%s=1", known[i].plan);
    vec_push(a, out, (Saver){text, 1, true, false, false});
    for (int k = 0; k < n; k++)
      vec_push(a, out, (Saver){str_format(a, "%s%s", text, out->at[k].text), 2, true, true, false});
  }
  n = out->n;
  for (int i = 0; i < N_KNOWN; i++) {
    if (!(known[i].use & OFFLOADS_GRADIENTS)) continue;
    // By itself, and after each of these.
    const char *text = str_format(a, ",%s=1", known[i].plan);
    vec_push(a, out, (Saver){text, 1, false, false, true});
    for (int k = 0; k < n; k++) {
      Saver s = out->at[k];
      s.text = str_format(a, "%s%s", s.text, text);
      s.programs++;
      s.gradients = true;
      vec_push(a, out, s);
    }
  }
}

bool plan_has_saver(const char *plan) {
  const Kind *kind;
  return find_program(plan, FREES_ACTIVATIONS | OFFLOADS_STATE | OFFLOADS_GRADIENTS, &kind);
}

bool plan_offloads_all_states(const char *plan) {
  const Kind *kind;
  const char *at = find_program(plan, OFFLOADS_STATE, &kind);
  return at && at[strlen(kind->plan)] != ':';
}

bool plan_offloads_gradients(const char *plan) {
  const Kind *kind;
  return find_program(plan, OFFLOADS_GRADIENTS, &kind);
}

const char *plan_without_savers(Arena *a, const char *plan, bool *offloads) {
  StrBuf b = {.arena = a};
  *offloads = false;
  for (const char *next; *plan; plan = next) {
    size_t n = strcspn(plan, ","), name = strcspn(plan, ":=,");
    next = plan + n + (plan[n] == ',');
    const char *program = str_copy_n(a, plan, name), *size = memchr(plan, '=', n);
    bool saves = plan_has_saver(program);
    const Kind *kind;
    *offloads |= find_program(program, OFFLOADS_STATE, &kind) != NULL;
    // On several ranks, or on those that others leave, it is data parallelism otherwise.
    if (saves && size && !strncmp(size, "=1", (size_t)(plan + n - size))) continue;
    strbuf_addf(&b, "%s%s", b.n ? "," : "", saves ? first_kind(OUTER)->plan : program);
    size_t rest = saves && size ? (size_t)(size - plan) : saves ? n : name;
    strbuf_addf(&b, "%.*s", (int)(n - rest), plan + rest);
  }
  return b.n ? b.at : first_kind(OUTER)->plan;
}

bool plan_places(const char *plan) {
  const Kind *kind;
  return find_program(plan, STAGES | UNEVEN | SCHEDULE | SEARCH, &kind);
}

// Whether the candidate is one program alone, with that use.
static bool is_alone(const Candidate *c, int use) {
  for (int i = 0; i < N_KNOWN; i++)
    if (!strcmp(known[i].plan, c->plan)) return known[i].use & use;
  return false;
}

bool candidate_searches(const Candidate *c) {
  return is_alone(c, SEARCH);
}

bool candidate_changes(const Candidate *c) {
  return is_alone(c, CHANGES_MODEL);
}

bool candidate_adds(const Candidate *c) {
  return is_alone(c, EXTENDS_SEARCH);
}

const Candidate *find_compiled(const Candidates *all, const char *plan, int64_t micro_batches) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    bool compiled = !c->excluded && !c->stopped;
    if (compiled && c->micro_batches == micro_batches && str_equal(c->plan, plan)) return c;
  }
  return NULL;
}
