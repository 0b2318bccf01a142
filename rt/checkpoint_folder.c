// See checkpoint.h.
//
// The lock is the kernel's (flock), so that of a killed run ends with it; the file `.lock` names
// its holder, and is removed at the end.  A run that finds it held waits a second for a run that is
// just ending.  Only runs that write take it: --eval-only and --verify read while others write.
//
//     run A                     run B
//     open .lock, flock         open .lock, flock: held
//     write …                   name its process, end
//     unlink, close             open the old .lock, flock: it has no name any more, open again
//
// The lock also tells that temporary files of checkpoints are those of ended runs.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint.h"

// ---- names

static const char extension[] = ".safetensors";

char *nnrt_checkpoint_path(const Checkpoints *c, int64_t step) {
  return nnrt_must_format("%s/step-%012lld%s", c->dir, (long long)step, extension);
}

// Returns the step in the first `n` bytes of a name; -1 if they are not a checkpoint's name.
static int64_t step_of(const char *name, size_t n) {
  long long step;
  char again[64];
  if (sscanf(name, "step-%lld.", &step) != 1 || step < 0) return -1;
  // The name must be exactly the one that this step is written under.
  snprintf(again, sizeof again, "step-%012lld%s", step, extension);
  return strlen(again) == n && strncmp(name, again, n) == 0 ? step : -1;
}

// Returns the generation of a checkpoint's name: 0 of this run, 1 of ".old", 2 of ".old-2"; -1 for
// any other name.
static int generation_of(const char *name) {
  size_t n = strlen(name);
  const char *old = strstr(name, ".old");
  if (!old) return step_of(name, n) >= 0 ? 0 : -1;
  if (step_of(name, (size_t)(old - name)) < 0) return -1;
  if (!old[4]) return 1;
  long generation = old[4] == '-' ? strtol(old + 5, NULL, 10) : 0;
  return generation > 1 && generation < INT_MAX ? (int)generation : -1;
}

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

// Calls `each` for every name in the folder; false if it cannot be read.
static bool each_name(const Checkpoints *c, void (*each)(void *of, DIR *folder, const char *name),
                      void *of, Why *w) {
  DIR *folder = opendir(c->dir);
  if (!folder) return why(w, "cannot read the folder '%s': %s", c->dir, strerror(errno));
  for (;;) {
    errno = 0; // readdir returns NULL at the end and after an error
    struct dirent *e = readdir(folder);
    if (!e) break;
    each(of, folder, e->d_name);
  }
  int code = errno;
  closedir(folder);
  return !code || why(w, "cannot read the folder '%s': %s", c->dir, strerror(code));
}

typedef struct Steps {
  int64_t *step;
  int n, room;
} Steps;

static void add_step(void *of, DIR *folder, const char *name) {
  Steps *all = of;
  int64_t step = step_of(name, strlen(name));
  (void)folder;
  if (step < 0) return;
  if (all->n == all->room) {
    all->room = all->room ? 2 * all->room : 16;
    all->step = realloc(all->step, (size_t)all->room * sizeof *all->step);
    if (!all->step) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  }
  all->step[all->n++] = step;
}

int nnrt_checkpoint_list(const Checkpoints *c, int64_t **out, Why *w) {
  Steps all = {0};
  bool ok = each_name(c, add_step, &all, w);
  *out = all.step;
  if (!ok) return -1;
  if (all.n) qsort(all.step, (size_t)all.n, sizeof *all.step, newest_first);
  return all.n;
}

bool nnrt_checkpoint_is_there(const Checkpoints *c, int64_t step) {
  char *path = nnrt_checkpoint_path(c, step);
  bool there = step >= 0 && access(path, F_OK) == 0;
  free(path);
  return there;
}

// ---- the lock

static struct {
  int fd;
  char *path;
} held = {.fd = -1};

static int open_lock(const char *path) {
  int how = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  int fd = open(path, O_RDWR | O_CREAT | how, 0666);
  // The file of another user, whose run was killed, can still be locked.
  if (fd < 0 && errno == EACCES) fd = open(path, O_RDONLY | how);
  return fd;
}

// Names the run that has the lock.
static bool say_locked(const char *dir, int fd, Why *w) {
  char text[200];
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = 0;
  text[strcspn(text, "\n")] = 0;
  return why(w,
             "another run writes checkpoints to '%s': %s\n"
             "hint: end it, or take another --checkpoint-dir",
             dir, *text ? text : "it has not said which");
}

static void write_holder(int fd) {
  char text[200], host[HOST_NAME_MAX + 1] = "localhost";
  time_t now = time(NULL);
  struct tm utc;
  gethostname(host, sizeof host - 1);
  gmtime_r(&now, &utc);
  int n = snprintf(text, sizeof text, "process %ld on %.100s, since ", (long)getpid(), host);
  n += (int)strftime(text + n, sizeof text - (size_t)n, "%Y-%m-%d %H:%M:%S UTC\n", &utc);
  // On a full disk the text is missing; the lock holds all the same.
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) return;
}

static bool take_lock(const char *dir, Why *w) {
  char *path = nnrt_must_format("%s/.lock", dir);
  int fd = -1;
  for (;;) {
    struct stat ours, named;
    fd = open_lock(path);
    if (fd < 0 || fstat(fd, &ours) != 0) {
      why(w, "cannot write '%s': %s", path, strerror(errno));
      break;
    }
    if (!S_ISREG(ours.st_mode)) {
      why(w, "cannot write '%s': it is not a file", path);
      break;
    }
    int code = nnrt_lock(fd);
    if (code == 0) {
      // The run before may have removed it meanwhile.
      bool same =
          stat(path, &named) == 0 && named.st_ino == ours.st_ino && named.st_dev == ours.st_dev;
      if (same) {
        write_holder(fd);
        held.fd = fd;
        held.path = path;
        return true;
      }
    } else if (code != EWOULDBLOCK) {
      nnrt_say_note("the file system of '%s' has no locks (%s): another run in it would not be "
                    "noticed",
                    dir, strerror(code));
      close(fd);
      free(path);
      return true;
    } else {
      say_locked(dir, fd, w);
      break;
    }
    close(fd);
  }
  if (fd >= 0) close(fd);
  free(path);
  return false;
}

void nnrt_checkpoint_unlock(void) {
  if (held.fd < 0) return;
  // Removed before it is free: nobody else has this file's lock.
  unlink(held.path);
  close(held.fd);
  free(held.path);
  held.fd = -1;
}

// A run that was killed while it wrote leaves an unfinished file under a temporary name.
static void remove_leftover(void *of, DIR *folder, const char *name) {
  (void)of;
  if (strncmp(name, ".step-", 6) == 0 && strstr(name, ".safetensors.tmp-"))
    unlinkat(dirfd(folder), name, 0);
}

bool nnrt_checkpoint_open(Checkpoints *c, const char *dir, int keep, bool writes, Why *w) {
  *c = (Checkpoints){.dir = dir, .keep = keep, .last = -1, .anew = true};
  if (!writes) return true;
  if (!nnrt_make_folder(dir, w) || !take_lock(dir, w)) return false;
  // A folder without permission to write is an error now, not at the first checkpoint.
  char *path = nnrt_checkpoint_path(c, 0);
  bool ok = nnrt_out_possible(path, w);
  free(path);
  // Without a lock they may be those of another run.
  return ok && (held.fd < 0 || each_name(c, remove_leftover, NULL, w));
}

// ---- checkpoints of an earlier run

static void find_generation(void *of, DIR *folder, const char *name) {
  int *newest = of, generation = generation_of(name);
  (void)folder;
  if (generation > *newest) *newest = generation;
}

bool nnrt_checkpoint_set_aside(Checkpoints *c, Why *w) {
  int64_t *steps;
  int n = nnrt_checkpoint_list(c, &steps, w), done = 0;
  bool ok = n >= 0;
  char suffix[32] = ".old";
  // All have one generation, also if an earlier attempt was interrupted by a full disk.
  if (ok && n > 0 && !c->generation) {
    ok = each_name(c, find_generation, &c->generation, w);
    c->generation++;
  }
  if (c->generation > 1) snprintf(suffix, sizeof suffix, ".old-%d", c->generation);
  for (; ok && done < n; done += ok) {
    char *path = nnrt_checkpoint_path(c, steps[done]),
         *old = nnrt_must_format("%s%s", path, suffix);
    ok = rename(path, old) == 0 ||
         why(w, "cannot rename '%s' to '%s': %s", path, old, strerror(errno));
    free(path);
    free(old);
  }
  // The user may not expect the new names.
  if (done > 0)
    nnrt_say_note("%d checkpoint%s of an earlier run in '%s' %s now called *%s", done,
                  done == 1 ? "" : "s", c->dir, done == 1 ? "is" : "are", suffix);
  free(steps);
  return ok;
}

// ---- space

void nnrt_checkpoint_prune(const Checkpoints *c) {
  int64_t *steps;
  Why w;
  int n = nnrt_checkpoint_list(c, &steps, &w), kept = 0;
  if (n < 0) nnrt_say_warning("older checkpoints stay: %s", w.text);
  for (int i = 0; i < n; i++) {
    // A checkpoint newer than our last was found damaged.  It is kept until it is replaced.
    if (steps[i] > c->last || kept++ < c->keep) continue;
    char *surplus = nnrt_checkpoint_path(c, steps[i]);
    if (unlink(surplus) != 0 && errno != ENOENT)
      nnrt_say_warning("cannot remove '%s': %s", surplus, strerror(errno));
    free(surplus);
  }
  free(steps);
}

bool nnrt_checkpoint_make_room(void *of) {
  const Checkpoints *c = of;
  int64_t *steps;
  Why w;
  // Those of an earlier run are not ours to remove.
  if (c->anew) return false;
  int n = nnrt_checkpoint_list(c, &steps, &w);
  bool made = false;
  if (n > 0 && steps[n - 1] < c->last) {
    char *oldest = nnrt_checkpoint_path(c, steps[n - 1]);
    made = unlink(oldest) == 0;
    if (made)
      nnrt_say_warning("the disk is full: '%s', the oldest checkpoint, is removed for a newer one",
                       oldest);
    free(oldest);
  }
  free(steps);
  return made;
}
