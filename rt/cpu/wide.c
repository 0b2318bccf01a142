// Conversions of blocks, and the memory for them: see wide.h.

#include "wide.h"

NNRT_CLONES static void from_bf16(float *restrict y, const uint16_t *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = m_from_bf16(x[i]);
}

NNRT_CLONES static void to_bf16(uint16_t *restrict y, const float *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = m_to_bf16(x[i]);
}

NNRT_CLONES static void from_f16(float *restrict y, const uint16_t *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = m_from_f16(x[i]);
}

NNRT_CLONES static void to_f16(uint16_t *restrict y, const float *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = m_to_f16(x[i]);
}

void wide_from(NnrtDtype type, float *y, const void *x, int64_t n) {
  (type == NNRT_bf16 ? from_bf16 : from_f16)(y, x, n);
}

void wide_to(NnrtDtype type, void *y, const float *x, int64_t n) {
  (type == NNRT_bf16 ? to_bf16 : to_f16)(y, x, n);
}

bool wide_new(Wide *w, NnrtDtype type, int64_t all, int64_t n, int threads, int blocks,
              int64_t own) {
  *w = (Wide){.type = type, .rows = all > 0 ? all : 1, .blocks = blocks};
  int64_t line = 64 / sizeof(float), converted = 0;
  if (type != NNRT_f32) {
    w->rows = n > 0 && n < WIDE_BLOCK ? WIDE_BLOCK / n : 1;
    // Blocks begin at cache lines of their own.
    w->stride = (w->rows * n + line - 1) / line * line;
    converted = threads * blocks * w->stride;
  }
  if (converted + own == 0) return true;
  own = (own + line - 1) / line * line;
  size_t bytes = (size_t)(converted + own) * sizeof(float);
  float *at = kernel_scratch(bytes);
  if (!at) {
    scratch_failed(bytes);
    return false;
  }
  w->own = at;
  // The kernel's own floats come first.
  if (converted) w->at = at + own;
  return true;
}
