// Moves some values of a plan to other devices and back:
//
//     %y = linear %x, %w : f32[2,6] {S(0)}                 on devices 0-1
//     %1 = move %y       : f32[4,2] @n0 {S(1)}             on devices 5, 3, 7
//     %2 = move %1       : f32[2,6] {S(0)}                 and all readers of %y read %2
//
// The other meshes have other axes, and devices in any order, some of them those of the first.

#include "random_plans.h"

#include "comm/mesh.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/split.h"

enum { DEVICES = 12 };

static const MeshAxis *time_axis(const Mesh *mesh, int *at) {
  for (*at = 0; *at < mesh->n_axes; ++*at)
    if (mesh->axis[*at].time) return &mesh->axis[*at];
  return NULL;
}

static Mesh *other_mesh(Module *m, Random *r, int n, Diag *d) {
  StrBuf text = {.arena = m->arena};
  int at, sizes[] = {2, 3, 4};
  const MeshAxis *time = time_axis(m->meshes, &at);
  if (time) strbuf_addf(&text, "mb:%d:time+", time->size);
  strbuf_addf(&text, "p:%d", sizes[below(r, 3)]);
  if (chance(r, 50)) strbuf_addf(&text, "+q:2");
  Mesh *mesh = mesh_parse(m, text.at, d);
  int *device = arena_array(m->arena, int, DEVICES);
  for (int i = 0; i < DEVICES; i++) {
    int other = below(r, i + 1);
    device[i] = device[other];
    device[other] = i;
  }
  mesh->device = device;
  mesh->name = str_format(m->arena, "n%d", n);
  module_add_mesh(m, mesh);
  return mesh;
}

static const Layout *other_layout(const Value *v, const Mesh *mesh, Random *r) {
  Module *m = v->graph->module;
  const Type *whole = value_whole(v);
  int64_t parts[MAX_NDIM];
  Sbp layout[MAX_AXES] = {{SBP_B, 0}};
  int at;
  for (int i = 0; i < whole->ndim; i++)
    parts[i] = 1;
  for (int axis = 0; axis < mesh->n_axes; axis++) {
    const MeshAxis *a = &mesh->axis[axis];
    if (a->time && time_axis(v->layout->mesh, &at)) layout[axis] = v->layout->axis[at];
    if (layout[axis].kind == SBP_S) parts[layout[axis].dim] *= a->size;
    if (a->time) continue;
    if (chance(r, 25) && dtype_class[whole->dtype] == 'F') layout[axis].kind = SBP_P;
    int dim = whole->ndim ? below(r, whole->ndim) : 0;
    if (layout[axis].kind == SBP_P || !whole->ndim || whole->dim[dim] % (parts[dim] * a->size))
      continue;
    layout[axis] = (Sbp){SBP_S, dim};
    parts[dim] *= a->size;
  }
  return layout_new(m, mesh, layout);
}

static Value *moved(Value *v, Op *at, const Layout *to, Diag *d) {
  const Type *t = type_local(v->graph->module, value_whole(v), to);
  Builder b = {.g = v->graph, .at = at, .d = d, .origin = op_origin(v->def)};
  Value *out = build_op(&b, OP_move, IN(v), ATTRS(a_list("shape", t->dim, t->ndim)));
  if (out) out->layout = to;
  return out;
}

static bool is_bucket(const Value *v) {
  while (v->def && (op_info[v->def->kind].traits & COMM))
    v = v->def->in[0].value;
  return v->def && v->def->kind == OP_pack;
}

int random_moves(Graph *g, Random *r, Diag *d) {
  int n = 0;
  for_each_op_safe(op, g) {
    Value *v = op->n_out ? op->out[0] : NULL;
    if (!v || n == 3 || is_bucket(v) || !chance(r, 5)) continue;
    const Layout *back = v->layout;
    const Mesh *mesh = other_mesh(g->module, r, n, d);
    Value *there = moved(v, op->next, other_layout(v, mesh, r), d);
    Value *here = there ? moved(there, there->def->next, back, d) : NULL;
    if (!here) BUG("a move does not fit");
    value_replace(v, here);
    op_set_in(there->def, 0, v);
    n++;
  }
  graph_renumber(g);
  return n;
}
