// State of one validation, shared by its parts.

#ifndef VALIDATE_CHECK_H
#define VALIDATE_CHECK_H

#include "backend/backend.h"
#include "base/table.h"
#include "base/vec.h"
#include "c_text.h"
#include "ir/analysis/work.h"
#include "ir/schedule.h"

// A macro with an address, as a C compiler expands it.
typedef enum PlaceKind {
  PLACE_slab,     // r->slab + offset, and slots
  PLACE_host,     // r->host + offset
  PLACE_constant, // r->constant[offset]
  PLACE_prep,     // r->prep[offset]
} PlaceKind;

// A number in a loop over equal calls: "i * 4096 + 512", "at[3] + 256", "i"; in a loop in its body
// "i * 4096 + j * 64 + 512" and "in_2[3] + 256".
typedef struct LoopNumber {
  enum { NUMBER_plain, NUMBER_step, NUMBER_column } kind;
  int64_t of;    // the step, or the column
  int64_t inner; // the step per iteration of the inner loop
  int64_t plus;
  const char *array; // of the column
  int array_length;
} LoopNumber;

typedef struct MacroPlace {
  PlaceKind kind;
  const char *ctype; // of its elements; NULL: a preparation
  int64_t offset, slots, stride;
  LoopNumber number; // of a loop: in place of the offset, unless plain
} MacroPlace;

// A part of the body of a loop: text, and then a number or a place of the iteration.
typedef struct LoopPart {
  enum { PART_text, PART_number, PART_place } kind; // PART_text: nothing
  const char *text;
  int n;
  LoopNumber number;
  const char *name;        // of a place, without the number of the iteration
  const MacroPlace *place; // with another offset in each iteration
  Cursor at;               // for messages
} LoopPart;

// A row of a loop's table: from an iteration on a column has a number, and grows by a step.
typedef struct LoopSpan {
  int64_t from, column, value, step;
} LoopSpan;

// The numbers of a loop that do not grow evenly.  Those of an inner loop go on from iteration to
// iteration of the outer one.
typedef struct LoopColumns {
  const char *table;  // names: repeats_2,
  const char *next;   // span or span_2,
  const char *array;  // at or in_2
  int64_t n, *at;     // [2 * n]: the numbers of the row, and their steps
  Vec(LoopSpan) span; // by their first rows; the last is the end mark
  int next_span;      // that has not begun
  int64_t row;        // that is next
} LoopColumns;

// A loop over equal calls (repeats.c), or the iteration that the cursor is in.
typedef struct LoopText {
  int number; // among the loops of the text
  int64_t times, i;
  Cursor body; // after the brace
  Cursor after;
  bool inner;                 // in the body of another
  bool nests;                 // there are loops in its body
  LoopColumns *columns;       // or NULL: no line of the body reads one
  Vec(LoopColumns *) outside; // all that are declared before this loop: its own, and of inner loops
  Vec(LoopPart) part;         // of the body, from the first iteration on
  StrBuf text;                // of the iteration
} LoopText;

// A function or table of the text.
typedef enum UnitKind { UNIT_function, UNIT_leaf, UNIT_fused, UNIT_table, UNIT_external } UnitKind;

// Types of units that have no name in C.
#define TYPE_function "functions"
#define TYPE_text     "strings"
#define TYPE_points   "templates"
#define TYPE_kernel   "kernels"

typedef struct Unit {
  UnitKind kind;
  const char *name;
  const char *type; // of the elements of a table; of a function of kernels.cu
  int64_t length;   // of a table; -1: as many as it lists
  bool filled;      // a table: a function of the program fills it
  Cursor at;        // a function: its parameters; a table: its first element
  bool used;
  const char *text;          // UNIT_external: the assembler's text
  const struct Graph *fused; // UNIT_fused: a body that it computes
} Unit;

// A preparation of a rank program: PREPARE(P3, 7, nnrt_linear_prep_f32(32, 64, 48, false)).
typedef struct PrepCall {
  CToken name; // of the function
  Cursor args; // after the parenthesis
  int64_t op;  // for errors
  bool eval;   // of the graph that errors name
  int line;
  bool used;
} PrepCall;

// The functions of one rank program for a graph.
typedef struct TaskText {
  const char *name;
  const char *wait, *run, *start; // NULL: none
} TaskText;

typedef struct StepText {
  const char *begin, *update; // NULL: none
  int n_parts;
  TaskText *part; // [n_parts]
  Vec(int) order;
  bool ordered;
} StepText;

typedef struct CodeText {
  const char *prepare;
  StepText step[2]; // of train and eval
  int64_t slab_bytes, host_bytes;
  PrepCall *prep; // [n_prep of the program]; an empty name: not prepared here
  int line;
} CodeText;

typedef struct GraphText {
  int64_t n_tensors, n_ops;
  const char *tensors, *values; // names of tables
  const char **ops;             // [n_ops]
  const CallWork *work;         // [n_ops] of train; NULL: the graph is another
  const void **made_of;         // [n_ops]: the op, as op_key
} GraphText;

typedef struct GroupText {
  int64_t mesh;
  MeshAxes axes;
} GroupText;

// The field .proof: its begin, and its fingerprints.
typedef struct ProofText {
  Cursor begin; // of no file: it is not read so far
  CToken model, plan, program;
} ProofText;

// The fields of nnrt_program.
typedef struct ProgramText {
  const char *model, *plan, *target, *version, *describe, *schedule, *lr_schedule;
  const char *model_program; // name, or NULL
  const char *fill, *fill_checks;
  const char *mesh, *group, *move, *code, *code_of, *deferred, *holes, *constants; // names
  int64_t per_node, n_mesh, n_groups, n_moves, n_codes, n_deferred, n_holes, n_constants;
  int64_t ranks, micro_batches, split_rank, batch, payload_bytes, n_prep, seed;
  int64_t skeleton, skeleton_bytes;
  double lr;
  CToken plan_hash;
  GraphText graph[2];
  ProofText proof;
} ProgramText;

// A file of the text: program.c; its parts (backend/pieces.c); kernels.cu, if the target has it.
typedef enum FileKind { FILE_program, FILE_header, FILE_calls, FILE_kernels, FILE_device } FileKind;

typedef struct TextFile {
  FileKind kind;
  CFile text;
} TextFile;

typedef struct Check {
  const Module *m;
  const BackendOptions *o; // NULL: unknown
  const char *dir;
  Arena *arena;
  Diag *d;
  Target target;
  CFile program;         // program.c
  Vec(TextFile *) files; // the others, in the order of the fingerprint
  bool divided;          // into several C files
  int n_loops;           // over equal calls, that were opened
  Table *names;          // macros and units, by kind
  Vec(Unit *) units;
  int64_t prep_macros; // macros of preparations
  ProgramText p;
  CodeText *code;         // [n_codes]
  int *code_of;           // [ranks]
  const char **functions; // deferred updates: [n_deferred]
  GroupText *group;       // [n_groups]
  Vec(const Op *) moves;  // the moves that need a call, of all entry graphs in order
  int *move_of[2];        // by op id: the number of the move, from 1
  bool *ahead;            // [moves.n]: starts before its own segment
  const char **constant;  // [n_constants]: the name of the array
  int64_t *constant_bytes;
  const Value **constant_value; // [n_constants]: the value that it was compared with
  int64_t *prep_first;          // [n_prep]: the first op that runs it, by prep_key
  const Graph *graph[2];        // @train, or the first entry; @eval or NULL
  Table *params;                // of graph[0], by role and label
  // The rank program and the graph that are replayed, and the number of the current op.
  CodeText *at_code;
  int at_graph;
  int64_t number;
  // The preparation of a launch after its ops have named their values, or NULL.
  const PrepCall *named;
  // The function and the op at the cursor, for messages.
  const char *function;
  const Op *op;
  bool failed;
} Check;

enum { NAME_macro, NAME_unit, NAME_declared };

// Reports that the text is not the module's program, at a line of the text; once.  Returns false.
bool mismatch(Check *c, const Cursor *at, const char *fmt, ...) PRINTF_LIKE(3, 4);
// The same, with the token at the cursor: "WANTED is due here, not 'x'".
bool unexpected(Check *c, const Cursor *at, const char *wanted);

// Takes a pattern, a number, a name or a string that the module determines.  `what` is the subject
// of the message.
bool want(Check *c, Cursor *at, const char *pattern);
bool want_int(Check *c, Cursor *at, int64_t value, const char *what);
bool want_word(Check *c, Cursor *at, const char *value, const char *what);
bool want_string(Check *c, Cursor *at, const char *value, const char *what);
bool want_equal(Check *c, const Cursor *at, int64_t have, int64_t value, const char *what);

// All files as units and macros (units.c).
bool units_read(Check *c);
Unit *unit_find(Check *c, const Cursor *at, const char *name, UnitKind kind);
Unit *unit_find_typed(Check *c, const Cursor *at, const char *name, UnitKind kind,
                      const char *type);
MacroPlace *macro_find(const Check *c, const CToken *name); // of a loop as well
MacroPlace *place_find(const Check *c, const CToken *name);

// Loops over equal calls (repeats.c).
bool loop_number_read(Cursor *at, LoopNumber *out);
// Reads the head of a loop, with its table, if it is next; *found: it is.
bool loop_open(Check *c, Cursor *at, LoopText *loop, bool *found);
// The next iteration as text without i and at, from its first line; of no file: there is none.
bool loop_next(Check *c, LoopText *loop, Cursor *out);
// Reads the functions that fill tables, which become the text of their rows.
bool tables_fill(Check *c);
bool fill_check(Check *c); // nnrt_program calls each of them

// nnrt_program and the tables of ranks (tables.c), compared with the module (tables_check.c).
bool tables_read(Check *c);
bool tables_check(Check *c);
bool tensors_check(Check *c);
// The values of the model's program, after the replay (model_values.c).
bool model_values_check(Check *c);
bool proof_read(Check *c, Cursor *at); // after ".proof ="
bool proof_check(Check *c);

// Several ops in one launch.
typedef struct Launch {
  const Value **outside; // by id of a value of the callee: that of the caller
  const Op *cast;        // a narrow result of the callee, or NULL
} Launch;

// Operands and scalar arguments of calls (args.c).  `first`: no argument precedes.
bool want_place(Check *c, Cursor *at, const Value *v, const char *what);
bool want_args(Check *c, Cursor *at, const Op *op, int skip, bool first);
bool want_constant(Check *c, const Cursor *at, int64_t number, const Value *root);

// The call of an op, from the name of its function to the closing parenthesis (calls.c).
bool want_call(Check *c, Cursor *at, const Op *op, CodeText *code);
// Several ops in one launch (calls.c): whether a statement names the values of one of them; the
// statement of `member`, number `k`.
Launch launch_of(Check *c, const Op *op);
bool tensor_is_next(const Cursor *at);
bool want_tensor(Check *c, Cursor *at, const Launch *l, const Op *member, int k,
                 const CodeText *code);
// A number of the table of ops, which gives the op its name in errors and traces.
bool want_number(Check *c, const Cursor *at, GraphText *g, int64_t number, const Op *op, int which);

static inline int64_t prep_key(int graph, int64_t number) {
  return ((int64_t)graph << 32) + number;
}

// The calls of each rank program (replay.c).
bool replay(Check *c);
const void *op_key(const Op *op, int which); // 0: its call; 1: its move; 2: its wait

// Fused bodies (bodies.c).
bool body_check(Check *c, Unit *unit, const Op *fused);

#endif
