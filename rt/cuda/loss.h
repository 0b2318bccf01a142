// The cross-entropy kernels for logits with a row stride `ld` in elements, instead of c.  Otherwise
// equal to nnrt_cross_entropy_f32 and nnrt_cross_entropy_back_f32; the logits are of type t.

#ifndef NNRT_CUDA_LOSS_H
#define NNRT_CUDA_LOSS_H

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

int nnrt_cross_entropy_ld(NnrtDtype t, float *loss, float *lse, const void *logits, int64_t ld,
                          const void *labels, int64_t m, int64_t c, int64_t width, int64_t ignore);
// dlogits may be logits
int nnrt_cross_entropy_back_ld(NnrtDtype t, void *dlogits, const void *logits, int64_t ld,
                               const void *labels, const float *lse, const float *dloss, int64_t m,
                               int64_t c, int64_t width, int64_t ignore);

#ifdef __cplusplus
}
#endif

#endif
