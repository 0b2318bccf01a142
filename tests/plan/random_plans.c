// Random plans: accepted by the proof, they compute the same; their mutants are rejected.
//
//     random_plans [COUNT [SEED]]            COUNT plans, from SEED on; some mutations of each
//     random_plans --all MODEL.nn PLAN.nn    every mutation of one plan
//     random_plans --say MODEL.nn PLAN.nn    the same, with the messages for each
//
// For each seed: a random training step; perhaps some ops split in unequal chunks; a random mesh
// with random layouts; comm and bucket_grads; perhaps values moved to other meshes and back, ops
// fused, and memory planned; the proof must accept it, and the simulated ranks must compute the
// numbers of the model.  Then single details are changed.  Mutants accepted by the verifier and the
// proof must compute the numbers of the model, too: such changes are called equal.
//
// Numbers are f64 and equal to 1e-5 relative, and 1e-6 if everything cancels.

#include "random_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "pass.h"
#include "prove/prove.h"
#include "tools/eval.h"

enum { MUTANTS = 6 };

static const EvalOptions eval = {.seed = 1, .lr = 0.01, .tolerance = 1e-5};

// Uses the references only.
bool kernel_run(const Op *op, const Tensor *in, Tensor *out, const Box *box, bool *done, Arena *a,
                Diag *d) {
  (void)op, (void)in, (void)out, (void)box, (void)a, (void)d;
  *done = false;
  return true;
}

// Files are not read.
bool npy_read(const char *path, const Type *type, Tensor *out, Arena *a, Diag *d) {
  (void)type, (void)out, (void)a;
  return diag_error(d, NULL, "cannot read '%s' here", path);
}

typedef struct Count {
  int64_t n, unfit, unproved, equal;
} Count;

typedef struct Experiment {
  Diag *d, *quiet;
  bool say; // prints the messages for mutants
  int64_t plans, cut, moved, timed, refused, collectives, buckets, bodies, planned;
  Count count[N_MUTATIONS];
  bool failed;
} Experiment;

// -- Numbers ---------------------------------------------------------------------------------

static bool compute(const Module *m, Values *in, Values *out, Arena *a, Diag *d) {
  Graph *g = m->graphs;
  Values have = *in;
  graph_renumber(g);
  return eval_inputs(g, &eval, &have, in, a, d) && eval_run(g, &eval, in, out, a, d);
}

static bool finite_values(const Values *v) {
  for (int i = 0; i < v->n; i++)
    for (int64_t k = 0; k < type_count(v->at[i].t.type); k++)
      if (!isfinite(tensor_f(&v->at[i].t, k))) return false;
  return true;
}

static bool equal_tensors(const Tensor *x, const Tensor *y) {
  double apart = 0, size = 0;
  if (!type_equal(x->type, y->type)) return false;
  for (int64_t i = 0; i < type_count(x->type); i++) {
    double p = tensor_f(x, i), q = tensor_f(y, i);
    apart += (p - q) * (p - q);
    size += q * q;
  }
  return sqrt(apart) <= 1e-5 * sqrt(size) + 1e-6; // false for NaN
}

// Returns the name of the first different result, or NULL.
static const char *different(const Values *x, const Values *y) {
  for (int i = 0; i < y->n; i++) {
    const Tensor *other = values_find(x, y->at[i].name);
    if (!other || !equal_tensors(other, &y->at[i].t)) return y->at[i].name;
  }
  return x->n == y->n ? NULL : "the number of results";
}

// -- Mutations -------------------------------------------------------------------------------

static void show(const Module *model, const Module *m) {
  module_print(model, stderr);
  module_print(m, stderr);
}

// Tries one mutant of the plan `m`.  `want` holds the results of `model` for `in`.
static void try_mutant(Experiment *e, const Module *model, const Module *m, int kind, int64_t which,
                       const Values *in, const Values *want) {
  Arena *a = arena_new();
  Module *mutant = module_clone(m);
  const char *what = mutate(mutant, kind, which, a);
  Count *c = &e->count[kind];
  Diag *d = e->say ? e->d : e->quiet;
  c->n++;
  if (e->say) fprintf(stderr, "\n%s\n", what ? what : "nothing like a program is left");
  if (!what || !module_verify(mutant, d)) {
    c->unfit++;
  } else if (!prove_module(model, mutant, d)) {
    c->unproved++;
  } else {
    Values given = *in, got = {0};
    bool ran = compute(mutant, &given, &got, a, e->d);
    const char *differs = ran ? different(&got, want) : "the run";
    c->equal += !differs;
    if (differs) {
      e->failed = true;
      fprintf(stderr, "accepted, and %s differs: %s\n", differs, what);
      show(model, mutant);
    }
  }
  module_free(mutant);
  arena_free(a);
}

// -- Plans -----------------------------------------------------------------------------------

static void count_ops(Experiment *e, const Module *m) {
  for_each_op(op, m->graphs) {
    e->collectives += (op_info[op->kind].traits & COMM) != 0;
    e->buckets += op->kind == OP_pack;
    e->bodies += op->callee != NULL;
  }
  e->planned += m->phase == PHASE_planned;
}

static bool distribute(Module *m, Random *r, bool cut, bool time, Diag *quiet, Diag *d) {
  random_losses(m->graphs, r, d);
  if (cut) random_cuts(m->graphs, r, quiet);
  random_layout(m, r, time, d);
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  const char *const ways[] = {"comm", "comm,bucket_grads", "comm,bucket_grads(bucket=200)"};
  return module_verify(m, d) && pipeline_run(m, ways[below(r, 3)], &o, time ? quiet : d);
}

// Some models cannot be split in time: then in space only.
static Module *random_plan(Experiment *e, const Module *model, Random *r) {
  bool time = chance(r, 40), cut = chance(r, 30);
  Module *m = module_clone(model);
  e->cut += cut;
  if (distribute(m, r, cut, time, e->quiet, e->d)) {
    e->timed += time;
    return m;
  }
  module_free(m);
  if (!time) return NULL;
  e->refused++;
  m = module_clone(model);
  if (distribute(m, r, cut, false, e->quiet, e->d)) return m;
  module_free(m);
  return NULL;
}

// Perhaps the passes after bucket_grads that every plan has: their programs are proved, too.  In a
// planned program the devices of all meshes are the ranks, but random_moves leaves some out.
static bool finish_plan(Module *m, Random *r, Diag *d) {
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  const char *const ways[] = {"fuse", "multi_tensor", "multi_tensor,fuse,plan_memory",
                              "fuse,plan_memory"};
  return chance(r, 40) || pipeline_run(m, ways[below(r, m->meshes->next ? 2 : 4)], &o, d);
}

static bool try_plan(Experiment *e, const Module *model, const Module *m, const Values *in,
                     const Values *want, Arena *a) {
  Values given = *in, got = {0};
  if (!module_verify(m, e->d) || !prove_module(model, m, e->d) ||
      !compute(m, &given, &got, a, e->d))
    return false;
  const char *differs = different(&got, want);
  if (differs) fprintf(stderr, "proved, and %s differs\n", differs);
  return !differs;
}

static void try_seed(Experiment *e, uint64_t seed) {
  Random r = {seed};
  Arena *a = arena_new();
  Module *model = random_model(&r, e->quiet);
  Values in = {0}, want = {0};
  if (model && compute(model, &in, &want, a, e->d) && finite_values(&want)) {
    Module *m = random_plan(e, model, &r);
    if (m && chance(&r, 40)) e->moved += random_moves(m->graphs, &r, e->d) > 0;
    if (m && finish_plan(m, &r, e->d) && try_plan(e, model, m, &in, &want, a)) {
      count_ops(e, m);
      e->plans++;
      for (int i = 0; i < MUTANTS; i++) {
        int kind = below(&r, N_MUTATIONS);
        int64_t n = n_mutations(m, kind);
        if (n) try_mutant(e, model, m, kind, below(&r, (int)n), &in, &want);
      }
    } else {
      e->failed = true;
      show(model, m ? m : model);
    }
    if (m) module_free(m);
  }
  if (e->failed) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
  if (model) module_free(model);
  arena_free(a);
}

static bool is_plan(const Module *m, Diag *d) {
  return m->phase >= PHASE_local ||
         diag_error(d, NULL, "a plan is local or planned, not %s", phase_name[m->phase]);
}

static void try_all(Experiment *e, const char *model_path, const char *plan_path) {
  Arena *a = arena_new();
  Module *model = module_read(model_path, e->d), *m = model ? module_read(plan_path, e->d) : NULL;
  Values in = {0}, want = {0};
  e->failed = !m || !is_plan(m, e->d) || !module_verify(m, e->d) ||
              !compute(model, &in, &want, a, e->d) || !try_plan(e, model, m, &in, &want, a);
  for (int kind = 0; kind < N_MUTATIONS && !e->failed; kind++) {
    int64_t n = n_mutations(m, kind);
    for (int64_t i = 0; i < n; i++)
      try_mutant(e, model, m, kind, i, &in, &want);
  }
  if (m) module_free(m);
  if (model) module_free(model);
  arena_free(a);
}

static void report(const Experiment *e) {
  Count all = {0};
  printf("%-12s %9s %13s %11s %7s\n", "mutation", "tried", "not verified", "not proved", "equal");
  for (int i = 0; i <= N_MUTATIONS; i++) {
    const Count *c = i < N_MUTATIONS ? &e->count[i] : &all;
    printf("%-12s %9lld %13lld %11lld %7lld\n", i < N_MUTATIONS ? mutation_name[i] : "all",
           (long long)c->n, (long long)c->unfit, (long long)c->unproved, (long long)c->equal);
    all.n += c->n;
    all.unfit += c->unfit;
    all.unproved += c->unproved;
    all.equal += c->equal;
  }
}

int main(int argc, char **argv) {
  Experiment e = {.d = diag_new(stderr), .quiet = diag_new(stderr)};
  diag_quiet(e.quiet, true);
  e.say = argc == 4 && !strcmp(argv[1], "--say");
  if (e.say || (argc == 4 && !strcmp(argv[1], "--all"))) {
    try_all(&e, argv[2], argv[3]);
  } else {
    int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 100;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (; e.plans < count && !e.failed; seed++)
      try_seed(&e, seed * 1000003);
    printf("%lld plans, %lld with ops in unequal parts, %lld on several "
           "meshes, %lld with an axis of time (and %lld that "
           "cannot be cut so), %lld collectives, %lld buckets, %lld fused and multi_tensor ops, "
           "%lld with planned memory\n",
           (long long)e.plans, (long long)e.cut, (long long)e.moved, (long long)e.timed,
           (long long)e.refused, (long long)e.collectives, (long long)e.buckets,
           (long long)e.bodies, (long long)e.planned);
  }
  report(&e);
  printf(e.failed ? "FAILED\n"
                  : "all accepted plans and mutants compute the numbers of the model\n");
  diag_free(e.d);
  diag_free(e.quiet);
  return e.failed;
}
