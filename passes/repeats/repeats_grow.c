// Grows the k occurrences of a block in step.
//
//     seeds     gelu 0                gelu 1                the same op in each
//     operands  linear 0, norm 0      linear 1, norm 1      the producers of operand j, in all of them
//     readers   linear 0, add 0       linear 1, add 1       the readers of result s as operand j
//
// A position is added in all occurrences or in none: if the k nodes have the same label, are in no
// occurrence yet, and are wired alike to their occurrences. So the occurrences are isomorphic at
// any time, and need no later check. At the end of a layer the next node is in the next occurrence;
// at the end of the last one it is something else; a mask that all read is one node and not k.
// There growth stops.
//
// The ops before the first layer may look like the end of each layer, such as the sum of two
// embeddings. Then all occurrences would be shifted, and more values than necessary would pass from
// one to the next. So a shift of that op to the other end is tried.
//
// Operands come first, as they can be followed in one order only, and because a layer then begins
// with its first op. Readers that cannot be distinguished (experts that read the same value) are
// paired last.

#include "repeats_grow.h"

#include <stdlib.h>

enum {
  MANY_READERS = 64, // of one result: more are not followed
  MANY_HEADS = 8,    // heads tried
};

struct Growth {
  const Net *net;
  const uint64_t *color;
  Arena *arena;
  int k;
  int *occurrence, *position; // by node inside an occurrence; else OUTSIDE
  Vec(int) node;              // position p of occurrence i is at p * k + i
  int n;                      // number of positions
  int n_back, n_ahead;        // positions with operands, with readers followed
  Vec(int) unclear;           // positions with indistinguishable readers
  int *next;                  // [k], the position on trial
  Vec(int) like;              // indistinguishable readers, by occurrence
};

Growth *growth_new(const Net *net, const uint64_t *color, Arena *a) {
  Growth *w = arena_one(a, Growth);
  *w = (Growth){.net = net, .color = color, .arena = a};
  w->occurrence = arena_array(a, int, net->n);
  w->position = arena_array(a, int, net->n);
  w->next = arena_array(a, int, net->n);
  for (int i = 0; i < net->n; i++)
    w->occurrence[i] = OUTSIDE;
  return w;
}

static const Node *node_at(const Growth *w, int p, int i) {
  return &w->net->node[w->node.at[p * w->k + i]];
}

// -- One position ----------------------------------------------------------------------------

static bool is_inside(const Growth *w, int node, int i) {
  return node != OUTSIDE && w->occurrence[node] == i;
}

static int readers_inside(const Growth *w, const Node *x, int i) {
  int n = 0;
  for (int r = 0; r < x->n_readers; r++)
    n += is_inside(w, x->reader[r].node, i);
  return n;
}

// Whether x and y have equally many readers inside, at the same positions.
static bool same_readers(const Growth *w, int x, int y, int i) {
  const Node *at_x = &w->net->node[x], *at_y = &w->net->node[y];
  if (readers_inside(w, at_x, 0) != readers_inside(w, at_y, i)) return false;
  for (int r = 0; r < at_x->n_readers; r++) {
    Reader reader = at_x->reader[r];
    if (!is_inside(w, reader.node, 0)) continue;
    Edge e = node_at(w, w->position[reader.node], i)->in[reader.operand];
    if (e.node != y || e.slot != reader.slot) return false;
  }
  return true;
}

// Adds the nodes of w->next as one position, if they fit.
static bool add_position(Growth *w) {
  const Node *first = &w->net->node[w->next[0]];
  bool fits = first->label != NEVER;
  int n = 0;
  // The nodes must be distinct, so each is marked at once.
  for (; fits && n < w->k; n++) {
    int node = w->next[n];
    fits = w->occurrence[node] == OUTSIDE && w->net->node[node].label == first->label;
    if (!fits) break;
    w->occurrence[node] = n;
    w->position[node] = w->n;
  }
  for (int i = 1; fits && i < w->k; i++) {
    // Operands inside must be at the same positions in both.
    const Node *y = &w->net->node[w->next[i]];
    bool operands_fit = true;
    for (int j = 0; j < first->n_in; j++) {
      Edge e = first->in[j], f = y->in[j];
      bool inside = is_inside(w, e.node, 0);
      if (inside != is_inside(w, f.node, i)) {
        operands_fit = false;
        break;
      }
      if (inside && (w->position[e.node] != w->position[f.node] || e.slot != f.slot)) {
        operands_fit = false;
        break;
      }
    }
    fits = operands_fit && same_readers(w, w->next[0], w->next[i], i);
  }
  if (!fits) {
    while (n > 0)
      w->occurrence[w->next[--n]] = OUTSIDE;
    return false;
  }
  // All occurrences have grown by one position.
  for (int i = 0; i < w->k; i++)
    vec_push(w->arena, &w->node, w->next[i]);
  w->n++;
  return true;
}

// -- Directions of growth --------------------------------------------------------------------

// Adds to w->like the readers of result `reader->slot` of p in occurrence i that look like
// `reader`. Returns their number.
static int find_alike(Growth *w, int p, int i, const Reader *reader) {
  const Node *node = node_at(w, p, i);
  int n = 0;
  for (int r = 0; r < node->n_readers; r++) {
    // Readers are alike if operand, slot and label are the same, and they are outside.
    const Reader *y = &node->reader[r];
    bool alike = reader->operand == y->operand && reader->slot == y->slot &&
                 w->occurrence[y->node] == OUTSIDE &&
                 w->net->node[reader->node].label == w->net->node[y->node].label;
    if (alike) {
      vec_push(w->arena, &w->like, node->reader[r].node);
      n++;
    }
  }
  // Sorted by color; equal colors stay in the order of the graph.
  int *like = &w->like.at[w->like.n - n];
  for (int x = 1; x < n; x++)
    for (int y = x; y > 0 && w->color[like[y]] < w->color[like[y - 1]]; y--) {
      int swap = like[y];
      like[y] = like[y - 1];
      like[y - 1] = swap;
    }
  return n;
}

// Grows to the readers of p; to indistinguishable ones only with `pair`. False if such readers were
// left out.
static bool grow_ahead(Growth *w, int p, bool pair) {
  const Node *first = node_at(w, p, 0);
  bool all = true;
  for (int r = 0; first->n_readers <= MANY_READERS && r < first->n_readers; r++) {
    const Reader *reader = &first->reader[r];
    if (w->occurrence[reader->node] != OUTSIDE) continue;
    // Each occurrence must have equally many readers of this kind; they are paired by color.
    w->like.n = 0;
    int n = find_alike(w, p, 0, reader), i = 1;
    if (n > 1 && !pair) {
      all = false;
      continue;
    }
    while (i < w->k && node_at(w, p, i)->n_readers <= MANY_READERS &&
           find_alike(w, p, i, reader) == n)
      i++;
    for (int which = 0; i == w->k && which < n; which++) {
      for (int o = 0; o < w->k; o++)
        w->next[o] = w->like.at[o * n + which];
      add_position(w);
    }
  }
  return all;
}

static void grow(Growth *w) {
  for (;;) {
    if (w->n_back < w->n) {
      // Producers join if every occurrence has a new one at this operand.
      int p = w->n_back++;
      for (int j = 0; j < node_at(w, p, 0)->n_in; j++) {
        int slot = node_at(w, p, 0)->in[j].slot, i = 0;
        for (; i < w->k; i++) {
          Edge e = node_at(w, p, i)->in[j];
          if (e.node == OUTSIDE || e.slot != slot || w->occurrence[e.node] != OUTSIDE) break;
          w->next[i] = e.node;
        }
        if (i == w->k) add_position(w);
      }
    } else if (w->n_ahead < w->n) {
      if (!grow_ahead(w, w->n_ahead, false)) vec_push(w->arena, &w->unclear, w->n_ahead);
      w->n_ahead++;
    } else if (w->unclear.n)
      grow_ahead(w, w->unclear.at[--w->unclear.n], true);
    else
      return;
  }
}

// -- The block -------------------------------------------------------------------------------

typedef struct Position {
  int first, p; // node in occurrence 0
} Position;

static int by_first(const void *x, const void *y) {
  const Position *p = x, *q = y;
  return (p->first > q->first) - (p->first < q->first);
}

// The grown block, in the order of the nodes. Clears the state: no node is inside.
static Tuples take(Growth *w) {
  int k = w->k;
  Tuples t = {k, w->n, arena_array(w->arena, int, w->n *k)};
  Position *order = arena_array(w->arena, Position, w->n);
  for (int p = 0; p < w->n; p++)
    order[p] = (Position){w->node.at[p * k], p};
  qsort(order, (size_t)w->n, sizeof *order, by_first);
  for (int p = 0; p < w->n; p++)
    for (int i = 0; i < k; i++)
      t.node[p * k + i] = w->node.at[order[p].p * k + i];
  for (int i = 0; i < w->node.n; i++)
    w->occurrence[w->node.at[i]] = OUTSIDE;
  return t;
}

// Restores the state from `t` without one position.
static void put_back(Growth *w, const Tuples *t, int but) {
  w->k = t->k;
  w->n = w->node.n = w->unclear.n = 0;
  for (int p = 0; p < t->n; p++) {
    if (p == but) continue;
    for (int i = 0; i < t->k; i++) {
      int node = t->node[p * t->k + i];
      w->occurrence[node] = i;
      w->position[node] = w->n;
      vec_push(w->arena, &w->node, node);
    }
    w->n++;
  }
  w->n_back = w->n_ahead = w->n;
}

Tuples growth_from(Growth *w, const int *seed, int k) {
  w->k = k;
  w->n = w->n_back = w->n_ahead = w->node.n = 0;
  for (int i = 0; i < k; i++)
    w->next[i] = seed[i];
  if (add_position(w)) grow(w);
  return take(w);
}

// -- First op of a block ---------------------------------------------------------------------

// The number of values that cross the border of an inner occurrence, parameters excluded.
static int n_crossing(const Growth *w) {
  // An occurrence in the middle is typical.
  int i = w->k / 2, n = 0;
  Vec(Edge) seen = {0};
  for (int p = 0; p < w->n; p++) {
    const Node *node = node_at(w, p, i);
    for (int j = 0; j < node->n_in; j++) {
      Edge e = node->in[j];
      bool known = e.node == OUTSIDE || is_inside(w, e.node, i);
      for (int k = 0; !known && k < seen.n; k++)
        known = seen.at[k].node == e.node && seen.at[k].slot == e.slot;
      if (!known) vec_push(w->arena, &seen, e);
    }
    // Readers of one slot are adjacent.
    int read = -1; // the last slot counted
    for (int r = 0; r < node->n_readers; r++) {
      Reader reader = node->reader[r];
      if (is_inside(w, reader.node, i) || reader.slot == read) continue;
      read = reader.slot;
      n++;
    }
  }
  return n + seen.n;
}

// Whether position p reads results of other nodes, but none of the inside.
static bool is_head(const Growth *w, const Tuples *t, int p) {
  const Node *node = &w->net->node[t->node[p * t->k]];
  bool reads = false;
  for (int j = 0; j < node->n_in; j++) {
    if (is_inside(w, node->in[j].node, 0)) return false;
    reads |= node->in[j].node != OUTSIDE;
  }
  return reads;
}

Tuples growth_shifted(Growth *w, Tuples t) {
  put_back(w, &t, -1);
  // With another first op, fewer values may cross the border.
  int least = n_crossing(w), n_heads = 0;
  int *head = arena_array(w->arena, int, t.n);
  for (int p = 0; p < t.n; p++)
    if (is_head(w, &t, p)) head[n_heads++] = p;
  take(w);
  for (int i = 0; i < n_heads && i < MANY_HEADS; i++) {
    // The block grows again without this position, which may enter at the other end.
    put_back(w, &t, head[i]);
    w->n_ahead = 0;
    grow(w);
    int crossing = n_crossing(w);
    Tuples to = take(w);
    if (to.n >= t.n && crossing < least) return growth_shifted(w, to);
  }
  return t;
}
