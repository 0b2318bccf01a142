// A map from names to small numbers.

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

int name_map_find(const NameMap *map, const char *name); // -1: not found
// Adds a name, without copying it.  Returns false and changes nothing if it is present already.
bool name_map_add(NameMap *map, const char *name, int value);

#endif
