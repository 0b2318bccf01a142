// The state shared by the files of the proof: prove.c visits the ops, prove_pieces.c handles
// slices, prove_lowered.c lowered ops and types, prove_model.c the model's program, prove_why.c
// (prove.h) the error messages.

#ifndef PROVE_STATE_H
#define PROVE_STATE_H

#include "base/table.h"
#include "ir/model_values.h"
#include "ir/op.h"
#include "piece.h"
#include "prove.h"

enum { UNKNOWN = -1 };

// The meaning of a value of the distributed program.
typedef struct Meaning {
  int number;                  // UNKNOWN for pieces and buckets, and after an error
  Piece *piece;                // the values that it is a part of, or NULL
  const struct Bucket *bucket; // NULL unless it is a bucket
  const struct Terms *terms;   // it is the sum of these values, which the model's program does not
                               // have; NULL: it is none (prove_sums.c)
  // Of lowered programs (prove_lowered.c); the model's program may have no such value.
  const struct Meaning *cast_of;   // it is the cast of that value, of type `dtype`
  const struct Meaning *rounds_to; // it is that value, of type `dtype`, before it was rounded
  DType dtype;
  int reshape_of; // it is a reshape of that number; UNKNOWN: it is none, or has a number
  // It is the value of number `padded_of` - 1 with padding after its dimension `pad_dim`; 0: it is
  // not (prove_padded.c).
  int padded_of, pad_dim;
} Meaning;

static const Meaning no_meaning = {.number = UNKNOWN, .reshape_of = UNKNOWN};

// A member of a bucket: its offset in elements, and its meaning.
typedef struct Member {
  int64_t offset;
  const Type *type; // of a rank's shard
  Meaning is;
} Member;

typedef struct Bucket {
  int n;
  Member *member;
} Bucket;

// Sums: prove_sums.c.
typedef struct Terms Terms;
typedef struct ModelSums ModelSums;

typedef struct Proof {
  const Graph *model, *g;
  const Numbers *numbers;    // of `model`
  const Table *params;       // of `model`, by role and label
  Meaning *of;               // by value id, of the graph at hand: `g`, or a body that it runs
  struct ReaderOf **readers; // by number, of `model`; NULL until the first piece
  ModelSums *sums;           // of `model`; NULL until the first sum in another order
  Module *scratch;           // for definitions of joined ops
  Arena *a;
  Diag *d;
  bool padding; // some weight is padded
  bool ok;
} Proof;

static inline Meaning *meaning(const Proof *p, const Value *v) {
  return &p->of[v->id];
}

static inline const char *kind_name(const Op *op) {
  return op_info[op->kind].name;
}

static inline bool op_runs_graph(const Op *op) {
  return op->kind == OP_fused || op->kind == OP_multi_tensor;
}

// -- prove.c ---------------------------------------------------------------------------------

void prove_error(Proof *p, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Reports the error, and continues with the results of the op that was most likely intended.
void prove_wrong(Proof *p, const Op *op, const int *in);
// The types of results, compared with those in the model's program.
typedef enum Types {
  TYPES_same,
  TYPES_widened, // f32 may be 16 bits there
  TYPES_moved,   // elements of another type are moved, so only dimensions are compared
} Types;

// Gives the results of `op` their numbers if the model's program has it.  False, without an error,
// if it has not.
bool prove_known(Proof *p, const Op *op, Types types);
// Checks that the layouts of operands and results follow from the einsum `dims` of the whole op.
void prove_layouts(Proof *p, const Op *op, const Dims *dims);
void prove_ops(Proof *p, const Graph *g);

// -- prove_values.c --------------------------------------------------------------------------

// The facts about the first entry that the caller of the proof asked for.
typedef struct Wanted {
  ModelValues *out;
  Arena *a;
  // The values of the model's program in their order, as the proof has them: of a copy, some of
  // which another program may have replaced (prove_model.c).
  const Value **value;
  int n;
} Wanted;

// Fills in the value of the model's program that each value stands for, once all is proved.
void prove_values(const Proof *p, const Wanted *want);

// -- prove_model.c ---------------------------------------------------------------------------

const Graph *entry_named(const Module *m, const char *name); // NULL: no entry has it
// Makes `with`, a clone of the model's program, the one that `m` is compared with.  Without changes
// there is no clone, unless `with` is one already.  False after an error.
bool prove_model(const Module *model, const Module *m, Module **with, Diag *d);

// -- prove_lowered.c -------------------------------------------------------------------------

// Follows an op that runs a graph, with its operands: fused, multi_tensor, or a joined op.
void prove_body(Proof *p, const Op *op);
// The meaning of the cast of a value of type `from`.
Meaning cast_meaning(Proof *p, const Meaning *v, DType from, DType to);
// Proves an op on lowered operands.  False, without an error, if it is none.
bool prove_lowered(Proof *p, const Op *op);
// "the cast of weight 'w' to bf16"; NULL if the value is not one of lowered programs.
const char *lowered_name(const Proof *p, const Value *v);

// -- prove_sums.c ----------------------------------------------------------------------------

// Proves an add for a sum that the model's program has in another order. False, without an error,
// if it is none.
bool prove_sum(Proof *p, const Op *op);
// Reports an op that adds, or reads, a sum that the model's program does not have, with the terms
// that it lacks or has too often. False, without an error, if it is none.
bool prove_no_sum(Proof *p, const Op *op);

// -- prove_padded.c --------------------------------------------------------------------------

// Whether the parameter is `is` of the model's program with padding; sets its meaning.
bool prove_padded_param(Proof *p, const Value *v, const Value *is);
bool prove_reads_padded(const Proof *p, const Op *op);
// Proves an op that reads values with padding, or repeats its operand for them.  False, without an
// error, if it cannot.
bool prove_padded(Proof *p, const Op *op);
// Whether the model's program has the op with results of the same types.
bool prove_has_whole(const Proof *p, const Op *op);

// -- prove_pieces.c --------------------------------------------------------------------------

const Type *whole_of(const Proof *p, int number);
const char *piece_name(const Proof *p, const Piece *piece); // "[0:4,0:6] of linear '%y'"
// Finds the meanings of an op on pieces.  False, without an error, if there are none.
bool prove_pieces(Proof *p, const Op *op);
// Reports an op that has no equal in the model's program.  `in` are the numbers of the operands, if
// all have one (`numbers`).
void prove_no_pieces(Proof *p, const Op *op, const int *in, bool numbers);
// Gives `v` the meaning of value `number` in another shape.
void prove_reshaped(Proof *p, const Value *v, int number);
// Adds further meanings of an op: a fill is also a part of every larger one, a piece may be
// reshaped to its own shape, a slice is a piece of its operand, and a reshape that the model does
// not have is its operand in another shape.
void prove_also_pieces(Proof *p, const Op *op);

#endif
