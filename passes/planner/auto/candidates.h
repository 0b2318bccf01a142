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
  // A plan with fewer ranks inside and one with none, where the former takes longer and saves
  // nothing that is lacking; or NULL: more of them will not help either.
  const char *fewer, *none;
} Trial;

typedef Vec(Trial) Trials;

// Those that are tried at first, or that were asked for.
void candidates_list(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// Those for where none of them fits in one micro-batch: what is not kept is computed anew; then
// stages, where none fits at all; then what lasts is elsewhere.
void candidates_anew(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
void candidates_stages(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
void candidates_last(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// So many stages, with data parallelism inside of each, and outside of all where that is something
// else; if that is asked for, also a search.
void candidates_of_stages(const ChooseOptions *o, Arena *a, int64_t stages, bool searched,
                          Trials *out);
// Stages of unequal numbers of ranks, where devices differ.
void candidates_uneven(const ChooseOptions *o, Arena *a, Trials *out);
// So many stages, with each of the others inside or outside of them, and a search inside.
void candidates_all_of_stages(const Module *m, const ChooseOptions *o, Arena *a, int64_t stages,
                              Trials *out);
// The same plan, whose stages run in another order; none where there is one micro-batch.
void candidates_scheduled(const Module *m, Arena *a, const Candidate *c, Trials *out);
// How many stages it has; all of the ranks, where its text does not say.
int64_t candidate_stages(const Candidate *c);
// A search inside of data parallelism.
void candidates_inside(const ChooseOptions *o, Arena *a, Trials *out);
// Those that take little time, each on all ranks; stages among them, if that is asked for.
void candidates_quick(const Module *m, const ChooseOptions *o, Arena *a, bool stages, Trials *out);
// Whether it only adds to other searches.
bool candidate_adds(const Candidate *c);

#endif
