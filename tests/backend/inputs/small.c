// Made by nnaot from small.onnx; edits are lost.
// In this folder, these make the executable `program` of it:
//
//   ./program --append payload.bin

#include "nnrt.h"

// -- Where values are

#define X ((float *)(r->slab + 704)) // f32[2,4] x
#define W ((float *)(r->slab + 0)) // f32[4,6] fc.w
#define B ((float *)(r->slab + 128)) // f32[6] fc.b
#define LR ((float *)(r->slab + 192)) // f32[] lr
#define ONE ((float *)(r->slab + 768)) // f32[]
#define Y ((float *)(r->slab + 512)) // f32[2,6]
#define Z ((float *)(r->slab + 512)) // f32[2,6]
#define DH ((float *)(r->slab + 640)) // f32[2,6]
#define DB ((float *)(r->slab + 576)) // f32[6]
#define L ((float *)(r->slab + 832)) // f32[]
#define V11 ((float *)(r->slab + 256)) // f32[]
#define V12 ((float *)(r->slab + 320)) // f32[6]
#define DW ((float *)(r->slab + 512)) // f32[4,6]
#define V14 ((float *)(r->slab + 384)) // f32[4,6]
#define V15 ((float *)(r->slab + 256)) // f32[64]
#define V16 ((float *)(r->slab + 256)) // f32[64]
#define W1 ((float *)(r->slab + 0)) // f32[4,6]
#define V19 ((float *)(r->slab + 384)) // f32[4,6]
#define B1 ((float *)(r->slab + 128)) // f32[6]
#define V18 ((float *)(r->slab + 320)) // f32[6]

// -- Constants

#define C0 ((const float *)r->constant[0]) // f32[2]
static const float constant_0[2] = {
    1.0f, -0.5f,
};
static const NnrtConstant constants[] = {
    {constant_0, 8},
};

#define P0 (r->prep[0])
#define P1 (r->prep[1])

static void prepare(NnrtRank *r) {
  r->graph = &nnrt_program.train;
  PREPARE(P0, 1, nnrt_linear_prep_f32(2, 4, 6, false));
  PREPARE(P1, 6, nnrt_linear_back_w_prep_f32(2, 4, 6, false));
}

// -- Fused kernels

NNRT_CLONES static void fused_0_loop(int64_t n, float *y0, float *y1, double *t2, const float *x0, const float *x1) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    const float u0 = x0[i];
    const float u1 = x1[i];
    const float v3 = u0 + u1; // add
    const float v4 = m_max(v3, 0); // relu
    const float v6 = v4 * 2.0f; // mul
    const float v7 = v4 > 0 ? v6 : 0; // relu_back
    y0[i] = v4;
    y1[i] = v7;
    t2[i] += v7;
  }
}

static int fused_0(float *y0, float *y1, float *y2, const float *x0, const float *x1) { // 2 x 6 points
  double t2[6] = {0};
  for (int64_t i0 = 0; i0 < 2; i0++)
    fused_0_loop(6, y0 + i0 * 6, y1 + i0 * 6, t2, x0 + i0 * 6, x1);
  for (int64_t i = 0; i < 6; i++) {
    y2[i] = (float)t2[i];
  }
  return 0;
}

static void train_begin(NnrtRank *r) {
  RUN(0, nnrt_reduce_max_f32(ONE, C0, 1, LIST(2), 1, LIST(0)));          // %one = reduce_max %c axes=[0]   small.nn:15:3
}

static void train_micro(NnrtRank *r) {
  RUN(1, nnrt_linear_f32(P0, Y, X, W));                                  // %y = linear %x, %w   small.onnx:/fc/MatMul
  RUN(2, fused_0(Z, DH, DB, Y, B));                                      // %z, %dh, %db = fused @fused_0 %y, %b   small.onnx:/fc/Add (gradient)
  RUN(3, nnrt_sum_squares_f32(L, Z, 12));                                // %l = sum_squares %z   small.nn:13:3
  if (r->micro == 0) nnrt_zero(V11, 4);
  RUN(4, nnrt_accumulate_f32(V11, L, 1));                                // %11 = accumulate %l axis="acc"   small.nn:13:3 (accumulate)
  if (r->micro == 0) nnrt_zero(V12, 24);
  RUN(5, nnrt_accumulate_f32(V12, DB, 6));                               // %12 = accumulate %db axis="acc"   small.nn:22:3 (accumulate)
  RUN(6, nnrt_linear_back_w_f32(P1, DW, X, DH));                         // %dw = linear_back_w %x, %dh   small.onnx:/fc/MatMul (gradient)
  if (r->micro == 0) nnrt_zero(V14, 96);
  RUN(7, nnrt_accumulate_f32(V14, DW, 24));                              // %14 = accumulate %dw axis="acc"   small.nn:21:3 (accumulate)
}

static void train_update(NnrtRank *r) {
  RUN(8, nnrt_pack_b4(V15, (const void *const[]){V11, V12, V14}, 3, LIST(1, 6, 24))); // %15 = pack %11, %12, %14   small.nn:21:3 (all_reduce)
  RUN(9, nnrt_all_reduce_f32(V16, V15, 64, r, 0));                       // %16 = all_reduce %15 axis="dp"   small.nn:21:3 (all_reduce)
  RUN(10, nnrt_wait(r, V16));                                            // before sgd
  RUN(11, nnrt_sgd_f32(W1, W, V19, LR, ONE, 24, 0.0));                   // %w1 = sgd %w, %19, %lr, %one   small.nn:21:3
  RUN(12, nnrt_sgd_f32(B1, B, V18, LR, ONE, 6, 0.0));                    // %b1 = sgd %b, %18, %lr, %one   small.nn:22:3
}

static const NnrtTensor train_tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {8, 4}, {{0, 1, -1}, {-1}}, .offset = 704},
    {"fc.w", NNRT_weight, NNRT_f32, 2, {4, 6}, {{-1}, {-1}}, .offset = 0, .train = true, .init = NNRT_from_normal, .a = 0.0, .b = 0.5, .init_seed = 0},
    {"fc.b", NNRT_weight, NNRT_f32, 1, {6}, {{-1}}, .offset = 128, .train = true, .init = NNRT_from_payload, .payload = 0},
    {"lr", NNRT_scalar, NNRT_f32, 0, {0}, {{-1}}, .offset = 192},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, {{-1}}, .offset = 256},
};

static const char *const train_ops[] = {
    "reduce_max  small.nn:15:3",
    "linear  small.onnx:/fc/MatMul",
    "fused mul relu_back reduce_sum  small.onnx:/fc/Add (gradient)",
    "sum_squares  small.nn:13:3",
    "accumulate  small.nn:13:3 (accumulate)",
    "accumulate  small.nn:22:3 (accumulate)",
    "linear_back_w  small.onnx:/fc/MatMul (gradient)",
    "accumulate  small.nn:21:3 (accumulate)",
    "pack  small.nn:21:3 (all_reduce)",
    "all_reduce  small.nn:21:3 (all_reduce)",
    "wait  small.nn:21:3 (all_reduce)",
    "sgd  small.nn:21:3",
    "sgd  small.nn:22:3",
};

static const NnrtWork train_work[] = {
    {0, 12, NNRT_f32},
    {96, 176, NNRT_f32},
    {0, 192, NNRT_f32},
    {0, 52, NNRT_f32},
    {0, 12, NNRT_f32},
    {0, 72, NNRT_f32},
    {96, 176, NNRT_f32},
    {0, 288, NNRT_f32},
    {0, 0, NNRT_f32},
    {0, 0, NNRT_f32},
    {0, 0, NNRT_f32},
    {0, 296, NNRT_f32},
    {0, 80, NNRT_f32},
};

static const NnrtValue train_values[] = {
    {0, -1, NNRT_f32, false, 1, 768, 0, 0},
    {1, 1, NNRT_f32, false, 8, 704, 0, 0},
    {1, 2, NNRT_f32, false, 24, 0, 0, 0},
    {1, -1, NNRT_f32, false, 12, 512, 0, 0},
    {2, 1, NNRT_f32, false, 12, 512, 0, 0},
    {2, 2, NNRT_f32, false, 6, 128, 0, 0},
    {2, -1, NNRT_f32, false, 12, 512, 0, 0},
    {2, -2, NNRT_f32, false, 12, 640, 0, 0},
    {2, -3, NNRT_f32, false, 6, 576, 0, 0},
    {3, 1, NNRT_f32, false, 12, 512, 0, 0},
    {3, -1, NNRT_f32, false, 1, 832, 0, 0},
    {6, 1, NNRT_f32, false, 8, 704, 0, 0},
    {6, 2, NNRT_f32, false, 12, 640, 0, 0},
    {6, -1, NNRT_f32, false, 24, 512, 0, 0},
    {11, 1, NNRT_f32, false, 24, 0, 0, 0},
    {11, 2, NNRT_f32, false, 24, 384, 0, 0},
    {11, 3, NNRT_f32, false, 1, 192, 0, 0},
    {11, 4, NNRT_f32, false, 1, 768, 0, 0},
    {11, -1, NNRT_f32, false, 24, 0, 0, 0},
    {12, 1, NNRT_f32, false, 6, 128, 0, 0},
    {12, 2, NNRT_f32, false, 6, 320, 0, 0},
    {12, 3, NNRT_f32, false, 1, 192, 0, 0},
    {12, 4, NNRT_f32, false, 1, 768, 0, 0},
    {12, -1, NNRT_f32, false, 6, 128, 0, 0},
    {13, 0, NNRT_f32, false, 0, 0, 0, 0},
};

static const NnrtMesh meshes[] = {
    {"m", 2, {{"acc", 2, true}, {"dp", 2, false}}, 2, (const int[]){0, 1}},
};

static const NnrtGroup groups[] = {
    {0, {1, -1}},
};

static const NnrtTask train_parts[] = {
    {"micro", NULL, train_micro, NULL},
};

static const NnrtRankProgram codes[] = {
    {prepare, {train_begin, 1, train_parts, NULL, train_update}, {0}, 896, 0},
};

static const NnrtModelValue model_values[] = {
    {10, 2, NNRT_f32, -1, 0, 0, {0}, {-1, -1, -1, -1, -1, -1}, .offset = 768},
    {0, 1, NNRT_f32, 0, 0, 2, {8, 4}, {0, 0, -1, -1, -1, -1}, .offset = 704},
    {1, 1, NNRT_f32, 1, 0, 2, {4, 6}, {-1, -1, -1, -1, -1, -1}, .offset = 0},
    {4, 4, NNRT_f32, -1, 0, 2, {8, 6}, {0, 0, -1, -1, -1, -1}, .offset = 512},
    {2, 1, NNRT_f32, 2, 0, 1, {6}, {-1, -1, -1, -1, -1, -1}, .offset = 128},
    {7, 1, NNRT_f32, -1, 0, 2, {8, 6}, {0, 0, -1, -1, -1, -1}, .offset = 512},
    {13, 1, NNRT_f32, -1, 0, 2, {8, 6}, {0, 0, -1, -1, -1, -1}, .offset = 640},
    {14, 8, NNRT_f32, -1, 1, 1, {6}, {-1, -1, -1, -1, -1, -1}, .offset = 576},
    {8, 48, NNRT_f32, -1, 1, 0, {0}, {-1, -1, -1, -1, -1, -1}, .offset = 832},
    {8, 48, NNRT_f32, -1, 1, 0, {0}, {-1, -1, -1, -1, -1, -1}, .offset = 256},
    {14, 8, NNRT_f32, -1, 1, 1, {6}, {-1, -1, -1, -1, -1, -1}, .offset = 320},
    {15, 8, NNRT_f32, -1, 1, 2, {4, 6}, {-1, -1, -1, -1, -1, -1}, .offset = 512},
    {15, 8, NNRT_f32, -1, 1, 2, {4, 6}, {-1, -1, -1, -1, -1, -1}, .offset = 384},
    {8, 48, NNRT_f32, -1, 0, 0, {0}, {-1, -1, -1, -1, -1, -1}, .offset = 256},
    {14, 8, NNRT_f32, -1, 0, 1, {6}, {-1, -1, -1, -1, -1, -1}, .offset = 320},
    {15, 8, NNRT_f32, -1, 0, 2, {4, 6}, {-1, -1, -1, -1, -1, -1}, .offset = 384},
    {3, 1, NNRT_f32, 3, 0, 0, {0}, {-1, -1, -1, -1, -1, -1}, .offset = 192},
    {16, 1, NNRT_f32, -1, 0, 2, {4, 6}, {-1, -1, -1, -1, -1, -1}, .offset = 0},
    {17, 1, NNRT_f32, -1, 0, 1, {6}, {-1, -1, -1, -1, -1, -1}, .offset = 128},
};

static const NnrtModelUse model_uses[] = {
    {0, 0, -1, 0, false},
    {1, 1, 1, 1, false},
    {1, 1, 2, 2, false},
    {1, 1, -1, 3, false},
    {2, 2, 1, 3, false},
    {2, 2, 2, 4, false},
    {2, 2, -1, 5, false},
    {2, 2, -2, 6, false},
    {2, 2, -3, 7, false},
    {3, 3, 1, 5, false},
    {3, 3, -1, 8, false},
    {4, 4, 1, 8, false},
    {4, 4, -1, 9, true},
    {5, 5, 1, 7, false},
    {5, 5, -1, 10, true},
    {6, 6, 1, 1, false},
    {6, 6, 2, 6, false},
    {6, 6, -1, 11, false},
    {7, 7, 1, 11, false},
    {7, 7, -1, 12, true},
    {8, 8, 1, 9, false},
    {8, 8, 2, 10, false},
    {8, 8, 3, 12, false},
    {9, 9, 1, -9, false},
    {10, 9, -1, 13, false},
    {10, 9, -1, 14, false},
    {10, 9, -1, 15, false},
    {11, 11, 1, 2, false},
    {11, 11, 2, 15, false},
    {11, 11, 3, 16, false},
    {11, 11, 4, 0, false},
    {11, 11, -1, 17, false},
    {12, 12, 1, 4, false},
    {12, 12, 2, 14, false},
    {12, 12, 3, 16, false},
    {12, 12, 4, 0, false},
    {12, 12, -1, 18, false},
};

static const NnrtModelProgram model_program[] = {{
    .value = model_values,
    .use = model_uses,
    .n_values = 19,
    .n_uses = 37,
    .n_numbers = 18,
    .n_computed = 14,
    .fingerprint = UINT64_C(0x4e35abac8632cfe0),
}};

const NnrtProgram nnrt_program = {
    .model = "models/small.onnx",
    .plan = "dp",
    .target = "cpu",
    .mesh = meshes,
    .n_mesh = 1,
    .group = groups,
    .n_groups = 1,
    .code = codes,
    .n_codes = 1,
    .ranks = 2,
    .micro_batches = 2,
    .batch = 8,
    .train = {.tensors = train_tensors,
        .n_tensors = 5,
        .ops = train_ops,
        .n_ops = 13,
        .work = train_work,
        .values = train_values,
        .n_values = (int)(sizeof train_values / sizeof *train_values)},
    .model_program = model_program,
    .payload_bytes = 64,
    .n_prep = 2,
    .lr = 0.001,
    .lr_schedule = "constant",
    .seed = 0,
    .constants = constants,
    .n_constants = 1,
};
