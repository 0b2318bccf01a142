// The meaning of slices and of ops on them: piece.c has the boxes, this file the search.
//
//     %1 = slice %y starts=[4,0] shape=[3,6]     rows 4 to 7 of number 7, the value that %y stands for
//     %2 = mul %1, %c2                           the same rows of number 9, which is mul of 7 and 8
//
// A value may be a piece of several values: three rows of a slice are also rows of the sliced
// value and the reverse, and a small fill is a part of every larger one.  All meanings of a value
// are kept, and an op on pieces is tried with each combination, up to a limit.

#include "prove_state.h"

#include "ir/op.h"
#include "ir/split.h"

const Type *whole_of(const Proof *p, int number) {
  return number_value(p->numbers, number)->type;
}

// The slice of the model's program, with steps 1, that produces the value, or NULL.
static const Op *model_slice(const Proof *p, int number) {
  if (number == UNKNOWN) return NULL;
  const Op *op = number_value(p->numbers, number)->def;
  for (int i = 0; op && op->kind == OP_slice && i < attr_n(op, "steps"); i++)
    if (attr_list(op, "steps")[i] != 1) return NULL;
  return op && op->kind == OP_slice ? op : NULL;
}

// -- The meanings of a value ---------------------------------------------------------------------

// A contiguous slice or a broadcast of the model's program.
struct ReaderOf {
  const Op *op;
  const struct ReaderOf *other; // of the same value
};

// The slices and broadcasts of the model's program that read value `number`.
static const struct ReaderOf *readers_of(Proof *p, int number) {
  if (!p->readers) {
    p->readers = arena_array(p->a, struct ReaderOf *, n_numbers(p->numbers));
    for (int i = 0; i < n_numbers(p->numbers); i++) {
      const Op *op = number_value(p->numbers, i)->def;
      if (!op || (!model_slice(p, i) && op->kind != OP_broadcast)) continue;
      struct ReaderOf *reader = arena_one(p->a, struct ReaderOf), **of = p->readers;
      of += number_of(p->numbers, op->in[0].value);
      *reader = (struct ReaderOf){op, *of};
      *of = reader;
    }
  }
  return p->readers[number];
}

enum { MAX_CHOICES_OF_SUMS = 4 };

// Adds a meaning to `v`.
static void add_piece(Proof *p, const Value *v, Piece piece) {
  Meaning *of = meaning(p, v);
  const Type *whole = whole_of(p, piece.number);
  bool all = piece_is_all(&piece, whole) && type_same_dims(value_whole(v), whole);
  if (all && of->number == UNKNOWN) of->number = piece.number;
  if (all && of->number == piece.number) return;
  // One piece of each value is enough, and one share along each letter; and few sums.
  int n_sums = 0;
  for (const Piece *is = of->piece; is; is = is->other) {
    bool same =
        is->number == piece.number && is->n_sums == piece.n_sums && !is->plus && !piece.plus;
    if (same && (!is->n_sums || is->sum[0].letter == piece.sum[0].letter)) return;
    n_sums += is->plus != NULL;
  }
  if (piece.plus && n_sums == MAX_CHOICES_OF_SUMS) return;
  piece.other = of->piece; // the list may be shared
  of->piece = arena_copy(p->a, &piece, sizeof piece);
  // A piece within a slice of the model's program is also a piece of the slice.
  if (piece_is_part_of_sum(&piece)) return;
  for (const struct ReaderOf *r = readers_of(p, piece.number); r; r = r->other) {
    Piece within = piece;
    if (r->op->kind == OP_slice &&
        piece_of_slice(r->op, number_of(p->numbers, r->op->out[0]), &within))
      add_piece(p, v, within);
  }
}

void prove_reshaped(Proof *p, const Value *v, int number) {
  add_piece(p, v, piece_all(number, whole_of(p, number)));
}

const char *piece_name(const Proof *p, const Piece *piece) {
  StrBuf b = {.arena = p->a};
  for (const Piece *term = piece; term; term = term->plus)
    strbuf_addf(&b, "%s%s", term == piece ? "" : " + ",
                piece_text(p->a, term, prove_name(number_value(p->numbers, term->number), p->a)));
  return b.at;
}

// Whether the result is the same at every position along some dimensions.
static bool is_alike(const Op *op) {
  return op->kind == OP_fill || op->kind == OP_broadcast;
}

// Appends a copy of the piece to a list.
static void list_piece(Piece ***end, const Piece *piece, Arena *a) {
  Piece *copy = **end = arena_copy(a, piece, sizeof *piece);
  copy->other = NULL;
  *end = &copy->other;
}

// All meanings of an operand, in `a`.
static Piece *choices_of(Proof *p, const Value *v, Arena *a) {
  const Meaning *of = meaning(p, v);
  Piece *first = NULL, **end = &first, derived;
  if (of->number != UNKNOWN) {
    derived = piece_all(of->number, whole_of(p, of->number));
    list_piece(&end, &derived, a);
  }
  for (const Piece *piece = of->piece; piece; piece = piece->other)
    list_piece(&end, piece, a);
  for (Piece *piece = first; piece; piece = piece->other) {
    if (piece_is_part_of_sum(piece)) continue;
    // A piece of a slice is also a piece of the sliced value.
    const Op *slice = model_slice(p, piece->number);
    derived = *piece;
    if (slice && piece_of_sliced(slice, number_of(p->numbers, slice->in[0].value), &derived))
      list_piece(&end, &derived, a);
    // A piece of length 1 is also one of its broadcast, at any position.
    for (const struct ReaderOf *r = readers_of(p, piece->number); r; r = r->other) {
      if (r->op->kind != OP_broadcast ||
          !piece_of_broadcast(r->op, piece, value_whole(v), &derived))
        continue;
      derived.number = number_of(p->numbers, r->op->out[0]);
      list_piece(&end, &derived, a);
    }
  }
  return first;
}

// -- The search ----------------------------------------------------------------------------------

typedef struct Search {
  const Op *op;
  Piece **choices; // of each operand
  Piece *in;       // one of each
  int left;        // combinations left to try
  bool found;
  const char *why; // reason of the last failure
  Arena *scratch;
} Search;

// Proves one combination: an op of the model's program computed in parts.  The verifier checks the
// layouts against the einsum of the op itself, since that of the whole may have other letters.
static void prove_piece(Proof *p, Search *s) {
  const Op *op = s->op;
  Piece *out = arena_array(s->scratch, Piece, op->n_out);
  int *numbers = arena_array(s->scratch, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    numbers[i] = s->in[i].number;
  for (const Op *is = NULL; (is = number_like(p->numbers, op, numbers, is));) {
    int first = number_of(p->numbers, is->out[0]);
    if (!piece_op(is, first, op, s->in, out, &s->why, s->scratch, p->d)) continue;
    s->found = true;
    for (int i = 0; i < op->n_out; i++)
      add_piece(p, op->out[i], out[i]);
  }
}

// Proves an add of a share of a sum: the result is a sum, of which shares may be complete now.
// Terms that are values are added if the model's program adds them.
static bool prove_shares(Proof *p, Search *s, const Piece *x, const Piece *y) {
  const Op *op = s->op;
  Piece term[MAX_SUM_TERMS];
  int n = piece_terms(x, y, term, &s->why);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      const Piece in[2] = {term[i], term[k]};
      const int numbers[2] = {in[0].number, in[1].number};
      if (i == k || in[0].n_sums || in[1].n_sums) continue;
      const Op *is = number_like(p->numbers, op, numbers, NULL);
      Piece sum;
      const char *why;
      if (!is ||
          !piece_op(is, number_of(p->numbers, is->out[0]), op, in, &sum, &why, s->scratch, p->d))
        continue;
      term[i] = sum;
      term[k] = term[--n];
      i = -1;
      break;
    }
  if (n) add_piece(p, op->out[0], piece_sum(term, n, p->a));
  return n > 0;
}

// Proves an op that only rearranges pieces: a slice or a reshape of a piece is a piece; a concat of
// pieces may be all of the value.
static void prove_rearranged(Proof *p, Search *s) {
  const Op *op = s->op;
  Piece out;
  for (const Piece *c = op->n_in ? s->choices[0] : NULL; c; c = c->other) {
    // All operands are of the same value.
    bool same = true;
    s->in[0] = *c;
    for (int i = 1; i < op->n_in && same; i++) {
      const Piece *is = s->choices[i];
      while (is && (is->number != c->number || is->n_sums != c->n_sums))
        is = is->other;
      same = is != NULL;
      if (is) s->in[i] = *is;
    }
    if (!same) continue;
    bool joins = false;
    if (op->kind == OP_slice) {
      joins = piece_slice(op, c, value_whole(op->in[0].value), &out);
    } else if (op->kind == OP_concat) {
      joins = piece_concat(op, s->in, &out);
    } else if (op->kind == OP_reshape) {
      out = *c;
      joins = true;
    }
    if (joins) add_piece(p, op->out[0], out);
    s->found |= joins;
  }
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

// Finds all meanings of the op on pieces.  `reshaped`: also if it only changes the shape of a
// value.
static bool find_pieces(Proof *p, Search *s, bool reshaped) {
  enum { MOST_CHOICES = 64 };
  const Op *op = s->op;
  // An op that neither produces nor reads pieces has none.
  bool pieces = op->kind == OP_slice || is_alike(op) || reshaped;
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    pieces |= of->piece || model_slice(p, of->number);
  }
  if (!pieces) return false;
  s->left = MOST_CHOICES;
  s->scratch = arena_new();
  s->choices = arena_array(s->scratch, Piece *, op->n_in);
  s->in = arena_array(s->scratch, Piece, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    s->choices[i] = choices_of(p, op->in[i].value, s->scratch);
  prove_rearranged(p, s);
  for (Piece *x = op->kind == OP_add ? s->choices[0] : NULL; x; x = x->other)
    for (Piece *y = s->choices[1]; y; y = y->other)
      if (piece_is_part_of_sum(x) || piece_is_part_of_sum(y)) s->found |= prove_shares(p, s, x, y);
  // The einsum of a call does not describe parts.
  if (!op->callee) prove_choices(p, s, 0);
  return s->found;
}

bool prove_pieces(Proof *p, const Op *op) {
  Search s = {.op = op};
  bool found = find_pieces(p, &s, op->kind == OP_reshape);
  arena_free(s.scratch);
  return found;
}

// Reports that the op on pieces is not of the model's program.
static void wrong_pieces(Proof *p, const Search *s, const int *in, bool numbers) {
  const Op *op = s->op;
  // Slices and reshapes of the model's program that were changed look like pieces until an op reads
  // them.  They are reported, not their reader, and recognised by location or name.
  bool wrong = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    const Op *slice = v->def;
    bool in_model = false;
    if (!slice || (slice->kind != OP_slice && slice->kind != OP_reshape)) continue;
    for_each_op(is, p->model)
      in_model |= is->kind == slice->kind &&
                  (loc_same(is->loc, slice->loc) ||
                   (is->out[0]->name && str_equal(is->out[0]->name, slice->out[0]->name)));
    int number = meaning(p, slice->in[0].value)->number;
    if (!in_model || number == UNKNOWN || meaning(p, v)->number != UNKNOWN) continue;
    if (!meaning(p, v)->piece) continue;
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
              s->why ? s->why : "nothing in the model's program reads these pieces");
  for (int i = 0; i < op->n_in; i++)
    if (s->choices && s->choices[i])
      diag_note(p->d, op->loc, "operand %d is %s", i, piece_name(p, s->choices[i]));
}

void prove_no_pieces(Proof *p, const Op *op, const int *in, bool numbers) {
  Search s = {.op = op};
  // The search finds the reason.
  if (!find_pieces(p, &s, op->kind == OP_reshape)) wrong_pieces(p, &s, in, numbers);
  arena_free(s.scratch);
}

void prove_also_pieces(Proof *p, const Op *op) {
  Search s = {.op = op};
  // A reshape of a root that the model does not have is known by its pieces alone.
  bool reshaped = op->n_out == 1 && meaning(p, op->out[0])->reshape_of != UNKNOWN;
  // A slice may be one of the model's program by chance, and a reshape of one.
  bool moves = op->kind == OP_reshape || op->kind == OP_slice;
  if (is_alike(op) || moves || reshaped) find_pieces(p, &s, reshaped);
  arena_free(s.scratch);
}
