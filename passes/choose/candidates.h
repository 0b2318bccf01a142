// Which plans `--plan auto` tries, of the kinds in candidates.def.
//
//     8 ranks   dp zero1 zero3 sp    dp,sp=2 zero1,sp=2 zero3,sp=2    dp,sp=4 …    search …
//     or        pp pp=2,dp dp,pp=2 …              where nothing fits
//
// Each kind is tried on all ranks, and with others outside and inside of it.

#ifndef CANDIDATES_H
#define CANDIDATES_H

#include "base/vec.h"
#include "choose.h"

// A candidate, and what may have come of those before it that makes it worth no try.
typedef struct Trial {
  Candidate c;
  const char *spares; // a plan, where that fits; or NULL
  const char *inside; // a plan, where by that all ranks do the same; or NULL
} Trial;

typedef Vec(Trial) Trials;

// Those that are tried at first, or that were asked for.
void candidates_list(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// Those for where none of them fits: what is not kept is computed anew; then stages.
void candidates_anew(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
void candidates_stages(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// Those that take little time, each on all ranks; stages among them, if that is asked for.
void candidates_quick(const Module *m, const ChooseOptions *o, Arena *a, bool stages, Trials *out);
// Whether it only adds to other searches.
bool candidate_adds(const Candidate *c);

#endif
