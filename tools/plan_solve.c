// nnaot-plan solve: a strategy for every node of a sharding problem in a file (solver/solver.h).

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "output.h"
#include "questions.h"
#include "solver/solver.h"

#define MOST_CHOICES 1e30 // combinations, few of which are evaluated to the end

static struct {
  const char *method, *lp;
  double seconds, work;
  int64_t seed;
  bool json, verbose;
} settings = {.method = "auto", .seconds = 60, .seed = 1};

static const Option options[] = {
    GROUP("How it is solved"),
    NUMBER("seconds", 0, &settings.seconds, "N", "answer then with the best so far"),
    NUMBER("work", 0, &settings.work, "N",
           "answer after so much work, the same on every machine: a second is about 600; 0: any"),
    STRING("method", 0, &settings.method, "NAME",
           "auto, or to compare it with: exhaustive, metropolis, descent, random"),
    INTEGER("seed", 0, &settings.seed, "N", "seed of the random choices of a method"),
    GROUP("Output"),
    STRING("lp", 0, &settings.lp, "FILE",
           "write the problem after exact reduction as a 0/1 program in CPLEX's LP format"),
    FLAG("verbose", 0, &settings.verbose, "report progress on stderr"),
    FLAG("json", 0, &settings.json, "print one object: status, cost, bound, gap, ended, choices"),
};

static void print_choices(const SolverProblem *p, const int *choice) {
  printf("[");
  for (int i = 0; i < p->n_nodes; i++)
    printf("%s%d", i ? ", " : "", choice[i]);
  printf("]");
}

static bool solve(const char *file, SolverMethod method, Arena *a, Diag *d) {
  const Loc *loc = loc_line(a, file, 0, 0);
  SolverOptions o = {.seconds = settings.seconds,
                     .work = settings.work * 1e6,
                     .method = method,
                     .lp = settings.lp,
                     .seed = (uint64_t)settings.seed,
                     .verbose = settings.verbose};
  // Find an unwritable output before the search.
  const UsedFile files[] = {{"the problem", file, true}, {"--lp", o.lp, false}};
  if (!outputs_apart(files, 2, d) || (o.lp && !output_writable(o.lp, d))) return false;
  const SolverProblem *p = solver_read(a, file, d);
  if (!p) return false;
  if (method == SOLVER_exhaustive && solver_choices(p) > MOST_CHOICES)
    return diag_error(d, loc, "there are %.3g combinations, more than the %.0e that are all tried",
                      solver_choices(p), MOST_CHOICES);
  SolverResult r = solver_solve(a, p, &o);
  // The solution is printed even if the LP could not be written.
  if (r.lp_failed) diag_error(d, loc_line(a, o.lp, 0, 0), "cannot be written");
  if (!r.choice) {
    // A search that ran out of time proves nothing; otherwise the problem is infeasible.
    if (r.status == SOLVER_time_out) {
      bool late = r.ended == SOLVER_late;
      diag_error(d, loc, "nothing that fits was found in %s",
                 late ? str_format(a, "%g s", settings.seconds)
                      : str_format(a, "%g of work", settings.work));
      diag_hint(d, "give it more --%s; that something fits is not ruled out",
                late ? "seconds" : "work");
      return false;
    }
    if (!r.has_moment) return diag_error(d, loc, "infeasible: no choice has finite costs and fits");
    return diag_error(d, loc, "infeasible: at moment %lld at least %s are used, the limit is %lld",
                      (long long)r.moment, solver_cost_text(a, r.needed), (long long)p->limit);
  }
  const char *cost = solver_cost_text(a, r.cost),
             *bound = r.has_bound ? solver_cost_text(a, r.bound) : NULL;
  if (settings.json) {
    printf("{\"status\": \"%s\", \"cost\": %s, ", solver_status_name[r.status], cost);
    if (bound)
      printf("\"bound\": %s, \"gap\": %.6g, ", bound, r.gap);
    else
      printf("\"bound\": null, \"gap\": null, ");
    printf("\"ended\": \"%s\", \"choices\": ", solver_end_name[r.ended]);
    print_choices(p, r.choice);
    printf("}\n");
  } else {
    printf("cost %s\n", cost);
    printf("bound %s\n", bound ? bound : "none");
    if (bound)
      printf("gap %.6g\n", r.gap);
    else
      printf("gap none\n");
    printf("status %s\n", solver_status_name[r.status]);
    printf("ended %s\n", solver_end_name[r.ended]);
    print_choices(p, r.choice);
    printf("\n");
  }
  return output_flush(d) && !r.lp_failed;
}

static int answer(const Program *program, const char *file) {
  if (!*file) return usage_error(program, "solve needs a file");
  if (!(settings.seconds > 0)) // nan as well
    return usage_error(program, "--seconds is not above 0");
  if (!(settings.work >= 0)) return usage_error(program, "--work is below 0");
  SolverMethod method = SOLVER_auto;
  bool known = false;
  for (int i = 0; i < N_SOLVER_METHODS; i++)
    if (str_equal(settings.method, solver_method_name[i])) {
      method = (SolverMethod)i;
      known = true;
    }
  if (!known)
    return usage_error(
        program,
        "there is no method '%s': there are auto, exhaustive, metropolis, descent and random",
        settings.method);
  // Only method auto limits work and writes an LP.
  if (settings.work > 0 && method != SOLVER_auto)
    return usage_error(program, "--work has no effect with --method %s", settings.method);
  if (settings.lp && method != SOLVER_auto)
    return usage_error(program, "--lp has no effect with --method %s", settings.method);
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  bool ok = solve(file, method, a, d);
  diag_free(d);
  arena_free(a);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

const Question question_solve = {
    {"nnaot-plan solve",
     "nnaot-plan solve FILE.json [--seconds N] [--work N] [--method NAME] [--seed N] [--lp FILE] "
     "[--json]",
     "Reads a problem in the format of the ASPLOS 2025 contest.  Prints the cost, the bound from "
     "below, the\ngap between them, how it ended, and in the last line the strategy of each node.",
     options, sizeof options / sizeof *options, NULL, NULL},
    "a strategy for every node of a sharding problem",
    true,
    answer,
};
