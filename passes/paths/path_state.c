// Groups, states and pieces: see path_state.h.

#include "path_state.h"

#include <assert.h>
#include <string.h>

// -- Pieces ----------------------------------------------------------------------------------

Piece state_piece(const TensorShape *shape, const Group *g, const State *s, int position) {
  Piece p = {.shares = 1};
  // Shares, and the axes of each dimension.
  int axis_at[PLACEMENT_DIMS][PATH_AXES]; // by place
  int places[PLACEMENT_DIMS] = {0};
  for (int i = 0; i < g->n_axes; i++) {
    int dim = label_dim(s->label[i]);
    int digit = position / g->stride[i] % g->size[i];
    if (dim >= 0) {
      axis_at[dim][label_place(s->label[i])] = i;
      places[dim]++;
    } else if (s->label[i] == LABEL_P) {
      p.share = p.share * g->size[i] + digit;
      p.shares *= g->size[i];
    }
  }
  // Places of a dimension are nested: the outermost axis is the most significant digit.
  for (int dim = 0; dim < shape->ndim; dim++) {
    p.parts[dim] = 1;
    for (int place = 0; place < places[dim]; place++) {
      int i = axis_at[dim][place];
      p.index[dim] = p.index[dim] * g->size[i] + position / g->stride[i] % g->size[i];
      p.parts[dim] *= g->size[i];
    }
  }
  return p;
}

bool piece_equal(const Piece *a, const Piece *b) {
  return !memcmp(a, b, sizeof *a);
}

int64_t state_parts(const Group *g, const State *s, int dim) {
  int64_t parts = 1;
  for (int i = 0; i < g->n_axes; i++)
    if (label_dim(s->label[i]) == dim) parts *= g->size[i];
  return parts;
}

int state_places(const Group *g, const State *s, int dim) {
  int n = 0;
  for (int i = 0; i < g->n_axes; i++)
    n += label_dim(s->label[i]) == dim;
  return n;
}

double state_bytes(const TensorShape *shape, const Group *g, const State *s) {
  double bytes = shape->bytes;
  for (int dim = 0; dim < shape->ndim; dim++)
    bytes *= (double)shape->dim[dim];
  for (int i = 0; i < g->n_axes; i++)
    if (s->label[i] >= LABEL_DIM) bytes /= g->size[i];
  return bytes;
}

bool state_fits(const TensorShape *shape, const Group *g, const State *s) {
  for (int dim = 0; dim < shape->ndim; dim++)
    if (shape->dim[dim] % state_parts(g, s, dim)) return false;
  return true;
}

// -- Groups ----------------------------------------------------------------------------------

// A placement's R, V and D, outermost first.
static int placement_factors(const TensorShape *shape, const Placement *p, int *size) {
  size[0] = p->copies;
  size[1] = p->shares;
  for (int i = 0; i < shape->ndim; i++)
    size[2 + i] = p->part[i];
  return 2 + shape->ndim;
}

// Axis boundaries of both groups: ascending numbers, each a divisor of the next.  A cut c splits
// the positions into position / c and position % c.
typedef struct Cuts {
  int n, at[64];
} Cuts;

// False, without a change, if the numbers would no longer divide one another.
static bool add_cut(Cuts *c, int cut) {
  // Its neighbours decide.
  int i = 0;
  while (i < c->n && c->at[i] < cut)
    i++;
  if (i < c->n && c->at[i] == cut) return true;
  if (c->n == 64 || (i > 0 && cut % c->at[i - 1]) || (i < c->n && c->at[i] % cut)) return false;
  memmove(c->at + i + 1, c->at + i, (size_t)(c->n - i) * sizeof *c->at);
  c->at[i] = cut;
  c->n++;
  return true;
}

static bool add_placement(Cuts *c, const TensorShape *shape, const Placement *p) {
  int size[2 + PLACEMENT_DIMS];
  bool ok = true;
  for (int i = placement_factors(shape, p, size) - 1, inner = 1; i >= 0; i--)
    ok = add_cut(c, inner *= size[i]) && ok;
  return ok;
}

static int smallest_prime(int n) {
  for (int p = 2; p <= n / p; p++)
    if (n % p == 0) return p;
  return n;
}

// Finds common axes: as few as the placements, the nodes and the other group allow; if they are
// few, splits them further, down to primes.
static bool shared_cuts(Cuts *cuts, const Cluster *c, const TensorShape *shape,
                        const Placement *from, const Placement *to) {
  *cuts = (Cuts){1, {1}};
  if (!add_placement(cuts, shape, from) || !add_placement(cuts, shape, to)) return false;
  // Collectives within nodes are cheaper: let the nodes be an axis, if they can.
  int n = cuts->at[cuts->n - 1];
  if (c->per_node < n) add_cut(cuts, c->per_node);
  for (bool grown = true; grown && cuts->n <= PATH_FEW_AXES;) {
    grown = false;
    for (int i = 1; i < cuts->n && !grown; i++) {
      int ratio = cuts->at[i] / cuts->at[i - 1], prime = smallest_prime(ratio);
      if (prime < ratio) grown = add_cut(cuts, cuts->at[i - 1] * prime);
    }
  }
  return true;
}

// The axes of one placement, outermost first, each with its label; `prime`: only prime axes.
static void factor(const TensorShape *shape, const Placement *p, const Cuts *cuts, bool prime,
                   Group *g, State *s) {
  int size[2 + PLACEMENT_DIMS];
  int n_factors = placement_factors(shape, p, size);
  int outer = p->n; // positions not factored yet
  g->n_axes = 0;
  for (int i = 0; i < n_factors; i++) {
    for (int left = size[i], place = 0; left > 1; place++) {
      assert(g->n_axes < PATH_AXES); // CLUSTER_DEVICES has fewer prime factors
      int axis;
      if (prime) {
        axis = smallest_prime(left);
      } else {
        // The axis reaches down to the next cut.
        int below = cuts->n - 1;
        while (cuts->at[below] >= outer)
          below--;
        axis = outer / cuts->at[below];
      }
      s->label[g->n_axes] = (uint8_t)(i == 0 ? LABEL_B : i == 1 ? LABEL_P : label_of(i - 2, place));
      g->size[g->n_axes++] = axis;
      left /= axis;
      outer /= axis;
    }
  }
}

static void set_strides(Group *g) {
  for (int i = g->n_axes - 1, stride = 1; i >= 0; i--) {
    g->stride[i] = stride;
    stride *= g->size[i];
  }
}

// Sorts the axes by size, and permutes the list of devices accordingly, so that groups with
// different orders of factors, 2x3 and 3x2, have the same axes over different lists.
static void sort_axes(Arena *a, Group *g, State *s) {
  Group old = *g;
  int from[PATH_AXES];
  uint8_t label[PATH_AXES];
  set_strides(&old);
  // Insertion sort, which leaves axes of one size in their order.
  for (int i = 0; i < g->n_axes; i++) {
    int k = i;
    for (; k > 0 && old.size[from[k - 1]] > old.size[i]; k--)
      from[k] = from[k - 1];
    from[k] = i;
  }
  for (int i = 0; i < g->n_axes; i++) {
    g->size[i] = old.size[from[i]];
    label[i] = s->label[from[i]];
  }
  memcpy(s->label, label, (size_t)g->n_axes);
  set_strides(g);
  // The device at each new position is the one with the same digits in the old order.
  int *device = arena_array(a, int, g->n);
  for (int x = 0; x < g->n; x++) {
    int y = 0;
    for (int i = 0; i < g->n_axes; i++)
      y += x / g->stride[i] % g->size[i] * old.stride[from[i]];
    device[x] = old.device[y];
  }
  g->device = device;
}

void path_groups(Arena *a, const Cluster *c, const TensorShape *shape, const Placement *from,
                 const Placement *to, Group group[2], State *first, State *last) {
  Cuts cuts;
  bool shared = shared_cuts(&cuts, c, shape, from, to);
  *first = (State){.group = 0};
  *last = (State){.group = 1};
  group[0] = (Group){.n = from->n, .device = from->device};
  group[1] = (Group){.n = to->n, .device = to->device};
  factor(shape, from, &cuts, !shared, &group[0], first);
  factor(shape, to, &cuts, !shared, &group[1], last);
  for (int i = 0; i < 2; i++) {
    if (shared)
      set_strides(&group[i]);
    else
      sort_axes(a, &group[i], i ? last : first);
    // The position of each device in the group.
    int *position = arena_array(a, int, cluster_devices(c));
    for (int d = 0; d < cluster_devices(c); d++)
      position[d] = -1;
    for (int x = 0; x < group[i].n; x++)
      position[group[i].device[x]] = x;
    group[i].position = position;
  }
  // Equal lists of devices are one group.
  if (from->n == to->n && !memcmp(group[0].device, group[1].device, sizeof(int) * (size_t)to->n)) {
    group[1] = (Group){0};
    last->group = 0;
  }
}
