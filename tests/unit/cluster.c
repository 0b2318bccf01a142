// Named clusters, as they are and changed by a file: compared with the figures of their sources in
// the units of those: memory in MiB as drivers show it, links in both directions together, racks as
// a whole.

#include "unit.h"

#include <math.h>
#include <unistd.h>

#include "cluster/cluster.h"

typedef struct Source {
  const char *name;
  double mib;                 // of memory
  double nvlink, adapters_gb; // GB/s of a device in both directions; Gb/s of a node's adapters
  int gpus;                   // of which these are the sums:
  double memory_tb;           // TB/s
  double f32, half;           // TFLOP/s
  double product;             // TFLOP/s of the fastest product that was measured; 0: none
} Source;

static const Source sources[] = {
    {"v100-dgx1", 32510, 6 * 50, 4 * 100, 8, 7.2, 8 * 15.7, 1000, 0},
    {"v100-dgx2", 32510, 6 * 50, 8 * 100, 16, 14.4, 16 * 15.7, 2000, 0},
    {"a100-40gb", 40536, 600, 8 * 200, 8, 12.44, 156, 2496, 8 * 271.2},
    {"a100", 81251, 600, 8 * 200, 8, 16.31, 156, 2496, 8 * 271.2},
    {"h100", 81559, 900, 8 * 400, 8, 26.8, 536, 7912, 8 * 794.5},
    {"h200", 143771, 900, 8 * 400, 8, 38.4, 536, 7912, 8 * 794.5},
    {"b200", 183359, 1800, 8 * 400, 8, 64, 640, 18000, 8 * 1745},
    {"gb200-nvl72", 189471, 1800, 72 * 400, 72, 576, 5760, 180000, 72 * 1822},
    {"mi300x", 206141652992. / (1 << 20), 7 * 128, 8 * 400, 8, 42.4, 8 * 163.4, 8 * 1307.4,
     8 * 668.4},
};
enum { N_SOURCES = sizeof sources / sizeof *sources };

// The figures of the table are rounded.
static void assert_near(const char *name, const char *what, double is, double wanted) {
  if (!(fabs(is - wanted) <= 2e-3 * wanted))
    fail_msg("%s: %s is %.6g, not %.6g", name, what, is, wanted);
}

static void rows_are_those_of_their_sources(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  for (int i = 0; i < N_SOURCES; i++) {
    const Source *s = &sources[i];
    const Cluster *c = cluster_read(a, str_format(a, "%s:1x%d", s->name, s->gpus), "--cluster", d);
    assert_non_null(c);
    assert_true(c->gpus && !c->cpus);
    assert_int_equal(cluster_devices(c), s->gpus);
    assert_near(s->name, "memory", c->memory + c->reserve, s->mib * (1 << 20));
    assert_near(s->name, "inside", 2e-9 / c->inside.beta, s->nvlink);
    assert_near(s->name, "across", 8e-9 * c->nics / c->across.beta, s->adapters_gb);
    assert_near(s->name, "memory_speed", c->memory_speed * s->gpus, s->memory_tb * 1e12);
    assert_near(s->name, "f32", c->f32 * s->gpus, s->f32 * 1e12);
    assert_near(s->name, "half", c->half * s->gpus, s->half * 1e12);
    // By default products reach the peak, as with all vendors' figures.
    assert_true(c->half_efficiency == 0 && c->dollars == 0);
    const char *measured = str_format(a, "%s-measured:1x%d", s->name, s->gpus);
    int errors = diag_errors(d);
    bool quiet = diag_quiet(d, true);
    const Cluster *m = cluster_read(a, measured, "--cluster", d);
    diag_quiet(d, quiet);
    assert_true((m != NULL) == (s->product > 0));
    if (m)
      assert_near(s->name, "product", m->half * m->half_efficiency * s->gpus, s->product * 1e12);
    else
      assert_true(diag_errors(d) > errors);
  }
  diag_free(d);
  arena_free(a);
}

static const Cluster *of_file(Arena *a, const char *text, Diag *d) {
  char path[] = "/tmp/nnaot_cluster_XXXXXX.lua";
  int file = mkstemps(path, 4);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), strlen(text));
  close(file);
  const Cluster *c = cluster_read(a, path, "--cluster", d);
  unlink(path);
  return c;
}

static void files_change_named_clusters(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  const Cluster *named = cluster_read(a, "h100:4x8", "--cluster", d);
  const Cluster *c = of_file(a, "return {like = 'h100:4x8', dollars_per_hour = 2.5}", d);
  assert_non_null(c);
  assert_true(c->nodes == 4 && c->per_node == 8 && c->nics == 8 && c->gpus);
  assert_near("like", "memory", c->memory, named->memory);
  assert_near("like", "dollars", cluster_dollars(c), 80);
  // A reserve of its own, fewer devices of a node, and dearer ones.
  c = of_file(a,
              "return {like = 'h100', nodes = 2, per_node = 4, reserve = 5e9, "
              "dollars_per_hour = 2, devices = {{from = 6, to = 7, dollars_per_hour = 3}}}",
              d);
  assert_non_null(c);
  assert_true(c->nics == 4 && cluster_devices(c) == 8);
  assert_near("reserve", "memory", c->memory, named->memory + named->reserve - 5e9);
  assert_near("devices", "dollars", cluster_dollars(c), 18);
  diag_free(d);
  arena_free(a);
}

TEST_GROUP(cluster) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_those_of_their_sources),
      cmocka_unit_test(files_change_named_clusters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
