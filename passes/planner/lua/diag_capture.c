// Messages that are kept instead of shown: see diag_capture.h.

#include "diag_capture.h"

#include <stdlib.h>
#include <string.h>

void diag_capture_begin(DiagCapture *s) {
  *s = (DiagCapture){0};
  s->file = open_memstream(&s->text, &s->n);
  if (!s->file) BUG("no memory for messages");
  s->d = diag_new(s->file);
}

const char *diag_capture_end(DiagCapture *s, Arena *a) {
  fflush(s->file);
  const char *at = s->text ? strstr(s->text, "error: ") : NULL;
  if (at) at += strlen("error: ");
  const char *first = at ? str_copy_n(a, at, strcspn(at, "\n")) : "it is impossible";
  diag_free(s->d);
  fclose(s->file);
  free(s->text);
  return first;
}
