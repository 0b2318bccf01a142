// Compares the tables of tensors and values with the parameters, outputs and ops of a graph: the
// runtime feeds, reads and checks memory by these.
//
//     {"x", NNRT_input, NNRT_f32, 2, {8, 4}, {{0, 1, -1}, {-1}}, .offset = 704},
//     {1, 2, NNRT_f32, false, 24, 0, 0, 0},
//
// Also the layout of the payload: each weight at its offset, with the alignment that the runtime
// maps, and nothing between.

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "ir/analysis/boxes.h"
#include "ir/analysis/place.h"
#include "ir/kernel.h"
#include "ir/split.h"

enum { PAYLOAD_ALIGN = 64, MAX_FIELDS = 32 };

// The optional fields of a tensor.
typedef struct TensorText {
  int64_t offset, slots, stride, mesh, known_ndim, payload, init_seed;
  int64_t known_dim[MAX_NDIM];
  bool host, train, unread, every_step, deferred, payload_part;
  const char *init;
  double a, b;
} TensorText;

static bool read_fields(Check *c, Cursor *at, TensorText *t) {
  CToken name, word;
  const char *seen[MAX_FIELDS];
  int n_seen = 0;
  while (take(at, ", .%w =", &name)) {
    // A second initializer would replace the whole field.
    for (int i = 0; i < n_seen; i++)
      if (ctoken_is(&name, seen[i])) return mismatch(c, at, "a second '.%s'", seen[i]);
    if (n_seen == MAX_FIELDS) return unexpected(c, at, "the end of a tensor");
    seen[n_seen++] = ctoken_text(&name, c->arena);
    const struct {
      const char *name;
      int64_t *number;
      bool *flag;
      double *real;
    } fields[] = {{"offset", &t->offset, NULL, NULL},
                  {"slots", &t->slots, NULL, NULL},
                  {"stride", &t->stride, NULL, NULL},
                  {"mesh", &t->mesh, NULL, NULL},
                  {"known_ndim", &t->known_ndim, NULL, NULL},
                  {"payload", &t->payload, NULL, NULL},
                  {"init_seed", &t->init_seed, NULL, NULL},
                  {"host", NULL, &t->host, NULL},
                  {"train", NULL, &t->train, NULL},
                  {"unread", NULL, &t->unread, NULL},
                  {"every_step", NULL, &t->every_step, NULL},
                  {"deferred", NULL, &t->deferred, NULL},
                  {"payload_part", NULL, &t->payload_part, NULL},
                  {"a", NULL, NULL, &t->a},
                  {"b", NULL, NULL, &t->b}};
    bool found = false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !found; i++) {
      if (!ctoken_is(&name, fields[i].name)) continue;
      found = fields[i].number ? take(at, "%i", fields[i].number)
              : fields[i].real ? take(at, "%f", fields[i].real)
                               : take(at, "true");
      if (fields[i].flag) *fields[i].flag = true;
      if (!found) return unexpected(c, at, "the value of a field");
    }
    if (!found && ctoken_is(&name, "init")) {
      found = take(at, "%w", &word);
      t->init = ctoken_text(&word, c->arena);
    }
    if (!found && ctoken_is(&name, "known_dim")) {
      found = take(at, "{");
      for (int i = 0; found && i < MAX_NDIM && take(at, "%i", &t->known_dim[i]); i++)
        if (!take(at, ",")) break;
      found = found && take(at, "}");
    }
    if (!found) return unexpected(c, at, "a field of a tensor");
  }
  return true;
}

// The axes that shard a dimension: "{0, 1, -1}".
static bool want_split(Check *c, Cursor *at, const Layout *l, int dim) {
  int n = 0;
  if (!want(c, at, "{")) return false;
  for (int a = 0; l && a < l->n_axes; a++) {
    if (l->axis[a].kind != SBP_S || l->axis[a].dim != dim) continue;
    if (!want_int(c, at, a, "an axis that shards the dimension") ||
        (++n < MAX_AXES && !want(c, at, ",")))
      return false;
  }
  // With all axes there may be no end mark, and a comma at the end.
  if (n == MAX_AXES) return take(at, "}") || want(c, at, ", }");
  return want(c, at, "-1}");
}

static bool same_number(double a, double b) {
  return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

// The offset in the payload of each weight of @train, by index; -1: none.
static int64_t *payload_offsets(const Check *c, int64_t *end) {
  const Graph *g = c->graph[0];
  int64_t *at = arena_array(c->arena, int64_t, g->n_params + 1);
  *end = 0;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    at[i] = -1;
    if (!v->init || (v->init->kind != INIT_file && v->init->kind != INIT_bytes)) continue;
    const Mesh *mesh = v->layout ? v->layout->mesh : NULL;
    // A program of one rank has the shard of it, if that is on the mesh.
    bool part = c->p.split_rank && mesh;
    if (part && !mesh_has(mesh, (int)c->p.split_rank - 1)) continue;
    int64_t n = part ? type_count(v->type) : type_count(value_whole(v));
    at[i] = *end;
    *end += (n * dtype_bytes[v->type->dtype] + PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN;
  }
  return at;
}

static bool check_init(Check *c, const Cursor *at, const Value *v, const TensorText *t,
                       const int64_t *payload) {
  static const char *const kinds[] = {[INIT_file] = "NNRT_from_payload",
                                      [INIT_bytes] = "NNRT_from_payload",
                                      [INIT_fill] = "NNRT_from_fill",
                                      [INIT_normal] = "NNRT_from_normal",
                                      [INIT_uniform] = "NNRT_from_uniform"};
  const Init *init = v->init;
  TensorText need = {0};
  if (init) {
    need.init = kinds[init->kind];
    need.train = v->train;
    const Type *known = v->as;
    need.known_ndim = known ? known->ndim : 0;
    if (known) memcpy(need.known_dim, known->dim, (size_t)known->ndim * sizeof *known->dim);
    bool random = init->kind == INIT_normal || init->kind == INIT_uniform;
    if (random || init->kind == INIT_fill) need.a = init->fill;
    if (random) need.b = init->to;
    if (random) need.init_seed = init->seed;
    if (init->kind == INIT_file || init->kind == INIT_bytes) {
      // @eval has the weights of @train.
      const Value *of = v;
      if (v->graph != c->graph[0])
        of = v->label ? table_find(c->params, (int)v->role, v->label) : NULL;
      need.payload = of ? payload[of->index] : -1;
      need.payload_part = c->p.split_rank != 0;
    }
  }
  bool same = str_equal(t->init, need.init) && t->train == need.train &&
              t->known_ndim == need.known_ndim && same_number(t->a, need.a) &&
              same_number(t->b, need.b) && t->init_seed == need.init_seed &&
              t->payload == need.payload && t->payload_part == need.payload_part &&
              !memcmp(t->known_dim, need.known_dim, sizeof t->known_dim);
  return same || mismatch(c, at, "the initial contents of '%s' are others in the module",
                          v->label ? v->label : "");
}

static bool check_tensor(Check *c, Cursor *at, const Value *v, const char *name, const char *role,
                         bool param, const int64_t *payload) {
  const Type *whole = value_whole(v);
  const Cursor begin = *at;
  if (!want(c, at, "{") || !want_string(c, at, name, "the name of a tensor") || !want(c, at, ",") ||
      !want_word(c, at, str_format(c->arena, "NNRT_%s", role), "the role of a tensor") ||
      !want(c, at, ",") ||
      !want_word(c, at, str_format(c->arena, "NNRT_%s", dtype_name[v->type->dtype]),
                 "the type of a tensor") ||
      !want(c, at, ",") || !want_int(c, at, whole->ndim, "the number of dimensions") ||
      !want(c, at, ", {"))
    return false;
  for (int d = 0; d < whole->ndim; d++)
    if ((d && !want(c, at, ",")) || !want_int(c, at, whole->dim[d], "a dimension")) return false;
  if (!want(c, at, whole->ndim ? "}, {" : "0}, {{-1}")) return false;
  for (int d = 0; d < whole->ndim; d++)
    if ((d && !want(c, at, ",")) || !want_split(c, at, v->layout, d)) return false;
  TensorText t = {0};
  if (!want(c, at, "}") || !read_fields(c, at, &t) || !want(c, at, "},")) return false;
  // An output is read after the last slice; a parameter has the slot of each slice.
  TensorText need = {.offset = v->offset, .host = v->host};
  if (v->slots > 1 && v->def) need.offset += (module_slices(c->m) - 1) % v->slots * v->stride;
  if (v->slots > 1 && !v->def) {
    need.slots = v->slots;
    need.stride = v->stride;
  }
  need.mesh = v->layout && v->layout->mesh ? v->layout->mesh->id : 0;
  need.unread = param && v->role == ROLE_input && !value_used(v);
  need.every_step = param && v->whole;
  need.deferred = !param && v->def && v->def->deferred;
  if (!want_equal(c, &begin, t.offset, need.offset, "the offset of a tensor") ||
      !want_equal(c, &begin, t.slots, need.slots, "the slots of a tensor") ||
      !want_equal(c, &begin, t.stride, need.stride, "the stride of a tensor") ||
      !want_equal(c, &begin, t.mesh, need.mesh, "the mesh of a tensor") ||
      !want_equal(c, &begin, t.host, need.host, ".host") ||
      !want_equal(c, &begin, t.unread, need.unread, ".unread") ||
      !want_equal(c, &begin, t.every_step, need.every_step, ".every_step") ||
      !want_equal(c, &begin, t.deferred, need.deferred, ".deferred"))
    return false;
  const Value plain = {.graph = v->graph};
  return check_init(c, &begin, param ? v : &plain, &t, payload);
}

// -- Values ------------------------------------------------------------------------------------

// An operand or result that --check-values reads: floating, and at a place of its own.
static bool has_place(const Value *v) {
  return dtype_class[v->type->dtype] == 'F' && !(v->def && v->def->kind == OP_constant);
}

static bool check_value(Check *c, Cursor *at, int op, int number, const Value *v) {
  const Cursor begin = *at;
  int64_t have[6];
  CToken type, host;
  if (!take(at, "{%i, %i, %w, %w, %i, %i, %i, %i},", &have[0], &have[1], &type, &host, &have[2],
            &have[3], &have[4], &have[5]))
    return unexpected(c, at, "the place of an operand or result");
  bool slots = v->slots > 1;
  const int64_t need[6] = {
      op, number, type_count(v->type), v->offset, slots ? v->slots : 0, slots ? v->stride : 0};
  return (!memcmp(have, need, sizeof need) &&
          ctoken_is(&type, str_format(c->arena, "NNRT_%s", dtype_name[v->type->dtype])) &&
          ctoken_is(&host, value_on_host(v) ? "true" : "false")) ||
         mismatch(c, &begin, "operand or result %d of op %d is another in the module", number, op);
}

static bool check_values(Check *c, int i) {
  GraphText *g = &c->p.graph[i];
  Unit *u = unit_find_typed(c, NULL, g->values, UNIT_table, "NnrtValue");
  if (!u) return false;
  c->function = u->name;
  Cursor at = u->at;
  for (int n = 0; n < g->n_ops; n++) {
    // Only calls of ops, no waits: made_of is the op itself.
    const void *made = g->made_of[n];
    const Op *op = NULL;
    if (made && (uintptr_t)made % 4 == 0) op = made;
    c->op = op;
    if (!op || (op_info[op->kind].traits & COMM) || op->kind == OP_pack) continue;
    for (int k = 0; k < op->n_in; k++)
      if (has_place(op->in[k].value) && !check_value(c, &at, n, k + 1, op->in[k].value))
        return false;
    for (int k = 0; k < op->n_out; k++)
      if (has_place(op->out[k]) && !check_value(c, &at, n, -k - 1, op->out[k])) return false;
  }
  c->op = NULL;
  bool ok = want(c, &at, "{") && want_int(c, &at, g->n_ops, "the end mark") &&
            want(c, &at, ", 0, NNRT_f32, false, 0, 0, 0, 0}, }");
  c->function = NULL;
  return ok;
}

static bool check_graph(Check *c, int i, const int64_t *payload) {
  GraphText *text = &c->p.graph[i];
  const Graph *g = c->graph[i];
  if (!g) return text->n_tensors == 0 || mismatch(c, NULL, "there are tensors of no graph");
  if (!text->tensors) return mismatch(c, NULL, "@%s has no table of tensors", g->name);
  Unit *u = unit_find_typed(c, NULL, text->tensors, UNIT_table, "NnrtTensor");
  if (!u) return false;
  c->function = u->name;
  Cursor at = u->at;
  int n = 0;
  for (int k = 0; k < g->n_params; k++, n++) {
    const Value *v = g->params[k];
    const char *name = v->label ? v->label : v->name ? v->name : "";
    if (!check_tensor(c, &at, v, name, role_name[v->role], true, payload)) return false;
  }
  for (int k = 0; k < g->n_results; k++) {
    const Result *r = g->results[k];
    if (!r->label) continue;
    if (!check_tensor(c, &at, r->use.value, r->label, "output", false, payload)) return false;
    n++;
  }
  if (!want(c, &at, "}") || !want_equal(c, &at, text->n_tensors, n, "the number of tensors"))
    return false;
  c->function = NULL;
  return check_values(c, i);
}

// The payload: weights, then on rank 0 the model for --export, without its holes.
static bool check_payload(Check *c, int64_t end) {
  const ProgramText *p = &c->p;
  int64_t bytes = end;
  Unit *u = NULL;
  if (p->n_holes) u = unit_find_typed(c, NULL, p->holes ? p->holes : "", UNIT_table, "NnrtHole");
  if (p->n_holes && !u) return false;
  Cursor at = u ? u->at : (Cursor){0};
  int64_t whole = p->skeleton_bytes, last = 0;
  if (whole < 0 || whole > INT64_MAX - end)
    return mismatch(c, NULL, "skeleton_bytes is %" PRId64, whole);
  for (int i = 0; i < p->n_holes; i++) {
    const Cursor begin = at;
    const char *name;
    CToken type;
    int64_t offset, length;
    if (!take(&at, "{%s, %w, %i, %i},", &name, &type, &offset, &length))
      return unexpected(c, &at, "a hole");
    // Each weight has a hole of its own, in the order of the file.
    if (!name || !table_find(c->params, ROLE_weight, name))
      return mismatch(c, &begin, "there is no weight '%s'", name);
    // They are disjoint parts of the file.
    if (offset < last || length < 0 || offset > p->skeleton_bytes - length)
      return mismatch(c, &begin, "the hole is no part of the model");
    last = offset + length;
    whole -= length;
  }
  if (u && !want(c, &at, "}")) return false;
  // Only rank 0 writes the model.
  if (p->split_rank <= 1) bytes += whole;
  if (p->skeleton_bytes && !want_equal(c, NULL, p->skeleton, end, "the offset of the model"))
    return false;
  if (!want_equal(c, NULL, p->payload_bytes, bytes, "the size of the payload")) return false;
  struct stat st;
  const char *path = str_format(c->arena, "%s/payload.bin", c->dir);
  if (stat(path, &st) != 0) return mismatch(c, NULL, "there is no '%s'", path);
  return want_equal(c, NULL, (int64_t)st.st_size, bytes, "the size of payload.bin");
}

bool tensors_check(Check *c) {
  int64_t end;
  const int64_t *payload = payload_offsets(c, &end);
  c->params = graph_params_by_label(c->graph[0], c->arena);
  return check_graph(c, 0, payload) && check_graph(c, 1, payload) && check_payload(c, end);
}
