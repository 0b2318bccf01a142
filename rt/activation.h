// The activations of recurrent layers, by the names of the op table, and their derivatives.
//
//     NnrtActivation f;
//     if (!nnrt_activation(&f, "lstm", "leaky_relu", 0.01, 0, 3)) return NULL;   // limits 3
//     y = activation_at(f.kind, f, x)
//
// `kind` is an argument of its own, so that a loop over one kind has no branches.
//
// The file is C and CUDA C.

#ifndef NNRT_ACTIVATION_H
#define NNRT_ACTIVATION_H

#include <stdbool.h>

#include "nnrt_math.h"

typedef enum NnrtActivationKind {
  NNRT_relu,
  NNRT_tanh,
  NNRT_sigmoid,
  NNRT_affine,
  NNRT_leaky_relu,
  NNRT_thresholded_relu,
  NNRT_scaled_tanh,
  NNRT_hard_sigmoid,
  NNRT_elu,
  NNRT_softsign,
  NNRT_softplus,
  NNRT_N_ACTIVATIONS
} NnrtActivationKind;

typedef struct NnrtActivation {
  NnrtActivationKind kind;
  float alpha, beta;
  float clip; // the operand is limited to -clip .. clip; may be infinite
} NnrtActivation;

// Fills `f`; `clip` 0 is no limit.  False, with nnrt_error, if there is no such name.
#ifdef __cplusplus
extern "C"
#endif
    bool
    nnrt_activation(NnrtActivation *f, const char *kernel, const char *name, double alpha,
                    double beta, double clip);

M_FN float activation_at(NnrtActivationKind kind, NnrtActivation f, float x) {
  x = x > f.clip ? f.clip : x < -f.clip ? -f.clip : x; // NaN stays
  switch (kind) {
  case NNRT_relu: return x < 0 ? 0 : x;
  case NNRT_tanh: return m_tanh_f(x);
  case NNRT_sigmoid: return m_sigmoid_f(x);
  case NNRT_affine: return f.alpha * x + f.beta;
  case NNRT_leaky_relu: return x < 0 ? f.alpha * x : x;
  case NNRT_thresholded_relu: return x <= f.alpha ? 0 : x;
  case NNRT_scaled_tanh: return f.alpha * m_tanh_f(f.beta * x);
  case NNRT_hard_sigmoid: {
    float y = f.alpha * x + f.beta;
    return y < 0 ? 0 : y > 1 ? 1 : y;
  }
  case NNRT_elu: {
    float y = f.alpha * m_expm1_f(x);
    return x < 0 ? y : x;
  }
  case NNRT_softsign: return x / (1 + fabsf(x));
  case NNRT_softplus: return m_softplus_f(x);
  case NNRT_N_ACTIVATIONS: break;
  }
  return 0;
}

// The derivative at x: 0 beyond the limits of `clip`.
M_FN float activation_slope(NnrtActivationKind kind, NnrtActivation f, float x) {
  float slope = 1;
  switch (kind) {
  case NNRT_relu: slope = x > 0 ? 1 : 0; break;
  case NNRT_tanh: {
    float y = m_tanh_f(x);
    slope = 1 - y * y;
    break;
  }
  case NNRT_sigmoid: {
    float y = m_sigmoid_f(x);
    slope = y * (1 - y);
    break;
  }
  case NNRT_affine: slope = f.alpha; break;
  case NNRT_leaky_relu: slope = x > 0 ? 1 : f.alpha; break;
  case NNRT_thresholded_relu: slope = x > f.alpha ? 1 : 0; break;
  case NNRT_scaled_tanh: {
    float y = m_tanh_f(f.beta * x);
    slope = f.alpha * f.beta * (1 - y * y);
    break;
  }
  case NNRT_hard_sigmoid: {
    float y = f.alpha * x + f.beta;
    slope = y > 0 && y < 1 ? f.alpha : 0;
    break;
  }
  case NNRT_elu: {
    float y = f.alpha * m_exp_f(x);
    slope = x > 0 ? 1 : y;
    break;
  }
  case NNRT_softsign: {
    float y = 1 / (1 + fabsf(x));
    slope = y * y;
    break;
  }
  case NNRT_softplus: slope = m_sigmoid_f(x); break;
  case NNRT_N_ACTIVATIONS: break;
  }
  return fabsf(x) > f.clip ? 0 : slope;
}

// The same with y, the activation at x, which saves the exponential of some kinds.
M_FN float activation_slope_of(NnrtActivationKind kind, NnrtActivation f, float x, float y) {
  if (kind != NNRT_tanh && kind != NNRT_sigmoid) return activation_slope(kind, f, x);
  float slope = kind == NNRT_tanh ? 1 - y * y : y * (1 - y);
  return fabsf(x) > f.clip ? 0 : slope;
}

#endif
