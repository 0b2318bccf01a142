// The programs of a plan, each with the axes of the mesh that are its own:
//
//     mesh acc:2:time+dp:4+tp2d:4, plan dp,tp2d
//       acc               dp, as a batch is cut over time as it is over ranks
//       dp                dp
//       tp2d0=2, tp2d1=2  tp2d, whose function `factors` cuts its 4 ranks in two axes

#ifndef SECTIONS_H
#define SECTIONS_H

#include "plan.h"

typedef struct Section {
  const char *name;
  PlanProgram *program;
  const Factors *factoring; // of its ranks, as its program has them
  int n_factorings;
  int axis[MAX_AXES], n; // that it has, once they are cut
} Section;

typedef struct Sections {
  const Mesh *mesh; // one axis for each
  Section at[MAX_AXES];
  int n;
} Sections;

// False, having reported why and closed those that were open.
bool sections_open(Arena *scratch, const Mesh *mesh, const char *plan, Sections *out, Diag *d);
void sections_close(const Sections *s);
// Gives the module a mesh that is cut by one factoring of each, by number.  False, having reported
// why.
bool sections_factor(Sections *s, Module *m, const int *pick, Diag *d);

// Decides what is open along axes that a program has had its say of.
void decide_axes(Sharding *s, const int *axis, int n);

#endif
