// The executable's RUNPATH: the folders that the dynamic linker searches for its libraries.
//
//     $ORIGIN : $ORIGIN/lib : /opt/onednn/lib     by default: the folders of this machine's libraries
//     $ORIGIN : $ORIGIN/lib                       --rpath none
//     $ORIGIN : $ORIGIN/lib : /usr/lib/nnaot      --rpath /usr/lib/nnaot
//
// A folder of this machine is in it only if no other user can put a library there: it and all
// folders above it belong to root or to the user who compiles, and no one else may write to them.
// An empty or relative element would be the current folder of whoever starts the executable.

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"

#define BESIDE "$ORIGIN:$ORIGIN/lib"

// Whether the group is the user's own, as Debian makes one for each user: no other is in it.
static bool is_private_group(gid_t gid) {
  const struct group *g = getgrgid(gid);
  const struct passwd *user = getpwuid(geteuid());
  if (!g || !user || user->pw_gid != gid || strcmp(g->gr_name, user->pw_name) != 0) return false;
  for (char **member = g->gr_mem; *member; member++)
    if (strcmp(*member, user->pw_name) != 0) return false;
  return true;
}

const char *folder_of_others(Arena *a, const char *folder, const char **why) {
  char real[PATH_MAX];
  if (!realpath(folder, real)) {
    *why = "there is no such folder";
    return folder;
  }
  for (bool first = true;; first = false) {
    struct stat st;
    if (stat(real, &st) != 0) return NULL;
    // In a sticky folder, as /tmp, others can make entries, but not replace one of ours.
    bool wide = (st.st_mode & S_IWOTH) || ((st.st_mode & S_IWGRP) && !is_private_group(st.st_gid));
    bool open = wide && (first || !(st.st_mode & S_ISVTX));
    bool foreign = st.st_uid != 0 && st.st_uid != geteuid();
    if (open || foreign) {
      *why = foreign ? "it belongs to another user" : "other users may write to it";
      return str_copy(a, real);
    }
    char *slash = strrchr(real, '/');
    if (!slash || !real[1]) return NULL;
    slash[slash == real] = 0;
  }
}

const char *search_path(Arena *a, const BackendOptions *o, const char *const *folder, int n,
                        Diag *d) {
  if (o->rpath)
    return strcmp(o->rpath, "none") != 0 ? str_format(a, BESIDE ":%s", o->rpath) : BESIDE;
  StrBuf path = {.arena = a};
  strbuf_add(&path, BESIDE);
  for (int i = 0; i < n; i++) {
    const char *why, *open = folder_of_others(a, folder[i], &why);
    if (!open && *folder[i] == '/' && !strpbrk(folder[i], ":,")) {
      strbuf_addf(&path, ":%s", folder[i]);
      continue;
    }
    if (!d) continue;
    if (!open) {
      open = folder[i];
      why = "a search path cannot name it";
    }
    diag_warning(d, NULL, "the executable does not search '%s' for its libraries: '%s': %s",
                 folder[i], open, why);
    diag_hint(d, "copy them beside the executable, or name another folder by --rpath");
  }
  return path.at;
}

bool backend_rpath(const char *text, Diag *d) {
  if (!strcmp(text, "none")) return true;
  bool absolute = *text == '/' || str_starts(text, "$ORIGIN/");
  if (absolute && !strpbrk(text, ":,")) return true;
  diag_error(d, NULL, "--rpath: '%s' is no absolute folder", text);
  diag_hint(d, "--rpath none, a folder from /, or one relative to the executable, from $ORIGIN/; "
               "without ':' and ','");
  return false;
}
