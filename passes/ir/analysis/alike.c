// The cache of einsums and result types, shared by all identical ops.
//
//     %y = linear %x, %w     : f32[8,6]       0 k, k n -> 0 n    found from the row
//     %z = linear %y, %v     : f32[8,6]       the same: known
//
// Layers repeat, and every pass, the verifier and the proof request the einsum of every op.  Ops
// are identical if they have one kind, the same attributes, and operands of the same types; if
// types are local, also the same layouts, as some rules use the global type (shape.c) or the mesh
// (comm.c). Not cached are ops with a callee, since their callee identifies them, and constants,
// since comparing them would compare their bytes.

#include <stddef.h>
#include <string.h>

#include "ir/intern.h"
#include "ir/op.h"

const Dims *dims_keep(Arena *a, const Dims *dims) {
  // Without unused operand entries: an einsum has capacity for many.
  return arena_copy(a, dims, offsetof(Dims, in) + (size_t)dims->n_in * sizeof *dims->in);
}

void dims_copy(Dims *to, const Dims *from) {
  to->n_letters = from->n_letters;
  to->n_in = from->n_in;
  to->n_out = from->n_out;
  // Only the used entries, for the same reason.
  memcpy(to->letter, from->letter, (size_t)from->n_letters * sizeof *from->letter);
  memcpy(to->out, from->out, (size_t)from->n_out * sizeof *from->out);
  memcpy(to->in, from->in, (size_t)from->n_in * sizeof *from->in);
}

static bool is_local(const Op *op) {
  return op->graph->module->phase >= PHASE_local;
}

// An op under construction has no results yet.
static const Layout *layout_of(const Op *op, int i) {
  const Value *v = i < op->n_in ? op->in[i].value : op->out[i - op->n_in];
  return v ? v->layout : NULL;
}

// `attrs` are interned, so that equal lists are one.
static bool is_alike(const Alike *alike, const Op *op, const Attr *attrs) {
  if (alike->kind != op->kind || alike->n_in != op->n_in || alike->n_out != op->n_out ||
      alike->local != is_local(op) || alike->attrs != attrs)
    return false;
  for (int i = 0; i < op->n_in; i++)
    if (alike->in[i] != op->in[i].value->type) return false;
  // Layouts and meshes decide only about local ops.
  if (!alike->local) return true;
  for (int i = 0; i < op->n_in + op->n_out; i++)
    if (alike->layout[i] != layout_of(op, i)) return false;
  return alike->mesh == op_mesh(op);
}

// The hash of all that is compared, except the mesh.
static uint64_t hash_of(const Op *op, const Attr *attrs) {
  uint64_t h = hash_mix((uint64_t)op->kind + 1, (uint64_t)op->n_in << 1 | is_local(op));
  for (int i = 0; i < op->n_in; i++)
    h = hash_mix(h, (uintptr_t)op->in[i].value->type);
  h = hash_mix(h ^ h >> 32, (uintptr_t)attrs);
  for (int i = 0; is_local(op) && i < op->n_in + op->n_out; i++)
    h = hash_mix(h ^ h >> 32, (uintptr_t)layout_of(op, i));
  return h ^ h >> 29;
}

static Alike *find(const Op *op, const Attr *attrs, uint64_t h) {
  Alike *alike = op->graph->module->interned->alike[h & (N_ALIKE - 1)];
  while (alike && !(alike->hash == h && is_alike(alike, op, attrs)))
    alike = alike->next;
  return alike;
}

Alike *op_alike(const Op *op) {
  int n_attrs;
  const AttrSpec *spec = op_attr_specs(op->kind, &n_attrs);
  // Not cached: ops with a callee, communication that has no mesh yet, and constants.
  if (op_has_callee(op->kind) || (!is_local(op) && (op_info[op->kind].traits & COMM))) return NULL;
  for (int i = 0; i < n_attrs; i++)
    if (spec[i].kind == 'd') return NULL;
  const Attr *attrs = op->attrs;
  uint64_t h = hash_of(op, attrs);
  Alike *known = find(op, attrs, h);
  if (known) return known;
  // An op that was changed outside of a graph may have a list of its own.
  attrs = attrs_interned(op->graph->module, op->kind, attrs);
  if (attrs != op->attrs) {
    h = hash_of(op, attrs);
    if ((known = find(op, attrs, h))) return known;
  }
  // The first op of its kind: a new entry, still without einsum and types.
  Arena *a = op->graph->module->arena;
  Alike *alike = arena_one(a, Alike);
  *alike = (Alike){.hash = h, .kind = op->kind, .n_in = op->n_in, .n_out = op->n_out};
  alike->attrs = attrs;
  alike->in = arena_array(a, const Type *, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    alike->in[i] = op->in[i].value->type;
  alike->local = is_local(op);
  if (alike->local) {
    alike->mesh = op_mesh(op);
    alike->layout = arena_array(a, const Layout *, op->n_in + op->n_out);
    for (int i = 0; i < op->n_in + op->n_out; i++)
      alike->layout[i] = layout_of(op, i);
  }
  Alike **bucket = &op->graph->module->interned->alike[h & (N_ALIKE - 1)];
  alike->next = *bucket;
  return *bucket = alike;
}
