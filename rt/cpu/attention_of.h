// Powers of a tile of scores for one kind of processor, for attention.c: see kinds.h.

#define VEC  KIND(attention_vec)
#define INT  KIND(attention_int)
#define WORD KIND(attention_word)

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t INT __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t WORD __attribute__((vector_size(4 * WIDTH)));

// x > y ? x : y, and x < y ? x : y, by the instructions that are just that: GCC would compute a
// loop over the elements one by one.
#if !KINDS_X86
KIND_INLINE VEC KIND(either)(INT first, VEC x, VEC y) {
  return (VEC)((first & (INT)x) | (~first & (INT)y));
}
#define LARGER(x, y)  KIND(either)((x) > (y), x, y)
#define SMALLER(x, y) KIND(either)((x) < (y), x, y)
#elif WIDTH == 4
#define LARGER  __builtin_ia32_maxps
#define SMALLER __builtin_ia32_minps
#elif WIDTH == 8
#define LARGER  __builtin_ia32_maxps256
#define SMALLER __builtin_ia32_minps256
#else
#define LARGER(x, y)  __builtin_ia32_maxps512_mask(x, y, x, (short)-1, 4)
#define SMALLER(x, y) __builtin_ia32_minps512_mask(x, y, x, (short)-1, 4)
#endif

// e^x, as m_exp_f, but 0 below 2^-126.  So 2^n is one factor.
KIND_INLINE VEC KIND(power)(VEC x) {
  VEC c = SMALLER((VEC){0} + 89.0f, x); // NaN stays
  VEC t = c * 0x1.715476p+0f + M_ROUND_BY, n = t - M_ROUND_BY;
  VEC r = c - n * 0x1.62e4p-1f;
  r = r - n * 0x1.7f7d1cp-20f;
  VEC p = r * 0x1.694p-10f + 0x1.125edcp-7f;
  p = p * r + 0x1.555b5ap-5f;
  p = p * r + 0x1.55545p-3f;
  p = p * r + 0x1.fffff6p-2f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Half of 2^n, so that n = 128 fits.  Of x below -87 it is any number, and is not used.
  VEC half = (VEC)(((WORD)t << 23) + (126u << 23));
  INT tiny = c < -87.0f;
  return (VEC)(~tiny & (INT)(p * half * 2.0f));
}

TARGET static void KIND(softmax)(float *scores, int64_t keys, int64_t lanes, float scale,
                                 float *top, float *sum, float *shrink) {
  for (int64_t l = 0; l < lanes; l += WIDTH) {
    // The maximum of each lane over this tile and all before it, of even and odd keys.
    VEC before = *(const VEC *)(top + l), high = before, other = before;
    int64_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      high = LARGER(*(const VEC *)(scores + j * LANES + l) * scale, high);
      other = LARGER(*(const VEC *)(scores + (j + 1) * LANES + l) * scale, other);
    }
    if (j < keys) high = LARGER(*(const VEC *)(scores + j * LANES + l) * scale, high);
    high = LARGER(other, high);
    // No visible key yet: all powers are 0.
    INT none = high == -INFINITY;
    VEC base = (VEC)(~none & (INT)high);
    // Sums so far were relative to the old maximum.
    VEC shrunk = KIND(power)(before - base), total = {0}, odd = {0};
    for (j = 0; j + 2 <= keys; j += 2) {
      VEC *at = (VEC *)(scores + j * LANES + l), *next = (VEC *)(scores + (j + 1) * LANES + l);
      VEC e = KIND(power)(*at * scale - base), f = KIND(power)(*next * scale - base);
      *at = e;
      *next = f;
      total += e;
      odd += f;
    }
    if (j < keys) {
      VEC *at = (VEC *)(scores + j * LANES + l);
      *at = KIND(power)(*at * scale - base);
      total += *at;
    }
    *(VEC *)(top + l) = high;
    *(VEC *)(sum + l) = *(const VEC *)(sum + l) * shrunk + (total + odd);
    *(VEC *)(shrink + l) = shrunk;
  }
}

TARGET static void KIND(softmax_back)(float *scores, float *dp, int64_t keys, int64_t lanes,
                                      float scale, float dp_scale, const float *lse,
                                      const float *delta) {
  for (int64_t l = 0; l < lanes; l += WIDTH) {
    VEC base = *(const VEC *)(lse + l), d = *(const VEC *)(delta + l);
    for (int64_t j = 0; j < keys; j++) {
      VEC *at = (VEC *)(scores + j * LANES + l), *dp_at = (VEC *)(dp + j * LANES + l);
      // P by the saved log-sum-exp, without a maximum.
      VEC e = KIND(power)(*at * scale - base);
      *at = e;
      *dp_at = e * (*dp_at - d) * dp_scale;
    }
  }
}

static const AttentionKind KIND(attention_kind) = {KIND(softmax), KIND(softmax_back)};

#undef VEC
#undef INT
#undef WORD
#undef LARGER
#undef SMALLER
