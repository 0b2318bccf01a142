// Shared by the ops that read or write rows of a table by index: gather, gather_back and scatter.

#ifndef IR_OPS_LOOKUP_H
#define IR_OPS_LOOKUP_H

#include "ir/ops/einsum.h"

// The letters of the table, with `rows` for its axis; of the indices; and of the rows, which have
// the indices in the place of the axis.  `mark` follows the letters of the indices: "" or "^".
void lookup_add_table(Einsum *e, int ndim, int axis, const char *rows);
void lookup_add_indices(Einsum *e, int batch, int ndim, const char *mark);
void lookup_add_rows(Einsum *e, int ndim, int axis, int batch, int index_ndim, const char *mark);
// Checks that the dimensions shared by tables and indices come right before the axis.
bool lookup_batch_fits(const Op *op, int index_ndim, Diag *d);

// Appends the gather with the axis and batch of `op`.
Value *lookup_gather(Builder *b, const Op *op, Value *table, Value *index);

// The table is (outer, n, inner), the indices (m) or (outer, m), the rows (outer, m, inner); the
// table is rows `from` to `from + n` of `all`.
typedef struct Lookup {
  int64_t outer, n, inner, m, from, all;
  bool own; // each of the outer tables has its own indices
} Lookup;

Lookup lookup_of(const Op *op, const Type *table, const Type *index, const Box *box);
// Sets `out` to the row of the table for index `i`, or to -1 if another shard has it; negative
// indices count from the end.  False after an error.
bool lookup_row(const Op *op, const Tensor *index, int64_t i, const Lookup *l, int64_t *out,
                Diag *d);

#endif
