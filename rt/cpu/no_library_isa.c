// No library of kernels: ranks have no instruction sets and no version of one to agree on.  See
// isa.h.

#include "isa.h"

const char *library_name(void) {
  return NULL;
}

int library_isa_allowed(void) {
  return ISA_OF_LIBRARY;
}

bool library_isa_use(int set) {
  (void)set;
  return true;
}

void library_terms(Terms *t) {
  nnrt_terms_add(t, "oneDNN", "none");
}

void library_variables(Terms *t) {
  (void)t;
}
