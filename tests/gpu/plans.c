// Plans of the real cuDNN, built without a GPU for the one of a property file, as nnaot has them
// built for a program: for every convolution of ResNet-50 and for attention of many kinds.  Prints
// each engine, its workspace and its build time; fails if a required one is missing.  Then the
// output is appended to a copy of this program, intact and damaged, and the copy looks plans up in
// it.
//
//     gpu_plans h200.json FOLDER
//     COPY find SM PROCESSORS KEY         prints "76071", the bytes of the text, or "none"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/cudnn_plans.h"
#include "cuda/dnn.h"
#include "runtime.h"
#include "trailer.h"

static int n_failed, n_made;

#define CHECK(condition, ...)                                                                      \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      n_failed++;                                                                                  \
      printf("%s:%d: ", __FILE__, __LINE__);                                                       \
      printf(__VA_ARGS__);                                                                         \
      printf("\n");                                                                                \
    }                                                                                              \
  } while (0)

static void report(NnrtPrep *p, double from, const char *what) {
  double ms = (nnrt_now_us() - from) / 1e3;
  bool made = p && dnn_plan_chosen()[0];
  printf("%-58s %6.0f ms  %s\n", what, ms, made ? dnn_plan_chosen() : nnrt_error_detail());
  CHECK(made, "no plan");
  n_made += made;
  nnrt_prep_free(p);
}

// -- Attention

typedef enum Mask { NONE, OF_PLACES, OF_KEYS } Mask;

static void attention(bool bf16, int64_t b, int64_t h, int64_t kv, int64_t t, int64_t s, int64_t d,
                      bool causal, Mask mask) {
  const int64_t q[] = {b, t, h, d}, k[] = {b, s, kv, d};
  const int64_t mask_shape[] = {mask == OF_KEYS ? b : 1, 1, mask == OF_KEYS ? 1 : t, s};
  const int64_t *m = mask ? mask_shape : NULL;
  char what[128];
  int n =
      snprintf(what, sizeof what, "attention %s b%d h%d/%d t%d s%d d%d%s%s", bf16 ? "bf16" : "f16",
               (int)b, (int)h, (int)kv, (int)t, (int)s, (int)d, causal ? " causal" : "",
               mask == OF_KEYS ? " keys masked"
               : mask          ? " masked"
                               : "");
  double from = nnrt_now_us();
  report(bf16 ? nnrt_attention_prep_bf16(m ? 4 : 3, 4, q, k, k, m, 0.125, causal, true)
              : nnrt_attention_prep_f16(m ? 4 : 3, 4, q, k, k, m, 0.125, causal, true),
         from, what);
  snprintf(what + n, sizeof what - (size_t)n, ", back");
  from = nnrt_now_us();
  report(bf16 ? nnrt_attention_back_prep_bf16(m ? 7 : 6, 4, q, k, k, m, 0.125, causal, true)
              : nnrt_attention_back_prep_f16(m ? 7 : 6, 4, q, k, k, m, 0.125, causal, true),
         from, what);
}

static void packed(int64_t b, int64_t h, int64_t t, int64_t d) {
  const int64_t shape[] = {b, t, 3 * h * d};
  char what[128];
  int n = snprintf(what, sizeof what, "attention_packed bf16 b%d h%d t%d d%d causal", (int)b,
                   (int)h, (int)t, (int)d);
  double from = nnrt_now_us();
  report(nnrt_attention_packed_prep_bf16(shape, h, 0.125, true), from, what);
  snprintf(what + n, sizeof what - (size_t)n, ", back");
  from = nnrt_now_us();
  report(nnrt_attention_packed_back_prep_bf16(shape, h, 0.125, true), from, what);
}

static void all_attention(void) {
  static const int64_t widths[] = {32, 64, 80, 96, 128};
  for (int i = 0; i < 5; i++)
    attention(true, 8, 12, 12, 1024, 1024, widths[i], true, NONE);
  attention(true, 8, 12, 12, 1024, 1024, 64, false, NONE);
  attention(false, 8, 12, 12, 1024, 1024, 64, true, NONE);
  attention(false, 8, 12, 12, 1024, 1024, 128, false, NONE);
  packed(64, 12, 1024, 64);                                // GPT-2, backward in parts
  packed(16, 25, 1024, 64);                                // the largest GPT-2
  attention(true, 128, 12, 12, 197, 197, 64, false, NONE); // ViT-B/16
  attention(true, 8, 32, 8, 2048, 2048, 128, true, NONE);  // grouped heads
  attention(true, 8, 12, 12, 512, 512, 64, false, OF_KEYS);
  attention(true, 8, 12, 12, 512, 512, 64, false, OF_PLACES);
  attention(true, 8, 12, 12, 512, 512, 64, true, OF_KEYS);
  attention(true, 8, 12, 12, 100, 1000, 64, false, NONE);
  attention(true, 8, 12, 12, 128, 1024, 64, true, NONE);
}

// -- Convolution

typedef struct Conv {
  int spatial;
  int64_t n, c, size, o, window, stride, pad, group;
} Conv;

static void conv(NnrtDtype type, const Conv *c, bool last) {
  int64_t x[5] = {c->n}, y[5] = {c->n}, w[5] = {c->o, c->c / c->group}, stride[3], pad[6];
  const int64_t ones[] = {1, 1, 1};
  int64_t out = (c->size + 2 * c->pad - c->window) / c->stride + 1, ndim = c->spatial + 2;
  for (int i = 0; i < c->spatial; i++) {
    x[last ? i + 1 : i + 2] = c->size;
    y[last ? i + 1 : i + 2] = out;
    w[i + 2] = c->window;
    stride[i] = c->stride;
    pad[i] = pad[c->spatial + i] = c->pad;
  }
  x[last ? ndim - 1 : 1] = c->c;
  y[last ? ndim - 1 : 1] = c->o;
  static const char *const names[] = {"conv", "conv_back_x", "conv_back_w"};
  for (int i = 0; i < 3; i++) {
    char what[128];
    snprintf(what, sizeof what, "%s %s %dd n%d c%d %d o%d window %d/%d group %d%s", names[i],
             nnrt_dtype_name(type), c->spatial, (int)c->n, (int)c->c, (int)c->size, (int)c->o,
             (int)c->window, (int)c->stride, (int)c->group, last ? " last" : "");
    double from = nnrt_now_us();
#define PREP(suffix)                                                                               \
  (i == 0   ? nnrt_conv_prep_##suffix(ndim, x, w, y, stride, pad, ones, c->group, last)            \
   : i == 1 ? nnrt_conv_back_x_prep_##suffix(ndim, x, w, y, stride, pad, ones, c->group, last)     \
            : nnrt_conv_back_w_prep_##suffix(ndim, x, w, y, stride, pad, ones, c->group, last))
    report(type == NNRT_f32 ? PREP(f32) : type == NNRT_bf16 ? PREP(bf16) : PREP(f16), from, what);
#undef PREP
  }
}

static void all_convs(void) {
  static const Conv resnet[] = {
      {2, 128, 3, 224, 64, 7, 2, 3, 1},     {2, 128, 64, 56, 64, 1, 1, 0, 1},
      {2, 128, 64, 56, 64, 3, 1, 1, 1},     {2, 128, 64, 56, 256, 1, 1, 0, 1},
      {2, 128, 256, 56, 64, 1, 1, 0, 1},    {2, 128, 256, 56, 128, 1, 1, 0, 1},
      {2, 128, 128, 56, 128, 3, 2, 1, 1},   {2, 128, 128, 28, 512, 1, 1, 0, 1},
      {2, 128, 256, 56, 512, 1, 2, 0, 1},   {2, 128, 512, 28, 128, 1, 1, 0, 1},
      {2, 128, 128, 28, 128, 3, 1, 1, 1},   {2, 128, 512, 28, 256, 1, 1, 0, 1},
      {2, 128, 256, 28, 256, 3, 2, 1, 1},   {2, 128, 256, 14, 1024, 1, 1, 0, 1},
      {2, 128, 512, 28, 1024, 1, 2, 0, 1},  {2, 128, 1024, 14, 256, 1, 1, 0, 1},
      {2, 128, 256, 14, 256, 3, 1, 1, 1},   {2, 128, 1024, 14, 512, 1, 1, 0, 1},
      {2, 128, 512, 14, 512, 3, 2, 1, 1},   {2, 128, 512, 7, 2048, 1, 1, 0, 1},
      {2, 128, 1024, 14, 2048, 1, 2, 0, 1}, {2, 128, 2048, 7, 512, 1, 1, 0, 1},
      {2, 128, 512, 7, 512, 3, 1, 1, 1},
  };
  static const Conv others[] = {
      {2, 32, 64, 56, 64, 3, 1, 1, 64},   // each channel alone
      {2, 32, 128, 28, 128, 3, 1, 1, 32}, // groups
      {1, 8, 80, 1000, 512, 3, 2, 1, 1},  {3, 2, 16, 32, 32, 3, 1, 1, 1},
      {2, 32, 3, 32, 16, 3, 1, 1, 1},
  };
  for (size_t i = 0; i < sizeof resnet / sizeof *resnet; i++)
    conv(NNRT_bf16, &resnet[i], true);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    conv(NNRT_f16, &others[i], true);
    conv(NNRT_f32, &others[i], true);
    conv(NNRT_f32, &others[i], false);
    conv(NNRT_bf16, &others[i], false);
  }
}

static void make_all(NnrtRank *r) {
  (void)r;
  all_attention();
  all_convs();
}

// -- Looking plans up

static int find_plan(char **argv) {
  NnrtGpu gpu = {.sm = atoi(argv[2]), .processors = atoi(argv[3])};
  int64_t bytes = 0;
  nnrt_gpu_use(&gpu);
  if (nnrt_plans_find(argv[4], &bytes))
    printf("%lld\n", (long long)bytes);
  else
    printf("none\n");
  nnrt_plans_built(1, false);
  fflush(stdout);
  nnrt_plans_say(0);
  return 0;
}

static char *read_all(const char *path, int64_t *bytes) {
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) return NULL;
  *bytes = ftell(f);
  rewind(f);
  char *text = nnrt_must_alloc((size_t)*bytes + 1);
  if (fread(text, 1, (size_t)*bytes, f) != (size_t)*bytes) *bytes = 0;
  fclose(f);
  return text;
}

// Appends `plans` to a copy of this program, and looks for `key` in it; its output contains `want`.
static void check_found(const char *folder, const char *plans, int64_t bytes, const char *key,
                        const char *gpu, const char *want) {
  char path[4096], command[8192], said[4096] = "";
  snprintf(path, sizeof path, "%s/with_plans", folder);
  FILE *self = fopen("/proc/self/exe", "rb"), *none = fopen("/dev/null", "rb");
  FILE *text = fmemopen((void *)(uintptr_t)plans, (size_t)bytes, "rb"), *f = fopen(path, "wb");
  bool written = self && none && text && f && nnrt_write_executable(self, INT64_MAX, none, text, f);
  FILE *files[] = {self, none, text, f};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i]) written &= !fclose(files[i]);
  CHECK(written && !chmod(path, 0755), "cannot write '%s': %s", path, strerror(errno));
  if (!written) return;
  snprintf(command, sizeof command, "%s find %s %s 2>&1", path, gpu, key);
  f = popen(command, "r");
  size_t n = f ? fread(said, 1, sizeof said - 1, f) : 0;
  said[n] = 0;
  if (f) pclose(f);
  CHECK(strstr(said, want), "looking for '%s': '%s' was expected, it says: %s", key, want, said);
  unlink(path);
}

static void check_text(const char *folder, const char *path) {
  int64_t bytes;
  char *plans = read_all(path, &bytes), key[128], want[32];
  long long cudnn, sm, processors, count, length;
  bool read =
      plans && sscanf(plans,
                      "nnrt plans 1 cudnn %lld sm %lld multiprocessors %lld count %lld %127s "
                      "%lld",
                      &cudnn, &sm, &processors, &count, key, &length) == 6;
  CHECK(read, "the text begins otherwise");
  if (!read) return;
  printf("%lld plans, %lld bytes, the last %s\n", count, (long long)bytes, key);
  CHECK(count > 0 && count <= n_made, "%lld plans are written of %d", count, n_made);
  char gpu[64];
  snprintf(gpu, sizeof gpu, "%lld %lld", sm, processors);
  snprintf(want, sizeof want, "%lld\n", length);
  check_found(folder, plans, bytes, key, gpu, want);
  check_found(folder, plans, bytes, "attention_bf16-0", gpu, "this executable lacks them");
  check_found(folder, plans, bytes, key, "90 7", "; this is cudnn");
  check_found(folder, "", 0, key, gpu, "this executable has none");
  check_found(folder, plans, bytes - 1, key, gpu, "its text or its checksum is damaged");
  check_found(folder, plans, bytes / 2, key, gpu, "its text or its checksum is damaged");
  check_found(folder, plans + 1, bytes - 1, key, gpu, "its first line is damaged");
  plans[bytes / 2] ^= 1;
  check_found(folder, plans, bytes, key, gpu, "its text or its checksum is damaged");
  plans[bytes / 2] ^= 1;
  // Two sections; for a GPU in neither, the message names both.
  char *two = nnrt_must_alloc((size_t)(2 * bytes));
  memcpy(two, plans, (size_t)bytes);
  memcpy(two + bytes, plans, (size_t)bytes);
  check_found(folder, two, 2 * bytes, key, gpu, want);
  snprintf(want, sizeof want, "sm_%lld with %lld multiprocessors; ", sm, processors);
  check_found(folder, two, 2 * bytes, key, "90 7", want);
  free(two);
  free(plans);
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "find") == 0) return find_plan(argv);
  if (argc != 3) {
    fprintf(stderr, "usage: gpu_plans PROPERTIES.json FOLDER\n");
    return 2;
  }
  char path[4096];
  snprintf(path, sizeof path, "%s/plans", argv[2]);
  setenv("NNRT_PLAN_DEVICE", argv[1], 1);
  setenv("NNRT_PLAN_OUT", path, 1);
  const NnrtRankProgram code = {.init = make_all};
  const NnrtProgram p = {.model = "plans", .ranks = 1, .code = &code, .n_codes = 1};
  double from = nnrt_now_us();
  CHECK(nnrt_plans_main(&p) == 0, "planning failed");
  printf("%d plans in %.1f s\n", n_made, (nnrt_now_us() - from) / 1e6);
  check_text(argv[2], path);
  setenv("NNRT_PLAN_DEVICE", path, 1); // not a property file
  CHECK(nnrt_plans_main(&p) == 1, "properties are taken from what has none");
  unlink(path);
  printf("%d failed\n", n_failed);
  return n_failed > 0;
}
