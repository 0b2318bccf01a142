// Whether the kernels of all ranks round alike, so that ranks that hold the same shard hold the
// same bits of it.
//
//     rank 0 on a: oneDNN 3.2.1        note: ranks may round differently: oneDNN is 3.2.1 (…) at
//     rank 3 on b: oneDNN 3.5.0              rank 0 on a, but 3.5.0 (…) at rank 3 on b
//
// Ranks agree on an instruction set and a number of threads (kernel_agreement.c).  Processors,
// their caches, GPUs and versions of libraries cannot be made alike: libraries choose algorithms
// and the sizes of blocks by them, and with these the order of additions.  Such ranks train the
// same model, but what several of them compute, each for itself, may differ in rounding.  So
// replicas.c looks at the size of a difference on them.
//
// Variables that change results of libraries could be equal: main.c ends a job in which they
// differ.

#include "device.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

char *nnrt_rounding_differences(NnrtRank *r) {
  Terms mine = {0};
  char *text;
  nnrt_device_terms(r, &mine);
#ifdef __GLIBC__
  // Random weights and learning rates are made by its functions, on each rank.
  nnrt_terms_add(&mine, "the C library", "%s", gnu_get_libc_version());
#endif
  if (nnrt_terms_differences(r, &mine, &text)) {
    nnrt_say_error("%s", nnrt_error_detail());
    nnrt_end_job(1);
  }
  nnrt_terms_free(&mine);
  return text;
}
