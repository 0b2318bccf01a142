// See part.h.

#include "part.h"

const char *const part_name[N_PARTS] = {"forward", "backward", "update"};

Part op_part(const Op *op) {
  for (const Loc *l = op->loc; l; l = l->from)
    for (int p = PART_update; l->why && p > PART_forward; p--)
      if (str_equal(l->why, p == PART_update ? "update" : "gradient")) return (Part)p;
  return PART_forward;
}
