// The program: straight-line graphs of tensor operations in SSA form.
//
// A Module holds Graphs.  A Graph is a list of Ops in execution order.  An Op reads Values and
// defines Values; a Value is defined once and never changes.  The only control flow is `loop`,
// which runs a Graph as often as its attribute says.  A Graph that is not an entry is the body of a
// `fused`, `multi_tensor`, `call` or `loop` op.
//
// Persistent state (weights, their copies in 16 bits, optimizer state) consists of parameters of
// the entry graph.  Its results give their next values (`update`).
//
// All structs live in the Module's arena and are freed with it.  print.c writes and parse.c reads
// every field, so a test can start from text at any point of the pipeline.  A fact that only one
// pass needs is not stored here: it is an array in that pass, indexed by `id`.

#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

enum { MAX_NDIM = 8, MAX_AXES = 6, MAX_DEVICES = 1 << 20 }; // devices of a mesh

typedef struct Module Module;
typedef struct Graph Graph;
typedef struct Op Op;
typedef struct Value Value;
typedef struct Use Use;
typedef struct Schedule Schedule;

typedef enum DType {
#define DTYPE(name, ctype, bytes, class) DT_##name,
#include "ir/dtypes.def"
#undef DTYPE
  N_DTYPES,
} DType;

extern const char *const dtype_name[N_DTYPES];  // "f32"
extern const char *const dtype_ctype[N_DTYPES]; // "float"
extern const int dtype_bytes[N_DTYPES];
extern const char dtype_class[N_DTYPES]; // 'F', 'I', 'U' or 'B', as in dtypes.def
bool dtype_parse(const char *name, DType *out);
bool dtype_narrow(DType t); // a floating type of 16 bits

// The type of a tensor: global up to PHASE_sharded, of one rank's shard from PHASE_local on.
// Interned: equal types are equal pointers.  Printed as f32[8,512].
typedef struct Type {
  DType dtype;
  int ndim;
  int64_t dim[MAX_NDIM];
} Type;

typedef struct MeshAxis {
  const char *name;
  int size;
  bool time; // its slices run in sequence, on the same devices
} MeshAxis;

// An ordered group of devices factored into named axes.  The slices of a time axis run in sequence
// on the same devices: micro-batches, gradient accumulation.  A module may have several meshes.
// Meshes may share devices, in any order; their time axes are the same loop.  Printed as
//     mesh @m devices=0-3 (dp=4, mb=2:time)
typedef struct Mesh {
  const char *name; // unique in its module
  int id;           // 0, 1, ... in the order of the module's meshes
  int n_axes;
  MeshAxis axis[MAX_AXES];
  int n_devices;
  int *device;       // [n_devices], distinct; row-major over the axes other than time
  const int *sorted; // the same, ascending; NULL before the mesh is in a module
  struct Mesh *next;
} Mesh;

// The layout of a tensor along one axis of the mesh.
typedef struct Sbp {
  enum {
    SBP_B, // replicated: every device has the whole tensor
    SBP_S, // sharded: device i has slice i of dimension `dim`
    SBP_P, // partial sum: the tensor is the sum over the devices
  } kind;
  int dim; // of SBP_S, otherwise 0
} Sbp;

// The layout of a tensor: a mesh, and an Sbp for each of its axes.  Interned. Printed as {S(0), B}
// if the mesh is the module's first, else as @stage1 {S(0), B}.
typedef struct Layout {
  const Mesh *mesh; // NULL in a module without meshes
  int n_axes;       // of the mesh
  Sbp axis[MAX_AXES];
} Layout;

// The initial contents of a weight, or of a state.
//   file    bytes `offset` .. `offset + length` of the file `path`, little-endian, of element
//           type `dtype`, which may differ from the value's: the payload is converted when it is
//           written.  The compiler maps them; it never loads them.   Printed as  @ "w.bin"+64
//   bytes   the same, in memory: `bytes`, `length` of them.          Printed as  = x"3f80..."
//   fill    every element is `fill`.                                 Printed as  = 0.5
//   random  drawn at start, keyed by name and element:               Printed as  = normal(0,0.02)
//           normal(mean, deviation) or uniform(low, high),                   or  = uniform(-1,1)
//           with an optional seed of its own                                 or  = normal(0,1,7)
typedef struct Init {
  enum { INIT_file, INIT_bytes, INIT_fill, INIT_normal, INIT_uniform } kind;
  DType dtype;
  const char *path;
  int64_t offset, length;
  const void *bytes;
  double fill;  // also the mean, or the low end
  double to;    // the deviation, or the high end
  int64_t seed; // of a random init; added to the seed of the run
} Init;

typedef enum Role {
#define ROLE(name, lasts, means) ROLE_##name,
#include "ir/roles.def"
#undef ROLE
  N_ROLES,
} Role;

extern const char *const role_name[N_ROLES];

// An op and a value have at most two lines of a cache each (arena.c): passes walk over all of them.
struct Value {
  uint32_t id;      // dense in its graph; side tables are indexed by it
  int index;        // of the result of `def`, or of the parameter
  const char *name; // printed as %name, or as %id if NULL; unique in its graph
  const Type *type;
  const Layout *layout; // NULL before PHASE_sharded
  Graph *graph;
  Op *def;        // NULL for a parameter
  Use *uses;      // the operands and results that read this value, newest first
  int64_t offset; // of the first byte in the slab; -1: none, or before PHASE_planned
  // For values with several live slices (schedule.h): the number of slots, each `stride` bytes
  // after the previous one.  0: one offset for all slices.
  int64_t stride;
  int slots;
  // Parameters only, from here on.
  Role role;
  const char *label; // the name for users: of the ONNX tensor, of the scalar, of a copy's weight
  // The global type for users, if its dimensions differ: of a weight or state, with as many
  // elements in the same order, or with shorter dimensions: the elements after them are padding,
  // which is zero and in no file (pad.h).  Otherwise NULL.
  const Type *as;
  bool whole; // of an input: each step reads all of it; dimension 0 of other inputs is the batch
  bool train; // of a weight: autodiff gives it a gradient and an update
  bool host;  // of a weight or state: resident in host memory between steps (offload.c)
  // Of a weight, up to host_gradients: the sum of its gradients over micro-batches is in host
  // memory (offload_gradients.c).
  bool host_gradient;
  // Of persistent state: updated in every time slice, and the next slice to begin reads the new
  // value (versions.h).  Otherwise updated after the last slice, for the next step.
  bool each_slice;
  const Init *init; // of a weight or state; otherwise NULL
  const Loc *loc;   // of a parameter; a result has the location of its op
};

// One operand of an op, or one result of a graph, and a link in its value's list of uses.
struct Use {
  Value *value;
  Op *user;  // NULL for a result of the graph
  int index; // the index of the operand or result
  Use *next, *prev;
};

// The value of an attribute.  The kinds and their spelling in ops.def:
//   i int64   f double   b bool   s string   t element type   I list of int64   d bytes
typedef struct Attr {
  const char *name;
  char kind;
  bool shared; // d: shared_bytes.h, as large ones of an op are
  union {
    int64_t i; // also b
    double f;
    const char *s;
    DType t;
    struct {
      int n;
      const int64_t *at;
    } list;
    struct {
      int64_t n;
      const void *at;
    } data;
  };
} Attr;

typedef enum OpKind {
#define OP(name, ...) OP_##name,
#include "ir/ops.def"
#undef OP
  N_OPS,
} OpKind;

// The parts of a training step: the model, its gradients, the updates of weights and states.
typedef enum TrainPart { PART_forward, PART_backward, PART_update, N_TRAIN_PARTS } TrainPart;

extern const char *const train_part_name[N_TRAIN_PARTS];

// The origin of an op.  A derived op inherits that of its source: op_origin, origin_for.
typedef struct Origin {
  const Loc *loc; // for readers; only a plan program that asks for names depends on it
  TrainPart part;
  // The number of the op of the model.  Forward: the op itself, or the op that it replaces.
  // Backward: the op of the gradient.  0: none, or before number_model of origin.h.
  int of;
  int piece; // from 1; 0: not split into pieces (pieces.h)
  int order; // the order of the ops of a graph that have one; 0: none (order.h)
  // The list of ops that are recomputed together, from 1: recompute.c.  Forward: the results are
  // not saved for gradients.  Backward: the op recomputes such a result.  0: none.
  int recompute_group;
  bool by_piece; // with `recompute_group`: one piece at a time
  // Forward: the list of ops, from 1, with results in host memory between forward and backward
  // (swap.c).  Of an `accumulate`: 1 if its sum is in host memory (offload_gradients.c).  0: none.
  int offload_group;
} Origin;

struct Op {
  uint32_t id;
  OpKind kind;
  int n_in, n_out;
  Use *in;           // [n_in]
  Value **out;       // [n_out]
  const Attr *attrs; // all of the row, in its order; interned: equal lists of a kind are one
  Graph *callee;     // of `fused`, `multi_tensor`, `call` and `loop`, otherwise NULL
  // For each axis of its mesh (op_mesh): the letter of the op's einsum that the axis splits; '+' if
  // partial sums pass through; 0 if the op is replicated.  From PHASE_sharded on.
  char split[MAX_AXES];
  // The fields of its Origin.
  const Loc *loc;
  TrainPart part;
  int of, piece, order, recompute_group, offload_group;
  bool by_piece;
  int segment;   // of its graph's schedule, from 1; 0: none
  bool deferred; // an update that runs in the next step (deferred.h)
  Graph *graph;
  Op *prev, *next;
};

typedef enum Phase {
#define PHASE(name, means) PHASE_##name,
#include "ir/phases.def"
#undef PHASE
  N_PHASES,
} Phase;

extern const char *const phase_name[N_PHASES];

// A result of an entry graph is an `output`, with a name for users ("loss", "grad_norm", or that of
// the ONNX output), or an `update`: the value of parameter `target` after the step.  Results of
// called graphs are neither.
typedef struct Result {
  Use use;
  const char *label; // of an output, otherwise NULL
  Value *target;     // of an update, otherwise NULL
} Result;

struct Graph {
  const char *name;
  bool entry; // the executable runs it: @train, @eval, or @main as imported
  Value **params;
  int n_params;
  Result **results;
  int n_results;
  Op *first, *last;
  uint32_t n_ops, n_values; // ids are below these
  uint64_t names;           // a sum over the names of values, for the verifier: names.c
  Schedule *schedule;       // of an entry: its ranks' schedule (schedule.h); NULL: slice by slice
  Module *module;
  Graph *next;
};

struct Module {
  Arena *arena;
  // Ops, values, and the lists of an op (operands, results, attributes) have arenas of their own:
  // passes walk over all of them, and adjacent ones are read faster than those with names between
  // them.
  Arena *ops, *values, *lists;
  const char *source; // the model's file name, or NULL
  int64_t slab_bytes; // of one rank, from PHASE_planned on
  int64_t host_bytes; // of one rank's host memory: place.h
  Mesh *meshes;       // in order; NULL: a single device
  Graph *graphs;      // in order; the first is the main entry
  Phase phase;
  const char *schedule;       // the kind that a plan requests, until the pass `schedule`; or NULL
  const Loc *schedule_loc;    // the location of that request
  bool cross_barrier;         // a plan requests deferred updates, until the pass `defer_updates`
  bool optimizer_in_backward; // a plan requests early updates, until the pass of that name
  bool early_updates;         // updates are early: with one slice, no update follows all other ops
  struct Annotations *annotations; // the model's multi-device annotations, up to shard; or NULL
  // The values of the model's program that those of the first entry stand for, from its last proof
  // on; or NULL.  Results of the proof, not of the text: a copy of the module has none.
  struct ModelValues *model_values;
  struct Interned *interned;
};

// -- Building --------------------------------------------------------------------------------

Module *module_new(void);
void module_free(Module *m);
Module *module_clone(const Module *m);
Graph *graph_new(Module *m, const char *name, bool entry); // appended
Graph *graph_find(const Module *m, const char *name);
Graph *graph_clone(Graph *g, const char *name); // appended; values keep their names
void graph_erase(Graph *g);                     // must not be called, which the verifier checks

void graph_erase_uncalled(Graph *g); // unless an op runs it; and bodies of its loops likewise

const Init *init_fill(Module *m, DType dtype, double fill);
Value *graph_param(Graph *g, const char *name, const Type *type, Role role, const Loc *loc);
void graph_output(Graph *g, Value *v, const char *label);
void graph_update(Graph *g, Value *target, Value *v);
Result *graph_find_output(Graph *g, const char *label);
Result *graph_find_update(const Graph *g, const Value *target);       // NULL: not updated
Value *graph_find_param(Graph *g, const char *label);                 // by label
Value *graph_find_role(const Graph *g, Role role, const char *label); // by label, of this role
// The current parameters by role and label; of two with the same label, the first.
struct Table *graph_params_by_label(const Graph *g, Arena *a);
Graph *module_first_entry(const Module *m);          // the training step, if there is one; or NULL
Value *graph_find_value(Graph *g, const char *name); // by name or, for unnamed ones, "%12"
void graph_set_result(Graph *g, int i, Value *v);    // keeps its label or target
void graph_erase_result(Graph *g, int i);
void graph_erase_results(Graph *g, bool (*which)(const Result *r));
void graph_erase_param(Graph *g, int i); // must be unused
void graph_renumber(Graph *g);           // ids dense again, in order

// Whether the type is legal: no negative length, and no overflow of its size in bytes.
bool type_fits(DType dtype, int ndim, const int64_t *dim);
const Type *type_new(Module *m, DType dtype, int ndim, const int64_t *dim); // interned
const Type *type_scalar(Module *m, DType dtype);
int64_t type_count(const Type *t); // elements
int64_t type_bytes(const Type *t);
// Also compares types of different modules.
bool type_equal(const Type *x, const Type *y);
bool type_same_dims(const Type *x, const Type *y);
const char *type_text(Arena *a, const Type *t);
const Layout *layout_new(Module *m, const Mesh *mesh, const Sbp *axis); // interned
const Layout *layout_broadcast(Module *m, const Mesh *mesh);            // B on every axis
int64_t layout_parts(const Layout *l, int dim); // parts of `dim`, over all axes
const char *sbp_text(Arena *a, Sbp sbp);        // "S(0)"
const char *layout_text(Arena *a, const Layout *l);

void module_add_mesh(Module *m, Mesh *mesh);
void module_drop_meshes(Module *m); // drops meshes without values, except the first
int module_n_meshes(const Module *m);
const Mesh *module_find_mesh(const Module *m, const char *name);
// A mesh with the same devices in the same order and the same factors, under any names; or NULL.
const Mesh *module_find_alike(const Module *m, const Mesh *mesh);
bool mesh_is_alike(const Mesh *a, const Mesh *b); // whether they are such meshes
int module_slices(const Module *m);               // time slices per step
// The devices of all meshes, each once, in the order of the meshes' lists; device 0 if there is no
// mesh.
int *module_devices(const Module *m, Arena *a, int *n);
// Whether the devices of all meshes are those of ranks: 0, 1, ...
bool module_check_ranks(const Module *m, Diag *d);
bool module_has_stages(const Module *m); // whether a mesh lacks devices of another one
bool mesh_has(const Mesh *mesh, int device);
bool mesh_covers(const Mesh *all, const Mesh *mesh); // `all` has its devices
// Whether `b` has axes of the same sizes, and each of its devices is that of `a` plus *by.
bool mesh_shifted(const Mesh *a, const Mesh *b, int *by);
bool mesh_meets(const Mesh *a, const Mesh *b);          // whether they share a device
bool mesh_same_devices(const Mesh *a, const Mesh *b);   // in any order, with any factors
bool mesh_repeats(const Mesh *mesh, int *device);       // whether it lists a device twice
int mesh_find_axis(const Mesh *mesh, const char *name); // -1: no axis of this name
// The distance in the mesh's list from a device to the next one along the axis.
int mesh_stride(const Mesh *mesh, int axis);

// Some axes of a mesh, in its order, combined into one: a coordinate is a number with the
// coordinates along each axis as digits, the last axis fastest.
typedef struct MeshAxes {
  int n, at[MAX_AXES];
} MeshAxes;

int axes_size(const Mesh *mesh, const MeshAxes *axes); // the product
bool axes_have(const MeshAxes *axes, int axis);
// The mesh of an op: that of its results, or of its operands while the op is under construction.
// Without any layout it is the module's first mesh, or NULL.
const Mesh *op_mesh(const Op *op);

// Appends an op before `at`, or at the end of `g` if `at` is NULL, and infers its results from its
// row.  Attributes may come in any order; missing ones take the row's default (0, "", {}).  If
// operands or attributes are illegal, reports it at the origin's location and returns NULL.
Op *op_new(Graph *g, Op *at, OpKind kind, Value *const *in, int n_in, const Attr *attrs,
           int n_attrs, Origin origin, Diag *d);
// The same, with the callee of `fused`, `multi_tensor` or `call`; result types are those of the
// callee's results.
Op *op_new_call(Graph *g, Op *at, OpKind kind, Graph *callee, Value *const *in, int n_in,
                Origin origin, Diag *d);
// The same with attributes; the results of a `loop` have the types that ir/loop.h describes.
Op *op_new_calling(Graph *g, Op *at, OpKind kind, Graph *callee, Value *const *in, int n_in,
                   const Attr *attrs, int n_attrs, Origin origin, Diag *d);
// A copy of `op` with other operands, and with another origin.  The record of a call is left out.
Op *op_copy(Graph *g, Op *at, const Op *op, Value *const *in, Diag *d);
Op *op_copy_as(Graph *g, Op *at, const Op *op, Value *const *in, Origin origin, Diag *d);

Origin op_origin(const Op *op);      // for an op that replaces `op`
Origin value_origin(const Value *v); // of the defining op; of a parameter, its location
// The origin of an op made for `for_whom`, neither that op nor its gradient; `why` is for the
// location.
Origin origin_for(Arena *a, Origin for_whom, const char *why);

// -- Changing --------------------------------------------------------------------------------

void op_set_in(Op *op, int i, Value *v);
void op_move_before(Op *op, Op *at);     // to the end if `at` is NULL
void op_erase(Op *op);                   // its results must be unused; a loop's body goes with it
bool op_retype(Op *op, Diag *d);         // infers the result types after a change of operands
void value_replace(Value *v, Value *by); // every use of `v` becomes a use of `by`
void value_set_name(Value *v, const char *name); // made unique with a suffix if it is taken
bool value_used(const Value *v);
bool op_used(const Op *op);       // whether any result has a use
bool value_lasts(const Value *v); // a persistent parameter: see roles.def

// -- Attributes ------------------------------------------------------------------------------

bool op_has_attr(const Op *op, const char *name);
const Attr *op_attr(const Op *op, const char *name); // BUG if the row has no such attribute
int64_t attr_i(const Op *op, const char *name);      // also of a bool
double attr_f(const Op *op, const char *name);
const char *attr_s(const Op *op, const char *name);
DType attr_t(const Op *op, const char *name);
int attr_n(const Op *op, const char *name); // length of a list
const int64_t *attr_list(const Op *op, const char *name);
void op_set_attr(Op *op, Attr attr);           // by name; lists, texts and bytes are copied
bool attr_same(const Attr *a, const Attr *b);  // of one kind; numbers by their bits
bool op_same_attrs(const Op *a, const Op *b);  // of two ops of the same kind
uint64_t attr_hash(uint64_t h, const Attr *a); // mixed into `h`
// The same for a hash table: of constants of megabytes only some bytes count.
uint64_t attr_bucket(uint64_t h, const Attr *a);

// -- Text ------------------------------------------------------------------------------------

// parse(print(m)) is m.  Functions that report errors return false or NULL after one.
void module_print(const Module *m, FILE *out);
const char *module_text(const Module *m, Arena *a);
const char *op_text(const Op *op, Arena *a); // one line, without indentation and location
Module *module_parse(const char *path, const char *text, size_t n, Diag *d);
Module *module_read(const char *path, Diag *d); // "-" is standard input

// Whether the module is well formed and keeps the promises of its phase.
bool module_verify(const Module *m, Diag *d);
// The same, except for graphs that had their promises in this phase, and are as they were then, as
// are all that they call: kept[i], by position in the module. NULL: none. From planned on all are
// checked, since the places of a body are relative to those of its caller.
bool module_verify_except(const Module *m, const bool *kept, Diag *d);

#define for_each_mesh(k, m)  for (const Mesh *k = (m)->meshes; k; k = k->next)
#define for_each_graph(g, m) for (Graph *g = (m)->graphs; g; g = g->next)
#define for_each_op(op, g)   for (Op *op = (g)->first; op; op = op->next)
// The body may erase the op.
#define for_each_op_safe(op, g)                                                                    \
  for (Op *op = (g)->first, *op##_next; op && (op##_next = op->next, 1); op = op##_next)
#define for_each_use(u, v) for (Use *u = (v)->uses; u; u = u->next)

#endif
