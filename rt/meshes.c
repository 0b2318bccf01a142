// Which ranks there are, on which meshes, and where on them.
//
// A mesh lists its ranks, row-major over the axes that are not time.  On ranks 4 5 6 7 8 9 and axes
// a=2, t=2 (of time), b=3 rank 7 is at a=1, b=0, and at t=0 or t=1, whichever slice it is at.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"

int nnrt_mesh_place(const NnrtMesh *m, int rank) {
  for (int i = 0; i < m->n_ranks; i++)
    if (m->rank[i] == rank) return i;
  return -1;
}

void nnrt_mesh_coord(const NnrtMesh *m, int place, int *coord) {
  for (int a = m->n_axes - 1; a >= 0; a--) {
    coord[a] = m->axis[a].time ? 0 : place % m->axis[a].size;
    if (!m->axis[a].time) place /= m->axis[a].size;
  }
}

bool nnrt_on_mesh(const NnrtRank *r, int mesh) {
  return nnrt_mesh_place(&r->program->mesh[mesh], r->rank) >= 0;
}

// Slice `micro` of time: the axes of time count like digits, the last one fastest.
static void set_slice(const NnrtMesh *m, int micro, int *coord) {
  for (int a = m->n_axes - 1; a >= 0; a--)
    if (m->axis[a].time) {
      coord[a] = micro % m->axis[a].size;
      micro /= m->axis[a].size;
    }
}

void nnrt_set_coords(NnrtRank *r) {
  const NnrtProgram *p = r->program;
  bool first = !r->coord;
  if (first) r->coord = nnrt_must_alloc((size_t)p->n_mesh * sizeof *r->coord);
  for (int m = 0; m < p->n_mesh; m++) {
    int place = first ? nnrt_mesh_place(&p->mesh[m], r->rank) : -1;
    if (first) memset(r->coord[m], -1, sizeof r->coord[m]);
    if (place >= 0) nnrt_mesh_coord(&p->mesh[m], place, r->coord[m]);
    set_slice(&p->mesh[m], r->micro, r->coord[m]);
  }
}

const NnrtCode *nnrt_code_of(const NnrtProgram *p, int rank) {
  return &p->code[p->code_of ? p->code_of[rank] : 0];
}

static uint64_t add_key(uint64_t key, const void *data, size_t n) {
  return nnrt_xxh64(data, (int64_t)n, key);
}

static uint64_t add_text(uint64_t key, const char *text) {
  return text ? add_key(key, text, strlen(text)) : key;
}

static uint64_t add_mesh(uint64_t key, const NnrtMesh *m) {
  for (int a = 0; a < m->n_axes; a++)
    key = add_key(key, &m->axis[a].size, sizeof m->axis[a].size);
  return add_key(key, m->rank, (size_t)m->n_ranks * sizeof *m->rank);
}

static uint64_t add_tensor(uint64_t key, const NnrtTensor *t) {
  const int64_t kinds[] = {t->role, t->dtype, t->rank, t->mesh, t->train, t->init, t->init_seed};
  const double numbers[] = {t->a, t->b};
  key = add_text(key, t->name);
  key = add_key(key, kinds, sizeof kinds);
  key = add_key(key, numbers, sizeof numbers);
  key = add_key(key, t->dim, (size_t)t->rank * sizeof *t->dim);
  return add_key(key, t->split, sizeof t->split);
}

// A number that is, as good as certain, another one for programs whose ranks do not fit together.
static uint64_t program_key(const NnrtProgram *p) {
  const int64_t sizes[] = {p->ranks,   p->micro_batches,  p->batch,           p->n_mesh,
                           p->n_moves, p->n_groups,       p->train.n_tensors, p->eval.n_tensors,
                           p->seed,    p->skeleton_bytes, p->n_holes};
  uint64_t key = add_key(0, sizes, sizeof sizes);
  key = add_key(key, &p->lr, sizeof p->lr);
  key = add_text(key, p->lr_schedule);
  key = add_text(key, p->describe);
  for (int i = 0; i < p->n_mesh; i++)
    key = add_mesh(key, &p->mesh[i]);
  for (int i = 0; i < p->train.n_tensors; i++)
    key = add_tensor(key, &p->train.tensors[i]);
  for (int i = 0; i < p->eval.n_tensors; i++)
    key = add_tensor(key, &p->eval.tensors[i]);
  return key;
}

void nnrt_program_terms(const NnrtProgram *p, Terms *t) {
  nnrt_terms_add(t, "the version of nnaot", "%s", p->version);
  nnrt_terms_add(t, "the model", "'%s'", p->model);
  nnrt_terms_add(t, "the number of ranks", "%d", p->ranks);
  nnrt_terms_add(t, "the plan", "'%s'", p->plan);
  nnrt_terms_add(t, "the target", "%s", p->target);
  nnrt_terms_add(t, "the program", "%016llx", (unsigned long long)program_key(p));
}
