// Layer and RMS normalisation of rows in f16: see norm.cuh.

#include "norm.cuh"

NORMS(f16, uint16_t, f16)
