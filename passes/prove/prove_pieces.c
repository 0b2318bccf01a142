// The meaning of slices and of ops on them: piece.c has the boxes, this file the search.
//
//     %1 = slice %y starts=[4,0] shape=[3,6]     rows 4 to 7 of number 7, the value that %y stands for
//     %2 = mul %1, %c2                           the same rows of number 9, which is mul of 7 and 8
//
// A value may be a piece of several values: three rows of a slice are also rows of the sliced
// value, and a small fill is a part of every larger one.  All meanings of a value are kept, and an
// op on pieces is tried with each combination, up to a limit.

#include "prove_state.h"

#include "ir/op.h"
#include "ir/split.h"

const Type *whole_of(const Proof *p, int number) {
  return number_value(p->numbers, number)->type;
}

// Adds a meaning to `v`.
static void add_piece(Proof *p, const Value *v, Piece piece) {
  Meaning *of = meaning(p, v);
  bool all = piece_is_all(&piece, whole_of(p, piece.number));
  if (all && of->number == UNKNOWN) of->number = piece.number;
  if (all && of->number == piece.number) return;
  // One piece of each value is enough, and one share along each letter.
  for (const Piece *is = of->piece; is; is = is->other)
    if (is->number == piece.number && is->letter == piece.letter) return;
  piece.other = of->piece; // the list may be shared
  of->piece = arena_copy(p->a, &piece, sizeof piece);
}

const char *piece_name(const Proof *p, const Piece *piece) {
  return piece_text(p->a, piece, prove_name(number_value(p->numbers, piece->number), p->a));
}

// The slice of the model's program, with steps 1, that produces the value, or NULL.
static const Op *model_slice(const Proof *p, int number) {
  if (number == UNKNOWN) return NULL;
  const Op *op = number_value(p->numbers, number)->def;
  for (int i = 0; op && op->kind == OP_slice && i < attr_n(op, "steps"); i++)
    if (attr_list(op, "steps")[i] != 1) return NULL;
  return op && op->kind == OP_slice ? op : NULL;
}

// Whether the result is the same at every position along some dimensions.
static bool is_alike(const Op *op) {
  return op->kind == OP_fill || op->kind == OP_broadcast;
}

// All meanings of an operand.
static Piece *choices_of(Proof *p, const Value *v) {
  const Meaning *of = meaning(p, v);
  Piece *first = NULL, **end = &first;
  if (of->number != UNKNOWN) {
    Piece all = piece_all(of->number, whole_of(p, of->number));
    *end = arena_copy(p->a, &all, sizeof all);
    end = &(*end)->other;
  }
  for (const Piece *piece = of->piece; piece; piece = piece->other) {
    *end = arena_copy(p->a, piece, sizeof *piece);
    end = &(*end)->other;
  }
  *end = NULL;
  // A piece of a slice is also a piece of the sliced value.
  for (Piece *piece = first; piece; piece = piece->other) {
    const Op *slice = piece->letter ? NULL : model_slice(p, piece->number);
    if (!slice) continue;
    Piece *up = *end = arena_copy(p->a, piece, sizeof *piece);
    up->number = number_of(p->numbers, slice->in[0].value);
    for (int i = 0; i < up->ndim; i++)
      if (up->dim[i].from != ANYWHERE) up->dim[i].from += attr_list(slice, "starts")[i];
    up->other = NULL;
    end = &up->other;
  }
  return first;
}

typedef struct Search {
  const Op *op;
  Piece **choices; // of each operand
  Piece *in;       // one of each
  int left;        // combinations left to try
  bool found;
  const char *why; // reason of the last failure
} Search;

// Proves one combination: an op of the model's program computed in parts, a slice, or a join of
// pieces.  The verifier checks the layouts against the einsum of the op itself, since that of the
// whole may have other letters.
static void prove_piece(Proof *p, Search *s) {
  const Op *op = s->op;
  const Piece *in = s->in;
  Piece *out = arena_array(p->a, Piece, op->n_out);
  int *numbers = arena_array(p->a, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    numbers[i] = in[i].number;
  // The einsum of a call does not describe parts.
  for (const Op *is = NULL; !op->callee && (is = number_like(p->numbers, op, numbers, is));) {
    int first = number_of(p->numbers, is->out[0]);
    if (!piece_op(is, first, op, in, out, &s->why, p->d)) continue;
    s->found = true;
    for (int i = 0; i < op->n_out; i++)
      add_piece(p, op->out[i], out[i]);
  }
  // A slice of a piece is a piece.  A concat of pieces or an add of shares may be all of the value.
  bool joins = false;
  if (op->kind == OP_slice) {
    joins = !in[0].letter && piece_slice(op, &in[0], &out[0]);
  } else if (op->kind == OP_concat) {
    joins = piece_concat(op, in, &out[0]);
  } else if (op->kind == OP_add) {
    Dims dims;
    int64_t size = 0; // of the letter that the share sums over
    const Op *sum = number_value(p->numbers, in[0].number)->def;
    if (in[0].letter && op_dims(sum, &dims, p->d))
      size = dims.letter[dims_find(&dims, in[0].letter)].size;
    joins = piece_add(in, size, &out[0]);
  }
  if (joins) add_piece(p, op->out[0], out[0]);
  s->found |= joins;
}

static void prove_choices(Proof *p, Search *s, int operand) {
  // Once every operand has a choice, the combination is tried.
  if (operand == s->op->n_in) {
    if (s->left-- > 0) prove_piece(p, s);
    return;
  }
  for (const Piece *c = s->choices[operand]; c && s->left > 0; c = c->other) {
    s->in[operand] = *c;
    prove_choices(p, s, operand + 1);
  }
}

// Finds all meanings of the op on pieces.
static bool find_pieces(Proof *p, Search *s) {
  enum { MOST_CHOICES = 64 };
  const Op *op = s->op;
  // An op that neither produces nor reads pieces has none.
  bool pieces = op->kind == OP_slice || is_alike(op);
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    pieces |= of->piece || model_slice(p, of->number);
  }
  if (!pieces) return false;
  s->left = MOST_CHOICES;
  s->choices = arena_array(p->a, Piece *, op->n_in);
  s->in = arena_array(p->a, Piece, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    s->choices[i] = choices_of(p, op->in[i].value);
  prove_choices(p, s, 0);
  return s->found;
}

bool prove_pieces(Proof *p, const Op *op) {
  return find_pieces(p, &(Search){.op = op});
}

void prove_no_pieces(Proof *p, const Op *op, const int *in, bool numbers) {
  Search s = {.op = op};
  if (find_pieces(p, &s)) return; // finds the reason
  // Slices of the model's program that were changed look like pieces until an op reads them.  They
  // are reported, not their reader, and recognised by location or name.
  bool wrong = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    const Op *slice = v->def;
    bool in_model = false;
    if (!slice || slice->kind != OP_slice) continue;
    for_each_op(is, p->model)
      in_model |= is->kind == OP_slice &&
                  (loc_same(is->loc, slice->loc) ||
                   (is->out[0]->name && str_equal(is->out[0]->name, slice->out[0]->name)));
    int number = meaning(p, slice->in[0].value)->number;
    // One that has a number is right.
    if (!in_model || number == UNKNOWN || !meaning(p, v)->piece || meaning(p, v)->number != UNKNOWN)
      continue;
    prove_wrong(p, slice, &number);
    wrong = true;
  }
  if (wrong) return;
  // Without a piece among the operands this is an ordinary op that the model does not have.
  if (numbers) {
    prove_wrong(p, op, in);
    return;
  }
  prove_error(p, op->loc, "%s: %s", kind_name(op),
              s.why ? s.why : "nothing in the model's program reads these pieces");
  for (int i = 0; i < op->n_in; i++)
    if (s.choices[i]) diag_note(p->d, op->loc, "operand %d is %s", i, piece_name(p, s.choices[i]));
}

void prove_also_pieces(Proof *p, const Op *op) {
  // A slice may be one of the model's program by chance, and a reshape of one.
  if (is_alike(op) || op->kind == OP_reshape || op->kind == OP_slice)
    find_pieces(p, &(Search){.op = op});
}
