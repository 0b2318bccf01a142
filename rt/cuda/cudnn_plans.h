// Ahead-of-time plans of cuDNN.
//
// To run a graph of operations (dnn.h) cuDNN needs a plan: it chooses an engine and often compiles
// it, which takes about a second for attention.  A plan depends on the graph, cuDNN's version and
// the properties of the GPU, not on the GPU itself.  So nnaot builds plans at compile time, by
// running the finished executable, which alone knows its graphs.
//
//     NNRT_PLAN_DEVICE=h200.json NNRT_PLAN_OUT=train.plans ./train        on the compile machine
//       |  every prep builds its graph, cuDNN builds the plan for the GPU of h200.json
//       v
//     train.plans        nnaot appends it: NnrtTrailer.plans bytes, directly after the payload
//
// At start a graph's plan is looked up by its key.  A plan that is missing, or is for another cuDNN
// or another GPU, is built at start, and rank 0 reports it once.
//
// An executable with NNRT_PLAN_DEVICE in its environment only builds plans
// (nnrt_device_special_run): it needs no GPU, connects to no other rank, prints nothing but errors,
// and writes NNRT_PLAN_OUT completely or not at all.  cuDNN requires a libcuda.so.1; on a machine
// without the driver nnaot provides standin/libcuda.c.  On failure nnaot warns, and the executable
// builds its plans at start. nnaot (backend/cudnn_plans.c) does this for each sm_XX of the target,
// with the properties of devices/, and appends the files one after the other; nnrt_payload_plans
// (payload.c) finds them.
//
// The text, one section per GPU:
//
//     nnrt plans 1 cudnn 91900 sm 90 multiprocessors 132 count 2
//     attention_bf16-0123456789abcdef 76071
//     {…}
//     attention_back_bf16-fedcba9876543210 108666
//     {…}
//     end 89abcdef01234567                            xxh64 of the section up to this line

#ifndef NNRT_CUDA_CUDNN_PLANS_H
#define NNRT_CUDA_CUDNN_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

int nnrt_plans_main(const NnrtProgram *p); // returns the exit status
// Prints a note if plans had to be built; once, after the first step.
void nnrt_plans_say(int rank);

// For dnn_plan.c.  Between lock and unlock a key is looked up, and its plan added if it is missing.
void nnrt_plans_lock(void);
void nnrt_plans_unlock(void);
const char *nnrt_plans_find(const char *key, int64_t *bytes); // for nnrt_gpu(), or NULL
void nnrt_plans_add(const char *key, const char *json, int64_t bytes);
void nnrt_plans_built(double seconds, bool refused); // counts one; refused: cuDNN refused its text
// Reports a kernel without cuDNN support; nnrt_error has the reason.
void nnrt_plans_without(const char *kernel);

#ifdef __cplusplus
}
#endif

#endif
