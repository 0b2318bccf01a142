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

// "1f1b, …, interleaved:CHUNKS, …, search"
static const char *list_kinds(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < n_schedule_texts; i++) {
    const struct Counted *of = find_counted(schedule_texts[i].name);
    strbuf_addf(&b, "%s%s%s, ", schedule_texts[i].name, of ? ":" : "", of ? of->sign : "");
  }
  strbuf_add(&b, "search");
  return b.at;
}

// "interleaved:CHUNKS and terapipe:PIECES"
static const char *list_counted(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_COUNTED; i++)
    strbuf_addf(&b, "%s%s:%s",
                !i                  ? ""
                : i + 1 < N_COUNTED ? ", "
                                    : " and ",
                counted[i].kind, counted[i].sign);
  return b.at;
}

static const char *read_count(Arena *a, const struct Counted *of, const char *number, int *count) {
  char *end;
  long n = strtol(number, &end, 10);
  if (end == number || *end || n < 1 || n > SCHEDULE_CHUNKS)
    return str_format(a, "the schedule %s:%s takes from 1 to %d %s, not '%s'", of->kind, of->sign,
                      SCHEDULE_CHUNKS, of->of, number);
  *count = (int)n;
  return NULL;
}

const char *schedule_kind(Arena *a, const char *said, ScheduleKind *out) {
  const char *colon = strchr(said, ':');
  const char *name = colon ? str_copy_n(a, said, (size_t)(colon - said)) : said;
  const struct Counted *of = find_counted(name);
  *out = (ScheduleKind){schedule_text(name), 1};
  if (!out->text && !str_equal(name, "search"))
    return str_format(a, "there is no schedule '%s': there are %s", said, list_kinds(a));
  if (colon && of) return read_count(a, of, colon + 1, &out->count);
  if (colon)
    return str_format(a, "the schedule '%s' takes no number, as only %s do", name, list_counted(a));
  if (of) return str_format(a, "the schedule '%s' needs its %s: %s:2, say", name, of->of, of->kind);
  return NULL;
}
