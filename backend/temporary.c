// See temporary.h.  The handler may run at any instruction, so it calls only functions that POSIX
// allows there (openat, unlinkat, rmdir, kill, waitpid), and the kernel's getdents64, on paths that
// were put together before.
//
// A folder has a file OWNER, which its maker has locked (flock).  Without a lock the maker was
// killed, and the next one removes the folder.  A folder that is kept for the user has no such
// file.

#include "temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[PATH_MAX], file[PATH_MAX];
static volatile sig_atomic_t has_dir, has_file;
static volatile pid_t children[MAX_CHILDREN]; // 0: free; negative: leads a process group

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

// ---- folders

static const char OWNER[] = ".nnaot-owner";

// Removes the files of a folder, without memory and streams: a signal may have interrupted both.
static void empty(int folder) {
  // As the kernel writes it: struct linux_dirent64.
  enum { LENGTH_AT = 16, NAME_AT = 19 };
  char entries[4096];
  long n;
  while ((n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    unsigned short length;
    for (long at = 0; at < n; at += length) {
      memcpy(&length, entries + at + LENGTH_AT, sizeof length);
      unlinkat(folder, entries + at + NAME_AT, 0); // not the folders . and ..
    }
  }
}

static int open_folder(int in, const char *name) {
  return openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Removes the folder of a killed process.
static void remove_if_left(int in, const char *name) {
  struct stat st;
  int folder = open_folder(in, name);
  if (folder < 0) return;
  int owner = openat(folder, OWNER, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (owner >= 0 && fstat(owner, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
      flock(owner, LOCK_EX | LOCK_NB) == 0) {
    empty(folder);
    unlinkat(in, name, AT_REMOVEDIR);
  }
  if (owner >= 0) close(owner);
  close(folder);
}

static void remove_left(const char *in) {
  DIR *all = opendir(in);
  for (struct dirent *e; all && (e = readdir(all));)
    if (strncmp(e->d_name, "nnaot-", 6) == 0) remove_if_left(dirfd(all), e->d_name);
  if (all) closedir(all);
}

// Makes the file OWNER with its lock, which lasts as long as the process.  The file gets its name
// once it is locked: no other process takes the folder for one that was left.
static bool own(const char *path) {
  static const char UNLOCKED[] = ".nnaot-unlocked";
  int folder = open_folder(AT_FDCWD, path);
  int owner =
      folder < 0 ? -1 : openat(folder, UNLOCKED, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  // Without locks in the file system, folders of killed processes stay.
  if (owner >= 0) flock(owner, LOCK_EX | LOCK_NB);
  bool ok = owner >= 0 && renameat(folder, UNLOCKED, folder, OWNER) == 0;
  int code = errno;
  if (!ok && owner >= 0) {
    unlinkat(folder, UNLOCKED, 0);
    close(owner);
  }
  if (folder >= 0) close(folder);
  errno = code;
  return ok;
}

bool temporary_dir_make(char *path, size_t size, const char *name) {
  const char *in = getenv("TMPDIR");
  if (!in || !*in) in = "/tmp";
  remove_left(in);
  if (snprintf(path, size, "%s/%s-XXXXXX", in, name) >= (int)size) {
    errno = ENAMETOOLONG;
    return false;
  }
  if (!mkdtemp(path)) return false;
  if (own(path)) return true;
  int code = errno;
  rmdir(path);
  errno = code;
  return false;
}

void temporary_dir(const char *path) {
  has_dir = 0;
  if (path) has_dir = snprintf(dir, sizeof dir, "%s", path) < (int)sizeof dir;
}

void temporary_dir_keep(void) {
  int folder = has_dir ? open_folder(AT_FDCWD, dir) : -1;
  has_dir = 0;
  if (folder < 0) return;
  unlinkat(folder, OWNER, 0);
  close(folder);
}

void temporary_file(const char *path) {
  has_file = 0;
  if (!path) return;
  has_file = snprintf(file, sizeof file, "%s", path) < (int)sizeof file;
}

void temporary_dir_remove(void) {
  int folder = has_dir ? open_folder(AT_FDCWD, dir) : -1;
  if (folder >= 0) {
    empty(folder);
    close(folder);
    rmdir(dir);
  }
  has_dir = 0;
}

// ---- signals

static pid_t process_of(pid_t child) {
  return child < 0 ? -child : child;
}

void temporary_stop_children(void) {
  for (int i = 0; i < MAX_CHILDREN; i++)
    if (children[i]) kill(children[i], SIGTERM);
  for (int i = 0; i < MAX_CHILDREN; i++) {
    while (children[i] && waitpid(process_of(children[i]), NULL, 0) < 0 && errno == EINTR) {
    }
    children[i] = 0;
  }
}

static void stop(int signal_number) {
  temporary_stop_children();
  // Children have ended, so nothing writes there any more.
  temporary_dir_remove();
  if (has_file) unlink(file);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void each(sigset_t *set) {
  sigemptyset(set);
  for (int i = 0; i < N_SIGNALS; i++)
    sigaddset(set, signals[i]);
}

void temporary_watch(void) {
  struct sigaction new = {.sa_handler = stop, .sa_flags = SA_RESTART}, old;
  each(&new.sa_mask); // block the other signals meanwhile
  for (int i = 0; i < N_SIGNALS; i++)
    if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaction(signals[i], &new, NULL);
}

// Signals are blocked meanwhile, so that every child is recorded.
static pid_t fork_child(bool group) {
  sigset_t ours, before;
  int slot = 0;
  while (slot < MAX_CHILDREN && children[slot])
    slot++;
  if (slot == MAX_CHILDREN) {
    errno = EAGAIN;
    return -1;
  }
  each(&ours);
  sigprocmask(SIG_BLOCK, &ours, &before);
  pid_t child = fork();
  // Both set the group: either may run first.
  if (group && child >= 0) setpgid(child, child);
  if (child == 0) {
    // The recorded paths and processes are the parent's.
    struct sigaction old;
    has_dir = has_file = 0;
    for (int i = 0; i < MAX_CHILDREN; i++)
      children[i] = 0;
    for (int i = 0; i < N_SIGNALS; i++)
      if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        signal(signals[i], SIG_DFL);
  }
  if (child > 0) children[slot] = group ? -child : child;
  sigprocmask(SIG_SETMASK, &before, NULL);
  return child;
}

pid_t temporary_fork(void) {
  return fork_child(false);
}

pid_t temporary_fork_group(void) {
  return fork_child(true);
}

pid_t temporary_wait(pid_t child, int *status) {
  pid_t ended;
  do
    ended = waitpid(child, status, 0);
  while (ended < 0 && errno == EINTR);
  for (int i = 0; ended > 0 && i < MAX_CHILDREN; i++)
    if (process_of(children[i]) == ended) children[i] = 0;
  return ended;
}
