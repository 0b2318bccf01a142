// Runs the executable of the probes as a rank under the launcher that started this process, and
// reads its --trace: see calibrate.h.
//
// Every process builds the executable, since machines may share no folder, and runs it as its
// child.  The child finds the launcher as any program does that a script starts.  Rank 0 writes the
// trace, so the process that finds a trace is the parent of rank 0.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/temporary.h"
#include "calibrate.h"
#include "pass.h"
#include "solver/json.h"

enum { WARM_STEPS = 3 };

// -- The executable ----------------------------------------------------------------------------

static bool run_program(Arena *a, const Machine *machine, const char *dir, Diag *d) {
  const char *log = str_format(a, "%s/log", dir), *program = str_format(a, "%s/program", dir);
  const char *steps = str_format(a, "%lld", (long long)machine->steps + WARM_STEPS);
  const char *trace = str_format(a, "%s/trace", dir);
  // The child must not write buffered output again.
  fflush(NULL);
  pid_t child = temporary_fork();
  if (child == 0) {
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0) {
      dup2(fd, STDOUT_FILENO);
      dup2(fd, STDERR_FILENO);
    }
    execl(program, program, "--steps", steps, "--trace", trace, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || temporary_wait(child, &status) < 0)
    return diag_error(d, NULL, "cannot start a process: %s", strerror(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  diag_error(d, NULL, "the program that measures has failed");
  // The output of the program tells the cause.
  size_t n;
  const char *text = json_load(a, log, &n, d);
  if (text && n) diag_note(d, NULL, "it says:\n%s", text);
  return false;
}

// -- The trace ---------------------------------------------------------------------------------

// The time of an op on a rank in a step, in us of the rank's clock.  A collective begins when its
// turn has come, after those before it; an all_reduce ends with its wait.
typedef struct Span {
  double from, to;
  bool run; // `from` is of a communicating thread or stream, not of the call
} Span;

typedef struct Measured {
  Arena *a;
  const Machine *machine;
  Probes *probes;
  Span *span; // [probe][step][rank]
} Measured;

static Span *span_of(const Measured *m, int probe, int64_t step, int64_t rank) {
  return &m->span[(probe * m->machine->steps + step) * m->machine->ranks + rank];
}

static void read_event(Measured *m, Json *j) {
  const char *at = NULL;
  bool run = false;
  double from = 0, us = 0;
  int64_t step = -1, rank = -1;
  // Members come in any order.
  for (bool more = json_open(j, '{'); more; more = json_next(j, '}')) {
    const char *key = json_key(j);
    if (str_equal(key, "cat"))
      run = str_equal(json_quoted(j), "comm");
    else if (str_equal(key, "ts"))
      from = json_number(j);
    else if (str_equal(key, "dur"))
      us = json_number(j);
    else if (str_equal(key, "pid"))
      rank = json_integer(j);
    else if (str_equal(key, "args"))
      for (bool arg = json_open(j, '{'); arg; arg = json_next(j, '}')) {
        key = json_key(j);
        if (str_equal(key, "step"))
          step = json_integer(j) - WARM_STEPS;
        else if (str_equal(key, "at"))
          at = json_quoted(j);
        else
          json_skip(j);
      }
    else
      json_skip(j);
  }
  // Other events, and those out of range, are ignored.
  if (!at || !str_starts(at, "calibrate:") || step < 0 || step >= m->machine->steps || rank < 0 ||
      rank >= m->machine->ranks)
    return;
  for (int i = 0; i < m->probes->n; i++) {
    if (!str_equal(m->probes->at[i].name, at + strlen("calibrate:"))) continue;
    Span *span = span_of(m, i, step, rank);
    if (span->to == 0 || (run && !span->run)) span->from = from;
    span->run |= run;
    span->to = fmax(span->to, from + us);
  }
}

// -- Clocks -------------------------------------------------------------------------------------

// Returns the first rank of the group with this rank: as add_mesh of calibrate_probes.c numbers
// them.
static int group_first(const Machine *machine, const Probe *p, int rank) {
  int stride = p->across ? machine->per_node : 1;
  return rank - rank / stride % p->size * stride;
}

// Whether the probes have the same groups.
static bool same_groups(const Probe *a, const Probe *b) {
  return probe_is_collective(a->kind) && probe_is_collective(b->kind) && a->size == b->size &&
         a->across == b->across;
}

// Estimates in *out, by rank, how far its clock is ahead of that of the first rank of its group, of
// the groups of probe `of`.  No rank leaves a collective before a message from every other has
// reached it, after a latency L.  If the clock is ahead by x, then over all collectives
//
//     least of  end here - begin at the first     L + x
//     least of  end at the first - begin here     L - x
//
// so x is half of the difference, if latencies are the same both ways.
static void compare_clocks(const Measured *m, int of, int64_t step, double *out) {
  const Machine *machine = m->machine;
  const Probe *p = &m->probes->at[of];
  for (int rank = 0; rank < machine->ranks; rank++) {
    int first = group_first(machine, p, rank);
    double there = INFINITY, back = INFINITY;
    for (int i = 0; i < m->probes->n; i++) {
      if (!same_groups(p, &m->probes->at[i])) continue;
      const Span *here = span_of(m, i, step, rank), *at_first = span_of(m, i, step, first);
      there = fmin(there, here->to - at_first->from);
      back = fmin(back, at_first->to - here->from);
    }
    out[rank] = (there - back) / 2;
  }
}

// -- Times --------------------------------------------------------------------------------------

typedef Vec(double) Times;

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

// The time of a kernel is the longest of all ranks.
static double kernel_seconds(const Measured *m, int probe, int64_t step) {
  double us = 0;
  for (int rank = 0; rank < m->machine->ranks; rank++) {
    const Span *s = span_of(m, probe, step, rank);
    us = fmax(us, s->to - s->from);
  }
  return us * 1e-6;
}

// Adds to *out the time of a collective in each group: from the last rank that begins to the last
// that ends.  A rank that begins early waits for others, and one that begins late finds messages
// that have come before: the time of a single rank is more or less than that.
static void add_collective_seconds(const Measured *m, int probe, int64_t step, const double *ahead,
                                   Times *out) {
  const Machine *machine = m->machine;
  const Probe *p = &m->probes->at[probe];
  int stride = p->across ? machine->per_node : 1;
  for (int first = 0; first < machine->ranks; first++) {
    if (group_first(machine, p, first) != first) continue;
    double begin = -INFINITY, end = -INFINITY;
    for (int rank = first; rank < first + p->size * stride; rank += stride) {
      const Span *s = span_of(m, probe, step, rank);
      begin = fmax(begin, s->from - ahead[rank]);
      end = fmax(end, s->to - ahead[rank]);
    }
    vec_push(m->a, out, (end - begin) * 1e-6);
  }
}

// The median of a probe's times, over steps and groups.
static double median_seconds(const Measured *m, int probe) {
  Times of = {0};
  double *ahead = arena_array(m->a, double, m->machine->ranks);
  for (int64_t step = 0; step < m->machine->steps; step++) {
    if (!probe_is_collective(m->probes->at[probe].kind)) {
      vec_push(m->a, &of, kernel_seconds(m, probe, step));
      continue;
    }
    // Clocks drift: each step compares them.
    compare_clocks(m, probe, step, ahead);
    add_collective_seconds(m, probe, step, ahead, &of);
  }
  qsort(of.at, (size_t)of.n, sizeof *of.at, ascending);
  return of.at[of.n / 2];
}

static bool read_trace(Arena *a, const Machine *machine, const char *path, Probes *io, Diag *d) {
  Measured m = {a, machine, io, NULL};
  size_t n;
  const char *text = json_load(a, path, &n, d);
  Json j;
  if (!text) return false;
  m.span = arena_array(a, Span, io->n * machine->steps * machine->ranks);
  json_text(&j, a, path, text, n, d);
  for (bool more = json_open(&j, '{'); more; more = json_next(&j, '}')) {
    if (!str_equal(json_key(&j), "traceEvents")) {
      json_skip(&j);
      continue;
    }
    for (bool event = json_open(&j, '['); event; event = json_next(&j, ']'))
      read_event(&m, &j);
  }
  if (!json_end(&j)) return false;
  for (int i = 0; i < io->n; i++) {
    io->at[i].seconds = median_seconds(&m, i);
    // A probe without a time would spoil the fit.
    if (!(io->at[i].seconds > 0))
      return diag_error(d, NULL, "the trace has no time of '%s'", io->at[i].name);
  }
  return true;
}

bool calibrate_measure(Arena *a, const Machine *machine, Probes *io, bool *first, Diag *d) {
  char dir[PATH_MAX];
  *first = false;
  if (!temporary_dir_make(dir, sizeof dir, "nnaot-calibrate"))
    return diag_error(d, NULL, "cannot make a folder '%s': %s", dir, strerror(errno));
  // The executable of the probes.
  const char *output = str_format(a, "%s/program", dir);
  const char *text = calibrate_module(a, machine, io),
             *target = target_info[machine->target.target].name;
  Module *m = module_parse("calibrate", text, strlen(text), d);
  BackendOptions o = {.target = machine->target,
                      .output = output,
                      .jobs = 1,
                      .version = NNAOT_VERSION,
                      .plan = "calibrate",
                      .describe = "{}",
                      .lr_schedule = "constant"};
  PipelineOptions quiet = {.bisect_limit = -1, .unproved = true};
  bool ok = m && backend_ready(&o, d) == READY_yes &&
            pipeline_run(m, str_format(a, "fuse,plan_memory(target=%s)", target), &quiet, d) &&
            backend_build(m, &o, d);
  if (m) module_free(m);

  const char *trace = str_format(a, "%s/trace", dir);
  temporary_dir(dir); // only from here on: the build has a folder of its own
  ok = ok && run_program(a, machine, dir, d);
  *first = ok && access(trace, R_OK) == 0;
  if (*first) ok = read_trace(a, machine, trace, io, d);
  temporary_dir_remove();
  return ok;
}
