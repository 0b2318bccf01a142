// What slices of values stand for, and what is made of them: piece.c has the boxes, this has the
// search.
//
//     %1 = slice %y starts=[4,0] shape=[3,6]     rows 4 to 7 of number 7, the value that %y stands for
//     %2 = mul %1, %c2                           the same rows of number 9, which is mul of 7 and 8
//
// One thing may be a piece of several: three rows of a slice are rows of what was sliced, and a
// small fill is a part of every larger one.  All that a value stands for is kept, and an op on
// pieces is tried with each, as far as there are few.

#include "prove_state.h"

#include "ir/op.h"
#include "ir/split.h"

const Type *whole_of(const Proof *p, int number) {
  return number_value(p->numbers, number)->type;
}

// One more thing that `v` stands for.
static void add_piece(Proof *p, const Value *v, Piece piece) {
  Meaning *of = meaning(p, v);
  bool all = piece_is_all(&piece, whole_of(p, piece.number));
  if (all && of->number == UNKNOWN) of->number = piece.number;
  if (all && of->number == piece.number) return;
  for (const Piece *is = of->piece; is; is = is->other)
    if (is->number == piece.number && is->letter == piece.letter) return;
  piece.other = of->piece; // which others may have, too
  of->piece = arena_copy(p->a, &piece, sizeof piece);
}

const char *piece_name(const Proof *p, const Piece *piece) {
  return piece_text(p->a, piece, prove_name(number_value(p->numbers, piece->number), p->a));
}

// The length of the letter that `share` sums over.
static int64_t letter_size(const Proof *p, const Piece *share) {
  Dims dims;
  const Op *op = number_value(p->numbers, share->number)->def;
  if (!share->letter || !op_dims(op, &dims, p->d)) return 0;
  return dims.letter[dims_find(&dims, share->letter)].size;
}

// Puts pieces of one value together.
static bool prove_join(Proof *p, const Op *op, const Piece *in) {
  Piece out;
  if (!(op->kind == OP_concat && piece_concat(op, in, &out)) &&
      !(op->kind == OP_add && piece_add(in, letter_size(p, &in[0]), &out)))
    return false;
  add_piece(p, op->out[0], out);
  return true;
}

// Is there a slice in the model's program that `slice` was made from?
static bool was_in_model(const Proof *p, const Op *slice) {
  for_each_op(op, p->model)
    if (op->kind == OP_slice &&
        (loc_same(op->loc, slice->loc) ||
         (op->out[0]->name && str_equal(op->out[0]->name, slice->out[0]->name))))
      return true;
  return false;
}

// A slice of the model's program that was changed looks like a piece, until nothing can read it.
static bool prove_slices(Proof *p, const Op *op) {
  bool wrong = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!v->def || v->def->kind != OP_slice || !was_in_model(p, v->def)) continue;
    int in = meaning(p, v->def->in[0].value)->number;
    if (in == UNKNOWN || !meaning(p, v)->piece) continue;
    prove_wrong(p, v->def, &in);
    wrong = true;
  }
  return wrong;
}

// What slice of the model's program makes the value: NULL of others.
static const Op *model_slice(const Proof *p, int number) {
  const Op *op = number_value(p->numbers, number)->def;
  for (int i = 0; op && op->kind == OP_slice && i < attr_n(op, "steps"); i++)
    if (attr_list(op, "steps")[i] != 1) return NULL;
  return op && op->kind == OP_slice ? op : NULL;
}

// Is what it makes the same everywhere, along some dimensions?
static bool is_alike(const Op *op) {
  return op->kind == OP_fill || op->kind == OP_broadcast;
}

// Does the op make or read pieces?
static bool is_of_pieces(const Proof *p, const Op *op) {
  bool pieces = op->kind == OP_slice || is_alike(op);
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    pieces |= of->piece || model_slice(p, of->number);
  }
  return pieces;
}

// All that an operand stands for.
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
  // A piece of a slice is one of what was sliced.
  for (Piece *piece = first; piece; piece = piece->other) {
    const Op *slice = piece->letter ? NULL : model_slice(p, piece->number);
    if (!slice) continue;
    Piece *up = *end = arena_copy(p->a, piece, sizeof *piece);
    up->number = number_of(p->numbers, slice->in[0].value);
    for (int i = 0; i < up->rank; i++)
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
  int left;        // how many more ways to choose are looked at
  bool found;
  const char *why; // none was found
} Search;

// An op of the model's program done in parts, a slice, or pieces put together.  How they lie is
// checked against the einsum of the op itself, by the verifier: that of the whole may have other
// letters.
static void prove_piece(Proof *p, Search *s) {
  const Op *op = s->op;
  const Piece *in = s->in;
  Piece *out = arena_array(p->a, Piece, op->n_out);
  int *numbers = arena_array(p->a, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    numbers[i] = in[i].number;
  // What a graph that is called does with parts its einsum does not say.
  for (const Op *is = NULL; !op->callee && (is = number_like(p->numbers, op, numbers, is));) {
    int first = number_of(p->numbers, is->out[0]);
    if (!piece_op(is, first, op, in, out, &s->why, p->d)) continue;
    s->found = true;
    for (int i = 0; i < op->n_out; i++)
      add_piece(p, op->out[i], out[i]);
  }
  if (op->kind != OP_slice) {
    s->found |= prove_join(p, op, in);
  } else if (!in[0].letter && piece_slice(op, &in[0], &out[0])) {
    add_piece(p, op->out[0], out[0]);
    s->found = true;
  }
}

static void prove_choices(Proof *p, Search *s, int operand) {
  if (operand == s->op->n_in) {
    if (s->left-- > 0) prove_piece(p, s);
    return;
  }
  for (const Piece *c = s->choices[operand]; c && s->left > 0; c = c->other) {
    s->in[operand] = *c;
    prove_choices(p, s, operand + 1);
  }
}

// Finds all that the op may stand for as one on pieces.
static bool find_pieces(Proof *p, Search *s) {
  enum { MOST_CHOICES = 64 };
  if (!is_of_pieces(p, s->op)) return false;
  s->left = MOST_CHOICES;
  s->choices = arena_array(p->a, Piece *, s->op->n_in);
  s->in = arena_array(p->a, Piece, s->op->n_in);
  for (int i = 0; i < s->op->n_in; i++)
    s->choices[i] = choices_of(p, s->op->in[i].value);
  prove_choices(p, s, 0);
  return s->found;
}

void prove_pieces(Proof *p, const Op *op, const int *in, bool numbers) {
  Search s = {.op = op};
  if (find_pieces(p, &s) || prove_slices(p, op)) return;
  if (numbers) {
    prove_wrong(p, op, in);
    return;
  }
  fails(p, op->loc, "%s: %s", kind_name(op),
        s.why ? s.why : "nothing in the model's program reads these pieces");
  for (int i = 0; i < op->n_in; i++)
    diag_note(p->d, op->loc, "operand %d is %s", i, piece_name(p, s.choices[i]));
}

void prove_also_pieces(Proof *p, const Op *op) {
  if (is_alike(op) || op->kind == OP_reshape) find_pieces(p, &(Search){.op = op});
}
