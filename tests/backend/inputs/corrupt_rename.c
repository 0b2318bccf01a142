// Changes the text of program.c as it gets its name: sums begin at 0 in slice 1 instead of slice 0.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  static const char name[] = "/program.c";
  size_t n = strlen(to);
  FILE *f = n > strlen(name) && !strcmp(to + n - strlen(name), name) ? fopen(from, "r+b") : NULL;
  if (f) {
    char *text = calloc(1, 1 << 24);
    size_t length = fread(text, 1, (1 << 24) - 1, f);
    char *at = strstr(text, "r->micro == 0");
    if (length && at) {
      at[strlen("r->micro == ")] = '1';
      rewind(f);
      fwrite(text, 1, length, f);
    }
    fclose(f);
    free(text);
  }
  return real(from, to);
}
