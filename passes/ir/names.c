// The names of values: unique in their graph, with lookup in constant time.
//
// A graph has the sum of a hash of each named value and its name, as they were added here.  If
// the same sum over the values of the graph is equal, no name was set in another way, but for one
// chance in 2^64, and each is found: the verifier compares the sums, as a lookup of every value
// takes a tenth of its time.

#include "base/hash.h"
#include "ir/graph.h"
#include "ir/intern.h"

static Value erased;
#define NAME_ERASED (&erased)

// The hash covers the graph: equal names of different graphs share the table.
static uint64_t hash_of(const Graph *g, const char *name) {
  return text_hash((uintptr_t)g, name);
}

// The slot of the value of this name, or the empty slot that ends the search.  Values of another
// hash are not looked at, since they are in no cache.
static NameSlot *find_slot(const Names *names, const Graph *g, const char *name, uint64_t h) {
  for (uint64_t i = h;; i++) {
    NameSlot *s = &names->slot[i & (uint64_t)(names->cap - 1)];
    Value *v = s->value;
    if (!v || (s->hash == h && v != NAME_ERASED && v->graph == g && str_equal(v->name, name)))
      return s;
  }
}

Value *name_find(const Graph *g, const char *name) {
  const Names *names = &g->module->interned->names;
  return names->cap ? find_slot(names, g, name, hash_of(g, name))->value : NULL;
}

// Grows the table for one more name, dropping erased ones; at least half of the slots are empty.
static void grow(Names *names, Arena *a) {
  Names old = *names;
  // The size follows from the live names; erased ones are dropped.
  int live = 0;
  for (int i = 0; i < old.cap; i++)
    live += old.slot[i].value && old.slot[i].value != NAME_ERASED;
  int cap = 64;
  while (cap < 4 * (live + 1))
    cap *= 2;
  *names = (Names){arena_array(a, NameSlot, cap), live, cap};
  for (int i = 0; i < old.cap; i++) {
    const NameSlot *s = &old.slot[i];
    if (s->value && s->value != NAME_ERASED)
      *find_slot(names, s->value->graph, s->value->name, s->hash) = *s;
  }
}

uint64_t name_term(const Value *v) {
  return v->name ? hash_pair(v, v->name) : 0;
}

void name_remove(Value *v) {
  if (!v->name) return;
  Names *names = &v->graph->module->interned->names;
  uint64_t h = hash_of(v->graph, v->name);
  NameSlot *s = names->cap ? find_slot(names, v->graph, v->name, h) : NULL;
  if (!s || s->value != v) BUG("'%s' is not among the names of @%s", v->name, v->graph->name);
  // The slot does not become empty, since searches for other names pass it.
  s->value = NAME_ERASED;
  v->graph->names -= name_term(v);
}

void value_set_name(Value *v, const char *name) {
  Arena *a = v->graph->module->arena;
  name_remove(v);
  v->name = NULL;
  if (!name || !*name) return;
  // A name that begins with a digit would print like the id of an unnamed value, %12.
  if (*name >= '0' && *name <= '9') name = str_format(a, "v%s", name);
  Names *names = &v->graph->module->interned->names;
  if (2 * (names->n + 1) > names->cap) grow(names, a);
  // A taken name gets a number.  The search for a free one ends at its slot.
  const char *unique = name;
  uint64_t h = hash_of(v->graph, unique);
  NameSlot *s = find_slot(names, v->graph, unique, h);
  for (int i = 1; s->value; i++) {
    unique = str_format(a, "%s.%d", name, i);
    h = hash_of(v->graph, unique);
    s = find_slot(names, v->graph, unique, h);
  }
  v->name = unique == name ? str_copy(a, name) : unique;
  *s = (NameSlot){v, h};
  names->n++;
  v->graph->names += name_term(v);
}
