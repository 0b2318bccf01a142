// nnaot-plan: planning questions without a model.
//
//     nnaot-plan rvd --shape 1024x8192 --from 'R(1)V(4)D(1,2)@0-7' --to 'R(4)V(1)D(1,2)@0-7'
//                    --cluster h100
//     all_reduce {0,2,4,6} {1,3,5,7}  201326592 bytes  6.61241e-05 s
//     total 6.61241e-05; p2p 0.000120248
//
// The questions are those of the passes; here are options and output only.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "options.h"
#include "output.h"
#include "path.h"

static const char *shape_text = "", *dtype_text = "f32", *from_text = "", *to_text = "",
                  *cluster_text = "cpu";
static bool json;

static const Option options[] = {
    GROUP("rvd: the cheapest communication from one placement of a tensor to another"),
    STRING("shape", 0, &shape_text, "SHAPE", "of the tensor, such as 1024x1024"),
    STRING("dtype", 0, &dtype_text, "TYPE", "of its elements: f32, bf16, f16, f64, i64 …"),
    STRING("from", 0, &from_text, "RVD",
           "how it lies: R(copies)V(shares of a sum)D(parts of each dimension)@DEVICES, such as "
           "'R(1)V(2)D(1,2)@0-3'; devices are row-major over R, V and the dimensions"),
    STRING("to", 0, &to_text, "RVD", "how it shall lie"),
    STRING("cluster", 0, &cluster_text, "FILE.lua|NAME",
           "the devices and their links: cpu, v100-dgx1, v100-dgx2, a100, h100 or h200, of as "
           "many nodes as are asked for, or NAME:NODESxPER_NODE; or a file that says them"),
    FLAG("json", 0, &json, "print one object: total, p2p, steps"),
};

static const Program program = {
    "nnaot-plan",
    "nnaot-plan rvd --shape SHAPE --from RVD --to RVD [--dtype TYPE] [--cluster C] [--json]",
    "Answers questions about plans that need no model.  `rvd` prints a line for each primitive, "
    "with\n"
    "its groups of devices, the bytes that all of them send, and its seconds; the last line is "
    "the\n"
    "sum, beside the seconds of plain send/recv.",
    options,
    sizeof options / sizeof *options,
    NULL,
    NULL,
};

// -- Output ----------------------------------------------------------------------------------

// Of send_recv, which lists what readers have as well.
static bool is_own(const PathStep *s, int group) {
  const int *device = s->groups.device + group * s->groups.size;
  return s->edge.prim == PATH_send_recv && device[0] == device[1];
}

static void print_lines(const Path *p) {
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

static void print_json(const Path *p) {
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
}

// -- rvd -------------------------------------------------------------------------------------

static bool read_dtype(Arena *a, TensorShape *shape, Diag *d) {
  DType dtype;
  if (dtype_parse(dtype_text, &dtype)) {
    shape->bytes = dtype_bytes[dtype];
    return true;
  }
  StrBuf names = {.arena = a};
  for (int i = 0; i < N_DTYPES; i++)
    strbuf_addf(&names, "%s%s", i ? ", " : "", dtype_name[i]);
  diag_error(d, loc_line(a, "--dtype", 0, 0), "there is no type '%s'", dtype_text);
  diag_hint(d, "there are %s", names.at);
  return false;
}

static bool rvd(Arena *a, Diag *d) {
  TensorShape shape;
  Placement from, to;
  const Cluster *c;
  if (!shape_read(shape_text, "--shape", &shape, d) || !read_dtype(a, &shape, d) ||
      !(c = cluster_read(a, cluster_text, "--cluster", d)))
    return false;
  // Both, so that mistakes in both are told at once.
  bool ok = placement_read(a, from_text, "--from", &shape, c, &from, d);
  if (!placement_read(a, to_text, "--to", &shape, c, &to, d) || !ok) return false;
  const Path *p = path_find(paths_new(a, c), &shape, &from, &to);
  if (!p->complete)
    fprintf(stderr, "nnaot-plan: note: not everything was tried, there may be something cheaper\n");
  if (json)
    print_json(p);
  else
    print_lines(p);
  return output_flush(d);
}

static int rvd_main(void) {
  static const char *const needed[] = {"shape", "from", "to"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (!option_given(needed[i])) return usage_error(&program, "rvd needs --%s", needed[i]);
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  bool ok = rvd(a, d);
  diag_free(d);
  arena_free(a);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  static Strings words; // static: what it points to is reachable until the end
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (words.n != 1)
    return usage_error(&program, words.n ? "more than one question" : "no question is given");
  const char *question = words.at[0];
  if (str_equal(question, "rvd")) return rvd_main();
  if (str_equal(question, "schedule") || str_equal(question, "solve") ||
      str_equal(question, "calibrate"))
    return usage_error(&program, "'%s' is not supported yet", question);
  return usage_error(&program, "there is no question '%s'", question);
}
