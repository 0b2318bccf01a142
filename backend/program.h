// State shared by the parts of the backend while they write one program.

#ifndef BACKEND_PROGRAM_H
#define BACKEND_PROGRAM_H

#include "backend.h"
#include "base/vec.h"
#include "base/whole_file.h"
#include "build.h"
#include "ir/analysis/boxes.h"
#include "ir/schedule.h"
#include "kernels.h"

// C names for values: see names.c.
typedef struct Names Names;
Names *names_new(Arena *a);
// The macro with the address of `v`, a value of `graph`.
const char *names_of(Names *n, const Value *v, const char *graph);
const Value *names_value(const Names *n, const char *name);
// The macro of a loop over equal calls, with the address at `offset`, as C, in place of that of the
// macro `name`.
const char *names_in_loop(Names *n, const char *name, int loop, const char *offset);
// Macros that a loop replaced are defined only if a line that is left reads them.
void names_replaced(Names *n, const char *name);
void names_read(Names *n, const char *name);
void names_text(const Names *n, StrBuf *out); // their definitions
// A C string literal; and text that is safe at the end of a line after //.
const char *c_string(Arena *a, const char *s);
const char *c_comment(Arena *a, const char *s);

// The rank program: that of all ranks on the same meshes.  See rank_programs.c.
typedef struct Code {
  const char *name; // "s0": it has the functions train_s0_micro, …; NULL if there is only one
  const char *who;  // its ranks: "0-3, 6 on @m, @s0"
  bool *on;         // by mesh id: whether its ranks are on the mesh
  // The run of its ranks in the loops of train and eval; NULL: empty, or no schedule.
  const RankRun *run[2];
  int64_t slab_bytes, host_bytes;
} Code;

// The ranks of a collective, as NnrtGroup.
typedef struct Group {
  const Mesh *mesh;
  MeshAxes axes;
} Group;

// A kernel that is prepared once.
typedef struct Prep {
  const char *call; // "nnrt_linear_prep_f32(32, 64, 48, false)"
  const char *graph;
  int op;     // the index of the first op that runs it, for errors
  bool *runs; // by rank program: whether it runs the kernel
} Prep;

// A constant of the program.
typedef struct Constant {
  const Value *value; // result of the constant op
  const char *name;
} Constant;

// Marks in a line, up to repeats_fold: a decimal number, or the macro of a value, that differs
// between equal calls.
#define MARK_NUMBER "\1"
#define MARK_PLACE  "\2"
// Around a text that is not written: lines with other texts are not equal.
#define MARK_KIND "\3"

// The rows of a table, with marks; when it is filled if they repeat.
typedef Vec(const char *) TableRows;
typedef enum FillTime { FILL_start, FILL_checks } FillTime;

// A line of a function.
typedef struct Call {
  const char *text;    // "RUN(3, nnrt_…);"
  const char *comment; // the line of IR, and its location
  bool joined;         // to the next line: both are of one op, and no part ends between them
} Call;
typedef Vec(Call) CallList;

// A task of the loop over slices, as NnrtTask: see loop.c.
typedef struct LoopPart {
  Action action;        // neither a segment nor a get: the whole loop
  const char *name;     // "F0", "get %g1"
  const char *function; // "train_s0_F0"; its wait and start are train_s0_F0_wait and …_start
  CallList wait, run, start;
} LoopPart;

// The calls of a rank program in a step of a graph.
typedef struct Calls {
  CallList begin, update; // see ir/analysis/place.h
  Vec(CallList) deferred; // deferred to the next step, by group: see ir/analysis/deferred.h
  Vec(LoopPart) part;
  Vec(int) order; // of parts; none: all of slice 0, then of slice 1, …
} Calls;

// The generated code of one entry graph.
typedef struct GraphCode {
  Graph *g;
  const char *name;        // "train"
  int index;               // 0 of train, 1 of eval
  Calls *calls;            // by rank program
  Vec(const char *) ops;   // names for errors and traces, of all rank programs
  Vec(const Op *) made_of; // by index of these: the op, or NULL
} GraphCode;

// A function or some kernels, and the microseconds that the compiler takes for them.
typedef struct Piece {
  StrBuf text;
  int64_t cost;
} Piece;

// A file beside program.c.
typedef struct SourceFile {
  const char *name;
  StrBuf text;
} SourceFile;

typedef struct Program {
  const Module *m;
  const BackendOptions *o;
  Arena *arena;
  Diag *d;
  Names *names;
  StrBuf defines, constants;  // of program.c
  CpuKernels *kernels;        // fused kernels in C
  StrBuf declarations;        // of functions that program.c calls in other files
  StrBuf device;              // those kernels
  Vec(const char *) function; // taken names
  int n_ranks;
  Vec(Code) code;
  int *code_of; // by rank
  Vec(Group) group;
  Vec(const Op *) move; // moves that transfer or copy something
  Vec(Prep) prep;
  StrBuf sizes; // tables of the elements of each tensor of a launch, for preparations
  Vec(Constant) constant;
  Vec(const Graph *) fused; // bodies with a kernel
  GraphCode train, eval;    // eval.g is NULL when there is none
  int64_t payload_bytes, skeleton_at;
  int64_t *payload_of; // by index of the train graph's parameters; -1: not in the payload
  Table *train_params; // by role and label
  // Files that are compiled in parallel (pieces.c), with parts of functions in some of them.
  bool divided;
  Vec(Piece) calls;
  Vec(SourceFile) files; // beside program.c, in the order of the fingerprint
  int loops;             // over equal calls and rows (repeats.c)
  StrBuf fill[2];        // calls of the functions that fill tables, by FillTime
  Sources *sources;
} Program;

// Finds the rank programs, the groups and the moves.  With --split-ranks there is one rank program,
// that of the only rank; the rest is the same in the programs of all ranks.
void codes_find(Program *p);
// Whether rank program `c` runs the ops on `mesh`, and whether any does.
bool code_on(const Program *p, int c, const Mesh *mesh);
bool mesh_runs(const Program *p, const Mesh *mesh);
int group_number(const Program *p, const Mesh *mesh, const MeshAxes *axes);
int move_number(const Program *p, const Op *move); // -1: nothing to transfer

// Makes the calls for all ops of a graph (calls.c).  Reports every op without a kernel.
void graph_calls(Program *p, GraphCode *code);

// Makes loops of repeated calls, in all functions, and removes the marks (repeats.c).
void repeats_fold(Program *p);
const char *repeats_plain(Arena *a, const char *text); // without the marks
// A C string literal with marked numbers.
const char *repeats_string(Arena *a, const char *s);
// The number of an operand, from 1, or of a result, from -1; marked if the op has many.
const char *repeats_operand(Arena *a, const Op *op, int number);
// Writes a table of these rows, with marks: constant, or if rows repeat, filled by a function at
// the start of the program or when values are checked.  `type`: of its elements; "char": strings.
void repeats_table(Program *p, StrBuf *out, const char *type, const char *name,
                   const TableRows *rows, FillTime when);

// Finds the parts of the loop of each rank program, and their order (loop.c).
void loops_find(Program *p, GraphCode *code);
LoopPart *loop_segment(Calls *calls, int segment); // NULL: the code does not run it
LoopPart *loop_get(Calls *calls, const Value *y);

// Assigns each weight its offset in the payload (payload.c).
void payload_plan(Program *p);
// The offset of a weight of @train, or of @eval, which shares those of @train.
int64_t payload_at(const Program *p, const Value *v);
bool payload_write(const Program *p, const char *path);
// Writes constants that are too large for a list of numbers to a file of their own.
bool constants_write(const Program *p, const char *path);
void constants_emit(Program *p);

// whole_file_open and whole_file_close with an error message (emit.c).
bool part_open(WholeFile *part, const char *path, Diag *d);
bool part_finish(WholeFile *part, const char *path, bool ok, Diag *d);
bool text_write(const char *path, const StrBuf *text, Diag *d);

// The name of a rank program's function: "train_update", "train_s0_update", "prepare_s0".
const char *function_name(Arena *a, const char *of, const Code *code, const char *part);

// The commands that make `program` of the sources (build.c), each after "//   " on a line of its
// own; "" without a runtime.
const char *backend_commands(const BackendOptions *o, const Sources *sources, Arena *a);

// Texts of program.c and of pieces (emit.c): a function of calls, with the words before `void`; a
// titled section, if it is not empty.
void calls_text(StrBuf *out, Arena *a, const char *linkage, const char *function,
                const CallList *list);
void section_text(StrBuf *out, const char *title, const StrBuf *text);

// Whether the program is divided into files that are compiled in parallel (pieces.c).
bool pieces_needed(const Program *p);
// The end of the part of a function that begins at call `from`: the end of the list if it is not
// divided.
int pieces_part_end(const Program *p, const CallList *list, int from);
// Writes a part as a function for calls_K.c; returns its name.
const char *pieces_part(Program *p, const char *function, int number, const CallList *list,
                        int from, int end);
// Adds program.h, calls_K.c and kernels_K.c to p->files, and counts them.
void pieces_emit(Program *p);
// Removes the files of these and higher numbers from a folder, which an earlier program may have
// left.
void pieces_remove(Arena *a, const char *dir, int n_calls, int n_kernels);

// Writes the tables that describe the program to the runtime, up to the field .proof; and that
// field, the fingerprint of the text of program.c so far and of its other files (tables.c).
void tables_emit(Program *p, StrBuf *out);
void proof_emit(const Program *p, StrBuf *out);
// Writes the tables about ranks, and the program's fields that point to them (tables_ranks.c).
void ranks_emit(const Program *p, StrBuf *out);
void ranks_add(const Program *p, StrBuf *out);

// Writes the tables of the values of the model's program, for --check-against (tables_model.c).
// Returns false if there are none: the plan was not proved.
bool model_values_emit(Program *p, StrBuf *out);

#endif
