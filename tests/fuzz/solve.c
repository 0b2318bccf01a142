// Sharding problems in nnaot-plan's format: for any file, solver_parse reports an error or returns
// a problem, and the solver's choice for it is valid, fits into memory and has the reported cost.

#include "fuzz.h"

#include <string.h>

#include "solver/solver.h"

const char fuzz_name[] = "solve";

enum { MAX_NODES = 200 };

void fuzz_begin(const Seeds *seeds, Arena *a) {
  (void)seeds;
  (void)a;
}

static bool in_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == 'e';
}

// Replaces a number by another one, or any bytes by any.
static void change(StrBuf *b, Random *r) {
  size_t at = (size_t)random_below(r, (int64_t)b->n), n = 0;
  const char *by = "";
  char byte[2] = {(char)(1 + random_below(r, 255)), '\0'};
  while (at + n < b->n && in_number(b->at[at + n]))
    n++;
  if (n && !random_one_in(r, 4))
    by = random_one_in(r, 3) ? "1e18" : str_format(b->arena, "%lld", (long long)random_number(r));
  else if (random_one_in(r, 3))
    n = (size_t)random_below(r, 20);
  else if (random_one_in(r, 2))
    by = (const char *[]){"[", "]", "{", "}", ",", ":", "\"", "[[", "]]"}[random_below(r, 9)];
  else
    by = byte;
  if (at + n > b->n) n = b->n - at;
  StrBuf made = {.arena = b->arena};
  strbuf_add_n(&made, b->at, at);
  strbuf_add(&made, by);
  strbuf_add_n(&made, b->at + at + n, b->n - at - n);
  *b = made;
}

void fuzz_mutate(const Seeds *seeds, const Seed *seed, Random *r, StrBuf *out) {
  (void)seeds;
  strbuf_add_n(out, seed->at, (size_t)seed->n);
  for (int64_t i = 1 + random_below(r, 4); i > 0 && out->n > 0; i--)
    change(out, r);
}

static void check(const SolverProblem *p, const SolverResult *r) {
  SolverCost cost;
  int64_t moment;
  for (int i = 0; i < p->n_nodes; i++)
    if (r->choice[i] < 0 || r->choice[i] >= p->node[i].n) fuzz_fail("this is no strategy", NULL);
  if (!solver_cost(p, r->choice, &cost) || cost != r->cost) fuzz_fail("the cost is another", NULL);
  if (p->limit != SOLVER_NO_LIMIT && solver_peak(p, r->choice, &moment) > p->limit)
    fuzz_fail("it does not fit", NULL);
  if (r->has_bound && r->bound > r->cost) fuzz_fail("the bound is above the cost", NULL);
}

bool fuzz_one(const char *at, int64_t n) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  const char *text = str_copy_n(a, at, (size_t)n); // zero-terminated
  SolverProblem *p = solver_parse(a, "fuzz.json", text, strlen(text), d);
  if (!p && !diag_errors(d)) fuzz_fail("refused without a message", NULL);
  if (p && p->n_nodes <= MAX_NODES) {
    for (SolverMethod m = 0; m < N_SOLVER_METHODS; m++) {
      SolverOptions o = {.method = m, .seconds = 0.01, .seed = 1};
      SolverResult r = solver_solve(a, p, &o);
      if (r.choice) check(p, &r);
    }
  }
  bool accepted = p != NULL;
  diag_free(d);
  arena_free(a);
  return accepted;
}
