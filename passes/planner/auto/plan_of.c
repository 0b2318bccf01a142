// Points as texts of --plan, and back: see point.h.
//
//     stages 16, replicas 16, tensor 4, zb-h1, ZeRO 1     pp_zb_h1=16,zero1=16,sp=4
//     one stage, 8 replicas, 2 ranks inside of layers     dp=8,sp=2
//     one stage, 8 replicas                               dp
//     2 stages, 4 replicas, 8 ranks of experts            pp=2,dp=4,ep=8
//     8 stages, layers recomputed                         pp=8,recompute=1
//     and states in host memory                           pp=8,recompute=1,offload=1
//     saved activations in host memory                    pp=8,swap=1
//     4 ranks with 3 stages each, interleaved             pp_interleaved:3

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "point.h"

static const char *const stages_program[N_POINT_KINDS] = {"pp", "pp_zb_h1", "pp_zb_h2",
                                                          "pp_interleaved", "pp_interlaced"};
static const StagedKind schedule[N_POINT_KINDS] = {STAGED_1f1b, STAGED_zb_h1, STAGED_zb_h2,
                                                   STAGED_interleaved, STAGED_1f1b};
static const char *const inner_program[N_POINT_INNERS] = {"sp", "vp", "tp"};
static const char *const replicas_program[] = {"dp", "zero1", "zero2", "zero3"};
static const char *const experts_program[] = {"ep"};
static const char *const context_program[N_POINT_CONTEXTS] = {"cp", "cp_a2a"};
const char *const recompute_program[N_RECOMPUTE_LEVELS] = {
    [RECOMPUTE_attention] = "recompute_attention", [RECOMPUTE_layer] = "recompute"};
const char *const offload_program = "offload", *const swap_program = "swap";
enum { N_ZEROS = sizeof replicas_program / sizeof *replicas_program };

StagedKind point_schedule(const Point *p) {
  return schedule[p->kind];
}

int point_programs(const Point *p) {
  return (p->stages > 1) + (p->replicas > 1) + (p->experts > 1) + (p->context > 1) +
         (p->tensor > 1) + (p->recompute > RECOMPUTE_none) + p->offload + p->swap;
}

const char *point_plan_with(Arena *a, const Point *p, const char *savers) {
  StrBuf b = {.arena = a};
  const struct {
    const char *program;
    int size;
  } axis[] = {{p->chunks > 2 ? str_format(a, "%s:%d", stages_program[p->kind], p->chunks)
                             : stages_program[p->kind],
               p->stages},
              {replicas_program[p->zero], p->replicas},
              {p->capacity ? str_format(a, "ep:%d", p->capacity) : experts_program[0], p->experts},
              {context_program[p->along], p->context},
              {inner_program[p->inner], p->tensor}};
  enum { N = sizeof axis / sizeof *axis };
  int n = point_programs(p) + (*savers != 0);
  for (int i = 0; i < N; i++) {
    if (axis[i].size == 1) continue;
    strbuf_addf(&b, "%s%s", b.n ? "," : "", axis[i].program);
    // The only axis has all ranks.
    if (n > 1) strbuf_addf(&b, "=%d", axis[i].size);
  }
  if (p->recompute > RECOMPUTE_none)
    strbuf_addf(&b, "%s%s=1", b.n ? "," : "", recompute_program[p->recompute]);
  if (p->swap) strbuf_addf(&b, "%s%s=1", b.n ? "," : "", swap_program);
  if (p->offload) strbuf_addf(&b, "%s%s=1", b.n ? "," : "", offload_program);
  return str_format(a, "%s%s", b.n ? b.at : "dp", savers);
}

const char *point_plan(Arena *a, const Point *p) {
  return point_plan_with(a, p, "");
}

bool point_equal(const Point *p, const Point *q) {
  return p->stages == q->stages && p->replicas == q->replicas && p->tensor == q->tensor &&
         p->context == q->context && p->experts == q->experts &&
         p->micro_batches == q->micro_batches && p->kind == q->kind && p->chunks == q->chunks &&
         p->inner == q->inner && p->zero == q->zero && p->along == q->along &&
         p->capacity == q->capacity && p->recompute == q->recompute && p->offload == q->offload &&
         p->swap == q->swap && p->fewest == q->fewest;
}

// Returns the number of the name of `n` bytes among `names`, or -1.
static int find_name(const char *const *names, int n_names, const char *name, size_t n) {
  for (int i = 0; i < n_names; i++)
    if (strlen(names[i]) == n && !strncmp(names[i], name, n)) return i;
  return -1;
}

// A program of a plan's text: "zero1=16", "ep:150=8", "pp_interleaved:3=8", "sp".
typedef struct PlanProgram {
  const char *name;
  size_t n;   // bytes of the name
  int number; // after the name: capacity of expert ranks, chunks of interleaved stages; 0: none
  int size;   // ranks; 0: those that the others leave
} PlanProgram;

// Reads a number of at least 1. *at: the byte after it.
static bool read_number(const char **at, int *out) {
  char *end;
  long number = strtol(*at, &end, 10);
  *at = end;
  *out = (int)number;
  return number >= 1 && number <= INT_MAX;
}

// Reads a program:  name [":" number] ["=" size] ("," | end).  *at: the next one.
static bool read_program(const char **at, PlanProgram *out) {
  *out = (PlanProgram){.name = *at, .n = strcspn(*at, ":=,")};
  *at += out->n;
  if (**at == ':') {
    ++*at;
    if (!read_number(at, &out->number)) return false;
  }
  if (**at == '=') {
    ++*at;
    if (!read_number(at, &out->size)) return false;
  }
  if (**at && **at != ',') return false;
  *at += **at == ',';
  return true;
}

// Reads the numbers of axes in any order. *in_order: theirs is the point's.
static bool read_numbers(const char *plan, int64_t ranks, int64_t micro_batches, Point *out,
                         bool *in_order) {
  Point p = {.stages = 1, .replicas = 1, .tensor = 1, .context = 1, .experts = 1, .chunks = 1};
  int kind = 0, zero = 0, expert = 0, along = 0, inner = 0, chunks = 2;
  const struct {
    const char *const *program;
    int n, *number, *size;
  } axis[] = {{stages_program, N_POINT_KINDS, &kind, &p.stages},
              {replicas_program, N_ZEROS, &zero, &p.replicas},
              {experts_program, 1, &expert, &p.experts},
              {context_program, N_POINT_CONTEXTS, &along, &p.context},
              {inner_program, N_POINT_INNERS, &inner, &p.tensor}};
  enum { N_AXES = sizeof axis / sizeof *axis };
  int64_t left = ranks;
  int *open = NULL; // the axis that takes the ranks that the others leave
  int last = -1;    // the axis before
  *in_order = true;
  while (*plan) {
    PlanProgram q;
    if (!read_program(&plan, &q)) return false;
    // Recomputation of all layers, and offloaded states, have an axis of size 1.
    int level = 1 + find_name(recompute_program + 1, N_RECOMPUTE_LEVELS - 1, q.name, q.n);
    if (level > RECOMPUTE_none) {
      if (p.recompute > RECOMPUTE_none || q.size != 1 || q.number) return false;
      p.recompute = (RecomputeLevel)level;
      continue;
    }
    if (find_name(&offload_program, 1, q.name, q.n) == 0) {
      if (p.offload || q.size != 1 || q.number) return false;
      p.offload = true;
      continue;
    }
    int k = 0, number = -1;
    while (k < N_AXES && (number = find_name(axis[k].program, axis[k].n, q.name, q.n)) < 0)
      k++;
    if (k == N_AXES || *axis[k].size != 1 || axis[k].size == open) return false;
    *axis[k].number = number;
    *in_order &= k > last;
    last = k;
    int *own = axis[k].size == &p.experts              ? &p.capacity
               : number == POINT_interleaved && k == 0 ? &chunks
                                                       : NULL;
    if (q.number && !own) return false;
    if (q.number) *own = q.number;
    if (q.size ? left % q.size != 0 : open != NULL) return false;
    if (!q.size) open = axis[k].size;
    if (q.size) left /= *axis[k].size = q.size;
  }
  if (open) *open = (int)left;
  if (!open && left != 1) return false;
  p.micro_batches = micro_batches;
  p.kind = (PointKind)kind;
  p.zero = zero;
  p.along = (PointContext)along;
  p.inner = (PointInner)inner;
  p.chunks = p.kind == POINT_interleaved ? chunks : 1;
  if (chunks < 2) return false;
  *out = p;
  return true;
}

bool point_of_plan(const char *plan, int64_t ranks, int64_t micro_batches, Point *out) {
  bool in_order;
  return read_numbers(plan, ranks, micro_batches, out, &in_order) && in_order;
}

bool plan_numbers(const char *plan, int64_t ranks, int64_t micro_batches, Point *out) {
  bool in_order;
  return read_numbers(plan, ranks, micro_batches, out, &in_order);
}
