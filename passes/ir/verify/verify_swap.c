// The promise about host memory: 21 of verify.c.
//
//     %h = swap_out %x            starts the copy of %x to host memory
//     %k = swap_wait %h, %x       the copy is complete: %k is in host memory, and %x may be overwritten
//     …
//     %b = swap_in %k             starts the copy back, to an offset of its own
//     %y = swap_wait %b, %k       the copy is complete: %y, a view of %b, may be read
//
// A parameter that is resident in host memory is like %k, and its update is another such %k.
// Before the pass offload nothing copies it to the device.
//
// Memory must not be reused while bytes are copied from it or to it.  That needs no promise of its
// own: the swap_wait reads the source, so the source lives until then.

#include "ir/analysis/place.h"
#include "ir/op.h"
#include "verify.h"

// Whether the value, or the root of its view, is in host memory, so that only copies may read it.
static bool is_away(Value *v) {
  int64_t skip;
  const Value *root = view_root(v, &skip);
  bool brought = root->def || v->graph->module->phase >= PHASE_planned;
  return brought && value_on_host(v);
}

static bool check_op(const Op *op, Diag *d) {
  const char *name = op_info[op->kind].name;
  bool waits = op->kind == OP_swap_wait;
  const Op *starts = waits ? op->in[0].value->def : NULL;
  if ((op_starts_copy(op) || waits) && op->graph->entry && op->graph->module->phase < PHASE_local)
    return diag_error(d, op->loc, "%s is there from phase local on only", name);
  // The start of a copy: one reader, which waits for it, and a source on the right side.
  if (op_starts_copy(op)) {
    const Use *use = op->out[0]->uses;
    if (!use || use->next || !use->user || use->user->kind != OP_swap_wait || use->index != 0)
      return diag_error(d, op->loc, "%s: one swap_wait must read its result, and nothing else",
                        name);
    if (use->user->segment != op->segment)
      return diag_error(d, op->loc, "%s: it is waited for in another segment", name);
    bool host = value_on_host(op->in[0].value);
    if (op->kind == OP_swap_in && !host)
      return diag_error(d, op->loc, "swap_in: its operand is not in host memory");
    if (op->kind != OP_swap_in && host)
      return diag_error(d, op->loc, "%s: its operand is in host memory already", name);
    // Ranks have a kernel for sums of f32 alone.
    if (op->kind == OP_swap_out_accumulate && op->out[0]->type->dtype != DT_f32)
      return diag_error(d, op->loc, "%s: its operand is %s, and must be f32", name,
                        dtype_name[op->out[0]->type->dtype]);
  }
  // Its end: reads the source too, which lives until then.
  if (waits && (!starts || !op_starts_copy(starts)))
    return diag_error(d, op->loc, "swap_wait: there is no swap_out or swap_in to wait for");
  if (waits && starts->in[0].value != op->in[1].value)
    return diag_error(d, op->loc, "swap_wait: it must read the source of %s, too",
                      op_info[starts->kind].name);
  // No other op reads host memory.
  for (int i = 0; i < op->n_in; i++) {
    bool may = op_starts_copy(op) || (waits && (i == 0 || starts->kind == OP_swap_in));
    if (!may && is_away(op->in[i].value))
      return diag_error(d, op->loc, "%s: operand %d is in host memory", name, i);
  }
  return true;
}

bool verify_swap(const Graph *g, const Features *has, Diag *d) {
  // Without copies and parameters in host memory no value is there (value_on_host).
  if (!has->host) return true;
  for_each_op(op, g)
    if (!check_op(op, d)) return false;
  // A parameter in host memory must be updated there.
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    Value *v = r->use.value;
    const Loc *loc = v->def ? v->def->loc : v->loc;
    if (is_away(v) && !(r->target && r->target->host))
      return diag_error(d, loc, "a result of the graph is in host memory");
    if (r->target && is_away(r->target) && !value_on_host(v))
      return diag_error(d, loc, "the update of '%s', which is in host memory, is not there",
                        r->target->label);
  }
  return true;
}
