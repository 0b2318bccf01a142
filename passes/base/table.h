// A hash table from texts to pointers:
//
//     Table *t = table_new(a);
//     table_add(t, ROLE_weight, "fc1.weight", w);
//     table_find(t, ROLE_weight, "fc1.weight")     w
//
// A text may name one object of each kind.  The table does not copy texts: they must outlive it.

#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include "base/arena.h"

typedef struct Table Table;

Table *table_new(Arena *a);
Table *table_new_for(Arena *a, int n);                        // with capacity for n texts
void *table_find(const Table *t, int kind, const char *text); // NULL: no such entry
// Adds `what` under the name and returns NULL; if an entry exists, returns and keeps it.
void *table_add(Table *t, int kind, const char *text, void *what);

#endif
