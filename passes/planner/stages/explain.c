// Explains the stage of an op: the cost of its unit on the next stage.
//
//     place: linear, gpt3.nn:/h5/up: unit 6 of 14, stage 2 of 4, ranks 2-3 of pp
//       the slowest stage is 4, and takes 12.310 ms; this one takes 11.902 ms
//       stage 4: 1.302 ms of lead, fill, drain and tail, 8 x 1.320 ms, 0.448 ms after the loop
//       stage 2: 1.100 ms of lead, fill, drain and tail, 8 x 1.301 ms, 0.394 ms after the loop
//       with this unit, and 1 after it, on stage 3: 13.520 ms, stage 3 would be the slowest
//
// The units of its stage that read its results move with it.

#include "ir/analysis/op_names.h"
#include "ir/op.h"
#include "ir/op_display_name.h"
#include "ir/text.h"
#include "ir/verify/verify.h"
#include "placing.h"

enum { MAX_EXPLAINED = 8 }; // units

// Returns the number of the stage, from 1 in the order of the ranks.
static int stage_number(const Placing *p, int run) {
  int n = 0;
  for (int rank = 0; rank <= p->run[run].first; rank += placing_run_at(p, rank)->n)
    n++;
  return n;
}

static int slowest_run(const Placing *p, const Load *load) {
  int slowest = 0;
  for (int r = 1; r < p->n_runs; r++)
    if (load->seconds[r] > load->seconds[slowest]) slowest = r;
  return slowest;
}

static void explain_next(const Placing *p, int unit, StrBuf *out) {
  const Run *run = &p->run[p->run_of[unit]];
  if (run->first + run->n == p->n_ranks) {
    strbuf_add(out, "  it is the last stage\n");
    return;
  }
  int next = (int)(placing_run_at(p, run->first + run->n) - p->run);
  int *run_of = arena_copy(out->arena, p->run_of, (size_t)p->units.n * sizeof *run_of);
  // The units of its stage that depend on it move with it.
  int own = run_of[unit], more = 0;
  run_of[unit] = next;
  for (int i = unit; i < p->units.n; i++) {
    bool behind = i == unit;
    for (int f = 0; f < p->loads->p.n_flows && !behind; f++) {
      const Flow *flow = &p->loads->p.flow[f];
      for (int k = 0; k < flow->n_readers && run_of[flow->from] == next; k++)
        behind |= flow->reader[k] == i && flow->from >= unit;
    }
    if (!behind || run_of[i] != own) continue;
    run_of[i] = next;
    more++;
  }
  strbuf_addf(out, "  with this unit%s on stage %d: ",
              more ? str_format(out->arena, ", and %d after it,", more) : "",
              stage_number(p, next));
  // A stage needs a unit.
  if (!partition_legal(&p->loads->p, run_of)) {
    strbuf_add(out, "nothing would be left on its own\n");
    return;
  }
  Load load = placing_load(p, run_of);
  strbuf_addf(out, "%.6f ms, stage %d would be the slowest%s\n", load.slowest * 1e3,
              stage_number(p, slowest_run(p, &load)),
              load.fits ? "" : ", and it would not fit into memory");
}

// The parts of the times of a stage and of the slowest one.
static void explain_parts(const Placing *p, int run, int slowest, StrBuf *out) {
  int *first = arena_array(out->arena, int, p->n_runs);
  for (int u = p->units.n - 1; u >= 0; u--)
    first[p->run_of[u]] = u;
  const ChainStage *stage = chain_price(out->arena, p->chain, first);
  for (int i = 0; i < (run == slowest ? 1 : 2); i++) {
    const ChainStage *x = &stage[i ? run : slowest];
    strbuf_addf(out,
                "  stage %d: %.6f ms of lead, fill, drain and tail, %.0f x %.6f ms, %.6f ms after "
                "the loop\n",
                (i ? run : slowest) + 1, x->lead * 1e3, p->chain->slices, x->slice * 1e3,
                x->sums * 1e3);
  }
}

static void explain_op(const Placing *p, const Op *op, StrBuf *out) {
  Arena *a = out->arena;
  const char *axis = p->s->mesh->axis[p->axis].name;
  int unit = p->units.of_op[op->id];
  const char *place = op_full_place(a, op);
  strbuf_addf(out, "place: %s%s%s: ", op_info[op->kind].name, *place ? ", " : "", place);
  // Held ops and ops without a unit are on no stage.
  if (unit < 0) {
    strbuf_add(out,
               unit == UNIT_held ? "stays where the program has it\n" : "runs where it is read\n");
    return;
  }
  int run = p->run_of[unit], n_stages = 0, slowest = slowest_run(p, &p->load);
  for (int rank = 0; rank < p->n_ranks; rank += placing_run_at(p, rank)->n)
    n_stages++;
  strbuf_addf(out, "unit %d of %d, stage %d of %d, ", unit + 1, p->units.n, stage_number(p, run),
              n_stages);
  if (p->run[run].n == 1)
    strbuf_addf(out, "rank %d of %s\n", p->run[run].first, axis);
  else
    strbuf_addf(out, "ranks %d-%d of %s\n", p->run[run].first,
                p->run[run].first + p->run[run].n - 1, axis);
  strbuf_addf(out, "  the slowest stage is %d, and takes %.6f ms; this one takes %.6f ms\n",
              stage_number(p, slowest), p->load.seconds[slowest] * 1e3, p->load.seconds[run] * 1e3);
  if (p->chain) explain_parts(p, run, slowest, out);
  explain_next(p, unit, out);
}

const char *placing_explain(const Placing *p, const char *what) {
  StrBuf b = {.arena = p->s->scratch};
  int n = 0;
  for_each_op(op, p->s->g) {
    if (n == MAX_EXPLAINED || op->part != PART_forward || !op_is_meant(op, what, b.arena)) continue;
    explain_op(p, op, &b);
    n++;
  }
  return b.at;
}
