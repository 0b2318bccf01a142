// Einsums: parsed from text, matched against the operands' shapes, and queried.
//
//     einsum = terms "->" terms          terms = term { "," term } [ "..." ]
//     term   = { "*" | "1" | letter | "(" { letter } ")" }, each letter or * perhaps followed by ^
//
// A term of a row is matched with the dimensions of its operand.  A letter that is alone gets its
// size at once; the last unknown factor of a product gets the quotient.  Letters that occur only in
// results get their sizes from the rule that wrote the einsum (dims_size).

#include "ir/dims.h"

#include <string.h>

#include "ir/intern.h"
#include "ir/op.h"

int dims_find(const Dims *dims, char letter) {
  for (int i = 0; i < dims->n_letters; i++)
    if (dims->letter[i].name == letter) return i;
  return -1;
}

static int letter_index(Dims *dims, char name) {
  int i = dims_find(dims, name);
  if (i >= 0) return i;
  // A new letter, of unknown size.
  if (dims->n_letters == MAX_LETTERS) BUG("more than %d letters in an einsum", MAX_LETTERS);
  i = dims->n_letters++;
  dims->letter[i].name = name;
  dims->letter[i].whole = false;
  dims->letter[i].size = -1;
  return i;
}

void dims_size(Dims *dims, char letter, int64_t size) {
  int i = dims_find(dims, letter);
  if (i < 0) BUG("no letter '%c' in the einsum", letter);
  if (dims->letter[i].size >= 0 && dims->letter[i].size != size)
    BUG("letter '%c' is %lld, not %lld", letter, (long long)dims->letter[i].size, (long long)size);
  dims->letter[i].size = size;
}

int64_t dims_length(const Dims *dims, const Term *t, int dim) {
  int64_t length = 1;
  for (int i = 0; i < t->dim[dim].n; i++)
    if (__builtin_mul_overflow(length, dims->letter[t->dim[dim].letter[i]].size, &length))
      return -1; // no type has this size: type_fits reports it
  return length;
}

// -- Reading ---------------------------------------------------------------------------------

typedef struct Reader {
  const char *text, *at;
  Dims *dims;
  int n_star; // the number of dimensions that * stands for
} Reader;

static void skip_spaces(Reader *r) {
  r->at += strspn(r->at, " ");
}

static bool take(Reader *r, const char *token) {
  skip_spaces(r);
  if (!str_starts(r->at, token)) return false;
  r->at += strlen(token);
  return true;
}

static bool at_term_end(Reader *r) {
  skip_spaces(r);
  return !*r->at || *r->at == ',' || *r->at == '.' || str_starts(r->at, "->");
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int8_t read_letter(Reader *r) {
  if (!is_letter(*r->at)) BUG("cannot read the einsum '%s' at '%s'", r->text, r->at);
  int i = letter_index(r->dims, *r->at++);
  if (take(r, "^")) r->dims->letter[i].whole = true;
  return (int8_t)i;
}

static void read_term(Reader *r, Term *t) {
  t->ndim = 0;
  while (!at_term_end(r)) {
    // The star: one letter per dimension, named 0, 1, and so on.
    if (take(r, "*")) {
      bool whole = take(r, "^");
      for (int i = 0; i < r->n_star && t->ndim < MAX_NDIM; i++) {
        int letter = letter_index(r->dims, (char)('0' + i));
        r->dims->letter[letter].whole |= whole;
        t->dim[t->ndim].n = 1;
        t->dim[t->ndim++].letter[0] = (int8_t)letter;
      }
      continue;
    }
    if (t->ndim == MAX_NDIM) BUG("a term of '%s' has more than %d dimensions", r->text, MAX_NDIM);
    // A product of letters, the empty product, or one letter.
    if (take(r, "(")) {
      int n = 0;
      while (!take(r, ")")) {
        if (n == MAX_FACTORS) BUG("more than %d factors in '%s'", MAX_FACTORS, r->text);
        t->dim[t->ndim].letter[n++] = read_letter(r);
      }
      t->dim[t->ndim++].n = (int8_t)n;
    } else if (take(r, "1")) {
      t->dim[t->ndim++].n = 0;
    } else {
      t->dim[t->ndim].letter[0] = read_letter(r);
      t->dim[t->ndim++].n = 1;
    }
  }
}

// Counts the dimensions of a term besides its star.
static int count_explicit(const char *term, bool *star) {
  int n = 0;
  bool inside = false;
  *star = false;
  for (; *term && *term != ',' && *term != '.' && !str_starts(term, "->"); term++) {
    if (*term == '*')
      *star = true;
    else if (*term == ')')
      inside = false;
    else if (*term == '(' || *term == '1' || is_letter(*term))
      // A product counts once, at its parenthesis.
      n += !inside, inside |= *term == '(';
  }
  return n;
}

// Checks every operand's ndim against its term and finds how many dimensions * stands for.
static bool find_star(const Op *op, const char *const *term, int *n_star, Diag *d) {
  Arena *a = op->graph->module->arena;
  int by = -1;
  *n_star = 0;
  for (int i = 0; i < op->n_in; i++) {
    bool star;
    const Type *t = op->in[i].value->type;
    int over = t->ndim - count_explicit(term[i], &star);
    // The explicit dimensions of the term; without a star there are no others.
    if (star ? over < 0 : over != 0) {
      int n = t->ndim - over;
      diag_error(d, op->loc, "%s: operand %d is %s; it must have %s%d dimension%s",
                 op_info[op->kind].name, i, type_text(a, t), star ? "at least " : "", n,
                 n == 1 ? "" : "s");
      op_note_operand(op, i, d);
      return false;
    }
    // All stars of an op stand for the same number of dimensions.
    if (star && by >= 0 && over != *n_star) {
      diag_error(d, op->loc, "%s: numbers of dimensions differ: operand %d is %s, operand %d is %s",
                 op_info[op->kind].name, by, type_text(a, op->in[by].value->type), i,
                 type_text(a, t));
      op_note_operand(op, i, d);
      return false;
    }
    if (star && by < 0) {
      *n_star = over;
      by = i;
    }
  }
  return true;
}

// Finds the start of each operand's term; the last term repeats if ... follows it.
static void find_terms(const Op *op, const char *einsum, const char **term) {
  const char *at = einsum, *end;
  int n = 0;
  for (;; at = end + 1) {
    end = at + strcspn(at, ",.-");
    int least = n + (*end != '.'); // an operand that repeats may also be absent
    for (; n < least || (*end == '.' && n < op->n_in); n++)
      if (n < op->n_in) term[n] = at;
    if (*end != ',') break;
  }
  // An empty text before the arrow is one scalar, or no operand at all.
  bool none = n == 1 && op->n_in == 0 && at == einsum && strspn(at, " ") == (size_t)(end - at);
  if (n != op->n_in && !none)
    BUG("the einsum '%s' of %s is not one of %d operands", einsum, op_info[op->kind].name,
        op->n_in);
}

// -- Matching --------------------------------------------------------------------------------

// The operand and dimension that gave each letter its size.
typedef struct Match {
  const Op *op;
  Dims *dims;
  Diag *d;
  struct {
    int operand, dim;
  } by[MAX_LETTERS];
} Match;

static bool sizes_differ(const Match *m, int letter, int i, int k) {
  const Op *op = m->op;
  Arena *a = op->graph->module->arena;
  int j = m->by[letter].operand, l = m->by[letter].dim;
  const Type *t = op->in[j].value->type, *u = op->in[i].value->type;
  const char *name = op_info[op->kind].name;
  // A letter that no result has is contracted: an inner dimension.
  bool inner = true;
  for (int r = 0; r < m->dims->n_out; r++)
    inner &= dims_position(m->dims, &m->dims->out[r], letter) == -1;
  if (!inner)
    diag_error(m->d, op->loc,
               "%s: dimension %d of operand %d and dimension %d of operand %d differ: %lld and "
               "%lld, of %s and %s",
               name, l, j, k, i, (long long)m->dims->letter[letter].size, (long long)u->dim[k],
               type_text(a, t), type_text(a, u));
  else
    diag_error(m->d, op->loc, "%s: inner dimensions differ: %lld and %lld, of %s and %s", name,
               (long long)m->dims->letter[letter].size, (long long)u->dim[k], type_text(a, t),
               type_text(a, u));
  op_note_operand(op, i, m->d);
  return false;
}

static bool wrong_length(const Match *m, int i, int k, const char *want, int64_t length) {
  Arena *a = m->op->graph->module->arena;
  diag_error(m->d, m->op->loc, "%s: dimension %d of operand %d must be %s%lld: it is %s",
             op_info[m->op->kind].name, k, i, want, (long long)length,
             type_text(a, m->op->in[i].value->type));
  op_note_operand(m->op, i, m->d);
  return false;
}

// Matches dimension k of operand i with its term.  Sets `*learned` if a letter became known.
static bool match_dim(Match *m, int i, int k, bool *learned) {
  const Term *t = &m->dims->in[i];
  int64_t length = m->op->in[i].value->type->dim[k], known = 1;
  int unknown = -1, n_unknown = 0;
  // The known factors of the dimension, and the number of unknown ones.
  for (int f = 0; f < t->dim[k].n; f++) {
    int letter = t->dim[k].letter[f];
    if (m->dims->letter[letter].size >= 0)
      known *= m->dims->letter[letter].size; // divides a length: no overflow
    else
      unknown = letter, n_unknown++;
  }
  // With two unknown factors nothing can be learned yet.
  if (n_unknown > 1) return true;
  if (n_unknown == 0) {
    if (known == length) return true;
    return t->dim[k].n == 1 ? sizes_differ(m, t->dim[k].letter[0], i, k)
                            : wrong_length(m, i, k, "", known);
  }
  // The last unknown factor is the quotient.
  if (t->dim[k].n > 1 && (known == 0 || length % known != 0))
    return wrong_length(m, i, k, "a multiple of ", known);
  m->dims->letter[unknown].size = length / known;
  m->by[unknown].operand = i;
  m->by[unknown].dim = k;
  *learned = true;
  return true;
}

bool dims_parse(Dims *dims, const Op *op, const char *einsum, Diag *d) {
  const char *name = op_info[op->kind].name;
  const char *term[MAX_TERMS];
  if (op->n_in > MAX_TERMS)
    return diag_error(d, op->loc, "%s: more than %d operands", name, MAX_TERMS);
  dims->n_letters = dims->n_out = 0;
  dims->n_in = op->n_in;
  find_terms(op, einsum, term);
  Reader r = {.text = einsum, .dims = dims};
  if (!find_star(op, term, &r.n_star, d)) return false;
  // Terms of operands are known to fit their ranks now.
  for (int i = 0; i < op->n_in; i++) {
    r.at = term[i];
    read_term(&r, &dims->in[i]);
  }
  const char *arrow = strstr(einsum, "->");
  if (!arrow) BUG("the einsum '%s' of %s lacks an arrow", einsum, name);
  r.at = arrow + 2;
  // Terms of results; the star has the number of dimensions found in the operands.
  do {
    if (dims->n_out == MAX_RESULTS) BUG("more than %d results in '%s'", MAX_RESULTS, einsum);
    bool star;
    if (count_explicit(r.at, &star) + (star ? r.n_star : 0) > MAX_NDIM)
      return diag_error(d, op->loc, "%s: a result has more than %d dimensions", name, MAX_NDIM);
    read_term(&r, &dims->out[dims->n_out++]);
  } while (take(&r, ","));
  if (*r.at) BUG("cannot read the einsum '%s' of %s at '%s'", einsum, name, r.at);
  // Sizes of letters, until a round over all operands learns none.
  Match m = {.op = op, .dims = dims, .d = d};
  for (bool learned = true; learned;) {
    learned = false;
    for (int i = 0; i < dims->n_in; i++)
      for (int k = 0; k < dims->in[i].ndim; k++)
        if (!match_dim(&m, i, k, &learned)) return false;
  }
  return true;
}

static bool find_dims(const Op *op, Dims *dims, Diag *d) {
  const char *name = op_info[op->kind].name;
  int n;
  const AttrSpec *spec = op_attr_specs(op->kind, &n);
  // Rules rely on attribute `shape`, if the row has one, being the shape of a tensor.
  for (int i = 0; i < n; i++) {
    if (!str_equal(spec[i].name, "shape")) continue;
    const int64_t *at = op->attrs[i].list.at;
    int64_t bytes = 8; // of the largest element type
    if (op->attrs[i].list.n > MAX_NDIM)
      return diag_error(d, op->loc, "%s: 'shape' has more than %d dimensions", name, MAX_NDIM);
    for (int k = 0; k < op->attrs[i].list.n; k++)
      if (at[k] < 0 || __builtin_mul_overflow(bytes, at[k] ? at[k] : 1, &bytes))
        return diag_error(d, op->loc, "%s: 'shape' has a length of %lld", name, (long long)at[k]);
  }
  dims->n_letters = dims->n_in = dims->n_out = 0;
  if (!op_info[op->kind].rule(op, dims, d)) return false;
  // An error in the einsum of a rule is a BUG: every size is known, and equal to the operands'.
  if (dims->n_in != op->n_in || dims->n_out != op->n_out)
    BUG("the rule of %s gives %d operands and %d results, not %d and %d", name, dims->n_in,
        dims->n_out, op->n_in, op->n_out);
  for (int i = 0; i < dims->n_letters; i++)
    if (dims->letter[i].size < 0)
      BUG("the rule of %s leaves '%c' unknown", name, dims->letter[i].name);
  for (int i = 0; i < dims->n_in; i++) {
    const Type *t = op->in[i].value->type;
    if (dims->in[i].ndim != t->ndim)
      BUG("the rule of %s gives operand %d %d dimensions", name, i, dims->in[i].ndim);
    for (int k = 0; k < t->ndim; k++)
      if (dims_length(dims, &dims->in[i], k) != t->dim[k])
        BUG("the rule of %s is wrong about dimension %d of operand %d", name, k, i);
  }
  return true;
}

const Dims *op_dims_kept(const Op *op, Arena *a, Diag *d) {
  Dims dims;
  Alike *alike = op_alike(op);
  // Equal ops share one einsum.
  if (alike && alike->dims) return alike->dims;
  if (!find_dims(op, &dims, d)) return NULL;
  if (!alike) return dims_keep(a, &dims);
  return alike->dims = dims_keep(op->graph->module->arena, &dims);
}

bool op_dims(const Op *op, Dims *dims, Diag *d) {
  Alike *alike = op_alike(op);
  // Equal ops share one einsum.
  if (alike && alike->dims) {
    dims_copy(dims, alike->dims);
    return true;
  }
  if (!find_dims(op, dims, d)) return false;
  if (alike) alike->dims = dims_keep(op->graph->module->arena, dims);
  return true;
}

// -- Queries ---------------------------------------------------------------------------------

int dims_splitter(const Dims *dims, const Term *t, int dim, int n) {
  for (int i = 0; i < t->dim[dim].n; i++) {
    int letter = t->dim[dim].letter[i];
    int64_t size = dims->letter[letter].size;
    // Only the first factor that is longer than 1 can be split.
    if (size != 1) return !dims->letter[letter].whole && size % n == 0 ? letter : -1;
  }
  return -1;
}

int dims_position(const Dims *dims, const Term *t, int letter) {
  int at = -1;
  for (int k = 0; k < t->ndim; k++) {
    bool first = true; // only factors of length 1 come before it
    for (int f = 0; f < t->dim[k].n; f++) {
      if (t->dim[k].letter[f] == letter) {
        // A letter after another factor, or of two dimensions, has no position.
        if (!first || at != -1) return -2;
        at = k;
      }
      first &= dims->letter[t->dim[k].letter[f]].size == 1;
    }
  }
  return at;
}

bool dims_leads(const Dims *dims, int letter) {
  for (int i = 0; i < dims->n_in; i++)
    if (dims_position(dims, &dims->in[i], letter) == -2) return false;
  for (int i = 0; i < dims->n_out; i++)
    if (dims_position(dims, &dims->out[i], letter) == -2) return false;
  return true;
}

static void write_term(StrBuf *b, const Dims *dims, const Term *t) {
  for (int k = 0; k < t->ndim; k++) {
    int n = t->dim[k].n;
    strbuf_add(b, k ? " " : "");
    // Only single letters go without parentheses.
    strbuf_add(b, n != 1 ? "(" : "");
    for (int f = 0; f < n; f++) {
      int letter = t->dim[k].letter[f];
      strbuf_addf(b, "%s%c%s", f ? " " : "", dims->letter[letter].name,
                  dims->letter[letter].whole ? "^" : "");
    }
    strbuf_add(b, n != 1 ? ")" : "");
  }
}

const char *dims_text(Arena *a, const Dims *dims) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < dims->n_in; i++) {
    strbuf_add(&b, i ? ", " : "");
    write_term(&b, dims, &dims->in[i]);
  }
  strbuf_add(&b, " -> ");
  for (int i = 0; i < dims->n_out; i++) {
    strbuf_add(&b, i ? ", " : "");
    write_term(&b, dims, &dims->out[i]);
  }
  return b.at;
}
