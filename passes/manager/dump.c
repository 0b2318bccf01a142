// Prints the module between passes: --print-before, --print-after, --print-changed, --dump-dir.
//
// Each print begins with a comment that names the pass, so it is valid input, and so is every file
// of the folder:
//
//     00-input.nn   01-simplify.nn   02-raise.nn   …
//
// A shorter run leaves the files of an earlier one with higher numbers or other passes.  They may
// be edited by hand, so they stay, and a warning names them.

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "base/whole_file.h"
#include "pipeline.h"

// Whether the comma list has the name; "" and NULL are empty lists.
static bool list_has(Arena *a, const char *list, const char *name) {
  for (const char *at = list; at && *at;) {
    size_t n = strcspn(at, ",");
    if (!strcmp(pass_name(str_copy_n(a, at, n)), name)) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

static bool check_list(Arena *a, const char *flag, const char *list, Diag *d) {
  for (const char *at = list; at && *at;) {
    size_t n = strcspn(at, ",");
    const char *name = str_copy_n(a, at, n);
    if (!pass_find(name)) {
      diag_error(d, NULL, "%s: unknown pass '%s'", flag, name);
      diag_hint(d, "nnaot-opt --list shows the passes");
      return false;
    }
    at += n + (at[n] == ',');
  }
  return true;
}

bool pipeline_check_prints(const PipelineOptions *o, Diag *d) {
  Arena *a = arena_new();
  bool ok = check_list(a, "--print-before", o->print_before, d) &&
            check_list(a, "--print-after", o->print_after, d);
  arena_free(a);
  return ok;
}

// -- Files of earlier runs -------------------------------------------------------------------

struct DumpFiles {
  Arena *arena;
  Vec(const char *) names; // NULL: written by this run
};

// Whether the name is one that this file gives: two digits or more, '-', "input" or a pass, ".nn".
static bool is_dump(Arena *a, const char *name) {
  size_t digits = strspn(name, "0123456789"), n = strlen(name);
  if (digits < 2 || name[digits] != '-' || n < digits + 4 || strcmp(name + n - 3, ".nn") != 0)
    return false;
  const char *pass = str_copy_n(a, name + digits + 1, n - digits - 4);
  return !strcmp(pass, "input") || pass_find(pass);
}

static bool find_files(Dump *dump, const char *folder, Diag *d) {
  DIR *dir = opendir(folder);
  if (!dir) return diag_error(d, NULL, "cannot read the folder '%s': %s", folder, strerror(errno));
  Arena *a = arena_new();
  dump->found = arena_one(a, DumpFiles);
  dump->found->arena = a;
  for (struct dirent *e; (e = readdir(dir));)
    if (is_dump(a, e->d_name)) vec_push(a, &dump->found->names, str_copy(a, e->d_name));
  closedir(dir);
  return true;
}

static void report_files(const Dump *dump, Diag *d) {
  const char *first = NULL;
  int n = 0;
  for (int i = 0; i < dump->found->names.n; i++) {
    const char *name = dump->found->names.at[i];
    if (!name) continue;
    n++;
    if (!first || strcmp(name, first) < 0) first = name;
  }
  if (!n) return;
  diag_warning(d, NULL, "the folder '%s' has %d file%s of an earlier run: '%s'%s",
               dump->o->dump_dir, n, n == 1 ? "" : "s", first, n == 1 ? "" : " and others");
  diag_hint(d, "delete them, or give --dump-dir another folder");
}

bool dump_start(Dump *dump, const PipelineOptions *o, const Steps *steps, Diag *d) {
  *dump = (Dump){.o = o, .out = o->out ? o->out : stderr, .arena = arena_new()};
  // The pass to stop after must run.
  bool found = !o->stop_after;
  for (int i = 0; i < steps->n && !found; i++)
    found = !strcmp(steps->at[i].pass->name, pass_name(o->stop_after));
  if (!found)
    return diag_error(d, NULL, "--stop-after: pass '%s' is not in the pipeline", o->stop_after);
  if (o->dump_dir && mkdir(o->dump_dir, 0777) && errno != EEXIST)
    return diag_error(d, NULL, "cannot make the folder '%s': %s", o->dump_dir, strerror(errno));
  return !o->dump_dir || find_files(dump, o->dump_dir, d);
}

void dump_end(Dump *dump, Diag *d) {
  if (dump->found) {
    report_files(dump, d);
    arena_free(dump->found->arena);
  }
  arena_free(dump->arena);
}

static void show(const Dump *dump, const char *when, const Pass *pass, const char *text) {
  fprintf(dump->out, "# -- %s %s\n%s", when, pass->name, text);
  fflush(dump->out);
}

static bool write_file(const char *path, const char *text, Diag *d) {
  WholeFile w;
  bool ok = whole_file_open(&w, path);
  if (ok) {
    fputs(text, w.f);
    ok = whole_file_close(&w, true);
  }
  return ok || diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
}

static bool write_numbered(const Dump *dump, const char *name, const char *text, Diag *d) {
  Arena *a = arena_new();
  const char *file = str_format(a, "%02d-%s.nn", dump->n, name);
  bool ok = write_file(str_format(a, "%s/%s", dump->o->dump_dir, file), text, d);
  for (int i = 0; i < dump->found->names.n; i++) {
    const char **found = &dump->found->names.at[i];
    if (*found && !strcmp(*found, file)) *found = NULL;
  }
  arena_free(a);
  return ok;
}

bool dump_input(Dump *dump, const Module *m, Diag *d) {
  if (!dump->o->dump_dir) return true;
  Arena *a = arena_new();
  bool ok = write_numbered(dump, "input", module_text(m, a), d);
  arena_free(a);
  return ok;
}

void dump_before(Dump *dump, const Module *m, const Pass *pass) {
  const PipelineOptions *o = dump->o;
  bool print = o->print_before_all || list_has(dump->arena, o->print_before, pass->name);
  dump->before = NULL;
  if (!print && !o->print_changed && !o->diffs) return;
  // The text before the previous pass is no longer needed.
  arena_free(dump->arena);
  dump->arena = arena_new();
  // --print-changed and the diffs need it after the pass.
  dump->before = module_text(m, dump->arena);
  if (print) show(dump, "before", pass, dump->before);
}

static void show_change(const Dump *dump, const Pass *pass, const char *after, FILE *out) {
  Arena *a = arena_new();
  // The texts tell; a pass does not say whether it changed anything.
  if (!strcmp(dump->before, after))
    fprintf(out, "# -- %s changed nothing\n", pass->name);
  else
    diff_unified(dump->before, str_format(a, "before %s", pass->name), after,
                 str_format(a, "after %s", pass->name), out);
  fflush(out);
  arena_free(a);
}

bool dump_after(Dump *dump, const Module *m, const Pass *pass, Diag *d) {
  const PipelineOptions *o = dump->o;
  bool print = o->print_after_all || list_has(dump->arena, o->print_after, pass->name), ok = true;
  dump->n++;
  if (!print && !o->print_changed && !o->dump_dir && !o->diffs) return true;
  Arena *a = arena_new();
  // The text is made once, for all prints.
  const char *text = module_text(m, a);
  if (print) show(dump, "after", pass, text);
  if (o->print_changed) show_change(dump, pass, text, dump->out);
  if (o->diffs) show_change(dump, pass, text, o->diffs);
  if (o->dump_dir) ok = write_numbered(dump, pass->name, text, d);
  arena_free(a);
  return ok;
}

void dump_broken(const Dump *dump, const Module *m, const Pass *pass, Diag *d) {
  Arena *a = arena_new();
  const char *folder = getenv("TMPDIR");
  char *path = NULL;
  // With a folder, dump_after has written the file.
  if (dump->o->dump_dir) {
    diag_note(d, NULL, "the module is in '%s/%02d-%s.nn'", dump->o->dump_dir, dump->n, pass->name);
  } else {
    // Without one, a temporary file that is not deleted.
    const char *pattern =
        str_format(a, "%s/nnaot-%s-XXXXXX.nn", folder && *folder ? folder : "/tmp", pass->name);
    path = arena_copy(a, pattern, strlen(pattern) + 1);
    int fd = mkstemps(path, 3);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = f && fputs(module_text(m, a), f) >= 0;
    ok &= f && !fclose(f);
    if (ok) diag_note(d, NULL, "the module is in '%s'", path);
    if (!ok && fd >= 0) unlink(path);
  }
  arena_free(a);
}
