// See sections.h.

#include "sections.h"

#include "sharding/assign.h"
#include "sharding/propagate.h"

static bool open_section(Arena *scratch, const MeshAxis *axis, const char *name, Section *out,
                         Diag *d) {
  Factors *all = arena_array(scratch, Factors, MAX_FACTORINGS);
  *out = (Section){.name = name, .program = program_open(scratch, name, d), .factoring = all};
  if (!out->program) return false;
  out->n_factorings = program_factors(out->program, axis->size, all);
  return out->n_factorings > 0;
}

bool sections_open(Arena *scratch, const Mesh *mesh, const char *plan, Sections *out, Diag *d) {
  int n_devices = 0;
  *out = (Sections){.mesh = mesh};
  for (int a = 0; a < mesh->n_axes; a++) {
    const MeshAxis *axis = &mesh->axis[a];
    const char *name = axis->time ? "dp" : plan_program(scratch, plan, n_devices++);
    if (!open_section(scratch, axis, name, &out->at[out->n++], d)) {
      sections_close(out);
      return false;
    }
  }
  return true;
}

void sections_close(const Sections *s) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i].program) program_close(s->at[i].program);
}

// The section of an axis of the mesh under construction.
static int section_of(const Sections *s, int axis) {
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->at[i].n; k++)
      if (s->at[i].axis[k] == axis) return i;
  BUG("an axis of no section");
}

// Reports a duplicate axis name. Names come from programs, files, and the results of `factors`.
static bool named_twice(const Sections *all, const char *name, int before, int section, Diag *d) {
  diag_error(d, NULL, "two axes of the plan are called '%s', of '%s' and of '%s'", name,
             all->mesh->axis[section_of(all, before)].name, all->mesh->axis[section].name);
  diag_hint(d, "a file's name is its axis's, where the second list that its 'factors' returns "
               "has no other");
  return false;
}

// Adds the axes of section `i` with this factoring.
static bool add_axes(Module *m, Sections *all, int i, const Factors *f, Mesh *out, Diag *d) {
  const MeshAxis *axis = &all->mesh->axis[i];
  Section *s = &all->at[i];
  for (int k = 0; k < f->n; k++) {
    const char *own = f->name[k]  ? str_copy(m->arena, f->name[k])
                      : f->n == 1 ? axis->name
                                  : str_format(m->arena, "%s%d", axis->name, k);
    if (out->n_axes == MAX_AXES)
      return diag_error(d, NULL, "a mesh has at most %d axes, and the plan has more", MAX_AXES);
    int before = mesh_find_axis(out, own);
    if (before >= 0) return named_twice(all, own, before, i, d);
    out->axis[out->n_axes] = (MeshAxis){own, (int)f->size[k], axis->time};
    s->axis[s->n++] = out->n_axes++;
  }
  return true;
}

bool sections_factor(Sections *s, Module *m, const int *pick, Diag *d) {
  Mesh *cut = arena_one(m->arena, Mesh);
  *cut = *s->mesh;
  cut->n_axes = 0;
  for (int i = 0; i < s->n; i++)
    if (!add_axes(m, s, i, &s->at[i].factoring[pick[i]], cut, d)) return false;
  module_add_mesh(m, cut);
  return true;
}

// If the plan assigns ops, decided inner axes are propagated again, since operands may now come
// from other ranks.
void decide_axes(Sharding *s, const int *axis, int n) {
  bool assigned = false;
  for (int k = 0; k < n; k++)
    assigned |= assign_rest(s, axis[k]);
  for (int a = s->mesh->n_axes - 1; a >= 0; a--) {
    bool own = false;
    for (int k = 0; k < n; k++)
      own |= axis[k] == a;
    if (own || (assigned && s->decided[a])) propagate_axis(s, a);
  }
}
