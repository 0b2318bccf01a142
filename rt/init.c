// Initial contents of weights and states: from the payload, one value, or drawn.  Drawn numbers
// depend on seed, name and logical element, so every rank draws its own part of the same tensor.

#include <string.h>

#include "nnrt_random.h"
#include "runtime.h"

static void init_drawn(char *to, const NnrtTensor *t, const Part *part, int64_t seed) {
  int64_t key = nnrt_random_key(t->name);
  Runs runs = nnrt_part_runs(t->rank, t->dim, part->start, part->size);
  for (int64_t i = 0; i < runs.n; i++) {
    int64_t first = nnrt_run_start(&runs, i);
#pragma omp parallel for if (runs.length > 4096)
    for (int64_t j = 0; j < runs.length; j++) {
      double x = t->init == NNRT_from_normal
                     ? t->a + t->b * nnrt_random_normal(seed, 0, key, first + j)
                     : t->a + (t->b - t->a) * nnrt_random_uniform(seed, 0, key, first + j);
      nnrt_element_set(to, t->dtype, i * runs.length + j, x);
    }
  }
}

void nnrt_init_tensors(NnrtRank *r, int64_t seed) {
  const NnrtGraph *g = &r->program->train;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_lasts(t)) continue;
    Part part = nnrt_tensor_part(t, r->program, r->coord);
    char *to = r->slab + t->offset;
    int64_t n = nnrt_part_count(t, &part);
    if (n == 0) continue;
    switch (t->init) {
    case NNRT_from_payload: nnrt_part_from_whole(to, r->run->payload + t->payload, t, &part); break;
    case NNRT_from_fill:
      for (int64_t j = 0; j < n; j++)
        nnrt_element_set(to, t->dtype, j, t->a);
      break;
    case NNRT_from_normal:
    case NNRT_from_uniform:
      // The compiled seed, until --seed says something else than the compiled default.
      init_drawn(to, t, &part,
                 (int64_t)((uint64_t)t->init_seed + (uint64_t)seed - (uint64_t)r->program->seed));
      break;
    }
  }
}
