// The names of values: unique in their graph, with lookup in constant time.

#include <string.h>

#include "ir/graph.h"
#include "ir/intern.h"

static Value erased;
#define NAME_ERASED (&erased)

// The slot of the value of this name, or the empty slot that ends the search.
static int find_slot(const Names *names, const Graph *g, const char *name) {
  // The hash covers the graph: equal names of different graphs share the table.
  uint64_t h = (uintptr_t)g;
  for (const char *c = name; *c; c++)
    h = (h ^ (unsigned char)*c) * 0x100000001b3u;
  h ^= h >> 29;
  int i = (int)(h & (uint64_t)(names->cap - 1));
  for (;; i = (i + 1) & (names->cap - 1)) {
    Value *v = names->slot[i];
    if (!v || (v != NAME_ERASED && v->graph == g && strcmp(v->name, name) == 0)) return i;
  }
}

Value *name_find(const Graph *g, const char *name) {
  const Names *names = &g->module->interned->names;
  return names->cap ? names->slot[find_slot(names, g, name)] : NULL;
}

// Grows the table for one more name, dropping erased ones; at least half of the slots are empty.
static void grow(Names *names, Arena *a) {
  Names old = *names;
  // The size follows from the live names; erased ones are dropped.
  int live = 0;
  for (int i = 0; i < old.cap; i++)
    live += old.slot[i] && old.slot[i] != NAME_ERASED;
  int cap = 64;
  while (cap < 4 * (live + 1))
    cap *= 2;
  *names = (Names){arena_array(a, Value *, cap), live, cap};
  for (int i = 0; i < old.cap; i++)
    if (old.slot[i] && old.slot[i] != NAME_ERASED)
      names->slot[find_slot(names, old.slot[i]->graph, old.slot[i]->name)] = old.slot[i];
}

void name_remove(Value *v) {
  if (!v->name) return;
  Names *names = &v->graph->module->interned->names;
  int i = names->cap ? find_slot(names, v->graph, v->name) : 0;
  if (!names->cap || names->slot[i] != v)
    BUG("'%s' is not among the names of @%s", v->name, v->graph->name);
  // The slot does not become empty, since searches for other names pass it.
  names->slot[i] = NAME_ERASED;
}

void value_set_name(Value *v, const char *name) {
  Arena *a = v->graph->module->arena;
  name_remove(v);
  v->name = NULL;
  if (!name || !*name) return;
  // A name that begins with a digit would print like the id of an unnamed value, %12.
  if (*name >= '0' && *name <= '9') name = str_format(a, "v%s", name);
  // A taken name gets a number.
  const char *unique = name;
  for (int i = 1; name_find(v->graph, unique); i++)
    unique = str_format(a, "%s.%d", name, i);
  v->name = unique == name ? str_copy(a, name) : unique;
  Names *names = &v->graph->module->interned->names;
  if (2 * (names->n + 1) > names->cap) grow(names, a);
  int i = find_slot(names, v->graph, v->name);
  if (names->slot[i]) BUG("two values named '%s' in @%s", v->name, v->graph->name);
  names->slot[i] = v;
  names->n++;
}
