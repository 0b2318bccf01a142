// The graph as seen by plan programs, and the state shared by their functions.
//
// Ops and values are userdata that hold pointers; equal pointers are the same userdata, so programs
// can use them as table keys.  Constraints are checked in the call that adds them, so that an error
// is at its line, and about an op of the model.

#ifndef LUA_GRAPH_H
#define LUA_GRAPH_H

#include "base/vec.h"
#include "ir/analysis/op_names.h"
#include "lua/lua_sandbox.h"
#include "pieces.h"
#include "planner/plan/plan.h"

// A loss that split_loss replaced, and the first op of those in its place.
typedef struct ReplacedLoss {
  const Op *was;
  Op *is;
} ReplacedLoss;

typedef Vec(ReplacedLoss) ReplacedLosses;

typedef Vec(Op *) OpList;
typedef Vec(OpList) OpLists;

// The layers of a graph before the first cut into pieces, with the pieces of their ops since: with
// different pieces in each, layers repeat no more.  Shared by the programs of a plan.
struct PlanLayers {
  Arena *arena;
  bool known;
  OpLists all;
};

// A copy of the graph, on which an alternative is priced: ops and values of the program stand for
// those of the copy in the meantime (lua_price.c).
typedef struct Alternative {
  struct Alternative *outer; // of a price inside of a price; or NULL
  const Graph *of, *g;       // the graph, and its copy
  Op **op, **op_of;          // by id of the graph: of the copy; and back, NULL: of the copy alone
  Value **value, **value_of;
  uint32_t n_ops, n_values; // of the copy, at first
  Vec(const void *) own;    // ops and values of the copy alone that the program has met
  Arena *arena;
} Alternative;

typedef struct Replacing Replacing;

struct PlanProgram {
  Sandbox box;
  Sharding *s;
  const int *axis; // the axes of the program, while `step` runs
  int n_axes, depth;
  PlanRanks ranks;      // while `model` runs
  int64_t n;            // ranks, the argument of `factors`
  const char *number;   // the global that is read into `n`
  const PlanCall *call; // the numbers for it, while `numbers` runs
  Factors *factors;     // result of `factors`
  int n_factors;
  uint32_t *met; // by value id and dimension: the last flow that visited it
  uint32_t n_met, n_flows;
  // Of the graph's ops; NULL before the first use, and after a change of the graph.
  OpNames *names;
  struct Repeats *repeats;
  bool *marked;   // by op id; all false between calls
  Value **params; // [n_params] of the graph, by label and role; NULL before the first use
  int n_params;
  ReplacedLosses losses;
  int n_refused; // errors reported by `refuse`
  int n_places;  // of its last message, `reason`
  const char *reason;
  const char *given; // the program in the plan's text, if it has numbers: "coshard:4@1-2"
  int moved;         // columns between its numbers there and in this program's text
  int n_searches;    // so far
  int n_prices;
  Alternative *alternative; // while it is priced
  Replacing *replacing;     // while an op is replaced (lua_replace.c)
  bool mistaken;      // an applied program has a mistake: it is not the model that is to blame
  Dims *dims;         // of an op, in `model`
  PlanLayers *layers; // of the graph, in `model`
  Vec(CutOp) cuts;    // of this program, and of those that it applied
};

extern const char PLAN_OPS[], PLAN_VALUES[]; // metatables
extern const luaL_Reg plan_questions[];      // queries: lua_questions.c
extern const luaL_Reg plan_splits[];         // constraints on splits and ranks: lua_splits.c
extern const luaL_Reg plan_rows[];           // the same for all matches of a name: lua_rows.c
extern const luaL_Reg plan_changes[];        // changes of the program: lua_changes.c
extern const luaL_Reg plan_pieces[];         // pieces that run in sequence: lua_pieces.c
extern const luaL_Reg plan_open[];           // search and placement: lua_open.c
extern const luaL_Reg plan_replaces[];       // ops of one's own: lua_replace.c
extern const luaL_Reg plan_prices[];         // prices of alternatives: lua_price.c
extern const luaL_Reg plan_calls[];          // calls about the whole step: lua_plan.c

PlanProgram *program_of(lua_State *l);
void plan_changed(PlanProgram *p); // drops caches after a possible change of the graph
const OpNames *plan_names_of(PlanProgram *p);
// Ends the program with an error at the calling line; `loc` is the subject in the model.
_Noreturn int plan_fail(lua_State *l, const Loc *loc, const char *message);
void plan_refused_all(PlanProgram *p); // no further place has the last message of `refuse`
// Ends the program after a reported error.
_Noreturn int plan_quit(lua_State *l);
// Adds a note to the next error.
void plan_note(lua_State *l, const Loc *loc, const char *text);
// The line of the program that is running.
const Loc *plan_line(lua_State *l);
// The part of the plan's text that a number of `numbers` is; NULL: the argument is no such table.
const Loc *plan_number_loc(lua_State *l, int arg);
#define FAIL(l, loc, ...) plan_fail(l, loc, str_format(program_of(l)->box.arena, __VA_ARGS__))

const Sharding *plan_sharding(lua_State *l); // ends the program if there is no graph yet
void plan_types(lua_State *l);               // creates the metatables
void plan_push(lua_State *l, const void *object, const char *type);
// Arguments: an op, a value, one of the program's axes by name, a dimension as in layouts (from 0,
// or from the end if negative).  Any other argument ends the program.
Op *plan_op(lua_State *l, int arg);
Value *plan_value(lua_State *l, int arg);
const Loc *plan_loc(const Value *v); // in the model: of its op, if it has one
int plan_axis(lua_State *l, int arg);
void plan_axes(lua_State *l, int arg, int n, int *out); // `n` distinct axes
int plan_dim(lua_State *l, int arg, int ndim, const Loc *loc);
// Functions of lua_annotations.c.
int plan_annotations(lua_State *l);
int plan_annotated_apart(lua_State *l);
// Of lua_price.c: the op or value of the innermost copy, and back.
Op *alternative_op(const Alternative *a, Op *op);
Value *alternative_value(const Alternative *a, Value *v);
const void *alternative_origin(Alternative *a, const void *object, const char *type);
// The letter in argument `arg`; an integer, entry `i` (from 1) of the list in argument `arg`.
char plan_letter_arg(lua_State *l, int arg, const Op *op);
lua_Integer plan_entry(lua_State *l, int arg, lua_Integer i, const char *what, const Loc *loc);
// The op of a node of the model, or an error; kind NULL: any; which 0: the only one.
Op *plan_find_op(lua_State *l, const char *node, const char *kind, const char *part,
                 lua_Integer which);
const char *plan_role(const Value *v); // NULL if it is no parameter
// Collects the op on top of the stack, or the ops of the list there, or of nested lists, and marks
// them by id; marked ones are skipped.  `what` names the argument in errors.
void plan_list(lua_State *l, bool *marked, OpList *ops, const char *what);
// Adds a constraint on one op or parameter, or fails at the calling line: its split, its ranks from
// argument `arg`, its layout; and reads a split from an argument.
void plan_say_split(lua_State *l, Op *op, char letter, int axis);
void plan_say_ranks(lua_State *l, Op *op, int arg, int axis);
void plan_say_cut(lua_State *l, const Value *v, char split, int axis, ParamChoice given);
char plan_split_arg(lua_State *l, int arg, const Value *v);
// The reason why `op` cannot split `letter` along `axis`, or NULL.
const char *plan_why_not(lua_State *l, const Op *op, char letter, int axis);
const Dims *plan_einsum(lua_State *l, const Op *op);
const char *plan_letter(const Dims *dims, int letter);
// The letter that a split of the dimension would use, possible or not: the first longer than 1; -1:
// none.
int plan_letter_of(const Dims *dims, const Term *t, int dim);
// Whether the op is still in its graph.
bool plan_there(const Op *op);
// The value from which this was cast, sliced, transposed or reshaped; or itself.
Value *plan_source(Value *v);
void plan_find_layers(lua_State *l, Arena *a, OpLists *out);
// Before and after ops become others: layers are those before, and each of the ops stands for those
// that replaced it, in layers and in lists of the program.  plan_note_cuts: in lists alone.
void plan_before_cut(lua_State *l);
void plan_after_cut(lua_State *l, const CutOp *cut, int n);
void plan_note_cuts(lua_State *l, const CutOp *cut, int n);

#endif
