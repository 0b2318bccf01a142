// Explains an op that is not in the model's program: finds the op that was most likely intended,
// and reports the differences.
//
//     x.nn:9:3: error: sgd: operand 1 is %g2 of linear_back_w, and %g1 of linear_back_w in the
//               model's program
//     note: there it is: %w1 = sgd %w, %g1, %lr, %s : f32[4,6]
//
// A changed op still has its kind, its location in the model, the name of its result, or most of
// its operands: the more of these agree, the likelier the match.  This runs only on errors, so
// speed does not matter.

#include "prove.h"

#include "ir/op.h"
#include "ir/split.h"
#include "ir/text.h"
#include "ir/verify/verify.h"

typedef struct Why {
  const Numbers *model;
  const Op *op;
  const int *in;
  Arena *a;
  Diag *d;
  bool said; // the error was reported; further messages are notes
} Why;

const char *prove_name(const Value *v, Arena *a) {
  if (!v->def) return str_format(a, "%s '%s'", role_name[v->role], v->label ? v->label : "");
  const char *of = op_info[v->def->kind].name, *name = value_text(a, v);
  return v->def->n_out > 1 ? str_format(a, "result %d of %s '%s'", v->index, of, name)
                           : str_format(a, "%s '%s'", of, name);
}

// -- The intended op -------------------------------------------------------------------------

// Weights of the properties that two ops may share.
enum { KIND = 4, PLACE = 4, NAME = 4, ATTRS = 2, OPERANDS = 3, FIRST_OPERAND = 1, LIKELY = 6 };

static double likeness(const Why *y, const Op *is) {
  const Op *op = y->op;
  double like = 0;
  int n, equal = 0;
  if (op->n_out != is->n_out) return 0;
  // A change of the op rarely changes its location in the model or the name of its result.
  if (op->loc && loc_same(op->loc, is->loc)) like += PLACE;
  if (op->out[0]->name && str_equal(op->out[0]->name, is->out[0]->name)) like += NAME;
  if (op->kind == is->kind) {
    like += KIND;
    op_attr_specs(op->kind, &n);
    for (int i = 0; i < n; i++)
      equal += attr_same_whole(op, is, i);
    like += n ? (double)ATTRS * equal / n : ATTRS;
  }
  // Operands count by the fraction that is equal.
  equal = 0;
  for (int i = 0; i < op->n_in && i < is->n_in; i++) {
    bool same = y->in[i] == number_of(y->model, is->in[i].value);
    equal += same;
    if (i == 0 && same) like += FIRST_OPERAND;
  }
  int most = op->n_in > is->n_in ? op->n_in : is->n_in;
  return like + (most ? (double)OPERANDS * equal / most : OPERANDS);
}

// -- The differences -------------------------------------------------------------------------

static void say(Why *y, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void say(Why *y, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(y->a, fmt, args);
  va_end(args);
  // The first difference is the error, all others are notes.
  if (y->said)
    diag_note(y->d, y->op->loc, "%s: %s", op_info[y->op->kind].name, text);
  else
    diag_error(y->d, y->op->loc, "%s: %s", op_info[y->op->kind].name, text);
  y->said = true;
}

// Whether `part` is a term of `sum`; `seen`: by number, the sums that do not have it.
static bool is_term(const Why *y, int part, const Value *sum, int depth, bool *seen) {
  enum { DEEPEST = 64 };
  const Op *add = sum->def;
  int number = number_of(y->model, sum);
  if (!add || add->kind != OP_add || depth == DEEPEST || seen[number]) return false;
  for (int i = 0; i < add->n_in; i++)
    if (number_of(y->model, add->in[i].value) == part ||
        is_term(y, part, add->in[i].value, depth + 1, seen))
      return true;
  seen[number] = true;
  return false;
}

static void say_differences(Why *y, const Op *is) {
  const Op *op = y->op;
  if (op->kind != is->kind) say(y, "is %s in the model's program", op_info[is->kind].name);
  // Ops of one kind have the same attributes, in the same order.
  int n;
  const AttrSpec *spec = op_attr_specs(op->kind, &n);
  for (int i = 0; i < n && op->kind == is->kind; i++) {
    if (attr_same_whole(op, is, i)) continue;
    if (str_equal(spec[i].name, "shape"))
      say(y, "'%s' is %s as a whole, and %s in the model's program", value_text(y->a, op->out[0]),
          type_text(y->a, value_whole(op->out[0])), type_text(y->a, is->out[0]->type));
    else if (spec[i].kind == 'd')
      say(y, "attribute '%s' has other bytes than in the model's program", spec[i].name);
    else
      say(y, "attribute '%s' is %s, and %s in the model's program", spec[i].name,
          attr_text(y->a, op, &op->attrs[i]), attr_text(y->a, is, &is->attrs[i]));
  }
  if (op->n_in != is->n_in)
    say(y, "has %d operands, and %d in the model's program", op->n_in, is->n_in);
  for (int i = 0; i < op->n_in && op->n_in == is->n_in; i++) {
    const Value *want = is->in[i].value, *have = number_value(y->model, y->in[i]);
    if (y->in[i] == number_of(y->model, want)) continue;
    // An op that reads a sum too early is a likely mistake.
    if (is_term(y, y->in[i], want, 0, arena_array(y->a, bool, n_numbers(y->model))))
      say(y, "operand %d is %s before the last is added to it: it is %s in the model's program", i,
          prove_name(have, y->a), prove_name(want, y->a));
    else
      say(y, "operand %d is %s, and %s in the model's program", i, prove_name(have, y->a),
          prove_name(want, y->a));
  }
  // Of a call the graph is left, of other ops a cast that the model's program does not have: `in`
  // are the numbers of the operands before it.
  if (!y->said && op->callee)
    say(y, "'@%s' is another graph in the model's program", op->callee->name);
  else if (!y->said)
    say(y, "reads a cast, and its operand in the model's program");
  diag_note(y->d, is->loc, "the model's program has: %s", op_text(is, y->a));
}

const Op *prove_why(const Numbers *model, const Op *op, const int *in, Diag *d) {
  Why y = {.model = model, .op = op, .in = in, .a = arena_new(), .d = d};
  // The intended op is the first of the most similar ones, if it is similar enough.
  const Op *meant = NULL;
  double most = LIKELY;
  for_each_op(is, numbers_graph(model)) {
    double like = likeness(&y, is);
    if (like <= most) continue;
    most = like;
    meant = is;
  }
  if (meant)
    say_differences(&y, meant);
  else
    say(&y, "nothing like it is in the model's program: %s", op_text(op, y.a));
  arena_free(y.a);
  return meant;
}
