// What the program of a plan is given of the graph, and what all that serves it share.
//
// Ops and values are handed out as userdata that hold pointers; equal ones are the same userdata,
// so that a program can keep them in tables.  What a program says is checked where it says it, so
// that an error is at its line, and about an op of the model.

#ifndef LUA_GRAPH_H
#define LUA_GRAPH_H

#include "ir/analysis/op_names.h"
#include "lua/lua_sandbox.h"
#include "planner/plan/plan.h"

struct PlanProgram {
  Sandbox box;
  Sharding *s;
  const int *axis; // its own, while `step` runs
  int n_axes, depth;
  int64_t n;        // of `factors`: ranks
  Factors *factors; // what it returned
  int n_factors;
  uint32_t *met; // by value id and dimension: the last flow that came there
  uint32_t n_met, n_flows;
  // Of the graph's ops; NULL until they are asked for, and where ops may have changed since.
  OpNames *names;
  struct Repeats *repeats;
  bool *marked;   // by op id; none, between calls
  Value **params; // [n_params] of the graph, by label and role; NULL until that is asked for
  int n_params;
  int n_refused;  // errors of the model
  int n_searches; // so far
  Dims *dims;     // of an op, in `model`
};

extern const char PLAN_OPS[], PLAN_VALUES[]; // metatables
extern const luaL_Reg plan_questions[];      // functions that only ask: lua_questions.c
extern const luaL_Reg plan_splits[];  // those that say what splits and where it runs: lua_splits.c
extern const luaL_Reg plan_rows[];    // the same of all that a name stands for: lua_rows.c
extern const luaL_Reg plan_changes[]; // those that change the program: lua_changes.c
extern const luaL_Reg plan_open[];    // those that leave something to be chosen: lua_open.c
extern const luaL_Reg plan_calls[];   // those that are of the whole step: lua_plan.c

PlanProgram *program_of(lua_State *l);
void plan_changed(PlanProgram *p); // when the graph may be another
const OpNames *plan_names_of(PlanProgram *p);
// Ends the program with an error at the line that called; `loc` is what of the model it is about.
int plan_fail(lua_State *l, const Loc *loc, const char *message);
// Ends the program after an error that was reported.
int plan_quit(lua_State *l);
// What else the error will say.
void plan_note(lua_State *l, const Loc *loc, const char *text);
// The line of the program that runs.
const Loc *plan_line(lua_State *l);
#define FAIL(l, loc, ...) plan_fail(l, loc, str_format(program_of(l)->box.arena, __VA_ARGS__))

const Sharding *plan_sharding(lua_State *l); // ends the program where there is no graph yet
void plan_types(lua_State *l);               // makes the metatables
void plan_push(lua_State *l, const void *object, const char *type);
// Arguments: an op, a value, one of the program's axes by name, a dimension as in layouts (from 0,
// or from the end if negative).  Anything else ends the program.
Op *plan_op(lua_State *l, int arg);
Value *plan_value(lua_State *l, int arg);
const Loc *plan_loc(const Value *v); // where in the model: of its op, if it has one
int plan_axis(lua_State *l, int arg);
void plan_axes(lua_State *l, int arg, int n, int *out); // `n` of them, none twice
int plan_dim(lua_State *l, int arg, int rank, const Loc *loc);
// Calls: lua_annotations.c.
int plan_annotations(lua_State *l);
int plan_annotated_apart(lua_State *l);
// The letter that is argument `arg`; entry `i`, from 1, of the list that it is.
char plan_letter_arg(lua_State *l, int arg, const Op *op);
lua_Integer plan_entry(lua_State *l, int arg, lua_Integer i, const char *what, const Loc *loc);
// The op of a node of the model, or an error; kind NULL: of any; which 0: the only one.
Op *plan_find_op(lua_State *l, const char *node, const char *kind, const char *part,
                 lua_Integer which);
const char *plan_role(const Value *v); // NULL: it is no parameter
// Lists the op on top of the stack, or those of the list that it is, or of lists in that, and marks
// them by id; those that are marked already are left out.  `what` it is called where it is
// something else.
typedef Vec(Op *) OpList;
void plan_list(lua_State *l, bool *marked, OpList *list, const char *what);
// What is said of one op or parameter, or an error at the line that says it: what it splits, which
// ranks argument `arg` lists, how it is cut; and a split that is an argument.
void plan_say_split(lua_State *l, Op *op, char letter, int axis);
void plan_say_ranks(lua_State *l, Op *op, int arg, int axis);
void plan_say_cut(lua_State *l, const Value *v, char split, int axis, Given given);
char plan_split_arg(lua_State *l, int arg, const Value *v);
// Why `op` cannot split `letter` along `axis`, or NULL.
const char *plan_why_not(lua_State *l, const Op *op, char letter, int axis);
const Dims *plan_einsum(lua_State *l, const Op *op);
const char *plan_letter(const Dims *dims, int letter);

#endif
