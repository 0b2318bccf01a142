// The code of each rank, and the identity of a program.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"

const NnrtRankProgram *nnrt_code_of(const NnrtProgram *p, int rank) {
  return &p->code[p->code_of ? p->code_of[rank] : 0];
}

int nnrt_pieces(const NnrtRank *r, const NnrtSchedule *s) {
  return s->n_parts * r->program->micro_batches + 2;
}

const NnrtTask *nnrt_part_of(const NnrtSchedule *s, int piece) {
  int i = piece - 1;
  return &s->part[s->order ? s->order[i] : i % s->n_parts];
}

char *nnrt_name(const char *format, const int64_t *numbers) {
  char *name = nnrt_must_append(NULL, "%s", "");
  for (const char *s = format; *s;) {
    size_t n = strcspn(s, "%");
    name = nnrt_must_append(name, "%.*s", (int)n, s);
    s += n;
    if (*s && s[1] == '%') name = nnrt_must_append(name, "%%");
    if (*s && s[1] == 'd') name = nnrt_must_append(name, "%lld", (long long)*numbers++);
    if (*s) s += 2;
  }
  return name;
}

static uint64_t add_key(uint64_t key, const void *data, size_t n) {
  return nnrt_xxh64(data, (int64_t)n, key);
}

static uint64_t add_text(uint64_t key, const char *text) {
  return text ? add_key(key, text, strlen(text)) : key;
}

static uint64_t add_mesh(uint64_t key, const NnrtMesh *m) {
  for (int a = 0; a < m->n_axes; a++)
    key = add_key(key, &m->axis[a].size, sizeof m->axis[a].size);
  return add_key(key, m->rank, (size_t)m->n_ranks * sizeof *m->rank);
}

static uint64_t add_tensor(uint64_t key, const NnrtTensor *t) {
  const int64_t kinds[] = {t->role, t->dtype, t->ndim, t->mesh, t->train, t->init, t->init_seed};
  const double numbers[] = {t->a, t->b};
  key = add_text(key, t->name);
  key = add_key(key, kinds, sizeof kinds);
  key = add_key(key, numbers, sizeof numbers);
  key = add_key(key, t->dim, (size_t)t->ndim * sizeof *t->dim);
  return add_key(key, t->split, sizeof t->split);
}

// Settings of the compiler in the text for --describe, and the names of their options.
static const struct {
  const char *member, *name;
} settings[] = {
    {"dtype", "--dtype"},
    {"optimizer", "--optimizer"},
    {"loss", "--loss"},
    {"clip_norm", "--clip-norm"},
    {"accumulate", "--accumulate"},
    {"no_decay", "--no-decay"},
    {"groups", "--group"},
    {"frozen", "--freeze"},
    {"detached", "--detach"},
    {"train_mode", "--train-mode"},
    {"init", "--init"},
    {"dims", "--dim"},
    {"bounds", "--bound"},
    {"passes", "--passes"},
};

// Returns the value of a member of a JSON object, as it is in the text, strings without quotes; ""
// if it has none.  The caller frees it.
static char *member_of(const char *object, const char *member) {
  Json j = {.at = object ? object : "", .end = object ? object + strlen(object) : ""};
  char *found = NULL;
  for (bool more = nnrt_json_take(&j, '{'); more && !found; more = nnrt_json_take(&j, ',')) {
    char *name = nnrt_json_string(&j);
    bool there = name && nnrt_json_want(&j, ':');
    nnrt_json_take(&j, ' '); // white space
    const char *from = j.at;
    if (there && nnrt_json_skip(&j) && strcmp(name, member) == 0) {
      bool text = *from == '"';
      found = nnrt_must_format("%.*s", (int)(j.at - from - 2 * text), from + text);
    }
    free(name);
  }
  return found ? found : nnrt_must_format("%s", "");
}

// Adds a setting of the compiler.  The text of a refusal has bounds, so a long value is its begin
// and its checksum.
static void add_setting(Terms *t, const char *name, const char *value) {
  enum { SHOWN = 80 };
  char *compiled = nnrt_must_format("the compiled %s", name);
  size_t n = strlen(value);
  if (n > SHOWN)
    nnrt_terms_add(t, compiled, "%.*s… (checksum %016llx)", SHOWN, value,
                   (unsigned long long)nnrt_xxh64(value, (int64_t)n, 0));
  else
    nnrt_terms_add(t, compiled, "%s", n ? value : "not given");
  free(compiled);
}

void nnrt_program_terms(const NnrtProgram *p, Terms *t) {
  // The hash differs, almost certainly, between programs with incompatible ranks.
  const int64_t sizes[] = {p->ranks,   p->micro_batches,  p->batch,           p->n_mesh,
                           p->n_moves, p->n_groups,       p->train.n_tensors, p->eval.n_tensors,
                           p->seed,    p->skeleton_bytes, p->n_holes,         p->n_deferred};
  // The plan's ops, and whether it was proved.
  const uint64_t prints[] = {p->plan_hash, p->proof.model};
  uint64_t key = add_key(add_key(0, sizes, sizeof sizes), prints, sizeof prints);
  key = add_key(key, &p->lr, sizeof p->lr);
  key = add_text(key, p->lr_schedule);
  key = add_text(key, p->schedule);
  for (int i = 0; i < p->n_mesh; i++)
    key = add_mesh(key, &p->mesh[i]);
  for (int i = 0; i < p->train.n_tensors; i++)
    key = add_tensor(key, &p->train.tensors[i]);
  for (int i = 0; i < p->eval.n_tensors; i++)
    key = add_tensor(key, &p->eval.tensors[i]);
  // The terms that a user knows come first: the error shows the first that differs.
  nnrt_terms_add(t, "the version of nnaot", "%s", p->version);
  // The same model may have been compiled in another folder.
  nnrt_terms_add(t, "the model", "'%s'", nnrt_base_name(p->model));
  nnrt_terms_add(t, "the number of ranks", "%d", p->ranks);
  nnrt_terms_add(t, "the target", "%s", p->target);
  nnrt_terms_add(t, "the compiled --lr", "%.9g", p->lr);
  add_setting(t, "--lr-schedule", p->lr_schedule);
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    char *value = member_of(p->describe, settings[i].member);
    add_setting(t, settings[i].name, value);
    free(value);
  }
  nnrt_terms_add(t, "the plan", "'%s'", p->plan);
  // --accumulate and the plan change these, too.
  nnrt_terms_add(t, "the compiled --batch", "%lld", (long long)p->batch);
  nnrt_terms_add(t, "the compiled --micro-batches", "%d", p->micro_batches);
  char *weights = member_of(p->describe, "weights");
  nnrt_terms_add(t, "the checksum of the compiled weights", "%s", *weights ? weights : "none");
  free(weights);
  nnrt_terms_add(t, "the seed", "%lld", (long long)p->seed);
  nnrt_terms_add(t, "the program", "%016llx", (unsigned long long)key);
}
