// See said.h.

#include "said.h"

#include <stdlib.h>
#include <string.h>

void said_open(Said *s) {
  *s = (Said){0};
  s->file = open_memstream(&s->text, &s->n);
  if (!s->file) BUG("no memory for messages");
  s->d = diag_new(s->file);
}

const char *said_close(Said *s, Arena *a) {
  fflush(s->file);
  const char *at = s->text ? strstr(s->text, "error: ") : NULL;
  if (at) at += strlen("error: ");
  const char *first = at ? str_copy_n(a, at, strcspn(at, "\n")) : "it is impossible";
  diag_free(s->d);
  fclose(s->file);
  free(s->text);
  return first;
}
