// Hash tables: see table.h.  Open addressing; at least half of the slots are empty.

#include "base/table.h"

#include <stdint.h>
#include <string.h>

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
  uint64_t h = (uint64_t)kind + 14695981039346656037u;
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * 0x100000001b3u;
  return h ^ h >> 29;
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

void *table_find(const Table *t, int kind, const char *text) {
  return t->cap ? find_slot(t, hash_of(kind, text), kind, text)->what : NULL;
}

void *table_add(Table *t, int kind, const char *text, void *what) {
  if (2 * (t->n + 1) > t->cap) {
    Table old = *t;
    t->cap = old.cap ? 2 * old.cap : 64;
    t->slot = arena_array(t->arena, Entry, t->cap);
    for (int i = 0; i < old.cap; i++)
      if (old.slot[i].text)
        *find_slot(t, old.slot[i].hash, old.slot[i].kind, old.slot[i].text) = old.slot[i];
  }
  // A known text keeps its first entry.
  uint64_t hash = hash_of(kind, text);
  Entry *e = find_slot(t, hash, kind, text);
  if (e->text) return e->what;
  *e = (Entry){hash, kind, text, what};
  t->n++;
  return NULL;
}
