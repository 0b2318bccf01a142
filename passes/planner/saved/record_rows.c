// See record_rows.h.
//
// Each number in a name is a spot; its rest is the row with # for the number. Spots are sorted by
// rest, so that equal ones are adjacent. A row goes with the spot that has most equals, and equally
// spaced ones among these are joined.

#include "record_rows.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rt/utf8.h"

const char *lua_quoted(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  while (*s) {
    uint32_t code;
    int n = nnrt_utf8(s, &code);
    bool shown = n > 0 && !nnrt_utf8_obeyed(code);
    if (*s == '"' || *s == '\\')
      strbuf_addf(&b, "\\%c", *s);
    else if (shown)
      strbuf_add_n(&b, s, (size_t)n);
    else
      strbuf_addf(&b, "\\%03d", (unsigned char)*s);
    s += shown ? n : 1;
  }
  strbuf_add(&b, "\"");
  return b.at;
}

// -- Numbers in names ----------------------------------------------------------------------------

enum { MAX_DIGITS = 9, MAX_SPOTS = 8 }; // of a number; in a name

// A number in the name of a row.
typedef struct Spot {
  const char *rest; // the row, with # for the number
  uint64_t hash;    // of that
  int64_t number;
  int row;
  int at;      // index of the number in the name
  int n_alike; // spots with this rest
} Spot;

typedef Vec(Spot) Spots;

// A number with leading zeros could not be written back.
static void find_spots(const Row *row, int i, Spots *spots, Arena *a) {
  int n_found = 0;
  if (strchr(row->name, '#')) return;
  for (const char *p = row->name; *p && n_found < MAX_SPOTS;) {
    int n = (int)strspn(p, "0123456789");
    // All of the row but this number.
    if (n && n <= MAX_DIGITS && (n == 1 || *p != '0')) {
      const char *rest =
          str_format(a, "%.*s#%s\n%s\n%d\n%d\n%s\n%s", (int)(p - row->name), row->name, p + n,
                     row->kind, row->which, row->last, row->splits, row->note);
      uint64_t hash = fnv1a(FNV1A_EMPTY, rest, strlen(rest));
      vec_push(a, spots, (Spot){rest, hash, strtoll(p, NULL, 10), i, n_found, 1});
      n_found++;
    }
    p += n ? n : 1;
  }
}

static int by_rest(const void *x, const void *y) {
  const Spot *a = x, *b = y;
  if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
  int order = strcmp(a->rest, b->rest);
  return order ? order : (a->number > b->number) - (a->number < b->number);
}

static int same_rest(const Spots *spots, int from) {
  int n = 1;
  while (from + n < spots->n && str_equal(spots->at[from].rest, spots->at[from + n].rest))
    n++;
  return n;
}

// -- Rows ----------------------------------------------------------------------------------------

// spot[n] have one rest. Rows joined into another are left without a name.
static void join(Row *out, const Spot *const *spot, int n, Arena *a) {
  for (int i = 0, run; i < n; i += run) {
    // The equally spaced run from here on, if it is worth a row; else 1.
    int left = n - i;
    int64_t step = left > 1 ? spot[i + 1]->number - spot[i]->number : 0;
    run = left < 2 ? left : 2;
    while (run < left && spot[i + run]->number - spot[i + run - 1]->number == step)
      run++;
    bool worth = run > 2 || (run == 2 && step == 1);
    if (!worth) run = 1;
    if (run == 1) continue;
    // The first of its rows stands for all.
    int first = spot[i]->row;
    for (int k = i; k < i + run; k++) {
      out[spot[k]->row].name = NULL;
      first = spot[k]->row < first ? spot[k]->row : first;
    }
    // { "Add.#", 7, 31, 12 }
    const char *pattern = str_copy_n(a, spot[i]->rest, strcspn(spot[i]->rest, "\n"));
    StrBuf b = {.arena = a};
    strbuf_addf(&b, "{ %s, %lld, %lld", lua_quoted(a, pattern), (long long)spot[i]->number,
                (long long)spot[i + run - 1]->number);
    if (step != 1) strbuf_addf(&b, ", %lld", (long long)step);
    strbuf_add(&b, " }");
    out[first].name = b.at;
  }
}

const char *row_which(const Row *row, Arena *a) {
  if (row->which == row->last) return str_format(a, "%d", row->which);
  return str_format(a, "{ %d, %d }", row->which, row->last);
}

Rows rows_joined(const Rows *all, Arena *a) {
  // Adjacent rows that differ only in which op they are become one.
  Rows neighbours = {0}, *rows = &neighbours;
  for (int i = 0; i < all->n; i++) {
    const Row *row = &all->at[i];
    Row *last = rows->n ? &rows->at[rows->n - 1] : NULL;
    if (last && row->which && row->which == last->last + 1 && str_equal(row->name, last->name) &&
        str_equal(row->kind, last->kind) && str_equal(row->splits, last->splits) &&
        str_equal(row->note, last->note))
      last->last = row->which;
    else
      vec_push(a, rows, *row);
  }
  Spots spots = {0};
  Rows joined = {0};
  Row *out = arena_array(a, Row, rows->n);
  for (int i = 0; i < rows->n; i++) {
    out[i] = rows->at[i];
    out[i].name = lua_quoted(a, out[i].name);
    find_spots(&rows->at[i], i, &spots, a);
  }
  // A row is joined in one of its numbers only: the spot with most equals, the first of several.
  const Spot **best = arena_array(a, const Spot *, rows->n);
  if (spots.n) qsort(spots.at, (size_t)spots.n, sizeof *spots.at, by_rest);
  for (int i = 0, n; i < spots.n; i += n) {
    n = same_rest(&spots, i);
    for (int k = i; k < i + n; k++) {
      Spot *s = &spots.at[k];
      s->n_alike = n;
      const Spot *known = best[s->row];
      if (!known || known->n_alike < n || (known->n_alike == n && s->at < known->at))
        best[s->row] = s;
    }
  }
  const Spot **chosen = arena_array(a, const Spot *, spots.n);
  for (int i = 0, n; i < spots.n; i += n) {
    int n_chosen = 0;
    n = same_rest(&spots, i);
    for (int k = i; k < i + n; k++)
      if (best[spots.at[k].row] == &spots.at[k]) chosen[n_chosen++] = &spots.at[k];
    join(out, chosen, n_chosen, a);
  }
  for (int i = 0; i < rows->n; i++)
    if (out[i].name) vec_push(a, &joined, out[i]);
  return joined;
}
