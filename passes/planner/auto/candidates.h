// The plans that `--plan auto` tries, of the kinds in candidates.def.
//
//     8 ranks   dp zero1 zero3 sp    dp,sp=2 zero1,sp=2 zero3,sp=2    dp,sp=4 …    search …
//     or        pp pp=2,dp dp,pp=2 …              if nothing fits
//
// Each kind is tried on all ranks, and with others outside and inside of it.

#ifndef CANDIDATES_H
#define CANDIDATES_H

#include "base/vec.h"
#include "choose.h"

// A candidate, and the earlier results that make a trial of it pointless.
typedef struct Trial {
  Candidate c;
  const char *saves_memory_over; // a plan that makes it pointless if it fits; or NULL
  const char *inside;            // a plan that makes it pointless if all ranks do the same; or NULL
  // A plan with fewer ranks inside and one with none. If the former takes longer and saves no
  // memory that is lacking, more ranks inside will not help either. Or NULL.
  const char *fewer, *none;
} Trial;

typedef Vec(Trial) Trials;

// Lists the candidates to try first, or the requested ones.
void candidates_list(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// List candidates for the case that none of these fits in one micro-batch: saved activations are
// recomputed or offloaded; then stages, if none fits at all; then the optimizer states are
// offloaded.
void candidates_freeing_activations(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
void candidates_stages(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
void candidates_last(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// Lists so many stages, with data parallelism inside of each, and outside of all if that makes a
// difference; with `searched`, also with a search.
void candidates_of_stages(const ChooseOptions *o, Arena *a, int64_t stages, bool searched,
                          Trials *out);
// Lists stages of unequal numbers of ranks, if devices differ.
void candidates_uneven(const ChooseOptions *o, Arena *a, Trials *out);
// Lists so many stages, with each of the others inside or outside of them, and a search inside.
void candidates_all_of_stages(const Module *m, const ChooseOptions *o, Arena *a, int64_t stages,
                              Trials *out);
// Lists the same plan with other orders of its stages; none with one micro-batch.
void candidates_scheduled(const Module *m, Arena *a, const Candidate *c, Trials *out);
// Returns the number of stages, 1 of a plan without: all of the ranks, if the text has no number.
int64_t candidate_stages(const Candidate *c);
// Lists searches inside of data parallelism.
void candidates_inside(const ChooseOptions *o, Arena *a, Trials *out);
// Lists the candidates that take little time, each on all ranks; with `stages`, stages among them.
void candidates_quick(const Module *m, const ChooseOptions *o, Arena *a, bool stages, Trials *out);

// Those that take little time to be made, and recompute or offload saved activations: in each of
// the plans of replicas.
void candidates_saving(const Module *m, const ChooseOptions *o, Arena *a, Trials *out);
// Programs that save memory, after those of a plan: ",swap=1,offload=1".
typedef struct Saver {
  const char *text;
  int programs;
  bool activations, states; // recomputed, or in host memory
  bool gradients;           // sums over micro-batches in host memory
} Saver;

typedef Vec(Saver) Savers;

// Lists the savers, those of states alone first, and those of gradients last.
void candidates_savers(Arena *a, Savers *out);
// Whether rows go through the same layers of the model several times.
bool model_recycles(const Module *m);
// Whether a plan has such a program.
bool plan_has_saver(const char *plan);
// Returns the plan without its savers: "dp,sp=2" of "recompute,sp=2", "zero3" of
// "zero3,swap=1,offload=1". *offloads: one of these was for states.
const char *plan_without_savers(Arena *a, const char *plan, bool *offloads);
// Whether a plan has the states of all layers in host memory.
bool plan_offloads_all_states(const char *plan);
// Whether a plan has sums of gradients in host memory.
bool plan_offloads_gradients(const char *plan);
// Whether a plan has stages, or searches: if it cannot fit, its programs refuse it.
bool plan_places(const char *plan);

// Whether it is a search of all ranks.
bool candidate_searches(const Candidate *c);
// Whether it is another candidate's plan unless its programs change the model.
bool candidate_changes(const Candidate *c);
// Whether it only adds to other searches.
bool candidate_adds(const Candidate *c);

// The candidate with the text of that plan that was compiled, or could not be; NULL: there is none.
const Candidate *find_compiled(const Candidates *all, const char *plan, int64_t micro_batches);

#endif
