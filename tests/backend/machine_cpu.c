// Kernels in C: compiled into a shared object, and loaded.  See machine.h.

#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BLOCKS = 256 };

static void *library, *blocks[MAX_BLOCKS];
static int n_blocks;

bool machine_open(const char *code) {
  char dir[] = "/tmp/nnaot-test-XXXXXX", source[64], object[64], command[1024];
  if (!mkdtemp(dir)) return false;
  snprintf(source, sizeof source, "%s/k.c", dir);
  snprintf(object, sizeof object, "%s/k.so", dir);
  FILE *f = fopen(source, "w");
  if (!f) return false;
  fputs(code, f);
  fclose(f);
  snprintf(command, sizeof command,
           "%s -std=gnu17 -O2 -fopenmp -ffp-contract=fast -fno-math-errno "
           "-fno-trapping-math -fwrapv -Wall -Wextra -Wpedantic -Wshadow -Wformat=2 "
           "-Wwrite-strings -Wcast-qual -Wundef -Wvla -Werror -shared -fPIC -I%s %s -o %s -lm",
           NNAOT_CC, RT_HEADERS, source, object);
  if (system(command) != 0) {
    printf("the code of the kernels, %s, does not compile\n", source);
    return false;
  }
  library = dlopen(object, RTLD_NOW);
  if (!library) printf("%s\n", dlerror());
  unlink(source);
  unlink(object);
  rmdir(dir);
  return library != NULL;
}

Kernel *machine_kernel(const char *name) {
  char symbol[256];
  Kernel *kernel;
  snprintf(symbol, sizeof symbol, "call_%s", name);
  *(void **)&kernel = dlsym(library, symbol);
  return kernel;
}

void *machine_new(const void *from, int64_t bytes) {
  void *at = n_blocks < MAX_BLOCKS ? malloc((size_t)bytes + 1) : NULL;
  if (!at) abort();
  blocks[n_blocks++] = at;
  return memcpy(at, from, (size_t)bytes);
}

void machine_read(void *to, const void *at, int64_t bytes) {
  memcpy(to, at, (size_t)bytes);
}

void machine_free_all(void) {
  while (n_blocks > 0)
    free(blocks[--n_blocks]);
}
