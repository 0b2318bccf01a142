// What the program of a plan is given of the graph, and what all that serves it share.
//
// Ops and values are handed out as userdata that hold pointers; equal ones are the same userdata,
// so that a program can keep them in tables.  What a program says is checked where it says it, so
// that an error is at its line, and about an op of the model.

#ifndef LUA_GRAPH_H
#define LUA_GRAPH_H

#include "lua_sandbox.h"
#include "op_names.h"
#include "plan.h"

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
  OpNames *names; // of the graph's ops, NULL where they may have changed
  int n_refused;  // errors of the model
};

extern const char PLAN_OPS[], PLAN_VALUES[]; // metatables
extern const luaL_Reg plan_questions[];      // functions that only ask
extern const luaL_Reg plan_splits[]; // those that say what splits and where it runs: lua_splits.c
extern const luaL_Reg plan_calls[];  // those that say something else: lua_plan.c

PlanProgram *program_of(lua_State *l);
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
int plan_dim(lua_State *l, int arg, int rank, const Loc *loc);
// Calls: lua_annotations.c.
int plan_annotations(lua_State *l);
int plan_annotated_apart(lua_State *l);
// The letter that is argument `arg`; entry `i`, from 1, of the list that it is.
char plan_letter_arg(lua_State *l, int arg, const Op *op);
lua_Integer plan_entry(lua_State *l, int arg, lua_Integer i, const char *what, const Loc *loc);
// Marks by id the op on top of the stack, or those of the list that it is, or of lists in that;
// `what` it is called where it is something else.
void plan_mark(lua_State *l, bool *marked, const char *what);
// Why `op` cannot split `letter` along `axis`, or NULL.
const char *plan_why_not(lua_State *l, const Op *op, char letter, int axis);
const Dims *plan_einsum(lua_State *l, const Op *op);
const char *plan_letter(const Dims *dims, int letter);

#endif
