// Plans of cuDNN made ahead of time.  The linked program runs here without a gpu, once for each
// kind of gpu that it may run on, and its output is appended to it.
//
//     NNRT_PLAN_DEVICE=devices/h200.json NNRT_PLAN_OUT=plans.1 ./program
//
// devices/ has the properties of gpus in cuDNN's format; those of the target's architectures are
// used.  Without a driver, a stub of its library suffices, since cuDNN only loads it
// (rt/cuda/standin).  rt/cuda/cudnn_plans.h is the other side.

#include "cudnn_plans.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef Vec(const char *) Paths;

static int compare_paths(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *library_path(Build *b) {
  const char *before = getenv("LD_LIBRARY_PATH");
  const char *standin =
      b->installed ? str_format(b->arena, "%s/standin", b->libraries) : NNAOT_STANDIN;
  return str_format(b->arena, "LD_LIBRARY_PATH=%s%s%s", standin, before && *before ? ":" : "",
                    before ? before : "");
}

// Makes the plans for one gpu.  Returns false with the reason in *out_why.
static bool plan_one(Build *b, const char *device, FILE *plans, const char **out_why) {
  // The stub of the driver's library is needed only without a driver.
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver) dlclose(driver);
  Command c = {.arena = b->arena};
  command_add(&c, "./program");
  const char *out = str_format(b->arena, "%s/plans.one", b->dir);
  const char *environment[] = {str_format(b->arena, "NNRT_PLAN_DEVICE=%s", device),
                               str_format(b->arena, "NNRT_PLAN_OUT=%s", out),
                               driver ? NULL : library_path(b), NULL};
  int status;
  unlink(str_format(b->arena, "%s/log", b->dir)); // of the compilers
  if (!command_start(b, &c, environment, &status)) return false;
  // The first line of the program's output tells the cause of a failure.
  char line[512] = "";
  FILE *f = fopen(str_format(b->arena, "%s/log", b->dir), "r");
  if (f && !fgets(line, sizeof line, f)) line[0] = 0;
  if (f) fclose(f);
  line[strcspn(line, "\n")] = 0;
  *out_why = *line ? str_copy(b->arena, line) : "it does not say why";
  if (!WIFEXITED(status))
    *out_why = str_format(b->arena, "it was ended by a signal: %s", strsignal(WTERMSIG(status)));
  bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  // The plans of this gpu follow those of the others.
  if (ok) {
    char piece[1 << 14];
    size_t n;
    FILE *from = fopen(out, "rb");
    while (from && (n = fread(piece, 1, sizeof piece, from)) > 0)
      fwrite(piece, 1, n, plans);
    ok = from && !ferror(from) && !ferror(plans);
    if (from) fclose(from);
    if (!ok) *out_why = strerror(errno);
  }
  unlink(out);
  return ok;
}

static bool not_made(Build *b, const char *what, const char *why) {
  if (b->o->plans == PLANS_yes) return diag_error(b->d, NULL, "--aot-plans=yes: %s: %s", what, why);
  diag_note(b->d, NULL, "%s: %s; the executable makes plans of cudnn when it starts", what, why);
  return true;
}

bool plans_make(Build *b) {
  if (b->o->plans == PLANS_no) return true;
  // The properties of gpus of the target's architectures, ordered by name.
  Paths devices = {0};
  const TargetSpec *t = &b->o->target;
  const char *folder =
      b->installed ? str_format(b->arena, "%s/devices", b->libraries) : NNAOT_DEVICES;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    if (!str_ends(e->d_name, ".json")) continue;
    const char *path = str_format(b->arena, "%s/%s", folder, e->d_name);
    // The number of the architecture in the file, or 0: 90 of "deviceVer":900.
    static const char key[] = "\"deviceVer\":";
    char text[1 << 14];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *at = strstr(text, key);
    int sm = at ? atoi(at + sizeof key - 1) / 10 : 0;
    for (int i = 0; i < t->n_sm; i++)
      if (t->sm[i] == sm) vec_push(b->arena, &devices, path);
  }
  if (dir) closedir(dir);
  if (devices.n) qsort(devices.at, (size_t)devices.n, sizeof *devices.at, compare_paths);

  if (devices.n == 0)
    return not_made(b, "no plans are made ahead of time",
                    "no gpu is known that has these architectures");
  const char *path = str_format(b->arena, "%s/plans", b->dir);
  FILE *plans = fopen(path, "wb");
  if (!plans) return diag_error(b->d, NULL, "cannot write '%s': %s", path, strerror(errno));
  const char *why = "", *failed = NULL;
  // `failed` names the gpu without plans, for the message.
  for (int i = 0; i < devices.n && !failed; i++)
    if (!plan_one(b, devices.at[i], plans, &why)) failed = strrchr(devices.at[i], '/') + 1;
  if (fclose(plans) && !failed) {
    why = strerror(errno);
    failed = "plans";
  }
  if (!failed) return true;
  unlink(path); // all or none: a gap would show only on that gpu
  return not_made(b, str_format(b->arena, "plans for '%s' could not be made ahead of time", failed),
                  why);
}
