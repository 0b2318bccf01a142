// Texts and what they are the names of, found in constant time:
//
//     Table *t = table_new(a);
//     table_add(t, ROLE_weight, "fc1.weight", w);
//     table_find(t, ROLE_weight, "fc1.weight")     w
//
// A text may stand for one thing of each kind.  It must stay as it is as long as the table is used.

#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include "base/arena.h"

typedef struct Table Table;

Table *table_new(Arena *a);
void *table_find(const Table *t, int kind, const char *text); // NULL: nothing is called so
// What is called so already, which stays; else NULL, and `what` is from now on.
void *table_add(Table *t, int kind, const char *text, void *what);

#endif
