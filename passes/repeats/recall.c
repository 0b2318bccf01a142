// See recall.h.
//
// Names and locations of one layer are those of another with another number in them. So `was`
// begins with a replacement for the callee's, and lists only exceptions:
//
//     h.0 TAB h.3 TAB 51 TAB 24           h.0 becomes h.3, ids are 51 higher, and numbers 24
//                                         an op of which that is true
//     Add_7 TAB gpt2.onnx:/Add_7 TAB 9    one of which it is not: its names, location and number
//
// Tabs, line ends and backslashes in a field are escaped by a backslash. Empty lines at the end are
// left out.

#include "recall.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"

Recall recall_of(const Op *op, Arena *a) {
  Recall o = {op->n_out, arena_array(a, const char *, op->n_out), loc_comment(a, op->loc), op->of};
  for (int i = 0; i < op->n_out; i++)
    o.name[i] = op->out[i]->name ? op->out[i]->name : str_format(a, "%u", op->out[i]->id);
  return o;
}

void ops_called(const Graph *g, Arena *a, Ops *out) {
  for_each_op(op, g) {
    if (op->kind == OP_call)
      ops_called(op->callee, a, out);
    else
      vec_push(a, out, op);
  }
}

enum { MAX_TRIED = 4 };

// -- Changes of the callee's texts ------------------------------------------------------------

typedef struct Change {
  const char *from, *to; // NULL: no replacement
  int64_t id, of;        // added to ids, and to numbers other than 0
} Change;

static bool is_id(const char *name) {
  return isdigit((unsigned char)*name);
}

static const char *changed(Arena *a, const Change *c, const char *text) {
  if (is_id(text)) return str_format(a, "%" PRId64, (int64_t)atoll(text) + c->id);
  if (!c->from || !strstr(text, c->from)) return text;
  StrBuf b = {.arena = a};
  size_t length = strlen(c->from);
  for (const char *found; (found = strstr(text, c->from)); text = found + length) {
    strbuf_add_n(&b, text, (size_t)(found - text));
    strbuf_add(&b, c->to);
  }
  strbuf_add(&b, text);
  return b.at;
}

static int64_t changed_number(const Change *c, const Recall *body) {
  return body->of ? body->of + c->of : 0;
}

static bool is_changed(Arena *a, const Change *c, const Recall *body, const Recall *of) {
  if (changed_number(c, body) != of->of) return false;
  for (int i = 0; i < of->n; i++)
    if (!str_equal(changed(a, c, body->name[i]), of->name[i])) return false;
  return str_equal(changed(a, c, body->loc), of->loc);
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '.' || c == '_';
}

static int n_changed(Arena *a, const Change *c, const Recall *body, const Recall *of, int n) {
  int same = 0;
  for (int i = 0; i < n; i++)
    same += is_changed(a, c, &body[i], &of[i]);
  return same;
}

// The difference of the first ids.
static int64_t id_change(const Recall *body, const Recall *of, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < of[i].n; k++)
      if (is_id(body[i].name[k]) && is_id(of[i].name[k]))
        return atoll(of[i].name[k]) - atoll(body[i].name[k]);
  return 0;
}

// -- Writing ---------------------------------------------------------------------------------

static void add_field(StrBuf *b, const char *text) {
  for (; *text; text++) {
    if (*text == '\\' || *text == '\t' || *text == '\n') strbuf_add(b, "\\");
    strbuf_add_n(b, *text == '\t' ? "t" : *text == '\n' ? "n" : text, 1);
  }
}

Attr recalls_attr(const Recall *body, const Recall *of, int n, Arena *a) {
  // The first op with a number in both gives the difference of numbers.
  int64_t number = 0;
  for (int k = 0; k < n; k++)
    if (body[k].of && of[k].of) {
      number = of[k].of - body[k].of;
      break;
    }
  Change c = {.id = id_change(body, of, n), .of = number}, candidate = c;
  // The change that fits the most ops is recorded, out of those derived from the first locations
  // that do not fit.
  int most = n_changed(a, &c, body, of, n);
  for (int k = 0, tried = 0; k < n && most < n && tried < MAX_TRIED; k++) {
    if (str_equal(changed(a, &candidate, body[k].loc), of[k].loc)) continue;
    // The replacement spans from the beginning of the first word that differs to the end of its
    // number: h.0 and h.13 for "/h.0/mlp" and "/h.13/mlp".
    const char *x = body[k].loc;
    const char *y = of[k].loc;
    size_t start = 0, x_end = strlen(x), y_end = strlen(y);
    while (x[start] && x[start] == y[start])
      start++;
    while (start > 0 && is_word(x[start - 1]))
      start--;
    while (x_end > start && y_end > start && x[x_end - 1] == y[y_end - 1])
      x_end--, y_end--;
    while (isdigit((unsigned char)x[x_end]) && isdigit((unsigned char)y[y_end]))
      x_end++, y_end++;
    candidate.from = x_end > start ? str_copy_n(a, x + start, x_end - start) : NULL;
    candidate.to = str_copy_n(a, y + start, y_end - start);
    tried++;
    int same = n_changed(a, &candidate, body, of, n);
    if (same <= most) continue;
    most = same;
    c = candidate;
  }
  StrBuf b = {.arena = a};
  add_field(&b, c.from ? c.from : "");
  // The first line is the change; the others are exceptions, a line per op.
  strbuf_add(&b, "\t");
  add_field(&b, c.from ? c.to : "");
  strbuf_addf(&b, "\t%" PRId64 "\t%" PRId64, c.id, c.of);
  for (int i = 0, ends = 0; i < n; i++) {
    ends++;
    if (is_changed(a, &c, &body[i], &of[i])) continue;
    for (; ends > 0; ends--)
      strbuf_add(&b, "\n");
    for (int k = 0; k < of[i].n; k++) {
      add_field(&b, of[i].name[k]);
      strbuf_add(&b, "\t");
    }
    add_field(&b, of[i].loc);
    strbuf_addf(&b, "\t%d", of[i].of);
  }
  return (Attr){.name = "was", .kind = 's', .s = b.at};
}

// -- Reading ---------------------------------------------------------------------------------

// Takes the text before the next tab or line end, and stores that separator in `*end`.
static const char *take_field(Arena *a, const char **at, char *end) {
  StrBuf b = {.arena = a};
  const char *s = *at;
  strbuf_add(&b, "");
  for (; *s && *s != '\t' && *s != '\n'; s++) {
    bool escaped = *s == '\\' && s[1];
    s += escaped;
    strbuf_add_n(&b, escaped && *s == 't' ? "\t" : escaped && *s == 'n' ? "\n" : s, 1);
  }
  *end = *s;
  *at = *s ? s + 1 : s;
  return b.at;
}

static bool read_recall(Arena *a, const char **at, const Change *c, const Recall *body, Recall *of,
                        char *end) {
  // An empty line stands for an op that the change describes.
  bool given = *end == '\n' && **at && **at != '\n';
  *of = (Recall){body->n, arena_array(a, const char *, body->n), NULL, 0};
  for (int i = 0; i < body->n; i++) {
    of->name[i] = given ? take_field(a, at, end) : changed(a, c, body->name[i]);
    if (given && *end != '\t') return false;
  }
  of->loc = given ? take_field(a, at, end) : changed(a, c, body->loc);
  if (given && *end != '\t') return false;
  // A number that does not fit is none.
  int64_t number = given ? atoll(take_field(a, at, end)) : changed_number(c, body);
  of->of = number >= 0 && number < MAX_ID ? (int)number : 0;
  if (!given && *end == '\n' && **at == '\n')
    ++*at;
  else if (!given)
    *end = '\0';
  return *end != '\t';
}

bool recalls_read(const Op *call, const Recall *body, Recall *of, int n, Arena *a) {
  const char *at = attr_s(call, "was");
  Change c;
  char end;
  // The record begins with the change: two texts, and the differences of ids and numbers.
  c.from = take_field(a, &at, &end);
  if (end != '\t') return false;
  c.to = take_field(a, &at, &end);
  if (end != '\t') return false;
  c.id = atoll(take_field(a, &at, &end));
  if (end != '\t') return false;
  c.of = atoll(take_field(a, &at, &end));
  if (!*c.from) c.from = NULL;
  if (end == '\t' || c.id <= -MAX_ID || c.id >= MAX_ID || c.of <= -MAX_ID || c.of >= MAX_ID)
    return false;
  // Then a line for each op.
  for (int i = 0; i < n; i++)
    if (!read_recall(a, &at, &c, &body[i], &of[i], &end)) return false;
  return !*at;
}

// -- Positions -------------------------------------------------------------------------------

Attr places_attr(const char *name, const int *place, int n, Arena *a) {
  int64_t *run = arena_array(a, int64_t, 2 * n);
  int length = 0;
  for (int i = 0; i < n; i++) {
    if (i > 0 && place[i] == place[i - 1] + 1) {
      run[length - 1]++;
      continue;
    }
    run[length++] = place[i];
    run[length++] = 1;
  }
  return (Attr){.name = name, .kind = 'I', .list = {length, run}};
}

bool places_read(const Op *call, const char *name, int *place, int n) {
  const int64_t *run = attr_list(call, name);
  int n_runs = attr_n(call, name) / 2, i = 0;
  for (int r = 0; r < n_runs; r++) {
    int64_t first = run[2 * r], length = run[2 * r + 1];
    if (first < 0 || length < 0 || length > n - i || first > INT32_MAX - length) return false;
    for (int64_t k = 0; k < length; k++)
      place[i++] = (int)(first + k);
  }
  return i == n;
}

// -- Ids -------------------------------------------------------------------------------------

typedef Vec(Value *) Values;

void values_number(Graph *g, Arena *scratch) {
  // All values, in the order of their definitions.
  Values all = {0};
  for (int i = 0; i < g->n_params; i++)
    vec_push(scratch, &all, g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      vec_push(scratch, &all, op->out[i]);
  for (int i = 0; i < all.n; i++)
    if (all.at[i]->id >= g->n_values) g->n_values = all.at[i]->id + 1;
  // The first unnamed value of an id keeps it.
  bool *taken = arena_array(scratch, bool, g->n_values + (uint32_t)all.n);
  bool *kept = arena_array(scratch, bool, all.n);
  for (int i = 0; i < all.n; i++) {
    kept[i] = !all.at[i]->name && !taken[all.at[i]->id];
    if (kept[i]) taken[all.at[i]->id] = true;
  }
  // The others get the free ids.
  uint32_t free_id = 0;
  for (int i = 0; i < all.n; i++) {
    if (kept[i]) continue;
    while (taken[free_id])
      free_id++;
    all.at[i]->id = free_id++;
  }
  if (free_id > g->n_values) g->n_values = free_id;
}
