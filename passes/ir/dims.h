// The einsum of one op: a letter for each dimension of operands and results.
//
// `linear` has the row "* k, k n -> * n".  For x f32[4,8,16] and w f32[16,32] the instance is
//
//     0 1 k, k n -> 0 1 n        0=4 1=8 k=16 n=32
//
// `*` stands for any leading dimensions, the same for all that have it, and becomes the letters 0,
// 1, 2 …  A letter absent from the results is summed over.  A letter marked `^` must not be split.
// A dimension may be a product, major first: reshape f32[4,8,16] to f32[32,16] is "a b c -> (a b)
// c"; it can be split by its first letter only.  `1` is a dimension of length 1 without a letter.
// From local on types are local: the letters are the same, and split letters are shorter.  The
// einsum gives result types, legal layouts, partial sums, flops and the size arguments of the
// kernel.

#ifndef IR_DIMS_H
#define IR_DIMS_H

#include "ir/graph.h"

enum { PERMUTED_BLOCKS = 'y' }; // the letter of the blocks of a permute_blocks
enum { MAX_LETTERS = 64, MAX_TERMS = 256, MAX_RESULTS = 32, MAX_FACTORS = 6 };

// The dimensions of one operand or result.
typedef struct Term {
  int ndim;
  struct {
    int8_t n;                   // factors; 0 for `1`
    int8_t letter[MAX_FACTORS]; // indices into Dims.letter, major first
  } dim[MAX_NDIM];
} Term;

typedef struct Dims {
  int n_letters;
  struct {
    char name;
    bool whole;   // marked ^
    int64_t size; // -1 until known
  } letter[MAX_LETTERS];
  int n_in, n_out;
  Term out[MAX_RESULTS], in[MAX_TERMS];
} Dims;

// Fills `dims` for `op` from its row or its rule, and checks it against the operands' shapes.
bool op_dims(const Op *op, Dims *dims, Diag *d);
// The same, cached in the module or in `a`: one copy for all identical ops.
const Dims *op_dims_kept(const Op *op, Arena *a, Diag *d);
// A copy without unused capacity.
const Dims *dims_keep(Arena *a, const Dims *dims);
void dims_copy(Dims *to, const Dims *from);

// For rules.  Parses `einsum` (as in a row; "..." after the last operand repeats it for variadic
// ops) and matches it with the operands' shapes.  Then dims_size sets the letters that only results
// have.
bool dims_parse(Dims *dims, const Op *op, const char *einsum, Diag *d);
void dims_size(Dims *dims, char letter, int64_t size);

int dims_find(const Dims *dims, char letter);                  // index or -1
int64_t dims_length(const Dims *dims, const Term *t, int dim); // product of the letters' sizes
// The letter that is split if dimension `dim` is split into `n` equal parts, or -1: its first
// factor of length > 1, if that is not marked ^ and divisible by n.
int dims_splitter(const Dims *dims, const Term *t, int dim, int n);
// The dimension of `t` that a split of the letter (an index) splits; -1 if the term lacks the
// letter, -2 if such a split is not contiguous or the term has the letter twice.
int dims_position(const Dims *dims, const Term *t, int letter);
// Whether a split of `letter` is contiguous in every operand and result that has it.
bool dims_leads(const Dims *dims, int letter);
// "0 1 k, k n -> 0 1 n".  A dimension without a letter prints as (), since 1 is a letter of `*`.
const char *dims_text(Arena *a, const Dims *dims);

#endif
