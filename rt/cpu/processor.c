// The properties of this machine on which the rounding of kernels depends, besides the instruction
// set and the number of threads: ranks tell each other theirs (rounding_agreement.c).
//
//     the processor    AuthenticAMD family 25 model 17      oneDNN takes some decisions by model
//     its cache        L1 32 KiB, L2 1024 KiB, L3 32768 KiB of 8        and blocks by their size
//     oneDNN           3.2.0 (40112196287e)                 another version has other kernels
//
// Caches are read as oneDNN reads them, from the processor: a virtual machine may show others than
// its host has.  Steppings of a model compute alike, and are left out.

#include <stdlib.h>
#include <string.h>

#include "isa.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>

static void add_processor(Terms *t) {
  unsigned a = 0, b = 0, c = 0, d = 0, name[3] = {0};
  __get_cpuid(0, &a, &name[0], &name[2], &name[1]);
  __get_cpuid(1, &a, &b, &c, &d);
  unsigned family = a >> 8 & 15, model = a >> 4 & 15;
  // The extended fields count from these families on.
  if (family == 6 || family == 15) model += (a >> 16 & 15) << 4;
  if (family == 15) family += a >> 20 & 255;
  nnrt_terms_add(t, "the processor", "%.12s family %u model %u", (const char *)name, family, model);
}

// Intel's leaf of caches, or AMD's: their fields are the same.
static unsigned cache_leaf(void) {
  const unsigned intel = 4, amd = 0x8000001D;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(intel, 0, &a, &b, &c, &d) && (a & 31)) return intel;
  return amd;
}

static void add_caches(Terms *t) {
  enum { CODE = 2, MOST = 16 };
  char *text = NULL;
  unsigned leaf = cache_leaf(), a = 0, b = 0, c = 0, d = 0;
  for (unsigned i = 0; i < MOST && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++) {
    if ((a & 31) == CODE) continue;
    // Ways, partitions, bytes of a line, sets; each field is one less.
    uint64_t bytes =
        ((uint64_t)(b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((uint64_t)c + 1);
    unsigned of = (a >> 14 & 4095) + 1;
    text = nnrt_must_append(text, "%sL%u %llu KiB", text ? ", " : "", a >> 5 & 7,
                            (unsigned long long)(bytes >> 10));
    if (of > 1) text = nnrt_must_append(text, " of %u", of);
  }
  nnrt_terms_add(t, "its cache", "%s", text ? text : "unknown");
  free(text);
}

#else

#include <sys/utsname.h>

static void add_processor(Terms *t) {
  struct utsname name;
  nnrt_terms_add(t, "the processor", "%s", uname(&name) == 0 ? name.machine : "unknown");
}

static void add_caches(Terms *t) {
  (void)t;
}

#endif

void nnrt_device_terms(const NnrtRank *r, Terms *t) {
  (void)r;
  add_processor(t);
  add_caches(t);
  library_terms(t);
}

void nnrt_device_variables(Terms *t) {
  library_variables(t);
}
