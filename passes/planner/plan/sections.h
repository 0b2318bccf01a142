// The programs of a plan, each with its axes of the mesh:
//
//     mesh acc:2:time+dp:4+tp2d:4, plan dp,tp2d
//       acc               dp, as the batch is split over time as it is over ranks
//       dp                dp
//       tp2d0=2, tp2d1=2  tp2d, whose function `factors` makes two axes of its 4 ranks

#ifndef SECTIONS_H
#define SECTIONS_H

#include "plan.h"

typedef struct Section {
  const char *name;
  PlanProgram *program;
  const Factors *factoring; // of its ranks, from its program
  int n_factorings;
  int axis[MAX_AXES], n; // its axes, after sections_factor
} Section;

typedef struct Sections {
  const Mesh *mesh; // one axis per section
  Section at[MAX_AXES];
  int n;
} Sections;

// Opens all programs.  False after an error, with the opened ones closed.
bool sections_open(Arena *scratch, const Mesh *mesh, const char *plan, Sections *out, Diag *d);
void sections_close(const Sections *s);
// Adds a mesh to the module, with one factoring of each section, by number.  False after an error.
bool sections_factor(Sections *s, Module *m, const int *pick, Diag *d);

// Propagates along axes after their program has added its constraints.
void decide_axes(Sharding *s, const int *axis, int n);

#endif
