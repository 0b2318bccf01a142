// nnaot-plan calibrate: the cluster file of the machines that this runs on.
//
//     mpirun -n 8 nnaot-plan calibrate -o cluster.lua      a rank for each process
//     nnaot-plan calibrate -g 4 -o cluster.lua             ranks are threads

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "output.h"
#include "questions.h"

enum { MAX_RANKS = 4096 };

// -- Options -----------------------------------------------------------------------------------

static struct {
  int64_t ranks, per_node, steps;
  const char *target, *output;
  bool verbose;
} settings = {.steps = 20, .target = "cpu", .output = "-"};

static const Option options[] = {
    GROUP("What is measured"),
    INTEGER("ranks", 'g', &settings.ranks, "N",
            "threads of this process, each a rank; a launcher, such as mpirun, says it otherwise"),
    INTEGER("per-node", 0, &settings.per_node, "N",
            "ranks of a machine, if the launcher does not say it; neighbours are of one"),
    STRING("target", 0, &settings.target, "NAME", "cpu or cuda, as of nnaot"),
    INTEGER("steps", 0, &settings.steps, "N", "so many measurements, of which the median counts"),
    GROUP("Output"),
    STRING("output", 'o', &settings.output, "FILE.lua", "write it here; -: standard output"),
    FLAG("verbose", 0, &settings.verbose, "print the measurements and the fit on stderr"),
};

// -- Ranks and machines ------------------------------------------------------------------------

static int read_machine(const Program *program, Machine *out, Diag *d) {
  int64_t ranks = settings.ranks, here = 0, launched = 0;
  // The launcher's variables give the number of ranks, and of ranks on this machine (0: unknown).
  bool launcher = false;
  static const struct {
    const char *kind, *rank, *world, *local_world;
  } launchers[] = {
#define LAUNCHER(kind, rank, world, local_world, local_rank) {#kind, rank, world, local_world},
#include "rt/launchers.def"
#undef LAUNCHER
  };
  for (size_t i = 0; !launcher && i < sizeof launchers / sizeof *launchers; i++) {
    const char *rank = getenv(launchers[i].rank), *world = getenv(launchers[i].world);
    const char *local = getenv(launchers[i].local_world);
    if (!rank || !world) continue;
    launched = atoll(world);
    here = local ? atoll(local) : 0;
    launcher = true;
  }
  if (launcher && option_given("ranks") && launched != ranks)
    return usage_error(program, "--ranks is %" PRId64 ", but the launcher has started %" PRId64,
                       ranks, launched);
  if (launcher) ranks = launched;
  if (!launcher && !option_given("ranks"))
    return usage_error(program,
                       "calibrate needs a launcher, as in 'mpirun -n 8 nnaot-plan calibrate', or "
                       "--ranks for threads of one process");
  if (ranks < 2 || ranks > MAX_RANKS)
    return usage_error(program, "calibrate needs from 2 to %d ranks, not %" PRId64, MAX_RANKS,
                       ranks);
  // Without an option or a launcher's figure, all ranks are on one machine.
  int64_t per_node = option_given("per-node") ? settings.per_node : here > 0 ? here : ranks;
  if (per_node < 1 || per_node > ranks || ranks % per_node)
    return usage_error(program, "%" PRId64 " ranks are not machines of %" PRId64 " ranks each",
                       ranks, per_node);
  if (settings.steps < 1 || settings.steps > 1000)
    return usage_error(program, "--steps must be from 1 to 1000");
  *out = (Machine){.ranks = (int)ranks, .per_node = (int)per_node, .steps = settings.steps};
  if (!backend_target_parse(settings.target, &out->target, d)) return EXIT_USAGE;
  if (out->target.processor)
    return usage_error(program, "calibrate measures this machine, which cannot be '%s'",
                       settings.target);
  return 0;
}

// -- Output ------------------------------------------------------------------------------------

static void add_link(StrBuf *b, const char *name, Link link) {
  const char *beta = link.beta > 0 ? str_format(b->arena, "1 / %.4g", 1 / link.beta) : "0";
  strbuf_addf(b, "  %s = { alpha = %.4g, beta = %s },\n", name, link.alpha, beta);
}

static const char *cluster_text(Arena *a, const Machine *machine, const Cluster *c,
                                const Probes *probes) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b,
              "-- Measured by nnaot-plan calibrate, on %d ranks, %d of each machine, for %s.\n"
              "-- The mean deviation of its predictions from the measurements:\n",
              machine->ranks, machine->per_node, target_info[machine->target.target].name);
  // A line for each kind of probe: the mean relative error of its prices.
  for (int kind = 0; kind < N_PROBE_KINDS; kind++) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < probes->n; i++) {
      if ((int)probes->at[i].kind != kind) continue;
      const Probe *p = &probes->at[i];
      sum += fabs(calibrate_price(c, p) - p->seconds) / p->seconds;
      n++;
    }
    if (n) strbuf_addf(&b, "--   %-16s%4d   %5.1f %%\n", probe_name[kind], n, 100 * sum / n);
  }
  strbuf_addf(&b, "return {\n  nodes = %d, per_node = %d,\n", c->nodes, c->per_node);
  add_link(&b, "inside", c->inside);
  if (c->nodes > 1) add_link(&b, "across", c->across);
  strbuf_addf(&b, "  start = %.4g,\n", c->start);
  if (c->memory > 0) strbuf_addf(&b, "  memory = %.4g,\n", c->memory);
  strbuf_addf(&b, "  memory_speed = %.4g,\n  f32 = %.4g,\n", c->memory_speed, c->f32);
  if (c->half > 0) strbuf_addf(&b, "  half = %.4g,\n", c->half);
  strbuf_add(&b, "  products = {\n");
  for (int i = 0; i < c->n_products; i++) {
    const ProductSpeed *p = &c->products[i];
    strbuf_addf(&b, "    { flops = %.17g, f32 = %.9g", p->flops, p->f32);
    if (p->half > 0) strbuf_addf(&b, ", half = %.9g", p->half);
    strbuf_add(&b, " },\n");
  }
  strbuf_add(&b, "  },\n");
  strbuf_addf(&b, "  launch = %.4g,\n  gpus = %s,\n}\n", c->launch,
              target_info[machine->target.target].gpu ? "true" : "false");
  return b.at;
}

static int calibrate(const Program *program, Arena *a, Diag *d) {
  const char *output = settings.output;
  Machine machine = {0};
  int status = read_machine(program, &machine, d);
  if (status) return status;
  if (!output_writable(output, d)) return 1;
  Probes probes = calibrate_probes(a, &machine);
  bool first;
  if (!calibrate_measure(a, &machine, &probes, &first, d)) return 1;
  if (!first) return 0;
  Cluster c = calibrate_fit(a, &machine, &probes);
  if (settings.verbose) {
    fprintf(stderr, "%-28s %12s %12s\n", "probe", "measured s", "fitted s");
    for (int i = 0; i < probes.n; i++)
      fprintf(stderr, "%-28s %12.4g %12.4g\n", probes.at[i].name, probes.at[i].seconds,
              calibrate_price(&c, &probes.at[i]));
  }
  const char *text = cluster_text(a, &machine, &c, &probes);
  return output_write(output, text, d) && output_flush(d) ? 0 : 1;
}

static int answer(const Program *program, const char *file) {
  (void)file;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  int status = calibrate(program, a, d);
  diag_free(d);
  arena_free(a);
  return status;
}

const Question question_calibrate = {
    {"nnaot-plan calibrate",
     "[mpirun -n N] nnaot-plan calibrate [--ranks N] [--per-node N] [--target NAME] [--steps N] "
     "[-o FILE.lua]",
     "Makes an executable of collectives and kernels, runs it on all ranks, and fits the\nlinks "
     "and devices of a --cluster.",
     options, sizeof options / sizeof *options, NULL, NULL},
    "the cluster file of the machines that this runs on",
    false,
    answer,
};
