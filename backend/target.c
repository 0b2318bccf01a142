// The names of targets: see backend.h.

#include <stdlib.h>
#include <string.h>

#include "target.h"

const TargetBackend *target_backend(Target t) {
  static const TargetBackend *const backends[N_TARGETS] = {
#define TARGET(name, pipeline, align, cluster, multi_tensor, gpu, eager_sends, async_comm,         \
               recorded, half)                                                                     \
  &target_##name,
#include "ir/targets.def"
  };
  return backends[t];
}

bool backend_takes(Target t, const char *option) {
  const char *at = strstr(target_backend(t)->options, option);
  return at && strchr(" ", at[strlen(option)]);
}

// Reads "sm_90,sm_100".
static bool parse_sms(const char *text, TargetSpec *t, Diag *d) {
  for (const char *p = text;; p++) {
    char *end = NULL;
    size_t n = strcspn(p, ",");
    bool named = n > 3 && n < 8 && !strncmp(p, "sm_", 3) && p[3] >= '1' && p[3] <= '9';
    long sm = named ? strtol(p + 3, &end, 10) : 0;
    // An architecture is sm_ and one to four digits.
    if (!named || end != p + n) {
      diag_error(d, NULL, "--target: '%.*s' is no architecture", (int)n, p);
      diag_hint(d, "write them as cuda:sm_90 or cuda:sm_80,sm_90");
      return false;
    }
    // Architectures are in ascending order.
    int at = 0;
    while (at < t->n_sm && t->sm[at] < (int)sm)
      at++;
    if (at < t->n_sm && t->sm[at] == (int)sm)
      return diag_error(d, NULL, "--target names sm_%d twice", (int)sm);
    if (t->n_sm == MAX_SM)
      return diag_error(d, NULL, "--target names more than %d architectures", MAX_SM);
    memmove(&t->sm[at + 1], &t->sm[at], (size_t)(t->n_sm - at) * sizeof *t->sm);
    t->sm[at] = (int)sm;
    t->n_sm++;
    p += n;
    if (!*p) return true;
  }
}

bool backend_target_parse(const char *text, TargetSpec *out, Diag *d) {
  Arena *a = arena_new();
  size_t n = strcspn(text, ":");
  *out = (TargetSpec){0};
  bool ok = target_parse(str_copy_n(a, text, n), &out->target);
  arena_free(a);
  if (!ok) {
    diag_error(d, NULL, "there is no target '%.*s'", (int)n, text);
    Arena *arena = arena_new();
    StrBuf b = {.arena = arena};
    for (int i = 0; i < N_TARGETS; i++)
      strbuf_addf(&b, "%s%s%s", i ? ", " : "", target_info[i].name,
                  target_backend((Target)i)->choices);
    diag_hint(d, "the targets are: %s", b.at);
    arena_free(arena);
    return false;
  }
  const char *bare = target_backend(out->target)->architectures;
  if (bare) return parse_sms(text[n] ? text + n + 1 : bare, out, d);
  // A target without architectures has kinds of processors.
  return !text[n] || processor_parse(text + n + 1, &out->processor, d);
}
