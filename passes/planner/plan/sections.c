// The programs of a plan, each with its axes of the mesh: see sections.h.

#include "sections.h"

#include "sharding/assign.h"
#include "sharding/propagate.h"

bool sections_open(Arena *scratch, const Mesh *mesh, const char *plan, Sections *out, Diag *d) {
  int n_devices = 0;
  bool ok = true;
  *out = (Sections){.mesh = mesh};
  for (int a = 0; a < mesh->n_axes && ok; a++) {
    // The program of the axis, and all factorings that it allows.
    const MeshAxis *axis = &mesh->axis[a];
    const char *name = axis->time ? "dp" : plan_program(scratch, plan, n_devices++);
    Factors *all = arena_array(scratch, Factors, MAX_FACTORINGS);
    Section *s = &out->at[out->n++];
    *s = (Section){.name = name, .program = program_open(scratch, name, d), .factoring = all};
    if (s->program) s->n_factorings = program_factors(s->program, axis->size, all);
    ok = s->n_factorings > 0;
  }
  if (!ok) sections_close(out);
  return ok;
}

void sections_close(const Sections *s) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i].program) program_close(s->at[i].program);
}

bool sections_factor(Sections *s, Module *m, const int *pick, Diag *d) {
  Mesh *cut = arena_one(m->arena, Mesh);
  int section_of[MAX_AXES];
  *cut = *s->mesh;
  cut->n_axes = 0;
  for (int i = 0; i < s->n; i++) {
    const MeshAxis *axis = &s->mesh->axis[i];
    const Factors *f = &s->at[i].factoring[pick[i]];
    for (int k = 0; k < f->n; k++) {
      const char *own = f->name[k]  ? str_copy(m->arena, f->name[k])
                        : f->n == 1 ? axis->name
                                    : str_format(m->arena, "%s%d", axis->name, k);
      if (cut->n_axes == MAX_AXES)
        return diag_error(d, NULL, "a mesh has at most %d axes, and the plan has more", MAX_AXES);
      // Names come from programs, files, and the results of `factors`: two may be equal.
      int before = mesh_find_axis(cut, own);
      if (before >= 0) {
        diag_error(d, NULL, "two axes of the plan are called '%s', of '%s' and of '%s'", own,
                   s->mesh->axis[section_of[before]].name, axis->name);
        diag_hint(d, "a file's name is its axis's, where the second list that its 'factors' "
                     "returns has no other");
        return false;
      }
      section_of[cut->n_axes] = i;
      cut->axis[cut->n_axes] = (MeshAxis){own, (int)f->size[k], axis->time};
      s->at[i].axis[s->at[i].n++] = cut->n_axes++;
    }
  }
  module_add_mesh(m, cut);
  return true;
}

// If the plan assigns ops, decided inner axes are propagated again, since operands may now come
// from other ranks.
void decide_axes(Sharding *s, const int *axis, int n) {
  bool assigned = false;
  for (int k = 0; k < n; k++)
    assigned |= assign_rest(s, axis[k]);
  // Innermost first, as the programs run.
  for (int a = s->mesh->n_axes - 1; a >= 0; a--) {
    bool own = false;
    for (int k = 0; k < n; k++)
      own |= axis[k] == a;
    if (own || (assigned && s->decisions.final[a])) propagate_axis(s, a);
  }
}
