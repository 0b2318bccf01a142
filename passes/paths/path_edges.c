// The primitives that may follow a state: see path_edges.h.

#include "path_edges.h"

typedef struct Walk {
  const TensorShape *shape;
  const Group *group; // [2]
  const State *before;
  EdgeVisitor *visit;
  void *context;
  bool few; // few axes: no edge is left out
} Walk;

static bool found(const Walk *w, const Edge *e, const State *after) {
  return w->visit(w->context, e, after);
}

// Distributes the axes in `left` of `g` over the dimensions in `dims`, from `dim` on, in every
// order.
static bool arrange(const Walk *w, const Edge *e, const Group *g, State *s, uint32_t left,
                    uint32_t dims, int dim, int last) {
  if (!left) return !state_fits(w->shape, g, s) || found(w, e, s);
  if (dim == w->shape->ndim) return true;
  // Each axis that is left as the next place of this dimension; then the next dimension.
  if (dims >> dim & 1) {
    int place = state_places(g, s, dim);
    for (int i = 0; i < g->n_axes; i++) {
      if (!(left >> i & 1) || (!w->few && i < last)) continue;
      uint8_t old = s->label[i];
      s->label[i] = (uint8_t)label_of(dim, place);
      bool more = arrange(w, e, g, s, left & ~(1u << i), dims, dim, i);
      s->label[i] = old;
      if (!more) return false;
    }
  }
  return arrange(w, e, g, s, left, dims, dim + 1, 0);
}

static uint32_t all_dims(const Walk *w) {
  return (1u << w->shape->ndim) - 1;
}

// Removes the axes in `mask`, all of dimensions, from the state; *dims: the set of these.  False if
// they are not innermost.
static bool take_places(const Group *g, State *s, uint32_t mask, uint32_t *dims) {
  *dims = 0;
  for (int i = 0; i < g->n_axes; i++)
    if (mask >> i & 1) *dims |= 1u << label_dim(s->label[i]);
  // An axis that stays inside of one that goes.
  for (int i = 0; i < g->n_axes; i++)
    for (int k = 0; k < g->n_axes; k++)
      if ((mask >> i & 1) && !(mask >> k & 1) && label_dim(s->label[i]) == label_dim(s->label[k]) &&
          s->label[k] > s->label[i])
        return false;
  for (int i = 0; i < g->n_axes; i++)
    if (mask >> i & 1) s->label[i] = LABEL_B;
  return true;
}

// The common label of all axes in the mask: LABEL_B, LABEL_P, LABEL_DIM for dimensions, or -1.
static int common_label(const Group *g, const State *s, uint32_t mask) {
  int label = -1;
  for (int i = 0; i < g->n_axes; i++) {
    if (!(mask >> i & 1)) continue;
    int own = s->label[i] < LABEL_DIM ? s->label[i] : LABEL_DIM;
    if (label >= 0 && label != own) return -1;
    label = own;
  }
  return label;
}

static void set_labels(State *s, uint32_t mask, int label) {
  for (int i = 0; i < PATH_AXES; i++)
    if (mask >> i & 1) s->label[i] = (uint8_t)label;
}

// slice, split_sum and pad_sum, one axis at a time.
static bool local_edges(const Walk *w) {
  const Group *g = &w->group[w->before->group];
  for (int i = 0; i < g->n_axes; i++) {
    State s = *w->before;
    Edge e = {.mask = 1u << i};
    uint32_t dims;
    // A copy becomes a shard, or a partial sum with zeros; a shard becomes a partial sum, padded.
    if (s.label[i] == LABEL_B) {
      e.prim = PATH_slice;
      if (!arrange(w, &e, g, &s, e.mask, all_dims(w), 0, 0)) return false;
      e.prim = PATH_split_sum;
      s.label[i] = LABEL_P;
      if (!found(w, &e, &s)) return false;
    } else if (s.label[i] >= LABEL_DIM && take_places(g, &s, e.mask, &dims)) {
      e.prim = PATH_pad_sum;
      s.label[i] = LABEL_P;
      if (!found(w, &e, &s)) return false;
    }
  }
  return true;
}

static bool collective_edges(const Walk *w) {
  const Group *g = &w->group[w->before->group];
  for (uint32_t mask = 1; mask < 1u << g->n_axes; mask++) {
    // A collective reduces axes that are all partial sums, or moves axes that are all sharded.
    int label = common_label(g, w->before, mask);
    State s = *w->before;
    Edge e = {.mask = mask};
    uint32_t dims;
    if (label == LABEL_P) {
      set_labels(&s, mask, LABEL_B);
      e.prim = PATH_all_reduce;
      if (!found(w, &e, &s)) return false;
      e.prim = PATH_reduce_scatter;
      if (!arrange(w, &e, g, &s, mask, all_dims(w), 0, 0)) return false;
    } else if (label == LABEL_DIM && take_places(g, &s, mask, &dims)) {
      e.prim = PATH_all_gather;
      if (!found(w, &e, &s)) return false;
      e.prim = PATH_all_to_all;
      if (!arrange(w, &e, g, &s, mask, all_dims(w) & ~dims, 0, 0)) return false;
    }
  }
  return true;
}

static bool map_axes(const Walk *w, Edge *e, const Group *small, const Group *large, int axis,
                     uint32_t taken, const State *from, bool shrinks);

// Adds edges for a complete map: all axes of the smaller group have an axis of the larger one.
static bool map_done(const Walk *w, Edge *e, const Group *small, const Group *large, uint32_t taken,
                     const State *from, bool shrinks) {
  State s = {.group = (uint8_t)(e->prim == PATH_permute ? from->group : 1)};
  uint32_t extra = ((1u << large->n_axes) - 1) & ~taken, dims;
  // To a group of at least this size: `extra` are the larger group's unmapped axes.
  if (!shrinks) {
    for (int i = 0; i < small->n_axes; i++)
      s.label[e->map[i]] = from->label[i];
    if (!extra || w->before->group != 0 || w->group[0].n >= w->group[1].n) return found(w, e, &s);
    e->prim = PATH_broadcast;
    set_labels(&s, extra, LABEL_B);
    if (!found(w, e, &s)) return false;
    e->prim = PATH_rd_scatter;
    return arrange(w, e, &w->group[1], &s, extra, all_dims(w), 0, 0);
  }
  // To a smaller group: its axes keep their labels, and the others end in one way.
  State left = *from;
  int label = common_label(large, from, extra);
  if (label < 0 || (label == LABEL_DIM && !take_places(large, &left, extra, &dims))) return true;
  e->prim = label == LABEL_B ? PATH_move : label == LABEL_P ? PATH_reduce : PATH_rd_gather;
  for (int i = 0; i < small->n_axes; i++)
    s.label[i] = left.label[e->map[i]];
  return found(w, e, &s);
}

static bool map_axes(const Walk *w, Edge *e, const Group *small, const Group *large, int axis,
                     uint32_t taken, const State *from, bool shrinks) {
  if (axis == small->n_axes) return map_done(w, e, small, large, taken, from, shrinks);
  for (int i = 0; i < large->n_axes; i++) {
    if (taken >> i & 1 || large->size[i] != small->size[axis]) continue;
    // With many axes, only order-preserving maps.
    if (!w->few && axis > 0 && i < e->map[axis - 1]) continue;
    e->map[axis] = (uint8_t)i;
    if (!map_axes(w, e, small, large, axis + 1, taken | 1u << i, from, shrinks)) return false;
  }
  return true;
}

// Permutations of pieces within the group.
static bool permute_edges(const Walk *w) {
  const Group *g = &w->group[w->before->group];
  Edge e = {.prim = PATH_permute};
  if (w->few) return map_axes(w, &e, g, g, 0, 0, w->before, false);
  // With many axes, only swaps of two.
  for (int i = 0; i < g->n_axes; i++)
    for (int k = 0; k < i; k++) {
      if (g->size[i] != g->size[k] || w->before->label[i] == w->before->label[k]) continue;
      State s = *w->before;
      for (int axis = 0; axis < g->n_axes; axis++)
        e.map[axis] = (uint8_t)axis;
      e.map[i] = (uint8_t)k;
      e.map[k] = (uint8_t)i;
      s.label[i] = w->before->label[k];
      s.label[k] = w->before->label[i];
      if (!found(w, &e, &s)) return false;
    }
  return true;
}

bool path_edges(const TensorShape *shape, const Group group[2], const State *s, EdgeVisitor *visit,
                void *context) {
  Walk w = {shape, group,   s,
            visit, context, group[0].n_axes <= PATH_FEW_AXES && group[1].n_axes <= PATH_FEW_AXES};
  if (!local_edges(&w) || !collective_edges(&w) || !permute_edges(&w)) return false;
  // Edges to the other group, if one size divides the other.
  if (s->group == 1 || group[1].n == 0) return true;
  int n = group[0].n, m = group[1].n;
  if (n % m && m % n) return true;
  Edge e = {.prim = PATH_move};
  bool shrinks = group[0].n > group[1].n;
  return map_axes(&w, &e, &group[shrinks], &group[!shrinks], 0, 0, s, shrinks);
}
