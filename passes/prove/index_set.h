// Sets of indices of one dimension: an interval, or several that are equally far apart.
//
//     8:12          an interval                                          8, 9, 10, 11
//     1:8:2         every odd element of 8                               1, 3, 5, 7
//     2:16:4+0:2    elements 2 and 3 of every four: strides 4 and 1      2, 3, 6, 7, 10, 11, 14, 15
//
// The elements are from + i s + j t + … for i and j from 0 on: a box over factors, each with a
// length and a stride, major ones first.  They are distinct and keep their order.  So parts of
// merged dimensions, such as some tokens of every row, are sets, and so are interleaved rows.
//
// A set may be ANYWHERE: of a value that is the same at every position, the length alone is known.

#ifndef INDEX_SET_H
#define INDEX_SET_H

#include "base/str.h"
#include "ir/graph.h"

enum { ANYWHERE = INT32_MIN, MAX_SET_FACTORS = 4 };

typedef struct SetFactor {
  int64_t length, stride;
} SetFactor;

// Factors of length 1 are left out, and factors that continue each other are one: equal sets have
// equal factors.
typedef struct IndexSet {
  int64_t size, from; // of the dimension; ANYWHERE: with one factor of stride 1
  int n;
  SetFactor factor[MAX_SET_FACTORS];
} IndexSet;

IndexSet set_interval(int64_t size, int64_t from, int64_t length);
IndexSet set_all(int64_t size);
int64_t set_length(const IndexSet *s); // the number of elements
bool set_is_all(const IndexSet *s);
bool set_is_interval(const IndexSet *s); // at a known position

// Appends a minor factor.  False if there are too many.
bool set_push(IndexSet *s, SetFactor minor);
// The set of a dimension that is the product of two, and the reverse, of which the minor one has
// `minor_size` elements.  False if there is none.
bool set_product(const IndexSet *major, const IndexSet *minor, IndexSet *out);
bool set_split(const IndexSet *s, int64_t minor_size, IndexSet *major, IndexSet *minor);
// Intersects two sets that must be equal.  False if they differ.
bool set_unify(IndexSet *x, const IndexSet *y);
// Whether they are known to have an element in common.
bool set_overlaps(const IndexSet *x, const IndexSet *y);
// Unites `x` with a set that follows it: all its elements come later.  False if the result is no
// set.
bool set_append(IndexSet *x, const IndexSet *y);
// Unites two disjoint sets, whose elements may alternate.  False if the result is no set.
bool set_unite(IndexSet *x, const IndexSet *y);
// The set as one of a dimension of `size` elements, in which its own dimension begins at `at`; and
// as one of the `size` elements from `at` on of its own dimension.  False if it extends beyond.
bool set_embed(IndexSet *s, int64_t at, int64_t size);
bool set_restrict(IndexSet *s, int64_t at, int64_t size);

void set_text(StrBuf *b, const IndexSet *s);

#endif
