// Sums of values, in any order.
//
//     the model's program            the distributed one
//
//     %s1 = add %a, %b    (3)        %t1 = add %a, %c : {P}     terms 0, 2
//     %s2 = add %s1, %c   (4)        %r  = all_reduce %t1
//                                    %t2 = add %r, %b : {B}     terms 0, 1, 2: it is 4
//
// comm adds terms with the same layout first, such as the squares of gradients for their norm. A
// sum is known by its terms: the values of the model's program that it adds. With all
// terms of a sum of the model's program it is that sum. Sums with a term in common, directly or
// over others, are a family: only terms of one family are added, and no more than its largest sum
// has.
//
// Sums are compared by the number of their terms and a hash that does not depend on the order;
// equal ones term by term. So the time is linear, up to the sort of the terms of equal sums.

#include "prove_state.h"

#include <stdlib.h>
#include <string.h>

#include "ir/intern.h"
#include "ir/op.h"

enum { MOST_TERMS = 1 << 20 }; // a value that is added to itself again and again has more

// A sum of two others, or a term of its own.
struct Terms {
  int number;                       // of the model's program; UNKNOWN: it has no such sum
  int n;                            // terms
  uint64_t hash;                    // of all of them
  const struct Terms *left, *right; // NULL: one term, with a number
  int family;                       // one of the numbers in it; UNKNOWN: no sum has it as a term
};

struct ModelSums {
  Terms *of;         // by number
  int *first, *next; // numbers of sums by their number of terms, as lists; UNKNOWN ends them
  int *most;         // by family: the terms of its largest sum
  const Op **add;    // by family: one of its adds
};

// Whether the op is an add, in 32 bits or more, of two values of one type.
static bool adds_alike(const Op *op) {
  if (op->kind != OP_add) return false;
  const Type *t = op->out[0]->type;
  return type_equal(t, op->in[0].value->type) && type_equal(t, op->in[1].value->type) &&
         dtype_class[t->dtype] == 'F' && !dtype_narrow(t->dtype);
}

static uint64_t hash_of(int number) {
  uint64_t h = hash_mix(1, (uint64_t)number);
  return hash_mix(h ^ h >> 29, h >> 32);
}

static Terms sum_of(const Terms *x, const Terms *y) {
  return (Terms){.number = UNKNOWN,
                 .n = x->n + y->n,
                 .hash = x->hash + y->hash,
                 .left = x,
                 .right = y,
                 .family = UNKNOWN};
}

// The one number of a family of which the family is itself. Families are trees of numbers.
static int family_of(const ModelSums *s, int number) {
  while (s->of[number].family != number) {
    s->of[number].family = s->of[s->of[number].family].family;
    number = s->of[number].family;
  }
  return number;
}

// Puts both numbers in one family.
static void join(ModelSums *s, int x, int y) {
  if (s->of[x].family == UNKNOWN) s->of[x].family = x;
  if (s->of[y].family == UNKNOWN) s->of[y].family = y;
  s->of[family_of(s, y)].family = family_of(s, x);
}

// The sums of the model's program.
static const ModelSums *model_sums(Proof *p) {
  if (p->sums) return p->sums;
  ModelSums *s = p->sums = arena_one(p->a, ModelSums);
  int n = n_numbers(p->numbers);
  s->of = arena_array(p->a, Terms, n);
  s->next = arena_array(p->a, int, n);
  for (int i = 0; i < n; i++)
    s->of[i] = (Terms){.number = i, .n = 1, .hash = hash_of(i), .family = UNKNOWN};
  int most = 1;
  for_each_op(op, p->model) {
    int is = adds_alike(op) ? number_of(p->numbers, op->out[0]) : UNKNOWN;
    if (is == UNKNOWN || s->of[is].left) continue;
    Terms *x = &s->of[number_of(p->numbers, op->in[0].value)];
    Terms *y = &s->of[number_of(p->numbers, op->in[1].value)];
    if (x->n + y->n > MOST_TERMS) continue;
    s->of[is] = sum_of(x, y);
    s->of[is].number = is;
    if (s->of[is].n > most) most = s->of[is].n;
    join(s, is, x->number);
    join(s, is, y->number);
  }
  s->first = arena_array(p->a, int, most + 1);
  for (int i = 0; i <= most; i++)
    s->first[i] = UNKNOWN;
  s->most = arena_array(p->a, int, n);
  s->add = arena_array(p->a, const Op *, n);
  for (int i = 0; i < n; i++) {
    const Terms *t = &s->of[i];
    if (!t->left) continue;
    int family = family_of(s, i);
    if (t->n > s->most[family]) s->most[family] = t->n;
    s->add[family] = number_value(p->numbers, i)->def;
    s->next[i] = s->first[t->n];
    s->first[t->n] = i;
  }
  return s;
}

static int by_number(const void *x, const void *y) {
  int a = *(const int *)x, b = *(const int *)y;
  return (a > b) - (a < b);
}

// The numbers of all terms, sorted.
static int *list_terms(const Terms *t, Arena *a) {
  int *at = arena_array(a, int, t->n), n = 0, depth = 1;
  const Terms **open = arena_array(a, const Terms *, t->n + 1);
  open[0] = t;
  while (depth) {
    const Terms *top = open[--depth];
    if (!top->left) {
      at[n++] = top->number;
      continue;
    }
    open[depth++] = top->left;
    open[depth++] = top->right;
  }
  qsort(at, (size_t)n, sizeof *at, by_number);
  return at;
}

static bool same_terms(const Terms *x, const Terms *y) {
  if (x->n != y->n || x->hash != y->hash) return false;
  Arena *a = arena_new();
  bool same = !memcmp(list_terms(x, a), list_terms(y, a), (size_t)x->n * sizeof(int));
  arena_free(a);
  return same;
}

// The sum of the operands, with the number of the model's sum of these terms if there is one. NULL:
// the operands are no terms of one family, or too many.
static const Terms *find_sum(Proof *p, const Op *op) {
  if (!adds_alike(op)) return NULL;
  const ModelSums *s = model_sums(p);
  const Terms *in[2];
  int family[2];
  for (int i = 0; i < 2; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    in[i] = of->number != UNKNOWN ? &s->of[of->number] : of->terms;
    if (!in[i] || in[i]->family == UNKNOWN) return NULL;
    family[i] = family_of(s, in[i]->family);
  }
  int most = s->most[family[0]];
  if (family[0] != family[1] || in[0]->n + in[1]->n > most) return NULL;
  Terms *t = arena_one(p->a, Terms);
  *t = sum_of(in[0], in[1]);
  t->family = family[0];
  for (int i = s->first[t->n]; i != UNKNOWN && t->number == UNKNOWN; i = s->next[i])
    if (same_terms(t, &s->of[i])) t->number = i;
  return t->n == most && t->number == UNKNOWN ? NULL : t;
}

bool prove_sum(Proof *p, const Op *op) {
  const Terms *t = find_sum(p, op);
  Dims dims;
  if (!t) return false;
  // All adds of a family have the same einsum.
  if (!op_dims(p->sums->add[family_of(p->sums, t->family)], &dims, p->d)) return p->ok = false;
  prove_layouts(p, op, &dims);
  Meaning *out = meaning(p, op->out[0]);
  out->number = t->number;
  out->terms = t->number == UNKNOWN ? t : NULL;
  return true;
}

// The largest sum of the model's program in a family.
static const Terms *largest_sum(const ModelSums *s, int family) {
  int i = s->first[s->most[family]];
  while (family_of(s, i) != family)
    i = s->next[i];
  return &s->of[i];
}

// Notes the first term that one of two sorted lists has more often than the other.
static void note_more(Proof *p, const Op *op, const Terms *more, const Terms *than,
                      const char *says) {
  const int *x = list_terms(more, p->a), *y = list_terms(than, p->a);
  int i = 0, k = 0;
  while (i < more->n && k < than->n && x[i] >= y[k]) {
    i += x[i] == y[k];
    k++;
  }
  if (i < more->n)
    diag_note(p->d, op->loc, "%s %s", says, prove_name(number_value(p->numbers, x[i]), p->a));
}

bool prove_no_sum(Proof *p, const Op *op) {
  const ModelSums *s = model_sums(p);
  const Terms *sum = NULL;
  int family = UNKNOWN;
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    const Terms *t = of->number != UNKNOWN ? &s->of[of->number] : of->terms;
    if (!adds_alike(op) && (!t || t->number != UNKNOWN)) continue;
    if (!t) return false;
    if (family == UNKNOWN && t->family != UNKNOWN) family = family_of(s, t->family);
    Terms *both = arena_one(p->a, Terms);
    if (sum) *both = sum_of(sum, t);
    sum = sum ? both : t;
  }
  if (!sum || family == UNKNOWN) return false;
  const Terms *is = largest_sum(s, family);
  prove_error(p, op->loc, "%s: the sum has other terms than in the model's program",
              op_info[op->kind].name);
  note_more(p, op, is, sum, "it lacks");
  note_more(p, op, sum, is, "it has once more");
  return true;
}
