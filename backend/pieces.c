// Divides a large program into files that are compiled in parallel:
//
//     program.c      tables, and functions of at most PART calls           -O1
//     program.h      places of values, and declarations, for the others
//     calls_0.c …    longer functions, in parts: train_micro_0, …          -O1
//     kernels_0.c …  fused kernels, those of one leaf in one file          -O3
//
// A small program is program.c alone.  The time of compiling is estimated from the text, and files
// have about equal shares of it.  The division depends on the program alone, not on --jobs, so that
// a program has one text and one fingerprint.
//
// Lists of calls run once per step and do no work themselves, so they need no optimisation; in long
// functions it takes more than linear time.

#include <string.h>
#include <unistd.h>

#include "program.h"

// Microseconds of gcc on one core: of a byte of calls, a kernel, its leaf, and a byte of that; of a
// program that is not divided, and of a file.
enum {
  CALL_BYTE = 5,
  KERNEL = 8000,
  LEAF = 20000,
  LEAF_BYTE = 60,
  WHOLE = 600000,
  FILE_SHARE = 500000
};
enum { PART = 128, MOST_FILES = 64 };

static int64_t kernels_cost(const LeafKernels *k) {
  int64_t leaf = k->leaf ? LEAF + LEAF_BYTE * (int64_t)strlen(k->leaf) : 0;
  return leaf + KERNEL * k->kernels.n;
}

static int64_t list_cost(const CallList *list) {
  int64_t cost = 0;
  for (int i = 0; i < list->n; i++)
    cost += CALL_BYTE * (int64_t)strlen(list->at[i].text);
  return cost;
}

static int64_t calls_cost(const Calls *calls) {
  int64_t cost = list_cost(&calls->begin) + list_cost(&calls->update);
  for (int i = 0; i < calls->deferred.n; i++)
    cost += list_cost(&calls->deferred.at[i]);
  for (int i = 0; i < calls->part.n; i++)
    cost += list_cost(&calls->part.at[i].wait) + list_cost(&calls->part.at[i].run) +
            list_cost(&calls->part.at[i].start);
  return cost;
}

bool pieces_needed(const Program *p) {
  int64_t cost = 0;
  for (int i = 0; i < p->kernels->at.n; i++)
    cost += kernels_cost(p->kernels->at.at[i]);
  for (int c = 0; c < p->code.n; c++)
    cost += calls_cost(&p->train.calls[c]) + (p->eval.g ? calls_cost(&p->eval.calls[c]) : 0);
  return cost > WHOLE;
}

int pieces_part_end(const Program *p, const CallList *list, int from) {
  if (!p->divided || list->n <= PART) return list->n;
  int end = from + PART < list->n ? from + PART : list->n;
  // The lines of an op stay together.
  while (end < list->n && list->at[end - 1].joined)
    end++;
  return end;
}

// A name of a function that no other has.
static const char *free_name(Program *p, const char *function, int number) {
  const char *name = str_format(p->arena, "%s_%d", function, number);
  for (int i = 0; i < p->function.n; i++)
    if (str_equal(p->function.at[i], name)) return free_name(p, name, number);
  vec_push(p->arena, &p->function, name);
  return name;
}

const char *pieces_part(Program *p, const char *function, int number, const CallList *list,
                        int from, int end) {
  const CallList part = {.at = list->at + from, .n = end - from};
  Piece piece = {.text = {.arena = p->arena}, .cost = list_cost(&part)};
  const char *name = free_name(p, function, number);
  calls_text(&piece.text, p->arena, "", name, &part);
  piece.text.at[--piece.text.n] = 0; // the empty line at its end
  strbuf_addf(&p->declarations, "void %s(NnrtRank *r);\n", name);
  vec_push(p->arena, &p->calls, piece);
  return name;
}

// Appends files NAME_0.c, … of about equal cost, each with `head`.  Returns their number.
static int add_files(Program *p, const char *name, const char *head, const Piece *piece, int n) {
  int64_t all = 0, before = 0;
  for (int i = 0; i < n; i++)
    all += piece[i].cost;
  int64_t files = (all + FILE_SHARE - 1) / FILE_SHARE;
  if (files > MOST_FILES) files = MOST_FILES;
  int made = 0;
  for (int i = 0; i < n; i++) {
    // A piece belongs to the share that its middle is in.
    int64_t share = (before + piece[i].cost / 2) * files / (all + 1);
    if (i == 0 || share >= made) {
      SourceFile file = {str_format(p->arena, "%s_%d.c", name, made++), {.arena = p->arena}};
      strbuf_add(&file.text, head);
      vec_push(p->arena, &p->files, file);
    }
    strbuf_addf(&p->files.at[p->files.n - 1].text, "\n%s", piece[i].text.at);
    before += piece[i].cost;
  }
  return made;
}

// Names of functions in several files are the program's own, not those of libraries.
#define HIDDEN "#pragma GCC visibility push(hidden)\n"
#define MADE   "of program.c.  Made by nnaot; edits are lost.\n\n"

void pieces_emit(Program *p) {
  Arena *a = p->arena;
  Vec(Piece) kernels = {0};
  for (int i = 0; i < p->kernels->at.n; i++) {
    const LeafKernels *k = p->kernels->at.at[i];
    Piece piece = {.text = {.arena = a}, .cost = kernels_cost(k)};
    leaf_kernels_text(k, "", &piece.text);
    vec_push(a, &kernels, piece);
  }
  SourceFile header = {"program.h", {.arena = a}};
  strbuf_add(&header.text, "// Values and functions " MADE "#include \"nnrt.h\"\n" HIDDEN);
  strbuf_add(&header.text, "\n");
  section_text(&header.text, "Where values are", &p->defines);
  section_text(&header.text, "Functions of other files", &p->declarations);
  vec_push(a, &p->files, header);
  p->sources->n_calls =
      add_files(p, "calls", "// Calls " MADE "#include \"program.h\"\n", p->calls.at, p->calls.n);
  p->sources->n_kernels = add_files(
      p, "kernels", "// Fused kernels " MADE "#include \"nnrt.h\"\n" HIDDEN, kernels.at, kernels.n);
}

void pieces_remove(Arena *a, const char *dir, int n_calls, int n_kernels) {
  bool whole = n_calls + n_kernels == 0;
  static const char *const names[] = {"calls", "kernels"};
  const int first[] = {n_calls, n_kernels};
  for (int k = 0; k < 2; k++)
    for (int i = first[k]; unlink(str_format(a, "%s/%s_%d.c", dir, names[k], i)) == 0; i++)
      if (whole) unlink(str_format(a, "%s/program.h", dir));
}
