// Reads problems (solver.h) from the contest's files, checks and evaluates them.
//
//     {"problem": {
//       "name": …,
//       "nodes": {"intervals": [[lo, hi], …], "costs": [[…], …], "usages": [[…], …]},
//       "edges": {"nodes": [[a, b], …], "costs": [[…], …]},
//       "uses": {"nodes": [[a], …], "intervals": [[lo, hi], …], "usages": [[…], …]},
//       "usage_limit": N}}
//
// Keys may come in any order.  `uses`, an extension of the contest's format, has the uses of a node
// after its first.  `name`, `uses` and `usage_limit` are optional.  Any other key is an error: a
// misspelt limit would otherwise be no limit.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "solver/json.h"
#include "solver/solver.h"

const char *const solver_method_name[N_SOLVER_METHODS] = {"auto", "exhaustive", "metropolis",
                                                          "descent", "random"};
const char *const solver_status_name[N_SOLVER_STATUSES] = {"optimal", "feasible", "infeasible",
                                                           "time_out"};
const char *const solver_end_name[N_SOLVER_ENDS] = {"done", "work", "clock"};
// -- Reading ---------------------------------------------------------------------------------
typedef struct Row {
  const int64_t *at;
  int n;
} Row;

typedef struct Rows {
  Row *at;
  int n, cap;
  bool given;
} Rows;

typedef struct Reader {
  Json json;
  Arena *arena; // of the problem
  struct {
    int64_t *at;
    int n, cap;
  } row; // under construction
  Rows intervals, costs, usages, ends, edge_costs, users, use_intervals, use_usages;
  int64_t limit;
  bool has_limit, has_name, has_nodes, has_edges, has_uses, has_problem;
} Reader;

// One list of an object of lists.
typedef struct Field {
  const char *key;
  Rows *rows;
} Field;

// Reports a repeated key and skips its value; then false.
static bool once(Reader *r, bool *given, const char *key, const char *at) {
  if (!*given) return *given = true;
  json_error(&r->json, at, "there is a second '%s'", key);
  json_skip(&r->json);
  return false;
}

static void unknown_key(Reader *r, const char *of, const char *key, const char *at) {
  if (r->json.failed) return;
  json_error(&r->json, at, "%s has no key '%s'", of, key);
  json_skip(&r->json);
}

// Reads an object with exactly these lists.
static void read_lists(Reader *r, const char *of, const Field *field, int n) {
  Json *j = &r->json;
  const char *begin = j->at;
  for (bool more = json_open(j, '{'); more; more = json_next(j, '}')) {
    const char *at = j->at, *key = json_key(j);
    Rows *rows = NULL;
    for (int i = 0; i < n; i++)
      if (str_equal(field[i].key, key)) rows = field[i].rows;
    if (!rows) unknown_key(r, of, key, at);
    if (!rows || !once(r, &rows->given, key, at)) continue;
    // A list of rows, each a list of numbers.
    for (bool list = json_open(j, '['); list; list = json_next(j, ']')) {
      r->row.n = 0;
      for (bool one = json_open(j, '['); one; one = json_next(j, ']'))
        vec_push(j->arena, &r->row, json_integer(j));
      Row row = {arena_copy(r->arena, r->row.at, (size_t)r->row.n * sizeof *row.at), r->row.n};
      vec_push(j->arena, rows, row);
    }
  }
  // All lists are required.
  for (int i = 0; i < n && !j->failed; i++)
    if (!field[i].rows->given) json_error(j, begin, "%s has no '%s'", of, field[i].key);
}

static void read_problem(Reader *r) {
  Json *j = &r->json;
  const char *begin = j->at;
  const Field nodes[] = {
      {"intervals", &r->intervals}, {"costs", &r->costs}, {"usages", &r->usages}};
  const Field edges[] = {{"nodes", &r->ends}, {"costs", &r->edge_costs}};
  const Field uses[] = {
      {"nodes", &r->users}, {"intervals", &r->use_intervals}, {"usages", &r->use_usages}};
  // Keys in any order; each at most once.
  for (bool more = json_open(j, '{'); more; more = json_next(j, '}')) {
    const char *at = j->at, *key = json_key(j);
    if (str_equal(key, "nodes")) {
      if (once(r, &r->has_nodes, key, at)) read_lists(r, "'nodes'", nodes, 3);
    } else if (str_equal(key, "edges")) {
      if (once(r, &r->has_edges, key, at)) read_lists(r, "'edges'", edges, 2);
    } else if (str_equal(key, "uses")) {
      if (once(r, &r->has_uses, key, at)) read_lists(r, "'uses'", uses, 3);
    } else if (str_equal(key, "usage_limit")) {
      if (once(r, &r->has_limit, key, at)) r->limit = json_integer(j);
    } else if (str_equal(key, "name")) {
      if (once(r, &r->has_name, key, at)) json_skip(j);
    } else {
      unknown_key(r, "'problem'", key, at);
    }
  }
  if (j->failed) return;
  if (!r->has_nodes) json_error(j, begin, "'problem' has no 'nodes'");
  if (!r->has_edges) json_error(j, begin, "'problem' has no 'edges'");
}

static void read_file(Reader *r) {
  Json *j = &r->json;
  const char *begin = j->at;
  for (bool more = json_open(j, '{'); more; more = json_next(j, '}')) {
    const char *at = j->at, *key = json_key(j);
    if (!str_equal(key, "problem"))
      unknown_key(r, "the file", key, at);
    else if (once(r, &r->has_problem, key, at))
      read_problem(r);
  }
  if (json_end(j) && !r->has_problem) json_error(j, begin, "the file has no 'problem'");
}

// -- Checking --------------------------------------------------------------------------------

static const Loc *at(Arena *a, const char *file, const char *what, int i) {
  return loc_node(a, file, str_format(a, "%s[%d]", what, i));
}

static void check_use(const SolverUse *u, int n, const Loc *loc, Diag *d) {
  if (u->lo > u->hi)
    diag_error(d, loc, "the interval ends at %lld, before it begins at %lld", (long long)u->hi,
               (long long)u->lo);
  for (int s = 0; s < n; s++)
    if (u->usage[s] < 0)
      diag_error(d, loc, "usage %d is negative: %lld", s, (long long)u->usage[s]);
}

// Requires valid nodes and edges.
static bool check_limit(const SolverProblem *p, const char *file, Diag *d) {
  Arena *a = arena_new();
  const Loc *loc = loc_line(a, file, 0, 0);
  bool ok = p->limit >= 0 || diag_error(d, loc, "the limit is negative: %lld", (long long)p->limit);
  // Sums and differences of usages must fit in 64 bits.
  SolverCost sum = 0;
  for (int i = 0; ok && i < p->n_nodes; i++)
    for (int k = 0; k < p->node[i].n_uses; k++) {
      const int64_t *usage = p->node[i].use[k].usage, *end = usage + p->node[i].n;
      int64_t most = 0;
      for (; usage < end; usage++)
        if (*usage <= p->limit && *usage > most) most = *usage;
      sum += most;
    }
  ok = ok && (sum <= INT64_MAX / 4 || diag_error(d, loc, "usages add up to more than 2^61"));
  arena_free(a);
  return ok;
}

// -- Conversion of the file's rows --------------------------------------------------------------

// False after an error, if that is no use of a node with `n` strategies.
static bool make_use(Row interval, Row usages, int n, SolverUse *u, const Loc *loc, Diag *d) {
  *u = (SolverUse){.usage = usages.at};
  if (interval.n != 2)
    diag_error(d, loc, "the interval has %d numbers", interval.n);
  else
    u->lo = interval.at[0], u->hi = interval.at[1];
  return n == usages.n || diag_error(d, loc, "there are %d costs and %d usages", n, usages.n);
}

// Adds the uses after the first; all uses of a node become one array.
static void make_uses(const Reader *r, SolverNode *node, Arena *a, const char *file, Diag *d) {
  // user[i]: the node of a use; -1 after an error.
  int *more = arena_array(a, int, r->costs.n), *user = arena_array(a, int, r->users.n);
  for (int i = 0; i < r->users.n; i++) {
    Row named = r->users.at[i];
    const Loc *loc = at(a, file, "uses", i);
    user[i] = -1;
    if (named.n != 1)
      diag_error(d, loc, "there are %d nodes", named.n);
    else if (named.at[0] < 0 || named.at[0] >= r->costs.n)
      diag_error(d, loc, "there is no node %lld", (long long)named.at[0]);
    else
      user[i] = (int)named.at[0];
    if (user[i] >= 0) more[user[i]]++;
  }
  // Copy the first use of these nodes to arrays of the final length.
  SolverUse **use = arena_array(a, SolverUse *, r->costs.n);
  for (int i = 0; i < r->costs.n; i++) {
    if (!more[i]) continue;
    use[i] = arena_array(r->arena, SolverUse, more[i] + 1);
    use[i][0] = node[i].use[0];
    node[i].use = use[i];
  }
  for (int i = 0; i < r->users.n; i++) {
    if (user[i] < 0) continue;
    SolverNode *v = &node[user[i]];
    const Loc *loc = at(a, file, "uses", i);
    SolverUse *u = &use[user[i]][v->n_uses];
    if (!make_use(r->use_intervals.at[i], r->use_usages.at[i], v->n, u, loc, d)) continue;
    check_use(u, v->n, loc, d);
    v->n_uses++;
  }
}

static void make_edge(const Reader *r, int i, SolverEdge *e, Arena *a, const char *file, Diag *d) {
  Row ends = r->ends.at[i], costs = r->edge_costs.at[i];
  if (ends.n != 2) {
    diag_error(d, at(a, file, "edges", i), "there are %d nodes", ends.n);
    return;
  }
  for (int k = 0; k < 2; k++) {
    if (ends.at[k] < 0 || ends.at[k] >= r->costs.n) {
      diag_error(d, at(a, file, "edges", i), "there is no node %lld", (long long)ends.at[k]);
      return;
    }
    e->node[k] = (int)ends.at[k];
  }
  // Its table, with a row per strategy of the first node.
  e->cost = costs.at;
  int n0 = r->costs.at[e->node[0]].n, n1 = r->costs.at[e->node[1]].n;
  const Loc *loc = at(a, file, "edges", i);
  if ((int64_t)n0 * n1 != costs.n) {
    diag_error(d, loc, "there are %d costs, %d x %d are needed", costs.n, n0, n1);
    return;
  }
  for (int k = 0; k < costs.n; k++)
    if (e->cost[k] <= -SOLVER_INFINITE)
      diag_error(d, loc, "cost %d is minus infinity: %lld", k, (long long)e->cost[k]);
}

static SolverProblem *make_problem(const Reader *r, Arena *scratch, const char *file, Diag *d) {
  const Loc *whole = loc_line(scratch, file, 0, 0);
  int errors = diag_errors(d);
  // The lists of an object are columns of one table.
  if (r->costs.n != r->intervals.n || r->usages.n != r->intervals.n)
    diag_error(d, whole, "nodes: there are %d intervals, %d costs and %d usages", r->intervals.n,
               r->costs.n, r->usages.n);
  if (r->ends.n != r->edge_costs.n)
    diag_error(d, whole, "edges: there are %d nodes and %d costs", r->ends.n, r->edge_costs.n);
  if (r->users.n != r->use_intervals.n || r->users.n != r->use_usages.n)
    diag_error(d, whole, "uses: there are %d nodes, %d intervals and %d usages", r->users.n,
               r->use_intervals.n, r->use_usages.n);
  if (diag_errors(d) != errors) return NULL;
  SolverProblem *p = arena_one(r->arena, SolverProblem);
  SolverNode *node = arena_array(r->arena, SolverNode, r->costs.n);
  SolverUse *use = arena_array(r->arena, SolverUse, r->costs.n);
  SolverEdge *edge = arena_array(r->arena, SolverEdge, r->ends.n);
  // Nodes with one use each, then the other uses and the edges, whose nodes are known now.
  for (int i = 0; i < r->costs.n; i++) {
    SolverNode *v = &node[i];
    Row costs = r->costs.at[i];
    const Loc *loc = at(scratch, file, "nodes", i);
    *v = (SolverNode){.n = costs.n, .cost = costs.at, .use = &use[i], .n_uses = 1};
    if (!make_use(r->intervals.at[i], r->usages.at[i], costs.n, &use[i], loc, d)) continue;
    if (v->n < 1) diag_error(d, loc, "there is no strategy");
    if (v->n > UINT16_MAX) diag_error(d, loc, "there are %d strategies, more than 65535", v->n);
    check_use(&use[i], v->n, loc, d);
    for (int s = 0; s < v->n; s++)
      if (v->cost[s] <= -SOLVER_INFINITE)
        diag_error(d, loc, "cost %d is minus infinity: %lld", s, (long long)v->cost[s]);
  }
  make_uses(r, node, scratch, file, d);
  for (int i = 0; i < r->ends.n; i++)
    make_edge(r, i, &edge[i], scratch, file, d);
  *p =
      (SolverProblem){node, edge, r->costs.n, r->ends.n, r->has_limit ? r->limit : SOLVER_NO_LIMIT};
  return diag_errors(d) == errors && check_limit(p, file, d) ? p : NULL;
}

SolverProblem *solver_parse(Arena *a, const char *file, const char *text, size_t n, Diag *d) {
  // The arrays of the file's rows become those of the problem.
  Arena *scratch = arena_new();
  Reader r = {.arena = a};
  int errors = diag_errors(d);
  json_text(&r.json, scratch, file, text, n, d);
  read_file(&r);
  SolverProblem *p = diag_errors(d) == errors ? make_problem(&r, scratch, file, d) : NULL;
  arena_free(scratch);
  return p;
}

SolverProblem *solver_read(Arena *a, const char *path, Diag *d) {
  Arena *scratch = arena_new();
  size_t n;
  const char *text = json_load(scratch, path, &n, d);
  SolverProblem *p = text ? solver_parse(a, path, text, n, d) : NULL;
  arena_free(scratch);
  return p;
}

// -- Evaluation ------------------------------------------------------------------------------

bool solver_cost(const SolverProblem *p, const int *choice, SolverCost *out_cost) {
  // An infinite cost makes the choice infeasible.
  SolverCost sum = 0;
  for (int i = 0; i < p->n_nodes; i++) {
    int64_t cost = p->node[i].cost[choice[i]];
    if (cost >= SOLVER_INFINITE) return false;
    sum += cost;
  }
  for (int i = 0; i < p->n_edges; i++) {
    const SolverEdge *e = &p->edge[i];
    int64_t cost =
        e->cost[(int64_t)choice[e->node[0]] * p->node[e->node[1]].n + choice[e->node[1]]];
    if (cost >= SOLVER_INFINITE) return false;
    sum += cost;
  }
  *out_cost = sum;
  return true;
}

typedef struct Change {
  int64_t at, by;
} Change;

static int change_order(const void *x, const void *y) {
  const Change *a = x, *b = y;
  return a->at != b->at ? (a->at > b->at) - (a->at < b->at) : (a->by > b->by) - (a->by < b->by);
}

SolverCost solver_peak(const SolverProblem *p, const int *choice, int64_t *out_moment) {
  Arena *a = arena_new();
  // The begins and ends of all uses.
  int n = 0;
  for (int i = 0; i < p->n_nodes; i++)
    n += p->node[i].n_uses;
  Change *change = arena_array(a, Change, 2 * n + 1);
  n = 0;
  for (int i = 0; i < p->n_nodes; i++)
    for (int k = 0; k < p->node[i].n_uses; k++) {
      const SolverUse *u = &p->node[i].use[k];
      if (u->lo >= u->hi) continue;
      change[n++] = (Change){u->lo, u->usage[choice[i]]};
      change[n++] = (Change){u->hi, -u->usage[choice[i]]};
    }
  // In order of time, the sum of changes is the usage.
  qsort(change, (size_t)n, sizeof *change, change_order);
  SolverCost sum = 0, peak = 0;
  *out_moment = 0;
  for (int i = 0; i < n; i++) {
    sum += change[i].by;
    if (sum <= peak) continue;
    peak = sum;
    *out_moment = change[i].at;
  }
  arena_free(a);
  return peak;
}

const char *solver_cost_text(Arena *a, SolverCost cost) {
  char digit[48];
  int n = sizeof digit;
  digit[--n] = '\0';
  // Digits of a negative number are negative: its absolute value may not be representable.
  SolverCost rest = cost;
  do {
    int one = (int)(rest % 10);
    digit[--n] = (char)('0' + (one < 0 ? -one : one));
    rest /= 10;
  } while (rest);
  if (cost < 0) digit[--n] = '-';
  return str_copy(a, digit + n);
}
