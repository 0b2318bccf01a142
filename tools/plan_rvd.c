// nnaot-plan rvd: the cheapest communication from one placement of a tensor to another.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "output.h"
#include "paths/path.h"
#include "questions.h"

// -- Options -------------------------------------------------------------------------------------

static struct {
  const char *shape, *dtype, *from, *to, *cluster;
  bool json;
} settings = {.shape = "", .dtype = "f32", .from = "", .to = "", .cluster = "cpu"};

static const Option options[] = {
    GROUP("The tensor and its placements"),
    NEEDED_STRING("shape", 0, &settings.shape, "SHAPE", "of the tensor, such as 1024x1024"),
    STRING("dtype", 0, &settings.dtype, "TYPE", "of its elements: f32, bf16, f16, f64, i64 …"),
    NEEDED_STRING(
        "from", 0, &settings.from, "RVD",
        "its placement: R(copies)V(shares of a sum)D(parts of each dimension)@DEVICES, such as "
        "'R(1)V(2)D(1,2)@0-3'; devices are row-major over R, V and the dimensions"),
    NEEDED_STRING("to", 0, &settings.to, "RVD", "the placement to reach"),
    STRING("cluster", 0, &settings.cluster, "FILE.lua|NAME",
           "the devices and their links: cpu, v100-dgx1, a100, h100 …, of as many nodes as are "
           "asked for, or NAME:NODESxPER_NODE; or a file that says them"),
    GROUP("Output"),
    FLAG("json", 0, &settings.json, "print one object: total, p2p, steps"),
};

// -- Output ----------------------------------------------------------------------------------

// Whether a send_recv is from a device to itself: it lists data that readers already have, too.
static bool is_own(const PathStep *s, int group) {
  const int *device = s->groups.device + group * s->groups.size;
  return s->edge.prim == PATH_send_recv && device[0] == device[1];
}

// -- rvd -------------------------------------------------------------------------------------

// Answers the question.  Errors in options are usage errors, errors in their files are input
// errors. Returns an exit status.
static int rvd(Arena *a, Diag *d) {
  TensorShape shape;
  Placement from, to;
  const Cluster *c;
  if (!shape_read(settings.shape, "--shape", &shape, d)) return EXIT_USAGE;
  DType dtype;
  if (!dtype_parse(settings.dtype, &dtype)) {
    StrBuf names = {.arena = a};
    for (int i = 0; i < N_DTYPES; i++)
      strbuf_addf(&names, "%s%s", i ? ", " : "", dtype_name[i]);
    diag_error(d, loc_line(a, "--dtype", 0, 0), "there is no type '%s'", settings.dtype);
    diag_hint(d, "there are %s", names.at);
    return EXIT_USAGE;
  }
  shape.bytes = dtype_bytes[dtype];
  c = cluster_read(a, settings.cluster, "--cluster", d);
  if (!c) return cluster_is_file(settings.cluster) ? EXIT_FAILURE : EXIT_USAGE;
  // Read both, so that mistakes in both are reported at once.
  bool ok = placement_read(a, settings.from, "--from", &shape, c, &from, d);
  if (!placement_read(a, settings.to, "--to", &shape, c, &to, d) || !ok) return EXIT_USAGE;
  const Path *p = path_find(paths_new(a, c), &shape, &from, &to);
  if (!p->complete)
    fprintf(stderr, "nnaot-plan: note: not everything was tried, there may be something cheaper\n");
  if (settings.json) {
    // Groups leave out transfers from a device to itself.
    printf("{\"total\": %.9g, \"p2p\": %.9g, \"steps\": [", p->total.seconds, p->p2p.seconds);
    for (int i = 0; i < p->n_steps; i++) {
      const PathStep *s = &p->step[i];
      printf("%s\n  {\"prim\": \"%s\", \"groups\": [", i ? "," : "", path_prim_name[s->edge.prim]);
      for (int k = 0, n = 0; k < s->groups.n; k++) {
        if (is_own(s, k)) continue;
        printf("%s[", n++ ? ", " : "");
        for (int j = 0; j < s->groups.size; j++)
          printf("%s%d", j ? ", " : "", s->groups.device[k * s->groups.size + j]);
        printf("]");
      }
      printf("], \"bytes\": %.0f, \"seconds\": %.9g}", s->cost.bytes, s->cost.seconds);
    }
    printf("]}\n");
  } else {
    // A line for each step: its primitive and its groups.
    for (int i = 0; i < p->n_steps; i++) {
      const PathStep *s = &p->step[i];
      printf("%s", path_prim_name[s->edge.prim]);
      for (int k = 0; k < s->groups.n; k++) {
        if (is_own(s, k)) continue;
        for (int j = 0; j < s->groups.size; j++)
          printf(j ? ",%d" : " {%d", s->groups.device[k * s->groups.size + j]);
        printf("}");
      }
      printf("  %.0f bytes  %.6g s\n", s->cost.bytes, s->cost.seconds);
    }
    printf("total %.6g; p2p %.6g\n", p->total.seconds, p->p2p.seconds);
  }
  return output_flush(d) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int answer(const Program *program, const char *file) {
  (void)file;
  (void)program;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  int status = rvd(a, d);
  diag_free(d);
  arena_free(a);
  return status;
}

const Question question_rvd = {
    {"nnaot-plan rvd",
     "nnaot-plan rvd --shape SHAPE --from RVD --to RVD [--dtype TYPE] [--cluster C] [--json]",
     "Prints a line for each primitive, with its groups of devices, the bytes that all of them "
     "send, and\nits seconds; the last line is the sum, beside the seconds of plain send/recv.",
     options, sizeof options / sizeof *options, NULL, NULL},
    "the cheapest communication from one placement of a tensor to another",
    false,
    answer,
};
