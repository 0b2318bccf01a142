// Programs after the passes for a target: ops that run a graph, and values of other types than the
// model's.
//
//     bodies     fused and multi_tensor run a graph, and a joined op is its definition
//                (ir/definition.h).  The proof follows the ops of the graph with the operands of the
//                call, so a body is proved once per call.
//     casts      of a value that the model's program does not cast are remembered: cast_of.
//     widened    ops compute in f32 on casts of values of 16 bits.  The result is the model's, of 16
//                bits, before it was rounded (rounds_to), and its cast back is the model's:
//
//                    %0 = cast %x to=f32          x: bf16, number 3
//                    %1 = relu %0                 rounds to number 4, relu of 3
//                    %y = cast %1 to=bf16         number 4
//
//                A cast to f32 and back is the value itself.
//     moved      a cast of moved elements is the elements of the cast moved: a broadcast of cast_of
//                is the cast of the broadcast.

#include "prove_state.h"

#include "ir/definition.h"
#include "ir/split.h"

// -- Bodies ----------------------------------------------------------------------------------

static bool same_axes(const Layout *x, const Layout *y) {
  for (int axis = 0; x && y && axis < x->n_axes; axis++)
    if (!sbp_equal(x->axis[axis], y->axis[axis])) return false;
  return true;
}

void prove_body(Proof *p, const Op *op) {
  Graph *defined = op->callee ? NULL : op_definition(op, p->scratch, false, p->d);
  const Graph *body = op->callee ? op->callee : defined;
  if (!body) {
    p->ok = false;
    return;
  }
  Meaning *outer = p->of, *inner = arena_array(p->a, Meaning, body->n_values);
  for (uint32_t i = 0; i < body->n_values; i++)
    inner[i] = no_meaning;
  for (int i = 0; i < op->n_in; i++)
    inner[body->params[i]->id] = outer[op->in[i].value->id];
  p->of = inner;
  prove_ops(p, body);
  p->of = outer;
  for (int i = 0; i < op->n_out; i++) {
    const Value *v = body->results[i]->use.value;
    outer[op->out[i]->id] = inner[v->id];
    // The verifier compares the layouts of a callee.
    if (!op->callee && !same_axes(v->layout, op->out[i]->layout))
      prove_error(p, op->loc, "%s: result %d is %s, and its definition gives %s", kind_name(op), i,
                  layout_text(p->a, op->out[i]->layout), layout_text(p->a, v->layout));
  }
  if (!op->callee) graph_erase(defined);
}

// -- Casts -----------------------------------------------------------------------------------

// Whether all numbers of `from` are numbers of `to`.
static bool widens(DType from, DType to) {
  if (dtype_class[from] != 'F' || dtype_class[to] != 'F') return false;
  return dtype_narrow(from) ? !dtype_narrow(to) : dtype_bytes[to] > dtype_bytes[from];
}

Meaning cast_meaning(Proof *p, const Meaning *v, DType from, DType to) {
  if (v->rounds_to && v->dtype == to) return *v->rounds_to;
  if (v->cast_of && v->dtype == to && widens(to, from)) return *v->cast_of;
  Meaning is = no_meaning;
  if (v->number != UNKNOWN) is.number = number_cast(p->numbers, v->number, to);
  // A part of the value is that part of its cast.
  for (const Piece *piece = v->piece; piece; piece = piece->other) {
    int number = number_cast(p->numbers, piece->number, to);
    if (number == UNKNOWN || piece_is_part_of_sum(piece)) continue;
    Piece *cast = arena_copy(p->a, piece, sizeof *piece);
    cast->number = number;
    cast->other = is.piece;
    is.piece = cast;
  }
  is.cast_of = arena_copy(p->a, v, sizeof *v);
  is.dtype = from;
  return is;
}

const char *lowered_name(const Proof *p, const Value *v) {
  const Meaning *of = meaning(p, v), *in = of->cast_of ? of->cast_of : of->rounds_to;
  int number = in ? in->number : of->reshape_of;
  const char *name = number != UNKNOWN ? prove_name(number_value(p->numbers, number), p->a)
                     : in && in->piece ? piece_name(p, in->piece)
                                       : "an unknown value";
  if (of->cast_of)
    return str_format(p->a, "the cast of %s to %s", name, dtype_name[v->type->dtype]);
  if (of->rounds_to) return str_format(p->a, "%s in %s", name, dtype_name[v->type->dtype]);
  return of->reshape_of != UNKNOWN ? str_format(p->a, "a reshape of %s", name) : NULL;
}

// -- Ops on lowered operands -----------------------------------------------------------------

// Proves `op` on other operands: `in`, with NULL for those that stay.
static bool prove_on(Proof *p, const Op *op, const Meaning *const *in, Types types) {
  Meaning *was = arena_array(p->a, Meaning, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    was[i] = *meaning(p, op->in[i].value);
  for (int i = 0; i < op->n_in; i++)
    if (in[i]) *meaning(p, op->in[i].value) = *in[i];
  bool proved = prove_known(p, op, types) || prove_pieces(p, op) ||
                (types == TYPES_moved && prove_lowered(p, op));
  for (int i = 0; i < op->n_in; i++)
    *meaning(p, op->in[i].value) = was[i];
  return proved;
}

// Whether operand `i` is the cast to f32 of a value of 16 bits, which the model's program may read.
// One of class S is f32 there, too.
static bool is_widened(const Proof *p, const Op *op, int i) {
  if (op_operand_class(op, i) == 'S') return false;
  const Meaning *of = meaning(p, op->in[i].value);
  return of->cast_of && dtype_narrow(of->dtype) && op->in[i].value->type->dtype == DT_f32;
}

// Takes the results of `op` away, and adds to those that it had another one.
static void add_meanings(Proof *p, const Op *op, const Meaning *had) {
  for (int i = 0; i < op->n_out; i++) {
    Meaning *out = meaning(p, op->out[i]), made = *out;
    const Type *type = made.number != UNKNOWN ? number_value(p->numbers, made.number)->type
                       : made.piece           ? whole_of(p, made.piece->number)
                                              : NULL;
    *out = had[i];
    if (type && dtype_narrow(type->dtype) && op->out[i]->type->dtype == DT_f32) {
      out->rounds_to = arena_copy(p->a, &made, sizeof made);
      out->dtype = type->dtype;
    } else if (out->number == UNKNOWN && !out->piece) {
      *out = made;
    }
  }
}

// The ops of the model in 16 bits that `op` computes in f32.
static bool prove_widened(Proof *p, const Op *op) {
  enum { MOST_TRIALS = 16 };
  const Meaning **in = arena_array(p->a, const Meaning *, op->n_in);
  Meaning *had = arena_array(p->a, Meaning, op->n_out);
  int *at = arena_array(p->a, int, op->n_in), n = 0;
  for (int i = 0; i < op->n_in; i++)
    if (is_widened(p, op, i)) at[n++] = i;
  if (!n) return false;
  for (int i = 0; i < op->n_out; i++)
    had[i] = *meaning(p, op->out[i]);
  // Some operands may be casts in the model's program, too: all of them first, then some.
  int trials = n < 4 ? (1 << n) - 1 : MOST_TRIALS - 1;
  for (int left_out = 0; left_out < trials; left_out++) {
    for (int k = 0; k < n; k++)
      in[at[k]] = k < 4 && (left_out >> k & 1) ? NULL : meaning(p, op->in[at[k]].value)->cast_of;
    for (int i = 0; i < op->n_out; i++)
      *meaning(p, op->out[i]) = no_meaning;
    bool proved = prove_on(p, op, in, TYPES_widened);
    if (proved) {
      add_meanings(p, op, had);
      return true;
    }
  }
  for (int i = 0; i < op->n_out; i++)
    *meaning(p, op->out[i]) = had[i];
  return false;
}

static bool prove_moved(Proof *p, const Op *op) {
  const Meaning *of = meaning(p, op->in[0].value), *from = of->cast_of;
  Meaning *out = meaning(p, op->out[0]), had = *out;
  if (!from) return false;
  DType was = of->dtype, to = op->out[0]->type->dtype;
  *out = no_meaning;
  if (!prove_on(p, op, (const Meaning *[]){from}, TYPES_moved)) {
    *out = had;
    return false;
  }
  Meaning moved = *out, cast = cast_meaning(p, &moved, was, to);
  *out = had;
  if (out->number == UNKNOWN && !out->piece)
    *out = cast;
  else
    out->cast_of = cast.cast_of, out->dtype = cast.dtype;
  return true;
}

bool prove_lowered(Proof *p, const Op *op) {
  if (op->kind == OP_cast) {
    const Meaning *of = meaning(p, op->in[0].value);
    Meaning *out = meaning(p, op->out[0]);
    Meaning cast = cast_meaning(p, of, op->in[0].value->type->dtype, attr_t(op, "to"));
    // A number that the model's program has for the cast stays.
    if (out->number != UNKNOWN) cast.number = out->number;
    if (out->piece) cast.piece = out->piece;
    *out = cast;
    return true;
  }
  return op_traits(op) & MOVES_ELEMENTS ? prove_moved(p, op) : prove_widened(p, op);
}
