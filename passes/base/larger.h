// The larger and the smaller of two numbers, neither NaN: fmax and fmin without a call.

#ifndef BASE_LARGER_H
#define BASE_LARGER_H

static inline double larger(double x, double y) {
  return x > y ? x : y;
}

static inline double smaller(double x, double y) {
  return x < y ? x : y;
}

#endif
