// The fingerprints of program and data in a checkpoint, and the warnings of a resumed run with
// others.  They are texts of the checkpoint's metadata:
//
//     "model": "52d99b0161b43dc3"      NnrtProof.model and .plan, of a proved plan
//     "plan": "e456d23814a92e84"
//     "data:x:0": "1000 256128 8f3b0c55d1e2a794 train_0.npy"
//
// The last is of the first file of input x: its rows, bytes, checksum and name.  The checksum is of
// at most 16 blocks of 4 KiB, evenly spaced over the file, so that files of any size take no time.
//
// Ranks that are processes compare the same numbers of the files that each has opened.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { SAMPLES = 16, SAMPLE = 4096, MOST_WARNINGS = 3 };

static uint64_t sampled(const InFile *f) {
  if (f->bytes <= SAMPLES * SAMPLE) return nnrt_xxh64(f->at, f->bytes, 0);
  uint64_t sum = 0;
  // The first block is at the start, the last one at the end.
  for (int64_t i = 0; i < SAMPLES; i++)
    sum = nnrt_xxh64(f->at + (f->bytes - SAMPLE) / (SAMPLES - 1) * i, SAMPLE, sum);
  return sum;
}

static void add(Checkpoints *c, char *key, char *value) {
  c->of = realloc(c->of, (size_t)(c->n_of + 1) * sizeof *c->of);
  if (!c->of) nnrt_must_alloc((size_t)-1);
  c->of[c->n_of++] = (StText){key, value};
}

void nnrt_fingerprints_find(Checkpoints *c, const NnrtProgram *p, const Data *d) {
  const struct {
    const char *key;
    uint64_t value;
  } proof[] = {{"model", p->proof.model}, {"plan", p->proof.plan}};
  for (int i = 0; i < 2; i++)
    if (proof[i].value)
      add(c, nnrt_must_format("%s", proof[i].key),
          nnrt_must_format("%016llx", (unsigned long long)proof[i].value));
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->source[i].n_shards; k++) {
      const Shard *s = &d->source[i].shard[k];
      add(c, nnrt_must_format("data:%s:%d", d->source[i].input->name, k),
          nnrt_must_format("%lld %lld %016llx %s", (long long)s->samples,
                           (long long)s->npy.file.bytes, (unsigned long long)sampled(&s->npy.file),
                           nnrt_base_name(s->path)));
    }
}

void nnrt_data_terms(const Data *d, const char *prefix, Terms *t) {
  for (int i = 0; i < d->n; i++) {
    const Source *s = &d->source[i];
    char *files = nnrt_must_format("the number of files of --%s%s %s", prefix,
                                   s->tokens ? "tokens" : "input", s->input->name);
    nnrt_terms_add(t, files, "%d", s->n_shards);
    free(files);
    for (int k = 0; k < s->n_shards; k++) {
      const Shard *f = &s->shard[k];
      char *name = nnrt_must_format("the data of --%s%s %s", prefix, s->tokens ? "tokens" : "input",
                                    s->input->name);
      nnrt_terms_add_file(t, name, f->path, "%lld rows, %lld bytes, checksum %016llx",
                          (long long)f->samples, (long long)f->npy.file.bytes,
                          (unsigned long long)sampled(&f->npy.file));
      free(name);
    }
  }
}

static const char *find(const Checkpoints *c, const char *key) {
  for (int i = 0; i < c->n_of; i++)
    if (strcmp(c->of[i].key, key) == 0) return c->of[i].value;
  return NULL;
}

typedef struct DataText {
  long long rows, bytes;
  char sum[17];
  const char *name;
} DataText;

static bool read_data_text(const char *text, DataText *out) {
  int end = 0;
  *out = (DataText){0};
  bool ok = text &&
            sscanf(text, "%lld %lld %16s %n", &out->rows, &out->bytes, out->sum, &end) == 3 && end;
  if (ok) out->name = text + end;
  return ok;
}

// Reports how one file of an input differs from that of the checkpoint; false: it does not.
static bool say_data(const char *input, const DataText *was, const DataText *is) {
  static const char when[] = "when the checkpoint was written";
  if (was->rows != is->rows)
    nnrt_say_warning(
        "the data of input '%s' is other data: '%s' has %lld rows, and %s '%s' had %lld", input,
        is->name, is->rows, when, was->name, was->rows);
  else if (was->bytes != is->bytes)
    nnrt_say_warning(
        "the data of input '%s' is other data: '%s' has %lld bytes, and %s '%s' had %lld", input,
        is->name, is->bytes, when, was->name, was->bytes);
  else if (strcmp(was->sum, is->sum) != 0)
    nnrt_say_warning("the data of input '%s' is other data: '%s' has other contents than '%s' had "
                     "%s",
                     input, is->name, was->name, when);
  else
    return false;
  return true;
}

static void compare_data(const Checkpoints *c, const StFile *f) {
  int differ = 0;
  for (int i = 0; i < c->n_of; i++) {
    DataText is, was;
    const char *key = c->of[i].key, *number = strrchr(key, ':');
    if (strncmp(key, "data:", 5) != 0 || !read_data_text(c->of[i].value, &is)) continue;
    char *input = nnrt_must_format("%.*s", (int)(number - key - 5), key + 5);
    char *next = nnrt_must_format("data:%s:%d", input, atoi(number + 1) + 1);
    // Of many files the first few stand for all.
    if (read_data_text(nnrt_st_text(f, key), &was)) {
      if (differ < MOST_WARNINGS)
        differ += say_data(input, &was, &is);
      else
        differ += was.rows != is.rows || was.bytes != is.bytes || strcmp(was.sum, is.sum) != 0;
    }
    // The number of files: the last of this run, or of the checkpoint.
    if (!find(c, next) != !nnrt_st_text(f, next) && nnrt_st_text(f, key))
      nnrt_say_warning("input '%s' has %s files than when the checkpoint was written", input,
                       find(c, next) ? "more" : "fewer");
    free(input);
    free(next);
  }
  if (differ > MOST_WARNINGS)
    nnrt_say_warning("and %d more files are others, too", differ - MOST_WARNINGS);
}

bool nnrt_fingerprints_compare(const Checkpoints *c, const StFile *f) {
  const char *model = nnrt_st_text(f, "model"), *plan = nnrt_st_text(f, "plan");
  const char *model_here = find(c, "model"), *plan_here = find(c, "plan");
  // Its tensors fit, so the rest of the model, or the training, is another.
  if (model && model_here && strcmp(model, model_here) != 0)
    nnrt_say_note("the checkpoint is of another model, loss, optimizer or batch, or of a plan that "
                  "changes the program, with the same tensors: model %s in it, here %s",
                  model, model_here);
  else if (plan && plan_here && strcmp(plan, plan_here) != 0)
    nnrt_say_note("the checkpoint was written under another plan: %s in it, here %s", plan,
                  plan_here);
  compare_data(c, f);
  for (int i = 0; i < f->n_texts; i++)
    if (strncmp(f->text[i].key, "data:", 5) == 0) return true;
  return false;
}
