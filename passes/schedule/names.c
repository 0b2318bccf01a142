// Names of schedule kinds: see names.h.

#include "schedule/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

// Kinds with a number in their names, and its meaning.  All kinds: schedule_texts.
static const struct Counted {
  const char *kind, *of, *sign;
} counted[] = {
    {"interleaved", "chunks", "CHUNKS"},
    {"terapipe", "pieces", "PIECES"},
};
enum { N_COUNTED = sizeof counted / sizeof *counted };

static const struct Counted *find_counted(const char *kind) {
  for (int i = 0; i < N_COUNTED; i++)
    if (str_equal(kind, counted[i].kind)) return &counted[i];
  return NULL;
}

const ScheduleText *schedule_text(const char *name) {
  for (int i = 0; i < n_schedule_texts; i++)
    if (str_equal(name, schedule_texts[i].name)) return &schedule_texts[i];
  return NULL;
}

const char *schedule_kind(Arena *a, const char *spec, ScheduleKind *out) {
  // KIND or KIND:NUMBER
  const char *colon = strchr(spec, ':');
  const char *name = colon ? str_copy_n(a, spec, (size_t)(colon - spec)) : spec;
  const struct Counted *of = find_counted(name);
  *out = (ScheduleKind){schedule_text(name), 1};
  StrBuf b = {.arena = a};
  if (!out->text && !str_equal(name, "search")) {
    // "1f1b, …, interleaved:CHUNKS, …, search"
    for (int i = 0; i < n_schedule_texts; i++) {
      const struct Counted *with = find_counted(schedule_texts[i].name);
      strbuf_addf(&b, "%s%s%s, ", schedule_texts[i].name, with ? ":" : "", with ? with->sign : "");
    }
    strbuf_add(&b, "search");
    return str_format(a, "there is no schedule '%s': there are %s", spec, b.at);
  }
  if (colon && of) {
    char *end;
    long n = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || n < 1 || n > SCHEDULE_CHUNKS)
      return str_format(a, "the schedule %s:%s takes from 1 to %d %s, not '%s'", of->kind, of->sign,
                        SCHEDULE_CHUNKS, of->of, colon + 1);
    out->count = (int)n;
    return NULL;
  }
  if (colon) {
    // "interleaved:CHUNKS and terapipe:PIECES"
    for (int i = 0; i < N_COUNTED; i++)
      strbuf_addf(&b, "%s%s:%s",
                  !i                  ? ""
                  : i + 1 < N_COUNTED ? ", "
                                      : " and ",
                  counted[i].kind, counted[i].sign);
    return str_format(a, "the schedule '%s' takes no number, as only %s do", name, b.at);
  }
  if (of) return str_format(a, "the schedule '%s' needs its %s: %s:2, say", name, of->of, of->kind);
  return NULL;
}
