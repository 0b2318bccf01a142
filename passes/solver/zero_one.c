// 0/1 programs: see zero_one.h.  The only file that calls CBC.

#include "solver/zero_one.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef NNAOT_CBC

ZeroOneAnswer zero_one_ask(const ZeroOne *p, const ZeroOneAsk *ask, double *value) {
  (void)p, (void)ask, (void)value;
  return (ZeroOneAnswer){-INFINITY, false, false, 0};
}

#else

#include <coin/Cbc_C_Interface.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

// CBC has the same tolerances for all rows.  With bytes in one row, beside the 0s and 1s of others,
// its simplex cycles for minutes, regardless of the node limit.  So rows are scaled to entries
// below 2; by powers of two, which are exact.
static double row_scale(const ZeroOne *p, const ProgramRow *r) {
  double most = 1;
  for (int k = r->first; k < r->first + r->n; k++)
    most = fmax(most, fabs(p->value[k]));
  return exp2(-floor(log2(most)));
}

static Cbc_Model *load(const ZeroOne *p) {
  Arena *a = arena_new();
  Cbc_Model *m = Cbc_newModel();
  double *lo = arena_array(a, double, p->n_columns + p->n_rows);
  double *hi = arena_array(a, double, p->n_columns + p->n_rows);
  for (int k = 0; k < p->n_columns; k++)
    hi[k] = 1;
  // Column-major, as CBC requires.
  int *start = arena_array(a, int, p->n_columns + 2), n = 0;
  for (int r = 0; r < p->n_rows; r++) {
    double scale = row_scale(p, &p->row[r]);
    lo[p->n_columns + r] = isinf(p->row[r].lo) ? -1e300 : scale * p->row[r].lo;
    hi[p->n_columns + r] = isinf(p->row[r].hi) ? 1e300 : scale * p->row[r].hi;
    for (int k = 0; k < p->row[r].n; k++, n++)
      start[p->column[p->row[r].first + k] + 2]++;
  }
  for (int k = 0; k < p->n_columns; k++)
    start[k + 2] += start[k + 1];
  int *row = arena_array(a, int, n);
  double *value = arena_array(a, double, n);
  for (int r = 0; r < p->n_rows; r++) {
    double scale = row_scale(p, &p->row[r]);
    for (int k = p->row[r].first; k < p->row[r].first + p->row[r].n; k++) {
      int to = start[p->column[k] + 1]++;
      row[to] = r;
      value[to] = scale * p->value[k];
    }
  }
  // Integer variables are 0 or 1, all others between.
  Cbc_loadProblem(m, p->n_columns, p->n_rows, start, row, value, lo, hi, p->cost, lo + p->n_columns,
                  hi + p->n_columns);
  for (int k = 0; k < p->n_binary; k++)
    Cbc_setInteger(m, k);
  arena_free(a);
  return m;
}

// Cut passes at the root; CBC's default is 100.  The first few raise the bound most; search
// problems with binding memory take half the time.
#define CUT_PASSES "20"

static ZeroOneAnswer solve(const ZeroOne *p, const ZeroOneAsk *ask, double *value) {
  Cbc_Model *m = load(p);
  // One thread and fixed seeds: the same answer each time.
  char text[32];
  snprintf(text, sizeof text, "%.3f", ask->end - clock_seconds());
  Cbc_setLogLevel(m, 0);
  Cbc_setParameter(m, "log", "0");
  Cbc_setParameter(m, "slog", "0");
  Cbc_setParameter(m, "sec", text);
  Cbc_setParameter(m, "timeMode", "elapsed");
  Cbc_setParameter(m, "randomSeed", "1");
  Cbc_setParameter(m, "randomCbcSeed", "1");
  Cbc_setParameter(m, "threads", "0");
  Cbc_setParameter(m, "ratio", "0");
  Cbc_setParameter(m, "passCuts", CUT_PASSES);
  snprintf(text, sizeof text, "%d", ask->most_nodes);
  if (ask->most_nodes) Cbc_setParameter(m, "maxNodes", text);
  // A start implies its cost as cutoff.
  if (ask->start) {
    Arena *a = arena_new();
    int *column = arena_array(a, int, p->n_columns);
    for (int k = 0; k < p->n_columns; k++)
      column[k] = k;
    Cbc_setMIPStartI(m, p->n_columns, column, ask->start);
    arena_free(a);
  } else if (!isinf(ask->cutoff)) {
    Cbc_setCutoff(m, ask->cutoff);
  }
  Cbc_solve(m);
  ZeroOneAnswer x = {Cbc_getBestPossibleObjValue(m), false, Cbc_isProvenOptimal(m),
                     Cbc_getNodeCount(m)};
  if (Cbc_isProvenInfeasible(m)) x = (ZeroOneAnswer){INFINITY, false, true, x.nodes};
  const double *best = Cbc_bestSolution(m);
  x.has = best != NULL;
  if (best) memcpy(value, best, (size_t)p->n_columns * sizeof *value);
  Cbc_deleteModel(m);
  return x;
}

// The child writes its answer, then the values.
static bool write_all(int file, const void *from, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t put = write(file, (const char *)from + done, n - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += (size_t)put;
  }
  return true;
}

// False: the other end is closed, or the time limit is reached.
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

ZeroOneAnswer zero_one_ask(const ZeroOne *p, const ZeroOneAsk *ask, double *value) {
  const ZeroOneAnswer nothing = {-INFINITY, false, false, 0};
  int ends[2];
  if (pipe(ends)) return nothing;
  pid_t child = fork();
  if (child == 0) {
    // The child: silent, as CBC prints its own messages, in a crash too.
    int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    ZeroOneAnswer x = solve(p, ask, value);
    bool ok = write_all(ends[1], &x, sizeof x) &&
              write_all(ends[1], value, (size_t)p->n_columns * sizeof *value);
    _exit(ok ? 0 : 1);
  }
  // The parent waits until the time limit; CBC does not always respect it.
  close(ends[1]);
  ZeroOneAnswer x = nothing;
  if (child > 0) {
    double end = ask->end + 0.5; // grace period for its answer
    if (!read_all(ends[0], &x, sizeof x, end) ||
        !read_all(ends[0], value, (size_t)p->n_columns * sizeof *value, end))
      x = nothing;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return x;
}

#endif
