// What a name stands for: a map from strings to small numbers.

#ifndef FRONTEND_ONNX_NAMES_H
#define FRONTEND_ONNX_NAMES_H

#include "base/arena.h"
#include "base/str.h"

typedef struct NameMap {
  Arena *arena;
  struct {
    const char *name; // NULL: a free slot
    int value;
  } * slot;
  int n, cap;
} NameMap;

int name_map_find(const NameMap *map, const char *name); // -1: not there
// False, changing nothing, when the name is there already.  It is not copied.
bool name_map_add(NameMap *map, const char *name, int value);

#endif
