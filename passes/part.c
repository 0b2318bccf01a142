// See part.h.

#include "part.h"

#include <stdlib.h>
#include <string.h>

const char *const part_name[N_PARTS] = {"forward", "backward", "update"};

static const char gradient[] = "gradient", update[] = "update", piece_of[] = "piece ";

Part op_part(const Op *op) {
  for (const Loc *l = op->loc; l; l = l->from)
    for (int p = PART_update; l->why && p > PART_forward; p--)
      if (str_equal(l->why, p == PART_update ? update : gradient)) return (Part)p;
  return PART_forward;
}

const Loc *gradient_origin(const Op *op) {
  const Loc *l = op->loc;
  while (l && !str_equal(l->why, gradient))
    l = l->from;
  return l ? l->from : NULL;
}

bool op_is_gradient_of(const Op *op, const Op *of) {
  const Loc *origin = gradient_origin(op);
  return origin && (origin == of->loc || loc_same(origin, of->loc)) && op_part(of) == PART_forward;
}

int op_piece(const Op *op) {
  for (const Loc *l = op->loc; l; l = l->from)
    if (l->why && str_starts(l->why, piece_of)) return atoi(l->why + strlen(piece_of));
  return 0;
}

const Loc *loc_of_piece(Arena *a, const Loc *loc, int piece) {
  return loc_from(a, loc, str_format(a, "%s%d", piece_of, piece));
}
