// See constraints.h.
//
// Whether constraints can hold together is decided by trial: axis by axis, each split of the first
// constraint on it (find_splits). Axes are few, and so are the splits of each. A minimal set takes
// one such trial per constraint.

#include "constraints.h"

#include <string.h>

#include "assign.h"
#include "decide.h"
#include "ir/op.h"

// -- New constraints -----------------------------------------------------------------------------

// Returns the list with one more constraint; the latest is the first.
static const Constraint *added(const Sharding *s, const Constraint *before, const char *splits,
                               const Loc *line) {
  Constraint *constraint = arena_one(s->scratch, Constraint);
  *constraint = (Constraint){splits, line, before};
  return constraint;
}

void constrain_split(Sharding *s, Op *op, int axis, const char *splits, const Loc *line) {
  const Constraint **constraint = &s->constraints.op[op->id][axis];
  if (splits[1])
    *constraint = added(s, *constraint, splits, line);
  else
    decide_split(s, op, axis, *splits, line);
}

void constrain_layout(Sharding *s, const Value *v, int axis, const char *splits, ParamChoice how,
                      const Loc *line) {
  const Constraint **constraint = &s->constraints.value[v->id][axis];
  if (splits[1])
    *constraint = added(s, *constraint, splits, line);
  else
    decide_layout(s, v, axis, sbp_of_split(*splits), how, line);
}

void constrain_ranks(Sharding *s, Op *op, int axis, const Ranks *ranks, const Loc *line) {
  assign_op(s, op, axis, ranks, line);
}

void constrain_order(Sharding *s, Order order) {
  vec_push(s->scratch, &s->constraints.orders, order);
}

// -- Splits --------------------------------------------------------------------------------------

bool constraint_allows(const Constraint *constraint, char split) {
  for (; constraint; constraint = constraint->before)
    if (!strchr(constraint->splits, split)) return false;
  return true;
}

const char *constraint_splits(const Constraint *constraint, Arena *a) {
  StrBuf b = {.arena = a};
  const Constraint *first = constraint;
  while (first && first->before)
    first = first->before;
  for (const char *p = first ? first->splits : ""; *p; p++)
    if (constraint_allows(constraint, *p)) strbuf_add_n(&b, p, 1);
  return b.n ? b.at : "";
}

const char *splits_text(Arena *a, const char *splits) {
  StrBuf b = {.arena = a};
  for (const char *p = splits; *p; p++)
    strbuf_addf(&b, "%s'%c'", p == splits ? "" : p[1] ? ", " : " or ", *p);
  return b.n ? b.at : "nothing";
}

char split_of_sbp(Sbp sbp) {
  return sbp.kind == SBP_S ? (char)('0' + sbp.dim) : '-';
}

Sbp sbp_of_split(char split) {
  return split == '-' ? (Sbp){.kind = SBP_B} : (Sbp){.kind = SBP_S, .dim = split - '0'};
}

// -- Feasibility ---------------------------------------------------------------------------------

// All constraints on an op or a parameter.
typedef struct Case {
  const Sharding *s;
  const Op *op;
  const Dims *dims; // of the op
  const Value *v;
  ConstraintClaims all;
  const bool *kept;
  char split[MAX_AXES], was[MAX_AXES]; // under trial; without constraints
} Case;

// The number of ranks of the axis that the op would run on; a parameter keeps its ranks.
static int ranks_of(const Case *c, int axis) {
  if (c->v) return value_ranks(c->v, axis);
  for (int i = 0; i < c->all.n; i++) {
    const ConstraintClaim *claim = &c->all.at[i];
    if (c->kept[i] && claim->axis == axis && !claim->splits && claim->ranks) return claim->ranks->n;
  }
  return c->s->mesh->axis[axis].size;
}

static int64_t parts_of(const Case *c, char split) {
  int64_t parts = 1;
  for (int a = 0; a < c->s->mesh->n_axes; a++)
    if (c->split[a] == split) parts *= ranks_of(c, a);
  return parts;
}

static bool op_can(const Case *c, int axis) {
  char split = c->split[axis];
  if (split == '-') return true;
  if (split == SPLIT_PARTIAL) return op_traits(c->op) & (ADDITIVE | MULTILINEAR);
  int i = dims_find(c->dims, split);
  bool alone = ranks_of(c, axis) == 1 && c->s->mesh->axis[axis].size > 1;
  return i >= 0 && !alone && !c->dims->letter[i].whole && dims_leads(c->dims, i) &&
         c->dims->letter[i].size % parts_of(c, split) == 0;
}

static bool param_can(const Case *c, int axis) {
  int dim = c->split[axis] - '0';
  if (c->split[axis] == '-') return true;
  return dim >= 0 && dim < c->v->type->ndim &&
         c->v->type->dim[dim] % parts_of(c, c->split[axis]) == 0;
}

// Whether feasible splits exist for all axes from this one on.
static bool find_splits(Case *c, int axis) {
  if (axis == c->s->mesh->n_axes) {
    // Every axis has a split, which must fit those of the others.
    for (int a = 0; a < c->s->mesh->n_axes; a++)
      if (!(c->op ? op_can(c, a) : param_can(c, a))) return false;
    return true;
  }
  // The first constraint on the axis lists the splits to try.
  const char *splits = NULL;
  for (int i = 0; i < c->all.n; i++)
    if (c->kept[i] && c->all.at[i].axis == axis && c->all.at[i].splits) {
      splits = c->all.at[i].splits;
      break;
    }
  c->split[axis] = c->was[axis];
  if (!splits) return find_splits(c, axis + 1);
  for (; *splits; splits++) {
    c->split[axis] = *splits;
    // Every constraint on the axis must allow the split.
    bool allowed = true;
    for (int i = 0; i < c->all.n; i++) {
      const ConstraintClaim *claim = &c->all.at[i];
      if (c->kept[i] && claim->axis == axis && claim->splits && !strchr(claim->splits, *splits)) {
        allowed = false;
        break;
      }
    }
    if (allowed && find_splits(c, axis + 1)) return true;
  }
  return false;
}

static bool is_possible(void *context, const bool *kept) {
  Case *c = context;
  c->kept = kept;
  return find_splits(c, 0);
}

void keep_least(bool *kept, int n, bool (*possible)(void *context, const bool *kept),
                void *context) {
  for (int i = n - 1; i >= 0; i--) {
    if (!kept[i]) continue;
    kept[i] = false;
    if (possible(context, kept)) kept[i] = true;
  }
}

// -- Constraints ---------------------------------------------------------------------------------

static void add_sets(Case *c, int axis, const Constraint *constraint) {
  if (!constraint) return;
  add_sets(c, axis, constraint->before);
  vec_push(c->s->scratch, &c->all,
           (ConstraintClaim){axis, constraint->splits, NULL, constraint->line});
}

static const char *one_split(const Case *c, char split) {
  return str_copy_n(c->s->scratch, &split, 1);
}

// A minimal set of constraints that contradict `more`, and `more`.
static ConstraintClaims contradiction(Case *c, const ConstraintClaim *more) {
  ConstraintClaims least = {0};
  int n = c->all.n;
  if (more) vec_push(c->s->scratch, &c->all, *more);
  bool *kept = arena_array(c->s->scratch, bool, c->all.n + 1);
  memset(kept, true, (size_t)c->all.n);
  if (is_possible(c, kept)) return least;
  keep_least(kept, n, is_possible, c);
  for (int i = 0; i < c->all.n; i++)
    if (kept[i]) vec_push(c->s->scratch, &least, c->all.at[i]);
  return least;
}

ConstraintClaims op_contradiction(const Sharding *s, const Op *op, const ConstraintClaim *more) {
  Case c = {.s = s, .op = op, .dims = dims_of(s, op)};
  for (int a = 0; a < s->mesh->n_axes; a++) {
    char split = op->split[a] ? op->split[a] : '-';
    const Loc *fixed = s->decisions.fixed_by[op->id][a];
    c.was[a] = s->decisions.final[a] ? split : '-';
    if (s->decisions.assigned[op->id][a])
      vec_push(s->scratch, &c.all,
               (ConstraintClaim){a, NULL, s->decisions.ranks[op->id][a],
                                 s->decisions.assigned_by[op->id][a]});
    if (fixed)
      vec_push(s->scratch, &c.all, (ConstraintClaim){a, one_split(&c, split), NULL, fixed});
    add_sets(&c, a, s->constraints.op[op->id][a]);
  }
  return contradiction(&c, more);
}

ConstraintClaims param_contradiction(const Sharding *s, const Value *v,
                                     const ConstraintClaim *more) {
  Case c = {.s = s, .v = v};
  for (int a = 0; a < s->mesh->n_axes; a++) {
    char split = split_of_sbp(s->decisions.layout[v->id][a]);
    c.was[a] = s->decisions.final[a] ? split : '-';
    if (s->decisions.param[v->id][a] != PARAM_open)
      vec_push(s->scratch, &c.all,
               (ConstraintClaim){a, one_split(&c, split), NULL, s->decisions.param_by[v->id][a]});
    add_sets(&c, a, s->constraints.value[v->id][a]);
  }
  return contradiction(&c, more);
}

const char *claim_text(const Sharding *s, const ConstraintClaim *c, const char *verb) {
  const char *along = s->mesh->axis[c->axis].name;
  if (c->splits)
    return str_format(s->scratch, "%s %s along %s", verb, splits_text(s->scratch, c->splits),
                      along);
  return str_format(s->scratch, "to run on %s", ranks_text(s->scratch, c->ranks, along));
}
