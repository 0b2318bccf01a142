// What is left, given to CBC (program.h says as what).  The only file that knows CBC.
//
// Most rows of memory never bind: the program has those with a price and those that have been
// overflowed; when CBC's answer overflows others they are added, and it begins again.  A program
// with fewer rows is a relaxation, so its bound is one all the same.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "solver/program.h"
#include "solver/solve.h"

#ifndef NNAOT_CBC

double solve_cbc(Solve *s) {
  (void)s;
  return -INFINITY;
}

#else

#include <coin/Cbc_C_Interface.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ENTRIES = 200000, MAX_TIMES = 20, MOST_ROWS = 100 };

static Cbc_Model *load(const ZeroOne *p) {
  Arena *a = arena_new();
  Cbc_Model *m = Cbc_newModel();
  double *lo = arena_array(a, double, p->n_columns + p->n_rows);
  double *hi = arena_array(a, double, p->n_columns + p->n_rows);
  for (int k = 0; k < p->n_columns; k++)
    hi[k] = 1;
  // By column, as CBC wants it.
  int *start = arena_array(a, int, p->n_columns + 2), n = 0;
  for (int r = 0; r < p->n_rows; r++) {
    lo[p->n_columns + r] = isinf(p->row[r].lo) ? -1e300 : p->row[r].lo;
    hi[p->n_columns + r] = p->row[r].hi;
    for (int k = 0; k < p->row[r].n; k++, n++)
      start[p->column[p->row[r].first + k] + 2]++;
  }
  for (int k = 0; k < p->n_columns; k++)
    start[k + 2] += start[k + 1];
  int *row = arena_array(a, int, n);
  double *value = arena_array(a, double, n);
  for (int r = 0; r < p->n_rows; r++)
    for (int k = p->row[r].first; k < p->row[r].first + p->row[r].n; k++) {
      int to = start[p->column[k] + 1]++;
      row[to] = r;
      value[to] = p->value[k];
    }
  Cbc_loadProblem(m, p->n_columns, p->n_rows, start, row, value, lo, hi, p->cost, lo + p->n_columns,
                  hi + p->n_columns);
  for (int k = 0; k < p->n_binary; k++)
    Cbc_setInteger(m, k);
  arena_free(a);
  return m;
}

static void set_start(Cbc_Model *m, const ZeroOne *p, const double *value) {
  Arena *a = arena_new();
  int *column = arena_array(a, int, p->n_columns);
  for (int k = 0; k < p->n_columns; k++)
    column[k] = k;
  Cbc_setMIPStartI(m, p->n_columns, column, value);
  arena_free(a);
}

static void set_options(Cbc_Model *m, double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%.3f", seconds);
  Cbc_setLogLevel(m, 0);
  Cbc_setParameter(m, "log", "0");
  Cbc_setParameter(m, "slog", "0");
  Cbc_setParameter(m, "sec", text);
  Cbc_setParameter(m, "timeMode", "elapsed");
  Cbc_setParameter(m, "randomSeed", "1");
  Cbc_setParameter(m, "randomCbcSeed", "1");
  Cbc_setParameter(m, "threads", "0");
  Cbc_setParameter(m, "ratio", "0");
}

// Labels of a solution, if it is one.
static bool read_labels(const Core *c, const double *value, int *label) {
  for (int v = 0, n = 0; v < c->n_vars; n += c->var[v++].n) {
    label[v] = 0;
    for (int i = 1; i < c->var[v].n; i++)
      if (value[n + i] > value[n + label[v]]) label[v] = i;
    if (value[n + label[v]] < 0.5) return false;
  }
  return true;
}

// Rows that are overflowed, the fullest first of those that lie together; returns how many are new.
static int want_more(const Core *c, const int *label, bool *wanted) {
  Arena *a = arena_new();
  int64_t *used = arena_array(a, int64_t, c->n_rows + 1);
  core_usage(c, label, used);
  int n = 0;
  for (int t = 0; t < c->n_rows;) {
    int worst = t;
    for (; t < c->n_rows && used[t] > c->room[t]; t++)
      if (used[t] - c->room[t] > used[worst] - c->room[worst]) worst = t;
    if (t == worst) { // not overflowed
      t++;
      continue;
    }
    n += !wanted[worst];
    wanted[worst] = true;
  }
  arena_free(a);
  return n;
}

typedef struct Answer {
  double bound;
  bool has, proven;
} Answer;

static Answer solve(Solve *s, const ZeroOne *p, int *label, Arena *a) {
  Cbc_Model *m = load(p);
  set_options(m, s->end - clock_seconds());
  if (s->search->over == 0 && s->search->cost <= s->best)
    set_start(m, p, program_values(a, s->core, p, s->search->label));
  else if (s->has)
    Cbc_setCutoff(m, solve_target(s) - p->constant);
  Cbc_solve(m);
  Answer x = {p->constant + Cbc_getBestPossibleObjValue(m), false, Cbc_isProvenOptimal(m)};
  if (Cbc_isProvenInfeasible(m)) x = (Answer){INFINITY, false, true};
  // Costs are what the dual left of them, so this is about the gap and not about the whole cost:
  // within CBC's tolerances it is far less than one.
  x.bound -= 1e-9 * fabs(x.bound - p->constant);
  const double *value = Cbc_bestSolution(m);
  x.has = value && read_labels(s->core, value, label);
  Cbc_deleteModel(m);
  return x;
}

// In a process of its own: CBC does not look at the clock everywhere, and some of its versions
// crash when time is over while they preprocess.  The child writes its answer, then the labels.
static void answer_into(int file, Solve *s, const ZeroOne *p, int *label, Arena *a) {
  int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO); // what it says when it crashes
  Answer x = solve(s, p, label, a);
  size_t n = (size_t)s->core->n_vars * sizeof *label;
  bool ok = write(file, &x, sizeof x) == (ssize_t)sizeof x && write(file, label, n) == (ssize_t)n;
  _exit(ok ? 0 : 1);
}

// False: the other end has closed, or the time is over.
static bool read_all(int file, void *to, size_t n, double end) {
  for (size_t done = 0; done < n;) {
    double left = fmax(end - clock_seconds(), 0);
    struct pollfd poll_file = {.fd = file, .events = POLLIN};
    int ready = poll(&poll_file, 1, (int)fmin(1000 * left + 1, 1e9));
    if (ready < 0 && errno == EINTR) continue;
    ssize_t got = ready > 0 ? read(file, (char *)to + done, n - done) : 0;
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

static Answer ask(Solve *s, const ZeroOne *p, int *label, Arena *a) {
  const Answer nothing = {-INFINITY, false, false};
  int ends[2];
  if (pipe(ends)) return nothing;
  pid_t child = fork();
  if (child == 0) answer_into(ends[1], s, p, label, a);
  close(ends[1]);
  Answer x = nothing;
  if (child > 0) {
    double end = s->end + 0.5; // it may be about to answer
    if (!read_all(ends[0], &x, sizeof x, end) ||
        !read_all(ends[0], label, (size_t)s->core->n_vars * sizeof *label, end))
      x = nothing;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return x;
}

static void want_priced(const Solve *s, bool *wanted) {
  for (int t = 0; t < s->core->n_rows; t++)
    wanted[t] = s->dual->price[t] > 0 || s->core->n_rows <= MOST_ROWS;
}

double solve_cbc(Solve *s) {
  if (core_entries(s->core) > MAX_ENTRIES) return -INFINITY;
  Arena *a = arena_new();
  bool *wanted = arena_array(a, bool, s->core->n_rows + 1);
  int *label = arena_array(a, int, s->core->n_vars + 1);
  double bound = -INFINITY;
  want_priced(s, wanted);
  for (int k = 0; k < MAX_TIMES && !solve_over(s); k++) {
    Arena *scratch = arena_new();
    const ZeroOne *p = program_build(scratch, s->core, s->dual, wanted, false);
    Answer x = ask(s, p, label, scratch);
    arena_free(scratch);
    if (x.bound > bound) bound = x.bound;
    solve_say(s, "cbc");
    if (!x.has) break;
    search_offer(s->search, label);
    solve_offer(s, label);
    if (!want_more(s->core, label, wanted)) break;
  }
  arena_free(a);
  return bound;
}

#endif
