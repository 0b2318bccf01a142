// Shared by the C tests: cmocka, and a Diag with readable messages.

#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above first.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "groups.h"

typedef struct Heard {
  FILE *out;
  char *text; // the messages so far, after heard()
  size_t n;
  Diag *d;
} Heard;

static inline Heard *heard_new(void) {
  Heard *h = calloc(1, sizeof *h);
  h->out = open_memstream(&h->text, &h->n);
  h->d = diag_new(h->out);
  return h;
}

// Whether the messages contain `text`; prints them otherwise.
static inline int heard(Heard *h, const char *text) {
  fflush(h->out);
  int yes = strstr(h->text, text) != NULL;
  if (!yes) print_message("expected: %s\nheard:    %s\n", text, h->text);
  return yes;
}

static inline void heard_free(Heard *h) {
  fclose(h->out);
  free(h->text);
  diag_free(h->d);
  free(h);
}

#endif
