// The internal interface of the runtime: all of an executable besides its kernels.  nnrt.h is the
// external one.
//
// From the top: main.c reads the flags, opens everything that can be missing or wrong, and starts
// the ranks (launch.c, rank.c).  Each rank fills its slab, memory of a device (device.h, init.c or
// checkpoint.c), and goes through the steps (step.c): feed samples (data.c), run the graph, log
// (log.c, progress.c, tensorboard.c), evaluate (evaluate.c), checkpoint.  At the end rank 0 writes
// the requested files (save.c, export.c, trace.c).
//
// Ranks make the same calls in the same order.  Functions that exchange data between ranks are
// marked `collective`: all ranks must call them.  Functions that write files and are not marked are
// for rank 0.
//
// Functions that can fail for a reason the user should hear return false and describe it in a Why.

#ifndef NNRT_RUNTIME_H
#define NNRT_RUNTIME_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "nnrt.h"

// ---- error.c: error reports

typedef struct Why {
  char text[1024];
} Why;

bool nnrt_why(Why *w, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // returns false
#define why(...) nnrt_why(__VA_ARGS__)
void nnrt_say_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void nnrt_say_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void nnrt_say_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Sets the prefix of messages: the program's name, and the rank if several processes share a
// terminal.
void nnrt_say_as(const char *program, int rank, bool several);
_Noreturn void nnrt_end_job(int status); // at once, and the other ranks with it
// Called as the job ends with a status that is not 0: with the first line of the last error, NULL
// if this rank printed none.
void nnrt_before_end(void (*call)(int status, const char *error));
// Sets the hint that is printed if an operation of this thread fails now; NULL: none.
void nnrt_fail_hint(const char *hint);
// Prints the message of nnrt_fail without ending the job.
void nnrt_say_failed(const NnrtRank *r, int i, int code);
// As nnrt_fail, for a failure in one of the operations from `first` to `last`; -1: in none.
_Noreturn void nnrt_fail_between(NnrtRank *r, int first, int last, int code);
const char *nnrt_error_detail(void); // the text of this thread's last nnrt_error, or ""
void nnrt_put_shown(FILE *out, const char *text); // as a terminal may have it: utf8.h
void *nnrt_must_alloc(size_t n);                  // zeroed; ends the job when there is no memory
// Closes a stream of open_memstream; ends the job when there was no memory for its text.
void nnrt_must_close(FILE *stream, char *const *text);
_Noreturn void nnrt_out_of_memory(size_t bytes);
#define NNRT_LIMIT_HINT "hint: see ulimit -v and ulimit -u, and the memory of this machine"
void nnrt_say_here(const NnrtRank *r); // the rank that this thread is, for such messages
// Describes why a thread, such as "rank 1", was not created; returns false.
bool nnrt_why_thread(Why *w, const char *thread, int code);
void nnrt_catch_exceptions(void); // of libraries in C++: an error ends the job, not a signal
char *nnrt_must_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Appends to `text`, which is freed; NULL is "".
char *nnrt_must_append(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- config_agreement.c: the program, flags and data that all ranks share

// "name\0value\0file\0…", in the same order on all ranks.
typedef struct Terms {
  char *at;
  int64_t bytes;
} Terms;
void nnrt_terms_add(Terms *t, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// The same of a file: its path may differ between ranks, and is part of the message.
void nnrt_terms_add_file(Terms *t, const char *name, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void nnrt_terms_free(Terms *t);
// Returns the bytes of as many whole terms as fit into `most` bytes.
int64_t nnrt_terms_fit(const Terms *t, int64_t most);
// Collective: returns a code on failure.  The first difference, if any, is the same `w` on all.
int nnrt_terms_compare(NnrtRank *r, const Terms *t, bool *out_alike, Why *w);
// The terms of a rank; an empty name ends them.
typedef struct TermsOf {
  const char *at;
  int rank;
  const char *host; // "": unknown
} TermsOf;
// Whether the terms of two ranks differ; *w gets the first difference, with the hosts if these
// differ.
bool nnrt_terms_differ(TermsOf first, TermsOf other, Why *w);
// Returns each term in which some of the ranks differ from the first, with the first such rank;
// NULL: none.  The caller frees it.
char *nnrt_terms_list(const TermsOf *of, int n);
// Collective: returns a code on failure.  All ranks get the same such text, which the caller frees.
int nnrt_terms_differences(NnrtRank *r, const Terms *t, char **out_text);

// ---- flags.c, flags.def: the command line

typedef struct Flag {
  bool given;
  int64_t i;
  double f;
  const char *s;
  int n;             // of files or names
  const char **list; // "NAME=FILE", or a name
} Flag;

typedef struct Flags {
#define FLAG(field, kind, flag, value, agree, use, help) Flag field;
#include "flags.def"
} Flags;

// Exits for --help, and with status 2 for an unknown flag.
void nnrt_flags_parse(Flags *f, int argc, char **argv, const NnrtProgram *p);
void nnrt_flags_terms(const Flags *f, Terms *t); // of the flags that must agree
// Return seconds: for waits between ranks, INFINITY: without limit; and for all ranks to come.
double nnrt_stall_timeout(const Flags *f);
double nnrt_connect_timeout(const Flags *f);

// ---- checksum.c

uint64_t nnrt_xxh64(const void *data, int64_t n, uint64_t seed);
uint32_t nnrt_crc32c(uint32_t crc, const void *data, int64_t n); // 0 for no data

// ---- file.c: files that are complete or absent

const char *nnrt_base_name(const char *path); // "a/b.c" -> "b.c", in `path`

typedef struct OutFile {
  char *path, *temporary;
  int fd;
  int64_t at; // bytes written
  // Called when the disk is full; true: it has more space, so the write is repeated.
  bool (*make_room)(void *of);
  void *room_of;
} OutFile;

bool nnrt_out_begin(OutFile *o, const char *path, Why *w);
// The same, for a name that the runtime has made: if it is a link, the link is replaced.
bool nnrt_out_begin_here(OutFile *o, const char *path, Why *w);
bool nnrt_out_reserve(OutFile *o, int64_t bytes, Why *w); // false: they do not fit on the disk
bool nnrt_out_write(OutFile *o, const void *data, int64_t n, Why *w);
bool nnrt_out_write_at(OutFile *o, int64_t at, const void *data, int64_t n, Why *w);
bool nnrt_out_flush(OutFile *o, Why *w);  // to the disk
bool nnrt_out_commit(OutFile *o, Why *w); // flushed to the disk and renamed, directory included
void nnrt_out_abandon(OutFile *o);        // leaves no file
bool nnrt_out_possible(const char *path, Why *w); // whether `path` can be written
bool nnrt_out_same(const char *a, const char *b); // whether the two would be one file
// Takes the kernel's lock of a file.  The processes of a failed run may end after its launcher, so
// a lock is waited for, up to 3 s.  Returns an error number; EWOULDBLOCK: another run has it.
int nnrt_lock(int fd);
bool nnrt_make_folder(const char *path, Why *w); // unless it exists; its parent must exist

typedef struct InFile {
  const uint8_t *at; // mapped
  int64_t bytes;
  int code; // errno, if the system could not open or map it; 0 of any other failure
} InFile;
bool nnrt_in_open(InFile *f, const char *path, Why *w);
void nnrt_in_close(InFile *f);

// ---- records.c: files that grow by whole records

typedef struct Records {
  int fd; // -1: none
  char *path;
  bool is_file;            // not a pipe or a device
  bool failing;            // the last record could not be written, which was reported
  int code;                // errno of the last failure
  char *waiting;           // records that could not be written yet, each after its length
  int64_t n_waiting, done; // their bytes; bytes of the first that are written
  int64_t lost;            // records that are too many to wait
} Records;

void nnrt_records_begin(Records *r, int fd, const char *path); // `fd` appends
// Writes it now, or later: a failure is a warning.
void nnrt_records_add(Records *r, const void *record, int64_t n);
// Writes the waiting records and closes the file; if some are lost, reports an error and returns
// false.
bool nnrt_records_end(Records *r);

// ---- payload.c: the parts of the executable's file

bool nnrt_payload_open(const NnrtProgram *p, const uint8_t **out, Why *w);
// Compares the checksums of the payload's blocks with these bytes, once each.
bool nnrt_payload_check(const NnrtProgram *p, int64_t at, int64_t bytes, Why *w);
// The process needs this range no longer in memory: reading it again reads the file.
void nnrt_payload_release(int64_t at, int64_t bytes);
// Returns execution plans of libraries, made ahead of time; NULL and 0 if none, or damaged.
const char *nnrt_payload_plans(int64_t *out_bytes);
void nnrt_payload_refuse(void); // ends a rank with a damaged program, if the start has not
// Compares all checksums, and prints a line for each part; false if one is damaged.
bool nnrt_payload_verify(const NnrtProgram *p, FILE *out);
int64_t nnrt_program_bytes(void); // of the file before the payload; INT64_MAX: all of it

// ---- append.c

// Writes the executable again, with this payload, and plans if there is a second file.
bool nnrt_append(const NnrtProgram *p, const Flag *files, Why *w);

// ---- tensor.c: shapes, boxes and element types

const char *nnrt_dtype_name(NnrtDtype t);
int64_t nnrt_dtype_size(NnrtDtype t);
int64_t nnrt_tensor_count(const NnrtTensor *t); // of the whole tensor
// Sets the whole tensor's dimensions for users and files; returns their number.
int nnrt_tensor_known(const NnrtTensor *t, const int64_t **dim);
int64_t nnrt_tensor_known_count(const NnrtTensor *t); // of elements in files: without padding
bool nnrt_tensor_padded(const NnrtTensor *t);         // whether it has more
bool nnrt_tensor_floating(const NnrtTensor *t);
bool nnrt_tensor_saved(const NnrtTensor *t); // weight or state: a checkpoint holds it
bool nnrt_tensor_lasts(const NnrtTensor *t); // persistent state: also a copy

typedef struct ShapeText {
  char at[96];
} ShapeText;
ShapeText nnrt_shape_text(NnrtDtype dtype, const int64_t *dim, int ndim); // "f32[8,512]"
ShapeText nnrt_tensor_text(const NnrtTensor *t); // the same with a tensor's dimensions for users

// The shard of a tensor that one rank has in one slice of time.
typedef struct Part {
  int64_t start[NNRT_MAX_NDIM], size[NNRT_MAX_NDIM];
  bool whole;
} Part;
// Returns the part of the rank at `coord` of the tensor's mesh.
Part nnrt_tensor_part(const NnrtTensor *t, const NnrtProgram *p, const int *coord);
// Sets the current part of this rank; false: it is not on the tensor's mesh.
bool nnrt_part_here(const NnrtRank *r, const NnrtTensor *t, Part *out);
int64_t nnrt_part_count(const NnrtTensor *t, const Part *part);
// Returns the address of this rank's part: in the slab, or in host memory.
char *nnrt_tensor_at(const NnrtRank *r, const NnrtTensor *t);
bool nnrt_on_host(const NnrtRank *r, const void *at);
// Copies the part of `whole` to that address.  Here and below a whole tensor is without padding,
// and padding of a part is zero.
void nnrt_part_put(NnrtRank *r, const NnrtTensor *t, const Part *where, const void *whole);
// Copies bytes `at` to `at + bytes - 1` of the part.
void nnrt_part_from_whole(void *out, const void *whole, const NnrtTensor *t, const Part *where,
                          int64_t at, int64_t bytes);
void nnrt_whole_from_part(void *whole, const void *part, const NnrtTensor *t, const Part *where);

// A box of a tensor as `n` runs of `length` elements, each contiguous in the box and in the tensor.
typedef struct Runs {
  int ndim;
  const int64_t *dim, *start, *size; // of the whole, and of the box in it
  int64_t length, n;
} Runs;
Runs nnrt_part_runs(int ndim, const int64_t *dim, const int64_t *start, const int64_t *size);
int64_t nnrt_run_start(const Runs *runs, int64_t i); // in the whole tensor

double nnrt_element_at(const void *from, NnrtDtype t, int64_t i);
void nnrt_element_set(void *to, NnrtDtype t, int64_t i, double x); // rounds to nearest even
void nnrt_convert(void *out, NnrtDtype to, const void *in, NnrtDtype from, int64_t n);
const NnrtTensor *nnrt_find_tensor(const NnrtGraph *g, NnrtRole role, const char *name);

// ---- meshes.c: positions of ranks on meshes

int nnrt_mesh_place(const NnrtMesh *m, int rank); // in its list; -1: it is not on the mesh
bool nnrt_on_mesh(const NnrtRank *r, int mesh);
// Sets the coordinates of a position on the mesh, in the first slice of time.
void nnrt_mesh_coord(const NnrtMesh *m, int place, int *coord);
void nnrt_set_coords(NnrtRank *r); // sets r->coord for slice r->micro; allocates it the first time

// ---- program.c: the code of a rank, and the identity of the program

const NnrtRankProgram *nnrt_code_of(const NnrtProgram *p, int rank);
// Returns the number of pieces of a step: 0 is the part before the loop over slices, then come all
// occurrences of parts in the loop, and the last is the part after it.
int nnrt_pieces(const NnrtRank *r, const NnrtSchedule *s);
const NnrtTask *nnrt_part_of(const NnrtSchedule *s, int piece); // of a piece in the loop
// Adds terms that are equal for all executables of one --split-ranks.
void nnrt_program_terms(const NnrtProgram *p, Terms *t);

typedef struct Whole {
  char *at; // the caller frees it
  int64_t bytes;
} Whole;
// Collective: returns a whole tensor, without padding, at rank 0 (NULL elsewhere), valid until the
// next call with `memory`.
const void *nnrt_tensor_whole(NnrtRank *r, const NnrtTensor *t, Whole *memory);

// ---- npy.c: NumPy's files

typedef struct Npy {
  InFile file;
  NnrtDtype dtype;
  bool swapped; // big-endian
  int ndim;
  int64_t dim[NNRT_MAX_NDIM];
  const uint8_t *data;
} Npy;
bool nnrt_npy_open(Npy *a, const char *path, Why *w);

// ---- data.c, shuffle.c: samples for inputs.  Texts of users and checkpoints call them rows.

// The order of samples, the seeds, and the schedule of the learning rate.  Step `first` follows
// `read` samples, which steps of any batch size have read.
typedef struct DataOrder {
  int64_t seed;
  bool shuffle;
  int64_t shuffle_seed, samples;
  int64_t first, read;
  int64_t length;   // of a sample of tokens; 0 without tokens
  int64_t lr_steps; // of the learning rate's schedule; -1: constant, or unknown
  bool compared;    // of a checkpoint: its data was compared with this run's
} DataOrder;

// Returns element i of the permutation of 0..n-1 for (seed, epoch); in O(1) memory.
int64_t nnrt_shuffled(int64_t i, int64_t n, int64_t seed, int64_t epoch);

typedef struct Shard { // one of the files of an input
  const char *path;
  Npy npy;
  int64_t first, samples; // of the input
  int64_t sample_bytes;   // in the file
} Shard;

typedef struct Source { // of one input
  const NnrtTensor *input;
  int n_shards;
  Shard *shard;
  int64_t samples; // of all files; 0: the same for every step
  int64_t skip;    // samples before the first of them
  int64_t each; // positions of a sample along dimension 0: labels of [samples x length] have length
  bool tokens;
} Source;

// ---- shards.c: the files of an input

// Adds the file, or all files that match a shell pattern.
bool nnrt_shards_find(Source *s, const char *pattern, Why *w);
// Opens a flat stream of tokens: .npy, or .bin, which is plain u16 or has the header of llm.c.
bool nnrt_tokens_open(Npy *a, const char *path, Why *w);

typedef struct Data {
  const NnrtGraph *graph;
  int n;
  Source *source;
  int64_t samples, batch;
  int64_t length; // of a sample of tokens; 0 without tokens
} Data;
bool nnrt_data_open(Data *d, const NnrtProgram *p, const NnrtGraph *g, const Flag *input,
                    const Flag *tokens, const char *prefix, Why *w);
// Reports files with another floating-point type than their inputs.
void nnrt_data_say_converted(const Data *d, const char *prefix);
// Returns the number of samples that the steps before `step` read.
int64_t nnrt_samples_read(const Data *d, const DataOrder *order, int64_t step);
// Returns the same inputs, restricted to samples first … first + n - 1; the caller frees its
// `source`.
Data nnrt_data_samples(const Data *d, int64_t first, int64_t n);
// The batch that a run of a graph reads.
typedef struct NnrtFed {
  const Data *data;
  const DataOrder *order;
  int64_t step;
} NnrtFed;
// Returns notes with the first sample of each input that holds the integer in this batch; the
// caller frees them.  "" if no input holds it, or `fed` is NULL.
char *nnrt_data_find(const NnrtFed *fed, int64_t value);
// Copies this rank's shard of micro-batch r->micro into the slab.
bool nnrt_data_feed(const NnrtFed *fed, NnrtRank *r, Why *w);

// ---- lr_schedule.c: the learning rate

typedef struct LrSchedule {
  enum { LR_constant, LR_linear, LR_cosine } kind;
  double lr, min;
  int64_t warmup, horizon;
} LrSchedule;
bool nnrt_lr_schedule_parse(LrSchedule *s, const char *spec, double lr, Why *w);
// Returns the learning rate of a schedule of s->horizon steps.
double nnrt_lr_schedule_at(const LrSchedule *s, int64_t step);

// ---- json.c: a pull parser for one text

typedef struct Json {
  const char *at, *end;
  const char *error; // NULL: no error
} Json;
bool nnrt_json_take(Json *j, char c);      // skips white space; if `c` is next, takes it
bool nnrt_json_want(Json *j, char c);      // the same, and an error if not
char *nnrt_json_string(Json *j);           // allocated; NULL on error
bool nnrt_json_int(Json *j, int64_t *out); // from 0, without a fraction
bool nnrt_json_skip(Json *j);              // any value
void nnrt_json_write_string(FILE *f, const char *s);

// ---- safetensors.c

typedef struct StTensor {
  char *name;
  NnrtDtype dtype;
  int ndim;
  int64_t dim[NNRT_MAX_NDIM];
  int64_t begin, end; // in the data
} StTensor;

typedef struct StText {
  char *key, *value;
} StText;

typedef struct StFile {
  InFile file;
  const char *header; // [header_bytes]
  int64_t header_bytes;
  const uint8_t *data;
  int64_t data_bytes;
  StTensor *tensor;
  int n_tensors;
  StText *text;
  int n_texts;
} StFile;

bool nnrt_st_open(StFile *f, const char *path, Why *w);
void nnrt_st_close(StFile *f);
const StTensor *nnrt_st_find(const StFile *f, const char *name);
const char *nnrt_st_text(const StFile *f, const char *key);
// Places the tensors contiguously, sets begin and end, and returns the file's first bytes: length
// and header.  The caller frees them.
char *nnrt_st_header(StTensor *tensor, int n_tensors, const StText *text, int n_texts,
                     int64_t *bytes);

// ---- save.c, export.c.  Collective.

bool nnrt_save_weights(NnrtRank *r, const char *path, Why *w);
bool nnrt_export_model(NnrtRank *r, const char *path, Why *w);

// ---- checkpoint.c; its folder: checkpoint.h

// Of ranks other than 0 only the name of the folder, which need not exist.
typedef struct Checkpoints {
  const char *dir;
  int keep;
  int64_t last;   // step of the newest complete one, -1: none known
  bool failed;    // the last save
  bool anew;      // this run does not resume from the folder
  int generation; // of the checkpoints that this run has set aside; 0: none yet
  StText *of;     // fingerprints of this run's program and data
  int n_of;
  StFile resumed; // the one of step `last`, from nnrt_checkpoint_find to nnrt_checkpoint_load
} Checkpoints;

// Compares all checksums of each, and prints a line for each; false if one is damaged or
// unreadable.
bool nnrt_checkpoints_verify(const char *dir, FILE *out);
// Opens the newest complete one, and sets its step, -1 if there is none; false if all are damaged,
// or a newer one than those is unreadable.
bool nnrt_checkpoint_find(Checkpoints *c, int64_t *out_step, Why *w);
// Returns the step of the newest complete or unreadable one after `step`, -1: there is none.
int64_t nnrt_checkpoint_after(const Checkpoints *c, int64_t step);
// Collective.  Failing is a warning: the previous checkpoint remains and training continues.
void nnrt_checkpoint_save(Checkpoints *c, NnrtRank *r, int64_t step, const DataOrder *order);

// ---- checkpoint_folder.c

// With `writes`, makes the folder, and locks it against other runs until nnrt_checkpoint_unlock.
bool nnrt_checkpoint_open(Checkpoints *c, const char *dir, int keep, bool writes, Why *w);
void nnrt_checkpoint_unlock(void);

// ---- checkpoint_load.c

// Collective: loads the checkpoint that rank 0 has opened.  False: it is of another program, as
// rank 0 reports.
bool nnrt_checkpoint_load(Checkpoints *c, NnrtRank *r, DataOrder *out_order);

// ---- fingerprints.c

// Adds the identity of each file: rows, bytes, and a checksum of samples.  `prefix` is "" or
// "eval-".
void nnrt_data_terms(const Data *d, const char *prefix, Terms *t);
void nnrt_fingerprints_find(Checkpoints *c, const NnrtProgram *p, const Data *d);
// Reports differences of the checkpoint's program and data from those of this run; false: the
// checkpoint is of an older nnaot, and has no fingerprints of its data.
bool nnrt_fingerprints_compare(const Checkpoints *c, const StFile *f);

// ---- check_values.c: NaN in results

void nnrt_checks_start(NnrtRank *r);
// Returns the operation that first made infinite values from finite ones; NULL: none did.
const char *nnrt_checks_infinite(const NnrtRank *r);

// ---- log.c, progress.c, tensorboard.c: reports of a step

enum { MAX_METRICS = 4 };

// The results of an evaluation.
typedef struct Evaluation {
  double loss;
  int n_metrics;
  const char *metric[MAX_METRICS]; // as named by --metric
  double value[MAX_METRICS];
} Evaluation;

typedef struct StepReport {
  int64_t step, steps, first; // first: of this run
  float loss, grad_norm;
  bool has_grad_norm, has_eval;
  bool has_loss_scale, skipped; // skipped: no weight was updated
  float loss_scale;             // for the next step
  double lr, step_ms, samples_per_s;
  Evaluation eval;
} StepReport;

// Opens the log to append, and locks it against other runs; its contents stay.
bool nnrt_log_open(Records *log, const char *path, Why *w);
void nnrt_log_step(Records *log, const StepReport *s);
void nnrt_log_eval(Records *log, int64_t steps, const Evaluation *e); // `steps` are done
// "eval_loss 2.31  accuracy(y) 0.5"
char *nnrt_eval_text(const Evaluation *e); // freed by the caller

void nnrt_progress_step(const StepReport *s);
void nnrt_progress_end(void); // the next message begins a line

// ---- log_resume.c

bool nnrt_log_empty(Records *log, Why *w);
// Removes the lines of the steps from `first_step` on, and lines that were cut.
bool nnrt_log_resume(Records *log, int64_t first_step, Why *w);

// ---- tensorboard.c

bool nnrt_events_open(Records *events, const char *dir, int64_t first_step, Why *w);
void nnrt_events_step(Records *events, const StepReport *s);

// ---- timings.c: sums of the trace's times by operation

typedef struct NnrtTimings NnrtTimings;

NnrtTimings *nnrt_timings_new(const NnrtGraph *g);
void nnrt_timings_add(NnrtTimings *t, int op, double us); // a call of operation `op` of the graph
void nnrt_timings_step(NnrtTimings *t, double us); // a step, from its first operation to its last
// Collective: measures the limits of the machine, prints the table on rank 0, and frees it.
void nnrt_timings_end(NnrtTimings *t, NnrtRank *r);

// ---- roofline.c: the least time of an operation, by the limits of the machine

typedef struct NnrtRoofline NnrtRoofline;

enum { LIMIT_f32, LIMIT_bf16, LIMIT_f16, LIMIT_cache, LIMIT_memory, N_LIMITS };
extern const char *const nnrt_limit_name[N_LIMITS];

// Collective: measures them on all ranks at the same time.
NnrtRoofline *nnrt_roofline_measure(NnrtRank *r);
void nnrt_roofline_free(NnrtRoofline *f);
// Prints a line for each limit.
void nnrt_roofline_print(const NnrtRoofline *f, const NnrtRank *r);
// Returns the time in us that the machine takes for such a call at least, and sets its limit; 0:
// unknown, or there is no work.
double nnrt_roofline_us(const NnrtRoofline *f, const NnrtWork *w, int *out_limit);

// ---- trace.c

// The subject of an event, by its name in the graph: "linear  mlp.onnx:/fc1/MatMul".
typedef struct TraceOf {
  const char *name; // NULL: of no op
  int64_t step;
  int slice; // -1: outside of the loop over slices
  const NnrtGraph *graph;
  int op; // its index in the graph
} TraceOf;

// Concurrent activities of a rank: threads of its trace.
enum {
  TRACE_ops,
  TRACE_comm,
  TRACE_segments,
  TRACE_moves, // from one segment to another
  TRACE_out,   // copies to host memory
  TRACE_in,    // and back
  N_TRACES
};

void nnrt_trace_start(NnrtRank *r);
TraceOf nnrt_trace_of(const NnrtRank *r); // the current op
// The current op overlaps the others: it is an event of another thread.
void nnrt_trace_elsewhere(NnrtRank *r);
// The current op starts copy number `copy`, which completes later; nnrt_trace_said returns that op.
void nnrt_trace_later(NnrtRank *r, int copy);
TraceOf nnrt_trace_said(const NnrtRank *r, int copy);
// Adds an event from one mark of device.h to another; or in time of the host's clock.
void nnrt_trace_device(NnrtRank *r, int thread, TraceOf of, int64_t from, int64_t to);
void nnrt_trace_host(NnrtRank *r, int thread, TraceOf of, double from_us, double to_us);
void nnrt_trace_segment(NnrtRank *r, const char *name, int64_t from); // ends now
void nnrt_trace_resolve(NnrtRank *r);       // once the traced work is complete
void nnrt_trace_print_timings(NnrtRank *r); // of --timings; ends the trace if there is no --trace
bool nnrt_trace_write(NnrtRank *r, const char *path, Why *w); // collective
double nnrt_now_us(void);

// ---- preinit.c: the first function of a program

// False: standard input, output or error is closed, and cannot be opened.
bool nnrt_preinit(int argc, char **argv, Why *w);

// ---- crash.c

// Reports faults of kernels and libraries; in the main thread, which it gives an alternate stack.
void nnrt_crash_watch(const char *program);
// Again: UCX, which an MPI library may use, has taken the signals for its debugging.
void nnrt_crash_watch_again(void);
// Gives this thread an alternate stack; reports of its faults name the rank, or none, and `role`,
// which is static.
void nnrt_crash_thread(const NnrtRank *r, const char *role);

// ---- signals.c

void nnrt_signals_begin(void); // first in main: those that do not end the job
// Starts the thread that takes signals; after the last fork, and before any other thread.
void nnrt_signals_listen(void);
void nnrt_signals_catch(void); // as ranks begin
int nnrt_signal_seen(void);    // SIGTERM, SIGINT or 0
// Returns the number of SIGUSR1 or SIGHUP that this process got and no checkpoint has served.
int nnrt_signal_requests(int signal);
// A checkpoint serves n of them: if this process got fewer, the others are expected to come.
void nnrt_signal_served(int signal, int n);

// ---- stacks.c

void nnrt_stacks_begin(void);
void nnrt_stacks_as(const char *program);
// As nnrt_crash_thread: the calling thread is one of the rank, which lives as long as it, or of
// none, NULL; `role` is static.  A later call replaces it.
void nnrt_stacks_add(const NnrtRank *r, const char *role);
// Sets a function that tells the other processes, in a signal handler.
void nnrt_stacks_tell(void (*tell)(void));
_Noreturn void nnrt_stacks_quit(void); // as if this process had got SIGQUIT

// ---- launch.c: the launcher

typedef struct Launch {
  enum { LAUNCH_none, LAUNCH_mpi, LAUNCH_torchrun, LAUNCH_slurm } kind;
  const char *said_by; // the variable that identified the launcher
  int rank, world;
  int local_world;  // ranks on this machine, 0: unknown
  int local_rank;   // index of this rank among them, -1: unknown
  const char *host; // of rank 0
  int port;
  bool one_host; // all ranks are known to be on this machine
} Launch;
bool nnrt_launch_find(Launch *l, Why *w);
int nnrt_launch_threads(const Launch *l, int ranks_here); // OpenMP threads per rank
// The same for a process that may run on `cores` of `online` processors, and whose ranks together
// have the time of `quota` processors; INFINITY: without a limit.
double nnrt_launch_processors(const Launch *l, int ranks_here, int cores, int online,
                              double quota); // of a rank: 0.5 if two ranks share one
int nnrt_launch_share(const Launch *l, int ranks_here, int cores, int online, double quota);

// ---- node.c: --node

// With --node, starts the ranks of this host, in which it returns; the process itself ends with
// their status.
void nnrt_node_start(const Flags *f, const NnrtProgram *p);

// ---- omp_spin.c

// Starts this process again, once, with an OpenMP that spins less; called before anything that
// could not be done twice.
void nnrt_spin_less(char **argv);
// The threads of the machine that run or wait for a processor, by /proc/stat in the folder `root`;
// -1: unknown.
int nnrt_spin_runnable(const char *root);
// The iterations for `threads` of this machine's `processors` when `others` need one, too.
int nnrt_spin_count(int others, int threads, int processors);

// ---- cgroup.c: the limits of this process's cgroups

// /proc and /sys are looked up in the folder `root`, "" outside tests.  INFINITY: without a limit.
double nnrt_cgroup_memory(const char *root); // bytes
double nnrt_cgroup_cpus(const char *root);   // processors, such as 1.5
// The processors of a quota and its period, such as "150000 100000".
double nnrt_cgroup_quota(const char *text);

// ---- memory.c: checks of the memory size

double nnrt_memory_free(void); // bytes available to this process; INFINITY: unknown
#define NNRT_MEMORY_HINT                                                                           \
  "hint: more ranks on more machines, more --micro-batches or a smaller --batch when compiling"
typedef struct Slabs { // of some ranks
  int n;
  double all, largest; // bytes
} Slabs;
// Adds the rank's slab, its host memory, or both.
void nnrt_slabs_add(Slabs *s, const NnrtProgram *p, int rank, bool slab, bool host);
// Whether they fit into `bytes`, the available memory of kind `what`.
bool nnrt_memory_enough(const Slabs *s, double bytes, const char *what, Why *w);
typedef struct Amount {
  char text[32];
} Amount;
Amount nnrt_amount(double bytes); // "1.5 GiB"

// ---- reserve.c

void nnrt_reserve_process(void); // before any thread is started
// Checks the limit of the main thread's stack, and raises it and that of threads if it can.
bool nnrt_reserve_stack(Why *w);
// Reserves stack and OpenMP threads for the rank, whose thread this is.
bool nnrt_reserve(const NnrtRank *r, Why *w);
bool nnrt_memory_left(size_t bytes); // whether so many could be mapped now

// ---- comm.h: communication between ranks ---- device.h: the device that computes

// ---- init.c: initial contents

// False: the payload is damaged.
bool nnrt_init_tensor(NnrtRank *r, const NnrtTensor *t, int64_t seed, Why *w);
bool nnrt_init_tensors(NnrtRank *r, int64_t seed, Why *w); // all that checkpoints hold
void nnrt_init_copies(NnrtRank *r);                        // from the current weights

// ---- evaluate.c

// Whether the loss of @eval is over whole batches only, as no sample has a loss of its own.
bool nnrt_eval_couples_samples(const NnrtProgram *p);

// ---- step.c

// Collective: runs all steps, evaluation and checkpoints; returns the exit status.
int nnrt_train(NnrtRank *r);

// ---- rank.c

// Connects to the other processes, if any.  Called before any check that may fail on some of them
// only: a launcher is sure to notice the end of a process only after that has connected.  If the
// launcher has started more or fewer processes than the program has ranks, they can only compare
// terms and end.
bool nnrt_ranks_connect(struct NnrtRun *run, Why *w);
// Collective: frees the terms, and ends the job with `status` if ranks differ in them.
void nnrt_ranks_compare(struct NnrtRun *run, Terms *t, const char *hint, int status);
// Ends a process that has not connected, once its launcher is sure to notice.  Of ranks with the
// same message, rank 0 prints it.
_Noreturn void nnrt_ranks_refuse(int status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Collective: if some ranks have failed, the first of them reports why, and all end with its
// status. A status of 0: this rank has not.
void nnrt_ranks_check(struct NnrtRun *run, int status, const char *text);
// Collective: the sums over all processes.
void nnrt_ranks_sum(struct NnrtRun *run, int64_t *x, int n);
// Collective, of ranks that all know the reason: rank 0 reports it, and all end.
_Noreturn void nnrt_ranks_end(struct NnrtRun *run, const char *text, int status);
// Runs all ranks of this process to their end; returns the exit status.
int nnrt_ranks_run(struct NnrtRun *run);

// ---- kernel_agreement.c

// Collective: restricts the kernels of all ranks to the instruction sets that all of them have,
// and to the smallest number of threads; `set` is this rank's (nnrt_device_isa).
bool nnrt_kernels_agree(struct NnrtRun *run, int64_t set, Why *w);

// ---- rounding_agreement.c

// Collective, once kernels agree: returns the differences of ranks on which rounding depends; NULL:
// none, so replicas have equal bits.  All ranks get the same text; the caller frees it.
char *nnrt_rounding_differences(NnrtRank *r);

// ---- describe.c

void nnrt_describe(const NnrtProgram *p, const Flags *flags, FILE *f);

// The settings and files that all ranks of this process share.  Only rank 0 changes the fields from
// `log` on.
typedef struct NnrtRun {
  const NnrtProgram *program;
  struct Peers *peers; // peers.h; NULL until ranks connect, or start
  Flags flags;
  Launch launch;
  const uint8_t *payload;
  Data data, eval_data;
  bool has_eval;
  LrSchedule schedule;
  int64_t seed;
  int64_t steps; // in all
  int threads;   // OpenMP threads of each rank; 0: as OMP_NUM_THREADS
  Records log, events;
  Checkpoints checkpoints;
  struct Reference *reference; // of --check-against; else NULL
} NnrtRun;

// ---- memory_watch.c

bool nnrt_in_use_possible(const NnrtRun *run, Why *w); // true without --memory
void nnrt_in_use_start(NnrtRank *r);                   // collective
// Stops watching until the next operation, so that system calls may read the slab.
void nnrt_in_use_rest(NnrtRank *r);
// A communication from x, or NULL, into y uses both from here on, until it is waited for.
void nnrt_in_use_lend(NnrtRank *r, const void *y, int64_t y_bytes, const void *x, int64_t x_bytes);
void nnrt_in_use_back(NnrtRank *r, const void *y);
// Collective: stops watching, and rank 0 writes.
bool nnrt_in_use_write(NnrtRank *r, const char *path, Why *w);

#endif
