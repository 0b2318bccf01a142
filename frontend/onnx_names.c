// Open addressing; at least half of the slots are free.

#include "frontend/onnx_names.h"

#include <stdint.h>
#include <string.h>

static int find_slot(const NameMap *map, const char *name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char *c = name; *c; c++)
    h = (h ^ (unsigned char)*c) * 0x100000001b3u;
  // FNV-1a; the upper half is folded in, since the mask keeps the lower bits.
  int i = (int)((h ^ h >> 32) & (uint64_t)(map->cap - 1));
  while (map->slot[i].name && strcmp(map->slot[i].name, name) != 0)
    i = (i + 1) & (map->cap - 1);
  return i;
}

int name_map_find(const NameMap *map, const char *name) {
  if (map->cap == 0) return -1;
  int i = find_slot(map, name);
  return map->slot[i].name ? map->slot[i].value : -1;
}

bool name_map_add(NameMap *map, const char *name, int value) {
  if (2 * (map->n + 1) > map->cap) {
    // The map doubles, and every name moves to the slot of its hash.
    NameMap old = *map;
    map->cap = old.cap ? 2 * old.cap : 32;
    map->slot = arena_alloc_array(map->arena, (size_t)map->cap, sizeof *map->slot);
    for (int k = 0; k < old.cap; k++)
      if (old.slot[k].name) map->slot[find_slot(map, old.slot[k].name)] = old.slot[k];
  }
  int i = find_slot(map, name);
  // The first value of a name stays.
  if (map->slot[i].name) return false;
  map->slot[i].name = name;
  map->slot[i].value = value;
  map->n++;
  return true;
}
