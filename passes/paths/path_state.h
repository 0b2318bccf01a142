// The state of a tensor on the way from one placement to another.
//
// A group is a list of devices, factored into axes like a mesh: a position in the list has a digit
// on every axis.  A state gives each axis of a group one of
//
//     B            devices that differ in this digit have the same data
//     P            they have shares of a partial sum
//     a place      they have adjacent parts of one dimension; the places of a dimension are nested,
//     in a dim     the first is the outermost
//
// so a state determines the box of the tensor and the share of every device.  A path that ends with
// the right parts on the wrong devices is therefore no path.  With devices 0-3 as axes a (0,2) and
// b (0,1):
//
//     a:B b:0.0        0 and 2 have the first half of dimension 0, 1 and 3 the second
//     a:0.1 b:0.0      quarters 0 1 2 3 of dimension 0 are on devices 0 2 1 3
//
// Axes are prime if that leaves few of them; see path_groups.

#ifndef PATH_STATE_H
#define PATH_STATE_H

#include "placement.h"

enum {
  PATH_AXES = 16,
  PATH_FEW_AXES = 4, // up to this many, axes are split into primes and all edges are tried
};

typedef struct Group {
  int n;
  const int *device;
  const int *position; // during a search, per device of the cluster: its index in `device`, or -1
  int n_axes, size[PATH_AXES], stride[PATH_AXES]; // digit = position / stride % size
} Group;

typedef enum Label { LABEL_B, LABEL_P, LABEL_DIM } Label;
// A dimension's label is LABEL_DIM + dim * PATH_AXES + place.

typedef struct State {
  uint8_t group;            // 0: of the producers, 1: of the consumers
  uint8_t label[PATH_AXES]; // of the group's axes; 0 after them
} State;

static inline int label_dim(int label) { // -1: none
  return label < LABEL_DIM ? -1 : (label - LABEL_DIM) / PATH_AXES;
}
static inline int label_place(int label) {
  return (label - LABEL_DIM) % PATH_AXES;
}
static inline int label_of(int dim, int place) {
  return LABEL_DIM + dim * PATH_AXES + place;
}

// The data of a device: parts of the dimensions, and the share of the sum.  Two devices have the
// same data if and only if their pieces are equal.
typedef struct Piece {
  int index[PLACEMENT_DIMS], parts[PLACEMENT_DIMS]; // index of parts equal parts
  int share, shares;
} Piece;

// Computes both ends of a path.  The groups share axes as far as possible: if one is larger, its
// axes include the other's sizes.  If both are the same list there is only group 0, and group 1 is
// empty. No more than PATH_AXES axes are needed: CLUSTER_DEVICES has fewer prime factors.
void path_groups(Arena *a, const Cluster *c, const TensorShape *shape, const Placement *from,
                 const Placement *to, Group group[2], State *first, State *last);

Piece state_piece(const TensorShape *shape, const Group *g, const State *s, int position);
bool piece_equal(const Piece *a, const Piece *b);
// The number of parts of a dimension; also for shapes of its pieces.
int64_t state_parts(const Group *g, const State *s, int dim);
// Bytes of a device's piece.
double state_bytes(const TensorShape *shape, const Group *g, const State *s);
// Whether the state's parts divide every dimension.
bool state_fits(const TensorShape *shape, const Group *g, const State *s);
// The number of axes that split the dimension.
int state_places(const Group *g, const State *s, int dim);

#endif
