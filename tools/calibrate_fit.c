// Fits a cluster to the measured times: see calibrate.h.
//
// The cost of a collective is start + alpha * hops + beta * bytes of the busiest link
// (path_cost.h).  Over the links of a node only, or over adapters only, it is linear in these three
// terms.  They are fitted by least squares (AutoDDL, section 3.2).  Errors are relative to the
// measured time, so that small messages count as much as large ones.  No term may be below 0: there
// are so few terms that the fit tries every subset.  Adapters are fitted after nodes, with the
// start that the nodes gave.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate.h"
#include "ir/collective.h"
#include "paths/path_cost.h"

enum { N_TERMS = 3 }; // start, alpha, beta

// -- Prices ------------------------------------------------------------------------------------

static double collective_price(Arena *a, const Cluster *c, const Probe *p) {
  // Groups are of neighbours, or have one rank of each node.
  int ranks = cluster_devices(c), stride = p->across ? c->per_node : 1;
  Groups groups = {.size = p->size, .device = arena_array(a, int, ranks)};
  for (int first = 0; first < ranks; first++) {
    if (first / stride % p->size != 0) continue;
    for (int k = 0; k < p->size; k++)
      groups.device[groups.n * p->size + k] = first + k * stride;
    groups.n++;
  }

  double whole = (double)p->bytes, part = whole / p->size;
  static const PathPrim prims[] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) [PROBE_##op] = PATH_##op,
#include "rt/collectives.def"
  };
  // A buffer is a part of the value on each rank, or of its whole shape.
  const CollectiveRule *rule = collective_rule(path_op(prims[p->kind]));
  return groups_cost(traffic_new(a, c), prims[p->kind], &groups, rule->from_dim ? part : whole,
                     rule->to_dim ? part : whole)
      .seconds;
}

double calibrate_price(const Cluster *c, const Probe *p) {
  Arena *a = arena_new();
  double seconds = c->launch, flops = 2 * pow((double)p->m, 3);
  Device device = cluster_least(c);
  switch (p->kind) {
  case PROBE_tiny: break;
  case PROBE_stream: seconds += (double)p->bytes / c->memory_speed; break;
  case PROBE_f32:
    seconds += fmax(flops / device_speed(&device, false, flops),
                    12 * pow((double)p->m, 2) / c->memory_speed);
    break;
  case PROBE_half:
    seconds += fmax(flops / device_speed(&device, true, flops),
                    6 * pow((double)p->m, 2) / c->memory_speed);
    break;
  default: seconds = collective_price(a, c, p);
  }
  arena_free(a);
  return seconds;
}

// -- Least squares -----------------------------------------------------------------------------

// One equation of the fit: the sum of of[k] times term k should be `is`.
typedef struct Row {
  double of[N_TERMS], is;
} Row;

typedef Vec(Row) Rows;

static double error_of(const Rows *rows, const double *x) {
  double sum = 0;
  for (int i = 0; i < rows->n; i++) {
    double error = -rows->at[i].is;
    for (int k = 0; k < N_TERMS; k++)
      error += rows->at[i].of[k] * x[k];
    sum += error * error;
  }
  return sum;
}

// Finds the terms of `which` (bits) with the least error, the others 0: the normal equations, by
// Gauss.  Returns false if they are singular or a term is negative.
static bool solve(const Rows *rows, unsigned which, double *x) {
  double m[N_TERMS][N_TERMS + 1] = {{0}};
  // The normal equations, with the right side as the last column.
  for (int i = 0; i < rows->n; i++)
    for (int r = 0; r < N_TERMS; r++)
      for (int k = 0; k <= N_TERMS; k++)
        m[r][k] += rows->at[i].of[r] * (k < N_TERMS ? rows->at[i].of[k] : rows->at[i].is);
  // Terms outside `which` get the equation x = 0.
  for (int r = 0; r < N_TERMS; r++)
    for (int k = 0; k <= N_TERMS; k++)
      if (!(which >> r & 1) || (k < N_TERMS && !(which >> k & 1))) m[r][k] = r == k;
  // Gauss-Jordan elimination; a positive definite matrix needs no pivots.
  for (int r = 0; r < N_TERMS; r++) {
    if (!(fabs(m[r][r]) > 0)) return false;
    for (int other = 0; other < N_TERMS; other++) {
      double by = m[other][r] / m[r][r];
      for (int k = 0; k <= N_TERMS && other != r; k++)
        m[other][k] -= by * m[r][k];
    }
  }
  for (int r = 0; r < N_TERMS; r++) {
    x[r] = which >> r & 1 ? m[r][N_TERMS] / m[r][r] : 0;
    if (!(x[r] >= 0)) return false;
  }
  return true;
}

// -- Links -------------------------------------------------------------------------------------

static void fit_links(Arena *a, const Probes *probes, bool across, Cluster *io) {
  Rows rows = {0};
  bool knows_start = across && io->per_node > 1;
  double x[N_TERMS];
  for (int i = 0; i < probes->n; i++) {
    const Probe *p = &probes->at[i];
    if (!probe_is_collective(p->kind) || p->across != across) continue;
    // The equation of a measured collective.  The coefficient of a term is the price with that term
    // 1
    // and the others 0, relative to the measured time.

    double start = knows_start ? io->start : 0;
    Row row = {.is = 1 - start / p->seconds};
    for (int k = 0; k < N_TERMS; k++) {
      Cluster unit = *io;
      unit.start = k == 0;
      unit.inside = unit.across = (Link){k == 1, k == 2};
      row.of[k] = collective_price(a, &unit, p) / p->seconds;
    }

    if (knows_start) row.of[0] = 0;
    vec_push(a, &rows, row);
  }
  if (!rows.n) return;
  // The fit tries every subset of the terms.  In groups of one size the start of a collective and
  // the latency of its messages cannot be told apart: then all is latency, whose subsets come
  // first.
  static const unsigned subsets[] = {2, 4, 6, 1, 3, 5, 7};
  double least = INFINITY, trial[N_TERMS];
  memset(x, 0, N_TERMS * sizeof *x);
  for (size_t i = 0; i < sizeof subsets / sizeof *subsets; i++) {
    bool solved = solve(&rows, subsets[i], trial);
    if (!solved || !(error_of(&rows, trial) < least * (1 - 1e-6))) continue;
    least = error_of(&rows, trial);
    memcpy(x, trial, sizeof trial);
  }
  if (!knows_start) io->start = x[0];
  *(across ? &io->across : &io->inside) = (Link){x[1], x[2]};
}

// -- Devices -----------------------------------------------------------------------------------

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

// The median of `rate` over the probes of a kind.
static double median_of(Arena *a, const Probes *probes, ProbeKind kind, const Cluster *c,
                        double (*rate)(const Cluster *c, const Probe *p)) {
  double *x = arena_array(a, double, probes->n);
  int n = 0;
  for (int i = 0; i < probes->n; i++)
    if (probes->at[i].kind == kind) x[n++] = rate(c, &probes->at[i]);
  qsort(x, (size_t)n, sizeof *x, ascending);
  return n ? x[n / 2] : 0;
}

// Seconds of work without the launch.  A probe of a few clock ticks counts at least a tenth of its
// time as work.
static double work_seconds(const Cluster *c, const Probe *p) {
  return fmax(p->seconds - c->launch, p->seconds / 10);
}

static double rate_tiny(const Cluster *c, const Probe *p) {
  (void)c;
  return p->seconds;
}

static double rate_stream(const Cluster *c, const Probe *p) {
  return (double)p->bytes / work_seconds(c, p);
}

static double rate_product(const Cluster *c, const Probe *p) {
  return 2 * pow((double)p->m, 3) / work_seconds(c, p);
}

// Returns the measurement of this size; NULL: there is none.
static const Probe *find_product(const Probes *probes, ProbeKind kind, int64_t m) {
  for (int i = 0; i < probes->n; i++)
    if (probes->at[i].kind == kind && probes->at[i].m == m) return &probes->at[i];
  return NULL;
}

// The peaks, and the speeds by size, in which they grow.  A product with less speed than a smaller
// one was disturbed, and has that one's; one that took longer than a larger one has the speed with
// which it would take as long.
static void fit_products(Arena *a, const Probes *probes, Cluster *c) {
  ProductSpeed *out = arena_array(a, ProductSpeed, probes->n);
  int n = 0;
  for (int i = 0; i < probes->n; i++) {
    const Probe *f32 = &probes->at[i];
    if (f32->kind != PROBE_f32) continue;
    const Probe *half = find_product(probes, PROBE_half, f32->m);
    c->f32 = fmax(c->f32, rate_product(c, f32));
    if (half) c->half = fmax(c->half, rate_product(c, half));
    out[n++] = (ProductSpeed){2 * pow((double)f32->m, 3), c->f32, c->half};
  }
  for (int i = n - 2; i >= 0; i--) {
    double part = out[i].flops / out[i + 1].flops;
    out[i].f32 = fmax(out[i].f32, out[i + 1].f32 * part);
    out[i].half = fmax(out[i].half, out[i + 1].half * part);
  }
  c->products = out;
  c->n_products = n;
}

Cluster calibrate_fit(Arena *a, const Machine *machine, const Probes *probes) {
  Cluster c = {.name = "calibrated",
               .nodes = machine->ranks / machine->per_node,
               .per_node = machine->per_node,
               .nics = 1};
  fit_links(a, probes, false, &c);
  fit_links(a, probes, true, &c);
  if (machine->per_node == 1) c.inside = c.across; // no rank has a neighbour in its node
  // Memory per rank is that of this machine, divided by its ranks; 0 for GPUs.
  double pages = (double)sysconf(_SC_PHYS_PAGES), size = (double)sysconf(_SC_PAGE_SIZE);
  c.memory =
      !target_info[machine->target.target].gpu && pages > 0 ? pages * size / machine->per_node : 0;
  c.launch = median_of(a, probes, PROBE_tiny, &c, rate_tiny);
  c.memory_speed = median_of(a, probes, PROBE_stream, &c, rate_stream);
  fit_products(a, probes, &c);
  return c;
}
