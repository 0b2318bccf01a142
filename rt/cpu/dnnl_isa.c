// oneDNN as ranks see it: its instruction sets, of which they agree on one (isa.c), and the
// properties that they compare (processor.c).

#include <stdlib.h>
#include <strings.h>

#include <dnnl.h>

#include "isa.h"

// The numbers of our sets are oneDNN's.
#define LEVEL(name, ours, its)                                                                     \
  { name, sizeof(char[(int)(ours) == (int)(its) ? 1 : -1]) ? (ours) : 0 }
static const struct {
  const char *name; // in ONEDNN_MAX_CPU_ISA
  int set;
} levels[] = {
    LEVEL("SSE41", ISA_SSE41, dnnl_cpu_isa_sse41),
    LEVEL("AVX", ISA_AVX, dnnl_cpu_isa_avx),
    LEVEL("AVX2", ISA_AVX2, dnnl_cpu_isa_avx2),
    LEVEL("AVX2_VNNI", ISA_AVX2_VNNI, dnnl_cpu_isa_avx2_vnni),
    LEVEL("AVX2_VNNI_2", ISA_AVX2_VNNI_2, dnnl_cpu_isa_avx2_vnni_2),
    LEVEL("AVX512_CORE", ISA_AVX512, dnnl_cpu_isa_avx512_core),
    LEVEL("AVX512_CORE_VNNI", ISA_AVX512_VNNI, dnnl_cpu_isa_avx512_core_vnni),
    LEVEL("AVX512_CORE_BF16", ISA_AVX512_BF16, dnnl_cpu_isa_avx512_core_bf16),
    LEVEL("AVX512_CORE_FP16", ISA_AVX512_FP16, dnnl_cpu_isa_avx512_core_fp16),
    LEVEL("AVX512_CORE_AMX", ISA_AMX, dnnl_cpu_isa_avx512_core_amx),
    LEVEL("AVX512_CORE_AMX_FP16", ISA_AMX_FP16, dnnl_cpu_isa_avx512_core_amx_fp16),
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

const char *library_name(void) {
  static char name[64];
  const dnnl_version_t *v = dnnl_version();
  snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return name;
}

int library_isa_allowed(void) {
  const char *most = getenv("ONEDNN_MAX_CPU_ISA");
  if (!most || !*most) most = getenv("DNNL_MAX_CPU_ISA");
  // A name that is none of them has no effect in oneDNN, and none here.
  for (int i = 0; most && i < N_LEVELS; i++)
    if (strcasecmp(most, levels[i].name) == 0) return levels[i].set;
  return ISA_OF_LIBRARY;
}

bool library_isa_use(int set) {
  return dnnl_set_max_cpu_isa((dnnl_cpu_isa_t)set) == dnnl_success;
}

void library_terms(Terms *t) {
  const dnnl_version_t *v = dnnl_version();
  // From this call on, oneDNN refuses another instruction set.
  int set = dnnl_get_effective_cpu_isa();
  nnrt_terms_add(t, "oneDNN", "%d.%d.%d (%.12s)", v->major, v->minor, v->patch, v->hash);
  nnrt_terms_add(t, "oneDNN's instruction set", "%#x", (unsigned)set);
}

void library_variables(Terms *t) {
  // oneDNN reads the first that is set; it takes hints in both cases.
  const char *hints = getenv("ONEDNN_CPU_ISA_HINTS");
  if (!hints || !*hints) hints = getenv("DNNL_CPU_ISA_HINTS");
  bool none = !hints || !*hints || strcasecmp(hints, "NO_HINTS") == 0;
  nnrt_terms_add(t, "ONEDNN_CPU_ISA_HINTS", "%s", none ? "not set" : hints);
}
