// The flops of an op and its bytes read and written, in parts that shrink with letters of its
// einsum:
//
//     linear "0 k, k n -> 0 n"  of f32[4096,64] and f32[64,256], in two parts of equal letters:
//       0 k n    2*4096*64*256 flops
//       0 k                             4*4096*64 bytes read
//       k n                             4*64*256  bytes read
//       0 n                                                   4*4096*256 bytes written
//
// If letter 0 is split in two, everything is halved except the bytes read of the weight.  So a
// search computes the work of an op once, and that of each split with a few divisions.  From
// PHASE_local on types are local, so the work is that of one device.
//
//   views, constants       nothing
//   communication          nothing here: cost.h estimates transfers between ranks
//   lookups and slices     the elements that they access, not the whole tensor
//   pack                   nothing: plan_memory places its operands in the bucket
//   fused                  its body's flops; its own operands and results
//   batch, call            all work of the body's ops; a batch is one launch
//   accumulations          also read the previous sum
//   all other ops          every operand once and every result once

#ifndef IR_WORK_H
#define IR_WORK_H

#include "ir/dims.h"

enum { WORK_PARTS = 16 };

typedef struct WorkPart {
  uint64_t letters; // the letters that shrink it: a bit for each index into Dims.letter
  double flops, read, written;
  double attended; // of the flops, those of fused attention
} WorkPart;

typedef struct OpWork {
  bool narrow;  // computed in 16 bits
  int launches; // kernels
  int n;
  WorkPart part[WORK_PARTS]; // distinct sets of letters
} OpWork;

// `dims` is the einsum of `op`.
OpWork op_work(const Op *op, const Dims *dims);
OpWork op_work_alone(const Op *op); // computes the einsum itself

// Split letters, each into a number of equal parts.  A letter split by several axes has an entry
// for each.
typedef struct Cut {
  int n;
  struct {
    int letter;
    int64_t parts;
  } at[MAX_AXES];
} Cut;

// The letters that Op.split splits.
Cut op_cut(const Op *op, const Dims *dims);

// Flops and bytes of one part of a split op; a NULL cut splits nothing.
typedef struct WorkSum {
  double flops, read, written, attended;
} WorkSum;
WorkSum work_sum(const OpWork *w, const Cut *cut);

// The work of one call of an op's kernel on its rank, as executables know it beside its time:
// rounded, and none of packing, of communication, and of copies to and from host memory.
typedef struct CallWork {
  int64_t flops; // of products; 0 of other ops, which are compared by their bytes
  int64_t bytes; // read and written
  DType type;    // of the numbers that it multiplies: bf16, f16, or else f32
} CallWork;
CallWork op_call_work(const Op *op);

// Multiply-adds counted as two, from the product of all letters of a contraction.  For other ops,
// the number of elements read and written, views included.
double op_flops(const Op *op);

#endif
