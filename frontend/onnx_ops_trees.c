// Ensembles of decision trees of ai.onnx.ml.
//
//     node 0: x[2] <= 0.5 ? 1 : 2          at = 0                     (rows, trees)
//     node 1: leaf, 3.0 for target 0       at = x[feature[at]] <= split[at] ? yes[at] : no[at]
//     node 2: leaf, 1.0 for target 1       y  = sum over trees of weight[at]
//
// All rows walk down all trees at once: `at` is the node that each of them has reached, and a step
// is a few lookups in tables of all nodes.  A leaf leads to itself, so the number of steps is the
// depth of the deepest tree.  Trees have no gradient: comparisons stop it.

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_ops_ml.h"
#include "frontend/onnx_read.h"

typedef enum Mode {
  MODE_leq,
  MODE_lt,
  MODE_gte,
  MODE_gt,
  MODE_eq,
  MODE_neq,
  MODE_member,
  N_MODES
} Mode;

typedef enum Sum { SUM_average, SUM_sum, SUM_min, SUM_max, N_SUMS } Sum;

// Nodes and leaves of all trees.
typedef struct Trees {
  int n, n_roots, n_targets;
  int64_t *feature, *yes, *no, *root; // [n], of the root [n_roots]
  double *split;                      // [n]
  Mode *mode;                         // [n]
  bool *missing;                      // [n]: NaN goes to `yes`
  double *weight;                     // [n * n_targets]
  bool *has_weight;                   // the same; false: the leaf adds nothing to the target
  // Sets of MODE_member: of node i, members[first[i]] to before members[first[i] + n_members[i]].
  const double *members;
  int *first, *n_members; // [n]
} Trees;

static bool trees_new(Node *n, Trees *t, int64_t count, int64_t targets) {
  if (count < 1 || targets < 1) return node_fail(n, "has no nodes or no targets");
  if (!node_small(n, count) || !node_small(n, targets) || !node_small(n, count * targets))
    return false;
  t->n = (int)count;
  t->n_targets = (int)targets;
  t->feature = arena_array(n->a, int64_t, count);
  t->yes = arena_array(n->a, int64_t, count);
  t->no = arena_array(n->a, int64_t, count);
  t->root = arena_array(n->a, int64_t, count);
  t->split = arena_array(n->a, double, count);
  t->mode = arena_array(n->a, Mode, count);
  t->missing = arena_array(n->a, bool, count);
  t->weight = arena_array(n->a, double, count *targets);
  t->has_weight = arena_array(n->a, bool, count *targets);
  t->first = arena_array(n->a, int, count);
  t->n_members = arena_array(n->a, int, count);
  // A node leads to itself until its branches are known.
  for (int i = 0; i < t->n; i++)
    t->yes[i] = t->no[i] = i;
  return true;
}

static void add_weight(Trees *t, int64_t node, int64_t target, double weight) {
  t->weight[node * t->n_targets + target] += weight;
  t->has_weight[node * t->n_targets + target] = true;
}

// Sets the number of steps from the roots to the last leaf.
static bool depth_of(Node *n, const Trees *t, int *out) {
  enum { MOST = 4096 };
  int *level = arena_array(n->a, int, t->n), n_here = 0, n_next;
  int64_t *here = arena_array(n->a, int64_t, t->n), *next = arena_array(n->a, int64_t, t->n), *swap;
  memset(level, -1, (size_t)t->n * sizeof *level);
  // Each level has the branches of the one above, once each.
  for (int i = 0; i < t->n_roots; i++)
    if (level[t->root[i]] < 0) {
      level[t->root[i]] = 0;
      here[n_here++] = t->root[i];
    }
  for (*out = 0;; (*out)++) {
    n_next = 0;
    for (int i = 0; i < n_here; i++) {
      int64_t at = here[i];
      if (t->yes[at] == at && t->no[at] == at) continue;
      for (int side = 0; side < 2; side++) {
        int64_t to = side ? t->no[at] : t->yes[at];
        if (level[to] == *out + 1) continue;
        level[to] = *out + 1;
        next[n_next++] = to;
      }
    }
    if (n_next == 0) return true;
    if (*out == MOST || *out == t->n)
      return node_fail(n, "its nodes form a cycle, or a tree is deeper than %d", MOST);
    swap = here;
    here = next;
    next = swap;
    n_here = n_next;
  }
}

static Value *look_up(Node *n, Value *table, Value *at) {
  return build_op(n->b, OP_gather, IN(table, at), ATTRS(a_i("axis", 0)));
}

// Whether the number is in the set of its node.
static Value *is_member(Node *n, const Trees *t, Value *x, Value *at) {
  int most = 1;
  for (int i = 0; i < t->n; i++)
    if (t->n_members[i] > most) most = t->n_members[i];
  if (!node_small(n, (int64_t)t->n * most)) return NULL;
  // Sets in rows of one length: NaN is equal to no number.
  double *table = arena_array(n->a, double, (int64_t)t->n *most);
  for (int i = 0; i < t->n; i++)
    for (int k = 0; k < most; k++)
      table[(int64_t)i * most + k] = k < t->n_members[i] ? t->members[t->first[i] + k] : NAN;
  Value *sets = look_up(n, node_numbers(n, x->type->dtype, 2, (int64_t[]){t->n, most}, table), at);
  int64_t each[] = {x->type->dim[0], x->type->dim[1], 1};
  Value *equal = node_binary(n, OP_equal, sets, build_reshape(n->b, x, 3, each));
  Value *found = build_op(n->b, OP_reduce_max, IN(build_cast(n->b, equal, DT_i32)),
                          ATTRS(a_list("axes", (int64_t[]){2}, 1), a_b("keep", false)));
  return build_cast(n->b, found, DT_bool);
}

// Whether the comparison of the node that each row has reached is true.
static Value *compared(Node *n, const Trees *t, Value *x, Value *at) {
  static const struct {
    OpKind op;
    bool negated;
  } by[] = {[MODE_leq] = {OP_less_equal, false},    [MODE_lt] = {OP_less, false},
            [MODE_gte] = {OP_greater_equal, false}, [MODE_gt] = {OP_greater, false},
            [MODE_eq] = {OP_equal, false},          [MODE_neq] = {OP_equal, true}};
  int64_t dim[] = {t->n};
  double *mode = arena_array(n->a, double, t->n), *missing = arena_array(n->a, double, t->n);
  int uses[N_MODES] = {0}, n_missing = 0, n_inner = 0;
  for (int i = 0; i < t->n; i++) {
    if (t->yes[i] == i && t->no[i] == i) continue; // of a leaf any comparison will do
    mode[i] = t->mode[i];
    missing[i] = t->missing[i];
    uses[t->mode[i]]++;
    n_missing += t->missing[i];
    n_inner++;
  }
  Value *split = look_up(n, node_numbers(n, x->type->dtype, 1, dim, t->split), at);
  Value *modes = NULL, *all = NULL;
  for (int m = 0; m < N_MODES; m++) {
    if (!uses[m]) continue;
    Value *one = m == MODE_member ? is_member(n, t, x, at) : node_binary(n, by[m].op, x, split);
    if (m < MODE_member && by[m].negated) one = node_unary(n, OP_not, one);
    if (uses[m] < n_inner) {
      // Of nodes with this mode only.
      if (!modes)
        modes = look_up(n, build_cast(n->b, node_numbers(n, DT_f32, 1, dim, mode), DT_i32), at);
      Value *own = modes ? node_binary(n, OP_equal, modes, node_like(n, modes, m)) : NULL;
      one = node_binary(n, OP_and, one, own);
    }
    all = all ? node_binary(n, OP_or, all, one) : one;
  }
  if (!n_missing || !all) return all;
  Value *to_yes = look_up(n, node_numbers(n, DT_bool, 1, dim, missing), at);
  return node_binary(n, OP_or, all, node_binary(n, OP_and, to_yes, node_unary(n, OP_is_nan, x)));
}

// The sums of all trees' leaves, a row for each sample.
static Value *evaluated(Node *n, const Trees *t, Value *x, Sum sum) {
  int depth;
  int64_t at_dim[] = {x->type->dim[0], t->n_roots};
  if (!depth_of(n, t, &depth) || !node_shape(n, 2, at_dim)) return NULL;
  for (int i = 0; i < t->n; i++)
    if (t->feature[i] < 0 || t->feature[i] >= x->type->dim[1]) {
      node_fail(n, "a node reads feature %lld of %lld", (long long)t->feature[i],
                (long long)x->type->dim[1]);
      return NULL;
    }
  Value *feature = node_ints_value(n, t->feature, t->n), *yes = node_ints_value(n, t->yes, t->n),
        *no = node_ints_value(n, t->no, t->n);
  Value *at = build_broadcast(n->b, node_ints_value(n, t->root, t->n_roots), 2, at_dim);
  for (int step = 0; step < depth; step++) {
    Value *value = build_op(n->b, OP_gather, IN(x, look_up(n, feature, at)),
                            ATTRS(a_i("axis", 1), a_i("batch", 1)));
    Value *branch = value ? compared(n, t, value, at) : NULL;
    at = build_where(n->b, branch, look_up(n, yes, at), look_up(n, no, at));
  }
  // Targets without a weight get the neutral element.
  double most = x->type->dtype == DT_f64 ? DBL_MAX : (double)FLT_MAX;
  double neutral = sum == SUM_min ? most : sum == SUM_max ? -most : 0;
  int64_t count = (int64_t)t->n * t->n_targets;
  double *weight = arena_array(n->a, double, count);
  for (int64_t i = 0; i < count; i++)
    weight[i] = t->has_weight[i] ? t->weight[i] : neutral;
  Value *table = node_numbers(n, x->type->dtype, 2, (int64_t[]){t->n, t->n_targets}, weight);
  Value *each = look_up(n, table, at);
  OpKind kind = sum == SUM_min ? OP_reduce_min : sum == SUM_max ? OP_reduce_max : OP_reduce_sum;
  Value *y =
      build_op(n->b, kind, IN(each), ATTRS(a_list("axes", (int64_t[]){1}, 1), a_b("keep", false)));
  return sum == SUM_average ? build_scale(n->b, y, 1.0 / t->n_roots) : y;
}

// -- TreeEnsemble ------------------------------------------------------------------------------

// Reads a list of integers with one element for each of `count` nodes.
static bool node_each(Node *n, const char *name, int64_t count, Ints *out) {
  node_list(n, name, out);
  return out->n == count ||
         node_fail(n, "%s has %d elements of %lld", name, out->n, (long long)count);
}

// Sets of members are listed in the order in which the trees are read, branch `yes` first, each
// with a NaN at its end.
static bool assign_members(Node *n, Trees *t, const Floats *members) {
  int64_t *stack = arena_array(n->a, int64_t, t->n + 1);
  bool *seen = arena_array(n->a, bool, t->n);
  int next = 0;
  t->members = members->at;
  for (int i = 0; i < t->n_roots; i++) {
    int depth = 0;
    stack[depth++] = t->root[i];
    while (depth > 0) {
      int64_t at = stack[--depth];
      if (seen[at]) continue;
      seen[at] = true;
      if (t->yes[at] == at && t->no[at] == at) continue;
      if (t->mode[at] == MODE_member) {
        t->first[at] = next;
        while (next < members->n && !isnan(members->at[next]))
          next++;
        if (next == members->n) return node_fail(n, "membership_values ends within a set");
        t->n_members[at] = next++ - t->first[at];
      }
      if (depth + 2 > t->n + 1) return node_fail(n, "its nodes are no trees");
      stack[depth++] = t->no[at];
      stack[depth++] = t->yes[at];
    }
  }
  return true;
}

// Leaves are numbered after the inner nodes.
static bool read_branch(Node *n, Trees *t, const char *which, int64_t inner, int64_t leaves,
                        int64_t *out) {
  Ints ids, is_leaf;
  if (!node_each(n, str_format(n->a, "nodes_%snodeids", which), inner, &ids) ||
      !node_each(n, str_format(n->a, "nodes_%sleafs", which), inner, &is_leaf))
    return false;
  for (int i = 0; i < inner; i++) {
    int64_t most = is_leaf.at[i] ? leaves : inner;
    if (ids.at[i] < 0 || ids.at[i] >= most)
      return node_fail(n, "nodes_%snodeids has %lld, of %lld", which, (long long)ids.at[i],
                       (long long)most);
    out[i] = ids.at[i] + (is_leaf.at[i] ? inner : 0);
  }
  return t->n == inner + leaves;
}

bool import_tree_ensemble(Node *n) {
  static const char *const transforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  Value *x = ml_rows(n);
  Ints feature, target, roots, missing;
  Floats split, modes, weights, members;
  Trees t = {0};
  if (!x || !node_floats(n, "nodes_splits", &split) || !node_floats(n, "nodes_modes", &modes) ||
      !node_floats(n, "leaf_weights", &weights) || !node_floats(n, "membership_values", &members))
    return false;
  int inner = split.n, leaves = weights.n;
  if (!trees_new(n, &t, (int64_t)inner + leaves, node_int(n, "n_targets", 1))) return false;
  if (!node_each(n, "nodes_featureids", inner, &feature) ||
      !node_each(n, "leaf_targetids", leaves, &target) ||
      !read_branch(n, &t, "true", inner, leaves, t.yes) ||
      !read_branch(n, &t, "false", inner, leaves, t.no))
    return false;
  if (modes.n != inner) return node_fail(n, "has %d modes for %d nodes", modes.n, inner);
  if (!node_list(n, "tree_roots", &roots) || roots.n < 1 || roots.n > t.n)
    return node_fail(n, "has %d roots", roots.n);
  if (node_list(n, "nodes_missing_value_tracks_true", &missing) && missing.n != inner)
    return node_fail(n, "nodes_missing_value_tracks_true has %d elements of %d", missing.n, inner);
  (void)node_attr(n, "nodes_hitrates");
  for (int i = 0; i < inner; i++) {
    if (!(modes.at[i] >= 0 && modes.at[i] < N_MODES)) return node_fail(n, "mode %g", modes.at[i]);
    t.feature[i] = feature.at[i];
    t.split[i] = split.at[i];
    t.mode[i] = (Mode)modes.at[i];
    t.missing[i] = missing.n && missing.at[i];
  }
  for (int i = 0; i < leaves; i++) {
    if (target.at[i] < 0 || target.at[i] >= t.n_targets)
      return node_fail(n, "a leaf has target %lld of %d", (long long)target.at[i], t.n_targets);
    add_weight(&t, inner + i, target.at[i], weights.at[i]);
  }
  t.n_roots = roots.n;
  for (int i = 0; i < roots.n; i++) {
    if (roots.at[i] < 0 || roots.at[i] >= inner)
      return node_fail(n, "root %lld of %d nodes", (long long)roots.at[i], inner);
    t.root[i] = roots.at[i];
  }
  if (!assign_members(n, &t, &members)) return false;
  int64_t sum = node_int(n, "aggregate_function", SUM_sum), post = node_int(n, "post_transform", 0);
  if (sum < 0 || sum >= N_SUMS) return node_fail(n, "aggregate_function %lld", (long long)sum);
  if (post < 0 || post >= (int64_t)(sizeof transforms / sizeof *transforms))
    return node_fail(n, "post_transform %lld", (long long)post);
  n->out[0] = ml_transformed(n, evaluated(n, &t, x, (Sum)sum), transforms[post]);
  return true;
}

// -- TreeEnsembleRegressor, TreeEnsembleClassifier ---------------------------------------------

// The position of a node in the lists, by tree and number in the tree.
typedef struct Numbered {
  int64_t tree, id;
  int at;
} Numbered;

static int by_number(const void *x, const void *y) {
  const Numbered *a = x, *b = y;
  if (a->tree != b->tree) return a->tree < b->tree ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

// Returns -1 if there is no such node.
static int find_node(const Numbered *all, int n, int64_t tree, int64_t id) {
  Numbered key = {.tree = tree, .id = id};
  const Numbered *found = bsearch(&key, all, (size_t)n, sizeof key, by_number);
  return found ? found->at : -1;
}

// Reads nodes_modes; a leaf has none.
static bool read_mode(Node *n, const Onnx__AttributeProto *modes, int i, Mode *out, bool *is_leaf) {
  static const char *const names[] = {
      [MODE_leq] = "BRANCH_LEQ", [MODE_lt] = "BRANCH_LT", [MODE_gte] = "BRANCH_GTE",
      [MODE_gt] = "BRANCH_GT",   [MODE_eq] = "BRANCH_EQ", [MODE_neq] = "BRANCH_NEQ"};
  const char *text = onnx_text(n->a, modes->strings[i]);
  *is_leaf = str_equal(text, "LEAF");
  for (int m = 0; m < MODE_member; m++)
    if (str_equal(text, names[m])) {
      *out = (Mode)m;
      return true;
    }
  return *is_leaf || node_fail(n, "mode '%s' is unknown", text);
}

// Reads the nodes, and weights of leaves from the lists with this prefix: "target" or "class".
static bool read_trees(Node *n, const char *prefix, int64_t targets, Trees *t) {
  Ints tree, id, feature, yes, no, missing, weight_tree, weight_id, weight_target;
  Floats split, weights;
  const Onnx__AttributeProto *modes = node_attr(n, "nodes_modes");
  node_list(n, "nodes_nodeids", &id);
  if (!trees_new(n, t, id.n, targets) || !node_each(n, "nodes_treeids", id.n, &tree) ||
      !node_each(n, "nodes_featureids", id.n, &feature) ||
      !node_each(n, "nodes_truenodeids", id.n, &yes) ||
      !node_each(n, "nodes_falsenodeids", id.n, &no) || !node_floats(n, "nodes_values", &split))
    return false;
  if (!modes || (int)modes->n_strings != id.n || split.n != id.n)
    return node_fail(n, "nodes_modes or nodes_values lacks elements");
  if (node_list(n, "nodes_missing_value_tracks_true", &missing) && missing.n && missing.n != id.n)
    return node_fail(n, "nodes_missing_value_tracks_true has %d elements of %d", missing.n, id.n);
  (void)node_attr(n, "nodes_hitrates");
  (void)node_attr(n, "nodes_hitrates_as_tensor");

  Numbered *all = arena_array(n->a, Numbered, id.n);
  for (int i = 0; i < id.n; i++)
    all[i] = (Numbered){tree.at[i], id.at[i], i};
  qsort(all, (size_t)id.n, sizeof *all, by_number);
  for (int i = 1; i < id.n; i++)
    if (by_number(&all[i - 1], &all[i]) == 0) return node_fail(n, "a node is listed twice");
  for (int i = 0; i < id.n; i++) {
    bool is_leaf;
    if (!read_mode(n, modes, i, &t->mode[i], &is_leaf)) return false;
    if (is_leaf) continue;
    int to[] = {find_node(all, id.n, tree.at[i], yes.at[i]),
                find_node(all, id.n, tree.at[i], no.at[i])};
    if (to[0] < 0 || to[1] < 0)
      return node_fail(n, "node %lld of tree %lld leads to a node that does not exist",
                       (long long)id.at[i], (long long)tree.at[i]);
    t->yes[i] = to[0];
    t->no[i] = to[1];
    t->feature[i] = feature.at[i];
    t->split[i] = split.at[i];
    t->missing[i] = missing.n && missing.at[i];
  }
  // The root of a tree is the first of its nodes in the lists.
  for (int i = 0; i < id.n; i++) {
    int root = all[i].at;
    int64_t one = all[i].tree;
    for (; i < id.n && all[i].tree == one; i++)
      if (all[i].at < root) root = all[i].at;
    i--;
    t->root[t->n_roots++] = root;
  }

  if (!node_floats(n, str_format(n->a, "%s_weights", prefix), &weights) ||
      !node_each(n, str_format(n->a, "%s_treeids", prefix), weights.n, &weight_tree) ||
      !node_each(n, str_format(n->a, "%s_nodeids", prefix), weights.n, &weight_id) ||
      !node_each(n, str_format(n->a, "%s_ids", prefix), weights.n, &weight_target))
    return false;
  for (int i = 0; i < weights.n; i++) {
    int at = find_node(all, id.n, weight_tree.at[i], weight_id.at[i]);
    if (at < 0 || weight_target.at[i] < 0 || weight_target.at[i] >= targets)
      return node_fail(n, "weight %d is of a node or a target that does not exist", i);
    if (t->yes[at] != at || t->no[at] != at) return node_fail(n, "weight %d is not of a leaf", i);
    add_weight(t, at, weight_target.at[i], weights.at[i]);
  }
  return true;
}

// The sums plus base_values: one for each target, one for all, or none.
static Value *with_base(Node *n, const Trees *t, Value *x, Sum sum) {
  Floats base;
  Value *y = evaluated(n, t, x, sum);
  if (!y || !node_floats(n, "base_values", &base) || base.n == 0) return y;
  if (base.n != 1 && base.n != t->n_targets) {
    node_fail(n, "has %d base_values for %d targets", base.n, t->n_targets);
    return NULL;
  }
  return node_add(n, y, node_numbers(n, y->type->dtype, 1, (int64_t[]){base.n}, base.at));
}

bool import_tree_ensemble_regressor(Node *n) {
  static const char *const names[N_SUMS] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const char *asked = node_str(n, "aggregate_function", "SUM");
  Value *x = ml_rows(n);
  Trees t = {0};
  if (!x || !read_trees(n, "target", node_int(n, "n_targets", 1), &t)) return false;
  int sum = 0;
  while (sum < N_SUMS && !str_equal(names[sum], asked))
    sum++;
  if (sum == N_SUMS) return node_fail(n, "aggregate_function '%s' is unknown", asked);
  n->out[0] =
      ml_transformed(n, with_base(n, &t, x, (Sum)sum), node_str(n, "post_transform", "NONE"));
  return true;
}

bool import_tree_ensemble_classifier(Node *n) {
  Value *x = ml_rows(n);
  Labels labels;
  Ints class;
  Trees t = {0};
  if (!x || !ml_labels(n, "classlabels_int64s", "classlabels_strings", &labels)) return false;
  if (labels.n < 2) return node_fail(n, "has one class");
  if (!read_trees(n, "class", labels.n, &t)) return false;
  Value *y = with_base(n, &t, x, SUM_sum);
  const char *post = node_str(n, "post_transform", "NONE");
  // Weights of a single class, which is the second of two: the first has the rest.
  node_list(n, "class_ids", &class);
  bool one = labels.n == 2;
  for (int i = 1; i < class.n; i++)
    one = one && class.at[i] == class.at[0];
  if (one && y) {
    Value *second = build_slice(n->b, y, 1, class.n ? class.at[0] : 0, 1);
    Value *first = node_unary(n, OP_neg, second);
    if (str_equal(post, "NONE") || str_equal(post, "PROBIT"))
      first = build_op(n->b, OP_offset, IN(first), ATTRS(a_f("by", 1)));
    y = build_op(n->b, OP_concat, IN(first, second), ATTRS(a_i("axis", 1)));
  }
  n->out[1] = ml_transformed(n, y, post);
  n->out[0] = ml_label(n, &labels, n->out[1]);
  return true;
}
