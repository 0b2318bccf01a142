// A unified diff of two printed modules: patience diff (Bram Cohen).
//
// Lines that occur once on both sides are matched first.  Their longest sequence in order on both
// sides stays, and the lines between two of its members are matched recursively.  In SSA form
// nearly every line is unique, so this is close to the shortest edit, in O(n log n), regardless of
// the number of changes.

#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

enum { CONTEXT = 3 };

typedef struct DiffLine {
  const char *text; // as printed
  int n;
  int class; // equal lines have equal classes
} DiffLine;

typedef Vec(DiffLine) Lines;

// The lines of one class on each side, within the compared range.
typedef struct Count {
  int n_a, n_b, at_a, at_b;
} Count;

typedef struct Differ {
  Arena *arena;
  Lines a, b;
  int *match;    // [a.n] the matching line of b, or -1
  Count *counts; // by class
} Differ;

// -- Lines -----------------------------------------------------------------------------------

typedef struct Class {
  const char *text; // with blanks collapsed
  struct Class *next;
  int id;
} Class;

typedef struct Classes {
  Arena *arena;
  Class *bucket[4096];
  int n;
} Classes;

static Lines split_lines(Classes *c, const char *s) {
  Lines lines = {0};
  while (*s) {
    int n = (int)strcspn(s, "\n");
    // Blanks are collapsed, since a change may move the columns of other lines.
    char *text = arena_alloc(c->arena, (size_t)n + 1), *end = text;
    for (int i = 0; i < n; i++)
      if (s[i] != ' ' || (i + 1 < n && s[i + 1] != ' ')) *end++ = s[i];
    // Equal texts share a class.
    uint32_t hash = 2166136261u;
    for (const char *p = text; *p; p++)
      hash = (hash ^ (unsigned char)*p) * 16777619u;
    Class **at = &c->bucket[hash % 4096];
    while (*at && strcmp((*at)->text, text) != 0)
      at = &(*at)->next;
    if (!*at) {
      *at = arena_one(c->arena, Class);
      **at = (Class){.text = text, .id = c->n++};
    }
    DiffLine line = {s, n, (*at)->id};
    vec_push(c->arena, &lines, line);
    s += n + (s[n] == '\n');
  }
  return lines;
}

// -- Matching --------------------------------------------------------------------------------

typedef struct Pair {
  int a, b, before; // before: its predecessor in the longest run, or -1
} Pair;

// The longest list of unique common lines that is in order on both sides: patience sorting.  The
// pairs are sorted by `a`; ends[k] is the pair with the smallest `b` that ends a run of k + 1.
static int longest_run(Arena *arena, Pair *pairs, int n, int *run) {
  int *ends = arena_array(arena, int, n), length = 0;
  for (int i = 0; i < n; i++) {
    // The first end that is not before the pair.
    int low = 0, high = length;
    while (low < high) {
      int middle = (low + high) / 2;
      if (pairs[ends[middle]].b < pairs[i].b)
        low = middle + 1;
      else
        high = middle;
    }
    pairs[i].before = low ? ends[low - 1] : -1;
    ends[low] = i;
    if (low == length) length++;
  }
  // Back from the end of the longest run.
  for (int k = length - 1, i = length ? ends[length - 1] : -1; k >= 0; k--, i = pairs[i].before)
    run[k] = i;
  return length;
}

static void match(Differ *d, int a0, int a1, int b0, int b1) {
  // Common lines at the start and at the end.
  while (a0 < a1 && b0 < b1 && d->a.at[a0].class == d->b.at[b0].class)
    d->match[a0++] = b0++;
  while (a0 < a1 && b0 < b1 && d->a.at[a1 - 1].class == d->b.at[b1 - 1].class)
    d->match[--a1] = --b1;
  if (a0 == a1 || b0 == b1) return;
  // The lines of each class in the range; classes of other ranges are not reset.
  for (int i = a0; i < a1; i++)
    d->counts[d->a.at[i].class] = (Count){0};
  for (int i = b0; i < b1; i++)
    d->counts[d->b.at[i].class] = (Count){0};
  for (int i = a0; i < a1; i++) {
    Count *c = &d->counts[d->a.at[i].class];
    c->n_a++;
    c->at_a = i;
  }
  for (int i = b0; i < b1; i++) {
    Count *c = &d->counts[d->b.at[i].class];
    c->n_b++;
    c->at_b = i;
  }
  // Lines that are unique on both sides, and the longest run of them.
  Arena *scratch = arena_new();
  Pair *pairs = arena_array(scratch, Pair, a1 - a0);
  int n = 0, *run = arena_array(scratch, int, a1 - a0);
  for (int i = a0; i < a1; i++) {
    const Count *c = &d->counts[d->a.at[i].class];
    if (c->n_a == 1 && c->n_b == 1) pairs[n++] = (Pair){.a = i, .b = c->at_b};
  }
  n = longest_run(scratch, pairs, n, run);
  // Terminates: each part is smaller than the whole, as the lines of the run are excluded.
  for (int k = 0; k < n; k++) {
    const Pair *p = &pairs[run[k]];
    d->match[p->a] = p->b;
    match(d, a0, p->a, b0, p->b);
    a0 = p->a + 1;
    b0 = p->b + 1;
  }
  if (n) match(d, a0, a1, b0, b1);
  arena_free(scratch);
}

// -- Writing ---------------------------------------------------------------------------------

// A line of the result: ' ' of both, '-' of a, '+' of b.
typedef struct Edit {
  char sign;
  const DiffLine *line;
  int a, b; // the number of lines of each before it
} Edit;

typedef Vec(Edit) Edits;

static void write_edits(const Edits *edits, FILE *out) {
  for (int i = 0; i < edits->n; i++) {
    if (edits->at[i].sign == ' ') continue;
    int from = i > CONTEXT ? i - CONTEXT : 0, to = i + 1;
    // Nearby changes share a hunk.
    for (int k = i; k < edits->n && k <= to - 1 + 2 * CONTEXT; k++)
      if (edits->at[k].sign != ' ') to = k + 1;
    i = to;
    to = to + CONTEXT < edits->n ? to + CONTEXT : edits->n;
    // The header: line numbers on both sides.
    int n_a = 0, n_b = 0;
    for (int k = from; k < to; k++) {
      n_a += edits->at[k].sign != '+';
      n_b += edits->at[k].sign != '-';
    }
    const Edit *first = &edits->at[from];
    fprintf(out, "@@ -%d,%d +%d,%d @@", first->a + (n_a > 0), n_a, first->b + (n_b > 0), n_b);
    // The graph of the hunk, as diff -p shows the function.
    int head = from;
    while (head >= 0 &&
           (edits->at[head].sign == '-' || !str_starts(edits->at[head].line->text, "graph ")))
      head--;
    if (head >= 0) {
      const char *graph = edits->at[head].line->text;
      fprintf(out, " %.*s", (int)strcspn(graph, "(\n") - 1, graph);
    }
    fputc('\n', out);
    for (int k = from; k < to; k++)
      fprintf(out, "%c%.*s\n", edits->at[k].sign, edits->at[k].line->n, edits->at[k].line->text);
  }
}

void diff_unified(const char *a, const char *name_a, const char *b, const char *name_b, FILE *out) {
  Differ d = {.arena = arena_new()};
  Classes *classes = arena_one(d.arena, Classes);
  classes->arena = d.arena;
  d.a = split_lines(classes, a);
  d.b = split_lines(classes, b);
  d.counts = arena_array(d.arena, Count, classes->n + 1);
  d.match = arena_array(d.arena, int, d.a.n + 1);
  for (int i = 0; i < d.a.n; i++)
    // Until matched, every line of `a` is deleted.
    d.match[i] = -1;
  match(&d, 0, d.a.n, 0, d.b.n);
  // The matches as a list of edits, line by line of `a`.
  Edits edits = {0};
  for (int at_a = 0, at_b = 0; at_a <= d.a.n; at_a++) {
    int until = at_a == d.a.n ? d.b.n : d.match[at_a];
    if (until < 0) {
      vec_push(d.arena, &edits, (Edit){'-', &d.a.at[at_a], at_a, at_b});
      continue;
    }
    for (; at_b < until; at_b++)
      vec_push(d.arena, &edits, (Edit){'+', &d.b.at[at_b], at_a, at_b});
    if (at_a == d.a.n) break;
    // Shows the new spelling, which may be aligned differently.
    vec_push(d.arena, &edits, (Edit){' ', &d.b.at[at_b], at_a, at_b});
    at_b++;
  }
  fprintf(out, "--- %s\n+++ %s\n", name_a, name_b);
  write_edits(&edits, out);
  arena_free(d.arena);
}
