// Layer and RMS normalisation of rows in f32: see norm.cuh.

#include "norm.cuh"

NORMS(f32, float, float)
