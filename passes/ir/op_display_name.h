// Display names of ops for errors of executables, traces, reports and explanations.
//
//     %h1, %h = fused @fused_0 %h0, %b    "fused add gelu"    "mlp.onnx:/act/Gelu"
//     %g = linear_back_w %x, %d           "linear_back_w"     "mlp.onnx:/fc1/MatMul (gradient)"

#ifndef IR_OP_DISPLAY_NAME_H
#define IR_OP_DISPLAY_NAME_H

#include "ir/op.h"

const char *op_title(Arena *a, const Op *op, Target target);
// The op's location in the model, and the derivation from it.
const char *op_place(Arena *a, const Op *op);
const char *op_full_place(Arena *a, const Op *op); // with the folders of the model's file

#endif
