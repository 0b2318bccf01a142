// The probes of calibrate, and the module that runs them: see calibrate.h.
//
//     %x1 = reduce_sum %w1 axes=[0] : f32[1024] @g4 {P} split=[a]          a partial sum as operand
//     %y1 = all_reduce %x1 axis="g" : f32[1024] @g4 {B}  # calibrate:all_reduce.4.4096
//     %z1 = sum_squares %y1 …                                              a reader, which waits
//
// Groups are along axis g.  A mesh @g4 (o=…, g=4, i=1) has groups of neighbours, and @across2 (o=1,
// g=2, i=…) groups of one rank of each node.

#include <inttypes.h>
#include <string.h>

#include "calibrate.h"
#include "ir/collective.h"
#include "ir/op.h"

const char *const probe_name[N_PROBE_KINDS] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) #op,
#include "rt/collectives.def"
    "tiny",
    "stream",
    "f32",
    "half",
};

bool probe_is_collective(ProbeKind kind) {
  return kind < PROBE_tiny;
}

// -- Probes ------------------------------------------------------------------------------------

static void add_collectives(Arena *a, int size, bool across, Probes *out) {
  for (int kind = 0; probe_is_collective((ProbeKind)kind); kind++)
    for (int64_t bytes = 1 << 10; bytes <= 1 << 22; bytes <<= 3) {
      // Both dimensions of the tensor are split.
      int64_t least = 4 * (int64_t)size * size, whole = (bytes + least - 1) / least * least;
      vec_push(a, out,
               (Probe){.kind = (ProbeKind)kind,
                       .name = str_format(a, "%s.%s%d.%" PRId64, probe_name[kind],
                                          across ? "across" : "", size, whole),
                       .size = size,
                       .across = across,
                       .bytes = whole});
    }
}

Probes calibrate_probes(Arena *a, const Machine *machine) {
  Probes out = {0};
  int nodes = machine->ranks / machine->per_node;
  // Kernels: launches, memory traffic, and matrix products.
  enum { TINIES = 4, STREAM = 1 << 23 };
  // The larger ones are for GPUs.
  static const int64_t products[] = {128, 256, 512, 1024, 2048, 4096, 8192};
  int n_products = target_info[machine->target.target].gpu ? 7 : 4;
  for (int i = 0; i < TINIES; i++)
    vec_push(a, &out, (Probe){.kind = PROBE_tiny, .name = str_format(a, "tiny.%d", i)});
  vec_push(a, &out, (Probe){.kind = PROBE_stream, .name = "stream", .bytes = 3 * (int64_t)STREAM});
  for (int kind = PROBE_f32; kind <= PROBE_half; kind++)
    // CPUs compute 16-bit types in f32.
    for (int i = 0;
         i < n_products && (kind == PROBE_f32 || target_info[machine->target.target].half); i++)
      vec_push(a, &out,
               (Probe){.kind = (ProbeKind)kind,
                       .name = str_format(a, "%s.%" PRId64, probe_name[kind], products[i]),
                       .m = products[i]});
  for (int size = 2; size <= machine->per_node; size++)
    if (machine->per_node % size == 0) add_collectives(a, size, false, &out);
  for (int size = 2; size <= nodes; size++)
    if (nodes % size == 0) add_collectives(a, size, true, &out);
  return out;
}

// -- The module --------------------------------------------------------------------------------

typedef struct Text {
  StrBuf meshes, params, ops, results;
  int n;
} Text;

static void add_mesh(Text *t, const Machine *machine, int size, bool across) {
  StrBuf *b = &t->meshes;
  // Groups of neighbours have axis g innermost, as i has size 1; groups of ranks of different nodes
  // have it in the middle.
  int inside = across ? machine->per_node : 1, outside = machine->ranks / size / inside;
  strbuf_addf(b, "mesh @%s%d devices=0-%d (o=%d, g=%d, i=%d)\n", across ? "across" : "g", size,
              machine->ranks - 1, outside, size, inside);
}

static void add_parameter(Text *t, const char *name, int n, const char *type, const char *layout) {
  strbuf_addf(&t->params, "%s  %%%s%d: %s %s weight \"%s%d\" = 0.5", t->params.n ? ",\n" : "", name,
              n, type, layout, name, n);
}

// Adds a reader of a probe's result, and makes it an output, so that no op is dead.
static void add_reader(Text *t, int n, const char *mesh, const char *layout, const char *split) {
  strbuf_addf(&t->ops, "  %%z%d = sum_squares %%y%d : f32[] @%s {B, %s, B}%s\n", n, n, mesh, layout,
              split);
  // The sum of a split result has a reader, too: it would be under way together with the next
  // probe, whose time would be short.
  if (*split)
    strbuf_addf(&t->ops,
                "  %%s%d = all_reduce %%z%d axis=\"g\" : f32[] @%s {B, B, B}\n"
                "  %%r%d = sum_squares %%s%d : f32[] @%s {B, B, B}\n",
                n, n, mesh, n, n, mesh);
  strbuf_addf(&t->results, "%s output \"%s\" %%%c%d", t->n ? "," : "",
              t->n ? str_format(t->ops.arena, "probe%d", n) : "loss", *split ? 'r' : 'z', n);
  t->n++;
}

// Adds a collective and its operand: a partial sum f32[rows, columns] over the group, or a shard.
static void add_collective(Text *t, const Probe *p, int n) {
  Arena *a = t->ops.arena;
  const char *mesh = str_format(a, "%s%d", p->across ? "across" : "g", p->size);
  int64_t rows = p->size, columns = p->bytes / 4 / rows, part = columns / p->size;
  const char *whole = str_format(a, "f32[%" PRId64 ",%" PRId64 "]", rows, columns);
  const char *row = str_format(a, "f32[1,%" PRId64 "]", columns);
  const char *column = str_format(a, "f32[%" PRId64 ",%" PRId64 "]", rows, part);
  const char *at = str_format(a, "# calibrate:%s", p->name);
  static const OpKind ops[] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) [PROBE_##op] = OP_##op,
#include "rt/collectives.def"
  };
  const CollectiveRule *rule = collective_rule(ops[p->kind]);
  // A collective that reduces needs a partial sum as operand, others a shard or the whole.
  if (rule->from == SBP_P) {
    add_parameter(t, "w", n, str_format(a, "f32[1,%" PRId64 ",%" PRId64 "]", rows, columns),
                  str_format(a, "@%s {B, S(0), B}", mesh));
    strbuf_addf(&t->ops, "  %%x%d = reduce_sum %%w%d axes=[0] : %s @%s {B, P, B} split=[-,a,-]\n",
                n, n, whole, mesh);
  } else if (rule->from_dim)
    add_parameter(t, "x", n, row, str_format(a, "@%s {B, S(0), B}", mesh));
  else
    add_parameter(t, "x", n, whole, str_format(a, "@%s {B, B, B}", mesh));
  strbuf_addf(&t->ops, "  %%y%d = %s %%x%d axis=\"g\"", n, op_info[rule->op].name, n);
  // A split operand is of rows; a result is whole, of rows, or of columns if the operand is of
  // rows.
  int dim = rule->from_dim ? 1 : 0;
  if (rule->from_dim) strbuf_addf(&t->ops, " %s=0", rule->from_dim);
  if (rule->to_dim) strbuf_addf(&t->ops, " %s=%d", rule->to_dim, dim);
  if (rule->to_dim) {
    strbuf_addf(&t->ops, " : %s @%s {B, S(%d), B} %s\n", dim ? column : row, mesh, dim, at);
    add_reader(t, n, mesh, "P", str_format(a, " split=[-,%d,-]", dim));
  } else {
    strbuf_addf(&t->ops, " : %s @%s {B, B, B} %s\n", whole, mesh, at);
    add_reader(t, n, mesh, "B", "");
  }
}

const char *calibrate_module(Arena *a, const Machine *machine, const Probes *probes) {
  Text t = {{.arena = a}, {.arena = a}, {.arena = a}, {.arena = a}, 0};
  int nodes = machine->ranks / machine->per_node;
  strbuf_addf(&t.meshes,
              "module \"calibrate\" phase=local\nmesh @all devices=0-%d (o=%d, g=1, i=1)\n",
              machine->ranks - 1, machine->ranks);
  // The meshes of all group sizes, as in calibrate_probes.
  for (int size = 2; size <= machine->per_node; size++)
    if (machine->per_node % size == 0) add_mesh(&t, machine, size, false);
  for (int size = 2; size <= nodes; size++)
    if (nodes % size == 0) add_mesh(&t, machine, size, true);
  for (int i = 0; i < probes->n; i++) {
    const Probe *p = &probes->at[i];
    if (probe_is_collective(p->kind)) {
      add_collective(&t, p, i);
      continue;
    }
    // A kernel: its operands, and a reader of its result.
    bool product = p->kind == PROBE_f32 || p->kind == PROBE_half;
    const char *dtype = p->kind == PROBE_half ? "bf16" : "f32";
    int64_t length = p->kind == PROBE_stream ? p->bytes / 12 : 16;
    const char *type = product ? str_format(a, "%s[%" PRId64 ",%" PRId64 "]", dtype, p->m, p->m)
                               : str_format(a, "f32[%" PRId64 "]", length);
    add_parameter(&t, "v", i, type, "{B, B, B}");
    add_parameter(&t, "w", i, type, "{B, B, B}");
    strbuf_addf(&t.ops, "  %%%c%d = %s %%v%d, %%w%d : %s {B, B, B} # calibrate:%s\n",
                p->kind == PROBE_half ? 'h' : 'y', i, product ? "linear" : "add", i, i, type,
                p->name);
    if (p->kind == PROBE_half)
      strbuf_addf(&t.ops, "  %%y%d = cast %%h%d to=f32 : f32[%" PRId64 ",%" PRId64 "] {B, B, B}\n",
                  i, i, p->m, p->m);
    strbuf_addf(&t.ops, "  %%z%d = sum_squares %%y%d : f32[] {B, B, B}\n", i, i);
    strbuf_addf(&t.results, "%s output \"%s\" %%z%d", t.n ? "," : "",
                t.n ? str_format(a, "probe%d", i) : "loss", i);
    t.n++;
  }
  strbuf_addf(&t.meshes, "\ngraph @main entry (\n%s\n) {\n%s  return%s\n}\n", t.params.at, t.ops.at,
              t.results.at);
  return t.meshes.at;
}
