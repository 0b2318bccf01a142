// Hash tables: see table.h.  Open addressing; at least half of the slots are empty.

#include "base/table.h"

#include <stdint.h>
#include <string.h>

#include "base/hash.h"

typedef struct Entry {
  uint64_t hash;
  int kind;
  const char *text; // NULL: an empty slot
  void *what;
} Entry;

struct Table {
  Arena *arena;
  Entry *slot;
  int n, cap;
};

static uint64_t hash_of(int kind, const char *text) {
  return text_hash((uint64_t)kind, text);
}

// The slot of the text, or the empty slot that ends the search.
static Entry *find_slot(const Table *t, uint64_t hash, int kind, const char *text) {
  for (uint64_t i = hash;; i++) {
    Entry *e = &t->slot[i & (uint64_t)(t->cap - 1)];
    if (!e->text || (e->hash == hash && e->kind == kind && !strcmp(e->text, text))) return e;
  }
}

Table *table_new(Arena *a) {
  Table *t = arena_one(a, Table);
  t->arena = a;
  return t;
}

static void resize(Table *t, int cap) {
  Table old = *t;
  t->cap = cap;
  t->slot = arena_array(t->arena, Entry, cap);
  for (int i = 0; i < old.cap; i++)
    if (old.slot[i].text)
      *find_slot(t, old.slot[i].hash, old.slot[i].kind, old.slot[i].text) = old.slot[i];
}

Table *table_new_for(Arena *a, int n) {
  Table *t = table_new(a);
  int cap = 64;
  while (cap < 2 * n)
    cap *= 2;
  resize(t, cap);
  return t;
}

void *table_find(const Table *t, int kind, const char *text) {
  return t->cap ? find_slot(t, hash_of(kind, text), kind, text)->what : NULL;
}

void *table_add(Table *t, int kind, const char *text, void *what) {
  if (2 * (t->n + 1) > t->cap) resize(t, t->cap ? 2 * t->cap : 64);
  // A known text keeps its first entry.
  uint64_t hash = hash_of(kind, text);
  Entry *e = find_slot(t, hash, kind, text);
  if (e->text) return e->what;
  *e = (Entry){hash, kind, text, what};
  t->n++;
  return NULL;
}
