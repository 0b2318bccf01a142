// nnaot-plan solve: a strategy for every node of a sharding problem in a file (solver/solver.h).

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "output.h"
#include "questions.h"
#include "solver/solver.h"

#define MOST_CHOICES 1e30 // combinations, of which few are looked at to their end

static bool read_method(SolverMethod *out) {
  for (int i = 0; i < N_SOLVER_METHODS; i++)
    if (str_equal(plan_options.method, solver_method_name[i])) {
      *out = (SolverMethod)i;
      return true;
    }
  return false;
}

static void print_choices(const SolverProblem *p, const int *choice) {
  printf("[");
  for (int i = 0; i < p->n_nodes; i++)
    printf("%s%d", i ? ", " : "", choice[i]);
  printf("]");
}

static void print_lines(Arena *a, const SolverProblem *p, const SolverResult *r) {
  printf("cost %s\n", solver_cost_text(a, r->cost));
  printf("bound %s\n", r->has_bound ? solver_cost_text(a, r->bound) : "none");
  if (r->has_bound)
    printf("gap %.6g\n", r->gap);
  else
    printf("gap none\n");
  printf("status %s\n", solver_status_name[r->status]);
  printf("ended %s\n", solver_end_name[r->ended]);
  print_choices(p, r->choice);
  printf("\n");
}

static void print_json(Arena *a, const SolverProblem *p, const SolverResult *r) {
  printf("{\"status\": \"%s\", \"cost\": %s, ", solver_status_name[r->status],
         solver_cost_text(a, r->cost));
  if (r->has_bound)
    printf("\"bound\": %s, \"gap\": %.6g, ", solver_cost_text(a, r->bound), r->gap);
  else
    printf("\"bound\": null, \"gap\": null, ");
  printf("\"ended\": \"%s\", \"choices\": ", solver_end_name[r->ended]);
  print_choices(p, r->choice);
  printf("}\n");
}

static bool fail(Arena *a, const SolverProblem *p, const SolverResult *r, Diag *d) {
  const Loc *loc = loc_line(a, plan_options.file, 0, 0);
  if (r->status == SOLVER_time_out) {
    bool late = r->ended == SOLVER_late;
    diag_error(d, loc, "nothing that fits was found in %s",
               late ? str_format(a, "%g s", plan_options.seconds)
                    : str_format(a, "%g of work", plan_options.work));
    diag_hint(d, "give it more --%s; that something fits is not ruled out",
              late ? "seconds" : "work");
    return false;
  }
  if (!r->has_moment) return diag_error(d, loc, "infeasible: no choice has finite costs and fits");
  return diag_error(d, loc, "infeasible: at moment %lld at least %s are used, the limit is %lld",
                    (long long)r->moment, solver_cost_text(a, r->needed), (long long)p->limit);
}

static bool solve(SolverMethod method, Arena *a, Diag *d) {
  SolverOptions o = {.seconds = plan_options.seconds,
                     .work = plan_options.work * 1e6,
                     .method = method,
                     .lp = plan_options.lp,
                     .seed = (uint64_t)plan_options.seed,
                     .verbose = plan_options.verbose};
  const UsedFile files[] = {{"the problem", plan_options.file, true}, {"--lp", o.lp, false}};
  if (!outputs_apart(files, 2, d) || (o.lp && !output_writable(o.lp, d))) return false;
  const SolverProblem *p = solver_read(a, plan_options.file, d);
  if (!p) return false;
  if (method == SOLVER_exhaustive && solver_choices(p) > MOST_CHOICES)
    return diag_error(d, loc_line(a, plan_options.file, 0, 0),
                      "there are %.3g combinations, more than the %.0e that are all tried",
                      solver_choices(p), MOST_CHOICES);
  SolverResult r = solver_solve(a, p, &o);
  if (r.lp_failed) diag_error(d, loc_line(a, o.lp, 0, 0), "cannot be written");
  if (!r.choice) return fail(a, p, &r, d);
  if (plan_options.json)
    print_json(a, p, &r);
  else
    print_lines(a, p, &r);
  return output_flush(d) && !r.lp_failed;
}

int plan_solve(const Program *program) {
  if (!*plan_options.file) return usage_error(program, "solve needs a file");
  if (!(plan_options.seconds > 0)) // nan as well
    return usage_error(program, "--seconds is not above 0");
  if (!(plan_options.work >= 0)) return usage_error(program, "--work is below 0");
  SolverMethod method;
  if (!read_method(&method))
    return usage_error(
        program, "there is no method '%s': there are auto, exhaustive, metropolis and descent",
        plan_options.method);
  if (plan_options.work > 0 && method != SOLVER_auto)
    return usage_error(program, "--work has no effect with --method %s", plan_options.method);
  if (plan_options.lp && method != SOLVER_auto)
    return usage_error(program, "--lp has no effect with --method %s", plan_options.method);
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  bool ok = solve(method, a, d);
  diag_free(d);
  arena_free(a);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
