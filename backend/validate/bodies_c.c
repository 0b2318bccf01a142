// Fused bodies in C: a leaf, the innermost loop, and a function with the loops around it.
//
//     NNRT_CLONES static void fused_0_loop(int64_t n, float *y0, double *t1, const float *x0) {
//     #pragma omp simd
//       for (int64_t i = 0; i < n; i++) {…}
//     }
//     static int fused_0(float *y0, float *y1, const float *x0) { // 4 x 6 points
//       double t1[6] = {0};
//       for (int64_t i0 = 0; i0 < 4; i0++)
//         fused_0_loop(6, y0 + i0 * 6, t1, x0 + i0 * 6);
//       …
//
// The claims that are checked, with loops i0, i1, … and the leaf's as the last:
//
//     the loops together are the points of the body, each once: their lengths multiply to the count
//     a result is written at the point's number; an operand is read at the digits of its access
//     the leaf computes the body's formulas, and loads all operands before it stores a result
//     an accumulator is zero before the loops that a sum reduces, is added to in these, and stored
//     after them at the number of the kept loops; parts of a sum are disjoint and are all added
//     threads share only loops that no sum reduces, or parts with accumulators of their own

#include <inttypes.h>
#include <string.h>

#include "bodies.h"
#include "ir/op.h"

enum { MOST_LOOPS = 16, MOST_PARAMS = 512 };

// A parameter of the leaf.
typedef struct LeafParam {
  CToken name, type;
  bool is_const;
} LeafParam;

typedef struct Leaf {
  LeafParam param[MOST_PARAMS];
  int n;
  Reads reads;
  int *result; // by result: the position of its parameter
} Leaf;

// An address or index that depends on the loops: name + i0 * 48 + at.
typedef struct Address {
  int64_t by[MOST_LOOPS + 2], at, i;
} Address;

typedef struct Outer {
  BodyFacts *f;
  Check *c;
  Cursor at;
  Leaf *leaf;
  CToken *y, *x;                  // names of the parameters
  int64_t extent[MOST_LOOPS + 2]; // by loop; 0: not open so far
  int n_loops;                    // with the leaf's
  int64_t end, step;              // of the loop over `at`; end 0: there is none
} Outer;

static bool is_name(const CToken *t, char letter, int number) {
  char text[24];
  snprintf(text, sizeof text, "%c%d", letter, number);
  return ctoken_is(t, text);
}

// -- The leaf ----------------------------------------------------------------------------------

static int find_param(const Leaf *l, const CToken *name) {
  for (int i = 0; i < l->n; i++)
    if (l->param[i].name.n == name->n && !memcmp(l->param[i].name.at, name->at, (size_t)name->n))
      return i;
  return -1;
}

static bool leaf_params(Check *c, Cursor *at, Leaf *l) {
  if (!want(c, at, "(int64_t n")) return false;
  while (take(at, ",")) {
    if (l->n == MOST_PARAMS) return mismatch(c, at, "the leaf has too many parameters");
    LeafParam *p = &l->param[l->n];
    p->is_const = take(at, "const");
    if (!take(at, "%w *%w", &p->type, &p->name)) return unexpected(c, at, "a parameter");
    if (find_param(l, &p->name) >= 0 || !is_numbered(&p->name, "xyt"))
      return mismatch(c, at, "'%s' is no name of a new parameter, which x, y or t and a number are",
                      ctoken_text(&p->name, c->arena));
    l->n++;
  }
  return want(c, at, ") {");
}

// "const float u1 = m_from_bf16(x1[i * 3]);"
static bool leaf_load(BodyFacts *f, Cursor *io_at, Leaf *l, bool moving, bool *found) {
  Check *c = f->c;
  Cursor at = *io_at;
  CToken type, name, from = {0}, pointer;
  *found = false;
  if (!take(&at, "const %w %w =", &type, &name)) return true;
  bool converts = take(&at, "%w(", &from);
  if (!take(&at, "%w[", &pointer)) return true; // a formula
  int i = find_param(l, &pointer);
  if (i < 0 || !l->param[i].is_const) return true;
  *found = true;
  int64_t stride = 1;
  if (!moving) {
    stride = 0;
    if (!want(c, &at, "0]")) return false;
  } else if (!take(&at, "i]") && !take(&at, "i * %i]", &stride))
    return unexpected(c, &at, "an index of the loop");
  if (converts && !want(c, &at, ")")) return false;
  if (!want(c, &at, ";")) return false;
  if (l->reads.n == MAX_READS) return mismatch(c, io_at, "the leaf has too many loads");
  // The type in memory, and that of the computation.
  const char *stored = ctoken_text(&l->param[i].type, c->arena);
  const char *computed = stored;
  if (converts) {
    computed = "float";
    bool half = ctoken_is(&from, "m_from_f16") || ctoken_is(&from, "m_from_bf16");
    if (!half || !str_equal(stored, "uint16_t"))
      return mismatch(c, io_at, "this is no conversion of 16 bits");
  }
  if (!ctoken_is(&type, computed)) return mismatch(c, io_at, "the type is not that of the operand");
  if (!is_free_name(f, &l->reads, &name, 'u'))
    return mismatch(c, io_at, "'%s' is no name of a new load, which u and a number are",
                    ctoken_text(&name, c->arena));
  ReadText *r = &l->reads.at[l->reads.n++];
  *r = (ReadText){.name = name, .position = i, .stride = stride, .pointer = pointer};
  r->type = converts ? ctoken_text(&from, c->arena) : computed;
  *io_at = at;
  return true;
}

static bool leaf_loads(BodyFacts *f, Cursor *at, Leaf *l, bool moving) {
  bool found = true;
  while (found)
    if (!leaf_load(f, at, l, moving, &found)) return false;
  return true;
}

// "y0[i] = m_to_bf16(v4);", m_bits_bf16 of a number of 16 bits, "s1 += v4;" or "t1[i] += v4;"
static bool leaf_stores(BodyFacts *f, Cursor *at, Leaf *l) {
  Check *c = f->c;
  for (int i = 0; i < f->g->n_results; i++) {
    const Value *v = facts_result(f, i);
    const Cursor before = *at;
    CToken name;
    if (facts_is_sum(f, i)) {
      const Op *sum = f->value[v->id].source->def;
      if (f->rows ? !take(at, "%w +=", &name) : !take(at, "%w[i] +=", &name))
        return unexpected(c, at, "the addition to a sum");
      if (f->rows ? !is_name(&name, 's', i) : !is_name(&name, 't', i))
        return mismatch(c, &before, "this is not sum %d", i);
      if (!take_value(f, at, sum->in[0].value, &l->reads) || !want(c, at, ";")) return false;
      if (!f->rows) l->result[i] = find_param(l, &name);
      continue;
    }
    if (!take(at, "%w[i] =", &name)) return unexpected(c, at, "the store of a result");
    l->result[i] = find_param(l, &name);
    DType t = v->type->dtype;
    bool narrow = computed_dtype(t) != t;
    if (l->result[i] < 0 || l->param[l->result[i]].is_const || !is_name(&name, 'y', i))
      return mismatch(c, &before, "this is not result %d", i);
    const char *store = fact_is_exact(f, v) ? "bits" : "to";
    if (narrow && !want(c, at, str_format(c->arena, "m_%s_%s(", store, dtype_name[t])))
      return false;
    if (!take_value(f, at, v, &l->reads) || !want(c, at, narrow ? ");" : ";")) return false;
  }
  return true;
}

static bool is_floating(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

static const char *accumulator(const Value *v) {
  return is_floating(v) ? "double" : "int64_t";
}

// Sums of a row are in variables of the leaf, which it adds to the accumulators.
static bool leaf_row_sums(BodyFacts *f, Cursor *at, Leaf *l, bool before) {
  Check *c = f->c;
  StrBuf names = {.arena = c->arena};
  for (int i = 0; f->rows && i < f->g->n_results; i++) {
    if (!facts_is_sum(f, i)) continue;
    const Value *v = facts_result(f, i);
    if (before) {
      const char *type = is_floating(v) ? computed_ctype(v) : "int64_t";
      if (!want(c, at, str_format(c->arena, "%s s%d = 0;", type, i))) return false;
      strbuf_addf(&names, "%ss%d", names.n ? ", " : "", i);
      continue;
    }
    if (!want(c, at, str_format(c->arena, "t%d[0] += s%d;", i, i))) return false;
    CToken name = {.kind = C_name, .at = str_format(c->arena, "t%d", i)};
    name.n = (int)strlen(name.at);
    l->result[i] = find_param(l, &name);
  }
  if (!before) return true;
  if (!names.n) return want(c, at, "#pragma omp simd");
  return want(c, at, str_format(c->arena, "#pragma omp simd reduction(+ : %s)", names.at));
}

static bool check_leaf(BodyFacts *f, Unit *unit, Leaf *l) {
  Check *c = f->c;
  Cursor at = unit->at;
  c->function = unit->name;
  l->result = arena_array(c->arena, int, f->g->n_results + 1);
  if (!leaf_params(c, &at, l) || !leaf_loads(f, &at, l, false) || !leaf_row_sums(f, &at, l, true) ||
      !want(c, &at, "for (int64_t i = 0; i < n; i++) {") || !leaf_loads(f, &at, l, true) ||
      !take_formulas(f, &at, &l->reads) || !leaf_stores(f, &at, l) || !want(c, &at, "}") ||
      !leaf_row_sums(f, &at, l, false) || !want(c, &at, "}"))
    return false;
  // Every accumulator and result is a parameter, of the right type.
  for (int i = 0; i < f->g->n_results; i++) {
    const Value *v = facts_result(f, i);
    const char *type = facts_is_sum(f, i) ? accumulator(v) : stored_ctype(v);
    if (l->result[i] < 0 || !ctoken_is(&l->param[l->result[i]].type, type))
      return mismatch(c, &unit->at, "result %d has no parameter of type %s", i, type);
  }
  // Every load is that of one operand, by its type.
  for (int i = 0; i < l->reads.n; i++) {
    const ReadText *r = &l->reads.at[i];
    const Cursor here = {unit->at.file, r->name.at, r->name.line};
    if (!r->bound) return mismatch(c, &here, "no formula reads this");
    const Value *x = f->g->params[r->param];
    DType t = x->type->dtype;
    const char *type =
        computed_dtype(t) == t ? stored_ctype(x) : str_format(c->arena, "m_from_%s", dtype_name[t]);
    if (!str_equal(r->type, type))
      return mismatch(c, &here, "operand %d is of type %s", r->param, dtype_name[t]);
  }
  return true;
}

// -- Addresses ---------------------------------------------------------------------------------

// " + i0 * 48 + at": loops that are open.
static bool take_terms(Outer *o, Address *out, bool leading) {
  CToken t;
  *out = (Address){0};
  for (bool first = leading;; first = false) {
    Cursor p = o->at;
    if (!first && !take(&p, "+")) return true;
    if (!take(&p, "%w", &t)) return unexpected(o->c, &p, "a loop's number");
    int64_t by = 1, *to = NULL;
    take(&p, "* %i", &by);
    if (ctoken_is(&t, "at") && o->end) to = &out->at;
    if (ctoken_is(&t, "i")) to = &out->i;
    for (int k = 0; k < o->n_loops; k++)
      if (is_name(&t, 'i', k) && o->extent[k]) to = &out->by[k];
    if (!to || *to) return mismatch(o->c, &o->at, "this depends on no loop around it");
    *to = by;
    o->at = p;
  }
}

// -- Loops -------------------------------------------------------------------------------------

// Takes loops over i0, i1, … in ascending order from `from`, as many as there are.  Returns the
// first that is not there.
static int take_loops(Outer *o, int from, bool *brace) {
  *brace = false;
  int k = from;
  for (; k < MOST_LOOPS && !*brace; k++) {
    int64_t n;
    const char *pattern =
        str_format(o->c->arena, "for (int64_t i%d = 0; i%d < %%i; i%d++)", k, k, k);
    if (!take(&o->at, pattern, &n)) break;
    o->extent[k] = n;
    if (o->n_loops < k + 2) o->n_loops = k + 2;
    *brace = take(&o->at, "{");
  }
  return k;
}

// "for (int64_t at = 0; at < 5000; at += 2048)", if it is there.
static bool take_pieces(Outer *o, bool *found) {
  const Cursor before = o->at;
  *found = take(&o->at, "for (int64_t at = 0; at < %i; at += %i)", &o->end, &o->step);
  return !*found || (o->end > 0 && o->step > 0) ||
         mismatch(o->c, &before, "the loop over pieces does not count up to its end");
}

// The number of points of a piece: all pieces together are the loop.
static bool want_piece(Outer *o) {
  int64_t n, least, again;
  const Cursor before = o->at;
  if (take(&o->at, "%i - at < %i ? %i - at : %i", &n, &least, &again, &again)) {
    Cursor p = before;
    int64_t v[4];
    take(&p, "%i - at < %i ? %i - at : %i", &v[0], &v[1], &v[2], &v[3]);
    if (v[0] == o->end && v[2] == o->end && v[1] == o->step && v[3] == o->step) return true;
  } else if (take(&o->at, "%i", &n) && n == o->step && o->end % o->step == 0)
    return true;
  return mismatch(o->c, &before, "this is not the length of a piece");
}

// "#pragma omp parallel for collapse(2)" if threads share `n` loops.
static bool take_parallel(Outer *o, int64_t *n) {
  *n = 0;
  if (!take(&o->at, "#pragma omp parallel for")) return false;
  *n = 1;
  take(&o->at, "collapse(%i)", n);
  return true;
}

static bool want_shared(Outer *o, const Cursor *at, int64_t shared, int loops) {
  return !shared || shared == loops ||
         mismatch(o->c, at, "threads share %" PRId64 " loops of %d", shared, loops);
}

// -- The call of the leaf ----------------------------------------------------------------------

// The product of the lengths of loops `from` to `to`; -1: it is too large for any body.
static int64_t product(const Outer *o, int from, int to) {
  int64_t n = 1;
  for (int k = from; k < to; k++)
    if (__builtin_mul_overflow(n, o->extent[k], &n)) return -1;
  return n;
}

// The accumulator of a sum in a call of the leaf: after its name, or before it for `&`.
typedef enum SumPlace { SUM_one, SUM_array, SUM_part, SUM_part_row } SumPlace;

static bool want_sum_arg(Outer *o, int i, SumPlace place, int first) {
  Check *c = o->c;
  const char *text = str_format(c->arena,
                                place == SUM_one     ? "&t%d"
                                : place == SUM_array ? "t%d"
                                : place == SUM_part  ? "t%d_of + part"
                                                     : "t%d_of[part]",
                                i);
  if (!want(c, &o->at, text)) return false;
  if (place != SUM_part_row) return true;
  // The row of the part, at the kept loops; the leaf has the last of them.
  Address a;
  const Cursor before = o->at;
  if (!take_terms(o, &a, false)) return false;
  for (int k = 0; k < o->n_loops; k++) {
    int64_t need = k >= first && k < o->n_loops - 1 ? product(o, k + 1, o->n_loops) : 0;
    if (a.by[k] != need || a.at || a.i)
      return mismatch(c, &before, "this is not the place of the column");
  }
  return true;
}

// "fused_0_loop(6, y0 + i0 * 6, t1, x0 + i0 * 6);" with all loops open.  The length is taken
// already.
static bool want_leaf_args(Outer *o, SumPlace place, int first) {
  Check *c = o->c;
  BodyFacts *f = o->f;
  Leaf *l = o->leaf;
  int last = o->n_loops - 1;
  for (int i = 0; i < l->n; i++) {
    if (!want(c, &o->at, ",")) return false;
    const Cursor before = o->at;
    int result = -1;
    for (int k = 0; k < f->g->n_results; k++)
      if (l->result[k] == i) result = k;
    if (result >= 0 && facts_is_sum(f, result)) {
      if (!want_sum_arg(o, result, place, first)) return false;
      continue;
    }
    CToken name;
    Address a;
    if (!take(&o->at, "%w", &name)) return unexpected(c, &o->at, "an address");
    if (!take_terms(o, &a, false)) return false;
    if (a.i) return mismatch(c, &before, "this depends on no loop around it");
    Digits have = {0}, need = {0};
    int64_t stride = 1;
    const CToken *param;
    if (result >= 0) {
      digits_push(&need, f->count, 1);
      param = &o->y[result];
    } else {
      int r = 0;
      while (r < l->reads.n && l->reads.at[r].position != i)
        r++;
      if (r == l->reads.n) return mismatch(c, &before, "the leaf does not use this");
      // A parameter of the leaf is read in one way.
      for (int k = r + 1; k < l->reads.n; k++)
        if (l->reads.at[k].position == i) return mismatch(c, &before, "the leaf reads this twice");
      need = l->reads.at[r].at;
      stride = l->reads.at[r].stride;
      param = &o->x[l->reads.at[r].param];
    }
    if (name.n != param->n || memcmp(name.at, param->at, (size_t)name.n) != 0)
      return mismatch(c, &before, "this is not '%s'", ctoken_text(param, c->arena));
    for (int k = 0; k < last; k++)
      digits_push(&have, o->extent[k], a.by[k]);
    digits_push(&have, o->extent[last], stride);
    if (!digits_same(&have, &need) || a.at != (o->end ? stride : 0))
      return mismatch(c, &before, "this is not the element of the point");
  }
  return want(c, &o->at, ");");
}

// The call of the leaf, and the claim that its loops are the points.
static bool want_leaf_call(Outer *o, const char *length, SumPlace place, int first) {
  Check *c = o->c;
  const Cursor before = o->at;
  CToken name;
  if (!take(&o->at, "%w(", &name)) return unexpected(c, &o->at, "the call of the leaf");
  Unit *unit = unit_find(c, &before, ctoken_text(&name, c->arena), UNIT_leaf);
  if (!unit) return false;
  int64_t n;
  if (o->n_loops == 0) o->n_loops = 1;
  int last = o->n_loops - 1;
  if (length) {
    if (!want(c, &o->at, length)) return false;
  } else if (o->end) {
    if (!want_piece(o)) return false;
  } else if (!take(&o->at, "%i", &n))
    return unexpected(c, &o->at, "the number of points");
  else
    o->extent[last] = n;
  if (o->end) o->extent[last] = o->end;
  const Cursor args = o->at;
  int64_t all = 1;
  for (int k = 0; k < o->n_loops; k++)
    if (o->extent[k] <= 0 || __builtin_mul_overflow(all, o->extent[k], &all))
      return mismatch(c, &before, "the loops are not the points of the body");
  if (all != o->f->count)
    return mismatch(c, &before, "the loops have %" PRId64 " points, and the body has %" PRId64, all,
                    o->f->count);
  const char *function = c->function;
  o->leaf = arena_one(c->arena, Leaf);
  if (!check_leaf(o->f, unit, o->leaf)) return false;
  c->function = function;
  o->at = args;
  return want_leaf_args(o, place, first);
}

// -- Sums --------------------------------------------------------------------------------------

static bool want_sums(Outer *o, const char *after) {
  for (int i = 0; i < o->f->g->n_results; i++)
    if (facts_is_sum(o->f, i) &&
        !want(o->c, &o->at,
              str_format(o->c->arena, "%s t%d%s;", accumulator(facts_result(o->f, i)), i, after)))
      return false;
  return true;
}

// "y1[i0 * 6 + i1] = m_to_bf16((float)t1);" for the kept loops from `from` to `to`.
static bool want_sum_stores(Outer *o, int from, int to, const char *index, bool at, bool i_index) {
  Check *c = o->c;
  for (int i = 0; i < o->f->g->n_results; i++) {
    if (!facts_is_sum(o->f, i)) continue;
    const Value *v = facts_result(o->f, i);
    Address a;
    if (!want(c, &o->at, str_format(c->arena, "%s[", ctoken_text(&o->y[i], c->arena))))
      return false;
    const Cursor before = o->at;
    if (!take(&o->at, "0]")) {
      if (!take_terms(o, &a, true) || !want(c, &o->at, "]")) return false;
    } else
      a = (Address){0};
    for (int k = 0; k < o->n_loops; k++) {
      // The number of the kept point: digits of the kept loops.
      int64_t need = k >= from && k < to ? product(o, k + 1, from ? o->n_loops : to) : 0;
      if (k < o->n_loops && o->extent[k] == 1 && a.by[k] == 0) continue;
      if (a.by[k] != need) return mismatch(c, &before, "this is not the place of the sum");
    }
    if (a.at != at || a.i != i_index)
      return mismatch(c, &before, "this is not the place of the sum");
    DType t = v->type->dtype;
    bool narrow = computed_dtype(t) != t;
    if (!want(c, &o->at, "=") ||
        (narrow && !want(c, &o->at, str_format(c->arena, "m_to_%s(", dtype_name[t]))) ||
        !want(c, &o->at,
              str_format(c->arena, "(%s)t%d%s%s;", computed_ctype(v), i, index, narrow ? ")" : "")))
      return false;
  }
  return true;
}

// The loop over parts of a range: "part" is one of `tasks`, and has the numbers from part * each up
// to the next part's, or to the end.
static bool want_parts(Outer *o, int64_t tasks, int64_t *end, int64_t *each, const char *var,
                       int64_t *unit) {
  Check *c = o->c;
  const Cursor before = o->at;
  int64_t n, last, e1, e2, step = 1;
  if (tasks < 1) return mismatch(c, &before, "the parts have no accumulators");
  if (!take(&o->at, "for (int64_t part = 0; part < %i; part++) {", &n) || n != tasks)
    return mismatch(c, &before, "the parts are not %" PRId64, tasks);
  if (!take(&o->at, "const int64_t end = part == %i ? %i : (part + 1) * %i;", &last, end, &e1))
    return unexpected(c, &o->at, "the end of a part");
  const char *pattern =
      str_format(c->arena, "for (int64_t %s = part * %%i; %s < end; %s", var, var, var);
  if (!take(&o->at, pattern, &e2) || (!take(&o->at, "++)") && !take(&o->at, "+= %i)", &step)))
    return unexpected(c, &o->at, "the loop of a part");
  *each = e1;
  *unit = step;
  bool ok = last == tasks - 1 && e1 == e2 && e1 > 0 && step > 0 && e1 % step == 0 &&
            (tasks - 1) <= *end / e1 && (tasks - 1) * e1 < *end;
  return ok || mismatch(c, &before, "the parts are not the whole range");
}

static bool want_part_sums(Outer *o, int64_t tasks, const char *after) {
  if (!want_sums(o, " = 0") ||
      !want(o->c, &o->at,
            str_format(o->c->arena, "for (int64_t part = 0; part < %" PRId64 "; part++) {", tasks)))
    return false;
  for (int i = 0; i < o->f->g->n_results; i++)
    if (facts_is_sum(o->f, i) &&
        !want(o->c, &o->at, str_format(o->c->arena, "t%d += t%d_of[part]%s;", i, i, after)))
      return false;
  return want(o->c, &o->at, "}");
}

// The lengths of the accumulators of the first sum: "double t1_of" and `lengths`, a pattern.
static bool first_length(Outer *o, const char *suffix, const char *lengths, int64_t *a,
                         int64_t *b) {
  for (int i = 0; i < o->f->g->n_results; i++)
    if (facts_is_sum(o->f, i)) {
      Cursor p = o->at;
      return take(&p, str_format(o->c->arena, "%s t%d%s", accumulator(facts_result(o->f, i)), i,
                                 suffix)) &&
             take(&p, lengths, a, b);
    }
  return false;
}

// -- Functions by the kind of their sums -------------------------------------------------------

static bool check_elementwise(Outer *o) {
  bool brace;
  int64_t shared;
  const Cursor before = o->at;
  take_parallel(o, &shared);
  int loops = take_loops(o, 0, &brace);
  o->n_loops = loops + 1;
  bool pieces;
  if (!take_pieces(o, &pieces)) return false;
  if (brace) return unexpected(o->c, &before, "the loops of a body without sums");
  return want_shared(o, &before, shared, loops + pieces) && want_leaf_call(o, NULL, SUM_one, 0);
}

// Rows: loops up to `first` are kept.
static bool check_rows(Outer *o) {
  Check *c = o->c;
  BodyFacts *f = o->f;
  bool brace, inner;
  int64_t shared, tasks, unused, unit, each;
  bool in_pieces;
  const Cursor before = o->at;
  take_parallel(o, &shared);
  int first = take_loops(o, 0, &brace);
  if ((first > 0) != brace) return unexpected(c, &o->at, "a brace");
  o->n_loops = first + 1;
  if (product(o, 0, first) != f->n_kept)
    return mismatch(c, &before, "the loops before the sums are not the kept dimensions");
  if (!want_shared(o, &before, shared, first)) return false;
  if (!first_length(o, "_of", "[%i] = {0};", &tasks, &unused)) {
    // Each row is summed by one thread.
    if (!want_sums(o, " = 0")) return false;
    int loops = take_loops(o, first, &inner);
    o->n_loops = loops + 1;
    if (!take_pieces(o, &in_pieces)) return false;
    if (inner) return unexpected(c, &before, "the loops of a sum");
    if (!want_leaf_call(o, NULL, SUM_one, first)) return false;
  } else {
    // Few long rows: parts of each have accumulators of their own.
    if (shared) return mismatch(c, &before, "threads share loops twice");
    if (!want_sums(o, str_format(c->arena, "_of[%" PRId64 "] = {0}", tasks)) ||
        !want(c, &o->at, "#pragma omp parallel for"))
      return false;
    int64_t end;
    Cursor p = o->at;
    // Parts of the leaf's own loop, or of the first summed one.
    bool pieces = false;
    const char *var = str_format(c->arena, "i%d", first);
    for (CToken t; t = cursor_next(&p), t.kind != C_end && !ctoken_is(&t, "}");)
      if (ctoken_is(&t, "at")) {
        pieces = true;
        break;
      } else if (ctoken_is(&t, var))
        break;
    if (!want_parts(o, tasks, &end, &each, pieces ? "at" : var, &unit)) return false;
    if (pieces) {
      o->end = end;
      o->step = unit;
      o->n_loops = first + 1;
      CToken name;
      Cursor call = o->at;
      if (!take(&call, "%w(", &name)) return unexpected(c, &o->at, "the call of the leaf");
      const char *length =
          str_format(c->arena, "end - at < %" PRId64 " ? end - at : %" PRId64, unit, unit);
      if (!want_leaf_call(o, length, SUM_part, first)) return false;
    } else {
      if (unit != 1) return mismatch(c, &o->at, "a part leaves out numbers of its loop");
      o->extent[first] = end;
      int loops = take_loops(o, first + 1, &inner);
      o->n_loops = loops + 1;
      if (!take_pieces(o, &in_pieces)) return false;
      if (inner) return unexpected(c, &before, "the loops of a sum");
      if (!want_leaf_call(o, NULL, SUM_part, first)) return false;
    }
    if (!want(c, &o->at, "}") || !want_part_sums(o, tasks, "")) return false;
  }
  return want_sum_stores(o, 0, first, "", false, false) && (!brace || want(c, &o->at, "}"));
}

// The first kept loop: the number of the first loop that opens.
static int first_loop(const Outer *o) {
  for (int k = 0; k < MOST_LOOPS; k++) {
    Cursor p = o->at;
    if (take(&p, str_format(o->c->arena, "for (int64_t i%d", k))) return k;
  }
  return -1;
}

// Many columns: tasks have some of them, and go down all rows.
static bool check_wide_columns(Outer *o) {
  Check *c = o->c;
  bool brace = false, inner;
  int64_t shared, length, unused;
  const Cursor before = o->at;
  take_parallel(o, &shared);
  int first = first_loop(o), kept = 0;
  int to = first;
  if (first >= 0) {
    to = take_loops(o, first, &brace);
    kept = to - first;
  }
  bool pieces = false;
  if (!brace && !take_pieces(o, &pieces)) return false;
  if (pieces &&
      (!want(c, &o->at, "{ const int64_t n =") || !want_piece(o) || !want(c, &o->at, ";")))
    return false;
  if (!want_shared(o, &before, shared, kept + pieces)) return false;
  if (kept > 0 && !pieces && !brace) return unexpected(c, &o->at, "a brace");
  if (!first_length(o, "", "[%i] = {0};", &length, &unused) ||
      !want_sums(o, str_format(c->arena, "[%" PRId64 "] = {0}", length)))
    return unexpected(c, &o->at, "the accumulators of the columns");
  // Then the summed loops, which come first in the number of a point.
  int rows = take_loops(o, 0, &inner);
  if (inner) return unexpected(c, &o->at, "the call of the leaf");
  if (first < 0) {
    first = rows;
    to = first;
  }
  if (rows != first)
    return mismatch(c, &before, "the loops of the rows are not those of the columns");
  o->n_loops = to + 1;
  if (!want_leaf_call(o, pieces ? "n" : NULL, SUM_array, first)) return false;
  if (product(o, first, o->n_loops) != o->f->n_kept)
    return mismatch(c, &before, "the loops of the columns are not the kept dimensions");
  if (length != (pieces ? o->step : o->extent[o->n_loops - 1]))
    return mismatch(c, &before, "the accumulators are not one for each column");
  const char *n = pieces ? "n" : str_format(c->arena, "%" PRId64, length);
  return want(c, &o->at, str_format(c->arena, "for (int64_t i = 0; i < %s; i++) {", n)) &&
         want_sum_stores(o, first, o->n_loops - 1, "[i]", pieces, true) && want(c, &o->at, "}") &&
         (!(kept || pieces) || want(c, &o->at, "}"));
}

// Few columns: each task has some rows, and all columns.
static bool check_narrow_columns(Outer *o, int64_t tasks, int64_t columns) {
  Check *c = o->c;
  const Cursor before = o->at;
  int64_t end, each, unit;
  bool inner;
  if (columns != o->f->n_kept)
    return mismatch(c, &before, "the accumulators are not one for each column");
  if (!want_sums(o,
                 str_format(c->arena, "_of[%" PRId64 "][%" PRId64 "] = {{0}}", tasks, columns)) ||
      !want(c, &o->at, "#pragma omp parallel for") ||
      !want_parts(o, tasks, &end, &each, "i0", &unit))
    return false;
  if (unit != 1) return mismatch(c, &before, "a part leaves out rows");
  o->extent[0] = end;
  int loops = take_loops(o, 1, &inner);
  o->n_loops = loops + 1;
  if (inner) return unexpected(c, &o->at, "the call of the leaf");
  // The rows are the first loops with all points but those of the columns.
  Cursor p = o->at;
  CToken name;
  int64_t leaf;
  if (!take(&p, "%w(%i", &name, &leaf)) return unexpected(c, &o->at, "the call of the leaf");
  o->extent[loops] = leaf;
  int first = 0;
  while (first <= loops && product(o, first, loops + 1) != columns)
    first++;
  if (first > loops)
    return mismatch(c, &before, "the loops of the columns are not the kept dimensions");
  if (!want_leaf_call(o, NULL, SUM_part_row, first) || !want(c, &o->at, "}")) return false;
  if (!want(c, &o->at,
            str_format(c->arena, "for (int64_t i = 0; i < %" PRId64 "; i++) {", columns)) ||
      !want_part_sums(o, tasks, "[i]"))
    return false;
  // No loop is open: the index is the column.
  for (int k = 0; k < o->n_loops; k++)
    o->extent[k] = 0;
  return want_sum_stores(o, 0, 0, "", false, true) && want(c, &o->at, "}");
}

static bool check_empty(Outer *o) {
  Check *c = o->c;
  for (int i = 0; i < o->f->g->n_results; i++) {
    const char *y = ctoken_text(&o->y[i], c->arena);
    int64_t bytes = type_bytes(facts_result(o->f, i)->type);
    if (!want(c, &o->at,
              bytes ? str_format(c->arena, "memset(%s, 0, %" PRId64 ");", y, bytes)
                    : str_format(c->arena, "(void)%s;", y)))
      return false;
  }
  for (int i = 0; i < o->f->g->n_params; i++)
    if (!want(c, &o->at, str_format(c->arena, "(void)%s;", ctoken_text(&o->x[i], c->arena))))
      return false;
  return true;
}

// "(float *y0, const float *x0) {"
static bool outer_params(Outer *o) {
  Check *c = o->c;
  const Graph *g = o->f->g;
  o->y = arena_array(c->arena, CToken, g->n_results + 1);
  o->x = arena_array(c->arena, CToken, g->n_params + 1);
  if (!want(c, &o->at, "(")) return false;
  if (g->n_results + g->n_params == 0 && !want(c, &o->at, "void")) return false;
  for (int i = 0; i < g->n_results + g->n_params; i++) {
    bool y = i < g->n_results;
    int k = y ? i : i - g->n_results;
    const Value *v = y ? facts_result(o->f, k) : g->params[k];
    CToken *name = y ? &o->y[k] : &o->x[k];
    if (i && !want(c, &o->at, ",")) return false;
    if (!want(c, &o->at, str_format(c->arena, "%s%s *", y ? "" : "const ", stored_ctype(v))))
      return false;
    const Cursor before = o->at;
    if (!take(&o->at, "%w", name)) return unexpected(c, &o->at, "a parameter");
    if (!is_name(name, y ? 'y' : 'x', k))
      return mismatch(c, &before, "parameters have other names");
  }
  return want(c, &o->at, ") {");
}

bool body_check_c(BodyFacts *f, Unit *unit) {
  Outer o = {.f = f, .c = f->c, .at = unit->at};
  if (!outer_params(&o)) return false;
  int64_t tasks, columns;
  bool ok;
  if (f->count == 0)
    ok = check_empty(&o);
  else if (f->rows)
    ok = check_rows(&o);
  else if (f->columns && first_length(&o, "_of", "[%i][%i] = {{0}};", &tasks, &columns))
    ok = check_narrow_columns(&o, tasks, columns);
  else if (f->columns)
    ok = check_wide_columns(&o);
  else
    ok = check_elementwise(&o);
  return ok && want(f->c, &o.at, "return 0; }");
}
