// Plans of cuDNN made ahead of time.
//
// To run a graph of operations (dnn.h) cuDNN wants a plan of it: an engine is chosen and often
// compiled, about a second for an attention.  A plan depends on the graph, cuDNN's version and the
// properties of the gpu, not on the gpu itself.  So nnaot has them made when it compiles: by the
// finished executable, which alone knows its graphs.
//
//     NNRT_PLAN_DEVICE=h200.json NNRT_PLAN_OUT=train.plans ./train        on the compile machine
//       |  every prep builds its graph, cuDNN makes the plan for the gpu of h200.json
//       v
//     train.plans        nnaot appends it: NnrtTrailer.plans bytes, directly behind the payload
//
// At start a graph's plan is looked up by its key.  What is not there, or is for another cuDNN or
// another gpu, is built at start, and rank 0 says so once.
//
// An executable with NNRT_PLAN_DEVICE in its environment does only that (nnrt_device_errand): it
// needs no gpu, connects to nobody, prints nothing but errors, and writes NNRT_PLAN_OUT, whole or
// not at all.  cuDNN wants a libcuda.so.1 to be there; where there is no driver, nnaot lets it find
// standin/libcuda.c.  If it fails, nnaot warns, and the executable builds its plans at start.
// nnaot (backend/plans.c) does it for each sm_XX of the target, with the properties of devices/,
// and appends the files one behind the other; nnrt_payload_plans (payload.c) finds them again.
//
// The text, one section for each gpu:
//
//     nnrt plans 1 cudnn 91900 sm 90 multiprocessors 132 count 2
//     attention_bf16-0123456789abcdef 76071
//     {…}
//     attention_back_bf16-fedcba9876543210 108666
//     {…}
//     end 89abcdef01234567                            xxh64 of the section up to this line

#ifndef NNRT_CUDA_PLANS_H
#define NNRT_CUDA_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

int nnrt_plans_main(const NnrtProgram *p); // the status to end with
// A note, if plans had to be built; once, when the first step is done.
void nnrt_plans_say(int rank);

// For dnn_plan.c.  Between lock and unlock a key is looked up, and its plan added if it was not
// there.
void nnrt_plans_lock(void);
void nnrt_plans_unlock(void);
const char *nnrt_plans_find(const char *key, int64_t *bytes); // of nnrt_gpu(), or NULL
void nnrt_plans_add(const char *key, const char *json, int64_t bytes);
void nnrt_plans_built(double seconds, bool refused); // one; refused: cudnn did not take its text
// A kernel does without cudnn, which cannot do it; `why` is what nnrt_error kept.
void nnrt_plans_without(const char *kernel);

#ifdef __cplusplus
}
#endif

#endif
