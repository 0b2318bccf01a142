// Candidate runs of stages: neighbouring ranks of the axis that may be one stage.
//
//     4 ranks, any stages        0  1  2  3   0-1  1-2  2-3   0-2 1-3   0-3     (those that share the rows)
//     4 ranks, 2 stages          0-1  2-3     and all others of at most 3 ranks
//     2 chunks on each of 2      stages 0 and 2 on rank 0, 1 and 3 on rank 1;  back: 0 and 3, 1 and 2

#include "placing.h"

enum { MAX_RUNS = 160, MANY_RANKS = 12 };

typedef Vec(Run) Runs;

bool placing_shares(const Placing *p, int n) {
  return loads_split_batch(p->s, p->axis, &p->units, p->batch, n);
}

static void add_run(Placing *p, Runs *out, int first, int n) {
  vec_push(p->s->scratch, out, (Run){first, n});
}

void placing_find_runs(Placing *p, const StageOptions *w) {
  Runs out = {0};
  if (w->size) {
    // The sizes of the program, one after the other.
    for (int i = 0, first = 0; i < w->n; first += w->size[i++])
      add_run(p, &out, first, w->size[i]);
  } else {
    // All runs with a length that shares the batch; with many ranks, only lengths that are powers
    // of two, at multiples of their length.
    int most = w->n ? p->n_ranks - w->n + 1 : p->n_ranks;
    bool few = p->n_ranks > MANY_RANKS;
    for (int n = 1; n <= most; n++) {
      if ((few && (n & (n - 1))) || !placing_shares(p, n)) continue;
      for (int first = 0; first + n <= p->n_ranks; first += few ? n : 1)
        add_run(p, &out, first, n);
    }
  }
  // Too many runs for this number of stages: only stages of equal length.
  if (!w->size && w->n && out.n > MAX_RUNS && p->n_ranks % w->n == 0) {
    out.n = 0;
    for (int i = 0; i < w->n; i++)
      add_run(p, &out, i * (p->n_ranks / w->n), p->n_ranks / w->n);
  }
  p->run = out.at;
  p->n_runs = out.n;
}

// -- Chunks --------------------------------------------------------------------------------------

void placing_chunk_loads(Placing *p, const Run *on) {
  Partition *q = &p->loads->p;
  int n = p->n_runs;
  for (int i = 0; i < n; i++) {
    q->limit[i] /= p->wish->chunks;
    for (int k = i + 1; k < n; k++) {
      // A later stage on an earlier rank.
      if (on[k].first >= on[i].first) continue;
      int at = i * n + k, other = on[k].first * n + on[i].first;
      q->start[at] = q->start[other];
      q->by_batch[at] = q->by_batch[other];
      q->by_whole[at] = q->by_whole[other];
    }
  }
  q->run = p->run;
  q->n_ranks = p->n_ranks;
}

Run *placing_chunk_runs(Placing *p) {
  int n = p->n_ranks, n_ranks = n / p->wish->chunks;
  Run *own = arena_array(p->s->scratch, Run, n), *on = arena_array(p->s->scratch, Run, n);
  for (int i = 0; i < n; i++) {
    // In rounds, or there and back.
    int rank = i % n_ranks;
    bool back = p->wish->back && i / n_ranks % 2;
    own[i] = (Run){i, 1};
    on[i] = (Run){back ? n_ranks - 1 - rank : rank, 1};
  }
  p->run = own;
  p->n_runs = n;
  return on;
}
