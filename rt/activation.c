// The names of activations: see activation.h.

#include "activation.h"

#include <string.h>

#include "nnrt.h"

static const char *const names[NNRT_N_ACTIVATIONS] = {
    [NNRT_relu] = "relu",
    [NNRT_tanh] = "tanh",
    [NNRT_sigmoid] = "sigmoid",
    [NNRT_affine] = "affine",
    [NNRT_leaky_relu] = "leaky_relu",
    [NNRT_thresholded_relu] = "thresholded_relu",
    [NNRT_scaled_tanh] = "scaled_tanh",
    [NNRT_hard_sigmoid] = "hard_sigmoid",
    [NNRT_elu] = "elu",
    [NNRT_softsign] = "softsign",
    [NNRT_softplus] = "softplus",
};

bool nnrt_activation(NnrtActivation *f, const char *kernel, const char *name, double alpha,
                     double beta, double clip) {
  *f = (NnrtActivation){
      .alpha = (float)alpha, .beta = (float)beta, .clip = clip > 0 ? (float)clip : INFINITY};
  for (int i = 0; i < NNRT_N_ACTIVATIONS; i++)
    if (strcmp(names[i], name) == 0) {
      f->kind = (NnrtActivationKind)i;
      return true;
    }
  nnrt_error(NNRT_UNSUPPORTED, "%s: no activation '%s'", kernel, name);
  return false;
}
