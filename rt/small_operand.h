// Operands of collectives that the runtime copies at the start, so that they may be overwritten at
// once: of at most NNRT_SMALL_OPERAND bytes.  Generated code relies on it
// (passes/ir/analysis/in_flight.h).
//
// Small collectives take the latency of a network rather than its bandwidth, so many of them should
// be in flight together.  A copy of 64 KiB takes microseconds.  An all_reduce is mostly in place,
// and has none.

#ifndef NNRT_SMALL_OPERAND_H
#define NNRT_SMALL_OPERAND_H

enum { NNRT_SMALL_OPERAND = 1 << 16 };

#endif
