// How much an op computes and how much of memory it reads and writes, in parts that shrink with
// letters of its einsum:
//
//     linear "0 k, k n -> 0 n"  of f32[4096,64] and f32[64,256], in two parts of equal letters:
//       0 k n    2*4096*64*256 flops
//       0 k                             4*4096*64 bytes read
//       k n                             4*64*256  bytes read
//       0 n                                                   4*4096*256 bytes written
//
// Cut letter 0 in two, and all is half but what is read of the weight.  So a search asks for the
// work of an op once, and for that of a cut of it with a few divisions.  Of an op from PHASE_local
// on, whose types are those of parts, the work is one device's.
//
//   views, constants       nothing
//   what moves data        nothing here: routes between ranks have their own price (cost.h)
//   lookups and slices     what they touch, not what they touch it in
//   pack                   moves nothing: plan_memory has its operands made in the bucket
//   fused                  its body's flops; its own operands and results
//   batch, call            all of what the body's ops do; a batch is one launch
//   added up over time     also reads what was there
//   all other ops          every operand once and every result once

#ifndef IR_WORK_H
#define IR_WORK_H

#include "ir/dims.h"

enum { WORK_PARTS = 16 };

typedef struct WorkPart {
  uint64_t letters; // a bit for each by which it shrinks, by index into Dims.letter
  double flops, read, written;
} WorkPart;

typedef struct OpWork {
  bool narrow;  // computed in 16 bits
  int launches; // kernels
  int n;
  WorkPart part[WORK_PARTS]; // each with other letters
} OpWork;

// `dims` are those of `op`.
OpWork op_work(const Op *op, const Dims *dims);
OpWork op_work_alone(const Op *op); // of one that nobody has the einsum of

// Letters that are cut, each in so many equal parts.  One that several axes cut stands there once
// for each.
typedef struct Cut {
  int n;
  struct {
    int letter;
    int64_t parts;
  } at[MAX_AXES];
} Cut;

// What Op.split cuts.
Cut op_cut(const Op *op, const Dims *dims);

// Flops and bytes of one of the parts that a cut makes; NULL cuts nothing.
typedef struct WorkSum {
  double flops, read, written;
} WorkSum;
WorkSum work_sum(const OpWork *w, const Cut *cut);

// Multiply-adds counted as two, from the product of all letters of a contraction; for others the
// number of elements read and written, by views as well.
double op_flops(const Op *op);

#endif
