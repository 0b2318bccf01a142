// C names for values: macros with their addresses.
//
//     %h.0/mlp/fc1 : f32[4,6] at 4096
//
//   =>
//
//     #define H_0_MLP_FC1 ((float *)(r->slab + 4096)) // f32[4,6]
//
// A value with several live time slices has the address of the current slice:
//
//     #define H ((float *)(r->slab + 4096 + r->micro % 3 * INT64_C(128))) // f32[4,6]
//
// In a loop over equal calls (repeats.c) the address depends on the iteration:
//
//     #define R0_H ((float *)(r->slab + i * 8192 + 4096)) // f32[4,6]
//
// Names are in capitals, unique in the program, and no macro of a header.  If another graph has a
// value of the same name at another offset, that of the graph is in front: EVAL_H, or CELL_H of the
// body @cell of a loop.

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "ir/analysis/place.h"
#include "program.h"

typedef struct Name {
  const char *name;
  const char *place;   // the macro's expansion
  const char *comment; // the value's type and label
  const Value *value;
  bool replaced, read; // by the macro of a loop; by a line that is left
} Name;

struct Names {
  Arena *arena;
  Name **slot; // a hash table; NULL: free
  uint32_t n_slots;
  Vec(Name *) at; // in the order of their definitions
};

enum { FIRST_SLOTS = 1024, LONGEST_NAME = 40 };

Names *names_new(Arena *a) {
  Names *n = arena_one(a, Names);
  n->arena = a;
  n->n_slots = FIRST_SLOTS;
  n->slot = arena_array(a, Name *, FIRST_SLOTS);
  return n;
}

static Name **find(const Names *n, const char *name) {
  uint64_t hash = fnv1a(FNV1A_EMPTY, name, strlen(name));
  uint32_t i = (uint32_t)(hash >> 32) & (n->n_slots - 1);
  while (n->slot[i] && strcmp(n->slot[i]->name, name) != 0)
    i = (i + 1) & (n->n_slots - 1);
  return &n->slot[i];
}

static void add(Names *n, Name name) {
  // The table stays at most half full.
  if (2 * (uint32_t)(n->at.n + 1) > n->n_slots) {
    n->n_slots *= 2;
    n->slot = arena_array(n->arena, Name *, n->n_slots);
    for (int i = 0; i < n->at.n; i++)
      *find(n, n->at.at[i]->name) = n->at.at[i];
  }
  Name *kept = arena_one(n->arena, Name);
  *kept = name;
  *find(n, name.name) = kept;
  vec_push(n->arena, &n->at, kept);
}

// "FC1_WEIGHT" of "fc1.weight".
static const char *c_identifier(Arena *a, const char *name) {
  char text[LONGEST_NAME + 1];
  size_t n = 0;
  for (const char *p = name; *p && n < LONGEST_NAME; p++) {
    bool plain = isalnum((unsigned char)*p) && (unsigned char)*p < 128;
    // Runs of other characters become one underscore.
    if (!plain && (n == 0 || text[n - 1] == '_')) continue;
    text[n++] = plain ? (char)toupper((unsigned char)*p) : '_';
  }
  while (n > 0 && text[n - 1] == '_')
    n--;
  text[n] = 0;
  if (n == 0 || isdigit((unsigned char)text[0])) return str_format(a, "V%s", text);
  return str_copy(a, text);
}

// Whether the name is a macro of the headers that generated code includes, or of the code itself
// (P3, C0).
static bool is_reserved(const char *name) {
  static const char *const words[] = {"NULL",      "EOF",  "NAN",    "INFINITY",
                                      "RUN",       "LIST", "DOMAIN", "OVERFLOW",
                                      "UNDERFLOW", "SING", "PLOSS",  "TLOSS"};
  static const char *const prefixes[] = {"NNRT_", "M_",    "FP_",   "INT",      "UINT",   "FLT_",
                                         "DBL_",  "LDBL_", "SIZE_", "PTRDIFF_", "WCHAR_", "WINT_",
                                         "SIG_",  "HUGE_", "MATH_", "DECIMAL_", "FLT1"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(name, words[i])) return true;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (str_starts(name, prefixes[i])) return true;
  // Preparations and constants.
  return (name[0] == 'P' || name[0] == 'C') && strspn(name + 1, "0123456789") == strlen(name + 1);
}

// A name that no header has.
static const char *own_name(Arena *a, const char *name) {
  return is_reserved(name) ? str_format(a, "%s_", name) : name;
}

// The macro's expansion, with its offset as C: "4096", "i * 8192 + 4096".
static const char *place_of(Arena *a, const Value *v, const char *offset) {
  const char *slot = "";
  if (v->slots > 1)
    slot = str_format(a, " + r->micro %% %d * INT64_C(%" PRId64 ")", v->slots, v->stride);
  return str_format(a, "((%s *)(r->%s + %s%s))", dtype_ctype[v->type->dtype],
                    value_on_host(v) ? "host" : "slab", offset, slot);
}

const char *names_of(Names *n, const Value *v, const char *graph) {
  Arena *a = n->arena;
  const char *place = place_of(a, v, str_format(a, "%" PRId64, v->offset));
  const char *type = type_text(a, v->type);
  // The name of the value, as a C name that no header has.
  const char *plain =
      v->name ? c_identifier(n->arena, v->name) : str_format(n->arena, "V%u", v->id);
  const char *base = own_name(a, plain);
  const char *name = base;
  bool with_graph = false;
  for (int i = 2;; i++) {
    Name *at = *find(n, name);
    if (!at) break;
    // @train and @eval share the macro of a parameter at the same offset.
    bool same = at->value == v || (at->value->graph != v->graph && at->value->type == v->type &&
                                   !v->def && str_equal(at->place, place));
    if (same) return at->name;
    // It gets a name with its graph if a value of another graph has this one, else a number.
    if (at->value->graph != v->graph && !with_graph) {
      name = base = own_name(a, str_format(a, "%s_%s", c_identifier(a, graph), base));
      with_graph = true;
    } else {
      name = str_format(a, "%s_%d", base, i);
    }
  }
  const char *what = v->label ? str_format(a, "%s %s", type, v->label) : type;
  add(n, (Name){.name = name, .place = place, .comment = what, .value = v});
  return name;
}

const Value *names_value(const Names *n, const char *name) {
  const Name *at = *find(n, name);
  if (!at) BUG("'%s' is no macro", name);
  return at->value;
}

void names_read(Names *n, const char *name) {
  (*find(n, name))->read = true;
}

void names_replaced(Names *n, const char *name) {
  (*find(n, name))->replaced = true;
}

const char *names_in_loop(Names *n, const char *name, int loop, const char *offset) {
  Name of = **find(n, name);
  of.place = place_of(n->arena, of.value, offset);
  const char *base = of.name = str_format(n->arena, "R%d_%s", loop, name);
  for (int i = 2;; i++) {
    const Name *at = *find(n, of.name);
    if (!at) break;
    if (str_equal(at->place, of.place)) return at->name;
    of.name = str_format(n->arena, "%s_%d", base, i);
  }
  of.replaced = false;
  add(n, of);
  return of.name;
}

void names_text(const Names *n, StrBuf *out) {
  for (int i = 0; i < n->at.n; i++) {
    const Name *at = n->at.at[i];
    if (at->replaced && !at->read) continue;
    strbuf_addf(out, "#define %s %s // %s\n", at->name, at->place,
                c_comment(n->arena, at->comment));
  }
}

const char *c_string(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      strbuf_addf(&b, "\\%c", c);
    else if (c < 32 || c >= 127 || c == '?') // ??= is a trigraph
      strbuf_addf(&b, "\\%03o", c);
    else
      strbuf_addf(&b, "%c", c);
  }
  strbuf_add(&b, "\"");
  return b.at;
}

const char *c_comment(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  strbuf_add_shown(&b, s);
  // A backslash, and a trigraph of one, would continue the comment, also before blanks.
  size_t n = b.n;
  while (n > 0 && b.at[n - 1] == ' ')
    n--;
  const char *text = str_copy_n(a, b.at, n);
  return str_ends(text, "\\") || str_ends(text, "?\?/") ? str_format(a, "%s.", text) : text;
}
