// The optimizers, with the arithmetic of torch.optim's plain loops (`_single_tensor_sgd` and so
// on), operation by operation; tests/ops/torch_optim.py computes the expected numbers.
//
// Every gradient is multiplied by `gscale` first, which carries clipping and loss scaling.  If it
// is NaN the update is skipped: weights and states are unchanged, and a direction is 0.  `step` is
// the number of previous updates.

#include <math.h>
#include <string.h>

#include "ir/op.h"

static double scalar_f(const Tensor *t) {
  return tensor_f(t, 0);
}

static bool skips(const Tensor *gscale) {
  return isnan(scalar_f(gscale));
}

static void keep(Tensor *out, const Tensor *in) {
  memcpy(out->data, in->data, (size_t)type_bytes(in->type));
}

// Copies the weight and `n_states` states unchanged.
static bool skip(Tensor *out, const Tensor *in, int n_states) {
  keep(&out[0], &in[0]);
  for (int i = 0; i < n_states; i++)
    keep(&out[1 + i], &in[2 + i]);
  return true;
}

bool sgd_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  double decay = attr_f(op, "weight_decay"), lr = scalar_f(&in[2]), gscale = scalar_f(&in[3]);
  if (skips(&in[3])) return skip(out, in, 0);
  for (int64_t i = 0; i < type_count(in[0].type); i++) {
    double w = tensor_f(&in[0], i), g = tensor_f(&in[1], i) * gscale;
    tensor_set_f(out, i, w - lr * (g + decay * w));
  }
  return true;
}

// The first step starts the momentum with the gradient itself, without dampening.
bool sgd_momentum_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  double momentum = attr_f(op, "momentum"), dampening = attr_f(op, "dampening");
  double decay = attr_f(op, "weight_decay"), lr = scalar_f(&in[3]), gscale = scalar_f(&in[4]);
  bool nesterov = attr_i(op, "nesterov"), first = tensor_i(&in[5], 0) == 0;
  if (skips(&in[4])) return skip(out, in, 1);
  for (int64_t i = 0; i < type_count(in[0].type); i++) {
    double w = tensor_f(&in[0], i);
    double g = tensor_f(&in[1], i) * gscale + decay * w;
    // The decay is part of the gradient.
    double v = first ? g : momentum * tensor_f(&in[2], i) + (1 - dampening) * g;
    tensor_set_f(&out[0], i, w - lr * (nesterov ? g + momentum * v : v));
    tensor_set_f(&out[1], i, v);
  }
  return true;
}

// Kingma and Ba, algorithm 1.  decoupled: Loshchilov and Hutter's AdamW.  onnx: epsilon is added to
// the root before it is corrected, the remark at the end of Kingma and Ba's section 2.
bool adam_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  double beta1 = attr_f(op, "beta1"), beta2 = attr_f(op, "beta2"), eps = attr_f(op, "eps");
  double decay = attr_f(op, "weight_decay"), lr = scalar_f(&in[4]), gscale = scalar_f(&in[5]);
  bool decoupled = attr_i(op, "decoupled"), onnx = attr_i(op, "onnx");
  double t = (double)tensor_i(&in[6], 0) + 1;
  double correction1 = 1 - pow(beta1, t), root2 = sqrt(1 - pow(beta2, t));
  if (skips(&in[5])) return skip(out, in, 2);
  for (int64_t i = 0; i < type_count(in[0].type); i++) {
    double w = tensor_f(&in[0], i), g = tensor_f(&in[1], i) * gscale;
    // AdamW shrinks the weight; Adam adds the decay to the gradient.
    if (decoupled)
      w *= 1 - lr * decay;
    else
      g += decay * w;
    double m = beta1 * tensor_f(&in[2], i) + (1 - beta1) * g;
    double v = beta2 * tensor_f(&in[3], i) + (1 - beta2) * g * g;
    // Bias correction of the root: onnx adds epsilon before it.
    double root = onnx ? (sqrt(v) + eps) / root2 : sqrt(v) / root2 + eps;
    tensor_set_f(&out[0], i, w - lr / correction1 * m / root);
    tensor_set_f(&out[1], i, m);
    tensor_set_f(&out[2], i, v);
  }
  return true;
}

bool adagrad_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  double eps = attr_f(op, "eps"), decay = attr_f(op, "weight_decay");
  double lr = scalar_f(&in[3]), gscale = scalar_f(&in[4]);
  // The rate decays with the step.
  lr /= 1 + (double)tensor_i(&in[5], 0) * attr_f(op, "lr_decay");
  if (skips(&in[4])) return skip(out, in, 1);
  for (int64_t i = 0; i < type_count(in[0].type); i++) {
    double w = tensor_f(&in[0], i);
    double g = tensor_f(&in[1], i) * gscale + decay * w;
    double sum = tensor_f(&in[2], i) + g * g;
    tensor_set_f(&out[0], i, w - lr * g / (sqrt(sum) + eps));
    tensor_set_f(&out[1], i, sum);
  }
  return true;
}

// You et al., Large Batch Optimization for Deep Learning, algorithm 2, in two ops: the direction,
// whose norm may be a partial sum over ranks, and the step along it.
bool lamb_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  double beta1 = attr_f(op, "beta1"), beta2 = attr_f(op, "beta2"), eps = attr_f(op, "eps");
  double decay = attr_f(op, "weight_decay"), gscale = scalar_f(&in[4]);
  double t = (double)tensor_i(&in[5], 0) + 1;
  double correction1 = 1 - pow(beta1, t), correction2 = 1 - pow(beta2, t);
  if (skips(&in[4])) { // the direction comes zeroed
    keep(&out[1], &in[2]);
    keep(&out[2], &in[3]);
    return true;
  }
  // Adam's step with decoupled decay; lamb_apply scales it.
  for (int64_t i = 0; i < type_count(in[0].type); i++) {
    double w = tensor_f(&in[0], i), g = tensor_f(&in[1], i) * gscale;
    double m = beta1 * tensor_f(&in[2], i) + (1 - beta1) * g;
    double v = beta2 * tensor_f(&in[3], i) + (1 - beta2) * g * g;
    // The learning rate is applied later, by lamb_apply.
    double direction = m / correction1 / (sqrt(v / correction2) + eps) + decay * w;
    tensor_set_f(&out[0], i, direction);
    tensor_set_f(&out[1], i, m);
    tensor_set_f(&out[2], i, v);
  }
  return true;
}

// The step has the norm of the weights times the rate; if a norm is 0, the rate scales the
// direction itself.
bool lamb_apply_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  double w2 = scalar_f(&in[2]), direction2 = scalar_f(&in[3]), lr = scalar_f(&in[4]);
  double trust = w2 > 0 && direction2 > 0 ? sqrt(w2) / sqrt(direction2) : 1;
  for (int64_t i = 0; i < type_count(in[0].type); i++)
    tensor_set_f(out, i, tensor_f(&in[0], i) - lr * trust * tensor_f(&in[1], i));
  return true;
}
