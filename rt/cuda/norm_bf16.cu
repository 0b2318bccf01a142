// Layer and RMS normalisation of rows in bf16: see norm.cuh.

#include "norm.cuh"

NORMS(bf16, uint16_t, bf16)
