// --traffic: the bytes sent in a step, of all ranks together, by kind of collective.  See
// traffic.h.
//
//     {"ranks": 4, "steps": 3,
//      "comm_bytes": {"all_reduce": 1648, "all_gather": 0, "reduce_scatter": 0, "all_to_all": 0,
//                     "move": 0},
//      "sends": [{"kind": "all_reduce", "phase": "micro", "calls": 4, "bytes": 1600},
//                {"kind": "all_reduce", "phase": "update", "calls": 4, "bytes": 48}]}
//
// `steps` is the number of counted steps; everything else is per step.  Every step calls the same
// collectives, so the total is divisible by it.

#include "traffic.h"

#include <stdlib.h>

#include "comm.h"
#include "host_traffic.h"

void nnrt_traffic_open(NnrtRank *r) {
  Traffic *t = &r->comm->traffic;
  // A surplus process, which is no rank of the program, has no code either.
  int pieces = r->code ? nnrt_pieces(r, &r->code->train) : 0;
  // A recorded piece counts its own calls, and adds them each time that it runs.
  t->piece = nnrt_must_alloc((size_t)pieces * sizeof *t->piece);
  t->into = &t->total;
  nnrt_host_traffic_open(r);
}

void nnrt_traffic_close(NnrtRank *r) {
  free(r->comm->traffic.piece);
}

static bool is_counted(const NnrtRank *r) {
  return r->graph == &r->program->train;
}

void nnrt_traffic_piece(NnrtRank *r) {
  Traffic *t = &r->comm->traffic;
  if (!is_counted(r)) return;
  t->into = &t->piece[r->piece];
  *t->into = (Tally){0};
}

void nnrt_traffic_moves(NnrtRank *r) {
  nnrt_traffic_phase(r, TRAFFIC_micro);
  r->comm->traffic.into = &r->comm->traffic.total;
}

void nnrt_traffic_phase(NnrtRank *r, int phase) {
  r->comm->traffic.phase = phase;
}

void nnrt_traffic_count(NnrtRank *r, int group, JobKind kind, int64_t ndim, const int64_t *dims,
                        int64_t size) {
  Traffic *t = &r->comm->traffic;
  int ranks = r->comm->group[group].n;
  if (ranks == 1 || !is_counted(r)) return;
  // The larger of the two buffers counts: of an all_gather the result.
  const JobShape *shape = &nnrt_job_shape[kind];
  int64_t bytes = shape->y_parts && !shape->x_parts ? size * ranks : size;
  for (int64_t d = 0; d < ndim; d++)
    bytes *= dims[d];
  t->into->at[kind][t->phase].calls++;
  t->into->at[kind][t->phase].bytes += bytes;
  nnrt_host_traffic_count(r, group, kind, bytes);
}

void nnrt_traffic_move(NnrtRank *r, int move, int64_t size) {
  Traffic *t = &r->comm->traffic;
  const Route *route = &r->comm->route[move];
  if (!is_counted(r)) return;
  t->into->at[JOB_move][t->phase].calls += route->n_give;
  t->into->at[JOB_move][t->phase].bytes += route->given * size;
}

void nnrt_traffic_ran(NnrtRank *r) {
  Traffic *t = &r->comm->traffic;
  if (!is_counted(r)) return;
  const Tally *piece = &t->piece[r->piece];
  // The piece was counted when it was recorded; each run adds the same.
  for (int k = 0; k < N_JOB_KINDS; k++)
    for (int p = 0; p < N_TRAFFIC_PHASES; p++) {
      t->total.at[k][p].calls += piece->at[k][p].calls;
      t->total.at[k][p].bytes += piece->at[k][p].bytes;
    }
}

void nnrt_traffic_step(NnrtRank *r) {
  if (!is_counted(r)) return;
  r->comm->traffic.steps++;
  nnrt_host_traffic_step(r);
}

// ---- the file

static const char *const phase_name[] = {"begin", "micro", "update"};

bool nnrt_traffic_write(NnrtRank *r, const char *path, Why *w) {
  const Traffic *t = &r->comm->traffic;
  Tally all = t->total;
  nnrt_comm_sum(r, (int64_t *)(void *)&all, sizeof all / sizeof(int64_t));
  if (r->rank != 0) return true;
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) nnrt_must_alloc((size_t)-1);
  int64_t steps = t->steps ? t->steps : 1;
  fprintf(f, "{\n  \"ranks\": %d,\n  \"steps\": %lld,\n  \"comm_bytes\": {", r->ranks,
          (long long)t->steps);
  // Totals per kind, then calls and bytes per kind and phase; all per step.
  for (int k = 0; k < N_JOB_KINDS; k++) {
    int64_t bytes = 0;
    for (int p = 0; p < N_TRAFFIC_PHASES; p++)
      bytes += all.at[k][p].bytes;
    fprintf(f, "%s\"%s\": %lld", k ? ", " : "", nnrt_job_shape[k].name, (long long)(bytes / steps));
  }
  fputs("},\n  \"sends\": [", f);
  // Kinds and phases without calls are left out.
  bool first = true;
  for (int k = 0; k < N_JOB_KINDS; k++)
    for (int p = 0; p < N_TRAFFIC_PHASES; p++) {
      if (all.at[k][p].calls == 0) continue;
      fprintf(f, "%s\n    {\"kind\": \"%s\", \"phase\": \"%s\", \"calls\": %lld, \"bytes\": %lld}",
              first ? "" : ",", nnrt_job_shape[k].name, phase_name[p],
              (long long)(all.at[k][p].calls / steps), (long long)(all.at[k][p].bytes / steps));
      first = false;
    }
  fputs("\n  ]\n}\n", f);
  nnrt_must_close(f, &text);
  OutFile o = {.fd = -1};
  bool ok = nnrt_out_begin(&o, path, w) && nnrt_out_write(&o, text, (int64_t)n, w);
  free(text);
  if (ok) return nnrt_out_commit(&o, w);
  nnrt_out_abandon(&o);
  return false;
}
