// Validation of the emitted program: see validate.h.

#include "validate.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

static bool read_file(Check *c, const char *name, CFile *out) {
  const char *path = str_format(c->arena, "%s/%s", c->dir, name);
  FILE *f = fopen(path, "rb");
  if (!f) return diag_error(c->d, NULL, "cannot read '%s': %s", path, strerror(errno));
  struct stat st;
  if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode)) {
    fclose(f);
    return diag_error(c->d, NULL, "cannot read '%s': it is no regular file", path);
  }
  bool ok = !fseek(f, 0, SEEK_END);
  long n = ok ? ftell(f) : -1;
  ok = n >= 0 && !fseek(f, 0, SEEK_SET);
  char *text = ok ? arena_alloc(c->arena, (size_t)n + 1) : NULL;
  ok = ok && fread(text, 1, (size_t)n, f) == (size_t)n;
  fclose(f);
  if (!ok) return diag_error(c->d, NULL, "cannot read '%s'", path);
  *out = (CFile){path, text, text + n, c->arena};
  Cursor at;
  switch (lines_read(out, &at)) {
  case LINES_plain: return true;
  case LINES_spliced:
    return mismatch(c, &at,
                    "a C compiler joins the next line to this one, which ends in a backslash");
  case LINES_control: return mismatch(c, &at, "a control character is in the text");
  }
  return false;
}

static bool add_file(Check *c, FileKind kind, const char *name) {
  TextFile *file = arena_one(c->arena, TextFile);
  file->kind = kind;
  vec_push(c->arena, &c->files, file);
  return read_file(c, name, &file->text);
}

// Reads calls_0.c, calls_1.c and so on, up to the first that is not there.
static bool add_files(Check *c, FileKind kind, const char *name) {
  for (int i = 0;; i++) {
    const char *file = str_format(c->arena, "%s_%d.c", name, i);
    struct stat st;
    if (stat(str_format(c->arena, "%s/%s", c->dir, file), &st) != 0) return true;
    if (!add_file(c, kind, file)) return false;
  }
}

// Reads the files beside program.c, which includes program.h if the program is divided.
static bool read_files(Check *c) {
  Cursor at = cursor_of(&c->program);
  const char *header;
  c->divided = take(&at, "#include %s", &header) && str_equal(header, "program.h");
  if (c->divided && (!add_file(c, FILE_header, "program.h") || !add_files(c, FILE_calls, "calls") ||
                     !add_files(c, FILE_kernels, "kernels")))
    return false;
  return c->target != TARGET_cuda || add_file(c, FILE_device, "kernels.cu");
}

// The target that a program names: "cuda" of "cuda:sm_90".
static bool find_target(Check *c) {
  static const char field[] = "    .target = \"";
  const char *at = strstr(c->program.text, field);
  if (!at) return mismatch(c, NULL, "program.c names no target");
  at += strlen(field);
  const char *name = str_copy_n(c->arena, at, strcspn(at, ":\""));
  return target_parse(name, &c->target) || mismatch(c, NULL, "there is no target '%s'", name);
}

static void find_graphs(Check *c) {
  for_each_graph(g, c->m) {
    if (!g->entry) continue;
    if (str_equal(g->name, "eval") && c->graph[0])
      c->graph[1] = g;
    else if (!c->graph[0] || str_equal(g->name, "train"))
      c->graph[0] = g;
  }
}

// No function or table is left over: cc would compile it, and the runtime might run it.
static bool check_units(Check *c) {
  for (int i = 0; i < c->units.n; i++) {
    const Unit *u = c->units.at[i];
    if (!u->used) return mismatch(c, &u->at, "nothing of the module is '%s'", u->name);
  }
  return true;
}

static bool validate(Check *c) {
  if (!read_file(c, "program.c", &c->program)) return false;
  if (c->o)
    c->target = c->o->target.target;
  else if (!find_target(c))
    return false;
  if (!read_files(c) || !units_read(c) || !tables_fill(c) || !tables_read(c) || !fill_check(c))
    return false;
  const TargetInfo *target = &target_info[c->target];
  if (!c->p.target || !str_starts(c->p.target, target->name))
    return mismatch(c, NULL, "the target is not %s", target->name);
  c->prep_first = arena_array(c->arena, int64_t, c->p.n_prep + 1);
  return tables_check(c) && replay(c) && tensors_check(c) && model_values_check(c) &&
         check_units(c) && proof_check(c);
}

bool program_validate(const Module *m, const char *dir, const BackendOptions *o, Diag *d) {
  if (m->phase < PHASE_planned) {
    diag_error(d, NULL, "a program is compared with a planned module, and this one is %s",
               phase_name[m->phase]);
    diag_hint(d, "take the dump after plan_memory");
    return false;
  }
  Check *c;
  Arena *a = arena_new();
  c = arena_one(a, Check);
  *c = (Check){.m = m, .o = o, .dir = dir, .arena = a, .d = d, .names = table_new(a)};
  find_graphs(c);
  bool ok = c->graph[0] || diag_error(d, NULL, "there is no entry graph to run");
  int errors = diag_errors(d);
  if (ok && !validate(c)) {
    ok = false;
    // No refusal is silent.
    if (diag_errors(d) == errors) mismatch(c, NULL, "program.c is not the module's");
  }
  arena_free(a);
  return ok;
}
