// Checkpoints: all persistent state, in one file that any number of ranks can read.
//
//     DIR/step-000000000120.safetensors
//
// The file is a safetensors file of whole tensors: weights as "weight/NAME", optimizer state as
// "state/NAME".  Its metadata holds the step (the number of steps done), the seed, the order of the
// data, fingerprints of the program and the data (fingerprints.c), and a checksum of the header and
// of every tensor: any flipped bit is found before the data is used.  The file is written under a
// temporary name, flushed and renamed (file.c): a crash or a full disk leaves the previous
// checkpoint intact.  The folder: checkpoint_folder.c.
//
// Only rank 0 needs the folder: it collects the parts of tensors that it writes, and sends those
// that it reads (checkpoint_load.c).

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"

// The header's own checksum comes first in the file, and counts as zeros in itself.
static const char file_start[] = "{\"__metadata__\":{\"header\":\"";
enum { DIGITS = 16, HEADER_SUM_AT = 8 + sizeof file_start - 1 };
static const char zeros[DIGITS + 1] = "0000000000000000";

// ---- reading

static bool check_sum(const char *text, uint64_t sum) {
  char digits[DIGITS + 1];
  snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
  return text && strcmp(text, digits) == 0;
}

// SKIPPED: damaged, no file, or removed meanwhile.  UNREADABLE: the system could not read it now,
// and it may be sound.
typedef enum Opened { SOUND, SKIPPED, UNREADABLE } Opened;

// Opens a checkpoint and compares every checksum.
static Opened open_checked(StFile *f, const char *path, Why *w) {
  if (!nnrt_st_open(f, path, w))
    return f->file.code && f->file.code != ENOENT ? UNREADABLE : SKIPPED;
  bool ok = f->header_bytes > HEADER_SUM_AT - 8 + DIGITS &&
            memcmp(f->header, file_start, sizeof file_start - 1) == 0;
  // The checksum of the header is over the header with zeros in its place.
  if (ok) {
    size_t n = (size_t)f->header_bytes + 8;
    char *header = nnrt_must_alloc(n);
    memcpy(header, f->file.at, n);
    memcpy(header + HEADER_SUM_AT, zeros, DIGITS);
    ok = check_sum(nnrt_st_text(f, "header"), nnrt_xxh64(header, (int64_t)n, 0));
    free(header);
  }
  if (!ok) why(w, "its header is damaged");
  for (int i = 0; ok && i < f->n_tensors; i++) {
    const StTensor *t = &f->tensor[i];
    // Every tensor has its own checksum, so the message can name it.
    char *key = nnrt_must_format("xxh64:%s", t->name);
    ok = check_sum(nnrt_st_text(f, key), nnrt_xxh64(f->data + t->begin, t->end - t->begin, 0));
    free(key);
    if (!ok) why(w, "'%s' is damaged", t->name);
  }
  if (!ok) nnrt_st_close(f);
  return ok ? SOUND : SKIPPED;
}

typedef struct Newest {
  int64_t step;  // -1: there is none
  Opened opened; // SOUND or UNREADABLE, if there is one
  int n;         // those that were opened, damaged ones included; -1: the folder is unreadable
} Newest;

// Opens the newest checkpoint after step `after` that is sound or unreadable; *w says why it is
// unreadable, or the folder.
static Newest open_newest(const Checkpoints *c, int64_t after, bool warns, StFile *out, Why *w) {
  int64_t *steps;
  int n = nnrt_checkpoint_list(c, &steps, w);
  Newest newest = {.step = -1, .n = n < 0 ? -1 : 0};
  // Damaged checkpoints are skipped: an older one is better than none.  One that may be sound is
  // not: the run would continue from an older state, and overwrite the newer one.
  for (int i = 0; i < n && newest.step < 0 && steps[i] > after; i++) {
    char *path = nnrt_checkpoint_path(c, steps[i]);
    newest.n++;
    newest.opened = open_checked(out, path, w);
    if (newest.opened != SKIPPED)
      newest.step = steps[i];
    else if (warns)
      nnrt_say_warning("checkpoint '%s' cannot be used: %s", path, w->text);
    free(path);
  }
  free(steps);
  return newest;
}

bool nnrt_checkpoint_find(Checkpoints *c, int64_t *out_step, Why *w) {
  Newest newest = open_newest(c, -1, true, &c->resumed, w);
  int n = newest.n;
  *out_step = -1;
  if (n < 0) return false;
  if (newest.step >= 0 && newest.opened == UNREADABLE)
    return why(
        w,
        "cannot resume: %s\n"
        "hint: this checkpoint may be sound: start again once it can be read, or move it out "
        "of the folder to resume from an older one",
        w->text);
  c->last = *out_step = newest.step;
  if (c->last >= 0) c->anew = false;
  // An empty folder starts a new run; a folder of damaged files does not, as it would overwrite
  // them.
  if (n == 0 || c->last >= 0) return true;
  return why(w,
             "cannot resume: %s in '%s' is damaged\n"
             "hint: without --resume, training starts from step 0",
             n == 1 ? "the only checkpoint" : "every checkpoint", c->dir);
}

int64_t nnrt_checkpoint_after(const Checkpoints *c, int64_t step) {
  StFile f;
  Why w;
  // Of a shared folder rank 0 has warned of the damaged ones; a folder that is not there has none.
  Newest newest = open_newest(c, step, false, &f, &w);
  if (newest.step >= 0 && newest.opened == SOUND) nnrt_st_close(&f);
  return newest.step;
}

bool nnrt_checkpoints_verify(const char *dir, FILE *out) {
  const Checkpoints c = {.dir = dir};
  int64_t *steps, resumed = -1, unreadable = -1;
  Why unread;
  int n = nnrt_checkpoint_list(&c, &steps, &unread);
  bool ok = n >= 0;
  if (!ok) fprintf(out, "%s\n", unread.text);
  for (int i = n - 1; i >= 0; i--) {
    char *path = nnrt_checkpoint_path(&c, steps[i]);
    StFile f;
    Why reason;
    Opened opened = open_checked(&f, path, &reason);
    bool sound = opened == SOUND;
    nnrt_put_shown(out, path);
    fprintf(out, "  ");
    if (sound) {
      fprintf(out, "%lld bytes  ok\n", (long long)f.file.bytes);
      nnrt_st_close(&f);
      resumed = steps[i];
    } else {
      fputs(opened == UNREADABLE ? "unreadable: " : "damaged: ", out);
      nnrt_put_shown(out, reason.text);
      fputc('\n', out);
    }
    if (opened == UNREADABLE) unreadable = steps[i];
    ok &= sound;
    free(path);
  }
  free(steps);
  // As nnrt_checkpoint_find, which ends at an unreadable one.
  if (unreadable > resumed) {
    fprintf(out, "--resume fails, as the checkpoint of step %lld cannot be read\n",
            (long long)unreadable);
  } else if (resumed >= 0) {
    fprintf(out, "--resume continues after step %lld\n", (long long)resumed);
  } else {
    fprintf(out, "no checkpoint in '");
    nnrt_put_shown(out, dir);
    fprintf(out, "' can be resumed from\n");
  }
  return ok && resumed >= 0;
}

char *nnrt_checkpoint_name(const NnrtTensor *t) {
  return nnrt_must_format("%s/%s", t->role == NNRT_weight ? "weight" : "state", t->name);
}

// ---- writing

typedef struct Writer {
  StTensor *tensor;
  int n_tensors;
  StText *text;
  int n_texts;
  OutFile out;
} Writer;

static void add_text(Writer *wr, char *key, char *value) {
  wr->text[wr->n_texts++] = (StText){key, value};
}

static void list_contents(Writer *wr, const Checkpoints *c, const NnrtProgram *p, int64_t step,
                          const DataOrder *order) {
  const NnrtGraph *g = &p->train;
  // One text per tensor for its checksum, the fingerprints, and a dozen for the rest.
  wr->tensor = nnrt_must_alloc((size_t)(g->n_tensors + 1) * sizeof *wr->tensor);
  wr->text = nnrt_must_alloc((size_t)(g->n_tensors + c->n_of + 12) * sizeof *wr->text);
  add_text(wr, nnrt_must_format("header"), nnrt_must_format("%s", zeros)); // must be the first
  add_text(wr, nnrt_must_format("nnaot"), nnrt_must_format("checkpoint of %s", p->model));
  add_text(wr, nnrt_must_format("step"), nnrt_must_format("%lld", (long long)step));
  add_text(wr, nnrt_must_format("seed"), nnrt_must_format("%lld", (long long)order->seed));
  add_text(wr, nnrt_must_format("shuffle"),
           order->shuffle ? nnrt_must_format("%lld", (long long)order->shuffle_seed)
                          : nnrt_must_format("none"));
  add_text(wr, nnrt_must_format("rows"), nnrt_must_format("%lld", (long long)order->samples));
  add_text(wr, nnrt_must_format("rows_read"), nnrt_must_format("%lld", (long long)order->read));
  // Without tokens, or with a constant learning rate, there is nothing to save.
  if (order->length)
    add_text(wr, nnrt_must_format("row_tokens"),
             nnrt_must_format("%lld", (long long)order->length));
  if (order->lr_steps >= 0)
    add_text(wr, nnrt_must_format("lr_steps"),
             nnrt_must_format("%lld", (long long)order->lr_steps));
  for (int i = 0; i < c->n_of; i++)
    add_text(wr, nnrt_must_format("%s", c->of[i].key), nnrt_must_format("%s", c->of[i].value));
  // Checksums are zeros until the tensors are written, so the length of the header is final.
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_saved(t)) continue;
    StTensor *s = &wr->tensor[wr->n_tensors++];
    *s = (StTensor){.name = nnrt_checkpoint_name(t), .dtype = t->dtype};
    const int64_t *dim;
    s->ndim = nnrt_tensor_known(t, &dim);
    for (int d = 0; d < s->ndim; d++)
      s->dim[d] = dim[d];
    add_text(wr, nnrt_must_format("xxh64:%s", s->name), nnrt_must_format("%s", zeros));
  }
}

// Collective.
static bool write_checkpoint(Checkpoints *c, NnrtRank *r, int64_t step, const DataOrder *order,
                             const char *path, Why *w) {
  const NnrtGraph *g = &r->program->train;
  Writer wr = {.out.fd = -1};
  bool root = r->rank == 0, ok = !root || nnrt_out_begin_here(&wr.out, path, w);
  bool begun = root && ok;
  // The length of the header is known before its checksums: the tensors follow it.
  if (begun) {
    list_contents(&wr, c, r->program, step, order);
    int64_t bytes;
    free(nnrt_st_header(wr.tensor, wr.n_tensors, wr.text, wr.n_texts, &bytes));
    wr.out.at = bytes;
    // A full disk is found before a tensor is written.
    wr.out.make_room = nnrt_checkpoint_make_room;
    wr.out.room_of = c;
    ok = nnrt_out_reserve(&wr.out, bytes + (wr.n_tensors ? wr.tensor[wr.n_tensors - 1].end : 0), w);
  }
  int first_sum = wr.n_texts - wr.n_tensors, n = 0;
  Whole memory = {0};
  // A rank with a full disk still takes part: the other ranks wait for it.
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_saved(t)) continue;
    const void *whole = nnrt_tensor_whole(r, t, &memory);
    if (!begun) continue;
    // The checksum is that of the tensor in memory, not of the bytes that the disk returns.
    int64_t bytes = nnrt_tensor_known_count(t) * nnrt_dtype_size(t->dtype);
    snprintf(wr.text[first_sum + n++].value, DIGITS + 1, "%016llx",
             (unsigned long long)nnrt_xxh64(whole, bytes, 0));
    ok = ok && nnrt_out_write(&wr.out, whole, bytes, w);
  }
  free(memory.at);
  if (!begun) return ok;
  // All checksums are known now; the header has the length it had.
  if (ok) {
    int64_t bytes;
    char digits[DIGITS + 1];
    char *header = nnrt_st_header(wr.tensor, wr.n_tensors, wr.text, wr.n_texts, &bytes);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)nnrt_xxh64(header, bytes, 0));
    memcpy(header + HEADER_SUM_AT, digits, DIGITS);
    ok = nnrt_out_write_at(&wr.out, 0, header, bytes, w);
    free(header);
  }
  // The names and texts of the header are allocated one by one.
  for (int i = 0; i < wr.n_tensors; i++)
    free(wr.tensor[i].name);
  for (int i = 0; i < wr.n_texts; i++) {
    free(wr.text[i].key);
    free(wr.text[i].value);
  }
  free(wr.tensor);
  free(wr.text);
  // Only a complete checkpoint of this run replaces those of an earlier one.
  ok = ok && nnrt_out_flush(&wr.out, w) && (!c->anew || nnrt_checkpoint_set_aside(c, w));
  if (!ok) {
    nnrt_out_abandon(&wr.out);
    return false;
  }
  c->anew = false;
  return nnrt_out_commit(&wr.out, w);
}

void nnrt_checkpoint_save(Checkpoints *c, NnrtRank *r, int64_t step, const DataOrder *order) {
  Why w;
  char *path = nnrt_checkpoint_path(c, step);
  bool ok = write_checkpoint(c, r, step, order, path, &w);
  free(path);
  if (r->rank != 0) return;
  // A failed checkpoint does not end the training: the next may succeed.
  c->failed = !ok;
  if (ok) {
    c->last = step;
    nnrt_checkpoint_prune(c);
  } else if (nnrt_checkpoint_is_there(c, c->last)) {
    nnrt_say_warning("no checkpoint of step %lld: %s; that of step %lld is still there",
                     (long long)step, w.text, (long long)c->last);
  } else {
    nnrt_say_warning("no checkpoint of step %lld: %s", (long long)step, w.text);
  }
}
